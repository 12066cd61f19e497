"""Symptoms of what is learned: nothing, too little, or something else."""

from __future__ import annotations

import math
from statistics import fmean

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
    symptom,
    tighter_leash,
    values,
)
from postgrad.runs.doctor.updates import change_rate

FORMS = ("format", "think", "boxed")  # parts of a verdict that judge the form alone


@symptom("no signal", "the samples of a group score alike", needs=("flat_groups", "reward", "reward_std"),
         after=limits.ENOUGH)
def no_signal(chart: Chart) -> Finding | None:
    points = chart.curve("flat_groups")
    if chart.taught or chart.setting("rollouts.group_size", 2) < 2 or first(points) < limits.FLAT:
        return None
    paid = first(chart.curve("reward"))
    hard = paid <= first(chart.curve("reward_std")) + 0.5
    size = chart.setting("rollouts.group_size", 8)
    remedy = ("take easier problems or a model that has seen demonstrations (postgrad train sft), or set "
              f"rollouts.group_size={2 * size}" if hard else "take harder problems")
    return Finding(
        evidence=f"in the first third of the run {first(points):.0%} of the groups score alike, at a reward "
                 f"of {paid:.3g}",
        consequence="such groups have no advantage: the steps are drawn and teach nothing",
        remedy=remedy, figures={"flat_groups": first(points), "reward": paid}, steps=span(points))


@symptom("reward collapse", "there was a reward, and it is gone", needs=("flat_groups", "reward"),
         after=limits.ENOUGH)
