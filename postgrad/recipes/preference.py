"""Learning from pairs: DPO and its family on the policy itself, and the reward model, on the same data.

    postgrad train dpo:questions            the policy, on a task's pairs
    postgrad train reward:questions         a scalar head that scores answers
    postgrad train dpo data=pairs.jsonl     pairs of your own: {"prompt", "chosen", "rejected"} a line
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from postgrad import methods, objectives
from postgrad.batches import PairBatches
from postgrad.chat import Chat
from postgrad.data.preferences import contradictions, read_pairs
from postgrad.loop import Optim, OptimSettings
from postgrad.maths.passk import mean_interval
from postgrad.models import Models, load_model, load_scalar
from postgrad.recipes.base import Evaluation, Parts, examiner, open_folder, open_model
from postgrad.records import Pair, Stats
from postgrad.tasks import load_task

FAMILY = ("dpo", "ipo", "cdpo", "simpo", "orpo", "cpo", "reward")
HELD_OUT = 10  # one pair in so many of a file is kept for the examination


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """How many pairs are drawn from a task (a file gives all it has), and how many go into a step."""

    drawn: int = 2000
    per_step: int = 32

    def __post_init__(self):
        if min(self.drawn, self.per_step) < 1:
            raise ValueError(f"pairs.drawn {self.drawn} and pairs.per_step {self.per_step} must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig:
    model: str = "tiny-chat"
    task: str | None = None         # whose labelled pairs to learn from, and which to examine
    data: str | None = None         # or a JSONL file of pairs
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
        if (self.task is None) == (self.data is None):
            raise ValueError(f"{self.method} needs either task=NAME (its labelled pairs) or data=FILE.jsonl (your own), "
                             "not both.")
        if self.method not in FAMILY:
            methods.get(self.method)
            raise ValueError(f"method {self.method!r} is not trained by this recipe: it takes {', '.join(FAMILY)}.")
        if min(self.steps, self.save_every) < 1:
            raise ValueError(f"steps {self.steps} and save_every {self.save_every} must be at least 1.")
        if self.beta is not None and not (0 < self.beta < float("inf")):
            raise ValueError(f"beta is {self.beta}: it must be above 0.")


def questions() -> PreferenceConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return PreferenceConfig(task="questions")


SETTINGS = {"questions": questions}


def row(config: PreferenceConfig):
    """The method's row, with the beta that the config asks for."""
    method = methods.get(config.method)
    if config.beta is None:
        return method
    constants = getattr(method.loss, "keywords", {})
    if "beta" not in constants:
        raise ValueError(f"{method.name} has no beta: leave it out.")
    return replace(method, loss=partial(method.loss.func, **constants | {"beta": config.beta}))


def read(config: PreferenceConfig) -> tuple[list[Pair], list[Pair], object]:
    """Pairs to learn from, pairs held out, and the task, if there is one. Repeats and contradictions of a file are said."""
    if config.data:
        pairs = read_pairs(Path(config.data))
        found = contradictions(pairs)
        if found["repeated"] or found["contradicted"]:
            print(f"{config.data}: {found['pairs']} pairs, {found['repeated']} repeated, {found['contradicted']} labelled both "
                  "ways", file=sys.stderr)
        if len(pairs) < 2 * HELD_OUT:
            return pairs, [], None
        return [p for i, p in enumerate(pairs) if i % HELD_OUT], pairs[::HELD_OUT], None
    task = load_task(config.task)
    if task.preferences is None:
        raise ValueError(f"task {task.name} has no labelled pairs: give pairs of your own with data=FILE.jsonl.")
    return task.preferences("train", config.pairs.drawn, config.seed), task.preferences("test", 400, config.seed), task


def build(config: PreferenceConfig, begins_with: Path) -> Parts:
    method = row(config)
    train, held, task = read(config)
    if config.method == "reward":
        policy, chat = load_scalar(open_folder(begins_with), device=config.device), Chat.load(open_folder(begins_with))
        policy.head = "reward"
    else:
        policy, chat = open_model(begins_with, config.device)
    reference = load_model(open_folder(config.model), device=config.device).requires_grad_(False) if method.reference else None
    models = Models(policy=policy, reference=reference)
    line = partial(PairBatches, chat=chat, method=method, models=models, room=policy.config.max_position_embeddings,
                   tokens_per_pass=config.optim.tokens_per_pass, device=config.device, seed=config.seed)
    batches = line(train, pairs_per_step=config.pairs.per_step, steps=config.steps)
    objective = objectives.build(method)
    looks: list[Callable[[int], dict]] = []
    if held:
        looks.append(lambda step: judge(objective, models, line(held, pairs_per_step=len(held), steps=1), config))
    if task and config.method != "reward":
        looks.append(examiner(policy, chat, task, config.evaluation, config.seed))
    return Parts(models=models, chat=chat, batches=batches, objective=objective,
                 optim=Optim(models, config.optim, config.steps),
                 examine=lambda step: {k: v for look in looks for k, v in look(step).items()},
                 every=config.evaluation.every if looks else 0)


@torch.no_grad()
def judge(objective, models: Models, line: PairBatches, config: PreferenceConfig) -> dict:
    """Loss, accuracy (with its interval) and margin on held-out pairs."""
    stats = Stats()
    (batch,) = line
    for micro in batch.split(config.optim.tokens_per_pass):
        _, seen = objective(models, micro)
        stats.add(seen)
    found = stats.results()
    hits = round(found["accuracy"] * batch.units)
    _, low, high = mean_interval([1.0] * hits + [0.0] * (batch.units - hits), (0.0, 1.0))
    return {"accuracy": found["accuracy"], "accuracy_interval": [low, high], "margin": found["margin"], "loss": found["loss"]}
