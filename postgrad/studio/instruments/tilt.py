"""Instrument 23, the tilt: the optimum in closed form as a point of a triangle, and the Z that cancels as an
arrow of the same length for every answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider, close
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS

REFERENCE = (0.5, 0.3, 0.2)
ANSWERS = ("A", "B", "C")
REWARDS = {"c": (-0.5, 0.4, 1.0), "bc": (0.0, 1.0, 0.9), "a": (0.8, 0.2, -0.6)}
AROUND = 72   # points of a curve of equal KL
BETAS = tuple(round(0.06 * 1.12**i, 4) for i in range(48))


@dataclass(frozen=True)
class State:
    rewards: str = "c"
    beta: float = 0.5
    shift: float = 0.0


CONTROLS = (
    ChoiceControl("rewards", "Best rewarded", (("c", "C"), ("bc", "B, and C nearly"), ("a", "A"))),
    Slider("beta", "β, the weight of the KL", 0.1, 3, 0.1),
    Slider("shift", "Added to every reward", -1, 1, 0.5),
)


def in_triangle(p: Sequence[float]) -> list[float]:
    """The place of three probabilities: A at the left, B at the right, C at the top."""
    return [round(p[1] + p[2] / 2, 4), round(p[2] * math.sqrt(3) / 2, 4)]


def kl_of(p: Sequence[float]) -> float:
    return math.fsum(x * math.log(x / q) for x, q in zip(p, REFERENCE, strict=True) if x > 0)


@cache
def equal_kl(kl: float) -> list[list[float]]:
    """The distributions that are as far from the reference, around it."""
    out = []
    for i in range(AROUND + 1):
        angle = 2 * math.pi * i / AROUND
        x, y = math.cos(angle), math.sin(angle)
        way = (-x - y / math.sqrt(3), x - y / math.sqrt(3), 2 * y / math.sqrt(3))  # sums to 0
        far = min(q / -d for q, d in zip(REFERENCE, way, strict=True) if d < -1e-12)
        low, high = 0.0, far
        for _ in range(40):
            middle = (low + high) / 2
            inside = kl_of([max(q + middle * d, 0.0) for q, d in zip(REFERENCE, way, strict=True)]) < kl
            low, high = (middle, high) if inside else (low, middle)
        out.append(in_triangle([q + low * d for q, d in zip(REFERENCE, way, strict=True)]))
    return out


def equal_reward(p: Sequence[float], rewards: Sequence[float]) -> list[list[float]]:
    """The ends of the line of distributions with the same mean reward as p."""
    a, b, c = rewards
    way = (b - c, c - a, a - b)
    ends = [q / -d for q, d in zip(p, way, strict=True) if d]
    low, high = max(t for t in ends if t <= 0), min(t for t in ends if t > 0)
    return [in_triangle([q + t * d for q, d in zip(p, way, strict=True)]) for t in (low, high)]


def compute(state: State) -> JsonDict:
    import torch

    from postgrad.maths.kl import exact_kl

    ref = torch.tensor(REFERENCE, dtype=torch.float64).log()
    plain = torch.tensor(REWARDS[state.rewards], dtype=torch.float64)
    tilted = ref + (plain + state.shift) / state.beta
    log_z, plain_z = (torch.logsumexp(ref + (plain + s) / state.beta, -1).item() for s in (state.shift, 0.0))
    optimum = torch.log_softmax(tilted, -1)
    path = [torch.softmax(ref + plain / beta, -1).tolist() for beta in reversed(BETAS)]
    p = optimum.exp().tolist()
    kl = exact_kl(optimum, ref).item()
    return {
        "beta": state.beta, "shift": state.shift, "answers": list(ANSWERS), "reference": list(REFERENCE),
        "reward": [x + state.shift for x in REWARDS[state.rewards]], "optimum": p, "log_z": log_z,
        "z": math.exp(log_z), "plain_z": math.exp(plain_z), "log_ref": ref.tolist(),
        "tilted": tilted.tolist(), "log_optimum": optimum.tolist(), "kl": kl,
        "mean_reward": math.fsum(x * r for x, r in zip(p, plain.tolist(), strict=True)) + state.shift,
        "path": [in_triangle(REFERENCE), *(in_triangle(x) for x in path)],
        "here": in_triangle(p), "start": in_triangle(REFERENCE), "round": equal_kl(round(kl, 6)),
        "level": equal_reward(p, REWARDS[state.rewards]),
        "gap_before": (tilted[2] - tilted[0]).item(), "gap_after": (optimum[2] - optimum[0]).item(),
    }


def insight(numbers: JsonDict) -> str:
    if not close(numbers["gap_before"], numbers["gap_after"]):
        return ""
    z, gap = f"{numbers['log_z']:.2f}".replace("-", MINUS), f"{numbers['gap_after']:.2f}".replace("-", MINUS)
    if numbers["shift"]:
        many = numbers["z"] / numbers["plain_z"]
        times = f"{many:.2f}" if many >= 0.01 else f"{many:.1e}"
        way = "higher" if numbers["shift"] > 0 else "lower"
        return (f"Every reward is {abs(numbers['shift']):.1f} {way}: "
                f"Z is multiplied by {times}, and the optimum stays where it was. log Z = {z} is taken off "
                f"each answer, so C and A keep their gap of {gap}.")
    return (f"At β = {numbers['beta']:.1f} the optimum is {numbers['kl']:.2f} nats from the reference. "
            f"log Z = {z} is taken off each answer alike: before and after it, C and A are {gap} apart.")


INSTRUMENT = Instrument(
    name="tilt", number=23, title="The reward tilts the reference, and Z moves all answers alike",
    functions=("postgrad.maths.kl.exact_kl",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="The optimum of the objective as a point of a triangle, and what the partition function does.",
)
