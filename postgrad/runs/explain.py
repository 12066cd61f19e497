"""What each logged metric means: one sentence, what is healthy, the formula, the source.

The command line and the studio show these texts. Names with a number or a part (pass@4, reward/format) are
explained by their family.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A run warns once, with the advice, when the metric is above `above`."""

    above: float
    unit: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """An entry. meaning: one sentence; healthy: what to expect, and what is a warning sign."""

    name: str
    meaning: str
    healthy: str
    formula: str
    source: str
    limit: Limit | None = None

    def __str__(self) -> str:
        return (f"{self.name}: {self.meaning}\n  healthy: {self.healthy}\n  formula: {self.formula}\n"
                f"  source:  {self.source}")


# sources
ROLLOUTS, EVAL = "the rollouts of the step", "evaluation on held-out problems"
TRAIN, CLOCK, PAIRS = "the training pass", "the clock", "the pairs of the step"
STEPS = "the labelled replies"

# what nearly every run logs: scores, lengths, distances, the update and the clock
USUAL = (
    Metric(
        name="loss", meaning="The quantity whose gradient moves the weights in this step.",
        healthy="In supervised and preference training it falls. In policy training it hovers around zero "
                "and says nothing about progress: look at the reward.",
        formula="sum over tokens of loss * weight", source=TRAIN),
    Metric(
        name="reward", meaning="The mean score that the verifier or reward model gave to the step's samples.",
        healthy="It rises, unevenly. Stuck at 0: no sample is ever right, so there is nothing to learn from; "
                "try easier problems or a better start. If it rises while held-out pass@1 falls, the reward "
                "is being gamed.",
        formula="mean over samples of score", source=ROLLOUTS),
    Metric(
        name="reward_std",
        meaning="How much the scores of one prompt's samples differ, averaged over prompts.",
        healthy="Above 0. Near 0 the samples of a group all score alike, and group methods such as GRPO "
                "get no signal.",
        formula="mean over groups of std(scores in the group)", source=ROLLOUTS),
    Metric(
        name="pass@1", meaning="The share of single samples that solve a held-out problem.",
        healthy="It rises over training. Read it with its interval: a change smaller than the "
                "interval may be luck.",
        formula="mean over problems of correct / samples", source=EVAL),
    Metric(
        name="pass@8", meaning="The share of held-out problems that at least one of eight samples solves.",
        healthy="At least pass@1. If it falls while pass@1 rises, the model is narrowing to fewer "
                "ways of answering.",
        formula="1 - C(n-c, k) / C(n, k), with c of n samples correct and k = 8", source=EVAL),
    Metric(
        name="greedy",
        meaning="The share of held-out problems solved when the likeliest token is taken at each place.",
        healthy="Usually at or above pass@1. Far below it: the model's favourite answer is worse than "
                "its average one.",
        formula="correct / problems at temperature 0", source=EVAL),
    Metric(
        name="format", meaning="The share of samples in the form that the task asks for, right or wrong.",
        healthy="Close to 1 after supervised training. A fall in the middle of policy training often comes "
                "before a collapse.",
        formula="samples in form / samples", source=EVAL),
    Metric(
        name="lenient", meaning="pass@1 by the lenient reading: the right answer is there, marked as such or "
                                "not; only the strict reading is paid.",
        healthy="A little above pass@1. A wide gap is a matter of form, which a few demonstrations mend.",
        formula="mean over problems of right answers, read leniently / samples", source=EVAL),
    Metric(
        name="greedy_lenient",
        meaning="greedy by the lenient reading: the right answer is there, marked as such or not.",
        healthy="A little above greedy. A wide gap is a matter of form.",
        formula="right answers, read leniently / problems at temperature 0", source=EVAL),
    Metric(
        name="length", meaning="The mean number of tokens in a sampled completion, the stop token included.",
        healthy="It may grow if writing out steps helps. Growth without better scores is padding; a jump to "
                "the limit is a loop.",
        formula="mean over samples of tokens", source=ROLLOUTS),
    Metric(
        name="mean_length", meaning="The mean number of tokens in a completion on held-out problems.",
        healthy="As for length: growth should come with better answers.",
        formula="mean over samples of tokens", source=EVAL),
    Metric(
        name="answers", meaning="The replies to the first held-out problems, the same at each evaluation.",
        healthy="Right, and for the right reasons. Read them: a reward that is met in another way than meant "
                "shows here first.",
        formula="no number: prompts, replies and scores", source=EVAL),
    Metric(
        name="finished",
        meaning="The share of held-out samples that stopped by themselves within the length limit.",
        healthy="Near 1. If it falls, raise the limit or look for loops.",
        formula="samples with a stop token / samples", source=EVAL),
    Metric(
        name="kl",
        meaning="How far the policy has moved from the reference model, per token, on its own samples.",
        healthy="It starts at 0, rises and levels off; how far depends on what the task asks for. GRPO on "
                "the embedded word problems stays below 0.15 nats a token; on a form of reply that it has "
                "never written it goes to 1 or 2, with a low KL weight or none further. Above 3, or at a "
                "jump, an update was too large: look at the samples.",
        formula="mean over tokens of k3 = exp(-d) - 1 + d, with d = logp - ref_logp", source=TRAIN,
        limit=Limit(above=3.0, unit="nats a token", advice="look at the samples; where they have fallen "
                    "apart, lower optim.lr or raise kl.coef")),
    Metric(
        name="kl_k1", meaning="The plain estimate of the same distance as kl, which may come out below zero.",
        healthy="On average equal to kl. If the two part ways, few tokens carry most of the distance.",
        formula="mean over tokens of d = logp - ref_logp", source=TRAIN),
    Metric(
        name="teacher_kl",
        meaning="How far the policy is from its teacher, per token, on its own samples.",
        healthy="It falls, fast at first, and levels off above 0. Flat from the start: the rate is too low, "
                "or the teacher knows nothing that the policy does not. A rise: an update was too large.",
        formula="mean over tokens of logp - teacher_logp", source=TRAIN),
    Metric(
        name="entropy", meaning="How undecided the model is about each next token: 0 is certain.",
        healthy="It falls slowly as training sharpens the model. Near 0 early on: all samples are alike and "
                "learning stops. A steep rise: the model is falling apart.",
        formula="mean over tokens of -sum over v of p(v) log p(v)", source=TRAIN),
    Metric(
        name="clip_fraction",
        meaning="The share of tokens on which the clip of the ratio held the update back.",
        healthy="0 when each batch of samples is used once; 0.01 to 0.2 with several updates. Above 0.3: "
                "lower the rate or take fewer updates per batch.",
        formula="clipped tokens / tokens", source=TRAIN),
    Metric(
        name="ratio_max", meaning="The largest ratio of new to old probability over the tokens of the step.",
        healthy="1 on the first update on fresh samples, a few after several. Tens or more: a few "
                "tokens moved far.",
        formula="max over tokens of exp(logp - old_logp)", source=TRAIN),
    Metric(
        name="mismatch",
        meaning="How much the sampler and the trainer disagree about the log-probability of the same token.",
        healthy="Below 1e-4 in float32 and 0.02 in bfloat16. More means that samples come from a model other "
                "than the one trained: a wrong temperature, mask or weight copy.",
        formula="mean over tokens of |sampler_logp - old_logp|", source=TRAIN),
    Metric(
        name="staleness",
        meaning="How many optimizer steps the policy has made since the one that wrote these samples.",
        healthy="rollouts.async_depth times the updates of a collection, and what those updates add; lower "
                "in the first steps. 0 without rollouts.async_depth.",
        formula="optimizer steps made - optimizer steps behind the sampler's weights", source=ROLLOUTS),
    Metric(
        name="mismatch_kl",
        meaning="How far the sampler's distribution is from the trainer's, per token, with a correction on.",
        healthy="Below 1e-3. Growth over a run: the engines part as the policy changes, and so do sampled "
                "and trained text.",
        formula="mean over tokens of k3 = w - 1 - log w, with w = exp(old_logp - sampler_logp)",
        source=TRAIN),
    Metric(
        name="corrected_away",
        meaning="The share of tokens that the correction for another sampler drops.",
        healthy="Below 0.01. More: much of what is sampled is not learned from; look at mismatch_kl.",
        formula="tokens with a weight of 0 / tokens", source=TRAIN),
    Metric(
        name="effective_share",
        meaning="What the corrected tokens are worth, as a share of as many samples of the policy itself.",
        healthy="Above 0.9. Near 0: a few tokens have nearly all the weight.",
        formula="(sum of w)^2 / (tokens * sum of w^2)", source=TRAIN),
    Metric(
        name="approx_kl",
        meaning="How far the policy has moved from the one that drew the samples, per token.",
        healthy="0 on the first update on fresh samples, below about 0.02 after several. More: lower the "
                "rate or take fewer updates.",
        formula="mean over tokens of k3 = exp(d) - 1 - d, with d = logp - old_logp", source=TRAIN),
    Metric(
        name="grad_norm", meaning="The length of the gradient before it is clipped.",
        healthy="Of one size for most of a run. A spike of ten times is one odd batch; steady growth warns "
                "of divergence.",
        formula="sqrt of the sum of squared gradients", source=TRAIN),
    Metric(
        name="lr", meaning="The learning rate of this step, after warm-up and schedule.",
        healthy="As planned. Too high shows as rising kl and falling format; too low as a flat reward.",
        formula="optim.lr * schedule(step)", source="the optimizer"),
    Metric(
        name="flat_groups",
        meaning="The share of prompts whose samples all got the same score, so that they teach nothing.",
        healthy="Below about 0.5. Near 1 the problems are all too hard or all too easy for the model.",
        formula="groups with equal scores / groups drawn", source=ROLLOUTS),
    Metric(
        name="resampled", meaning="How many extra prompts were drawn to replace groups that taught nothing.",
        healthy="0 unless the method resamples (DAPO). Always at the limit: most of the sampling is wasted, "
                "change the problems.",
        formula="groups drawn - groups wanted", source=ROLLOUTS),
    Metric(
        name="truncated",
        meaning="The share of samples that hit the length limit instead of stopping by themselves.",
        healthy="Near 0. If it grows, raise rollouts.max_new_tokens or look for loops: a cut answer "
                "can't be right.",
        formula="samples without a stop token / samples", source=ROLLOUTS),
    Metric(
        name="skipped",
        meaning="1 if the step's loss or gradient was not finite and the weights were left as they were.",
        healthy="0. Now and then: one bad batch, its ids stand in the events. Several in a row end the run.",
        formula="1 if loss or grad_norm is nan or infinite, else 0", source="the optimizer"),
    Metric(
        name="tokens", meaning="How many tokens went through training in this step, prompts included.",
        healthy="Steady, or growing with length. It is what the time of a step depends on.",
        formula="sum over rows of tokens that are not padding", source="the batch"),
    Metric(
        name="sampled", meaning="How many tokens the policy wrote for this step.",
        healthy="Steady, or growing with length; with time/sample it gives the speed of sampling.",
        formula="sum over samples of the tokens written", source=ROLLOUTS),
    Metric(
        name="memory",
        meaning="GB that were taken at most so far: by tensors on the GPU, or by the process where there is "
                "none.",
        healthy="Steady after the first steps; `postgrad memory` says what to expect.",
        formula="peak bytes / 1e9", source="the machine"),
    Metric(
        name="time/step", meaning="Seconds from the end of the last step to the end of this one.",
        healthy="Steady. The part that is neither sampling nor training is scoring, evaluation and saving.",
        formula="wall-clock seconds", source=CLOCK),
    Metric(
        name="time/sample", meaning="Seconds spent drawing and scoring the step's samples.",
        healthy="Usually the larger part of a policy step; it grows with length.",
        formula="wall-clock seconds", source=CLOCK),
    Metric(
        name="time/wait",
        meaning="Seconds for which training waited for samples that were begun ahead of it.",
        healthy="Near 0: sampling keeps up. Near time/step: the samplers are the slower part; give them more "
                "machines, or shorter replies.",
        formula="wall-clock seconds", source=CLOCK),
    Metric(
        name="time/score",
        meaning="Seconds spent on old, reference and critic passes and on advantages, before training.",
        healthy="Small next to sampling; it grows with tokens and with a reference or a critic.",
        formula="wall-clock seconds", source=CLOCK),
    Metric(
        name="time/train", meaning="Seconds spent in the forward and backward passes and the update.",
        healthy="Steady; it grows with tokens.",
        formula="wall-clock seconds", source=CLOCK),
)