def reward_collapse(chart: Chart) -> Finding | None:
    points, size = chart.curve("reward"), max(2, len(chart.curve("reward")) // 10)
    parts = [points[i:i + size] for i in range(0, len(points) - size + 1, size)]
    best = max(parts, key=lambda part: fmean(values(part)), default=[])
    if not best:
        return None
    alike = chart.curve("flat_groups")
    peak, ended, flat = fmean(values(best)), last(points, 0.1), last(alike, 0.1)
    then = [share for step, share in alike if best[0][0] <= step <= best[-1][0]]
    if not 0 <= ended < limits.GUARD_LEFT * peak or flat < limits.FLAT or fmean(then or [1.0]) >= limits.FLAT:
        return None
    return Finding(
        evidence=f"the reward was {peak:.3g} up to step {best[-1][0]} and is {ended:.3g} now, where "
                 f"{flat:.0%} of the groups score alike",
        consequence="what was learned is lost, and groups without a difference cannot bring it back",
        remedy=f"take RUN@best, the checkpoint with the best evaluation, and go on from it; "
               f"{change_rate(chart, 1 / 3)}",
        figures={"best": peak, "reward": ended, "flat_groups": flat}, steps=(best[-1][0], points[-1][0]))


@symptom("group too small", "too few samples to compare")
def small_group(chart: Chart) -> Finding | None:
    size = chart.setting("rollouts.group_size")
    if not size or size >= limits.SMALL_GROUP or not chart.row.get("compares"):
        return None
    flat = chart.curve("flat_groups")
    alike = f"; {first(flat, 1.0):.0%} of the groups score alike" if flat else ""
    prompts = max(1, chart.setting("rollouts.prompts_per_step", 16) * size // 8)
    return Finding(
        evidence=f"{size} samples of each prompt are compared with each other{alike}",
        consequence="the baseline is one or two samples, so that advantages are mostly noise",
        remedy=f"set rollouts.group_size=8 rollouts.prompts_per_step={prompts}: the same number of samples",
        figures={"group_size": size})


@symptom("entropy collapse", "samples become alike before anything is learned",
         needs=("entropy", "reward", "flat_groups"), after=limits.ENOUGH)
def entropy_collapse(chart: Chart) -> Finding | None:
    points, paid = chart.curve("entropy"), chart.curve("reward")
    began, ended = first(points, 0.1), last(points)
    learned = gain(paid) > limits.LEARNED * spread_at_start(chart)
    fell = ended < min(limits.COLLAPSED * began, limits.UNDECIDED) and not learned
    none = first(points) < limits.DECIDED and first(chart.curve("flat_groups")) > limits.ALIKE
    if chart.row.get("kind") != "policy" or chart.taught or not (fell or none):
        return None
    temperature = chart.setting("rollouts.temperature", 1.0)
    remedy = (f"set rollouts.temperature=1 (it is {temperature:g})" if temperature < 1 else
              "set method.high=0.28 where the row has a clip, or method.entropy=0.001, and a lower optim.lr")
    return Finding(
        evidence=f"entropy {'fell from' if fell else 'is low from the start on,'} {began:.3g} to {ended:.3g} "
                 f"nats a token, at a reward of {first(paid):.3g} to {last(paid):.3g}",
        consequence="the samples of a prompt are alike, so that little is left to compare and to learn from",
        remedy=remedy,
        figures={"entropy before": began, "entropy after": ended}, steps=span(points))


@symptom("length creep", "replies grow and do not become better", needs=("length", "reward"),
         after=limits.ENOUGH)
def length_creep(chart: Chart) -> Finding | None:
    points, held_out = chart.curve("length"), evaluated_quality(chart)
    began, ended = first(points, 0.1), last(points)
    apart = len(held_out) > 1 and chart.has("evaluation proxy")  # trained by a proxy, evaluated by the task
    better = held_out[-1][1] - held_out[0][1] if apart else gain(chart.curve("reward"))
    longer, still = (limits.LONGER, 0.0) if apart else (limits.TWICE, limits.STILL * spread_at_start(chart))
    if ended <= longer * began or better > still:
        return None
    measure = "the held-out quality" if apart else "the reward"
    return Finding(
        evidence=f"replies grew from {began:.3g} to {ended:.3g} tokens, {measure} changed by {better:+.2g}",
        consequence="length itself is paid, or costs nothing: time and memory go into padding",
        remedy="take length out of the reward, or set method.overlong=true or method.truncated_penalty=0.5; "
               "of a reward model ask `postgrad audit RUN --probes length`",
        figures={"length before": began, "length after": ended, "gain": better}, steps=span(points))


@symptom("proxy and evaluation diverge", "what is paid rises, what is evaluated falls",
         needs=("evaluation reward|evaluation pass@1", "evaluation proxy|reward"), after=limits.ENOUGH)
def proxy_diverges(chart: Chart) -> Finding | None:
    held_out = evaluated_quality(chart)
    proxy = chart.evaluated("proxy") or chart.curve("reward")
    name = "the proxy" if chart.evaluated("proxy") else "the reward in training"
    best = max(held_out, key=lambda point: point[1])
    fall, rise = held_out[-1][1] - best[1], proxy[-1][1] - proxy[0][1]
    if rise <= 0 or fall >= -chance(chart, best[0], held_out[-1][0]):
        return None
    return Finding(
        evidence=f"{name} rose from {proxy[0][1]:.3g} to {proxy[-1][1]:.3g}, while the held-out quality fell "
                 f"from {best[1]:.3g} at step {best[0]} to {held_out[-1][1]:.3g}",
        consequence="the policy games what it is paid by: the longer it is trained, the worse it becomes",
        remedy=f"take the checkpoint of step {best[0]}; {tighter_leash(chart)}; mend the reward",
        figures={"proxy": rise, "quality": fall}, steps=(best[0], held_out[-1][0]))


@symptom("form is paid, not content", "the reward rises with the form alone",
         needs=("|".join(f"reward/{form}" for form in FORMS), "reward/correct", "reward"),
         after=limits.ENOUGH)
def form_paid(chart: Chart) -> Finding | None:
    forms = {name: points for name in FORMS if (points := chart.curve(f"reward/{name}"))}
    paid, content = gain(chart.curve("reward")), gain(chart.curve("reward/correct"))
    name = max(forms, key=lambda form: gain(forms[form]))
    if gain(forms[name]) <= limits.FORM or paid <= 0 or content > limits.CONTENT * paid:
        return None
    return Finding(
        evidence=f"the reward rose by {paid:.2g} with {name} ({gain(forms[name]):+.2g}), while right answers "
                 f"changed by {content:+.2g}",
        consequence="the policy learns to look right: form is the cheaper part of the reward",
        remedy="pay the form less (0.1 beside 1 for the answer), or only where the answer is right",
        figures={"reward": paid, name: gain(forms[name]), "correct": content}, steps=span(forms[name]))


@symptom("truncation", "replies are cut at the limit", needs=("truncated",), after=limits.ENOUGH)
def truncation(chart: Chart) -> Finding | None:
    points = chart.curve("truncated")
    early, late = first(points), last(points)
    if max(early, late) <= limits.TRUNCATED:
        return None
    limit = chart.setting("rollouts.max_new_tokens", 64)
    grows = early <= limits.TRUNCATED
    return Finding(
        evidence=f"{max(early, late):.0%} of the samples hit the limit of {limit} tokens"
                 + (f", {early:.0%} at the start" if grows else ", from the start on"),
        consequence="a cut answer cannot be right, so that length is punished, not the answer",
        remedy=f"set rollouts.max_new_tokens={2 * limit}"
               + ("; read the samples for loops first: the limit was enough at the start" if grows else ""),
        figures={"truncated": max(early, late), "limit": limit}, steps=span(points))


@symptom("dead reward head", "it says the same of every answer", needs=("margin", "accuracy", "loss"),
         after=limits.ENOUGH)
def dead_head(chart: Chart) -> Finding | None:
    margin, right = chart.curve("margin"), chart.curve("accuracy")
    if abs(last(margin)) > limits.MARGIN or abs(last(right) - 0.5) > limits.EVEN:
        return None
    return Finding(
        evidence=f"chosen and rejected differ by {last(margin):+.3f}, with an accuracy of {last(right):.2f} "
                 f"and a loss of {last(chart.curve('loss')):.3f} (log 2 is {math.log(2):.3f})",
        consequence="the head says the same of every answer: a policy trained against it learns nothing",
        remedy="let the head be trained (its gradient must not be cut, its weights not frozen), and look at "
               "optim.lr and at the labels",
        figures={"margin": last(margin), "accuracy": last(right)}, steps=span(margin))


@symptom("the run failed", "it ended with an error")
def failed(chart: Chart) -> Finding | None:
    if chart.status.get("state") != "failed":
        return None
    return Finding(evidence=f"the run ended at step {chart.steps} with: {chart.status.get('error')}",
                   consequence="there is no model of its last step",
                   remedy="mend what the error names, then go on from the last checkpoint: postgrad resume",
                   steps=(chart.steps, chart.steps))
