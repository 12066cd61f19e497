"""Symptoms of the update: its size, its limits, the distance from the start, the critic."""

from __future__ import annotations

import math
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import Chart, Finding, Point, first, last, span, values
from postgrad.runs.doctor.trust import trained
from postgrad.runs.rows import number


def skipped_steps(chart: Chart) -> Finding | None:
    bad = [int(row["step"]) for row in chart.metrics
           if not all(math.isfinite(number(row.get(name, 0.0))) for name in ("loss", "grad_norm"))]
    if len(bad) < limits.SKIPPED:
        return None
    return Finding(
        evidence=f"{len(bad)} of {len(chart.metrics)} updates had a loss or gradient that is not finite "
                 f"(steps {', '.join(map(str, bad[:6]))}{' ...' if len(bad) > 6 else ''})",
        consequence="the weights were left as they were in these steps, and five in a row end the run",
        remedy=f"look at the rows whose ids stand with these steps in events.jsonl; {lower_rate(chart)}; in "
               "a row of your own look for a division by 0 or the log of 0",
        figures={"skipped": len(bad), "steps": len(chart.metrics)}, steps=(bad[0], bad[-1]))


def step_sizes(chart: Chart) -> list[Point]:
    """How far each update moved the samples it was made of: the mean size of the change of a token's
    log-probability, in nats."""
    found = []
    for step, rows in chart.shown.items():
        moved = [abs(x) for row in rows for x in trained(row["columns"], "moved") if math.isfinite(x)]
        found += [(step, fmean(moved))] if moved else []
    return found


def rate_too_high(chart: Chart) -> Finding | None:
    moves = chart.has("samples moved") and chart.has("reward")
    return update_too_large(chart) if moves else loss_rises(chart)