# episodes, critics, pairs, reward and process models, best-of-n
SPECIAL = (
    Metric(
        name="turns", meaning="The mean number of replies that the model wrote in an episode.",
        healthy="What the task needs. At rollouts.turns for all, episodes end without a verdict: allow more. "
                "Falling to 1, the model has stopped asking its tools.",
        formula="mean over episodes of replies", source=ROLLOUTS),
    Metric(
        name="new_rows",
        meaning="How often a turn began a new row, since the chat template rewrote what came before it.",
        healthy="0 for most templates. Where it is as many as the turns (templates that drop older "
                "thoughts), every turn is read anew and costs as much as a prompt.",
        formula="number of turns whose context is no continuation of the tokens so far", source=ROLLOUTS),
    Metric(
        name="value_loss", meaning="How far the critic's guesses of the final reward are from what came out.",
        healthy="It falls at first, then follows the reward's spread. Rising: the policy changes faster than "
                "the critic learns.",
        formula="mean over tokens of (value - return)^2 / 2, with the value clipped around the old one",
        source=TRAIN),
    Metric(
        name="explained_variance",
        meaning="How much of the spread in returns the critic foresees: 1 is all, 0 is none.",
        healthy="Above 0 and rising. Below 0 the critic is worse than saying the mean, and makes "
                "advantages noisier.",
        formula="1 - Var(value - return) / Var(return)", source=TRAIN),
    Metric(
        name="value", meaning="The mean reward that the critic expects at the tokens of the step.",
        healthy="It follows return, with a lag. Far from it for long: the critic learns too slowly.",
        formula="mean over tokens of value", source=TRAIN),
    Metric(
        name="return", meaning="The mean target that the critic is trained towards.",
        healthy="It follows the reward, less the KL penalty where a method puts that into the reward.",
        formula="mean over tokens of adv + value, before advantages are whitened", source=TRAIN),
    Metric(
        name="accuracy",
        meaning="The share of pairs, or of labelled steps or answers, that the model's score gets right.",
        healthy="From 0.5 upwards. 1.0 on what it was trained on is memory: judge by what was held out.",
        formula="pairs with chosen > rejected / pairs; steps with score above 0 exactly if right / steps; a "
                "tie counts half",
        source=PAIRS),
    Metric(
        name="accuracy_right", meaning="The share of right steps or answers that score above 0.",
        healthy="Read it with accuracy_wrong: a model that says right to everything has 1 here and 0 there.",
        formula="right steps with score > 0 / right steps, a score of 0 counts half", source=STEPS),
    Metric(
        name="accuracy_wrong", meaning="The share of wrong steps or answers that score below 0.",
        healthy="Read it with accuracy_right. Low: mistakes go unseen, and a policy trained on this model "
                "will make them.",
        formula="wrong steps with score < 0 / wrong steps, a score of 0 counts half", source=STEPS),
    Metric(
        name="balanced_accuracy",
        meaning="The mean of accuracy_right and accuracy_wrong on held-out replies.",
        healthy="From 0.5, which is guessing, upwards, whatever the share of right steps is.",
        formula="(accuracy_right + accuracy_wrong) / 2", source=EVAL),
    Metric(
        name="right_steps", meaning="The share of the labelled steps or answers that are right.",
        healthy="Between 0.2 and 0.8. Near 0 or 1 there is little to tell apart: take another generator.",
        formula="labels that say right / labels", source=STEPS),
    Metric(
        name="margin", meaning="By how much the chosen answers outscore the rejected ones on average.",
        healthy="It grows from 0. Growing without end means over-fitting: stop earlier or raise beta.",
        formula="mean of chosen - rejected", source=PAIRS),
    Metric(
        name="chosen", meaning="The mean score of the preferred answers.",
        healthy="For DPO and its kin it may fall a little while the margin grows; a steep fall makes all "
                "answers unlikely.",
        formula="mean score of chosen answers (for DPO the sum of logp - ref_logp)", source=PAIRS),
    Metric(
        name="rejected", meaning="The mean score of the answers that were not preferred.",
        healthy="It falls below chosen. If both fall together, add a likelihood term on the chosen answers "
                "or lower the rate.",
        formula="mean score of rejected answers (for DPO the sum of logp - ref_logp)", source=PAIRS),
    Metric(
        name="baseline", meaning="The mean score above which KTO counts an answer as improved.",
        healthy="At or a little above 0; it grows as the policy moves away from the reference.",
        formula="the batch's estimate of the distance to the reference, not below 0", source="the batch"),
    Metric(
        name="kl_reply", meaning="How far the policy is from where it began, in nats per whole reply.",
        healthy="It grows and levels off. Against a verifier 2 nats (word problems) to 9 (a new form of "
                "reply) were healthy here; above 40 the policy was destroyed. Against a reward model the "
                "true quality turned at 5 to 12 without a leash, and was highest at 2 to 3 with one: above 4 "
                "it worries. That is for replies of 7 to 35 tokens: longer ones travel further in sum.",
        formula="mean over samples of the sum over tokens of logp - ref_logp", source=ROLLOUTS,
        limit=Limit(above=4.0, unit="nats a reply", advice="from here on the true quality has been seen to "
                    "fall against a reward model; measure it, or raise kl.coef")),
    Metric(
        name="kl_coefficient", meaning="The weight of the KL in the reward at this step.",
        healthy="Constant, or, with kl.target, steered: it rises while the KL is above the target and "
                "falls below it.",
        formula="beta (1 + gain clip(kl_reply / target - 1, -0.2, 0.2)), once a collection", source=ROLLOUTS),
    Metric(
        name="proxy", meaning="The mean score that the reward model gives to samples on held-out prompts.",
        healthy="It rises with reward, the true measure beside it. If it rises while reward falls, the "
                "policy games the reward model: raise kl.coef or stop earlier.",
        formula="mean over samples of the reward model's score", source=EVAL),
    Metric(
        name="chosen_share", meaning="The share of the step's samples that were chosen to be learned from.",
        healthy="2 / group_size for pairs, 1 / group_size for best-of-n. Near 0: the samples all score "
                "alike, or none passes.",
        formula="chosen samples / samples", source=ROLLOUTS),
    Metric(
        name="kl_bound", meaning="The most that picking the best of n can move the policy away from itself.",
        healthy="0.64 for n = 4, 1.2 for n = 8, 1.8 for n = 16: it grows slowly, which is why "
                "best-of-n is gentle.",
        formula="log n - (n - 1) / n", source=ROLLOUTS),
    Metric(
        name="ptx_loss",
        meaning="The negative log-likelihood of the texts that are imitated beside the rollouts.",
        healthy="Steady: what was learned before is kept. Rising: raise ptx.coef.",
        formula="mean over the texts' tokens of -logp", source=TRAIN),
    Metric(
        name="disagreement", meaning="How much the members of an ensemble of reward models differ.",
        healthy="Small on answers like those of the labelled pairs. It grows where the labels do not decide: "
                "there the policy is on its own.",
        formula="standard deviation over members, mean over pairs or samples", source=PAIRS),
    Metric(
        name="ece", meaning="How far the reward model's stated chances are from how often it is right, on "
                            "held-out pairs.",
        healthy="Below about 0.05. More: its gaps are too wide (overfitted; smooth the labels) "
                "or too narrow.",
        formula="sum over bins of share |accuracy - confidence|, confidence = sigmoid(|gap|)", source=EVAL),
    Metric(
        name="errors",
        meaning="Samples that could not be judged, for a reason that is not the model's (a broken sandbox).",
        healthy="0. Such samples are left out of the loss, never scored 0; if they keep coming, "
                "mend the verifier.",
        formula="verdicts with an infrastructure error", source=ROLLOUTS),
    Metric(
        name="repetition", meaning="How much of a reply repeats itself.",
        healthy="Low and steady. A rise, with length, is a model going round in circles: stop and "
                "lower the rate.",
        formula="1 - distinct runs of four tokens / runs of four tokens, mean over replies", source=ROLLOUTS),
)

