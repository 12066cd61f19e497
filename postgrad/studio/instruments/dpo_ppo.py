"""Instrument 7, DPO and PPO: one objective, two machines.

One prompt and four answers, so that everything can be enumerated. A path of policies,
pi_t = ref exp(t r / beta) / Z, leads from the reference (t = 0) through the optimum of E[r] - beta KL(pi ||
ref) (t = 1) and beyond. At t = 1 PPO's objective is at its highest and DPO's loss, on labels drawn from
Bradley-Terry, at its lowest; there DPO's implied reward is r up to a constant. The last stage of an update is
one real step of the machine's own gradient, of a length of STEP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Remark, Slider, close, first_true
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import num

if TYPE_CHECKING:
    from torch import Tensor

ANSWERS, REFERENCE = "ABCD", (0.4, 0.3, 0.2, 0.1)
PAIRS = tuple(combinations(range(len(ANSWERS)), 2))
FARTHEST, GRID = 2.0, 41
STEP = 1.0


@dataclass(frozen=True)
class State:
    machine: str = "ppo"
    beta: float = 1.0
    moved: float = 0.4
    a: float = -1.0
    b: float = 0.0
    c: float = 0.5
    d: float = 1.5
    stage: int = 5


STAGES = {
    "ppo": (("Sample", "policy"), ("Score", "reward"), ("Leash", "reference"), ("Credit", "critic"),
            ("Step", "policy")),
    "dpo": (("Read a pair", ""), ("Log-probs", "policy reference"), ("Implied reward", "policy reference"),
            ("Compare", ""), ("Step", "policy")),
}


CONTROLS = (
    ChoiceControl("machine", "Machine", (("ppo", "PPO"), ("dpo", "DPO"))),
    Slider("stage", "Stage of one update", 1, 5, 1, stops=tuple(f"{i} of 5" for i in range(1, 6))),
    Slider("beta", "β: the higher, the shorter the leash", 0.2, 3, 0.1),
    Slider("moved", "Training so far: 0 reference, 1 optimum", 0, FARTHEST, 0.05),
    Slider("a", "Reward of answer A", -2, 2, 0.1), Slider("b", "Reward of answer B", -2, 2, 0.1),
    Slider("c", "Reward of answer C", -2, 2, 0.1), Slider("d", "Reward of answer D", -2, 2, 0.1),
)


def regularised(logits: Tensor, ref: Tensor, reward: Tensor,
                beta: float) -> Tensor:  # logits [..., 4] -> [...]
    """E[r] - beta KL(pi || ref): what PPO climbs."""
    import torch

    from postgrad.maths.kl import exact_kl

    return (torch.softmax(logits, -1) * reward).sum(-1) - beta * exact_kl(logits, ref)


def pair_loss(logits: Tensor, ref: Tensor, reward: Tensor, beta: float) -> Tensor:  # logits [..., 4] -> [...]
    """The mean DPO loss of all pairs, each labelled both ways as often as Bradley-Terry says."""
    import torch

    from postgrad.maths.preference import bradley_terry, dpo

    ratio, none = torch.log_softmax(logits, -1) - ref, torch.zeros((), dtype=ref.dtype)
    first, second = (torch.tensor(side) for side in zip(*PAIRS, strict=True))
    chance = torch.exp(-bradley_terry(reward[first], reward[second], none))
    one, other = ratio[..., first], ratio[..., second]
    return (chance * dpo(one, other, none, beta=beta) + (1 - chance) * dpo(other, one, none, beta=beta)).mean(
        -1)


def compute(state: State) -> JsonDict:
    import torch

    from postgrad.maths.kl import exact_kl, k1
    from postgrad.maths.preference import bradley_terry, dpo

    beta, ref = state.beta, torch.tensor(REFERENCE, dtype=torch.float64).log()
    reward = torch.tensor([state.a, state.b, state.c, state.d], dtype=torch.float64)
    times = torch.linspace(0, FARTHEST, GRID, dtype=torch.float64)
    path = ref + times[:, None] * reward / beta
    here = (ref + state.moved * reward / beta).requires_grad_()
    optimum = torch.log_softmax(ref + reward / beta, -1)
    log_z = torch.logsumexp(ref + reward / beta, -1)
    value, loss = regularised(here, ref, reward, beta), pair_loss(here, ref, reward, beta)
    climb, descend = (torch.autograd.grad(x, here)[0] for x in (value, loss))
    values = regularised(path, ref, reward, beta).tolist()
    losses = pair_loss(path, ref, reward, beta).tolist()
    logp = torch.log_softmax(here.detach(), -1)
    implied, none = beta * k1(logp, ref), torch.zeros((), dtype=ref.dtype)
    leashed = reward - implied                       # what PPO's reward is once the KL has been taken from it
    expected = (logp.exp() * leashed).sum()          # what a perfect critic says before the answer is known
    stepped = here.detach() + STEP * (climb if state.machine == "ppo" else -descend)
    worst, best = (int(pick(reward)) for pick in (torch.argmin, torch.argmax))
    return {
        "beta": beta, "moved": state.moved, "stage": state.stage, "answers": list(ANSWERS),
        "reward": reward.tolist(), "reference": list(REFERENCE), "policy": logp.exp().tolist(),
        "optimum": optimum.exp().tolist(), "implied": implied.tolist(), "leashed": leashed.tolist(),
        "advantage": (leashed - expected).tolist(), "expected": expected.item(), "z": log_z.exp().item(),
        "log_z": log_z.item(), "kl": exact_kl(here.detach(), ref).item(),
        "mean_reward": (logp.exp() * reward).sum().item(), "value": value.item(), "loss": loss.item(),
        "best_value": regularised(optimum, ref, reward, beta).item(),
        "best_loss": pair_loss(optimum, ref, reward, beta).item(), "ppo_slope": climb.norm().item(),
        "dpo_slope": descend.norm().item(),
        "machine": state.machine, "stepped": torch.softmax(stepped, -1).tolist(),
        "stepped_value": regularised(stepped, ref, reward, beta).item(),
        "stepped_loss": pair_loss(stepped, ref, reward, beta).item(),
        "best_kl": exact_kl(optimum, ref).item(), "best_reward": (optimum.exp() * reward).sum().item(),
        "worst": worst, "best": best,
        "pairs": [{"label": torch.exp(-bradley_terry(reward[i], reward[j], none)).item(),
                   "says": torch.exp(-dpo((logp - ref)[i], (logp - ref)[j], none, beta=beta)).item()}
                  for i, j in ((best, worst), *PAIRS)],
        "label": torch.exp(-bradley_terry(reward[3], reward[0], none)).item(),
        "says": torch.exp(-dpo((logp - ref)[3], (logp - ref)[0], none, beta=beta)).item(),
        "climb": list(zip(times.tolist(), values, strict=True)), "climb_span": (min(values), max(values)),
        "descent": list(zip(times.tolist(), losses, strict=True)), "descent_span": (min(losses), max(losses)),
        "machines": machines(),
    }


def machines() -> list[JsonDict]:
    """What each machine needs, read off its row of the table."""
    from postgrad.methods import METHODS

    out = []
    for name, stages in STAGES.items():
        row = METHODS[name]
        rolls = row.source.startswith("rollouts")
        needed = {"policy": True, "reference": row.needs_reference, "reward": rolls,
                  "critic": getattr(row, "critic", False)}
        out.append({"name": name, "rollouts": rolls, "models": needed, "count": sum(needed.values()),
                    "stages": [{"title": t, "uses": uses.split()} for t, uses in stages]})
    return out


def too_far(n: JsonDict) -> str:
    cost = n["beta"] * (n["kl"] - n["best_kl"])
    pair, letters = n["pairs"][0], n["answers"]
    return (f"Too far: since the optimum the KL has cost PPO {num(cost)} and the reward bought "
            f"{num(n['mean_reward'] - n['best_reward'])}. DPO is surer than the labels are: "
            f"{pair['says']:.4f} against {pair['label']:.4f} for {letters[n['best']]} over "
            f"{letters[n['worst']]}.")


def on_the_way(n: JsonDict) -> str:
    gain = f"PPO can still gain {num(n['best_value'] - n['value'])}"
    above = f"DPO’s loss is {num(n['loss'] - n['best_loss'], 4)} above its least"
    return f"Between the reference and the optimum: {gain}, and {above}."


def has_moved(n: JsonDict) -> bool:
    return not all(close(p, q) for p, q in zip(n["policy"], n["reference"], strict=True))


insight = first_true(
    Remark(lambda n: (max(n["reward"]) - min(n["reward"]) < 1e-9 and not has_moved(n)
                      and all(close(pair["label"], 0.5) for pair in n["pairs"])
                      and all(close(p, q) for p, q in zip(n["optimum"], n["reference"], strict=True))),
           lambda n: "Four equal rewards: nothing to prefer. The reference is the optimum, and every label "
                     "is a coin toss."),
    Remark(lambda n: (not has_moved(n) and close(n["loss"], math.log(2))
                      and all(close(x, 0) for x in n["implied"])),
           lambda n: "At the reference every implied reward is 0, so DPO’s loss is log 2 = "
                     f"{n['loss']:.4f}: neither machine has begun."),
    Remark(lambda n: (has_moved(n) and all(close(x, 0) for x in n["advantage"])
                      and all(close(pair["label"], pair["says"]) for pair in n["pairs"])
                      and all(close(x, n["beta"] * n["log_z"]) for x in n["leashed"])),
           lambda n: "Both machines stop here: PPO’s advantages are all 0, DPO predicts every label as often "
                     "as it occurs, and β log(π/ref) is the reward minus β log Z = "
                     f"{num(n['beta'] * n['log_z'], 2)}."),
    Remark(lambda n: (has_moved(n) and n["moved"] < 1 and n["best_value"] > n["value"]
                      and n["loss"] > n["best_loss"]), on_the_way),
    Remark(lambda n: (n["moved"] > 1 and n["best_value"] > n["value"]
                      and n["beta"] * (n["kl"] - n["best_kl"]) > n["mean_reward"] - n["best_reward"]
                      and n["pairs"][0]["says"] > n["pairs"][0]["label"] > 0.5), too_far),
)


INSTRUMENT = Instrument(
    name="dpo-ppo", number=7, title="DPO and PPO: one objective, two machines",
    functions=("postgrad.maths.preference.dpo", "postgrad.maths.preference.bradley_terry",
               "postgrad.maths.kl.exact_kl"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="PPO climbs a reward with a leash, DPO fits labels: on four answers both end at the same policy.",
)
