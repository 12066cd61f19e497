"""DPO on worked pairs, where both answers of a pair fall, and estimators of the KL by enumeration."""

from __future__ import annotations

import math

from postgrad.studio.json_types import JsonDict


def pair_values() -> JsonDict:
    """DPO on the worked pairs."""
    import torch

    from postgrad.maths.preference import dpo, ipo

    zero = torch.zeros((), dtype=torch.float64)
    chosen, rejected = (
        torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (-2.0 + 2.3, -1.5 + 2.4)
    )
    loss = dpo(chosen, rejected, zero, beta=1.0)
    up, down = torch.autograd.grad(loss, (chosen, rejected))
    two = torch.tensor(math.log(2), dtype=torch.float64)
    other = dpo(two, -two, zero, beta=1.0)
    at_start = dpo(zero, zero, zero, beta=0.1)
    beta = 0.1
    target = torch.linspace(0, 20, 20001, dtype=torch.float64)
    nil = torch.zeros_like(target)
    return {
        "ratio_two": 2,
        "ratio_half": 0.5,
        "gap_two_half": 2 * math.log(2),
        "p_two_half": (-other).exp().item(),
        "p_swapped": 1 - (-other).exp().item(),
        "p_wrong_sum": 1 / (1 + math.exp(-(2 - 0.5))),
        "implicit_chosen": chosen.item(),
        "implicit_rejected": rejected.item(),
        "pair_gap": chosen.item() - rejected.item(),
        "pair_p": (-loss).exp().item(),
        "pair_loss": loss.item(),
        "slope_chosen": up.item(),
        "slope_rejected": down.item(),
        "loss_at_start": at_start.item(),
        "dpo_beta": beta,
        "ipo_target": target[ipo(target, nil, nil, beta=beta).argmin()].item(),
    }


def displacement_values() -> JsonDict:
    """One step of DPO where answers share features: both of the pair fall, a third answer rises."""
    import torch

    from postgrad.maths.preference import dpo

    features = torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64)  # chosen, rejected, another
    weight = torch.zeros((), dtype=torch.float64, requires_grad=True)
    before = torch.log_softmax(weight * features, -1)
    ratio = before - before.detach()
    loss = dpo(ratio[0], ratio[1], torch.zeros((), dtype=torch.float64), beta=1.0)
    (slope,) = torch.autograd.grad(loss, weight)
    after = torch.softmax((weight - 4.0 * slope).detach() * features, -1).tolist()
    start = before.detach().exp().tolist()
    moved = dpo(
        torch.tensor(math.log(after[0] / start[0])),
        torch.tensor(math.log(after[1] / start[1])),
        torch.zeros(()),
        beta=1.0,
    )
    return {
        "before_each": start[0],
        "chosen_after": after[0],
        "rejected_after": after[1],
        "third_after": after[2],
        "displaced_before": loss.item(),
        "displaced_after": moved.item(),
    }


def estimator_values() -> JsonDict:
    """k1, k2, k3 on a policy that can be listed: means, and gradients when they stand in a loss."""
    import torch

    from postgrad.maths.kl import exact_kl, k1, k2, k3

    logits = torch.tensor([0.9, 0.1, -0.4, 0.2], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.0, 0.5, 0.1, -0.6], dtype=torch.float64)
    logp, ref_logp = torch.log_softmax(logits, -1), torch.log_softmax(ref, -1)
    chance = logp.exp().detach()
    forward, backward = (
        torch.autograd.grad(x, logits, retain_graph=True)[0]
        for x in (exact_kl(logits, ref), exact_kl(ref, logits))
    )
    rows = []
    for name, f in (("k1", k1), ("k2", k2), ("k3", k3)):
        mean = (chance * f(logp, ref_logp)).sum()
        (slope,) = torch.autograd.grad(mean, logits, retain_graph=True)
        rows.append(
            [
                name,
                f"{mean.item():.4f}",
                f"{slope.norm().item():.4f}",
                f"{(slope - forward).norm().item():.4f}",
                f"{(slope - backward).norm().item():.4f}",
            ]
        )
    return {
        "exact_kl": exact_kl(logits, ref).item(),
        "estimator_table": {
            "caption": "Mean of each estimator, and how far its gradient in a loss is from two others",
            "columns": [
                "estimator",
                "mean",
                "length of its gradient",
                "from ∇ KL(π‖ref)",
                "from ∇ KL(ref‖π)",
            ],
            "rows": rows,
        },
    }