# how replies reason, in evaluations: looking back, languages, what follows the answer
REFLECTION = (
    Metric(
        name="turn_back", meaning="The share of replies that take back a wrong step, or give up a try, and "
                                  "go on from what is right.",
        healthy="It rises with pass@1 where a second try helps, as in countdown. Falling with fewer slips is "
                "as good; rising alone, the model doubts instead of solving.",
        formula="replies with a step of kind turn_back, by the task's checker / replies", source=EVAL),
    Metric(
        name="restart", meaning="The share of replies that drop several steps and begin again.",
        healthy="Rare, and dear: the tokens before it are lost. A rise with length and without pass@1 is "
                "wandering.",
        formula="replies with a step of kind restart, by the task's checker / replies", source=EVAL),
    Metric(
        name="recheck", meaning="The share of replies that check a right step, by doing it again or undoing "
                                "it.",
        healthy="It costs tokens and pays where slips are found. A rise without a rise of pass@1 or "
                "turn_back is ritual.",
        formula="replies with a step of kind recheck, by the task's checker / replies", source=EVAL),
    Metric(
        name="after_right", meaning="How many tokens a reply goes on for after its answer is worked out.",
        healthy="The closing tags and the answer: 6 for a word problem here. More is checking, or talk that "
                "earns nothing.",
        formula="tokens after the first step that solves the problem, mean over replies that have one",
        source=EVAL),
    Metric(
        name="worded", meaning="The share of replies whose thoughts have words, and so a language.",
        healthy="Read the other figures of language with it: with few worded replies they rest on few.",
        formula="replies with a function word of a known language in their thoughts / replies to prompts "
                "that say their language", source=EVAL),
    Metric(
        name="wrong_language", meaning="The share of worded replies that think mostly in another language "
                                       "than the prompt's.",
        healthy="0 where people are to read the thoughts. Rewards for answers alone leave it where it "
                "was or raise it: pay for language too.",
        formula="worded replies with more function words of other languages than of their own / worded "
                "replies", source=EVAL),
    Metric(
        name="mixed_languages", meaning="The share of worded replies that think in two languages or more.",
        healthy="0. As for wrong_language.",
        formula="worded replies with function words of their own language and of another / worded replies",
        source=EVAL),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in (*USUAL, *SPECIAL, *REFLECTION)}

