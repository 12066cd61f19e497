"""Whatever stands for a reward becomes a judge of rollouts.

    None                        the task's own verifier
    "number+0.2*think"          verifiers by name; "correct+0.2*think" with the task's own reading of answers
    "runs/reward", "a,b,c"      a reward model, or several as an ensemble; a Run, or an opened ScalarModel,
                                likewise
    "judge:MODEL[:RUBRIC.txt]"  a chat model that grades
    "mine.py", "mine.py:NAME"   the function `reward` or NAME of a file
    my_function                 (prompt, text) -> float | bool | Verdict; from_trl(f) for TRL's kind
    [f, g], {f: 1.0, "think": 0.2}   the sum of several, each with its weight
    "questions=runs/reward;number+0.2*think"   of a mixture of tasks: prompts of `questions` by the reward
                                model, all others by what names no task, else by the task's own verifier
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from postgrad.data.tasks import Task
from postgrad.models import ScalarModel, is_adapted, load_scalar
from postgrad.models.chat import Chat
from postgrad.records import Rollout, Verdict
from postgrad.resolve.models import Beginning, new_adapter, open_chat, open_folder, open_writer, shared_scalar
from postgrad.rewards.base import Judge, Verifying, judge_of
from postgrad.rewards.function import FromTRL, Weighted, check_signature, own_verifier
from postgrad.rewards.grader import RUBRIC, Grader
from postgrad.rewards.model import ModelJudge
from postgrad.rewards.named import is_reward_name, read_spec
from postgrad.rewards.process import ProcessJudge
from postgrad.rewards.routed import PerTask
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import read_bytes, read_text
from postgrad.system.plugins import is_file_spec, load_from_file
from postgrad.system.user_code import called

BETWEEN = re.compile(r";(?![^()]*\))")  # a semicolon outside of brackets


@dataclass(frozen=True, kw_only=True)
class Part:
    """One term of a reward. kind: function, judge, verifier, models (named), model (opened) or grader.
    task: the one whose prompts alone it judges; "" for all that have no judge of their own."""

    kind: str
    name: str
    value: Any
    weight: float = 1.0
    task: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it opens by name."""
        return self.value if self.kind == "models" else self.value[:1] if self.kind == "grader" else ()


def parts_of(reward: object) -> tuple[Part, ...]:
    """What a reward is made of; () for None."""
    if reward is None:
        return ()
    if isinstance(reward, Mapping):
        return tuple(_weighed(key, weight) for key, weight in reward.items())
    if isinstance(reward, str):
        pieces = [reward] if Path(reward).exists() else BETWEEN.split(reward)
        return tuple(_of_task(text) for text in pieces if text.strip())
    return tuple(_part(x) for x in reward) if isinstance(reward, Sequence) else (_part(reward),)


def _of_task(text: str) -> Part:
    """"questions=runs/reward" -> the reward model, for prompts of the task questions."""
    named = re.fullmatch(r"\s*([\w.-]+)=(.*)", text, re.DOTALL)
    return replace(_named(named[2]), task=named[1]) if named and not Path(text).exists() else _named(text)


def _weighed(key: object, weight: object) -> Part:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        raise ValueError(f"reward gives {key!r:.60} the weight {weight!r}: it must be a number above 0.")
    return replace(_part(key), weight=float(weight))


def _part(reward: object) -> Part:
    if isinstance(reward, Run | Path):
        folder = reward.folder if isinstance(reward, Run) else reward
        return Part(kind="models", name=folder.name, value=(str(folder),))
    if isinstance(reward, ScalarModel):
        return Part(kind="model", name="reward model", value=reward)
    if isinstance(reward, FromTRL):
        return Part(kind="judge", name=reward.__name__, value=reward)
    if isinstance(reward, str):
        return _of_task(reward)
    if callable(reward):
        check_signature(reward)
        return Part(kind="function", name=called(reward).rpartition(".")[2], value=reward)
    raise ValueError(f"reward is {reward!r:.80}: expected a function of (prompt, text), a list or weighted "
                     "dict of them, a reward model, a run, or a name.")


