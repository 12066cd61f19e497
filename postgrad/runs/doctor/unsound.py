"""Symptoms of figures that are worthless: data, verifier, sampler, sign."""

from __future__ import annotations

import math
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import (
    Chart,
    Finding,
    correlation,
    first,
    gain,
    last,
    span,
    step_sizes,
    symptom,
    trained,
    values,
)
from postgrad.runs.rows import JsonMapping, number


@symptom("splits share prompts", "evaluated problems are trained on", needs=("data leaked",))
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


@symptom("duplicated prompts", "prompts that stand twice", needs=("data repeated",))
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


@symptom("verifier errors", "samples that could not be judged", needs=("errors",))
def verifier_errors(chart: Chart) -> Finding | None:
    drawn = chart.setting("rollouts.prompts_per_step", 0) * chart.setting("rollouts.group_size", 0)
    points = chart.curve("errors")
    if not drawn or fmean(values(points)) / drawn <= limits.ERRORS:
        return None
    share, hit = fmean(values(points)) / drawn, [p for p in points if p[1] > 0]
    reason = next((row["reason"] for rows in chart.shown.values() for row in rows
                   if not any(row["columns"]["mask"]) and row.get("reason")), "")
    return Finding(
        evidence=f"the verifier failed on {share:.0%} of the samples, in {len(hit)} of {len(points)} steps"
                 + (f" ({reason})" if reason else ""),
        consequence="these samples are left out of the loss: groups are smaller than asked for, and a kind "
                    "of reply that always fails is neither praised nor blamed",
        remedy="mend the verifier until `errors` is 0: the failed samples stand in samples.jsonl with the "
               "message as their reason",
        figures={"share": share}, steps=span(hit))


@symptom("verifier contradicts itself", "one reply to one prompt is scored high and low",
         needs=("same_replies", "contradicted"))
def contradiction(chart: Chart) -> Finding | None:
    same, against = (sum(values(chart.curve(name))) for name in ("same_replies", "contradicted"))
    if same < limits.SAME or against / same <= limits.CONTRADICTED:
        return None
    return Finding(
        evidence=f"{same:.0f} samples say the same as another to their prompt, and {against:.0f} of them are "
                 "scored otherwise",
        consequence="the reward is chance: what is praised is not what was said",
        remedy="let the verifier be a function of prompt and reply: fix its seed, set a judge's temperature "
               "to 0, look for state that it keeps between calls",
        figures={"same replies": same, "contradicted": against}, steps=span(chart.curve("same_replies")))


def mismatch_limit(chart: Chart) -> float:
    """In nats a token; samples of older weights may differ by as many updates."""
    precision = chart.setting("optim.precision", "auto")
    half = precision == "bf16" or precision == "auto" and str(chart.setting("device", "cpu")) != "cpu"
    moved, stale = step_sizes(chart), chart.curve("staleness")
    late = 2 * last(moved, 1.0) * last(stale, 1.0) if moved and stale else 0.0
    return limits.MISMATCH["bf16" if half else "fp32"] + late


@symptom("sampler keeps old weights", "it agrees with the trainer at step 1, and less at each",
         needs=("mismatch",), after=limits.ENOUGH)
def old_weights(chart: Chart) -> Finding | None:
    points, limit = chart.curve("mismatch"), mismatch_limit(chart)
    began, ended = points[0][1], last(points)
    if began > limit or ended <= limit or ended <= first(points) + limit:
        return None
    return Finding(
        evidence=f"sampler and trainer differ by {began:.2g} nats a token at step 1, by {ended:.3g} in the "
                 "last third",
        consequence="the samples come from the weights that the run began with: what is learned is never "
                    "tried out",
        remedy="send the sampler the trained weights before every collection: an adapter that is loaded "
               "again under its old name may be answered from a cache",
        figures={"first": began, "last": ended}, steps=span(points))


@symptom("sampler and trainer disagree", "their log-probabilities of one token differ", needs=("mismatch",))
def mismatch(chart: Chart) -> Finding | None:
    points, limit = chart.curve("mismatch"), mismatch_limit(chart)
    usual = median(values(points))
    filtered = [chart.setting(f"rollouts.{name}", off) != off
                for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))]
    if usual <= limit or any(filtered):  # a filter's difference is corrected
        return None
    return Finding(
        evidence=f"sampler and trainer differ by {usual:.3g} nats a token (limit {limit:g})",
        consequence="the samples come from another distribution than the one that is trained: advantages are "
                    "credited to tokens by wrong probabilities, and the ratio corrects nothing",
        remedy="sample with the trained weights at rollouts.temperature, in the same "
               "precision (optim.precision)",
        figures={"mismatch": usual, "limit": limit}, steps=span(points))


