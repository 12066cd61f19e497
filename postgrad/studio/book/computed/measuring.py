"""The numbers of chapter 10: intervals of recorded evaluations, chance, seeds, leaks, judges."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path
from statistics import fmean

from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS

LEVEL, COMPARISONS = 0.95, 20
CLEAN, SEEN, LEAKS = 0.3, 0.95, (0.0, 0.05, 0.1, 0.25, 0.5)  # a model, and a benchmark of which some leaked
FIRST = 0.7  # how often a judge takes the first of two equals
WON, LOST = 30, 18
SPLITS = range(24, 38, 2)  # wins of as many decided problems
SHOWN = 5  # seeds of the audit that the table has


def values(repository: Path) -> JsonDict:
    def results(name: str) -> JsonDict:
        kept: JsonDict = json.loads((repository / "docs" / "results" / f"{name}.json").read_text())["tables"]
        return kept

    return {**evaluation_values(), **interval_values(), **chance_values(), **seed_values(results("rows")),
            **form_values(results("truth"), results("real-models")), **leak_values(),
            **judge_habits(results("rlhf"))}


def evaluation_values() -> JsonDict:
    """What forty evaluations of the instrument's two models report."""
    from postgrad.studio.instruments import telling_apart as instrument

    start = instrument.compute(instrument.State())
    longer = instrument.compute(instrument.State(problems=instrument.MOST))
    more = instrument.compute(instrument.State(samples=8))
    apart = instrument.compute(instrument.State(samples=8, paired=False))
    return {
        "evaluations": start["evaluations"], "asked": start["problems"], "truth": 100 * start["truth"],
        "reported_least": 100 * start["least"], "reported_most": 100 * start["most"], "told": start["told"],
        "needed": start["needed"], "longest": longer["problems"], "told_longest": longer["told"],
        "more_samples": more["samples"], "needed_more": more["needed"], "needed_unpaired": apart["needed"],
    }


def interval_values() -> JsonDict:
    """The SFT model's pass@1 with its samples counted by problem, and as if they were independent."""
    from postgrad.maths.intervals import mean_interval
    from postgrad.studio.recordings import recording

    stage = next(s for s in recording("pipeline")["stages"] if s["name"] == "sft")["measured"]["words"]
    size, within = stage["samples"], (0.0, 1.0)
    single = [float(i < right) for right in stage["right"] for i in range(size)]
    mean, low, high = mean_interval([right / size for right in stage["right"]], within)
    _, naive_low, naive_high = mean_interval(single, within)
    _, _, none = mean_interval([0.0] * 20, within)
    return {
        "level": LEVEL, "sft_problems": stage["problems"], "sft_samples": size, "sft_replies": len(single),
        "sft_one": mean, "sft_low": low, "sft_high": high, "sft_width": 100 * (high - low),
        "naive_low": naive_low, "naive_high": naive_high, "naive_width": 100 * (naive_high - naive_low),
        "sft_greedy": fmean(stage["greedy"]), "none_of": 20, "none_high": none, "none_wrong": 1 / 20,
    }


def chance_values() -> JsonDict:
    """Comparisons of equal models, wins and losses, and what they prove."""
    from postgrad.maths.paired import sign_flip

    return {
        "comparisons": COMPARISONS, "family": 1 - LEVEL**COMPARISONS, "false_one": 1 - LEVEL,
        "won": WON, "lost": LOST, "decided": WON + LOST, "sign_p": sign_flip([1] * WON + [-1] * LOST),
        "sign_table": {
            "caption": f"{WON + LOST} decided problems: how often a fair coin is at least as uneven",
            "columns": ["won : lost", *(f"{won} : {WON + LOST - won}" for won in SPLITS)],
            "rows": [["p-value", *(format_value(sign_flip([1] * won + [-1] * (WON + LOST - won)), "3")
                                   for won in SPLITS)]],
        },
        "four_p": sign_flip([1] * 4), "four": 4, "won_share": WON / (WON + LOST),
    }


