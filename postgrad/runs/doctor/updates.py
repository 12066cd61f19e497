"""Symptoms of updates: their size, their limits, the distance from the start, the critic."""

from __future__ import annotations

import math
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import (
    Chart,
    Finding,
    chance,
    evaluated_quality,
    first,
    gain,
    last,
    span,
    spread_at_start,
    step_sizes,
    symptom,
    tighter_leash,
    values,
)
from postgrad.runs.rows import number


@symptom("skipped steps", "updates that were not finite", needs=("loss",))
def skipped_steps(chart: Chart) -> Finding | None:
    bad = [int(row["step"]) for row in chart.metrics
           if not all(math.isfinite(number(row.get(name, 0.0))) for name in ("loss", "grad_norm"))]
    if len(bad) < limits.SKIPPED:
        return None
    return Finding(
        evidence=f"{len(bad)} of {len(chart.metrics)} updates had a loss or gradient that is not finite "
                 f"(steps {', '.join(map(str, bad[:6]))}{' ...' if len(bad) > 6 else ''})",
        consequence="the weights were left as they were in these steps, and five in a row end the run",
        remedy=f"look at the rows whose ids stand with these steps in events.jsonl; {change_rate(chart)}; in "
               "a row of your own look for a division by 0 or the log of 0",
        figures={"skipped": len(bad), "steps": len(chart.metrics)}, steps=(bad[0], bad[-1]))


