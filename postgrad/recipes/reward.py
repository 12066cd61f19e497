"""The reward model: a language model's body with a head that scores whole answers, from pairs (Bradley-Terry).

    postgrad train reward:questions             a task's pairs
    postgrad train reward data=pairs.jsonl      pairs of your own
    postgrad train reward:questions heads=4     an ensemble of four heads on one body
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from postgrad import methods, objectives
from postgrad.batches import PairBatches
from postgrad.chat import Chat
from postgrad.loop import Optim, OptimSettings
from postgrad.maths.calibration import calibration
from postgrad.maths.noise import seed_of
from postgrad.models import Models, ScalarModel
from postgrad.recipes.base import Evaluation, Parts, check_run
from postgrad.recipes.opening import new_adapter, open_body, open_reward
from postgrad.recipes.preference import Pairs, judge, one_source, read


@dataclass(frozen=True, kw_only=True)
class Head:
    """heads: members of an ensemble on one body, each with its own bootstrap of the pairs. smoothing: the share of labels taken
    to be wrong. centre: how strongly scores are drawn towards 0, which the labels alone leave open."""

    heads: int = 1
    smoothing: float = 0.0
    centre: float = 0.01

    def __post_init__(self):
        if self.heads < 1 or not 0 <= self.smoothing < 0.5 or not 0 <= self.centre < float("inf"):
            raise ValueError(f"head.heads {self.heads}, head.smoothing {self.smoothing}, head.centre {self.centre}: expected "
                             "at least 1 head, a smoothing from 0 to below 0.5, a centre of 0 or more.")


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    model: str = "tiny-chat"
    task: str | None = None         # whose labelled pairs to learn from
    data: str | None = None         # or a JSONL file of pairs
    method: str = "reward"
    head: Head = field(default_factory=Head)
    pairs: Pairs = field(default_factory=Pairs)
    steps: int = 120
    optim: OptimSettings = field(default_factory=lambda: OptimSettings(lr=1e-3, schedule="linear", warmup=5))
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(every=20))
    save_every: int = 20
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        one_source(self)
        check_run(self, ("reward",))


def questions() -> RewardConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return RewardConfig(task="questions")


def biased() -> RewardConfig:
    """The same questions; the annotators err more and like long replies more."""
    return RewardConfig(task="questions-biased")


SETTINGS = {"questions": questions, "biased": biased}


def open_scalar(config: RewardConfig, begins_with: Path) -> tuple[ScalarModel, Chat]:
    """The model to train: all of it, or an adapter and heads on a frozen body."""
    if not config.optim.adapter.lora:
        model, chat = open_reward(begins_with, config.device, config.head.heads)
        model.head = "reward"
        return model, chat
    body, chat = open_body(config)
    draw = torch.Generator().manual_seed(seed_of(config.seed, "heads"))
    return ScalarModel(new_adapter(body, config, "reward"), config.head.heads, draw), chat


def build(config: RewardConfig, begins_with: Path) -> Parts:
    method = methods.get(config.method)
    method = replace(method, loss=partial(method.loss.func, smoothing=config.head.smoothing, centre=config.head.centre))
    train, held, _ = read(config)
    model, chat = open_scalar(config, begins_with)
    models = Models(policy=model)
    line = partial(PairBatches, chat=chat, method=method, models=models, seed=config.seed,
                   room=model.config.max_position_embeddings, tokens_per_pass=config.optim.at_once,
                   device=config.device)
    batches, objective = line(train, per_step=config.pairs.per_step, steps=config.steps), objectives.build(method)

    def examine(step: int) -> dict:
        found = judge(objective, models, line(held, per_step=len(held), steps=1), config)
        return found | calibrated(model, line(held, per_step=len(held), steps=1), config)

    return Parts(models=models, chat=chat, batches=batches, objective=objective,
                 optim=Optim(models, config.optim, config.steps), examine=examine if held else None,
                 every=config.evaluation.every if held else 0)


@torch.no_grad()
def calibrated(model: ScalarModel, line: PairBatches, config: RewardConfig) -> dict:
    """Whether a gap of scores means what Bradley-Terry says it does, on what was held out."""
    (batch,) = line
    micros = batch.split(config.optim.at_once)
    scores = torch.cat([model.score(micro.tokens, micro.lengths, micro.packed) for micro in micros])
    chosen, rejected = scores.view(-1, 2).unbind(1)
    found = calibration((chosen - rejected).cpu())
    return {"ece": found["ece"], "calibration": found["curve"]}
