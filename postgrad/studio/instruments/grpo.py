"""4. The GRPO explorer: a reward for each answer of a group, the advantages that follow, and one real step of
gradient descent on a softmax over the answers, by the row's own credit, surrogate and weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import (
    ChoiceControl,
    Instrument,
    Remark,
    Slider,
    Toggle,
    close,
    first_true,
)
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import num
from postgrad.studio.recordings import recording

if TYPE_CHECKING:
    from torch import Tensor

    from postgrad.methods import Policy

SIZES = (4, 8, 16, 32)
STAGES = ("Sample", "Score", "Advantage", "Update")


def recorded_verdicts(size: int) -> tuple[float, ...]:
    """What the task's verifier said of the first so many answers."""
    return tuple(c["score"] for c in recording("group")["completions"][:size])


@dataclass(frozen=True)
class State:
    size: int = 8
    std: bool = True
    step: float = 8.0
    stage: int = 4
    rewards: tuple[float, ...] = recorded_verdicts(8)


def settle(state: State) -> State:
    """As many rewards as answers: what is missing is the verifier's."""
    return replace(state, rewards=(*state.rewards, *recorded_verdicts(32)[len(state.rewards):])[: state.size])


def controls(state: State) -> Values:
    return (
        ChoiceControl("size", "Answers in the group, G", SIZES),
        Toggle("std", "Divide by the standard deviation", ("GRPO", "no: Dr. GRPO")),
        Slider("step", "Step size", 0.5, 32, 0.5),
        Slider("stage", "One step of training", 1, 4, 1, stops=STAGES),
        *(Slider("rewards", f"Reward {i + 1}", 0, 1, 0.05, index=i, placed=True) for i in range(state.size)),
    )


def gradient_step(adv: Tensor, method: Policy, rate: float) -> tuple[Tensor, Tensor]:
    """One step of gradient descent on the logits of a uniform softmax over the answers -> the
    new probabilities."""
    import torch
    logits = torch.zeros(len(adv), dtype=torch.float64, requires_grad=True)
    logp, mask = logits.log_softmax(0)[:, None], torch.ones(len(adv), 1, dtype=torch.bool)
    loss, _ = method.surrogate(logp, logp.detach(), adv, mask)
    (gradient,) = torch.autograd.grad((loss * method.weigh(mask, 1)).sum(), logits)
    return (logits.detach() - rate * gradient).softmax(0), gradient


def compute(state: State) -> JsonDict:
    import torch

    from postgrad.maths.credit import flat_groups, group_centre
    from postgrad.methods import METHODS, Policy
    method = METHODS["grpo" if state.std else "dr_grpo"]
    assert isinstance(method, Policy)
    reward = torch.tensor(state.rewards, dtype=torch.float64)[:, None]
    mask = torch.ones_like(reward, dtype=torch.bool)
    centred = group_centre(reward, mask, state.size)
    adv = method.credit(reward, mask, state.size)
    after, gradient = gradient_step(adv, method, state.step)
    data = recording("group")
    return {
        "size": state.size, "std_on": state.std, "question": data["question"], "gold": data["gold"],
        "model": data["model"], "texts": [c["text"] for c in data["completions"][: state.size]],
        "rewards": list(state.rewards), "mean": float(reward.mean()),
        "std": float((centred**2).mean().sqrt()), "centred": centred[:, 0].tolist(),
        "advantages": adv[:, 0].tolist(), "after": after.tolist(), "start": 1 / state.size,
        "total": float(after.sum()), "gradient": gradient.tolist(),
        "flat": bool(flat_groups(reward[:, 0], state.size)), "method": method.name, "rate": state.step,
        "stage": state.stage, "right": recorded_verdicts(state.size),
    }


def best_answer(n: JsonDict) -> int:
    return max(range(n["size"]), key=n["advantages"].__getitem__)


def gained_text(n: JsonDict) -> str:
    """What the step did to the answer with the largest advantage."""
    best = best_answer(n)
    return f"answer {best + 1} goes from {num(100 * n['start'], 1)} % to {num(100 * n['after'][best], 1)} %"


def advantages_hold(n: JsonDict) -> bool:
    """Whether the advantages are the distances from the mean (in standard deviations), and sum to 0."""
    unit = n["std"] if n["std_on"] else 1.0
    return (close(sum(n["advantages"]), 0)
            and all(close(a * unit, r - n["mean"])
                    for a, r in zip(n["advantages"], n["rewards"], strict=True)))


def above_mean_text(n: JsonDict) -> str:
    paid = sum(r > n["mean"] + 1e-9 for r in n["rewards"])
    return f"{paid} of {n['size']} {'is' if paid == 1 else 'are'} above the mean of {num(n['mean'], 2)}"


def step_holds(n: JsonDict) -> bool:
    """Whether the step made the best answer likelier, and left a distribution."""
    return close(sum(n["after"]), 1) and n["after"][best_answer(n)] > n["start"]


insight = first_true(
    Remark(lambda n: n["stage"] == 1 and close(n["start"] * n["size"], 1),
           lambda n: f"{n['size']} answers to one problem, drawn by the same model. Nobody has judged them "
                     f"yet; let each be as likely as the others, {num(100 * n['start'], 1)} %."),
    Remark(lambda n: n["stage"] == 2 and close(n["mean"], sum(n["rewards"]) / n["size"]),
           lambda n: f"A reward for each, from {num(min(n['rewards']), 2)} to {num(max(n['rewards']), 2)}; "
                     f"the mean is {num(n['mean'], 2)}. Only the distance from it will count."),
    Remark(lambda n: (n["flat"] and len(set(n["rewards"])) == 1 and not any(n["advantages"])
                      and not any(n["gradient"]) and all(close(p, n["start"]) for p in n["after"])),
           lambda n: f"No signal: all {n['size']} rewards are {num(n['rewards'][0], 2)}, so every advantage "
                     "is 0, the gradient is 0, and the probabilities stay as they were. DAPO draws such a "
                     "group again."),
    Remark(lambda n: not n["flat"] and n["stage"] == 3 and advantages_hold(n),
           lambda n: f"An answer is judged against its own group: {above_mean_text(n)}. The advantages sum "
                     "to 0: what one gains, the others lose together."),
    Remark(lambda n: not n["flat"] and not n["std_on"] and advantages_hold(n) and step_holds(n),
           lambda n: f"Without the std an advantage is the plain distance from the mean: answer "
                     f"{best_answer(n) + 1} has {num(n['advantages'][best_answer(n)], 2)}, with it "
                     f"{num(n['advantages'][best_answer(n)] / n['std'], 2)}; {gained_text(n)}."),
    Remark(lambda n: not n["flat"] and n["std_on"] and advantages_hold(n) and step_holds(n),
           lambda n: f"An answer is judged against its own group: {above_mean_text(n)}, and "
                     f"{gained_text(n)}. The advantages sum to 0: what one gains, the others lose together."),
)


INSTRUMENT = Instrument(
    name="grpo", number=4, title="Each answer is judged against its own group",
    functions=("postgrad.maths.credit.group_zscore", "postgrad.maths.credit.group_centre",
               "postgrad.maths.surrogate.clipped_ratio"),
    state=State, controls=controls, compute=compute, insight=insight, settle=settle,
    about="Real answers to one problem, a reward for each, and one real gradient step.",
)
