"""Memory and plans of a model, a method and GPUs by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from postgrad import methods
from postgrad.models.families import Config
from postgrad.recipes.plan.cards import cards_named
from postgrad.recipes.plan.costs import Work
from postgrad.recipes.plan.layout import Option, plan_options
from postgrad.recipes.plan.simulation import ReplyLengths
from postgrad.resolve.models import read_config
from postgrad.system.options import FootprintOptions
from postgrad.training.memory import PARTS, SIZES, Setup, estimate, parameters


def named_shape(name: str) -> Config:
    """A size of the table (7B), or the config.json of a model, which is all that is fetched of a hub id."""
    return SIZES[name.upper()] if name.upper() in SIZES else read_config(name)


def method_memory(model: str, names: Sequence[str], footprint: FootprintOptions,
                  reward: str | None = None) -> tuple[int, list[dict]]:
    """(parameters of the model, a row for each method: the models it holds, and bytes by part).

    reward: "model" or "verifier"; None: a model where the method has a critic.
    """
    shape, rows = named_shape(model), []
    for method in map(methods.get_method, names):
        judged = getattr(method, "critic", False) if reward is None else reward == "model"
        memory = estimate(shape, method, Setup(**asdict(footprint), reward_model=judged))
        rows.append({"method": method.name, "models": memory.models,
                     **{part: getattr(memory, part) for part in (*PARTS, "sampling", "updating", "peak")}})
    return parameters(shape), rows


def plan_training(model: str, method: str, gpus: str, work: Work, lengths: ReplyLengths, *,
                  lora: int = 0) -> tuple[int, str, list[Option]]:
    """(parameters of the model, the method's name, every way that fits, quickest first). gpus: "8xH100"."""
    shape, (count, card), row = named_shape(model), cards_named(gpus), methods.get_method(method)
    if not row.source.startswith("rollouts"):
        raise ValueError(f"plan is for methods that sample, and {row.name} learns from {row.source}: "
                         "`postgrad memory` says what it asks of a GPU.")
    return (parameters(shape), row.name,
            plan_options(shape, row, count, card, work, lengths, Setup(bits=16, lora=lora)))
