"""The drawn figures of the chapters: curves and bars of what the library computes or the results have.

A chart is {"caption", "x", "y", "series": [{"name", "role", "end", "points"}]} or, in place of series,
"bars": [{"label", "value", "low", "high", "role"}]. role: its colour. span: the ends of the y axis, where not
the data's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from postgrad.studio.json_types import JsonDict, Values

ROLES = ("policy", "reward", "critic", "up", "down", "soft")


def values(name: str, repository: Path) -> JsonDict:
    def results(topic: str, part: str = "tables") -> Any:
        return json.loads((repository / "docs" / "results" / f"{topic}.json").read_text())[part]

    return CHARTS[name](results) if name in CHARTS else {}


Results = Callable[..., Any]


def curves(caption: str, x: str, y: str, series: list[Values], span: Values | None = None) -> JsonDict:
    """series: (name, role, points)."""
    return {
        "caption": caption,
        "x": x,
        "y": y,
        "span": span and list(span),
        "series": [
            {
                "name": name,
                "role": role,
                "end": round(points[-1][1], 4),
                "points": [[round(a, 4), round(b, 4)] for a, b in points],
            }
            for name, role, points in series
        ],
    }


def bars(caption: str, y: str, rows: list[Values], span: Values | None = None) -> JsonDict:
    """rows: (label, value, low, high, role); low and high None where there is no interval."""
    return {
        "caption": caption,
        "x": "",
        "y": y,
        "span": span and list(span),
        "bars": [
            {
                "label": label,
                "value": round(value, 4),
                "low": low if low is None else round(low, 4),
                "high": high if high is None else round(high, 4),
                "role": role,
            }
            for label, value, low, high, role in rows
        ],
    }


def shares(text: str) -> list[float]:
    """ "43.5% (40.9% to 46.2%)" -> 0.435, 0.409, 0.462"""
    return [float(x) / 100 for x in re.findall(r"-?[\d.]+(?=%)", text)]


def ends(text: str) -> list[float]:
    """ "+0.25 to +0.55" -> 0.25, 0.55"""
    return [float(x) for x in re.findall(r"[+-]?\d[\d.]*", text)]


def stages() -> dict[str, JsonDict]:
    from postgrad.studio.recordings import recording

    return {s["name"]: s["measured"]["words"] for s in recording("pipeline")["stages"]}


def pass_curve(found: JsonDict) -> list[list[float]]:
    from postgrad.maths.passk import pass_at_k

    size = found["samples"]
    return [[k, fmean(pass_at_k(size, c, k) for c in found["right"])] for k in range(1, size + 1)]


def why(results: Results) -> JsonDict:
    from postgrad.maths.intervals import mean_interval
    from postgrad.studio.recordings import recording

    rows = []
    for key, title in (("base", "pretrained"), ("sft", "SFT")):
        found = stages()[key]
        for part, words, role in (("formed", "form", "soft"), ("right", "right", "policy")):
            each = [n / found["samples"] for n in found[part]]
            rows.append((f"{title}: {words}", *mean_interval(each, (0.0, 1.0)), role))
    counted = recording("threads")["refused"]
    asked = (
        ("harmful", "dangerous", "up"),
        ("alike", "harmless, in like words", "down"),
        ("harmless", "harmless", "soft"),
    )
    return {
        "refused": bars(
            "After a training on refusals: which requests are refused",
            "share of the requests",
            [
                (
                    words,
                    *mean_interval(
                        [1.0] * counted[f"{kind}_refused"]
                        + [0.0] * (counted[kind] - counted[f"{kind}_refused"]),
                        (0.0, 1.0),
                    ),
                    role,
                )
                for kind, words, role in asked
            ],
            (0, 1),
        ),
        "imitated": bars(
            "Replies in the wanted form, and right ones, before and after imitation",
            "share of the samples",
            rows,
            (0, 1),
        ),
        "judged_tries": curves(
            "Word problems solved by a judge who takes a right one of k tries",
            "tries k",
            "share of the problems",
            [("pretrained", "policy", pass_curve(stages()["base"]))],
            (0, 1),
        ),
    }


def rewards(results: Results) -> JsonDict:
    from postgrad.studio.instruments.reward_hacking import available_labs

    kept = results("rlhf")
    audits, models = kept["The audit"], kept["Its reward models"]
    free = [next(p for p in lab["policies"] if p["name"] == "ppo-kl-0") for lab in available_labs().values()]
    levels = [0.5 + 0.01 * i for i in range(51)]
    return {
        "ceiling": curves(
            "How often a label is right, by how often two labellers agree",
            "agreement",
            "share of right labels",
            [("", "up", [[a, (1 + math.sqrt(max(0.0, 2 * a - 1))) / 2] for a in levels])],
            (0.5, 1),
        ),
        "held_out": bars(
            "Held-out pairs in the right order, by seed, with 95 % intervals",
            "share of pairs",
            [(f"seed {m['seed']}", m["accuracy"], *ends(m["interval"]), "reward") for m in models],
            (0.5, 1),
        ),
        "probed": bars(
            "Length: the change of the score when neutral sentences are added, by seed",
            "change, in standard deviations",
            [
                (f"seed {a['seed']}, {words}", a[f"{kind} effect"], *ends(a[f"{kind} interval"]), role)
                for kind, words, role in (("planted", "planted", "down"), ("control", "control", "soft"))
                for a in audits[:3]
            ],
        ),
        "under_pressure": curves(
            "Without a KL: the reward model’s score (ochre) and the true quality, by seed",
            "optimizer step",
            "score, and true quality",
            [
                *(
                    (("score", "reward") if i == 0 else ("", "reward"))
                    + ([[p["step"], p["proxy"]] for p in run["points"]],)
                    for i, run in enumerate(free)
                ),
                *(
                    (("true", "up") if i == 0 else ("", "up"))
                    + ([[p["step"], p["true"]] for p in run["points"]],)
                    for i, run in enumerate(free)
                ),
            ],
        ),
    }


def algorithms(results: Results) -> JsonDict:
    from postgrad.studio.instruments.dpo_ppo import State, compute

    betas = [round(0.1 * 1.26**i, 3) for i in range(21)]
    made = [compute(State(beta=beta, moved=1.0)) for beta in betas]
    runs = results("rlhf")["Alignment, seed by seed"]
    return {
        "leash": curves(
            "The optimum on four answers: the longer the leash, the more of both",
            "log₁₀ β",
            "mean reward, and nats from the reference",
            [
                ("reward", "reward", [[math.log10(m["beta"]), m["mean_reward"]] for m in made]),
                ("KL", "soft", [[math.log10(m["beta"]), m["kl"]] for m in made]),
            ],
        ),
        "aligned": bars(
            "True quality after training on comparisons, by seed, with 95 % intervals",
            "true quality",
            [
                (f"{words}, {r['seed']}", r["true quality"], *ends(r["interval"]), role)
                for policy, words, role in (
                    ("start", "start", "soft"),
                    ("dpo", "DPO", "policy"),
                    ("ppo", "PPO", "critic"),
                )
                for r in runs
                if r["policy"] == policy
            ],
        ),
    }


def right_advantages(size: int) -> dict[str, list[list[float]]]:
    """The advantage of a right answer of a group, by how many of the group are right."""
    import torch

    from postgrad.maths.credit import group_centre, group_zscore

    mask = torch.ones(size, 1, dtype=torch.bool)
    rewards = [
        torch.tensor([[float(i < k)] for i in range(size)], dtype=torch.float64) for k in range(1, size)
    ]
    return {
        name: [[k, f(reward, mask, size)[0, 0].item()] for k, reward in enumerate(rewards, start=1)]
        for name, f in (("grpo", group_zscore), ("nano", group_centre))
    }


def reasoning(results: Results) -> JsonDict:
    from postgrad.studio.instruments.pipeline import stage_refusals

    found = right_advantages(8)
    kept = json.loads((Path(__file__).parent.parent / "bias.json").read_text())
    return {
        "refused_stages": bars(
            "What the stages of a short R1 refuse: the mean over seeds, from the lowest seed to the highest",
            "share of the replies",
            [
                (f"{words}: {title}", *(row[kind][x] for x in ("mean", "low", "high")), role)
                for kind, title, role in (("harmful", "dangerous", "up"), ("benign", "look-alikes", "down"))
                for name, words in (("reasoning", "stage 2"), ("sft", "stage 3"), ("last", "stage 4"))
                for row in stage_refusals()["stages"]
                if row["name"] == name
            ],
            (0, 1),
        ),
        "biases": bars(
            "How far the mean gradient of a row is from the exact one, by enumeration",
            "bias, as a share of the gradient",
            [
                (name, kept[name]["bias"], None, None, "policy" if name == "grpo" else "soft")
                for name in ("reinforce", "rloo", "nano", "dr_grpo", "grpo")
            ],
        ),
        "rare_right": curves(
            "What a right answer is given, by how many of eight are right",
            "right answers in the group",
            "advantage of a right answer",
            [("by the spread", "policy", found["grpo"]), ("centred", "soft", found["nano"])],
            (0, 3),
        )
    }


def workshop(results: Results) -> JsonDict:
    p, found = workshop_start(), right_advantages(8)
    return {
        "centred": curves(
            "The push that a right answer gets, by how many of eight are right",
            "right answers in the group",
            "advantage of a right answer",
            [("nano", "policy", found["nano"]), ("GRPO", "soft", found["grpo"])],
            (0, 3),
        ),
        "flat_groups": curves(
            "Groups that teach nothing, by their size, at the start of the run",
            "answers in a group G",
            "share of groups that are all equal",
            [("", "down", [[g, p**g + (1 - p) ** g] for g in range(2, 33)])],
            (0, 1),
        ),
    }


def workshop_start() -> float:
    from postgrad.studio.recordings import recording

    return float(recording("workshop")["runs"]["nano"]["evals"][0][1])


def frontiers(results: Results) -> JsonDict:
    from postgrad.studio.book.computed.frontiers import HOLE, SOLVED
    from postgrad.studio.book.computed.narrowed import HIDDEN
    from postgrad.studio.book.worked import sharpened
    from postgrad.studio.recordings import recording

    kept, lab = results("rlhf"), results("oversight")
    betas = [round(0.05 * 1.2**i, 3) for i in range(19)]
    odds = [HOLE / (1 - HOLE) * math.exp((1 - SOLVED) / beta) for beta in betas]
    path = sharpened(list(HIDDEN), [1.0, 1.0, 0.0], 0.0, 60)
    logged = recording("threads")["entropy"]
    picked = next(rows for title, rows in kept.items() if title.startswith("Picking one of n"))
    sizes = [key for key in picked[0] if key.startswith("n = ")]
    chosen = {
        "the truth (pass@n)": ("who knows", "soft"),
        "process model, min": ("process", "critic"),
        "outcome model": ("outcome", "reward"),
        "majority vote": ("vote", "policy"),
    }
    trained = next(rows for title, rows in kept.items() if title.startswith("As the reward of"))
    runs, rules = kept["Alignment, seed by seed"], kept["RLAIF"]
    judged = {
        row["judge"]: shares(row["believing, mean over seeds"])
        for row in lab["Which of two answers is right"]
    }
    helped = {
        "alone, any step": "alone",
        "critic: strong model": "honest adviser",
        "lying critic: strong model": "lying adviser",
        "two opponents: strong model": "two opponents",
    }

    def mean(policy: str, what: str) -> float:
        return fmean(run[what] for run in runs if run["policy"] == policy)

    def stage(name: str, what: str) -> float:
        return fmean(run[what] for run in rules if run["stage"] == name)

    return {
        "hole_leash": curves(
            "A trick that one sample in a hundred finds: its share at the optimum",
            "log₁₀ β",
            "share of the trick",
            [("", "down", [[math.log10(b), o / (1 + o)] for b, o in zip(betas, odds, strict=True)])],
            (0, 1),
        ),
        "entropy_falls": curves(
            "A run of GRPO: entropy and reward, as it logged them",
            "optimizer step",
            "nats a token, and reward",
            [
                ("entropy", "soft", [[s, e] for s, e, _ in logged]),
                ("reward", "reward", [[s, r] for s, _, r in logged]),
            ],
        ),
        "richer": curves(
            "Two answers that are paid the same, and a wrong one, under the exact gradient",
            "steps of the gradient",
            "probability",
            [
                (name, role, [[i, p[k]] for i, p in enumerate(path)])
                for k, (name, role) in enumerate(
                    (("likelier", "policy"), ("as right", "up"), ("wrong", "down"))
                )
            ],
            (0, 1),
        ),
        "reach": curves(
            "Word problems solved within k tries",
            "tries k",
            "share of the problems",
            [("SFT", "soft", pass_curve(stages()["sft"])), ("RL", "policy", pass_curve(stages()["rl"]))],
            (0, 1),
        ),
        "pickers": curves(
            "Right answers by who picks one of n",
            "log₂ n",
            "share of the problems",
            [
                (*chosen[row["picked by"]], [[i, shares(row[n])[0]] for i, n in enumerate(sizes)])
                for row in picked
                if row["picked by"] in chosen
            ],
            (0.4, 1),
        ),
        "paid_by": bars(
            "PPO on word problems, by what pays the reply",
            "pass@1",
            [
                ("before", *shares(trained[0]["pass@1 before"]), "soft"),
                *(
                    (
                        row["reward"],
                        *shares(row["after"]),
                        "critic" if "process" in row["reward"] else "policy",
                    )
                    for row in trained
                ),
            ],
            (0, 1),
        ),
        "taxed": bars(
            "After training on comparisons, mean over seeds: what was easy to see, and what was right",
            "points of quality",
            [
                (f"{words}: {title}", mean(policy, what), None, None, role)
                for what, title, role in (("greets", "greeting", "soft"), ("correct", "right", "down"))
                for policy, words in (("start", "before"), ("ppo", "PPO"))
            ],
        ),
        "constituted": bars(
            "A constitution of politeness, mean over seeds",
            "share of replies",
            [
                (f"{words}: {title}", stage(name, what), None, None, role)
                for what, title, role in (("keeps all rules", "rules kept", "up"), ("right", "right", "down"))
                for name, words in (("tiny-chat", "before"), ("SFT on its revisions", "after"))
            ],
            (0, 1),
        ),
        "overseen": bars(
            "How often a judge who believes takes the right answer; a coin is at one half",
            "share of the pairs",
            [
                (words, *judged[name], "down" if "lying" in name else "policy")
                for name, words in helped.items()
            ],
            (0, 1),
        ),
        "recovered_gap": bars(
            "Gap between teacher and ceiling that the student recovers, by seed",
            "share of the gap",
            [
                (f"seed {row['seed']}", *shares(row["recovered"]), "soft")
                for row in lab["Weak to strong, fresh problems"]
            ],
        ),
    }


def teacher(results: Results) -> JsonDict:
    from postgrad.studio.book.computed.teacher import demonstration_values
    from postgrad.studio.recordings import recording

    tries = recording("tries")
    counts = sorted(tries["tasks"]["countdown"]["base"], reverse=True)
    total, so_far, points = sum(counts), 0, [[0.0, 0.0]]
    for i, count in enumerate(counts, start=1):
        so_far += count
        points.append([i / len(counts), so_far / total])
    shown = demonstration_values({name: results("rows", name) for name in ("bars", "tables")})
    return {
        "shown_first": bars(
            "What a demonstration in the prompt is worth, by task",
            "pass@1",
            [
                (f"{words}: {how}", shown[f"{key}_{part}"], None, None, role)
                for key, words in (("refused", "where it does not help"), ("letters", "one letter for all"),
                                   ("parity", "a letter by the number"))
                for part, how, role in (("alone", "alone", "soft"), ("shown", "shown", "policy"))
            ],
            (0, 1),
        ),
        "easy_first": curves(
            "What a filter keeps: problems from the easiest to the hardest",
            "share of the problems",
            "share of the kept replies",
            [("kept", "policy", points), ("even", "soft", [[0, 0], [1, 1]])],
            (0, 1),
        ),
    }


CHARTS: dict[str, Callable[[Results], JsonDict]] = {
    "why": why,
    "rewards": rewards,
    "algorithms": algorithms,
    "reasoning": reasoning,
    "workshop": workshop,
    "frontiers": frontiers,
    "teacher": teacher,
}
