"""The numbers of chapter 6 on what training narrows, reaches and costs, and on choosing among answers."""

from __future__ import annotations

import math
import re
from statistics import fmean

from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

HIDDEN = (0.3, 0.2, 0.5)  # two right answers and a wrong one, before training
LEASH = 0.1
FEW, MANY = 8, 16


def values(rlhf: JsonDict, real: JsonDict) -> JsonDict:
    """rlhf, real: the tables of docs/results."""
    return {**flat_group_values(), **variety_values(), **entropy_values(), **sharpening_values(),
            **reach_values(real), **picking_values(rlhf),
            **process_values(rlhf), **tax_values(rlhf), **constitution_values(rlhf)}


def leading_share(text: str) -> float:
    """0.643 of "64.3% (62.4% to 66.1%)"."""
    return float(text.partition("%")[0]) / 100


def flat_group_values() -> JsonDict:
    """Groups of the recorded stages whose samples all have the same verdict, and what RL solves of what SFT
    did not."""
    from postgrad.studio.recordings import recording

    found = {s["name"]: s["measured"]["words"] for s in recording("pipeline")["stages"]}
    before, after = found["sft"], found["rl"]

    def flat(part: JsonDict) -> float:
        return float(sum(c in (0, part["samples"]) for c in part["right"]) / part["problems"])

    never = [i for i, c in enumerate(before["right"]) if c == 0]
    return {
        "tries": before["samples"], "problems": before["problems"], "sft_flat": flat(before),
        "rl_flat": flat(after), "never": len(never),
        "never_solved": sum(after["right"][i] > 0 for i in never),
    }


def variety_values() -> JsonDict:
    """How much the recorded samples of a prompt differ, trained for and not; the first reply is greedy."""
    from postgrad.maths.diversity import distinct_n, word_tokens
    from postgrad.studio.recordings import recording

    tasks = {"words": "word problems, trained for", "questions": "other questions"}
    rows = []
    for stage, title in {"sft": "SFT", "rl": "RL"}.items():
        for task, kind in tasks.items():
            groups = [[reply["text"] for reply in prompt["answers"][stage][1:]]
                      for prompt in recording("pipeline")["prompts"] if prompt["task"] == task]
            pairs = fmean(distinct_n([word_tokens(text) for text in group], 2) for group in groups)
            different = sum(len(set(group)) for group in groups)
            rows.append([title, kind, f"{different} of {sum(map(len, groups))}", format_value(pairs, "%")])
    return {"varied": {
        "caption": "Samples to the same prompt: how many differ, and the share of different word pairs",
        "columns": ["stage", "prompts", "different replies", "different word pairs"], "rows": rows,
    }}


def entropy_values() -> JsonDict:
    """The entropy of a token while a run is trained, beside what the run is paid."""
    from postgrad.studio.recordings import recording

    data = recording("threads")
    (_, first, begins), (steps, last, ends) = data["entropy"][0], data["entropy"][-1]
    return {
        "entropy_first": first, "entropy_last": last, "entropy_steps": steps, "entropy_paid_first": begins,
        "entropy_paid_last": ends,
        "entropy_table": {
            "caption": "A run of GRPO, as it logged itself: grpo:big-numbers, one seed",
            "columns": ["step", "entropy, nats a token", "reward"],
            "rows": [[str(step), format_value(nats, "2"), format_value(paid, "2")]
                     for step, nats, paid in data["entropy"]],
        },
    }


def sharpening_values() -> JsonDict:
    """Two right answers under the exact gradient without a leash, until almost every sample is right, and at
    the optimum with one."""
    from postgrad.studio.book.worked import sharpened

    rewards = [1.0, 1.0, 0.0]
    end = next(p for p in sharpened(list(HIDDEN), rewards, 0.0, 1000) if p[0] + p[1] >= 0.99)
    kept = [p * math.exp(r / LEASH) for p, r in zip(HIDDEN, rewards, strict=True)]
    kept = [p / sum(kept) for p in kept]
    return {
        **{f"start_{at}": p for at, p in zip(("first", "second", "wrong"), HIDDEN, strict=True)},
        "start_ratio": HIDDEN[0] / HIDDEN[1], "end_first": end[0], "end_second": end[1],
        "end_ratio": end[0] / end[1], "kept_first": kept[0], "kept_second": kept[1],
        "kept_ratio": kept[0] / kept[1],
    }


