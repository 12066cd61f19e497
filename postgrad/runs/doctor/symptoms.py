"""The symptoms: one pure function of a run's chart each, and the order in which they are reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import Chart, Finding, Point, Symptom, correlation, first, last, span, values
from postgrad.runs.rows import JsonMapping, number

FORMS = ("format", "think", "boxed")  # parts of a verdict that judge the form alone


def symptom(name: str, about: str, *, needs: tuple[str, ...] = (),
            after: int = 0) -> Callable[[Callable[[Chart], Finding | None]], Symptom]:
    """Decorates the function that finds a symptom."""
    return lambda find: Symptom(name=name, about=about, find=find, needs=needs, after=after)


# what makes the figures worthless: data, verifier, sampler, sign

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


def trained(columns: JsonMapping, name: str) -> list[float]:
    """A column's values at the trained tokens."""
    return [number(x) for x, kept in zip(columns.get(name, ()), columns["mask"], strict=False) if kept]


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


# the update: its size, its limits, the distance from the start, the critic

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


def step_sizes(chart: Chart) -> list[Point]:
    """(step, mean absolute change of a token's log-prob by the update on it, in nats)."""
    points = []
    for step, rows in chart.shown.items():
        moved = [abs(x) for row in rows for x in trained(row["columns"], "moved") if math.isfinite(x)]
        points += [(step, fmean(moved))] if moved else []
    return points


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


def spread_at_start(chart: Chart) -> float:
    """The standard deviation of scores within a group in the first third: the unit of gains and losses."""
    std = chart.curve("reward_std")
    return first(std) if std and first(std) > 0 else 1.0


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


def tighter_leash(chart: Chart) -> str:
    weight = chart.constant("kl_in_loss") or chart.constant("kl_in_reward") or chart.constant("beta")
    leash = f"set kl.coef={max(0.02, 3 * weight):.2g}" + (f" (it is {weight:g})" if weight > 0 else "")
    return f"{leash}, or end the run sooner; in a row of your own look at the sign of its KL"


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


# what is learned: nothing, too little, or something else

def gain(points: list[Point]) -> float:
    return last(points) - first(points)


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


def evaluated_quality(chart: Chart) -> list[Point]:
    """The held-out reward by the task's own verifier, else pass@1."""
    return chart.evaluated("reward") or chart.evaluated("pass@1")


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


def chance(chart: Chart, *steps: int) -> float:
    """How far two evaluations may differ by chance: the root of the sum of their squared half intervals."""
    name = "reward_interval" if chart.evaluated("reward") else "pass@1_interval"
    ends = [row[name] for row in chart.evals if row["step"] in steps and row.get(name)]
    return math.hypot(*((number(high) - number(low)) / 2 for low, high in ends))


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
        consequence="a cut answer cannot be right, so that length is punished and not what was said",
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


MINOR = (critic_explains_nothing, clip, gradient_clipped, small_group, repeated)  # waste samples or time

SYMPTOMS = (  # worst first; of two that occur together, the cause before its effect
    # the figures are worthless
    leaked, old_weights, mismatch, stale_reference, following_reference, wrong_way, wrong_sign, stop_token,
    other_rows, verifier_errors, contradiction,
    # the training breaks
    skipped_steps, rate_too_high, rate_too_low, dead_head, tight_leash,
    reward_collapse,
    # something else is learned
    form_paid, kl_explosion, length_creep, proxy_diverges, entropy_collapse, truncation, no_signal,
    *MINOR, failed,
)
