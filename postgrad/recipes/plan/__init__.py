"""A plan before a training: does it fit, on which GPUs it trains and samples, and how long a step takes.

cards      GPUs by name: memory, arithmetic, bandwidth
costs      seconds of sampling, scoring, training and handing over weights, fitted to what was measured
simulation collections on a clock: samplers, trainer, `rollouts.async_depth`
layout     the GPUs of a training, and the best way to divide them
named      the same for a model, a method and GPUs by their names

All of it is arithmetic. What it stands on was measured on one H200 (docs/results/speed-h200.md); tests hold
it against those points, and docs/scale.md says how far off each is. Nothing past one GPU was measured.
"""

from postgrad.recipes.plan.cards import CARDS, Card, cards_named
from postgrad.recipes.plan.costs import Costs, Work
from postgrad.recipes.plan.layout import Layout, Option, plan_options
from postgrad.recipes.plan.named import method_memory, plan_training
from postgrad.recipes.plan.simulation import ReplyLengths, sampling_seconds, simulate

__all__ = ["CARDS", "Card", "Costs", "Layout", "ReplyLengths", "Option", "Work", "cards_named",
           "method_memory",
           "plan_options", "plan_training", "simulate", "sampling_seconds"]
