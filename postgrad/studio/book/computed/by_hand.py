"""What the questions ask for that are answered by a number, and the values of known mistakes: computed by the
library's own functions."""

from __future__ import annotations

from math import exp, log

from postgrad.studio.json_types import JsonDict


def values(chapter: str) -> JsonDict:
    """The numbers of a chapter's questions; none where it has no such question."""
    made = {"why": why_numbers, "rewards": reward_numbers, "algorithms": algorithm_numbers,
            "reasoning": reasoning_numbers, "workshop": workshop_numbers, "frontiers": frontier_numbers}
    return made[chapter]() if chapter in made else {}


def why_numbers() -> JsonDict:
    """Of 8 samples 2 are right: a right one against the mean of the others."""
    import torch

    from postgrad.maths.credit import group_centre, leave_one_out
    rewards = torch.tensor([1.0, 1.0, *[0.0] * 6], dtype=torch.float64)[:, None]
    mask = torch.ones_like(rewards, dtype=torch.bool)
    return {"ask_samples": 8, "ask_right": 2, "ask_loo": leave_one_out(rewards, mask, 8)[0, 0].item(),
            "ask_centred": group_centre(rewards, mask, 8)[0, 0].item(),
            "ask_wrong_loo": leave_one_out(rewards, mask, 8)[-1, 0].item(),
            "ask_chance": 0.1, "ask_twenty": 20, "ask_some": 1 - (1 - 0.1) ** 20, "ask_none": (1 - 0.1) ** 20,
            "ask_added": 20 * 0.1}


def reward_numbers() -> JsonDict:
    """A gap between rewards as a chance; an agreement corrected for chance."""
    import torch

    from postgrad.maths.agreement import cohen_kappa
    from postgrad.maths.preference import bradley_terry
    loss = bradley_terry(torch.tensor(2.5, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64),
                         torch.tensor(0.0)).item()
    first, second = [1] * 50 + [0] * 50, [1] * 45 + [0] * 5 + [0] * 45 + [1] * 5
    return {"ask_high": 2.5, "ask_low": 1.0, "ask_preferred": exp(-loss), "ask_other": 1 - exp(-loss),
            "ask_exp": exp(1.5), "ask_share": 2.5 / 3.5, "ask_pairs": 100, "ask_agreed": 90,
            "ask_kappa": cohen_kappa(first, second), "ask_agreement": 0.9, "ask_above": 0.9 - 0.5}


def algorithm_numbers() -> JsonDict:
    """A clipped token, a pair under DPO, an estimate of the KL."""
    import torch

    from postgrad.maths.kl import k1, k2, k3
    from postgrad.maths.preference import dpo
    from postgrad.maths.surrogate import clipped_ratio

    def number(value: float) -> torch.Tensor:
        return torch.tensor([[value]], dtype=torch.float64)
    bad = clipped_ratio(number(log(1.5)), number(0.0), number(-2.0), torch.ones(1, 1, dtype=torch.bool),
                        low=0.2, high=0.2)[0].item()
    logp, ref = number(-1.0), number(-1.5)
    chosen, rejected = number(3.0), number(-1.0)
    loss, turned = (dpo(a, b, number(0.0), beta=0.5).item()
                    for a, b in ((chosen, rejected), (rejected, chosen)))
    return {"ask_ratio": 1.5, "ask_adv": -2, "ask_clip": 0.2, "ask_loss": bad, "ask_loss_clipped": 2 * 1.2,
            "ask_loss_sign": -bad, "ask_logp": -1, "ask_ref": -1.5, "ask_k3": k3(logp, ref).item(),
            "ask_k3_turned": k3(ref, logp).item(), "ask_k2": k2(logp, ref).item(),
            "ask_k1": k1(logp, ref).item(),
            "ask_up": 3, "ask_down": -1, "ask_beta": 0.5, "ask_dpo": loss, "ask_dpo_turned": turned,
            "ask_dpo_p": exp(-loss), "ask_dpo_no_beta": dpo(chosen, rejected, number(0.0), beta=1.0).item()}


def reasoning_numbers() -> JsonDict:
    """One right answer of five, in units of the group's deviation; pass@k of ten samples."""
    import torch

    from postgrad.maths.credit import group_centre, group_zscore
    from postgrad.maths.passk import pass_at_k
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    column, mask = rewards[:, None], torch.ones(5, 1, dtype=torch.bool)
    return {"ask_five": 5, "ask_z": group_zscore(column, mask, 5)[0, 0].item(),
            "ask_z_centred": group_centre(column, mask, 5)[0, 0].item(),
            "ask_z_sample": ((rewards[0] - rewards.mean()) / rewards.std()).item(),
            "ask_z_variance": ((rewards[0] - rewards.mean()) / rewards.var(correction=0)).item(),
            "ask_n": 10, "ask_c": 3, "ask_k": 2, "ask_pass": pass_at_k(10, 3, 2),
            "ask_pass_replaced": 1 - (1 - 0.3) ** 2, "ask_pass_fail": 1 - pass_at_k(10, 3, 2),
            "ask_pass_added": 0.6, "ask_pass_all": 3 * 2 / (10 * 9)}


def workshop_numbers() -> JsonDict:
    """How often a group of four is flat; what a token weighs."""
    import torch

    from postgrad.maths.weights import sequence_mean, token_mean
    mask = torch.tensor([[True] * 5 + [False] * 10, [True] * 15], dtype=torch.bool)
    return {"ask_half": 0.4, "ask_group": 4, "ask_flat": 0.4 ** 4 + 0.6 ** 4, "ask_flat_right": 0.4 ** 4,
            "ask_flat_wrong": 0.6 ** 4, "ask_flat_mixed": 1 - 0.4 ** 4 - 0.6 ** 4,
            "ask_short": 5, "ask_long": 15, "ask_token": round(token_mean(mask, 15)[0, 0].item(), 6),
            "ask_sequence": round(sequence_mean(mask, 15)[0, 0].item(), 6), "ask_token_padded": 1 / 30,
            "ask_token_row": 1 / 5}


def frontier_numbers() -> JsonDict:
    """How far the best of sixteen goes; what a hole in the reward draws."""
    from postgrad.maths.select import best_of_n_kl
    found = best_of_n_kl(16)
    tilted = 0.02 * exp(1 / 0.5)
    return {"ask_best": 16, "ask_best_kl": found, "ask_best_log": log(16), "ask_best_sign": log(16) + 15 / 16,
            "ask_best_two": log(16) / log(2), "ask_hole": 0.02, "ask_hole_beta": 0.5,
            "ask_hole_after": tilted / (tilted + 0.98), "ask_hole_raw": tilted,
            "ask_hole_turned": 0.02 * exp(0.5) / (0.02 * exp(0.5) + 0.98)}
