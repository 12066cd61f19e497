"""Symptoms that make a run's figures worthless, whatever they show: data, verifier, sampler, sign."""

from __future__ import annotations

import math
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import Chart, Finding, correlation, span, values
from postgrad.runs.rows import JsonMapping, number


def leaked(chart: Chart) -> Finding | None:
    data = chart.info["data"]
    if not data["evaluated"] or data["leaked"] / data["evaluated"] <= limits.LEAKED:
        return None
    split = chart.setting("evaluation.split", "validation")
    other = "set evaluation.split=validation" if split == "train" else (
        "let the task's splits be disjoint, by a hash of the question's text, say")
    return Finding(
        evidence=f"{data['leaked']} of the {data['evaluated']} evaluated problems are training prompts too",
        consequence="pass@1 and every other evaluated figure measure memory, and are too high",
        remedy=other, figures={"leaked": data["leaked"], "evaluated": data["evaluated"]})


def repeated(chart: Chart) -> Finding | None:
    data = chart.info["data"]
    if not chart.row.get("source", "").startswith("rollouts") or not data["prompts"]:
        return None
    share = data["repeated"] / data["prompts"]
    if share <= limits.REPEATED:
        return None
    return Finding(
        evidence=f"{data['repeated']} of the {data['prompts']} training prompts repeat another one's text",
        consequence="what is repeated counts so much more, and is learned by heart sooner",
        remedy="take the repeats out of the task's rows, or lower rollouts.prompts to "
               f"{data['prompts'] - data['repeated']}",
        figures={"repeated": data["repeated"], "prompts": data["prompts"]})


def verifier_errors(chart: Chart) -> Finding | None:
    drawn = chart.setting("rollouts.prompts_per_step", 0) * chart.setting("rollouts.group_size", 0)
    points = chart.curve("errors")
    if not drawn or fmean(values(points)) / drawn <= limits.ERRORS:
        return None
    share, hit = fmean(values(points)) / drawn, [p for p in points if p[1] > 0]
    said = next((row["reason"] for rows in chart.shown.values() for row in rows
                 if not any(row["columns"]["mask"]) and row.get("reason")), "")
    return Finding(
        evidence=f"the verifier failed on {share:.0%} of the samples, in {len(hit)} of {len(points)} steps"
                 + (f" ({said})" if said else ""),
        consequence="these samples are left out of the loss: groups are smaller than asked for, and a kind "
                    "of reply that always fails is neither praised nor blamed",
        remedy="mend the verifier until `errors` is 0: the failed samples stand in samples.jsonl with the "
               "message as their reason",
        figures={"share": share}, steps=span(hit))


def mismatch(chart: Chart) -> Finding | None:
    precision = chart.setting("optim.precision", "auto")
    half = precision == "bf16" or precision == "auto" and str(chart.setting("device", "cpu")) != "cpu"
    limit = limits.MISMATCH["bf16" if half else "fp32"]
    points = chart.curve("mismatch")
    usual = median(values(points))
    if usual <= limit:
        return None
    return Finding(
        evidence=f"sampler and trainer differ by {usual:.3g} nats a token (limit {limit:g})",
        consequence="the samples come from another distribution than the one that is trained: advantages are "
                    "credited to tokens by wrong probabilities, and the ratio corrects nothing",
        remedy="sample with the trained weights at rollouts.temperature, without top-k or top-p, in the same "
               "precision (optim.precision)",
        figures={"mismatch": usual, "limit": limit}, steps=span(points))


def directions(chart: Chart) -> list[tuple[int, float]]:
    """For each step whose shown samples differ: the correlation of their advantage with the change of their
    mean log-probability by the update."""
    found = []
    for step, rows in chart.shown.items():
        pairs = [pair for row in rows if (pair := advantage_and_change(row))]
        if len(pairs) > 2 and (x := correlation(*zip(*pairs, strict=True))) is not None:
            found.append((step, x))
    return found


def advantage_and_change(row: JsonMapping) -> tuple[float, float] | None:
    columns = row["columns"]
    moved = trained(columns, "moved")
    adv = number(row.get("adv"))
    return (adv, fmean(moved)) if moved and math.isfinite(adv) and all(map(math.isfinite, moved)) else None


def trained(columns: JsonMapping, name: str) -> list[float]:
    """A column's values at the trained tokens."""
    return [number(x) for x, kept in zip(columns.get(name, ()), columns["mask"], strict=False) if kept]


def wrong_sign(chart: Chart) -> Finding | None:
    return against(chart) or partly_masked(chart)


def against(chart: Chart) -> Finding | None:
    points = directions(chart)
    if len(points) < limits.SHOWN or fmean(values(points)) >= limits.AGAINST:
        return None
    usual = fmean(values(points))
    return Finding(
        evidence=f"advantage and change of log-probability correlate by {usual:+.2f} over {len(points)} "
                 "steps: what is praised becomes less likely",
        consequence="the policy learns the opposite of what is paid",
        remedy="turn the sign of the surrogate's loss, or of the reward: the loss is -adv * log pi",
        figures={"correlation": usual}, steps=span(points))


def partly_masked(chart: Chart) -> Finding | None:
    whole = [(step, fmean(map(bool, row["columns"]["mask"]))) for step, rows in chart.shown.items()
             for row in rows if row.get("finished") and any(row["columns"]["mask"])]
    if len(whole) < limits.SHOWN or fmean(values(whole)) >= limits.MASKED:
        return None
    share = fmean(values(whole))
    return Finding(
        evidence=f"of the tokens of finished replies {share:.0%} are trained",
        consequence="part of what the policy wrote is neither praised nor blamed, the stop token perhaps",
        remedy="let the mask cover every sampled token, the stop token included, and no token of the prompt",
        figures={"trained": share}, steps=span(whole))


def stale_reference(chart: Chart) -> Finding | None:
    if chart.row.get("kind") == "preference":
        name, limit, unit = "chosen", limits.FIRST_SCORE, "nats a reply"
        if not chart.constant("reference"):
            return None
    else:
        name, limit, unit = "kl", limits.FIRST_KL, "nats a token"
    step, value = chart.curve(name)[0]
    if step != 1 or abs(value) <= limit:
        return None
    return Finding(
        evidence=f"at step 1, before any update, {name} is {value:.3g} {unit}, and must be 0",
        consequence="the leash pulls towards another model than the one that the run began with",
        remedy="start the policy and the reference from the same model, or set kl.coef=0 to train without "
               "a reference",
        figures={name: value}, steps=(1, 1))