def _named(text: str) -> Part:
    kind, _, rest = text.strip().partition(":")
    if is_file_spec(text.strip()):
        return _part(load_from_file(text.strip(), "reward"))
    if kind == "judge":
        model, _, rubric = rest.partition(":")
        if not model:
            raise ValueError(f"reward={text}: name the chat model that grades, e.g. "
                             "reward=judge:models/judge.")
        return Part(kind="grader", name="grade", value=(model, rubric))
    first = re.match(r"\s*(?:[0-9.]+\s*\*\s*)?([a-zA-Z_]\w*)", text)
    if first and not Path(text).exists() and is_reward_name(first[1]):
        return Part(kind="verifier", name=text, value=read_spec(text))
    names = model_list(text)
    return Part(kind="models", name=Path(names[0]).name, value=names)


def model_list(text: str) -> tuple[str, ...]:
    """The models of a text: "a, b" -> ("a", "b"). A folder that is there is one, commas and all."""
    whole = text.strip()
    if Path(re.sub(r"@\d+$", "", whole)).exists():
        return (whole,)
    names = tuple(name.strip() for name in whole.split(",") if name.strip())
    for left, right in pairwise(whole.split(",")):
        folder = f"{left},{re.split('[/@]', right)[0]}".strip()
        if Path(folder).exists():
            raise ValueError(f"reward={text}: {folder} has a comma in its name, and a comma stands between "
                             "several reward models: rename it, or name it alone.")
    return names


def best_score(reward: object, task: Task) -> float | None:
    """The best score that a reply can get; None of a reward model, whose scores have no end, and where it is
    another from task to task. A function of the user's own is taken to pay at most 1."""
    parts = parts_of(reward)
    if not parts:
        return task.best
    if any(part.kind in ("models", "model") or part.task for part in parts):
        return None
    return sum(part.weight * (part.value.best if part.kind == "verifier" else 1.0) for part in parts)


# what a run keeps, so that going on is going on with the same judge

def model_names(reward: object) -> list[str]:
    """The models that a reward opens by name, in order."""
    return [name for part in parts_of(reward) for name in part.models]


def rubric_hash(reward: object) -> str | None:
    """The hash of the rubric that a grading model is given; None where there is none."""
    for part in parts_of(reward):
        if part.kind == "grader" and part.value[1] and Path(part.value[1]).is_file():
            return hashlib.sha256(read_bytes(part.value[1])).hexdigest()
    return None


# opening

def reward_models(reward: object, policy, chat: Chat, config, begins: Beginning) -> list[ScalarModel]:
    """The reward models that a reward names or is, each checked:
    a head that says something, the policy's own tokens."""
    models = []
    for part in parts_of(reward):
        if part.kind == "model":
            models.append(part.value.to(config.device).requires_grad_(False))
        for name in part.value if part.kind == "models" else ():
            models.append(_checked(name, _scalar(name, policy, config, begins), chat))
    return models


def _checked(name: str, model: ScalarModel, chat: Chat) -> ScalarModel:
    """A reward model that scores, and reads the tokens of whom it judges as they are meant."""
    theirs = open_chat(open_folder(name))
    if not model.score_head.weight.any():
        raise ValueError(f"{name} is no reward model: it scores all 0; train one with `postgrad "
                         "train reward:...`")
    if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or theirs.template != chat.template:
        raise ValueError(f"the reward model {name} has another tokenizer or chat template than the "
                         "policy, so it would misread its tokens: train it from the same model.")
    return model.requires_grad_(False)


def _scalar(name: str, policy, config, begins: Beginning) -> ScalarModel:
    """A reward model: on the policy's body where both are adapters on it, else with a body of its own."""
    shared = shared_scalar(name, policy.body, config, begins) if is_adapted(policy) else None
    return shared or load_scalar(open_folder(name), device=config.device)


def new_critic(reward: object, policy, models: Sequence[ScalarModel], config,
               begins: Beginning) -> ScalarModel:
    """From the (first) reward model, or from the policy's start with a head at zero;
    with adapters, on the policy's body.

    A process model's numbers are log-odds, and what it pays are chances: no critic starts from it.
    """
    names = [name for part in parts_of(reward) if part.kind == "models" for name in part.value]
    names = [] if any(model.head == "process" for model in models) else names
    if not is_adapted(policy):
        return load_scalar(open_folder(names[0]) if names else begins.origin, device=config.device,
                           divide=config.optim.dividing(config.device))
    shared = shared_scalar(names[0], policy.body, config, begins) if names else None
    return shared or ScalarModel(new_adapter(policy.body, config, "critic"))


