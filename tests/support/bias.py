"""The exact bias of every policy row on an enumerable language (toy.py), as `make docs` measures it once and
keeps it in postgrad/studio/book/bias.json. tests/training/oracle_test.py holds what is kept against what it
measures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from postgrad.studio.book.methods import BIAS

GROUP = 3  # samples of a prompt
NONE = 1e-12  # a bias below this is rounding


class Objective(NamedTuple):
    """What a row climbs where it is not the mean reward: in words, the reward of each sequence, and the
    exact gradient."""

    words: str
    reward: Callable
    gradient: Callable


def passed(toy):
    return (toy.REWARD == 1).double()


OWN = {"maxrl": Objective("pass@1 + pass@2 / 2, for verdicts of 0 and 1", passed,
                          lambda toy: toy.pass_at_k_gradient(passed(toy), GROUP - 1))}


def measure(row) -> dict:
    """How far a row's mean gradient is from the exact one, component by component."""
    import torch
    import toy
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exact, on = toy.objective_gradient(row), toy.measure(row, GROUP)
        found = {"noise": rounded(on.noise / float(exact.norm() * scale_of(on.mean, exact))),
                 **beside(exact, on.mean)}
        if row.name in OWN:
            _, reward, gradient = OWN[row.name]
            with toy.paying(reward(toy)):
                own = toy.measure(row, GROUP).mean
            found["own"] = beside(gradient(toy), own)
    finally:
        torch.set_default_dtype(previous)
    return found


def beside(exact, mean) -> dict:
    """scale: the multiple of the exact gradient that the mean is nearest to; bias: what is left, over that
    multiple; exact, mean: their components where either is not 0."""
    scale = scale_of(mean, exact)
    bias = float((mean - scale * exact).norm() / (scale * exact).norm())
    here = (exact != 0) | (mean != 0)
    return {"scale": rounded(float(scale)), "bias": rounded(bias) if bias > NONE else 0.0,
            "exact": [rounded(x) for x in exact[here].tolist()],
            "mean": [rounded(x) for x in mean[here].tolist()]}


def scale_of(mean, exact):
    return (mean * exact).sum() / (exact**2).sum()


def rounded(x: float) -> float:
    return float(f"{x:.5g}")


def kept(rows: Mapping, anew: bool = False) -> dict[str, dict]:
    """What was measured of each policy row; rows of which nothing is kept are measured."""
    before = json.loads(BIAS.read_text()) if BIAS.is_file() and not anew else {}
    return {name: before.get(name) or measure(row) for name, row in rows.items() if row.kind == "policy"}


def as_json(found: Mapping[str, dict]) -> str:
    """A line a row."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    return f"{{\n{lines}\n}}\n"


def said(bias: float) -> str:
    return f"{bias:.2g}" if bias else "0"
