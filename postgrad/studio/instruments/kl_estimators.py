"""Instrument 11, estimators of the KL: what k1, k2 and k3 are worth, how much they scatter, and where their
gradients lead when they stand in a loss. Everything by enumeration over five answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import num

REFERENCE = (0.4, 0.25, 0.2, 0.1, 0.05)  # the reference's probabilities of the five answers
NAMES = ("k1", "k2", "k3")
WIDEST, GRID = 4.0, 81  # the differences of log-probabilities that are drawn
CLOSE = 1e-9
SMALLEST = 5e-4  # anything below is printed as 0.000


@dataclass(frozen=True)
class State:
    estimator: str = "k3"
    likeliest: float = -1.0
    rarest: float = 1.5
    samples: int = 16


CONTROLS = (
    ChoiceControl("estimator", "Estimator", NAMES),
    Slider("likeliest", "Added to the logit of the likeliest answer", -2, 2, 0.1),
    Slider("rarest", "Added to the logit of the rarest answer", -2, 4, 0.1),
    ChoiceControl("samples", "Samples in a mean", (1, 4, 16, 64, 256)),
)


def compute(state: State) -> JsonDict:
    """Values and gradients of the three estimators on one policy, in float64.

    The mean of a gradient is taken as a loss has it: the samples are fixed, and log pi alone is moved.
    """
    import torch

    from postgrad.maths import kl

    reference = torch.tensor(REFERENCE, dtype=torch.float64).log()
    added = torch.zeros_like(reference)
    added[0], added[-1] = state.likeliest, state.rarest
    logits = (reference + added).requires_grad_()
    both = kl.exact_kl(logits, reference), kl.exact_kl(reference, logits)
    right, other = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in both)
    exact, backward = (x.item() for x in both)
    logp = logits.log_softmax(-1)
    chance, d = logp.exp().detach(), (logp - reference).detach()
    grid = torch.linspace(-WIDEST, WIDEST, GRID, dtype=torch.float64)
    found = {}
    for name in NAMES:
        estimate = getattr(kl, name)
        value = estimate(logp, reference)
        (pull,) = torch.autograd.grad((chance * value).sum(), logits, retain_graph=True)
        value = value.detach()
        mean = (chance * value).sum().item()
        std = (chance * (value - mean) ** 2).sum().sqrt().item()
        found[name] = {
            "mean": mean, "bias": round(mean - exact, 12) + 0.0, "std": std,
            "error": std / math.sqrt(state.samples),
            "negative": chance[value < -CLOSE].sum().item(), "values": value.tolist(),
            "gradient": (0 + pull).tolist(),
            "curve": list(zip(grid.tolist(), estimate(grid, torch.zeros_like(grid)).tolist(), strict=True)),
        }
    return {
        "kl": exact, "other_kl": backward, "right": right.tolist(),
        "other": other.tolist(), "chances": chance.tolist(), "d": d.tolist(), "estimators": found,
        "name": state.estimator, "here": found[state.estimator], "samples": state.samples,
        "same": d.abs().max().item() < CLOSE, "reference": list(REFERENCE),
    }


def insight(numbers: JsonDict) -> str:
    if numbers["same"]:
        return ("Policy and reference are the same: all three say 0 on every sample, and none of them has a "
                "gradient.")
    here, exact = numbers["here"], num(numbers["kl"])
    return {"k1": of_k1, "k2": of_k2, "k3": of_k3}[numbers["name"]](numbers, here, exact)


def of_k1(numbers: JsonDict, here: JsonDict, exact: str) -> str:
    sign = (f"It is negative on {100 * here['negative']:.0f} % of the samples, though no KL is"
            if here["negative"] >= 0.005 else "It is negative on fewer than 1 % of the samples")
    return (f"k1 has the mean {exact}, which is the KL. {sign}. In a loss its mean gradient is 0 on every "
            "answer: there it adds noise, and nothing else.")


def of_k2(numbers: JsonDict, here: JsonDict, exact: str) -> str:
    away = (f"{num(abs(here['bias']))} {'above' if here['bias'] > 0 else 'below'} the KL of {exact}"
            if abs(here["bias"]) >= SMALLEST else f"within 0.001 of the KL of {exact}")
    return (f"k2 has the mean {num(here['mean'])}, {away}. Its gradient in a loss is exactly that of "
            "KL(π‖ref) even so.")


def of_k3(numbers: JsonDict, here: JsonDict, exact: str) -> str:
    first = numbers["estimators"]["k1"]["std"]
    change = here["std"] - first
    than = (f"less than k1’s {num(first)}" if change <= -SMALLEST else f"more than k1’s {num(first)}"
            if change >= SMALLEST else f"as k1’s {num(first)}")
    return (f"k3 has the mean {exact} too, is never negative, and scatters by {num(here['std'])}, {than}. "
            f"Its gradient in a loss is that of the other KL, KL(ref‖π) = {num(numbers['other_kl'])}.")


INSTRUMENT = Instrument(
    name="kl-estimators", number=11, title="A good estimate of the KL can have the wrong gradient",
    functions=("postgrad.maths.kl.k1", "postgrad.maths.kl.k2", "postgrad.maths.kl.k3",
               "postgrad.maths.kl.exact_kl"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="k1, k2 and k3 on five answers: mean, scatter, and the gradient when they stand in a loss.",
)
