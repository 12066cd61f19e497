"""One self-contained page about a training: what changed, the curves, answers before and after, how it was measured.

Geometry is computed here, markup is made by report.html.jinja with autoescape: completions are untrusted text and stay text.
Left out on purpose: JavaScript, external files, smoothing of curves.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

PAGE = files("postgrad") / "report.html.jinja"
RATES = re.compile(r"pass@\d+|greedy|format|accuracy|flat_groups|clip_fraction|truncated|finished|repetition")
SMALL = ("clip_fraction", "grad_norm", "flat_groups", "lr", "ratio_max", "truncated")
LONGEST = 1500  # characters of a completion that are shown
STAGES = {
    "base": ("Base", "Base is the model as it was given."),
    "sft": ("After SFT", "In supervised fine-tuning (SFT) it imitated worked examples."),
    "rl": ("After RL", "In reinforcement learning (RL) it tried, was scored, and moved towards what scored well."),
}
ROWS = (  # key, label, what it is
    ("pass@1", "Right at the first try (pass@1)", "Share of single samples that are right. Beneath it, the 95 % interval."),
    ("pass@k", "Right within {k} tries (pass@{k})", "Share of problems that at least one of {k} samples solves."),
    ("greedy", "Likeliest answer right (greedy)", "One answer a problem, the likeliest token taken at each place."),
    ("format", "In the right form", "Share of samples that are laid out as the task asks, right or wrong."),
    ("mean_length", "Length", "Mean tokens in an answer."),
    ("seconds", "Time", "What the stage took to train."),
)
SAYS = {
    "reward": "The mean score of the step’s own samples: the number that training pushes up.",
    "pass@1": "Held-out problems, on which the model is not trained. Bars are 95 % intervals.",
    "length": "Tokens in a sample. It grows where longer answers are right more often.",
    "kl": "How far the model has moved from where this stage began. A slow rise is normal.",
    "entropy": "How undecided the model is at each token. It falls as the model settles on a way of answering.",
    "flat_groups": "Share of prompts whose samples all scored the same: nothing to learn from them in that step.",
    "clip_fraction": "Share of tokens on which the clip held the update back.",
    "grad_norm": "Length of the gradient. A spike is one odd batch.",
}
VERBS = {
    "chat": "Talk to the model that this run made.", "train": "Train with {method} on the task {task}.",
    "studio": "See every run in the browser.", "explain": "Read what a number means.", "resume": "Go on with this run.",
}


def write_report(
    path: str | Path, *, title: str, summary: Mapping, curves: Sequence[Mapping] = (), answers: Sequence[Mapping] = (),
    over_time: Sequence[Mapping] = (), commands: Iterable[str] = (),
) -> Path:
    """Write the page at one stroke and return its path.

    summary: {"stages": [{"name": "base", "pass@1": 0.24, "pass@1_interval": [0.2, 0.28], "pass@8": 0.85, "greedy": 0.25,
      "format": 0.99, "mean_length": 17.0, "seconds": 0.0}, ...], "seconds_total", "seed", "problems", "samples", and where
      known "task", "command", "machine": {...}}; what is missing is left out of the page. Intervals are 95 % intervals.
    curves: {"name", "label", "unit", "points": [[step, value], ...], "interval": [[step, low, high], ...], "explain"}
    answers: {"question", "gold", "stages": [{"name", "text", "correct"}]}, greedy replies to the first problems of the test set
    over_time: {"step", "text", "correct", "question"}; a question that all share is shown once
    commands: what to try next.
    """
    import jinja2  # here, so that reading a run's figures needs nothing beyond the standard library

    strict = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    stages = [_stage(stage) for stage in summary.get("stages", ())]
    drawn = [chart for curve in curves if (chart := draw(curve, lead=curve["name"] in ("reward", "pass@1")))]
    questions = list(dict.fromkeys(row["question"] for row in over_time if row.get("question")))
    html = strict.from_string(PAGE.read_text("utf-8")).render(
        title=title, span=_range, lines=headline(stages, summary), stages=stages, table=table(stages),
        notes=notes(stages),
        leads=[c for c in drawn if c["lead"]], mains=[c for c in drawn if not c["lead"] and not c["small"]],
        smalls=[c for c in drawn if c["small"]], answers=[_answer(a) for a in answers],
        question=questions[0] if len(questions) == 1 else None,
        moments=[{"step": r["step"], "question": r.get("question") if len(questions) > 1 else None, **_reply(r)}
                 for r in over_time],
        facts=facts(summary), commands=[_command(c) for c in commands])
    path = Path(path)
    temp = path.with_name(f".{path.name}.tmp")
    temp.write_bytes(html.encode("utf-8", "replace"))
    os.replace(temp, path)
    return path


# words

def show(value, name: str = "", digits: int = 3) -> str:
    """A number for a reader: 0.2412 as a rate is 24 %, 34.52 is 34.5, -0.5 has a true minus; what is no number is a dash."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    if RATES.fullmatch(name):
        edge = 0 < value < 0.01 or 0.995 <= value < 1  # a few in a thousand is not none, and not all
        text = f"{100 * value:.{1 if edge else 0}f}\u202f%"
    elif float(value).is_integer() and abs(value) < 1e6:
        text = f"{value:.0f}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{places}f}" if places <= 5 and abs(value) < 1e6 else f"{value:.1e}"
    return text.replace("-", "\u2212")


