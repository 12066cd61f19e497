"""The reward model: a language model's body with a head that scores whole answers,
from pairs (Bradley-Terry).

    postgrad train reward:questions             a task's pairs
    postgrad train reward data=pairs.jsonl      pairs of your own
    postgrad train reward:questions heads=4     an ensemble of four heads on one body
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from postgrad import methods
from postgrad.data.preferences import prompt_messages
from postgrad.maths.calibration import calibration
from postgrad.maths.noise import seed_of
from postgrad.methods import Method
from postgrad.models import Models, ScalarModel
from postgrad.models.chat import Chat
from postgrad.recipes.base import (
    METHOD,
    STEPS,
    Evaluation,
    RunConfig,
    RunInputs,
    TrainingSetup,
    check_one_source,
)
from postgrad.recipes.data_counts import data_counts
from postgrad.recipes.defaults import with_defaults
from postgrad.recipes.preference import Pairs, data_notes, evaluate_pairs, read_pair_sets
from postgrad.recipes.row_reader import RowReader
from postgrad.resolve.models import ModelSource, new_adapter, open_body, open_reward
from postgrad.system.settings import Settings, setting
from postgrad.training import objectives
from postgrad.training.batches import PairBatches
from postgrad.training.distributed.virtual_ranks import current_virtual_ranks
from postgrad.training.optim import Optim, OptimSettings


@dataclass(frozen=True, kw_only=True)
class Head(Settings):
    """The scalar head."""

    heads: int = setting(1, "members of an ensemble on one body, each with its own bootstrap of the pairs",
                         "4 or so to see where the labels do not decide (disagreement), or for "
                         "reward_ensemble=min")
    smoothing: float = setting(0.0, "the share of labels taken to be wrong",
                               "0.1 where annotators err, or where the model is too sure (ece)")
    centre: float = setting(0.01,
                            "how strongly scores are drawn towards 0, which the labels alone leave open",
                            "0 for the plain Bradley-Terry loss; more where scores drift from run to run")

    def __post_init__(self):
        super().__post_init__()
        if self.heads < 1 or not 0 <= self.smoothing < 0.5 or not 0 <= self.centre < float("inf"):
            raise ValueError(f"head.heads {self.heads}, head.smoothing {self.smoothing}, head.centre "
                             f"{self.centre}: expected at least 1 head, a smoothing from 0 to below 0.5, a "
                             "centre of 0 or more.")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(RunConfig):
    """One run that trains a reward model."""

    recipe: ClassVar[str] = "reward"
    data: str | Sequence | None = setting(None, "instead of a task: a JSONL file of pairs",
                                          "to learn from preferences of your own; `postgrad label` collects "
                                          "them")
    method: Method = setting(methods.get_method("reward"), *METHOD, resolve=methods.method_from_config)
    head: Head = setting(group=Head)
    pairs: Pairs = setting(group=Pairs)
    steps: int = setting(120, *STEPS)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=20))

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, data=self.data)

    @property
    def row(self) -> Method:
        return row_with_head(self)

    def __post_init__(self):
        super().__post_init__()
        check_one_source(self)


def reward_on_questions() -> RewardConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return RewardConfig(task="questions")


def reward_on_biased_questions() -> RewardConfig:
    """The same questions; the annotators err more and like long replies more."""
    return RewardConfig(task="questions-biased")


SETTINGS = {"questions": reward_on_questions, "biased": reward_on_biased_questions}


def open_scalar(config: RewardConfig, begins: ModelSource) -> tuple[ScalarModel, Chat]:
    """The model to train: all of it, or an adapter and heads on a frozen body."""
    if not config.optim.adapter.lora:
        model, chat = open_reward(begins.weights, config.device, config.head.heads,
                                  config.optim.dividing(config.device))
        model.head = "reward"
        return model, chat
    body, chat = open_body(config, begins)
    draw = torch.Generator().manual_seed(seed_of(config.seed, "heads"))
    return ScalarModel(new_adapter(body, config, "reward"), config.head.heads, draw), chat


def row_with_head(config: RewardConfig) -> Method:
    """The row with the head's smoothing and centre, where it has them."""
    wanted = {"smoothing": config.head.smoothing, "centre": config.head.centre}
    return methods.change(config.method,
                          **{k: v for k, v in wanted.items() if k in methods.constants_of(config.method)})


@with_defaults
def build(config: RewardConfig, begins: ModelSource) -> TrainingSetup:
    method = config.row
    reading = RowReader(config.pairs, config.data)
    train, held, _ = read_pair_sets(config, reading)
    model, chat = open_scalar(config, begins)
    most = model.config.max_position_embeddings
    train, held = (reading.fitting(rows, chat, most) for rows in (train, held))
    models = Models(policy=model)
    line = partial(PairBatches, chat=chat, method=method, models=models, seed=config.seed,
                   max_tokens=most, truncate=config.pairs.cut, tokens_per_pass=config.optim.at_once,
                   device=config.device)
    batches = line(train, per_step=config.pairs.per_step, steps=config.steps,
                   virtual_ranks=current_virtual_ranks(config.optim.virtual_ranks, config.optim.divides))
    objective = objectives.build_objective(method)

    def evaluate(step: int) -> dict:
        found = evaluate_pairs(objective, models, line(held, per_step=len(held), steps=1), config)
        return found | evaluate_calibration(model, line(held, per_step=len(held), steps=1), config)

    return TrainingSetup(models=models, chat=chat, batches=batches, objective=objective,
                 notes=reading.notes(batches.limit) + data_notes(config, train + held),
                 data=reading.counts(batches.limit)
                      | data_counts(map(prompt_messages, train), map(prompt_messages, held)),
                 optim=Optim(models, config.optim, config.steps), evaluate=evaluate if held else None,
                 evaluate_every=config.evaluation.every if held else 0)


@torch.no_grad()
def evaluate_calibration(model: ScalarModel, line: PairBatches, config: RewardConfig) -> dict:
    """Whether a gap of scores means what Bradley-Terry says it does, on what was held out."""
    (batch,) = line
    micros = batch.split(config.optim.at_once)
    scores = torch.cat([model.score(micro.tokens, micro.lengths, micro.packed) for micro in micros])
    chosen, rejected = scores.view(-1, 2).unbind(1)
    found = calibration((chosen - rejected).cpu())
    return {"ece": found["ece"], "calibration": found["curve"]}