_PARTS = {  # parts of verdicts that mean the same in every task that has them
    "correct": "The share of samples whose answer is right by the reading that is paid.",
    "lenient": "The share of samples whose answer is right by the lenient reading, which is "
               "watched and not paid.",
    "format": "The share of samples in the format that the task asks for, right or wrong.",
    "partial": "What reasoning-gym's own scorers give to the answers, from 0 to 1: watched, for only a "
               "full 1 is paid.",
    "instruction": "The share of the constraints that are kept: watched, for a reply is paid when it "
                   "keeps all of them.",
    "instruction_lenient": "The share of the constraints that are kept by the lenient reading, which is "
                           "watched and not paid.",
}


def explain(name: str) -> Metric:
    """The entry of a metric; that of "pass@4" or "reward/format" is made from its family."""
    if name in METRICS:
        return METRICS[name]
    eight = METRICS["pass@8"]
    if match := re.fullmatch(r"pass@([1-9]\d*)", name):
        return replace(eight, name=name, meaning=eight.meaning.replace("eight", match[1]),
                       formula=eight.formula.replace("k = 8", f"k = {match[1]}"))
    if match := re.fullmatch(r"reward/(.+)/correct", name):
        return Metric(
            name=name, meaning=f"pass@1 of the prompts of task {match[1]}, a part of the mixture.",
            healthy="Every part rises. One that falls while the whole rises pays for the others: give "
                    "it a run of its own, or see whether their replies can be told apart.",
            formula=f"right samples / samples, of the prompts of {match[1]}", source=EVAL)
    if match := re.fullmatch(r"reward/(.+)", name):
        return Metric(
            name=name, meaning=_PARTS.get(match[1], f"The mean of one part of the verdicts, {match[1]}."),
            healthy="The parts that are paid make the reward together: look here for the part that moves it. "
                    "One that is only watched often rises first.",
            formula=f"mean over samples of the verdict's part {match[1]!r}", source=ROLLOUTS)
    part, _, own = name.rpartition("/")
    if part and own in (*(metric.name for metric in REFLECTION), "length"):
        entry = METRICS["mean_length" if own == "length" else own]
        return replace(entry, name=name, formula=f"{entry.formula}, of the prompts of task {part} alone")
    near = difflib.get_close_matches(name.lower().replace("-", "_"), METRICS, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(METRICS)}"
    raise ValueError(f"no metric is called {name!r}; {hint}")
