"""The numbers of chapter 7: distillation against GRPO, two divergences, filtered samples, a model as its own
teacher."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import fmean

from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

TASK, PROBLEMS_RATE = "countdown", (0.9, 0.1)  # a problem that is mostly right, and one that is seldom right
ERROR, LENGTH, RECOVERS = 0.02, 50, 0.5  # of a student that leaves the teacher's path
PUSH_P, PUSH_Q, PUSH_KL = 0.3, 0.001, 0.5  # one token: the teacher's probability, the student's; the KL
TWO_P, TWO_Q = (0.5, 0.5), (0.9, 0.1)


def values(repository: Path) -> JsonDict:
    rows = json.loads((repository / "docs" / "results" / "rows.json").read_text())
    return {**race_values(rows["tables"]["Distillation on policy"]), **demonstration_values(rows),
            **divergence_values(), **filtered_values(), **path_values()}


def race_values(runs: list[JsonDict]) -> JsonDict:
    """Rollouts until the teacher's level, and pass@1 by evaluation, mean over the seeds."""
    opd, grpo = ([fmean(step) for step in zip(*(run[name] for run in runs), strict=True)]
                 for name in ("opd by evaluation", "grpo by evaluation"))
    seen = (0, 128, 256, 384, 512, 1024, 2048, 5120)  # opd is evaluated every 128 rollouts, GRPO every 256

    def at(curve: list[float], every: int, rollouts: int) -> str:
        place, rest = divmod(rollouts, every)
        return format_value(curve[place], "%1") if not rest and place < len(curve) else "–"

    return {
        "race_seeds": len(runs),
        **{f"{row}_{name}": of(run[f"{row} rollouts"] for run in runs)
           for row in ("grpo", "opd") for name, of in (("least", min), ("most", max))},
        "first_grpo": runs[0]["grpo rollouts"], "first_opd": runs[0]["opd rollouts"],
        "first_factor": runs[0]["grpo rollouts"] / runs[0]["opd rollouts"],
        "first_share": runs[0]["opd rollouts"] / runs[0]["grpo rollouts"],
        "first_less": runs[0]["grpo rollouts"] - runs[0]["opd rollouts"],
        "race": {
            "caption": f"pass@1 on held-out word problems after so many rollouts, mean of {len(runs)} seeds",
            "columns": ["rollouts", *(f"{n:,}".replace(",", "\u202f") for n in seen)],
            "rows": [["distillation on policy", *(at(opd, 128, n) for n in seen)],
                     ["GRPO", *(at(grpo, 256, n) for n in seen)]],
        },
    }


def demonstration_values(rows: JsonDict) -> JsonDict:
    """What a demonstration in the prompt does on three tasks, and what sdft makes of it on two of them, means
    over the seeds."""
    words = {bar["name"]: bar["measured"] for bar in rows["bars"]}
    learned = rows["tables"]["Self-distillation"]

    def read(text: str) -> tuple[int, float, float]:
        found = re.search(r"each of (\d+) .* pass@1 of ([\d.]+)% in place of ([\d.]+)% ", text)
        assert found, text
        return int(found[1]), float(found[2]) / 100, float(found[3]) / 100

    problems, shown, alone = read(words["sdft where a demonstration does not help"])
    out: JsonDict = {"refused_problems": problems, "refused_shown": shown, "refused_alone": alone}
    for task in ("letters", "parity"):
        runs = [row for row in learned if row["task"] == task]
        _, shown, alone = map(fmean, zip(*(read(row["shown"]) for row in runs), strict=True))
        out |= {f"{task}_shown": shown, f"{task}_alone": alone, f"{task}_seeds": len(runs),
                f"{task}_after": fmean(row["after"] for row in runs)}
    return out


def divergence_values() -> JsonDict:
    """The students of the figure, the push on one token, and both divergences of two distributions."""
    import torch

    from postgrad.maths.kl import exact_kl
    from postgrad.studio.instruments.divergences import State, compute

    covers, chooses = (compute(State(direction=name)) for name in ("forward", "reverse"))
    p, q = (torch.tensor(x, dtype=torch.float64).log() for x in (TWO_P, TWO_Q))
    return {
        "covers": covers["covered"], "covers_outside": covers["outside"],
        "chooses": chooses["covered"], "chooses_outside": chooses["outside"],
        "push_p": PUSH_P, "push_q": PUSH_Q, "push_kl": PUSH_KL, "push_forward": PUSH_P - PUSH_Q,
        "push_reverse": PUSH_Q * (PUSH_KL - math.log(PUSH_Q / PUSH_P)),
        "two_q": TWO_Q[0], "two_r": TWO_Q[1], "two_p": TWO_P[0],
        "two_forward": exact_kl(p, q).item(), "two_reverse": exact_kl(q, p).item(),
        "two_gap": abs(exact_kl(p, q).item() - exact_kl(q, p).item()),
    }


def filtered_values() -> JsonDict:
    """What a verifier keeps of recorded samples, by how hard a problem is."""
    from postgrad.maths.passk import pass_at_k
    from postgrad.studio.recordings import recording

    tries = recording("tries")
    counts, size = tries["tasks"][TASK]["base"], tries["samples"]
    groups = {"never right": (0, 1), "right in under a tenth": (1, size / 10),
              "a tenth to a third": (size / 10, size / 3), "a third and more": (size / 3, math.inf)}
    kept, reached, rows = sum(counts), sum(count > 0 for count in counts), []
    for name, (least, below) in groups.items():
        inside = [count for count in counts if least <= count < below]
        rows.append([name, str(len(inside)), format_value(len(inside) / len(counts), "%"),
                     format_value(sum(inside) / kept, "%"),
                     format_value(sum(count > 0 for count in inside) / reached, "%")])
    easy = [c for c in counts if c >= size / 3]
    often, seldom = PROBLEMS_RATE
    return {
        "kept_size": size, "kept_share": kept / (size * len(counts)),
        "easy_problems": len(easy) / len(counts), "easy_kept": sum(easy) / kept,
        "few": 4, "few_reached": fmean(pass_at_k(size, c, 4) for c in counts),
        "many_reached": fmean(pass_at_k(size, c, size) for c in counts),
        "often": often, "seldom": seldom, "often_kept": often / (often + seldom),
        "often_even": (1 + often) / 2, "both_share": 1 / 2,
        "filtered": {
            "caption": f"{len(counts)} {TASK} problems, {size} samples of each by tiny-zero",
            "columns": ["problems", "number", "share of the problems", "share of the right samples",
                        "share with one kept a problem"],
            "rows": rows,
        },
    }


def path_values() -> JsonDict:
    """How likely a student is still on the teacher's path."""
    from postgrad.studio.book.worked import on_path

    lost, back = on_path(ERROR, 0.0, LENGTH), on_path(ERROR, RECOVERS, LENGTH)
    return {"slip": ERROR, "path_length": LENGTH, "recovers": RECOVERS, "lost_end": lost[-1],
            "back_end": back[-1]}