def reach_values(tables: JsonDict) -> JsonDict:
    """pass@1 and pass@8 of a real model before and after GRPO."""
    out: JsonDict = {"sums_tries": FEW}
    for name, begins, start in (("sums", "(a) Sums", "before"), ("gsm", "(b) GSM8K", "SFT")):
        rows = next(rows for title, rows in tables.items() if title.startswith(begins))
        for end, stage in (("before", start), ("after", "GRPO")):
            for many, key in (("", "pass@1 (95 % interval)"), ("_many", f"pass@{FEW}")):
                out[f"{name}_{end}{many}"] = fmean(leading_share(row[key]) for row in rows
                                                   if row["stage"] == stage)
    return out


def picking_values(tables: JsonDict) -> JsonDict:
    """Which of n answers a judge, a vote or the truth picks."""
    title = next(name for name in tables if name.startswith("Picking one of n"))
    by = {row["picked by"]: row for row in tables[title]}
    names = {"chance (pass@1)": "chance", "majority vote": "majority vote", "outcome model": "outcome model",
             "process model, min": "process model", "the truth (pass@n)": "one who knows"}
    sizes = [key for key in by["majority vote"] if key.startswith("n = ")]
    rows = [[words, *(f"{100 * leading_share(by[name][n]):.0f} %" for n in sizes)] for name,
            words in names.items()]
    short = {"vote": "majority vote", "outcome": "outcome model", "process": "process model, min",
             "truth": "the truth (pass@n)", "chance": "chance (pass@1)"}
    low, high = (float(x) / 100 for x in re.findall(r"[\d.]+", by["process model, min"][f"n = {MANY}"])[1:])
    return {
        **{f"{key}_{end}": leading_share(by[name][f"n = {n}"]) for key, name in short.items()
           for end, n in (("few", FEW), ("many", MANY))},
        "few": FEW, "many": MANY, "process_low": low, "process_high": high,
        "picked": {
            "caption": f"Right answers, by who picks: {title.partition(': ')[2]}",
            "columns": ["picked by", *sizes], "rows": rows,
        },
    }


def process_values(tables: JsonDict) -> JsonDict:
    """The three rewards of the same short training."""
    title = next(name for name in tables if name.startswith("As the reward of"))
    after = {row["reward"]: leading_share(row["after"]) for row in tables[title]}
    return {"by_verifier": after["the verifier"], "by_outcome": after["outcome model"],
            "by_process": after["process model, dense"],
            "by_start": leading_share(tables[title][0]["pass@1 before"])}


def tax_values(tables: JsonDict) -> JsonDict:
    """Right answers and true quality of the alignment runs, mean over seeds."""
    from postgrad.data.tasks.questions import GREETS, RIGHT, WRONG

    runs = tables["Alignment, seed by seed"]

    def mean(policy: str, what: str) -> float:
        return fmean(run[what] for run in runs if run["policy"] == policy)

    def right(policy: str) -> float:
        return (mean(policy, "correct") - WRONG) / (RIGHT - WRONG)

    policies = {"start": "before", "dpo": "DPO", "ppo": "PPO", "grpo": "GRPO"}
    rows = [[words, format_value(mean(name, "true quality"), "+2"), format_value(right(name), "%"),
             format_value(mean(name, "greets") / GREETS, "%"), format_value(mean(name, "length"), "0")]
            for name, words in policies.items()]
    return {
        **{f"right_{end}": right(policy) for end, policy in
           (("before", "start"), ("ppo", "ppo"), ("dpo", "dpo"))},
        "quality_before": mean("start", "true quality"), "quality_ppo": mean("ppo", "true quality"),
        "tax_table": {
            "caption": "Trained on comparisons of replies, task questions, mean over seeds",
            "columns": ["policy", "true quality", "right", "greets", "length"], "rows": rows,
        },
    }


def constitution_values(tables: JsonDict) -> JsonDict:
    """The constitution's trade, mean over seeds."""
    runs = tables["RLAIF"]

    def mean(stage: str, what: str) -> float:
        return fmean(run[what] for run in runs if run["stage"] == stage)

    stages = ("tiny-chat", "SFT on its revisions", "then DPO on the judge's pairs",
              "DPO on the judge's pairs alone")
    rows = [[stage, *(format_value(mean(stage, what), "%") for what in ("keeps all rules", "rude", "right")),
             format_value(mean(stage, "true quality"), "+2")] for stage in stages]
    return {
        **{f"rules_{end}": mean(stage, "keeps all rules")
           for end, stage in (("before", stages[0]), ("after", stages[1]))},
        **{f"known_{end}": mean(stage, "right")
           for end, stage in (("before", stages[0]), ("after", stages[1]))},
        "rules_table": {
            "caption": "A constitution of politeness on the embedded model",
            "columns": ["stage", "keeps all rules", "rude", "right", "true quality"], "rows": rows,
        },
    }