def open_judge(reward: object, task: Task, chat: Chat, models: Sequence[ScalarModel], *, device: str,
               ensemble: str = "mean", taught: bool = False) -> Judge:
    """The judge of a run's rollouts. models: the reward models of `reward`, opened, in order. taught: a
    teacher's word is enough, so where nobody judges every score is 0."""
    waiting = list(models)
    by_task: dict[str, dict[str, tuple[Judge, float]]] = {}
    for part in parts_of(reward):
        count = len(part.value) if part.kind == "models" else int(part.kind == "model")
        mine, waiting = waiting[:count], waiting[count:]
        judges = by_task.setdefault(part.task, {})
        name = part.name if part.name not in judges else f"{part.name} {len(judges) + 1}"
        judges[name] = _judge(part, mine, task, chat, device, ensemble), part.weight
    otherwise: Judge
    if others := by_task.pop("", {}):
        otherwise = _sum(others)
    elif not task.judged and taught:
        otherwise = Verifying(lambda prompt, text: Verdict(score=0.0, reason="nobody judges"))
    elif not task.judged:
        raise ValueError(f"task {task.name} has no verifier: say who judges with reward=, a function of "
                         "(prompt, text), say.")
    else:
        otherwise = judge_of(task)
    own = {name: _sum(judges) for name, judges in by_task.items()}
    return PerTask(own, otherwise, task.name) if own else otherwise


def _sum(judges: Mapping[str, tuple[Judge, float]]) -> Judge:
    """One judge of weight 1 as it is; others as their weighted sum."""
    (first, weight), *more = judges.values()
    return first if weight == 1 and not more else Weighted(judges)


def judge_alone(reward: object, task: Task, chat: Chat, device: str) -> Judge:
    """The judge of a measurement, where no run is: reward models have a body of their own."""
    models = [model for part in parts_of(reward) for model in (
        [part.value] if part.kind == "model" else
        [_checked(name, load_scalar(open_folder(name), device=device), chat) for name in part.value]
        if part.kind == "models" else [])]
    return open_judge(reward, task, chat, models, device=device)


def _judge(part: Part, models: Sequence[ScalarModel], task: Task, chat: Chat, device: str,
           ensemble: str) -> Judge:
    if part.kind == "grader":
        model, rubric = part.value
        return open_grader(model, rubric, device)
    if part.kind == "verifier":
        asks = part.value.has("correct")
        return Verifying(part.value.of(task.verify), part.value.waits or asks and task.waits)
    if part.kind in ("function", "judge"):
        judge = Verifying(own_verifier(part.value)) if part.kind == "function" else part.value
        return _proved(judge, part.name, task)
    if all(model.head != "process" for model in models):
        return ModelJudge(models, rule=ensemble, device=device)
    if len(models) > 1:
        raise ValueError("a process model pays token by token, so it makes no ensemble: name it "
                         "alone in reward.")
    if task.steps is None:
        raise ValueError(f"a process model scores the steps of a reply, and task {task.name} has none: take "
                         "a reward model, or the task's own verifier (reward=none).")
    steps = task.steps
    return ProcessJudge(models[0], chat, lambda r: [step.end for step in steps(r.prompt, r.text)],
                        device=device)


def _proved(judge: Judge, name: str, task: Task) -> Judge:
    """A function of the user's own, after it has judged one empty reply:
    before any training, as verifiers of tasks are."""
    (prompt,) = task.prompts("train", 1, 0)
    (said,) = judge([Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text="", finished=True,
                             seed=0)])
    if said.error:
        raise ValueError(f"reward {name} fails on an empty reply "
                         f"({said.error.removeprefix('infrastructure: ')}): it must judge any text, an "
                         "empty one too.")
    return judge


def open_grader(name: str, rubric: str, device: str) -> Grader:
    """The chat model that grades the rollouts, by the rubric of a file or the one it has."""
    if rubric and not Path(rubric).is_file():
        raise ValueError(f"reward=judge:{name}:{rubric}: there is no rubric {rubric!r}: give a text that "
                         "says what a good reply is.")
    model, chat = open_writer(name, device)
    sampler = LocalSampler(model.requires_grad_(False), chat)
    settings = Sampling(max_new_tokens=16, temperature=0.0)
    return Grader(sampler, settings, rubric=read_text(rubric).strip() if rubric else RUBRIC,
                  fits=lambda prompt: sampler.check([prompt], settings))
