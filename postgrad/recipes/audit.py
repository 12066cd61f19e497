"""Texts scored by a reward model or another judge; an audit of it for biases and for its agreement with
labels (evaluation/audit.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from postgrad.data.preferences import read_pairs, split_rows
from postgrad.data.rows import read_data_rows, read_messages
from postgrad.data.tasks import Task, load_task
from postgrad.evaluation.audit import (
    SPLIT,
    Answer,
    Score,
    answers_of_pairs,
    answers_of_task,
    audit_scores,
    label_agreement,
    text_scorer,
)
from postgrad.evaluation.edits import draw_probes
from postgrad.evaluation.progress import Progress
from postgrad.recipes.fit import config_value
from postgrad.records import Pair, Prompt, Rollout
from postgrad.resolve.models import open_chat, open_folder, open_reward
from postgrad.resolve.rewards import ModelTerm, parse_reward
from postgrad.resolve.tasks import make_task
from postgrad.runs import Run


class Judge(NamedTuple):
    """Who scores answers. length: tokens of an answer, where it has a limit of so many."""

    score: Callable[[Sequence[tuple[Prompt, str]]], Sequence[float]]
    length: Callable[[Answer], int] = lambda answer: len(answer[1].split())
    max_tokens: int | None = None

    def of_answers(self, answers: Sequence[Answer]) -> Sequence[float]:
        return self.score([(Prompt(id=str(i), messages=messages), text)
                           for i, (messages, text) in enumerate(answers)])


def score_answers(judge: object, answers: str | Path | Iterable[object], *,
                  device: str = "cpu") -> list[float]:
    """The score of each answer. judge: as `reward` of fit, a reward model, its Run, a judge behind an
    address, a function or a verifier's name.

    score("runs/reward", [("What is 2+3?", "It is 5."), {"prompt": "And 4+4?", "completion": "8"}])

    answers: pairs of a prompt and a text, dicts of `prompt` and `completion` or of `messages` (each a text or
    messages; `answer` and further columns are the prompt's), rollouts, or a file of such rows.
    """
    if isinstance(answers, str | Path):
        read = [prompt_and_text(row, where) for _, where, row in read_data_rows(answers)]
    else:
        read = [prompt_and_text(answer, f"answers[{i}]") for i, answer in enumerate(answers)]
    return [float(x) for x in open_judge(judge, device).score(read)] if read else []


def prompt_and_text(answer: object, where: str) -> tuple[Prompt, str]:
    """An answer as people write it: its prompt, and its text."""
    if isinstance(answer, Rollout):
        return answer.prompt, answer.text
    columns: dict[str, object] = {}
    if isinstance(answer, Mapping):
        columns = dict(answer)
        talk = columns.pop("messages", None)
        pair = (talk[:-1], talk[-1:]) if isinstance(talk, Sequence) and not isinstance(talk, str) else (
            columns.pop("prompt", None), columns.pop("completion", None))
    elif isinstance(answer, Sequence) and not isinstance(answer, str) and len(answer) == 2:
        pair = answer[0], answer[1]
    else:
        pair = None, None
    if not pair[0] or pair[1] is None:
        raise ValueError(f"{where} is {answer!r:.60}: expected a prompt and a text, a dict of prompt and "
                         "completion or of messages, or a rollout.")
    shown, text = pair
    if not isinstance(text, str):
        *before, last = read_messages(text, where)
        if before or last["role"] != "assistant":
            raise ValueError(f"{where} ends with {last['role']!r}: expected one message of the assistant.")
        text = last["content"]
    if isinstance(shown, Prompt):
        return shown, text
    messages = ({"role": "user", "content": shown},) if isinstance(shown, str) else read_messages(shown,
                                                                                                 where)
    return Prompt(id=where, messages=messages, answer=columns.pop("answer", None), meta=columns), text


def open_judge(judge: object, device: str, track: Progress = iter) -> Judge:
    """Opens whatever stands for a reward; a reward model reads texts by its own template."""
    spec = parse_reward(config_value("reward", judge))
    models = [term for term in spec.terms if isinstance(term, ModelTerm)]
    if not spec.terms or models and (len(spec.terms) > 1 or len(models[0].names) != 1):
        raise ValueError(f"the judge is {judge!r:.60}: expected one reward model by its name or Run, or a "
                         "judge or function that scores texts.")
    if models:
        name = models[0].names[0]
        net, chat = open_reward(name, device)
        if not net.score_head.weight.any():
            raise ValueError(f"{name} is no reward model: it scores all 0; train one with `postgrad "
                             "train reward:...`")
        score = text_scorer(net.requires_grad_(False), chat, device=device, track=track)
        return Judge(lambda answers: score([(prompt.messages, text) for prompt, text in answers]),
                     lambda answer: len(chat.answer(*answer)[0]), net.config.max_position_embeddings)

    def judged(answers: Sequence[tuple[Prompt, str]]) -> list[float]:
        task = make_task([answers[0][0]], lambda prompt, text: 0.0)
        verdicts = spec.open_alone(task, open_chat(open_folder("tiny-chat")), device).score(
            [Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text=text, finished=True, seed=0)
             for prompt, text in answers])
        if failed := [verdict.error for verdict in verdicts if verdict.error]:
            raise ValueError(f"{len(failed)} of {len(answers)} answers could not be judged: {failed[0]}")
        return [verdict.score for verdict in verdicts]

    return Judge(judged)


def audit_reward_model(model: str, *, task: str, pairs: str | None, probes: Sequence[str], count: int,
                       seed: int, device: str, track: Progress = iter) -> dict[str, object]:
    """The audit's figures, with the model and the source of the answers.

    pairs: a JSONL file of preference pairs whose answers are edited, in place of the task's.
    """
    draw_probes(probes, seed)  # refuses unknown names before the model is loaded
    labelled: Sequence[Pair] = []
    truth: Score | None = None
    if pairs:
        labelled, source = unseen_pairs(model, pairs), pairs
        answers = answers_of_pairs(labelled, count, seed)
    else:
        asked: Task = load_task(task)
        (answers, truth), source = answers_of_task(asked, count, seed), f"{asked.name}, {SPLIT} split"
        if asked.preferences is not None:
            labelled = asked.preferences(SPLIT, count, seed)
    judge = open_judge(model, device, track)
    report = audit_scores(answers, judge.of_answers, names=probes, seed=seed, truth=truth,
                          length=judge.length, max_tokens=judge.max_tokens)
    fitting = [pair for pair in labelled if judge.max_tokens is None
               or all(judge.length(reply) <= judge.max_tokens for reply in pair.replies)]
    return {"model": model, "source": source, **report,
            "agreement": label_agreement(fitting[:count], judge.of_answers)}


def unseen_pairs(model: str, pairs: str) -> Sequence[Pair]:
    """The pairs of a file; where the model is a run that was trained on it, those that it held out."""
    read = read_pairs(Path(pairs))
    config = Run.open(model).config if (Path(model) / "run.json").exists() else {}
    if config.get("data") is None or Path(str(config["data"])).resolve() != Path(pairs).resolve():
        return read
    named = config.get("pairs", {}).get("holdout")
    share = named if named is not None else 0.0 if config.get("eval_data") is not None else 0.1
    held_out = split_rows(read, share)[1]
    if not held_out:
        raise ValueError(f"{model} was trained on all of {pairs}: give pairs that it has not seen.")
    return held_out