def directions(chart: Chart) -> list[tuple[int, float]]:
    """(step, correlation of the samples' advantage with the update's change of their mean log-prob), for
    steps whose samples differ."""
    points = []
    for step, rows in chart.shown.items():
        pairs = [pair for row in rows if (pair := advantage_and_change(row))]
        if len(pairs) > 2 and (x := correlation(*zip(*pairs, strict=True))) is not None:
            points.append((step, x))
    return points


def advantage_and_change(row: JsonMapping) -> tuple[float, float] | None:
    columns = row["columns"]
    moved = trained(columns, "moved")
    adv = number(row.get("adv"))
    return (adv, fmean(moved)) if moved and math.isfinite(adv) and all(map(math.isfinite, moved)) else None


def fresh(chart: Chart) -> list[JsonMapping]:
    """The shown samples of steps before the first update on them."""
    used = {step for step, moved in chart.curve("approx_kl") if moved > limits.USED}
    return [row for step, rows in chart.shown.items() if step not in used for row in rows]


def pulled(chart: Chart) -> list[tuple[bool, bool]]:
    """Of each token with an advantage: whether the loss pulls at it, and whether it pulls the other way."""
    tokens = []
    for row in [] if chart.taught else fresh(chart):
        columns = row["columns"]
        if "adv" in columns and "pull" in columns:
            tokens += [(pull != 0, adv * pull < 0) for adv, pull in
                       zip(trained(columns, "adv"), trained(columns, "pull"), strict=True)
                       if abs(adv) > limits.NO_ADVANTAGE]
    return tokens


@symptom("wrong sign or mask", "what is praised becomes less likely, or is not trained whole",
         needs=("samples moved",))
def wrong_sign(chart: Chart) -> Finding | None:
    points, tokens = directions(chart), pulled(chart)
    usual = fmean(values(points)) if len(points) >= limits.SHOWN else 0.0
    other_way = fmean(wrong for _, wrong in tokens) if tokens else 0.0
    if usual >= limits.AGAINST and other_way <= 0.5:
        return partly_masked(chart)
    return Finding(
        evidence=f"advantage and change of log-probability correlate by {usual:+.2f} over {len(points)} "
                 "steps: what is praised becomes less likely" if usual < limits.AGAINST else
                 f"of {other_way:.0%} of the tokens the loss lowers what has a positive advantage and raises "
                 "what has a negative one",
        consequence="the policy learns the opposite of what is paid",
        remedy="turn the sign of the surrogate's loss, or of the reward: the loss is -adv * log pi",
        figures={"correlation": usual, "other way": other_way}, steps=span(points) if points else None)


def partly_masked(chart: Chart) -> Finding | None:
    whole = [fmean(map(bool, row["columns"]["mask"])) for rows in chart.shown.values() for row in rows
             if row.get("finished") and not row.get("turns") and any(row["columns"]["mask"])]
    pulls = [moved for moved, _ in pulled(chart)]
    masked = fmean(whole) if len(whole) >= limits.SHOWN else 1.0
    share = min(masked, fmean(pulls) if pulls else 1.0)
    if share >= limits.MASKED:
        return None
    return Finding(
        evidence=f"of the tokens of finished replies {share:.0%} are trained" + (
            ": the loss of the others does not depend on their log-probability" if share < masked else ""),
        consequence="part of what the policy wrote is neither praised nor blamed",
        remedy="let the mask, and a surrogate of your own, cover every sampled token, the stop token "
               "included, and no token of the prompt",
        figures={"trained": share}, steps=(min(chart.shown), max(chart.shown)))


@symptom("stop token not trained", "where a reply ends is not learned", needs=("stop_trained|samples mask",))
def stop_token(chart: Chart) -> Finding | None:
    rows = [row["columns"] for row in fresh(chart) if row.get("finished") and any(row["columns"]["mask"])
            and not row.get("turns")]
    ends = [float(bool(columns["mask"][-1]) and columns.get("pull", [1])[-1] != 0) for columns in rows
            if any(columns.get("pull", [1]))]
    shares = [*(values(chart.curve("stop_trained")) or [1.0]), *(
        [fmean(ends)] if len(ends) >= limits.SHOWN else [])]
    if min(shares) >= limits.STOPS:
        return None
    return Finding(
        evidence=f"of {1 - min(shares):.0%} of the finished replies the stop token is not trained",
        consequence="the model is not taught where a reply ends: replies run on to the limit",
        remedy="let the mask cover the stop token: it is the last token of the assistant's turn, and the "
               "chat template has to write it inside of that turn",
        figures={"trained": min(shares)}, steps=(1, chart.steps))


