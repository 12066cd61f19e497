"""The pages of measurements: one model against samples spent, and two models on the same problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from postgrad.runs.report.figures import seconds, show, ticks, write_page
from postgrad.runs.rows import JsonDict, JsonMapping

WAYS = {"pass@k": "Any of them right (pass@k)", "maj@k": "The most frequent answer (maj@k)"}
VARIETY = (  # key, label, what it is
    ("distinct-1", "Different words (distinct-1)", "Different words over all words, of a problem's replies."),
    ("distinct-2", "Different pairs of words (distinct-2)", "The same of two words in a row."),
    ("different_replies", "Different replies", "The share of a problem's replies that differ as texts."),
    ("different_answers", "Different answers", "How many answers a problem's replies give."),
    ("repetition", "Repetition", "The share of a reply that it has written before, by four tokens in a row."),
)
SHARES = {"distinct-1", "distinct-2", "different_replies", "repetition"}
MOST = 20  # problems shown at either end of the table of what was won and lost


def ways(row: JsonMapping) -> dict[str, str]:
    """Key -> label of the figures in a row of the curve."""
    keys = [key for key in row if key != "k" and not key.endswith("_interval")]
    return {key: WAYS.get(key) or f"The best by {key.partition('/')[2]} (best@k)" for key in keys}


def write_evaluation(path: str | Path, row: JsonMapping) -> Path:
    """The page of a result of `postgrad.evaluate`."""
    curve, names = row["curve"], ways(row["curve"][0])
    return write_page(
        path, "evaluation.html.jinja", title=f"{row['model']} on {row['task']}", lines=evaluation_text(row),
        figure=over_samples(curve, names), names=names, no_vote=row.get("no_vote", ""),
        curve=[{"k": at["k"], "cells": [cell(at, key) for key in names]} for at in curve],
        greedy=cell(row, "greedy") if "greedy" in row else None,
        variety=[{"label": label, "about": about, **cell(row, key, "pass@1" if key in SHARES else "")}
                 for key, label, about in VARIETY if key in row], facts=evaluation_facts(row))


def evaluation_text(row: JsonMapping) -> list[str]:
    """The figures in sentences."""
    first, last = row["curve"][0], row["curve"][-1]
    lines = [f"Right at the first try: {percent(first, 'pass@k')}."]
    if last["k"] > 1:
        detail = f"One of {last['k']} tries is right on {percent(last, 'pass@k')} of the problems"
        if "maj@k" in last:
            detail += f"; the most frequent answer of {last['k']}, on {percent(last, 'maj@k')}"
        for key, label in ways(last).items():
            if key not in WAYS:
                detail += f"; the {label[4:].removesuffix(' (best@k)')}, on {percent(last, key)}"
        lines.append(detail + ".")
    return lines


def percent(row: JsonMapping, key: str) -> str:
    low, high = row[f"{key}_interval"]
    return f"{show(row[key], 'pass@1')} ({show(low, 'pass@1')} to {show(high, 'pass@1')})"


def cell(row: JsonMapping, key: str, kind: str = "pass@1") -> JsonDict:
    low, high = row.get(f"{key}_interval") or (None, None)
    return {"text": show(row[key], kind, 3),
            "interval": f"{show(low, kind, 3)} to {show(high, kind, 3)}" if low is not None else ""}


def evaluation_facts(row: JsonMapping) -> list[tuple[str, str]]:
    named = [("Model", row["model"]), ("Task", f"{row['task']}, {row['split']} part"),
             ("Problems", row["problems"]), ("Samples of each", row["samples"]), ("Seed", row["seed"]),
             ("In form", show(row["format"], "format") if "format" in row else None),
             ("Mean length", f"{row['mean_length']:.1f} tokens" if "mean_length" in row else None),
             ("Not judged", row.get("errors") or row.get("unjudged") or None),
             ("Time", seconds(row["seconds"]) if "seconds" in row else None)]
    return [(name, str(value)) for name, value in named if value is not None]


def write_comparison(path: str | Path, rows: Sequence[JsonMapping]) -> Path:
    """The page of a result of `postgrad.compare`: every model against the first."""
    first, *others = rows
    return write_page(
        path, "comparison.html.jinja", title=f"{' and '.join(r['model'] for r in others)} against "
        f"{first['model']} on {first['task']}", first=first["model"], test=others[0]["test"],
        others=[{"model": row["model"], "says": row["says"], "figures": side_by_side(first, row),
                 "figure": by_problem([p["gain"] for p in row["by_problem"]]),
                 "problems": comparison_ends(row["by_problem"])} for row in others],
        facts=[("Models", ", ".join(row["model"] for row in rows)), *evaluation_facts(first)[1:]])


def side_by_side(first: JsonMapping, row: JsonMapping) -> list[JsonDict]:
    """The figures of both models, and the difference."""
    lines = [{"label": "Right at the first try (pass@1)",
              "cells": [cell(first, "pass@1"), cell(row, "pass@1"), points_text(row, "pass@1_gain")]}]
    if first["reward"] != first["pass@1"] or row["reward"] != row["pass@1"]:
        lines.append({"label": "Mean reward", "cells": [cell(first, "reward", ""), cell(row, "reward", ""),
                                                        cell(row, "reward_gain", "")]})
    return lines


def points_text(row: JsonMapping, key: str) -> JsonDict:
    """A difference of shares in percentage points."""
    def text(x: float) -> str:
        return f"{100 * x:+.1f}".replace("-", "\u2212")
    low, high = row[f"{key}_interval"]
    return {"text": text(row[key]), "interval": f"{text(low)} to {text(high)}"}


def comparison_ends(problems: Sequence[JsonMapping]) -> list[JsonDict]:
    """The problems with the largest gains, then those with the largest losses."""
    ranked = sorted(problems, key=lambda p: -p["gain"])
    won, lost = [p for p in ranked if p["gain"] > 0][:MOST], [p for p in ranked if p["gain"] < 0][-MOST:]
    return [{"question": p["question"][:300], "first": show(p["first"], "pass@1"),
             "second": show(p["second"], "pass@1"), "kind": "won" if p["gain"] > 0 else "lost"}
            for p in won + lost]


# geometry

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 330, 68, 14, 14, 54


def height_of(low: float, high: float) -> Callable[[float], float]:
    """Values to heights in the figure."""
    return lambda value: round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)


def over_samples(rows: Sequence[JsonMapping], names: Mapping[str, str]) -> JsonDict:
    """Lines with bands of intervals over the samples spent, `k` of each row, on a log axis. names: key ->
    label."""
    last = max(math.log2(rows[-1]["k"]), 1.0)
    tops = [row[f"{key}_interval"][1] for row in rows for key in names]
    levels = ticks(0.0, min(1.0, max([*tops, 0.02])), 4)
    y = height_of(0.0, levels[-1])

    def x(k: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * math.log2(k) / last, 1)

    drawn = []
    for at, (key, label) in enumerate(names.items()):
        points = [(x(row["k"]), y(row[key])) for row in rows]
        ends = [[(x(row["k"]), y(row[f"{key}_interval"][side])) for row in rows] for side in (0, 1)]
        drawn.append({
            "label": label, "hue": f"l{at % 5}", "path": "M" + "L".join(f"{a} {b}" for a, b in points),
            "band": " ".join(f"{a},{b}" for a, b in ends[0] + ends[1][::-1]),
            "dots": [(a, b, f"{label}, {row['k']} samples: {show(row[key], 'pass@1')}")
                     for (a, b), row in zip(points, rows, strict=True)]})
    return {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "base": y(0.0),
            "rows": [(y(t), show(t, "pass@1")) for t in levels],
            "columns": [(x(row["k"]), row["k"]) for row in rows], "lines": drawn,
            "aria": "; ".join(f"{label}: {show(rows[0][key], 'pass@1')} with {rows[0]['k']} sample, "
                              f"{show(rows[-1][key], 'pass@1')} with {rows[-1]['k']}"
                              for key, label in names.items())}


def by_problem(gains: Sequence[float]) -> JsonDict:
    """A bar for every problem, from the largest gain to the largest loss."""
    ranked = sorted(gains, reverse=True)
    y, wide = height_of(-1.0, 1.0), (WIDTH - LEFT - RIGHT) / len(ranked)
    bars = [{"x": round(LEFT + i * wide, 2), "width": round(max(wide - (0.6 if wide > 2 else 0), 0.3), 2),
             "y": y(max(gain, 0.0)), "height": round(abs(y(gain) - y(0.0)), 1),
             "kind": "won" if gain > 0 else "lost"} for i, gain in enumerate(ranked) if gain]
    won, lost = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    return {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "base": y(0.0),
            "rows": [(y(t), f"{100 * t:+.0f}".replace("-", "\u2212") if t else "0") for t in
                     (-1.0, -0.5, 0.0, 0.5, 1.0)], "bars": bars,
            "aria": f"{won} problems won, {lost} lost, {len(gains) - won - lost} even"}