def seed_values(tables: JsonDict) -> JsonDict:
    """The bake-off of the rows: who is first depends on the seed."""
    rows = tables["Bake-off: pass@1 after equal samples"]
    seeds = [name for name in rows[0] if name.startswith("seed ")]
    by = {name: {row["row"]: float(row[name].partition(" ")[0]) for row in rows} for name in seeds}
    leaders = [max(by[name], key=lambda row: by[name][row]) for name in seeds]
    shown = ["cispo", "reinforce", "dr_grpo", "dapo", "grpo", "ppo"]
    ranks = {name: sorted(by[name], key=lambda row: -by[name][row]) for name in seeds}
    spread = {row: max(by[n][row] for n in seeds) - min(by[n][row] for n in seeds) for row in by[seeds[0]]}
    widest = max(spread, key=lambda row: spread[row])
    return {
        "rows_tried": len(rows), "seeds_tried": len(seeds), "leaders": len(set(leaders)),
        "first_leader": leaders[0], "second_leader": leaders[1], "widest": widest,
        "widest_points": 100 * spread[widest],
        "reinforce_ranks": ", ".join(str(ranks[name].index("reinforce") + 1) for name in seeds),
        "bake_off": {
            "caption": f"pass@1 on word problems after equal samples, and the rank among {len(rows)} rows",
            "columns": ["row", *seeds, "mean"],
            "rows": [[row, *(f"{format_value(by[n][row], '%1')} (rank {ranks[n].index(row) + 1})"
                             for n in seeds),
                      format_value(fmean(by[n][row] for n in seeds), "%1")] for row in shown],
        },
    }


def form_values(truth: JsonDict, real: JsonDict) -> JsonDict:
    """One set of replies, read strictly and leniently."""
    nothing = truth["From nothing"]
    school = next(rows for name, rows in real.items() if name.startswith("(b) GSM8K"))
    before = next(row for row in school if row["stage"] == "before")
    return {
        "strict_before": nothing[0]["strict before"], "lenient_before": nothing[0]["lenient before"],
        "school_strict": before["pass@1 (95 % interval)"].partition(" ")[0].replace("%", "\u00a0%"),
        "school_lenient": before["lenient"].replace("%", "\u00a0%"), "school_problems": before["problems"],
    }


def leak_values() -> JsonDict:
    """What a benchmark reports of which a share was trained on."""
    def score(share: float) -> float:
        return (1 - share) * CLEAN + share * SEEN

    return {
        "clean": CLEAN, "seen": SEEN, "leak": LEAKS[2], "leaked_score": score(LEAKS[2]),
        "leaked_gain": 100 * (score(LEAKS[2]) - CLEAN),
        "leaks": {
            "caption": f"A model that is right in {100 * CLEAN:.0f} % of new problems and "
                       f"{100 * SEEN:.0f} % of those it has seen",
            "columns": ["share of the benchmark that leaked", *(f"{100 * s:.0f} %" for s in LEAKS)],
            "rows": [["reported", *(format_value(score(s), "%1") for s in LEAKS)]],
        },
    }


def judge_habits(tables: JsonDict) -> JsonDict:
    """Judges with a habit: who stands first, and who writes more."""
    from postgrad.maths.agreement import cohen_kappa

    audit = tables["The audit"]
    first, second = "a" * 90 + "b" * 10, "a" * 85 + "b" * 5 + "a" * 5 + "b" * 5
    same = fsum(x == y for x, y in zip(first, second, strict=True)) / len(first)
    return {
        "first_share": FIRST, "second_share": 1 - FIRST, "both_share": (FIRST + 1 - FIRST) / 2,
        "kappa": cohen_kappa(first, second), "kappa_agree": same, "kappa_habit": 0.9,
        "audit_shown": SHOWN,
        "audit_table": {
            "caption": "Neutral words added to answers: the change of the score, in standard deviations",
            "columns": ["seed", "trained on labels that like length", "interval", "control", "interval"],
            "rows": [[str(row["seed"]),
                      format_value(row["planted effect"], "+2"), span_text(row["planted interval"]),
                      format_value(row["control effect"], "+2"), span_text(row["control interval"])]
                     for row in audit[:SHOWN]],
        },
    }


def span_text(words: str) -> str:
    """An interval with true minus signs."""
    return words.replace("-", MINUS)