@symptom("advantages of other samples", "what is praised is not what scored",
         needs=("samples mask", "reward"))
def other_rows(chart: Chart) -> Finding | None:
    groups: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for step, rows in chart.shown.items():
        for row in rows:
            columns = row["columns"]
            pull = trained(columns, "pull" if "pull" in columns else "adv")
            if pull and not row.get("turns") and math.isfinite(score := number(row.get("score"))):
                groups.setdefault((step, str(row.get("prompt"))), []).append((score, fmean(pull)))
    found = [x for pairs in groups.values()
             if len(pairs) > 2 and (x := correlation(*zip(*pairs, strict=True))) is not None]
    if not chart.row.get("compares") or len(found) < limits.GROUPS or fmean(found) >= limits.CREDITED:
        return None
    return Finding(
        evidence=f"within {len(found)} groups score and advantage correlate by {fmean(found):+.2f}, and by "
                 "nearly 1 where each sample has its own",
        consequence="samples are praised for what others said: nothing is learned",
        remedy="look at the order of rows between scoring and credit: verdicts, advantages and tokens of a "
               "sample have to stand in the same row",
        figures={"correlation": fmean(found), "groups": len(found)},
        steps=(min(chart.shown), max(chart.shown)))


@symptom("preferences the wrong way round", "rejected answers become likelier than chosen ones",
         needs=("data judged|margin|accuracy",))
def wrong_way(chart: Chart) -> Finding | None:
    """The task's own verifier prefers the rejected answers; or the margin of the labels falls."""
    data = chart.info.get("data") or {}
    judged, against = number(data.get("judged", 0)), number(data.get("judged_against", 0))
    remedy = "swap the chosen and the rejected answers of the data, or the two in the row's loss"
    consequence = "the model learns what the annotators rejected"
    if judged >= limits.JUDGED and against > 0.5 * judged + limits.SIGMAS * math.sqrt(judged) / 2:
        return Finding(evidence=f"of {judged:.0f} pairs the task's verifier scores the rejected answer "
                                f"higher in {against:.0f}",
                       consequence=consequence, remedy=remedy, figures={"judged": judged, "against": against})
    margin, right = chart.curve("margin"), chart.curve("accuracy")
    drawn = str(chart.row.get("source", "")).startswith("rollouts")  # new pairs at each step have no trend
    if chart.row.get("kind") != "preference" or drawn or min(len(margin), len(right)) < limits.ENOUGH:
        return None
    if gain(margin) >= -limits.MARGIN or last(right) >= first(right) or last(right) > 0.5 - limits.EVEN:
        return None
    return Finding(
        evidence=f"the margin of chosen over rejected answers fell from {first(margin):.3g} to "
                 f"{last(margin):.3g}, and the accuracy from {first(right):.2f} to {last(right):.2f}",
        consequence=consequence, remedy=remedy, figures={"margin": gain(margin)}, steps=span(margin))


@symptom("stale reference", "policy and reference differ before the first update", needs=("kl|chosen",))
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


@symptom("reference follows the policy", "there is no distance to it, though the weights move",
         needs=("kl|chosen",), after=limits.ENOUGH)
def following_reference(chart: Chart) -> Finding | None:
    if chart.row.get("kind") == "preference":
        far = values(chart.curve("chosen")) + values(chart.curve("rejected"))
        moves = bool(chart.constant("reference")) and max(values(chart.curve("grad_norm")), default=0.0) > 0
        limit = limits.ROUNDING
    else:
        used = {step for step, moved in chart.curve("approx_kl") if moved > limits.USED}
        far = [value for step, value in chart.curve("kl") if step > 1 and step not in used]
        size = max(values(step_sizes(chart)), default=0.0)
        moves, limit = size > limits.STILL_STEP, limits.FOLLOWS * size**2
    if not moves or len(far) < 3 or max(map(abs, far)) > limit:
        return None
    return Finding(
        evidence=f"the distance to the reference is {max(map(abs, far)):.1g} nats at every step, while the "
                 "weights move",
        consequence="the leash holds nothing: the KL is measured to the policy itself",
        remedy="let the reference be a frozen copy of the model that the run starts from: not the trained "
               "module itself, nor a copy that is refreshed",
        figures={"kl": max(map(abs, far))}, steps=(2, chart.steps))