def tick(value: float, name: str) -> str:
    """A label of an axis: 0.5, not 0.500."""
    return show(value, name) if RATES.fullmatch(name) else f"{value:g}".replace("-", "\u2212")


def seconds(value) -> str:
    """7.24 -> "7.2 s", 200 -> "3 min 20 s"."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    if value < 60:
        return f"{value:.0f} s" if value >= 10 or value == 0 else f"{value:.1f} s"
    hours, minutes, rest = int(value) // 3600, int(value) // 60 % 60, int(value) % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _stage(stage: Mapping) -> dict:
    label, about = STAGES.get(stage["name"], (stage["name"], ""))
    low, high = (stage.get("pass@1_interval") or (None, None))
    known = all(isinstance(x, int | float) and math.isfinite(x) for x in (low, high))
    return {**stage, "label": label, "about": about, "interval": (max(low, 0.0), min(high, 1.0)) if known else None}


def _range(interval) -> str:
    """(0.201, 0.28) -> 20-28 %"""
    return f"{show(interval[0], 'pass@1')[:-2]}–{show(interval[1], 'pass@1')}"


def headline(stages: list[dict], summary: Mapping) -> list[str]:
    """The measured change in one sentence, then what it is and whether it can be trusted."""
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
    between = [f"{show(s['pass@1'], 'pass@1')} {s['label'].replace('After', 'after')}" for s in measured[1:-1]]
    detail += f". On the way it was {', '.join(between)}" if between else ""
    total = summary.get("seconds_total")
    return [*lines, detail + (f". Training and measuring took {seconds(total)} in all." if total else ".")]


def table(stages: list[dict]) -> list[dict]:
    """One row a figure, one column a stage; a figure that no stage has is left out."""
    ks = sorted({int(key[5:]) for s in stages for key in s if re.fullmatch(r"pass@\d+", key)} - {1})
    rows = []
    for key, label, about in ROWS:
        for k in ks if key == "pass@k" else [None]:
            name = f"pass@{k}" if k else key
            values = [s.get(name) for s in stages]
            if any(v is not None for v in values):
                cells = [seconds(v) if v else "–" for v in values] if key == "seconds" else [show(v, name) for v in values]
                rows.append({"name": name, "label": label.format(k=k), "about": about.format(k=k), "cells": cells})
    return rows


def notes(stages: list[dict]) -> list[str]:
    """What the last stage did, where the table says it."""
    if len(stages) < 2:
        return []
    before, after, out = stages[-2], stages[-1], []
    gain = after.get("pass@1", 0) - before.get("pass@1", 0)
    shared = [key for key in after if re.fullmatch(r"pass@\d+", key) and key != "pass@1" and key in before]
    for key in shared[-1:]:
        if 0 <= after[key] - before[key] < gain:
            out.append(f"In the last stage {key} moved less than pass@1 ({show(before[key], key)} to {show(after[key], key)}, "
                       f"against {show(before['pass@1'], key)} to {show(after['pass@1'], key)}): answers that were possible "
                       "before became likely.")
    if gain > 0 and after.get("mean_length", 0) > 1.15 * before.get("mean_length", math.inf):
        short, long = (show(s["mean_length"], digits=2) for s in (before, after))
        out.append(f"Answers grew from {short} to {long} tokens as they became right more often.")
    return out


def facts(summary: Mapping) -> list[tuple[str, str]]:
    total = seconds(summary["seconds_total"]) if "seconds_total" in summary else None
    named = [("Task", summary.get("task")), ("Problems", summary.get("problems")), ("Samples for each", summary.get("samples")),
             ("Seed", summary.get("seed")), ("Time in all", total)]
    machine = summary.get("machine") or {}
    named += [("Machine", ", ".join(f"{k} {v}" for k, v in machine.items()) if isinstance(machine, Mapping) else machine)]
    return [(k, str(v)) for k, v in [*named, ("Command", summary.get("command"))] if v not in (None, "")]


def _command(command: str) -> dict:
    name, verb, what = [*command.split(), "", "", ""][:3]
    method, _, task = what.partition(":")
    about = VERBS.get(verb, "") if name == "postgrad" and (task or verb != "train") else ""
    return {"command": command, "about": about.format(method=method, task=task)}


def _reply(row: Mapping) -> dict:
    """A completion as it may be shown: control characters made visible, a very long one cut."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", str(row["text"]))
    more = len(text) - LONGEST
    return {"text": text[:LONGEST], "more": more if more > 0 else 0, "correct": bool(row["correct"])}


