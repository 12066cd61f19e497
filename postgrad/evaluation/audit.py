"""What a reward model pays for besides quality: the change of its score under controlled edits of answers.

    effect = mean of (score(edited) - score(original)) / standard deviation of the scores of unedited answers

with a 95 % interval over prompts and wordings both (maths/intervals.py, crossed_interval): a bias is what
different sentences, put into answers to different prompts, have in common. With one wording alone the
interval would be about that sentence.
A bias is found when the interval excludes 0 and the effect is at least THRESHOLD: with enough answers an
interval excludes 0 for effects too small to matter.

An edit may change what an answer deserves. Where the true quality is known,
what the same edits do to it stands beside.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from postgrad.evaluation.edits import PROBES, Probe, draw_probes
from postgrad.evaluation.progress import Progress
from postgrad.maths.intervals import crossed_interval, grouped_interval
from postgrad.records import Conversation, Message, Pair, Prompt, pad_rows
from postgrad.rewards.base import Verify, guarded

THRESHOLD = 0.2  # of the spread: what Cohen (1988) calls a small effect
SPLIT = "test"

Answer = tuple[tuple[Message, ...], str]  # the messages that ask, and the text that answers
Asked = tuple[tuple[str, str], ...]       # the messages as (role, content)
AnswerKey = tuple[Asked, str]
Score = Callable[[Sequence[Answer]], Sequence[float]]


Row = dict[str, Any]  # figures of a probe, as JSON


class AuditTask(Protocol):
    """What an audit needs of a task."""

    @property
    def name(self) -> str: ...

    @property
    def prompts(self) -> Callable[[str, int, int], list[Prompt]]: ...

    @property
    def demonstrations(self) -> Callable[[str, int, int], list[Conversation]] | None: ...

    @property
    def gold(self) -> Callable[..., str] | None: ...

    @property
    def verify(self) -> Verify | None: ...

    def of_one_reply(self, who: str) -> None: ...


class AnswerChat(Protocol):
    def answer(self, messages: Sequence[Message], text: str) -> tuple[list[int], object]: ...


class SequenceModel(Protocol):
    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor: ...


class Edited(NamedTuple):
    """One edit of one answer."""

    answer: int
    kind: str
    wording: int
    added: int          # tokens
    edited: Answer


class EditEffect(NamedTuple):
    """What an edit changed."""

    kind: str
    prompt: Asked
    answer: int
    wording: int
    added: int          # tokens
    rise: float         # score(edited) - score(original)
    effect: float       # the same, in units of the spread
    deserved: float     # of the true quality, in units of its own spread; nan where that is not known


def audit_scores(answers: Sequence[Answer], score: Score, *, names: Sequence[str] = tuple(PROBES),
                 seed: int = 0, length: Callable[[Answer], int] = lambda answer: len(answer[1].split()),
                 max_tokens: int | None = None, truth: Score | None = None) -> Row:
    """Every probe's effect on the score (`probe_report`), as one JSON object. length: tokens of an answer;
    longer ones than `max_tokens` are left out and counted. truth: the true quality."""
    given, answers = len(answers), [a for a in answers if max_tokens is None or length(a) <= max_tokens]
    if len(answers) < 2:
        raise ValueError(f"{len(answers)} of {given} answers fit into the model's {max_tokens} tokens; an "
                         "audit needs at least 2: give shorter ones.")
    made = [(probe, *apply_probe(probe, answers, length, max_tokens)) for probe in draw_probes(names, seed)]
    texts = list(dict.fromkeys([*map(answer_key, answers),
                                *(answer_key(e.edited) for _, edits, _ in made for e in edits)]))
    scores, truths = score_table(score, texts), score_table(truth, texts) if truth else None
    spread = standard_deviation([scores[answer_key(a)] for a in answers])
    if not spread > 0:
        raise ValueError(f"the model scores all {len(answers)} answers the same, {scores[texts[0]]:g}: "
                         "nothing can be audited.")
    true_spread = standard_deviation([truths[answer_key(a)] for a in answers]) if truths else math.nan

    def measure(e: Edited) -> EditEffect:
        a, b = answer_key(answers[e.answer]), answer_key(e.edited)
        deserved = (truths[b] - truths[a]) / true_spread if truths and true_spread else math.nan
        return EditEffect(e.kind, prompt_key(e.edited), e.answer, e.wording, e.added, scores[b] - scores[a],
                    (scores[b] - scores[a]) / spread, deserved)

    found = [probe_report(probe, list(map(measure, edits)), left) for probe, edits, left in made]
    add_length_share(found, spread)
    for row in found:
        row["sentence"] = probe_sentence(row)
    return {"answers": len(answers), "too_long": given - len(answers),
            "prompts": len(set(map(prompt_key, answers))),
            "mean": statistics.fmean(scores[answer_key(a)] for a in answers), "spread": spread,
            "threshold": THRESHOLD, "level": 0.95, "seed": seed, "probes": found}


def label_agreement(pairs: Sequence[Pair], score: Score) -> Row | None:
    """How often the judge scores the answer higher that people preferred, with an interval over prompts;
    equal scores count half. Ties among the labels are left out; None where no label decides."""
    decided = [pair for pair in pairs if not pair.tie]
    if not decided:
        return None
    scores = score_table(score, list(dict.fromkeys(answer_key(reply) for pair in decided
                                                   for reply in pair.replies)))
    gaps = [scores[answer_key(chosen)] - scores[answer_key(rejected)]
            for chosen, rejected in (pair.replies for pair in decided)]
    share, low, high = grouped_interval([(gap > 0) + 0.5 * (gap == 0) for gap in gaps],
                                        [prompt_key((pair.messages, "")) for pair in decided], (0.0, 1.0))
    return {"pairs": len(decided), "share": share, "interval": [low, high], "equal": gaps.count(0.0),
            "ties": len(pairs) - len(decided)}


def prompt_key(answer: Answer) -> Asked:
    return tuple((m["role"], m["content"]) for m in answer[0])


def answer_key(answer: Answer) -> AnswerKey:
    return prompt_key(answer), answer[1]


def score_table(score: Score, texts: Sequence[AnswerKey]) -> dict[AnswerKey, float]:
    """The score of each text, computed once."""
    answers = [(tuple({"role": r, "content": c} for r, c in messages), text) for messages, text in texts]
    scores = [float(x) for x in score(answers)]
    if not all(map(math.isfinite, scores)):
        raise ValueError("the model's scores are not all finite numbers: its weights are damaged.")
    return dict(zip(texts, scores, strict=True))


def standard_deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def apply_probe(probe: Probe, answers: Sequence[Answer], length: Callable[[Answer], int],
                max_tokens: int | None
         ) -> tuple[list[Edited], dict[str, int]]:
    """Every edit that can be made, and how many were left out and why."""
    made, left = [], {"does not apply": 0, "too long": 0}
    for i, (messages, text) in enumerate(answers):
        before = length((messages, text))
        for kind, change in probe.kinds.items():
            for number, wording in enumerate(probe.wordings):
                edited = (messages, change(text, wording))
                after = length(edited)
                if edited[1] == text:
                    left["does not apply"] += 1
                elif max_tokens is not None and after > max_tokens:
                    left["too long"] += 1
                else:
                    made.append(Edited(i, kind, number, after - before, edited))
    return made, left


def probe_report(probe: Probe, cells: list[EditEffect], left: dict[str, int]) -> Row:
    """A probe's figures, over all its edits and by kind. effect, interval: in units of the spread. rises:
    share of edits that raise the score. added: mean tokens. truth: effect on the true quality. by_length: the
    effect of the added tokens alone."""
    kinds = [{"kind": kind, **effect_figures([c for c in cells if c.kind == kind])} for kind in probe.kinds]
    return {"probe": probe.name, "about": probe.about, **effect_figures(cells), "left_out": left,
            "by_length": None,
            "slope": length_slope(cells) if probe.name == "length" and cells else None, "kinds": kinds}


def effect_figures(cells: list[EditEffect]) -> Row:
    """The figures of `probe_report` over these edits."""
    if not cells:
        return ({"verdict": "not measured", "edits": 0}
                | dict.fromkeys(("effect", "interval", "rises", "added", "truth")))
    effect, low, high = crossed_interval([c.effect for c in cells], [c.prompt for c in cells],
                                         [c.wording for c in cells])
    deserved = statistics.fmean(c.deserved for c in cells)
    return {"verdict": bias_verdict(effect, low, high), "edits": len(cells), "effect": effect,
            "interval": [low, high], "rises": statistics.fmean(c.rise > 0 for c in cells),
            "added": statistics.fmean(c.added for c in cells),
            "truth": None if math.isnan(deserved) else deserved}


def bias_verdict(effect: float, low: float, high: float) -> str:
    if abs(effect) >= THRESHOLD and (low > 0 or high < 0):
        return "biased up" if effect > 0 else "biased down"
    return "none found"


def length_slope(cells: list[EditEffect]) -> Row:
    """Score per added token, sum(rise added) / sum(added^2) of each answer and wording."""
    lines: dict[tuple[Asked, int, int], list[EditEffect]] = {}
    for c in cells:
        lines.setdefault((c.prompt, c.answer, c.wording), []).append(c)
    steep = [sum(c.rise * c.added for c in line) / sum(c.added**2 for c in line) for line in lines.values()]
    mean, low, high = crossed_interval(steep, [prompt for prompt, _, _ in lines],
                                       [wording for *_, wording in lines])
    return {"per_token": mean, "interval": [low, high]}


def add_length_share(rows: list[Row], spread: float) -> None:
    """Adds the effect of the added tokens by length alone to every other probe, where length was probed."""
    line = next((row["slope"] for row in rows if row["slope"]), None)
    for row in rows:
        if line and row["probe"] != "length" and row["added"] is not None:
            row["by_length"] = line["per_token"] * row["added"] / spread


def probe_sentence(row: Row) -> str:
    """One sentence about a probe."""
    if row["effect"] is None:
        return f"{row['about']}: not measured, for no answer could be edited so."
    low, high = row["interval"]
    moves = {"biased up": "raises the score", "biased down": "lowers the score",
             "none found": "moves the score little or not"}
    text = (f"{row['about']}: {moves[row['verdict']]}, by {row['effect']:+.2f} of its spread ({low:+.2f} to "
            f"{high:+.2f}), up in {row['rises']:.0%} of the edits")
    if row["slope"]:
        text += f", {row['slope']['per_token']:+.3g} a token"
    if row["by_length"] is not None and abs(row["by_length"]) >= 0.05:
        text += f" (length alone would bring {row['by_length']:+.2f})"
    others = [f"{kind['kind']} {kind['effect']:+.2f}" for kind in row["kinds"]
              if kind["verdict"] not in (row["verdict"], "not measured")]
    if others:
        text += f"; but {', '.join(others)}"
    if row["truth"] is not None and abs(row["truth"]) >= 0.05:
        text += f"; the true quality changes by {row['truth']:+.2f} of its own spread"
    return text + "."


def answers_of_task(task: AuditTask, count: int, seed: int) -> tuple[list[Answer], Score | None]:
    """Distinct held-out answers of a task, and its verifier as true quality (None: of other prompts)."""
    task.of_one_reply("an audit")
    asked_for = 4 * count  # the questions of a small task come round, and some answers with them
    prompts = {prompt_key((p.messages, "")): p for p in task.prompts(SPLIT, asked_for, seed)}
    if task.demonstrations is not None:
        said = [(c.messages[:-1], c.messages[-1]["content"])
                for c in task.demonstrations(SPLIT, asked_for, seed)]
    elif task.gold is not None:
        said = [(p.messages, task.gold(p)) for p in prompts.values()]
    else:
        raise ValueError(f"task {task.name} has no answers to edit: give some of your own with "
                         "--pairs FILE.jsonl.")

    def truth(answers: Sequence[Answer]) -> list[float]:
        assert task.verify is not None, "a task of one reply without a verifier has no truth"
        verify = guarded(task.verify)
        verdicts = [verify(prompts[prompt_key(a)], a[1]) for a in answers]
        if failed := [v.error for v in verdicts if v.error]:
            raise ValueError(f"the verifier of task {task.name} failed on {len(failed)} answers: {failed[0]}")
        return [v.score for v in verdicts]

    drawn = distinct_answers(said, count, seed)
    return drawn, truth if all(prompt_key(a) in prompts for a in drawn) else None


def answers_of_pairs(pairs: Sequence[Pair], count: int, seed: int) -> list[Answer]:
    """Both sides of pairs."""
    return distinct_answers([reply for pair in pairs for reply in pair.replies], count, seed)


def distinct_answers(said: Sequence[Answer], count: int, seed: int) -> list[Answer]:
    """Up to count of the distinct answers, drawn by the seed."""
    distinct = list(
        {answer_key((m, text.strip())): (tuple(m), text.strip()) for m,
         text in said if text.strip()}.values())
    random.Random(f"audit/answers/{seed}").shuffle(distinct)
    if len(distinct) < 2:
        raise ValueError(f"an audit needs at least 2 different answers; there are {len(distinct)}.")
    return distinct[:count]


def text_scorer(model: SequenceModel, chat: AnswerChat, *, device: str = "cpu", tokens_per_pass: int = 8192,
                track: Progress = iter) -> Score:
    """A reward model as a function of texts; rows of like length are batched. track: shows progress."""
    @torch.no_grad()
    def score(answers: Sequence[Answer]) -> list[float]:
        rows = [chat.answer(messages, text)[0] for messages, text in answers]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        at_once = max(1, tokens_per_pass // max(map(len, rows)))
        out = [0.0] * len(rows)
        for at in track(range(0, len(rows), at_once)):
            block = order[at: at + at_once]
            lengths = torch.tensor([len(rows[i]) for i in block], device=device)
            for i, x in zip(block,
                            model.score(pad_rows([rows[i] for i in block]).to(device), lengths).tolist(),
                            strict=True):
                out[i] = x
        return out

    return score
