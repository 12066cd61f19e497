"""Instrument 16, two divergences: a small student learns from a teacher by the forward or the reverse KL,
over a vocabulary of a few tokens. Every mean is a sum over the vocabulary; nothing is sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider, as_percent
from postgrad.studio.json_types import JsonDict, Values

if TYPE_CHECKING:
    from torch import Tensor

TOKENS, LEFT, RIGHT, WIDTH = 21, 5, 15, 1.5  # the vocabulary, and the teacher's two modes
FLOOR = 1e-4   # the teacher's probability that is spread over all tokens
RARE = 0.01    # a token below this is one that a model hardly writes
STEPS, EVERY = 60, 5
RATES = (0.8, 0.15)  # of the centre, and of the log of the width
LONGEST = 1.0  # norm of a gradient at most
DIRECTIONS = {"forward": "forward", "reverse": "reverse"}


@dataclass(frozen=True)
class State:
    direction: str = "forward"
    step: int = 60
    share: float = 0.6
    centre: int = 6


CONTROLS = (
    ChoiceControl("direction", "KL", tuple(DIRECTIONS.items())),
    Slider("step", "Step of training", 0, STEPS, EVERY),
    Slider("share", "Teacher’s probability on the left", 0.2, 0.8, 0.2),
    Slider("centre", "Where the student begins", 2, 18, 4),
)


def bump(centre: Tensor | float, width: Tensor | float) -> Tensor:
    """The logits of a bump over the vocabulary."""
    import torch

    places = torch.arange(TOKENS, dtype=torch.float64)
    return -((places - centre) ** 2) / (2 * width**2)


def teacher_logits(share: float) -> Tensor:
    """Two bumps, of `share` and the rest, over a low floor."""
    chances = share * bump(LEFT, WIDTH).softmax(-1) + (1 - share) * bump(RIGHT, WIDTH).softmax(-1)
    return ((1 - FLOOR) * chances + FLOOR / TOKENS).log()


def directed_kl(direction: str, teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) or KL(student || teacher)."""
    from postgrad.maths.kl import exact_kl

    return exact_kl(teacher, student) if direction == "forward" else exact_kl(student, teacher)


@cache
def training_path(direction: str, share: float, centre: int) -> tuple[Values, ...]:
    """The student's centre and log-width before each step, and the divergence there, by gradient descent with
    the gradient's norm clipped."""
    import torch

    teacher, path = teacher_logits(share), []
    place, size = (torch.tensor(x, dtype=torch.float64) for x in (float(centre), math.log(WIDTH)))
    for _ in range(STEPS + 1):
        place, size = place.detach().requires_grad_(), size.detach().requires_grad_()
        loss = directed_kl(direction, teacher, bump(place, size.exp()))
        slopes = torch.autograd.grad(loss, (place, size))
        path.append((place.item(), size.item(), loss.item(), slopes[0].item(), slopes[1].item()))
        held = max(1.0, math.hypot(slopes[0].item(), slopes[1].item()) / LONGEST)
        place, size = place - RATES[0] * slopes[0] / held, size - RATES[1] * slopes[1] / held
    return tuple(path)


def compute(state: State) -> JsonDict:
    """The student at a step, both divergences, and the gradient on the logit of each token."""
    import torch

    path = training_path(state.direction, round(state.share, 1), state.centre)
    place, size, loss, slope_place, slope_size = path[state.step]
    teacher = teacher_logits(round(state.share, 1))
    logits = bump(place, math.exp(size)).requires_grad_()
    (slope,) = torch.autograd.grad(directed_kl(state.direction, teacher, logits), logits)
    p, q = teacher.exp(), logits.detach().softmax(-1)
    return {
        "direction": state.direction, "step": state.step, "share": state.share,
        "teacher": six_decimals(p), "student": six_decimals(q), "push": six_decimals(0 - slope),
        "centre": round(place, 6), "width": round(math.exp(size), 6), "loss": round(loss, 6),
        "slope_centre": round(slope_place, 6) + 0.0, "slope_width": round(slope_size, 6) + 0.0,
        "forward": round(directed_kl("forward", teacher, logits).item(), 6),
        "reverse": round(directed_kl("reverse", teacher, logits).item(), 6),
        "outside": round(q[p < RARE].sum().item(), 6), "covered": round(p[q >= RARE].sum().item(), 6),
        "losses": [[n, round(row[2], 4)] for n, row in enumerate(path)][::EVERY],
    }


def six_decimals(x: Tensor) -> list[float]:
    return [round(value, 6) + 0.0 for value in x.tolist()]


def insight(numbers: JsonDict) -> str:
    when = (f"After {numbers['step']} steps on the {numbers['direction']} KL" if numbers["step"]
            else "Before training")
    return (f"{when} the student writes {as_percent(numbers['outside'])} of its tokens where the teacher "
            f"hardly writes any, and covers {as_percent(numbers['covered'])} of what the teacher writes. The "
            f"forward KL is {numbers['forward']:.3f}, the reverse KL {numbers['reverse']:.3f}.")


INSTRUMENT = Instrument(
    name="divergences", number=16,
    title="The forward KL pays for what is missing, the reverse KL for what is wrong",
    functions=("postgrad.maths.kl.exact_kl",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="A student with one mode learns from a teacher with two, by either KL, step by step.",
)
