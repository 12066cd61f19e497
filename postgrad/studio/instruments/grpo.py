"""4. The GRPO explorer: a reward for each answer of a group, the advantages that follow, and one real step of
gradient descent on a softmax over the answers, by the row's own credit, surrogate and weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from postgrad.studio.instruments.base import Choice, Instrument, Slider, Toggle
from postgrad.studio.pages import num
from postgrad.studio.recordings import recorded

SIZES = (4, 8, 16, 32)


def verdicts(size: int) -> tuple[float, ...]:
    """What the task's verifier said of the first so many answers."""
    return tuple(c["score"] for c in recorded("group")["completions"][:size])


@dataclass(frozen=True)
class State:
    size: int = 8
    std: bool = True
    step: float = 8.0
    rewards: tuple[float, ...] = verdicts(8)


def settle(state: State) -> State:
    """As many rewards as answers: what is missing is the verifier's."""
    return replace(state, rewards=(*state.rewards, *verdicts(32)[len(state.rewards):])[: state.size])


def controls(state: State) -> tuple:
    return (
        Choice("size", "Answers in the group, G", SIZES),
        Toggle("std", "Divide by the standard deviation", ("GRPO", "no: Dr. GRPO")),
        Slider("step", "Step size", 0.5, 32, 0.5),
        *(Slider("rewards", f"Reward {i + 1}", 0, 1, 0.05, index=i) for i in range(state.size)),
    )


def step(adv, method, rate: float):
    """One step of gradient descent on the logits of a uniform softmax over the answers -> the
    new probabilities."""
    import torch
    logits = torch.zeros(len(adv), dtype=torch.float64, requires_grad=True)
    logp, mask = logits.log_softmax(0)[:, None], torch.ones(len(adv), 1, dtype=torch.bool)
    loss, _ = method.surrogate(logp, logp.detach(), adv, mask)
    (loss * method.weigh(mask, 1)).sum().backward()
    return (logits.detach() - rate * logits.grad).softmax(0), logits.grad


def compute(state: State) -> dict:
    import torch

    from postgrad.maths.credit import flat_groups, group_centre
    from postgrad.methods import METHODS
    method = METHODS["grpo" if state.std else "dr_grpo"]
    reward = torch.tensor(state.rewards, dtype=torch.float64)[:, None]
    mask = torch.ones_like(reward, dtype=torch.bool)
    centred = group_centre(reward, mask, state.size)
    adv = method.credit(reward, mask, state.size)
    after, gradient = step(adv, method, state.step)
    data = recorded("group")
    return {
        "size": state.size, "std_on": state.std, "question": data["question"], "gold": data["gold"],
        "model": data["model"], "texts": [c["text"] for c in data["completions"][: state.size]],
        "rewards": list(state.rewards), "mean": float(reward.mean()),
        "std": float((centred**2).mean().sqrt()), "centred": centred[:, 0].tolist(),
        "advantages": adv[:, 0].tolist(), "after": after.tolist(), "start": 1 / state.size,
        "total": float(after.sum()), "gradient": gradient.tolist(),
        "flat": bool(flat_groups(reward[:, 0], state.size)), "method": method.name, "rate": state.step,
        "right": verdicts(state.size),
    }


def insight(numbers: dict) -> str:
    adv, G = numbers["advantages"], numbers["size"]
    if numbers["flat"]:
        return (f"No signal: all {G} rewards are {num(numbers['rewards'][0], 2)}, so every advantage is 0, "
                "the gradient is 0, and the probabilities stay as they were. DAPO draws such a group again.")
    best = max(range(G), key=adv.__getitem__)
    gained = f"{num(100 * numbers['start'], 1)} % to {num(100 * numbers['after'][best], 1)} %"
    if not numbers["std_on"]:
        return (f"Without the std an advantage is the plain distance from the mean: answer {best + 1} gets "
                f"{num(adv[best], 2)} and goes from {gained}. A group whose rewards hardly differ now pulls "
                "hardly; with the std, as hard as any.")
    paid = sum(a > 0 for a in adv)
    return (f"An answer is judged against its own group: {paid} of {G} {'is' if paid == 1 else 'are'} above "
            f"the mean of {num(numbers['mean'], 2)}, and answer {best + 1} goes from {gained}. The "
            "advantages sum to 0, so raising one reward lowers all the others.")


INSTRUMENT = Instrument(
    name="grpo", number=4, title="Move one reward and every advantage moves",
    functions=("postgrad.maths.credit.group_zscore", "postgrad.maths.credit.group_centre",
               "postgrad.maths.surrogate.clipped_ratio"),
    state=State, controls=controls, compute=compute, insight=insight, settle=settle,
    about="Real answers to one problem, a reward for each, and one real gradient step.",
)
