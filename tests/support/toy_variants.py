"""Rows whose biases are taken out one by one, and the table of all biases, on the language of toy.py."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import toy

from postgrad.maths import credit, weights
from postgrad.methods import METHODS, Policy


def variants() -> tuple[Policy, ...]:
    """What the rows become when one bias after another is taken out."""
    ppo, grpo = METHODS["ppo"], METHODS["grpo"]
    honest = {"weigh": weights.sequence_sum, "unbiased": True}
    plain = {"whiten": False, "entropy": 0.0, **honest}
    return (
        replace(ppo, name="ppo, lambda 1, sequence sum, no whitening or entropy",
                credit=partial(credit.gae, lam=1.0), **plain),
        replace(grpo, name="grpo, no KL", kl_in_loss=0.0),
        replace(grpo, name="grpo, no KL, centred", kl_in_loss=0.0, credit=credit.group_centre),
        replace(grpo, name="grpo, no KL, centred, sequence sum", kl_in_loss=0.0, credit=credit.group_centre,
                **honest),
        replace(grpo, name="grpo, no KL, sequence sum", kl_in_loss=0.0, weigh=weights.sequence_sum),
    )


def bias_table(group_size: int = 3) -> list[dict]:
    """Every policy row of the table and the variants, measured: for the documentation."""
    rows = [row for row in METHODS.values() if isinstance(row, Policy)]
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        knowing = replace(METHODS["ppo"], name="ppo, exact critic")
        known = toy.compare(knowing, group_size, critic=toy.exact_values(knowing.kl_in_reward))
        return [*(toy.compare(row, group_size) for row in (*rows, *variants())), known]
    finally:
        torch.set_default_dtype(previous)
