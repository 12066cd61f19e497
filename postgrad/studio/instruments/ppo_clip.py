"""Instrument 8, the PPO clip: what a token's ratio and advantage are worth,
and where the gradient vanishes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import Instrument, Remark, Slider, close, first_true
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS

LOWEST, HIGHEST = 0.02, 4.0  # the ratios that are drawn
CLOSE = 1e-6
ROUNDING = 1e-12  # by which the clip is wider: a ratio at its edge is within, however exp and log round it


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


def surrogate_at(ratios: list[float], advantage: float, low: float, high: float) -> list[JsonDict]:
    """The trainer's surrogate at each ratio, its sign turned so that more is better,
    and its gradient on log pi by autograd."""
    import torch

    from postgrad.maths.surrogate import clipped_ratio

    logp = torch.tensor([ratios], dtype=torch.float64).log().requires_grad_()
    adv, mask = torch.full_like(logp, advantage), torch.ones_like(logp, dtype=torch.bool)
    loss, clipped = clipped_ratio(logp, torch.zeros_like(logp), adv, mask, low=low + ROUNDING,
                                  high=high + ROUNDING)
    pull = -torch.autograd.grad(loss.sum(), logp)[0]
    # 0 - x: no "-0"
    rows = zip(ratios, (0 - loss)[0].tolist(), (0 + pull)[0].tolist(), clipped[0].tolist(), strict=True)
    return [{"ratio": r, "objective": o, "gradient": g, "clipped": c} for r, o, g, c in rows]


def corners(edges: list[float]) -> list[float]:
    """The ratios between which everything is a straight line: the clip's edges, and both sides of them."""
    inner = (x for edge in edges for x in (edge - CLOSE, edge, edge + CLOSE))
    return sorted({LOWEST, 1.0, *(x for x in inner if LOWEST < x < HIGHEST), HIGHEST})


def ratio_curve(points: list[JsonDict], name: str) -> list[tuple[float, float]]:
    return [(p["ratio"], p[name]) for p in points]


def compute(state: State) -> JsonDict:
    """The point, the clipped objective over all ratios, and the raw one:
    the same function with the clip opened wide."""
    edges = [1 - state.low, 1 + state.high]
    grid = corners(edges)
    *held, here = surrogate_at([*grid, state.ratio], state.advantage, state.low, state.high)
    *free, raw = surrogate_at([*grid, state.ratio], state.advantage, 1.0, math.inf)
    flat = [edges[1], HIGHEST] if state.advantage > 0 else [LOWEST, edges[0]] if state.advantage < 0 else None
    return {
        **here, "raw": raw["objective"], "raw_gradient": raw["gradient"], "advantage": state.advantage,
        "edges": edges, "bounded": min(max(state.ratio, edges[0]), edges[1]), "flat": flat,
        "rows": clips_of_rows(),
        "curve": ratio_curve(held, "objective"), "free": ratio_curve(free, "objective"),
        "gradients": ratio_curve(held, "gradient"), "free_gradients": ratio_curve(free, "gradient"),
    }


def clips_of_rows() -> list[JsonDict]:
    """The clips of the table's rows that use this surrogate; rows with the same clip together."""
    from postgrad.maths.surrogate import clipped_ratio
    from postgrad.methods import METHODS, constants_of

    names: dict[tuple[float, float], list[str]] = {}
    for row in METHODS.values():
        if getattr(getattr(row, "surrogate", None), "func", None) is clipped_ratio:
            bounds = constants_of(row)
            low, high = (float(str(bounds[name])) for name in ("low", "high"))
            names.setdefault((low, high), []).append(row.name)
    return [{"names": found, "low": low, "high": high} for (low, high), found in names.items()]


def went_wrong_way(n: JsonDict) -> bool:
    """Outside the clip on the side that the advantage wants to leave."""
    low, high = n["edges"]
    return bool(n["ratio"] < low if n["advantage"] > 0 else n["ratio"] > high)


def is_unclipped(n: JsonDict) -> bool:
    """Whether the gradient and the objective are those without a clip."""
    return close(n["gradient"], n["ratio"] * n["advantage"]) and close(n["objective"], n["raw"])


def signed_text(value: float) -> str:
    return f"{value:+.3f}".replace("-", MINUS)


def clipped_edge(n: JsonDict) -> float:
    """The edge that a clipped ratio counts as."""
    return float(n["edges"][1] if n["advantage"] > 0 else n["edges"][0])


insight = first_true(
    Remark(lambda n: n["advantage"] == n["objective"] == n["raw"] == n["gradient"] == 0,
           lambda n: "An advantage of 0 says nothing: the objective is 0 with the clip and without, and so "
                     "is the gradient."),
    Remark(lambda n: (n["gradient"] == 0 and close(n["objective"], clipped_edge(n) * n["advantage"])
                      and (n["ratio"] > n["edges"][1] if n["advantage"] > 0 else n["ratio"] < n["edges"][0])),
           lambda n: f"This token has been made {'likelier' if n['advantage'] > 0 else 'rarer'} by enough: "
                     f"its ratio of {n['ratio']:.2f} counts as {clipped_edge(n):.2f}, and the gradient, "
                     f"which would be {signed_text(n['ratio'] * n['advantage'])}, is exactly 0."),
    Remark(lambda n: n["advantage"] != 0 and went_wrong_way(n) and is_unclipped(n),
           lambda n: f"The ratio of {n['ratio']:.2f} is outside the clip, and yet the gradient is whole, "
                     f"{signed_text(n['gradient'])}: it has gone the wrong way, and the minimum lets a "
                     "mistake be undone."),
    Remark(lambda n: is_unclipped(n) and n["edges"][0] - CLOSE <= n["ratio"] <= n["edges"][1] + CLOSE,
           lambda n: f"Within {n['edges'][0]:.2f} and {n['edges'][1]:.2f} the clip does nothing: both "
                     "objectives are the ratio times the advantage, and so is the gradient on log π, "
                     f"{signed_text(n['gradient'])}."),
)


INSTRUMENT = Instrument(
    name="ppo-clip", number=8, title="Past the clip there is nothing left to gain",
    functions=("postgrad.maths.surrogate.clipped_ratio",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="One token’s ratio and advantage, the clipped objective, and the gradient that vanishes.",
)
