"""6. Bradley-Terry: two rewards, the probability that one answer is preferred, and what the reward model pays for it."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.studio.instruments.base import Instrument, Slider
from postgrad.studio.pages import num

GAPS = [i / 10 for i in range(-100, 101)]


@dataclass(frozen=True)
class State:
    chosen: float = 1.0
    rejected: float = 0.0


CONTROLS = (
    Slider("chosen", "Reward of the chosen answer", -5, 5, 0.1),
    Slider("rejected", "Reward of the rejected answer", -5, 5, 0.1),
)


def compute(state: State) -> dict:
    """The loss, the probability exp(-loss), and the loss's slope in the chosen reward, by autograd; and both as curves."""
    import torch

    from postgrad.maths.preference import bradley_terry
    chosen = torch.tensor(state.chosen, dtype=torch.float64, requires_grad=True)
    rejected, zero = torch.tensor(state.rejected, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    loss = bradley_terry(chosen, rejected, zero)
    (slope,) = torch.autograd.grad(loss, chosen)
    curve = bradley_terry(torch.tensor(GAPS, dtype=torch.float64), zero, zero)
    return {
        "gap": state.chosen - state.rejected, "loss": loss.item(), "probability": (-loss).exp().item(), "slope": slope.item(),
        "losses": list(zip(GAPS, curve.tolist(), strict=True)),
        "probabilities": list(zip(GAPS, (-curve).exp().tolist(), strict=True)),
    }


def insight(numbers: dict) -> str:
    gap, loss, pull = numbers["gap"], num(numbers["loss"]), num(-numbers["slope"])
    chance = f"{100 * numbers['probability']:.1f} %"
    if abs(gap) < 1e-9:
        return f"Equal rewards are a coin toss: {chance}, and the loss is log 2 = {loss}. Only the gap counts."
    if gap < 0:
        return (f"The model prefers the answer that people rejected ({chance} for the chosen one): the loss is {loss}, and it "
                f"grows in proportion to the gap, so a wrong pair pulls with almost full force.")
    if gap > 3:
        return f"At a gap of {num(gap, 1)} the pair is settled ({chance}): the pull on the rewards is down to {pull}."
    return f"A gap of {num(gap, 1)} means {chance} for the chosen answer; widening it still pays, with a pull of {pull}."


INSTRUMENT = Instrument(
    name="bradley-terry", number=6, title="A reward is a bet on which answer people prefer",
    functions=("postgrad.maths.preference.bradley_terry",), state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Two rewards become a probability and a loss; at equality, one half and log 2.",
)
