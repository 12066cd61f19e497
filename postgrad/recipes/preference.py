"""Learning from preferences on the policy itself: DPO and its family on pairs, KTO on answers labelled good or bad.

    postgrad train dpo:questions            a task's pairs
    postgrad train dpo data=pairs.jsonl     pairs of your own: {"prompt", "chosen", "rejected"} a line
    postgrad train kto data=labels.jsonl    answers of your own: {"prompt", "completion", "label"} a line
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from postgrad import methods, objectives
from postgrad.batches import PairBatches, SingleBatches
from postgrad.data.preferences import read_pairs, read_singles, report, sentence, split_pairs
from postgrad.loop import Optim, OptimSettings
from postgrad.maths.passk import mean_interval
from postgrad.models import Models
from postgrad.recipes.base import Evaluation, Parts, check_run, examiner
from postgrad.recipes.opening import open_policy, open_reference
from postgrad.records import Conversation, Pair, Stats
from postgrad.tasks import Task, load_task

FAMILY = ("dpo", "ipo", "cdpo", "simpo", "orpo", "cpo", "kto")


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """How many pairs are drawn from a task (a file gives all it has), how many are held out, how many go into a step."""

    drawn: int = 2000
    held_out: int = 400
    per_step: int = 32

    def __post_init__(self):
        if min(self.drawn, self.held_out, self.per_step) < 1:
            raise ValueError(f"pairs.drawn {self.drawn}, pairs.held_out {self.held_out} and pairs.per_step {self.per_step} "
                             "must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig:
    model: str = "tiny-chat"
    task: str | None = None         # whose labelled pairs to learn from, and which to examine
    data: str | None = None         # or a JSONL file of pairs (kto: of labelled answers)
    method: str = "dpo"
    beta: float | None = None       # None: as the method's row has it
    pairs: Pairs = field(default_factory=Pairs)
    steps: int = 120
    optim: OptimSettings = field(default_factory=lambda: OptimSettings(lr=1e-4, schedule="linear", warmup=5))
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(every=20, samples=8))
    save_every: int = 20
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        one_source(self)
        check_run(self, FAMILY)
        if self.beta is not None and not (0 < self.beta < float("inf")):
            raise ValueError(f"beta is {self.beta}: it must be above 0.")


def one_source(config) -> None:
    if (config.task is None) == (config.data is None):
        raise ValueError(f"{config.method} needs either task=NAME (its labelled pairs) or data=FILE.jsonl (your own), "
                         "not both.")


def questions() -> PreferenceConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return PreferenceConfig(task="questions")


def gsm8k() -> PreferenceConfig:
    """Right and wrong answers to GSM8K's problems, for a real model after SFT, on a GPU."""
    return PreferenceConfig(task="gsm8k", model="models/smollm2", beta=0.1, pairs=Pairs(drawn=10_000, held_out=500), steps=120,
                            save_every=120, optim=OptimSettings(lr=5e-6, schedule="linear", warmup=10),
                            evaluation=Evaluation(every=20, problems=256, max_new_tokens=256))


SETTINGS = {"questions": questions, "gsm8k": gsm8k}


def row(config: PreferenceConfig):
    """The method's row, with the beta that the config asks for."""
    method = methods.get(config.method)
    if config.beta is None:
        return method
    constants = getattr(method.loss, "keywords", {})
    if "beta" not in constants:
        raise ValueError(f"{method.name} has no beta: leave it out.")
    return replace(method, loss=partial(method.loss.func, **constants | {"beta": config.beta}))


def read(config) -> tuple[list[Pair], list[Pair], Task | None]:
    """Pairs to learn from, pairs held out, and the task, if there is one. Repeats and contradictions of a file are said."""
    if config.data:
        return *told(config.data, read_pairs(Path(config.data))), None
    task = load_task(config.task)
    if task.preferences is None:
        raise ValueError(f"task {task.name} has no labelled pairs: give pairs of your own with data=FILE.jsonl.")
    drawn = task.preferences("train", config.pairs.drawn, config.seed)
    return drawn, task.preferences("test", config.pairs.held_out, config.seed), task


def told(path: str, rows: list) -> tuple[list, list]:
    """A file's rows in two parts, to learn from and held out; its repeats and contradictions are said."""
    found = report(rows)
    if found["repeated"] or found["contradicted"]:
        print(f"{path}: {sentence(found)}", file=sys.stderr)
    return split_pairs(rows)


def singles(pairs: Sequence[Pair]) -> list[Conversation]:
    """Both answers of each pair by themselves, labelled."""
    return [Conversation(id=f"{p.id}/{side}", label=side == "chosen",
                         messages=(*p.messages, {"role": "assistant", "content": getattr(p, side)}))
            for p in pairs for side in ("chosen", "rejected")]


def read_labelled(config) -> tuple[list[Conversation], list[Conversation], Task | None]:
    """What KTO learns from, in the same three parts."""
    if config.data:
        return *told(config.data, read_singles(Path(config.data))), None
    train, held, task = read(config)
    return singles(train), singles(held), task


def balanced(method, rows: Sequence[Conversation]):
    """KTO's weights, so that wanted and unwanted answers count alike whatever their number (its section 4.2)."""
    good = sum(r.label for r in rows)
    bad = len(rows) - good
    weights = {"wanted": max(1.0, bad / good), "unwanted": max(1.0, good / bad)}
    return replace(method, loss=partial(method.loss.func, **method.loss.keywords | weights))


def build(config: PreferenceConfig, begins_with: Path) -> Parts:
    method = row(config)
    alone = method.source == "singles"
    train, held, task = (read_labelled if alone else read)(config)
    if alone:
        method = balanced(method, train)
    policy, chat = open_policy(config, begins_with)
    models = Models(policy=policy, reference=open_reference(config, policy) if method.reference else None)
    line = partial(SingleBatches if alone else PairBatches, chat=chat, method=method, models=models, seed=config.seed,
                   room=policy.config.max_position_embeddings, tokens_per_pass=config.optim.at_once,
                   device=config.device)
    batches = line(train, per_step=config.pairs.per_step, steps=config.steps)
    objective = objectives.build(method)
    looks: list[Callable[[int], dict]] = []
    if held:
        looks.append(lambda step: judge(objective, models, line(held, per_step=len(held), steps=1), config))
    if task:
        looks.append(examiner(policy, chat, task, config.evaluation, config.seed))
    return Parts(models=models, chat=chat, batches=batches, objective=objective,
                 optim=Optim(models, config.optim, config.steps),
                 examine=lambda step: {k: v for look in looks for k, v in look(step).items()},
                 every=config.evaluation.every if looks else 0)


@torch.no_grad()
def judge(objective, models: Models, line, config) -> dict:
    """Loss, accuracy (with its interval) and margin on what was held out."""
    stats = Stats()
    (batch,) = line
    for micro in batch.split(config.optim.at_once):
        _, seen = objective(models, micro)
        stats.add(seen)
    found = stats.results()
    hits = round(found["accuracy"] * batch.units)
    _, low, high = mean_interval([1.0] * hits + [0.0] * (batch.units - hits), (0.0, 1.0))
    return {"accuracy": found["accuracy"], "accuracy_interval": [low, high], "margin": found["chosen"] - found["rejected"],
            "loss": found["loss"]}
