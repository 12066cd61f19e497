"""Instrument 8, the PPO clip: what a token's ratio and advantage are worth,
and where the gradient vanishes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import Instrument, Slider

LOWEST, HIGHEST, TALLEST = 0.02, 4.0, 2.5  # the ratios that are drawn, and how high
CLOSE = 1e-6


@dataclass(frozen=True)
class State:
    ratio: float = 1.5
    advantage: float = 1.0
    low: float = 0.2
    high: float = 0.2


CONTROLS = (
    Slider("ratio", "Ratio of new to old probability, ρ", 0.05, 4, 0.05),
    Slider("advantage", "Advantage of the token, A", -1.5, 1.5, 0.1),
    Slider("low", "Clip below, ε low", 0, 0.9, 0.01),
    Slider("high", "Clip above, ε high", 0, 0.6, 0.01),
)


def surrogate(ratios: list[float], advantage: float, low: float, high: float) -> list[dict]:
    """The trainer's surrogate at each ratio, its sign turned so that more is better,
    and its gradient on log pi by autograd."""
    import torch

    from postgrad.maths.surrogate import clipped_ratio

    logp = torch.tensor([ratios], dtype=torch.float64).log().requires_grad_()
    adv, mask = torch.full_like(logp, advantage), torch.ones_like(logp, dtype=torch.bool)
    loss, clipped = clipped_ratio(logp, torch.zeros_like(logp), adv, mask, low=low, high=high)
    pull = -torch.autograd.grad(loss.sum(), logp)[0]
    # 0 - x: no "-0"
    rows = zip(ratios, (0 - loss)[0].tolist(), (0 + pull)[0].tolist(), clipped[0].tolist(), strict=True)
    return [{"ratio": r, "objective": o, "gradient": g, "clipped": c} for r, o, g, c in rows]


def corners(edges: list[float], advantage: float) -> list[float]:
    """The ratios between which everything is a straight line:
    the clip's edges, both sides of them, and where a line leaves."""
    leaves = TALLEST / abs(advantage) if advantage else HIGHEST
    inner = (x for edge in edges for x in (edge - CLOSE, edge, edge + CLOSE))
    return sorted({LOWEST, 1.0, *(x for x in (*inner, leaves) if LOWEST < x < HIGHEST), HIGHEST})


def drawn(points: list[dict], name: str) -> list[tuple[float, float]]:
    return [(p["ratio"], p[name]) for p in points if abs(p[name]) <= TALLEST + CLOSE]


def compute(state: State) -> dict:
    """The point, the clipped objective over all ratios, and the raw one:
    the same function with the clip opened wide."""
    edges = [1 - state.low, 1 + state.high]
    grid = corners(edges, state.advantage)
    *held, here = surrogate([*grid, state.ratio], state.advantage, state.low, state.high)
    *free, raw = surrogate([*grid, state.ratio], state.advantage, 1.0, math.inf)
    flat = [edges[1], HIGHEST] if state.advantage > 0 else [LOWEST, edges[0]] if state.advantage < 0 else None
    return {
        **here, "raw": raw["objective"], "raw_gradient": raw["gradient"], "advantage": state.advantage,
        "edges": edges, "bounded": min(max(state.ratio, edges[0]), edges[1]), "flat": flat, "rows": rows(),
        "curve": drawn(held, "objective"), "free": drawn(free, "objective"),
        "gradients": drawn(held, "gradient"), "free_gradients": drawn(free, "gradient"),
    }


def rows() -> list[dict]:
    """The clips of the table's rows that use this surrogate; rows with the same clip together."""
    from postgrad.maths.surrogate import clipped_ratio
    from postgrad.methods import METHODS, constants

    names: dict[tuple[float, float], list[str]] = {}
    for row in METHODS.values():
        if getattr(getattr(row, "surrogate", None), "func", None) is clipped_ratio:
            bounds = constants(row)
            names.setdefault((bounds["low"], bounds["high"]), []).append(row.name)
    return [{"names": found, "low": low, "high": high} for (low, high), found in names.items()]


def insight(numbers: dict) -> str:
    low, high = numbers["edges"]
    if numbers["advantage"] == 0:
        return "An advantage of 0 says nothing: there is no objective to raise, at any ratio."
    if numbers["clipped"]:
        edge, deed = (high, "likelier") if numbers["advantage"] > 0 else (low, "rarer")
        return (f"This token has been made {deed} by enough: its ratio of {numbers['ratio']:.2f} counts as "
                f"{edge:.2f}, and the gradient, which would be {numbers['raw_gradient']:+.2f}, is exactly "
                "0.".replace("-",
                              "\u2212"))
    if not low <= numbers["ratio"] <= high:
        return (f"The ratio of {numbers['ratio']:.2f} is outside the clip, and yet the gradient is whole: it "
                "has gone the wrong way, and the minimum always lets a mistake be undone.")
    return (f"Within {low:.2f} and {high:.2f} the clip does nothing: both objectives are the ratio times the "
            f"advantage, and so is the gradient on log π, {numbers['gradient']:+.2f}.".replace("-", "\u2212"))


INSTRUMENT = Instrument(
    name="ppo-clip", number=8, title="Past the clip there is nothing left to gain",
    functions=("postgrad.maths.surrogate.clipped_ratio",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="One token’s ratio and advantage, the clipped objective, and the gradient that vanishes.",
)