@symptom("rate too high", "updates destroy what the model could do", needs=("loss",), after=limits.ENOUGH)
def rate_too_high(chart: Chart) -> Finding | None:
    """Early updates that move their own samples far, and no gain; a policy that went far early and became
    worse; a loss that rises."""
    if chart.row.get("kind") in ("supervised", "preference") and not chart.has("reward"):
        return loss_rises(chart)
    moved, reward = step_sizes(chart), chart.curve("reward")
    size = first(moved) if moved else 0.0
    if not reward or size <= limits.STEP_SIZE:
        return far_and_worse(chart)
    began, ended = max(values(reward[: max(1, len(reward) // 3)])), last(reward)
    if ended > began - limits.LOST * spread_at_start(chart) and gain(reward) > 0:
        return None
    return Finding(
        evidence=f"in the first third an update moves its own samples by {size:.2g} nats a token; the reward "
                 f"went from {began:.3g} to {ended:.3g}",
        consequence="single updates destroy what the model could do",
        remedy=change_rate(chart, max(1 / 30, limits.GOOD_STEP / size)),
        figures={"step size": size, "reward before": began, "reward after": ended}, steps=span(reward))


def far_and_worse(chart: Chart) -> Finding | None:
    """A KL that is large in the first part of a run, while both rewards, held-out and trained on, fall from
    their best."""
    kl, reward, held_out = chart.curve("kl"), chart.curve("reward"), evaluated_quality(chart)
    early = [value for step, value in kl if step <= max(chart.steps // 3, limits.ENOUGH)]
    if not early or not reward or len(held_out) < 3 or chart.has("evaluation proxy"):
        return None
    best, ended = max(held_out, key=lambda point: point[1]), fmean(values(held_out[-2:]))
    peak = max(values(reward))
    if (max(early) <= limits.KL_EARLY or best[0] >= held_out[-2][0] or last(reward) >= limits.FALLEN * peak
            or best[1] - ended <= chance(chart, best[0], held_out[-1][0])):
        return None
    return Finding(
        evidence=f"the KL to the start is {max(early):.2g} nats a token in the first third, and the held-out "
                 f"figure fell from {best[1]:.3g} at step {best[0]} to {ended:.3g}, the reward in training "
                 f"from {peak:.3g} to {last(reward):.3g}",
        consequence="the policy is carried away faster than the reward can steer it",
        remedy=f"{change_rate(chart)}, and take the checkpoint of step {best[0]}",
        figures={"kl": max(early), "best": best[1], "last": ended}, steps=(best[0], held_out[-1][0]))


@symptom("rate too low", "updates change nothing", needs=("loss", "grad_norm"), after=limits.ENOUGH)
def rate_too_low(chart: Chart) -> Finding | None:
    """Updates that hardly move their own samples; without samples, that cannot change the loss: to first
    order AdamW changes it by at most rate x root of the parameters x gradient norm."""
    moved, norm = step_sizes(chart), values(chart.curve("grad_norm"))
    rate, count = chart.curve("lr"), number(chart.info.get("trained_parameters", 0))
    if moved:
        size, limit, what = max(values(moved)), limits.STILL_STEP, "moves its own samples by"
    elif rate and count > 0:
        size = max(values(rate)) * math.sqrt(count) * median(norm)
        limit, what = limits.STILL_LOSS, "can change the loss by"
    else:
        return None
    flat = chart.curve("flat_groups")  # groups that score alike pull at nothing
    if size >= limit or median(norm) == 0 or flat and first(flat) >= limits.FLAT:
        return None
    return Finding(
        evidence=f"an update {what} {size:.1g} nats at most",
        consequence="nothing is learned, however long the run is",
        remedy=change_rate(chart, min(1000.0, 10 ** round(math.log10(limits.GOOD_STEP / size)))),
        figures={"step size": size}, steps=(1, chart.steps))


def loss_rises(chart: Chart) -> Finding | None:
    if chart.row.get("kind") not in ("supervised", "preference"):
        return None
    points, held_out = chart.curve("loss"), chart.evaluated("pass@1") or chart.evaluated("accuracy")
    began, ended, most = first(points, 0.1), last(points), max(values(points))
    lost = held_out[0][1] - held_out[-1][1] if len(held_out) > 1 else 0.0
    if began <= 0 or (ended <= limits.LOSS_RISE * began and most <= limits.LOSS_SPIKE * began):
        return None
    return Finding(
        evidence=f"the loss rose from {began:.3g} to {most:.3g}, and is {ended:.3g} in the last third" + (
            f"; the held-out figure fell from {held_out[0][1]:.3g} to {held_out[-1][1]:.3g}" if lost > 0
            else ""),
        consequence="the updates overshoot: the model ends worse than it could",
        remedy=change_rate(chart, 1 / 10), figures={"loss before": began, "loss after": ended, "most": most},
        steps=span(points))


def change_rate(chart: Chart, factor: float = 1 / 3) -> str:
    rate = chart.setting("optim.lr")
    return (f"set optim.lr={factor * float(rate):.1e} (it is {float(rate):g})" if rate
            else f"{'lower' if factor < 1 else 'raise'} optim.lr")


@symptom("KL explosion", "the policy has left the model it began as", needs=("kl|evaluation kl_reply",),
         after=limits.ENOUGH)
def kl_explosion(chart: Chart) -> Finding | None:
    for points, limit, unit in ((chart.curve("kl"), limits.KL, "nats a token"),
                                (chart.evaluated("kl_reply"), limits.KL_REPLY, "nats a reply")):
        if points and last(points) > limit and last(points) > 2 * abs(first(points, 0.1)):
            return Finding(
                evidence=f"the KL to the start is {last(points):.3g} {unit} at the end (limit {limit:g})",
                consequence="the policy has left the language that it and its reward were made for",
                remedy=tighter_leash(chart), figures={"kl": last(points), "limit": limit}, steps=span(points))
    return None


@symptom("leash too tight", "the KL pulls harder than the reward", needs=("kl_share|kl_coefficient",),
         after=limits.ENOUGH)
def tight_leash(chart: Chart) -> Finding | None:
    name = "kl_in_loss" if chart.has("kl_share") else "kl_in_reward"
    weight = chart.constant(name) or chart.constant("kl_in_loss")
    if chart.has("kl_share"):
        share = last(chart.curve("kl_share"), 0.5)
    else:
        cost = [w * max(0.0, far) for (_, w), (_, far) in
                zip(chart.curve("kl_coefficient"), chart.curve("kl_reply"), strict=False)]
        late = fmean(cost[len(cost) // 2:]) if cost else 0.0
        share = late / (late + spread_at_start(chart))
    if share <= limits.LEASH or weight < limits.LEASH_WEIGHT:
        return None
    return Finding(
        evidence=f"the KL has {share:.0%} of what pulls at the tokens in the second half, with a weight of "
                 f"{weight:g}",
        consequence="the policy is held where it began, whatever is paid",
        remedy=f"set kl.coef={0.04 if name == 'kl_in_loss' else 0.05} (it is {weight:g}), or 0",
        figures={"share": share, "weight": weight}, steps=(1, chart.steps))


@symptom("clip always or never at work", "the clip cuts most tokens, or none",
         needs=("clip_fraction", "approx_kl"), after=limits.ENOUGH)
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
            remedy=change_rate(chart, 3), figures={"clip_fraction": 0.0}, steps=span(points))
    return None


@symptom("gradient always clipped", "max_grad_norm sets the length of every update", needs=("grad_norm",),
         after=limits.ENOUGH)
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


@symptom("critic explains nothing", "its values foresee none of the returns",
         needs=("explained_variance", "value", "return"), after=limits.ENOUGH)
def critic_explains_nothing(chart: Chart) -> Finding | None:
    """After many updates it explains too little; after few, it has not moved towards the returns at all."""
    points, value = chart.curve("explained_variance"), chart.curve("value")
    share, gap = last(points, 0.5), last(chart.curve("return")) - value[0][1]
    unmoved = abs(last(value) - value[0][1]) < limits.UNMOVED * abs(gap)
    if share > limits.EXPLAINED or chart.steps < limits.LONG and not unmoved:
        return None
    weight = chart.constant("value_weight")
    return Finding(
        evidence=f"the critic explains {share:.2f} of the variance of the returns in the second half"
                 + (f", and says {last(value):.2g} where they are {last(chart.curve('return')):.2g}"
                    if unmoved else ""),
        consequence="advantages are rewards with the critic's noise on top: PPO without a baseline",
        remedy=f"set method.value_weight={max(0.1, 3 * weight):.2g} (it is {weight:g}), or method.lam=1, "
               "which asks the critic least",
        figures={"explained_variance": share}, steps=span(points))
