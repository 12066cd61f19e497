"""The page of a training: what changed in words, its curves, answers before and after."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from postgrad.runs.explain import METRICS
from postgrad.runs.report.figures import RATES, seconds, show, thin, tick, ticks, write_page
from postgrad.runs.rows import JsonDict, JsonMapping, number

SMALL = ("clip_fraction", "grad_norm", "flat_groups", "lr", "ratio_max", "truncated")
LEADS = ("reward", "pass@1")  # large figures
LONGEST = 1500  # characters of a completion that are shown
STAGES = {
    "base": ("Base", "Base is the model as it was given."),
    "sft": ("After SFT", "In supervised fine-tuning (SFT) it imitated worked examples."),
    "rl": ("After RL",
           "In reinforcement learning (RL) it tried, was scored, and moved towards what scored well."),
}
ROWS = (  # key, label, what it is
    ("pass@1", "Right at the first try (pass@1)",
     "Share of single samples that are right. Beneath each share, the 95 % interval."),
    ("pass@k", "Right within {k} tries (pass@{k})",
     "Share of problems that at least one of {k} samples solves."),
    ("greedy", "Likeliest answer right (greedy)",
     "One answer a problem, the likeliest token taken at each place."),
    ("format", "In the right form", "Share of samples that are laid out as the task asks, right or wrong."),
    ("mean_length", "Length", "Mean tokens in an answer."),
    ("seconds", "Time", "What the stage took to train."),
)
VERBS = {
    "chat": "Talk to the model that this run made.", "train": "Train with {method} on the task {task}.",
    "studio": "See every run in the browser.", "explain": "Read what a number means.",
    "resume": "Go on with this run.",
}


def write_report(
    path: str | Path, *, title: str, summary: JsonMapping, curves: Sequence[JsonMapping] = (),
    answers: Sequence[JsonMapping] = (), over_time: Sequence[JsonMapping] = (), commands: Iterable[str] = (),
) -> Path:
    """Writes the page atomically; -> its path. Intervals are 95 % intervals.

    summary: {"stages": [{"name": "base", "pass@1": 0.24, "pass@1_interval": [0.2, 0.28], "pass@8": 0.85,
        "greedy": 0.25, "format": 0.99, "mean_length": 17.0, "seconds": 0.0}, ...], "seconds_total", "seed",
        "problems", "samples", "task", "command", "machine": {...}}; all but the stages' names are optional
    curves: {"name", "label", "unit", "points": [[step, value], ...], "interval": [[step, low, high], ...],
        "explain"}
    answers: {"question", "gold", "stages": [{"name", "text", "correct"}]}, greedy replies to test problems
    over_time: {"step", "text", "correct", "question"}; a question that all share is shown once
    commands: what to try next
    """
    stages = [_stage(stage) for stage in summary.get("stages", ())]
    drawn = [chart for curve in curves if (chart := draw_curve(curve, curve["name"] in LEADS))]
    questions = list(dict.fromkeys(row["question"] for row in over_time if row.get("question")))
    return write_page(
        path, "report.html.jinja", title=title, span=_range, lines=headline(stages, summary), stages=stages,
        table=stage_table(stages), notes=stage_notes(stages),
        leads=[c for c in drawn if c["lead"]], mains=[c for c in drawn if not c["lead"] and not c["small"]],
        smalls=[c for c in drawn if c["small"]], answers=[_answer(a) for a in answers],
        question=questions[0] if len(questions) == 1 else None,
        moments=[{"step": r["step"], "question": r.get("question") if len(questions) > 1 else None,
                  **_reply(r)} for r in over_time],
        facts=report_facts(summary), commands=[_command(c) for c in commands])


def _stage(stage: JsonMapping) -> JsonDict:
    label, about = STAGES.get(stage["name"], (stage["name"], ""))
    return {**stage, "label": label, "about": about, "interval": _interval(stage, "pass@1")}


def _interval(stage: JsonMapping, name: str) -> tuple[float, float] | None:
    """The interval of a share; None where the stage has none."""
    low, high = map(number, stage.get(f"{name}_interval") or (None, None))
    return (max(low, 0.0), min(high, 1.0)) if math.isfinite(low) and math.isfinite(high) else None


def _range(interval: tuple[float, float]) -> str:
    """(0.201, 0.28) -> 20-28 %"""
    return f"{show(interval[0], 'pass@1')[:-2]}–{show(interval[1], 'pass@1')}"


def headline(stages: list[JsonDict], summary: JsonMapping) -> list[str]:
    """The change of pass@1 in one sentence, then how it was measured and whether the intervals overlap."""
    measured = [s for s in stages if isinstance(s.get("pass@1"), int | float)]
    if len(measured) < 2:
        return []
    first, last = measured[0], measured[-1]
    before, after = first["pass@1"], last["pass@1"]
    verb = "rose" if after > before else "fell" if after < before else "stayed"
    lines = [f"Right answers {verb} from {show(before, 'pass@1')} to {show(after, 'pass@1')}."]
    detail = "That is pass@1, the share of single sampled answers that are right"
    if summary.get("problems"):
        detail += f", on {summary['problems']} held-out problems"
        detail += f" with {summary['samples']} samples each" if summary.get("samples") else ""
    if first["interval"] and last["interval"]:
        detail += f". The 95\u202f% intervals are {_range(first['interval'])} and {_range(last['interval'])}"
        apart = first["interval"][1] < last["interval"][0] or last["interval"][1] < first["interval"][0]
        detail += "" if apart else "; they overlap, so the change may be chance"
    between = [f"{show(s['pass@1'], 'pass@1')} {s['label'].replace('After', 'after')}"
               for s in measured[1:-1]]
    detail += f". On the way it was {', '.join(between)}" if between else ""
    total = summary.get("seconds_total")
    return [*lines, detail + (f". Training and measuring took {seconds(total)} in all." if total else ".")]


def stage_table(stages: list[JsonDict]) -> list[JsonDict]:
    """A row for each figure that a stage has, a column a stage, with intervals."""
    ks = sorted({int(key[5:]) for s in stages for key in s if re.fullmatch(r"pass@\d+", key)} - {1})
    rows = []
    for key, label, about in ROWS:
        for k in ks if key == "pass@k" else [None]:
            name = f"pass@{k}" if k else key
            values = [s.get(name) for s in stages]
            if any(v is not None for v in values):
                texts = ([seconds(v) if v else "–" for v in values] if key == "seconds"
                         else [show(v, name) for v in values])
                cells = [{"text": text, "value": v, "interval": _interval(s, name)}
                         for text, v, s in zip(texts, values, stages, strict=True)]
                rows.append({"label": label.format(k=k), "about": about.format(k=k), "cells": cells})
    return rows


def stage_notes(stages: list[JsonDict]) -> list[str]:
    """What the last stage changed besides pass@1."""
    if len(stages) < 2:
        return []
    before, after, out = stages[-2], stages[-1], []
    gain = after.get("pass@1", 0) - before.get("pass@1", 0)
    shared = [key for key in after if re.fullmatch(r"pass@\d+", key) and key != "pass@1" and key in before]
    for key in shared[-1:]:
        if 0 <= after[key] - before[key] < gain:
            out.append(f"In the last stage {key} moved less than pass@1 ({show(before[key], key)} to "
                       f"{show(after[key], key)}, against {show(before['pass@1'], key)} to "
                       f"{show(after['pass@1'], key)}): answers that were possible before became likely.")
    if gain > 0 and after.get("mean_length", 0) > 1.15 * before.get("mean_length", math.inf):
        short, long = (show(s["mean_length"], digits=2) for s in (before, after))
        out.append(f"Answers grew from {short} to {long} tokens as they became right more often.")
    return out


def report_facts(summary: JsonMapping) -> list[tuple[str, str]]:
    total = seconds(summary["seconds_total"]) if "seconds_total" in summary else None
    named = [("Task", summary.get("task")), ("Problems", summary.get("problems")),
             ("Samples for each", summary.get("samples")), ("Seed", summary.get("seed")),
             ("Time in all", total)]
    machine = summary.get("machine") or {}
    named += [("Machine", ", ".join(f"{k} {v}" for k, v in machine.items()) if isinstance(machine, dict)
               else machine)]
    return [(k, str(v)) for k, v in [*named, ("Command", summary.get("command"))] if v not in (None, "")]


def _command(command: str) -> JsonDict:
    name, verb, what = [*command.split(), "", "", ""][:3]
    method, _, task = what.partition(":")
    about = VERBS.get(verb, "") if name == "postgrad" and (task or verb != "train") else ""
    return {"command": command, "about": about.format(method=method, task=task)}


def _reply(row: JsonMapping) -> JsonDict:
    """A completion with control characters made visible, cut at LONGEST."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", str(row["text"]))
    more = len(text) - LONGEST
    return {"text": text[:LONGEST], "more": more if more > 0 else 0, "correct": bool(row["correct"])}


