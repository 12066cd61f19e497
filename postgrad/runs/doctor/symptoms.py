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


@symptom("sampler and trainer disagree", "their log-probabilities of one token differ", needs=("mismatch",))
def mismatch(chart: Chart) -> Finding | None:
    precision = chart.setting("optim.precision", "auto")
    half = precision == "bf16" or precision == "auto" and str(chart.setting("device", "cpu")) != "cpu"
    limit = limits.MISMATCH["bf16" if half else "fp32"]
    points = chart.curve("mismatch")
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


def trained(columns: JsonMapping, name: str) -> list[float]:
    """A column's values at the trained tokens."""
    return [number(x) for x, kept in zip(columns.get(name, ()), columns["mask"], strict=False) if kept]


@symptom("wrong sign or mask", "what is praised becomes less likely, or is not trained whole",
         needs=("samples moved",))
def wrong_sign(chart: Chart) -> Finding | None:
    points = directions(chart)
    if len(points) < limits.SHOWN or fmean(values(points)) >= limits.AGAINST:
        return partly_masked(chart)
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


@symptom("rate too high", "single updates destroy what the model could do", needs=("loss",),
         after=limits.ENOUGH)
def rate_too_high(chart: Chart) -> Finding | None:
    """Early updates that move their own samples far, and a reward that falls; without samples, a loss that
    rises."""
    if not (chart.has("samples moved") and chart.has("reward")):
        return loss_rises(chart)
    moved, reward = step_sizes(chart), chart.curve("reward")
    size = first(moved) if moved else 0.0
    began, ended = max(values(reward[: max(1, len(reward) // 3)])), last(reward)
    if size <= limits.STEP_SIZE or ended > began - limits.LOST * spread_at_start(chart):
        return None
    return Finding(
        evidence=f"in the first third an update moves its own samples by {size:.2g} nats a token; the reward "
                 f"fell from {began:.3g} to {ended:.3g}",
        consequence="single updates destroy what the model could do",
        remedy=change_rate(chart), figures={"step size": size, "reward before": began, "reward after": ended},
        steps=span(reward))


def spread_at_start(chart: Chart) -> float:
    """The standard deviation of scores within a group in the first third: the unit of gains and losses."""
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
        remedy=change_rate(chart), figures={"loss before": began, "loss after": ended}, steps=span(points))


def change_rate(chart: Chart, factor: float = 1 / 3) -> str:
    rate = chart.setting("optim.lr")
    return (f"set optim.lr={factor * float(rate):.1e} (it is {rate:g})" if rate
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
    if ended <= limits.LONGER * began or better > (0 if apart else limits.STILL * spread_at_start(chart)):
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


SYMPTOMS = (  # worst first; of two that occur together, the cause before its effect
    # the figures are worthless
    leaked, mismatch, stale_reference, wrong_sign, verifier_errors,
    # the training breaks
    skipped_steps, rate_too_high, dead_head,
    # something else is learned
    form_paid, kl_explosion, length_creep, proxy_diverges, entropy_collapse, truncation, no_signal,
    # samples or time are wasted
    critic_explains_nothing, clip, gradient_clipped, small_group, repeated, failed,
)
