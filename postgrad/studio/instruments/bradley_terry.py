"""Instrument 6, Bradley-Terry: two rewards become a probability, a loss and a gradient,
by the reward model's own function."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.studio.instruments.base import Instrument, Slider

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


def compute(state: State) -> dict:
    """Probability, loss and gradients at the two rewards, and both curves over every gap that can be drawn.

    P = exp(-loss), for the loss is -log P. The gradients are autograd's.
    """
    import torch

    from postgrad.maths.preference import bradley_terry

    rewards = torch.tensor([state.chosen + state.shift, state.rejected + state.shift], dtype=torch.float64,
                           requires_grad=True)
    loss = bradley_terry(rewards[0], rewards[1], torch.zeros((), dtype=torch.float64))
    slope, other = torch.autograd.grad(loss, rewards)[0].tolist()
    gaps = torch.linspace(-WIDEST, WIDEST, GRID, dtype=torch.float64)
    losses = bradley_terry(gaps, torch.zeros_like(gaps), torch.zeros_like(gaps))
    chosen, rejected = rewards.tolist()
    return {
        "chosen": chosen, "rejected": rejected, "gap": chosen - rejected, "loss": loss.item(),
        "probability": (-loss).exp().item(), "slope": slope, "slope_rejected": other,
        "curve": list(zip(gaps.tolist(), (-losses).exp().tolist(), strict=True)),
        "losses": list(zip(gaps.tolist(), losses.tolist(), strict=True)),
    }


def insight(numbers: dict) -> str:
    gap, chance, pull = numbers["gap"], f"{100 * numbers['probability']:.1f} %", -numbers["slope"]
    if abs(gap) < 1e-9:
        return (f"Equal rewards are a coin toss: {chance}, and the loss is log 2 = {numbers['loss']:.4f}, "
                "however high both are.")
    if gap < 0:
        return (f"The model has this pair the wrong way round, {chance} for the answer that people chose: "
                f"it is pushed with {pull:.2f} of the full force.")
    if pull < 0.05:
        return (f"The pair is settled ({chance}): {pull:.3f} of the push is left, and training turns to the "
                "pairs that are not.")
    return (f"A gap of {gap:.1f} means {chance} for the chosen answer. Add the same to both rewards, and "
            "no curve moves.")


INSTRUMENT = Instrument(
    name="bradley-terry", number=6, title="A reward is a bet on which answer people prefer",
    functions=("postgrad.maths.preference.bradley_terry",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Two rewards become a probability, a loss and a push; at equality, one half and log 2.",
)