def _answer(answer: Mapping) -> dict:
    replies = [{"label": STAGES.get(s["name"], (s["name"],))[0], **_reply(s)} for s in answer["stages"]]
    return {"question": answer["question"], "gold": answer["gold"], "replies": replies}


# curves

def ticks(low: float, high: float, count: int = 3) -> list[float]:
    """About `count` steps of 1, 2, 2.5 or 5 times a power of ten that cover low to high. (0, 0.83) -> 0, 0.5, 1"""
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    start, stop = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(start, stop + 1)]


def extremes(values: Sequence[float], most: int = 600) -> list[int]:
    """The places of the lowest and highest value of each stretch of a long curve: no spike is lost, nothing is averaged.

    A value that is not finite stands for its stretch beside them: a gap stays a gap. The last place stays.
    """
    if len(values) <= most:
        return list(range(len(values)))
    size, kept = math.ceil(len(values) / (most // 2)), []
    for start in range(0, len(values), size):
        part = values[start: start + size]
        finite = part if math.isfinite(sum(part)) else [x for x in part if math.isfinite(x)]
        places = {part.index(min(finite)), part.index(max(finite))} if finite else set()
        gap = [i for i, x in enumerate(part) if not math.isfinite(x)][:1] if finite is not part else []
        kept += [start + i for i in sorted(places.union(gap))]
    return kept if kept[-1] == len(values) - 1 else [*kept, len(values) - 1]


def thin(points: list[tuple[float, float]], most: int = 600) -> list[tuple[float, float]]:
    """Of a long curve its `extremes`."""
    return [points[i] for i in extremes([value for _, value in points], most)]


def draw(curve: Mapping, lead: bool = False) -> dict | None:
    """The geometry of one curve in its own units: path, ticks, whiskers, labels. None when there is nothing finite to draw."""
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
    xs = [t for t in ticks(begin, max(last, begin + 1), 4) if begin <= t <= max(last, begin + 1) and t == int(t)]

    def x(step):
        return round(left + (width - left - right) * (step - begin) / max(last - begin, 1), 1)

    def y(value):
        return round(top + (height - top - bottom) * (ys[-1] - value) / (ys[-1] - ys[0]), 1)

    path, pen = [], "M"
    for s, v in points:
        if math.isfinite(v):
            path.append(f"{pen}{x(s)} {y(v)}")
        pen = "L" if math.isfinite(v) else "M"
    start, end, label = good[0], good[-1], curve.get("label") or name
    began, ended = show(start[1], name, 2), show(end[1], name, 2)
    return {
        "name": name, "label": label, "unit": unit, "says": curve.get("explain") or SAYS.get(name, ""),
        "reward": name == "reward", "lead": lead, "small": small, "width": width, "height": height, "left": left,
        "right": width - right, "base": y(ys[0]),
        "path": "".join(path), "bars": [(x(s), y(a), y(b)) for s, a, b in bars], "before": y(start[1]),
        "dots": [(x(s), y(v), f"step {s:g}: {show(v, name)}") for s, v in good] if bars or len(good) < 16 else [],
        "rows": [(y(t), tick(t, name)) for t in ys], "columns": [(x(t), f"{t:.0f}") for t in xs],
        "end": (x(end[0]), y(end[1]), ended), "change": f"{began} → {ended}", "lost": len(points) - len(good),
        "aria": f"{label} by step: {began} at step {start[0]:g}, {ended} {unit} at step {end[0]:g}",
    }