def update_too_large(chart: Chart) -> Finding | None:
    """Early updates that move their own samples far, and a reward that is lost after them."""
    moved, reward = step_sizes(chart), chart.curve("reward")
    size = first(moved) if moved else 0.0
    began, ended = max(values(reward[: max(1, len(reward) // 3)])), last(reward)
    if size <= limits.STEP_SIZE or ended > began - limits.LOST * spread_at_start(chart):
        return None
    return Finding(
        evidence=f"in the first third an update moves its own samples by {size:.2g} nats a token; the reward "
                 f"fell from {began:.3g} to {ended:.3g}",
        consequence="single updates destroy what the model could do",
        remedy=lower_rate(chart), figures={"step size": size, "reward before": began, "reward after": ended},
        steps=span(reward))


def spread_at_start(chart: Chart) -> float:
    """How much scores differ within a group at the start: the unit of gains and losses, whatever is paid."""
    std = chart.curve("reward_std")
    return first(std) if std and first(std) > 0 else 1.0


def loss_rises(chart: Chart) -> Finding | None:
    if chart.row.get("kind") not in ("supervised", "preference"):
        return None
    points = chart.curve("loss")
    began, ended = first(points, 0.1), last(points)
    if began <= 0 or ended <= limits.LOSS_RISE * began:
        return None
    return Finding(
        evidence=f"the loss rose from {began:.3g} to {ended:.3g}",
        consequence="the updates overshoot: the model ends worse than it began",
        remedy=lower_rate(chart), figures={"loss before": began, "loss after": ended}, steps=span(points))


def lower_rate(chart: Chart) -> str:
    rate = chart.setting("optim.lr")
    return f"set optim.lr={float(rate) / 3:.1e} (it is {rate:g})" if rate else "lower optim.lr"


def kl_explosion(chart: Chart) -> Finding | None:
    for points, limit, unit in ((chart.curve("kl"), limits.KL, "nats a token"),
                                (chart.evaluated("kl_reply"), limits.KL_REPLY, "nats a reply")):
        if points and last(points) > limit and last(points) > 2 * abs(first(points, 0.1)):
            return Finding(
                evidence=f"the KL to the start is {last(points):.3g} {unit} at the end (limit {limit:g})",
                consequence="the policy has left the language that it and its reward were made for",
                remedy=tighter_leash(chart), figures={"kl": last(points), "limit": limit}, steps=span(points))
    return None


def tighter_leash(chart: Chart) -> str:
    weight = chart.constant("kl_in_loss") or chart.constant("kl_in_reward") or chart.constant("beta")
    leash = f"set kl.coef={max(0.02, 3 * weight):.2g}" + (f" (it is {weight:g})" if weight > 0 else "")
    return f"{leash}, or end the run sooner; in a row of your own look at the sign of its KL"


def clip(chart: Chart) -> Finding | None:
    if chart.updates <= 1:
        return None
    used = {step for step, moved in chart.curve("approx_kl") if moved > limits.USED}
    points = [p for p in chart.curve("clip_fraction") if p[0] in used]
    if not points:
        return None
    whole = "sequence" in chart.row.get("functions", {}).get("surrogate", "")
    limit = limits.CLIPPED_WHOLE if whole else limits.CLIPPED
    names = " and ".join(f"method.{name}={3 * chart.constant(name):g}" for name in ("low", "high")
                         if chart.constant(name))
    share = fmean(values(points))
    if share > limit:
        return Finding(
            evidence=f"the clip holds back {share:.0%} of the tokens in updates on samples that were used",
            consequence="most of what was sampled teaches nothing after the first update on it",
            remedy=f"set {names or 'a wider clip'}, or fewer updates (method.epochs, method.minibatches)",
            figures={"clip_fraction": share}, steps=span(points))
    meant = "ratio" in chart.row.get("functions", {}).get("surrogate", "")  # not a mere guard, as cispo's
    if meant and len(points) >= limits.NEVER and max(values(points)) == 0:
        return Finding(
            evidence=f"no token was clipped in {len(points)} updates, {chart.updates:g} of each collection",
            consequence="the updates are so small that the samples could be used for more",
            remedy=raise_rate(chart), figures={"clip_fraction": 0.0}, steps=span(points))
    return None


def raise_rate(chart: Chart) -> str:
    rate = chart.setting("optim.lr")
    return f"set optim.lr={3 * float(rate):.1e} (it is {rate:g})" if rate else "raise optim.lr"


def gradient_clipped(chart: Chart) -> Finding | None:
    limit, points = chart.setting("optim.max_grad_norm"), chart.curve("grad_norm")
    if not limit:
        return None
    cut = [p for p in points if p[1] > limit]
    usual = median(values(points))
    if len(cut) < limits.GRAD_CLIPPED * len(points) or usual < limits.GRAD_RATIO * limit:
        return None
    return Finding(
        evidence=f"{len(cut)} of {len(points)} gradients were cut; the usual one is {usual:.3g}, the limit "
                 f"{limit:g}",
        consequence="every update has one length whatever it is made of, so that a batch that says much "
                    "counts no more than one that says little",
        remedy=f"set optim.max_grad_norm={2 * usual:.2g}", figures={"usual": usual, "limit": limit},
        steps=span(cut))


def critic_explains_nothing(chart: Chart) -> Finding | None:
    """After many updates it explains too little; after few, it has not moved towards the returns at all."""
    points, said = chart.curve("explained_variance"), chart.curve("value")
    share, gap = last(points, 0.5), last(chart.curve("return")) - said[0][1]
    unmoved = abs(last(said) - said[0][1]) < limits.UNMOVED * abs(gap)
    if share > limits.EXPLAINED or chart.steps < limits.LONG and not unmoved:
        return None
    weight = chart.constant("value_weight")
    return Finding(
        evidence=f"the critic explains {share:.2f} of the variance of the returns in the second half"
                 + (f", and says {last(said):.2g} where they are {last(chart.curve('return')):.2g}"
                    if unmoved else ""),
        consequence="advantages are rewards with the critic's noise on top: PPO without a baseline",
        remedy=f"set method.value_weight={max(0.1, 3 * weight):.2g} (it is {weight:g}), or method.lam=1, "
               "which asks the critic least",
        figures={"explained_variance": share}, steps=span(points))
