"""Instrument 7, DPO and PPO: one objective, two machines.

One prompt and four answers, so that everything can be enumerated. A path of policies,
pi_t = ref exp(t r / beta) / Z, leads
from the reference (t = 0) through the optimum of E[r] - beta KL(pi || ref) (t = 1) and beyond. At t = 1 PPO's
    objective is at
its highest and DPO's loss, on labels drawn from Bradley-Terry, at its lowest;
there DPO's implied reward is r up to a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from postgrad.studio.instruments.base import Instrument, Slider

ANSWERS, REFERENCE = "ABCD", (0.4, 0.3, 0.2, 0.1)
PAIRS = tuple(combinations(range(len(ANSWERS)), 2))
FARTHEST, GRID = 2.0, 41


@dataclass(frozen=True)
class State:
    beta: float = 1.0
    moved: float = 1.0
    a: float = -1.0
    b: float = 0.0
    c: float = 0.5
    d: float = 1.5
    stage: int = 1


CONTROLS = (
    Slider("stage", "Stage of one update", 1, 5, 1),
    Slider("beta", "β, the length of the leash", 0.2, 3, 0.1),
    Slider("moved", "Training so far: 0 reference, 1 optimum", 0, FARTHEST, 0.05),
    Slider("a", "Reward of answer A", -2, 2, 0.1), Slider("b", "Reward of answer B", -2, 2, 0.1),
    Slider("c", "Reward of answer C", -2, 2, 0.1), Slider("d", "Reward of answer D", -2, 2, 0.1),
)


def regularised(logits, ref, reward, beta):  # logits [..., 4] -> [...]
    """E[r] - beta KL(pi || ref): what PPO climbs."""
    import torch

    from postgrad.maths.kl import exact_kl

    return (torch.softmax(logits, -1) * reward).sum(-1) - beta * exact_kl(logits, ref)


def pair_loss(logits, ref, reward, beta):  # logits [..., 4] -> [...]
    """The mean DPO loss of all pairs, each labelled both ways as often as Bradley-Terry says."""
    import torch

    from postgrad.maths.preference import bradley_terry, dpo

    ratio, none = torch.log_softmax(logits, -1) - ref, torch.zeros((), dtype=ref.dtype)
    first, second = (torch.tensor(side) for side in zip(*PAIRS, strict=True))
    chance = torch.exp(-bradley_terry(reward[first], reward[second], none))
    one, other = ratio[..., first], ratio[..., second]
    return (chance * dpo(one, other, none, beta=beta) + (1 - chance) * dpo(other, one, none, beta=beta)).mean(
        -1)


def compute(state: State) -> dict:
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
        "label": torch.exp(-bradley_terry(reward[3], reward[0], none)).item(),
        "says": torch.exp(-dpo((logp - ref)[3], (logp - ref)[0], none, beta=beta)).item(),
        "climb": list(zip(times.tolist(), values, strict=True)), "climb_span": (min(values), max(values)),
        "descent": list(zip(times.tolist(), losses, strict=True)), "descent_span": (min(losses), max(losses)),
        "machines": machines(),
    }


STAGES = {
    "ppo": (("Sample", "policy"), ("Score", "reward"), ("Leash", "reference"), ("Credit", "critic"),
            ("Step", "policy")),
    "dpo": (("Read a pair", ""), ("Log-probs", "policy reference"), ("Implied reward", "policy reference"),
            ("Compare", ""), ("Step", "policy")),
}


def machines() -> list[dict]:
    """What each machine needs, read off its row of the table."""
    from postgrad.methods import METHODS

    out = []
    for name, stages in STAGES.items():
        row = METHODS[name]
        rolls = row.source.startswith("rollouts")
        needed = {"policy": True, "reference": row.reference, "reward": rolls,
                  "critic": getattr(row, "critic", False)}
        out.append({"name": name, "rollouts": rolls, "models": needed, "count": sum(needed.values()),
                    "stages": [{"title": t, "uses": uses.split()} for t, uses in stages]})
    return out


def insight(numbers: dict) -> str:
    moved = numbers["moved"]
    if max(numbers["reward"]) - min(numbers["reward"]) < 1e-9:
        return ("Four equal rewards: nothing to prefer. The reference is the optimum, and every label "
                "is a coin toss.")
    if moved == 0:
        return (f"At the reference every implied reward is 0, so DPO's loss is log 2 = {numbers['loss']:.4f} "
                "for any β: neither machine has begun.")
    if moved == 1:
        return ("Both machines stop here: PPO's advantages are all 0, DPO predicts every label as often as "
                "it occurs, and β log(π/ref) is the reward less β log Z = "
                f"{numbers['beta'] * numbers['log_z']:.2f}.".replace("-",
                                                                     "\u2212"))
    if moved < 1:
        return ("Both slopes point the same way: PPO can still gain "
                f"{numbers['best_value'] - numbers['value']:.3f}, and DPO's loss is "
                f"{numbers['loss'] - numbers['best_loss']:.4f} above its least.")
    return (f"Too far: the KL of {numbers['kl']:.2f} costs PPO more than the reward it buys, and DPO is "
            f"surer than the labels are ({numbers['says']:.2f} against {numbers['label']:.2f} for D over A).")


INSTRUMENT = Instrument(
    name="dpo-ppo", number=7, title="DPO and PPO: one objective, two machines",
    functions=("postgrad.maths.preference.dpo", "postgrad.maths.preference.bradley_terry",
               "postgrad.maths.kl.exact_kl"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="PPO climbs a reward with a leash, DPO fits labels: on four answers both end at the same policy.",
)
