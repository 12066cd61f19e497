"""Instrument 6, Bradley-Terry: two rewards become a probability, a loss and a gradient,
by the reward model's own function."""

from __future__ import annotations

import math
from dataclasses import dataclass

from postgrad.studio.instruments.base import Instrument, Remark, Slider, as_percent, close, first_true
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS

WIDEST = 10.0  # the gaps that are drawn: as wide as the two sliders can make them
GRID = 101


@dataclass(frozen=True)
class State:
    chosen: float = 1.0
    rejected: float = 0.0
    shift: float = 0.0


CONTROLS = (
    Slider("chosen", "Reward of the chosen answer", -5, 5, 0.1),
    Slider("rejected", "Reward of the rejected answer", -5, 5, 0.1),
    Slider("shift", "Added to both", -3, 3, 0.1),
)


def compute(state: State) -> JsonDict:
    """Probability, loss and gradients at the two rewards, and both curves over every gap that can be drawn.

    P = exp(-loss), because the loss is -log P. The gradients are autograd's.
    """
    import torch

    from postgrad.maths.preference import bradley_terry

    rewards = torch.tensor([state.chosen + state.shift, state.rejected + state.shift], dtype=torch.float64,
                           requires_grad=True)
    loss = bradley_terry(rewards[0], rewards[1], torch.zeros((), dtype=torch.float64))
    slope, other = torch.autograd.grad(loss, rewards)[0].tolist()
    gaps = torch.linspace(-WIDEST, WIDEST, GRID, dtype=torch.float64)
    losses = bradley_terry(gaps, torch.zeros_like(gaps), torch.zeros_like(gaps))
    unshifted = bradley_terry(*torch.tensor([state.chosen, state.rejected, 0.0], dtype=torch.float64))
    chosen, rejected = rewards.tolist()
    return {
        "chosen": chosen, "rejected": rejected, "gap": chosen - rejected, "loss": loss.item(),
        "shift": state.shift, "loss_unshifted": unshifted.item(),
        "probability": (-loss).exp().item(), "slope": slope, "slope_rejected": other,
        "curve": list(zip(gaps.tolist(), (-losses).exp().tolist(), strict=True)),
        "losses": list(zip(gaps.tolist(), losses.tolist(), strict=True)),
    }


def push_is_consistent(n: JsonDict) -> bool:
    """Whether the loss is -log P, and the push one minus the probability."""
    return close(n["loss"], -math.log(max(n["probability"], 1e-300))) and close(-n["slope"],
                                                                                1 - n["probability"])


insight = first_true(
    Remark(lambda n: (abs(n["gap"]) < 1e-9 and close(n["probability"], 0.5, 5e-5)
                      and close(n["loss"], math.log(2), 5e-5)),
           lambda n: f"Equal rewards are a coin toss: {as_percent(n['probability'])}, and the loss is log 2 "
                     f"= {n['loss']:.4f}."),
    Remark(lambda n: n["gap"] < 0 and n["probability"] < 0.5 and push_is_consistent(n),
           lambda n: "The model has this pair the wrong way round, "
                     f"{as_percent(n['probability'])} for the answer that people chose: it is pushed with "
                     f"{-n['slope']:.3f} of the full force."),
    Remark(lambda n: n["gap"] > 0 and -n["slope"] < 0.05 and push_is_consistent(n),
           lambda n: f"The pair is settled ({as_percent(n['probability'])}): {as_percent(-n['slope'])} of "
                     "the full push is left."),
    Remark(lambda n: (n["gap"] > 0 and abs(n["shift"]) > 1e-9 and close(n["loss"], n["loss_unshifted"])
                      and n["probability"] > 0.5),
           lambda n: f"{n['shift']:+.1f} on both rewards changed nothing: the gap is {n['gap']:.1f} with it "
                     f"and without, and so is the chance of {as_percent(n['probability'])}.".replace("-",
                                                                                                    MINUS)),
    Remark(lambda n: n["gap"] > 0 and n["probability"] > 0.5 and push_is_consistent(n),
           lambda n: f"A gap of {n['gap']:.1f} means {as_percent(n['probability'])} for the chosen answer; "
                     f"{-n['slope']:.3f} of the full push is left."),
)


INSTRUMENT = Instrument(
    name="bradley-terry", number=6, title="A reward is a bet on which answer people prefer",
    functions=("postgrad.maths.preference.bradley_terry",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Two rewards become a probability, a loss and a push; at equality, one half and log 2.",
)