def _answer(answer: JsonMapping) -> JsonDict:
    replies = [{"label": STAGES.get(s["name"], (s["name"],))[0], **_reply(s)} for s in answer["stages"]]
    return {"question": answer["question"], "gold": answer["gold"], "replies": replies}


def draw_curve(curve: JsonMapping, lead: bool = False) -> JsonDict | None:
    """The geometry of one curve: path, ticks, whiskers, labels; None where no value is finite."""
    name, small = curve["name"], curve["name"] in SMALL
    points = thin([(float(s), float(v)) for s, v in curve["points"]])
    good = [(s, v) for s, v in points if math.isfinite(v)]
    if not good:
        return None
    bars = [b for b in curve.get("interval") or () if all(math.isfinite(x) for x in b)]
    rate = bool(RATES.fullmatch(name))
    bars = [(s, max(low, 0.0), min(high, 1.0)) if rate else (s, low, high) for s, low, high in bars]
    values = [v for _, v in good] + [x for _, low, high in bars for x in (low, high)]
    low, high = min(0.0, *values), max(values)
    high = 1.0 if rate and high > 0.5 else high if high > low else low + 1.0
    ys = ticks(low, high, 2 if small else 3)
    width, height = (500, 236) if lead else (340, 110 if small else 176)
    left, right, top, bottom = (54, 58, 12, 30) if lead else (44, 50, 10, 26)
    unit = curve.get("unit") or ""
    top, height = (top + 14, height + 14) if unit else (top, height)
    first, last = points[0][0], points[-1][0]
    begin = 0.0 if first <= 1 else first
    xs = [t for t in ticks(begin, max(last, begin + 1), 4)
          if begin <= t <= max(last, begin + 1) and t == int(t)]

    def x(step: float) -> float:
        return round(left + (width - left - right) * (step - begin) / max(last - begin, 1), 1)

    def y(value: float) -> float:
        return round(top + (height - top - bottom) * (ys[-1] - value) / (ys[-1] - ys[0]), 1)

    path, pen = [], "M"
    for s, v in points:
        if math.isfinite(v):
            path.append(f"{pen}{x(s)} {y(v)}")
        pen = "L" if math.isfinite(v) else "M"
    start, end, label = good[0], good[-1], curve.get("label") or name
    says = curve.get("explain") or (METRICS[name].meaning if name in METRICS else "")
    says += " Bars are 95 % intervals." if bars else ""
    began, ended = show(start[1], name, 2), show(end[1], name, 2)
    return {
        "name": name, "label": label, "unit": unit, "says": says,
        "reward": name == "reward", "lead": lead, "small": small, "width": width, "height": height,
        "left": left, "right": width - right, "base": y(ys[0]),
        "path": "".join(path), "bars": [(x(s), y(a), y(b)) for s, a, b in bars], "before": y(start[1]),
        "dots": [(x(s), y(v), f"step {s:g}: {show(v, name)}") for s, v in good] if bars
                or len(good) < 16 else [], "rows": [(y(t), tick(t, name)) for t in ys],
        "columns": [(x(t), f"{t:.0f}") for t in xs], "end": (x(end[0]), y(end[1]), ended),
        "change": f"{began} → {ended}", "lost": len(points) - len(good),
        "aria": f"{label} by step: {began} at step {start[0]:g}, {ended} {unit} at step {end[0]:g}",
    }
