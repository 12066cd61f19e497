"""The numbers of chapter 3: the clip, GAE, the optimum in closed form, memory by the estimator of
`postgrad memory`, and what our runs came to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from postgrad.studio.book.computed import pairwise
from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("ppo", "dpo", "grpo")
CLIP = 0.2
BETAS = (0.1, 0.3, 1.0, 3.0, 10.0)


def values(repository: Path) -> JsonDict:
    results = json.loads((repository / "docs" / "results" / "rlhf.json").read_text())["tables"]
    return {
        **clip_values(),
        **token_values(),
        **optimum_values(),
        **pairwise.pair_values(),
        **pairwise.displacement_values(),
        **pairwise.estimator_values(),
        **memory_values(),
        **measured_values(results),
        **best_of_n_values(),
    }


def clip_values() -> JsonDict:
    """What a ratio counts for, and how far one step can go in spite of the clip."""
    import torch

    from postgrad.maths.surrogate import clipped_ratio

    def counts(ratio: float, adv: float) -> float:
        one = torch.ones(1, 1, dtype=torch.bool)
        logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64)
        loss, _ = clipped_ratio(
            logp, torch.zeros_like(logp), torch.full_like(logp, adv), one, low=CLIP, high=CLIP
        )
        return -loss.item() / adv

    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    old, rate, logp = math.log(1 / 4), 4.0, torch.log_softmax(logits, -1)[:, :1]
    loss, _ = clipped_ratio(
        logp,
        torch.full_like(logp, old),
        torch.ones_like(logp),
        torch.ones_like(logp, dtype=torch.bool),
        low=CLIP,
        high=CLIP,
    )
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    moved = torch.log_softmax(logits - rate * slope, -1)[0, 0]
    return {
        "clip": CLIP,
        "ratio_high": 4,
        "counts_high": counts(4.0, 1.0),
        "ratio_low": 0.1,
        "counts_low": counts(0.1, -1.0),
        "clip_low": 1 - CLIP,
        "clip_high": 1 + CLIP,
        "step_ratio": math.exp(moved.item() - old),
    }


def number_texts(numbers: Tensor, digits: int) -> list[str]:
    return [format_value(x, str(digits)) for x in numbers.tolist()]


def token_values() -> JsonDict:
    """Rewards with a KL in them and advantages of an answer of three tokens."""
    import torch

    from postgrad.maths.credit import gae, kl_penalty, place_reward

    mask = torch.ones(1, 3, dtype=torch.bool)
    value = torch.tensor([[0.2, 0.5, 0.7]], dtype=torch.float64)
    score = place_reward(torch.ones(1, dtype=torch.float64), mask)
    logp, ref = (torch.tensor([row], dtype=torch.float64) for row in ((-0.5, -1.0, -0.2), (-0.9, -0.8, -0.2)))
    paid = kl_penalty(score, logp, ref, mask, beta=0.1)
    rows = [
        [f"λ = {lam:g}", *number_texts(gae(score, mask, 1, value=value, gamma=1.0, lam=lam)[0], 3)]
        for lam in (0.0, 0.5, 0.95, 1.0)
    ]
    kept = [
        ["log π", *number_texts(logp[0], 1)],
        ["log π_ref", *number_texts(ref[0], 1)],
        ["reward", *number_texts(paid[0], 2)],
    ]
    columns = ["", "first token", "second", "last"]
    return {
        "gae_table": {
            "caption": "Advantages where the critic says 0.2, 0.5, 0.7 and the score is 1",
            "columns": columns,
            "rows": rows,
        },
        "paid_table": {
            "caption": "Reward of each token, beta 0.1, score 1",
            "columns": columns,
            "rows": kept,
        },
    }


def optimum_values() -> JsonDict:
    """ref exp(r / beta) / Z on the four answers of the instrument, for several betas."""
    from postgrad.studio.instruments.dpo_ppo import State, compute

    rows = []
    for beta in BETAS:
        made = compute(State(beta=beta, moved=1.0))
        rows.append(
            [
                f"{beta:g}",
                *(format_value(p, "3") for p in made["optimum"]),
                format_value(made["mean_reward"], "2"),
                format_value(made["kl"], "3"),
            ]
        )
    here = compute(State(beta=1.0, moved=1.0))
    return {
        "answers": len(here["answers"]),
        "z": here["z"],
        "beta_log_z": here["beta"] * here["log_z"],
        "best_value": here["best_value"],
        "low_beta": BETAS[0],
        "high_beta": BETAS[-1],
        "beta_table": {
            "caption": "The optimum for rewards −1, 0, 0.5, 1.5 and a reference of 0.4, 0.3, 0.2, 0.1",
            "columns": ["beta", "A", "B", "C", "D", "mean reward", "KL"],
            "rows": rows,
        },
    }


def memory_values() -> JsonDict:
    from postgrad.methods import METHODS
    from postgrad.studio.instruments.algorithms import method_facts
    from postgrad.training.memory import GB, SIZES, Setup, each_trained, estimate, held, samples

    told = {name: method_facts(name) for name in NAMES}
    out: JsonDict = {f"{name}_models": len(held(METHODS[name], name == "ppo")) for name in NAMES}
    out |= {
        f"{name}_peak": estimate(SIZES["7B"], METHODS[name], Setup(reward_model=name == "ppo")).peak / GB
        for name in NAMES
    }
    rows = [[part, *(told[name][part] for name in NAMES)] for part in told["ppo"]]
    return out | {
        "size": "7B",
        "no_kl_models": len(held(METHODS["dapo"])),
        "simpo_models": len(held(METHODS["simpo"])),
        "dpo_reward_model": "reward" in held(METHODS["dpo"]),
        "dpo_online": samples(METHODS["dpo"]),
        "grpo_critic": getattr(METHODS["grpo"], "critic", False),
        "adam_bytes": each_trained(Setup())[2],
        "compared": {
            "caption": "As the rows of the table have it",
            "columns": ["", "PPO", "DPO", "GRPO"],
            "rows": rows,
        },
    }


def measured_values(results: JsonDict) -> JsonDict:
    """The optimum by training, and the alignment of the embedded model, as docs/results has them."""
    found = [r for r in results["The closed-form optimum"] if r["beta"] == 0.3]
    far = {r["method"]: r["tv_end"] for r in found}
    runs = results["Alignment, seed by seed"]

    def quality(name: str) -> list[float]:
        return [r["true quality"] for r in runs if r["policy"] == name]

    out = {
        f"{name}_{end}": f(quality(name))
        for name in ("start", *NAMES)
        for end, f in (("low", min), ("high", max))
    }
    names = {
        "ppo": "PPO",
        "rloo": "RLOO",
        "dpo": "DPO",
        "grpo as in the paper": "GRPO, KL in the loss",
        "grpo, KL in the reward": "GRPO, KL in the reward",
    }
    return out | {
        "seeds": len(quality("start")),
        "reached": {
            "caption": "Distance (total variation) from the closed form after training, beta 0.3",
            "columns": ["method", "distance at the end"],
            "rows": [[words, f"{far[name]:.4f}"] for name, words in names.items()],
        },
    }


def best_of_n_values() -> JsonDict:
    from postgrad.maths.select import best_of_n_kl

    return {"best_n": 16, "best_n_kl": best_of_n_kl(16), "best_small": 4, "best_small_kl": best_of_n_kl(4)}
