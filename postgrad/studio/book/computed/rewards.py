"""The numbers of chapter 2: Bradley-Terry by the reward model's loss, labels and agreement, what our reward
models, audits and ensembles came to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist

from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

TRUE = (2.0, 1.0, 0.0, -1.0)
COMPARISONS = 600
AGREEMENT = 0.726  # of InstructGPT's labellers (Ouyang et al. 2022)
MISJUDGED, SCALES = 1.0, 2.0  # the spread of one judgement, and of people's scales, in units of the gap


def values(repository: Path) -> JsonDict:
    results = json.loads((repository / "docs" / "results" / "rlhf.json").read_text())["tables"]
    return {**pair_loss_values(), **recovery_values(), **asking_values(), **labelling_values(),
            **agreement_values(), **reward_model_values(results), **turning_values()}


def pair_loss_values() -> JsonDict:
    """Loss, probability and slope of a pair at some gaps."""
    import torch

    from postgrad.maths.preference import bradley_terry, reward

    zero = torch.zeros((), dtype=torch.float64)

    def at(gap: float) -> tuple[float, float, float]:
        chosen = torch.tensor(gap, dtype=torch.float64, requires_grad=True)
        loss = bradley_terry(chosen, zero, zero)
        (slope,) = torch.autograd.grad(loss, chosen)
        return loss.item(), (-loss).exp().item(), slope.item()

    grid = torch.linspace(0, 6, 6001, dtype=torch.float64)
    smoothed = reward(grid, torch.zeros_like(grid), torch.zeros_like(grid), smoothing=0.1)
    return {
        "half": at(0)[1],
        "log_two": at(0)[0],
        "zero": 0,
        "one": 1,
        "two": 2,
        "five": 5,
        "items": len(TRUE),
        "gap_one": at(1)[1],
        "gap_two": at(2)[1],
        "gap_five": at(5)[1],
        "loss_wrong_two": at(-2)[0],
        "loss_wrong_five": at(-5)[0],
        "loss_right_two": at(2)[0],
        "slope_one": at(1)[2],
        "slope_minus_two": at(-2)[2],
        "curvature": at(0)[1] * (1 - at(0)[1]),
        "smoothing": 0.1,
        "smoothing_gap": grid[smoothed.argmin()].item(),
        "example_reward": 7,
        "ranking_of": 9,
        "ranking_pairs": math.comb(9, 2),
    }


def recovery_values() -> JsonDict:
    from postgrad.studio.book.worked import recovered_rewards

    found, middle = recovered_rewards(list(TRUE), COMPARISONS), sum(TRUE) / len(TRUE)
    places = ("first", "second", "third", "fourth")
    rows = [
        [f"item {i}", format_value(t, "0"), format_value(t - middle, "+2"), format_value(f, "+2")]
        for i, (t, f) in enumerate(zip(TRUE, found, strict=True), start=1)
    ]
    return {
        "comparisons": COMPARISONS,
        **{f"true_{p}": t for p, t in zip(places, TRUE, strict=True)},
        **{f"recovered_{p}": f for p, f in zip(places, found, strict=True)},
        "recovery": {
            "caption": f"Rewards fitted to {COMPARISONS} comparisons",
            "columns": ["item", "true reward", "less the mean", "fitted"],
            "rows": rows,
        },
    }


def asking_values() -> JsonDict:
    """How often a gap of 1 is seen the right way round: by two judgements of one person, or by two people's
    ratings, whose scales differ as well."""
    compared = NormalDist(1.0, math.sqrt(2) * MISJUDGED)
    rated = NormalDist(1.0, math.sqrt(2 * (MISJUDGED**2 + SCALES**2)))
    return {
        "scale_spread": int(SCALES),
        "comparing_right": 1 - compared.cdf(0),
        "rating_right": 1 - rated.cdf(0),
    }


def labelling_values() -> JsonDict:
    """The labeller's reward model on unseen pairs, after labels by the true quality."""
    import torch

    from postgrad.studio.instruments.preference_labeller import answer_vectors
    from postgrad.studio.label.reward_head import fit_head, ranking_accuracy
    from postgrad.studio.recordings import recording

    data, (x, y) = recording("pairs"), answer_vectors()

    def better(items: list[JsonDict]) -> torch.Tensor:
        return torch.tensor([a["quality"][0] - a["quality"][1] for a in items], dtype=torch.float64)

    label, true = (better(data["to_label"]).sign() + 1) / 2, better(data["unseen"])

    def right(count: int) -> float:
        return ranking_accuracy((y[:, 0] - y[:, 1]) @ fit_head(x[:count, 0], x[:count, 1], label[:count]),
                                true)

    most = len(data["to_label"])
    return {"unseen": len(true), "few": 10, "few_right": right(10), "many": most, "many_right": right(most)}


def agreement_values() -> JsonDict:
    from postgrad.maths.agreement import cohen_kappa

    even = cohen_kappa("a" * 50 + "b" * 50, "a" * 40 + "b" * 10 + "b" * 40 + "a" * 10)
    skewed = cohen_kappa("a" * 80 + "b" * 20, "a" * 70 + "b" * 10 + "b" * 10 + "a" * 10)
    return {
        "kappa_agree": 0.8,
        "kappa_even": even,
        "kappa_habit": 0.8,
        "kappa_skewed": skewed,
        "label_right": (1 + math.sqrt(2 * AGREEMENT - 1)) / 2,
    }


def reward_model_values(results: JsonDict) -> JsonDict:
    """Our reward models and audits, as docs/results has them."""
    models, audits = results["Its reward models"], results["The audit"]
    right, ece = [m["accuracy"] for m in models], [m["ece"] for m in models]
    planted, control = [a["planted effect"] for a in audits], [a["control effect"] for a in audits]
    return {
        "seeds": len(models),
        "accuracy_low": min(right),
        "accuracy_high": max(right),
        "ece_low": min(ece),
        "ece_high": max(ece),
        "one_in": 1 / (1 - sum(right) / len(right)),
        "audit_seeds": len(audits),
        "audit_found": sum(a["planted verdict"] == "biased up" for a in audits),
        "audit_low": min(planted),
        "audit_high": max(planted),
        "control_low": min(control),
        "control_high": max(control),
        "control_found": sum(a["control verdict"] != "none found" for a in audits),
    }


def turning_values() -> JsonDict:
    """Where the true quality turned over in the logged runs against a reward model, without a KL."""
    from postgrad.runs.overoptimisation import turning_point
    from postgrad.studio.instruments.reward_hacking import available_labs

    runs = [{p["name"]: turning_point(p["points"]) for p in lab["policies"]}
            for lab in available_labs().values()]
    free, held = sorted((r["ppo-kl-0"] for r in runs), key=lambda r: r["fall"]), [
        r["ppo-ensemble"]["fall"] for r in runs]
    best, worst = free[0], free[-1]
    return {
        "lab_seeds": len(free), "free_low": best["fall"], "free_high": worst["fall"],
        "best_peak": best["peak"], "best_end": best["end"],
        "worst_peak": worst["peak"], "worst_end": worst["end"],
        "ensemble_low": min(held), "ensemble_high": max(held),
    }
