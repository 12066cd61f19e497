"""The reward model: a language model's body with a scalar head, trained on pairs (Bradley-Terry).

    postgrad train reward:questions             a task's pairs
    postgrad train reward data=pairs.jsonl      pairs of your own
    postgrad train reward:questions heads=4     an ensemble of four heads on one body
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from postgrad import methods
from postgrad.evaluation.evaluate import Figures
from postgrad.maths.calibration import calibration
from postgrad.maths.noise import seed_of
from postgrad.methods import Method, Preference
from postgrad.models import Models, ScalarModel
from postgrad.models.chat import Chat
from postgrad.recipes.base import METHOD, Evaluation, TrainingSetup
from postgrad.recipes.preference import PairConfig, Pairs, pair_setup, read_pair_sets
from postgrad.recipes.row_reader import RowReader
from postgrad.records import Batch
from postgrad.resolve.models import ModelSource, new_adapter, open_body, open_reward
from postgrad.system.settings import COUNT, ERROR_RATE, NOT_NEGATIVE, Settings, setting
from postgrad.training.optim import OptimSettings


@dataclass(frozen=True, kw_only=True)
class Head(Settings):
    """The scalar head."""

    heads: int = setting(1, "members of an ensemble on one body, each with its own bootstrap of the pairs",
                         "4 or so to see where the labels do not decide (disagreement), or for "
                         "reward_ensemble=min", within=COUNT)
    smoothing: float = setting(0.0, "the share of labels taken to be wrong",
                               "0.1 where annotators err, or where the model is too sure (ece)",
                               within=ERROR_RATE)
    centre: float = setting(0.01,
                            "how strongly scores are regularised towards a mean of 0, which pairs leave open",
                            "0 for the plain Bradley-Terry loss; more where scores drift from run to run",
                            within=NOT_NEGATIVE)

    prefix: ClassVar[str] = "head."


@dataclass(frozen=True, kw_only=True)
class RewardConfig(PairConfig):
    """One run that trains a reward model."""

    recipe: ClassVar[str] = "reward"
    data: str | Sequence[object] | None = setting(None, "instead of a task: a JSONL file of pairs",
                                          "to learn from preferences of your own; `postgrad label` collects "
                                          "them")
    method: Method = setting(methods.get_method("reward"), *METHOD, resolve=methods.method_from_config)
    head: Head = setting(group=Head)
    pairs: Pairs = setting(group=Pairs)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=20))

    @property
    def row(self) -> Method:
        """The method with the head's smoothing and centre, where it has them."""
        head = {"smoothing": self.head.smoothing, "centre": self.head.centre}
        return methods.change(self.method, **{name: value for name, value in head.items()
                                              if name in methods.constants_of(self.method)})


def reward_on_questions() -> RewardConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return RewardConfig(task="questions", steps=120)


def reward_on_biased_questions() -> RewardConfig:
    """The same questions; the annotators err more and like long replies more."""
    return RewardConfig(task="questions-biased", steps=120)


SETTINGS = {"questions": reward_on_questions, "biased": reward_on_biased_questions}


def open_scalar(config: RewardConfig, source: ModelSource) -> tuple[ScalarModel, Chat]:
    """The model to train: all weights, or an adapter and heads on a frozen body."""
    if not config.optim.adapter.lora:
        model, chat = open_reward(source.weights, config.device, config.head.heads,
                                  config.optim.dividing(config.device))
        model.head = "reward"
        return model, chat
    body, chat = open_body(config, source)
    draw = torch.Generator().manual_seed(seed_of(config.seed, "heads"))
    return ScalarModel(new_adapter(body, config, "reward"), config.head.heads, draw), chat


def build(config: RewardConfig, source: ModelSource) -> TrainingSetup:
    reader = RowReader(config.pairs, config.data, config.eval_data)
    train, held_out = read_pair_sets(config, reader)
    model, chat = open_scalar(config, source)
    positions = config.pairs.limit(model.config.max_position_embeddings)
    train = reader.fitting(train, chat, positions)
    held_out = reader.evaluated.fitting(held_out, chat, positions)
    method = config.row
    assert isinstance(method, Preference)
    return pair_setup(config, method, Models(policy=model), chat, reader, train, held_out,
                      measure=lambda batch: calibration_figures(model, batch, config.optim.at_once))


@torch.no_grad()
def calibration_figures(model: ScalarModel, batch: Batch, tokens_per_pass: int) -> Figures:
    """Whether differences of scores are calibrated log-odds, as Bradley-Terry has them, on held-out pairs."""
    micros = batch.split(tokens_per_pass)
    scores = torch.cat([model.score(micro.tokens, micro.lengths, micro.packed) for micro in micros])
    chosen, rejected = scores.view(-1, 2).unbind(1)
    figures = calibration((chosen - rejected).cpu())
    return {"ece": figures["ece"], "calibration": figures["curve"]}
