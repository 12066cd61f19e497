"""The oversight lab in numbers, for chapter 6: a judge with one check, and the student of a weak teacher."""

from __future__ import annotations

import re
from statistics import fmean

from postgrad.studio.json_types import JsonDict


def values(tables: JsonDict) -> JsonDict:
    return {**judge_values(tables), **teacher_values(tables["Weak to strong, fresh problems"])}


def percent_parts(text: str) -> list[float]:
    """[0.04, -0.113, 0.172] of "4.0% (-11.3% to 17.2%)"."""
    return [float(x) / 100 for x in re.findall(r"-?[\d.]+(?=%)", text)]


def judge_values(tables: JsonDict) -> JsonDict:
    """How often the judge is right, by protocol, and the lies that he can bear."""
    by = {row["judge"]: row for row in tables["Which of two answers is right"]}
    pairs = tables["The pairs, and the critic"]

    def believing(name: str) -> float:
        return percent_parts(by[name]["believing, mean over seeds"])[0]

    def doubting(name: str) -> float:
        return percent_parts(by[name]["doubting, mean over seeds"])[0]

    def finds(who: str) -> float:
        return fmean(percent_parts(row["finds a mistake"])[0] for row in pairs if row["who points"] == who)

    shown = {"alone, any step": "alone", "critic: strong model": "an honest adviser",
             "lying critic: strong model": "a lying adviser", "two opponents: strong model": "two opponents",
             "critic: who knows all": "an adviser who knows all",
             "lying critic: who knows all": "a liar who knows all",
             "two opponents: who knows all": "two opponents who know all"}
    rows = [[words, *(f"{100 * f(name):.1f} %" for f in (believing, doubting))]
            for name, words in shown.items()]
    alone, honest, liar = map(believing, list(shown)[:3])
    return {
        "judge_seeds": len({row["seed"] for row in pairs}),
        "alone": alone, "honest": honest, "liar": liar, "opponents": believing("two opponents: strong model"),
        "finds": finds("strong model"), "process_finds": finds("process model"),
        "by_chance": fmean(row["mistakes of a wrong answer"] / row["steps"] for row in pairs),
        "lies": (honest - alone) / (honest - liar), "gain": honest - alone, "loss": honest - liar,
        "half": 0.5,
        "judged": {
            "caption": "How often the judge takes the right one of two answers; the strong model points",
            "columns": ["who helps", "believing judge", "doubting judge"], "rows": rows,
        },
    }


def teacher_values(runs: list[JsonDict]) -> JsonDict:
    """Weak teacher, its student, and what the truth would have taught: the means over seeds, and the first
    seed for the worked example."""
    first = runs[0]
    weak, student, strong = (percent_parts(first[name])[0] for name in ("weak", "student", "strong"))
    shares = [percent_parts(row["recovered"]) for row in runs]
    assert all(low <= 0 <= high for _, low, high in shares), "the text says that no seed can be told from 0"
    _, low, high = shares[0]
    return {
        "weak": weak, "student": student, "strong": strong, "recovered": (student - weak) / (strong - weak),
        **{f"{name}_mean": fmean(percent_parts(row[name])[0] for row in runs)
           for name in ("weak", "student", "strong")},
        "recovered_mean": fmean(share for share, _, _ in shares),
        "recovered_worst": min(share for share, _, _ in shares),
        "recovered_best": max(share for share, _, _ in shares),
        "recovered_low": low, "recovered_high": high, "mended": percent_parts(first["mended"])[0],
        "copied": percent_parts(first["copied"])[0], "learned": student - weak, "possible": strong - weak,
        "of_ceiling": student / strong, "weak_of_ceiling": weak / strong, "above": (student - weak) / weak,
    }
