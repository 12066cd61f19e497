"""What each number in the metrics means: one plain sentence, when to worry, the formula, where it comes from.

The command line and the studio show these same words. Names that carry a number or a part (pass@4, reward/format) are
explained by their family.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry: `meaning` in one sentence, `healthy` says what to expect and what to worry about."""

    name: str
    meaning: str
    healthy: str
    formula: str
    source: str

    def __str__(self) -> str:
        return f"{self.name}: {self.meaning}\n  healthy: {self.healthy}\n  formula: {self.formula}\n  source:  {self.source}"


_ROLLOUTS, _EVAL = "the rollouts of the step", "evaluation on held-out problems"
_TRAIN, _CLOCK, _PAIRS = "the training pass", "the clock", "the pairs of the step"
_STEPS = "the labelled replies"

_ALL = (
    Metric(
        name="loss", meaning="The quantity whose gradient moves the weights in this step.",
        healthy="In supervised and preference training it falls. In policy training it hovers around zero and says nothing "
                "about progress: look at the reward.",
        formula="sum over tokens of loss * weight", source=_TRAIN),
    Metric(
        name="reward", meaning="The mean score that the verifier or reward model gave to the step's samples.",
        healthy="It rises, unevenly. Stuck at 0: no sample is ever right, so there is nothing to learn from; try easier "
                "problems or a better start. If it rises while held-out pass@1 falls, the reward is being gamed.",
        formula="mean over samples of score", source=_ROLLOUTS),
    Metric(
        name="reward_std", meaning="How much the scores of one prompt's samples differ, averaged over prompts.",
        healthy="Above 0. Near 0 the samples of a group all score alike, and group methods such as GRPO get no signal.",
        formula="mean over groups of std(scores in the group)", source=_ROLLOUTS),
    Metric(
        name="pass@1", meaning="The share of single samples that solve a held-out problem.",
        healthy="It rises over training. Read it with its interval: a change smaller than the interval may be luck.",
        formula="mean over problems of correct / samples", source=_EVAL),
    Metric(
        name="pass@8", meaning="The share of held-out problems that at least one of eight samples solves.",
        healthy="At least pass@1. If it falls while pass@1 rises, the model is narrowing to fewer ways of answering.",
        formula="1 - C(n-c, k) / C(n, k), with c of n samples correct and k = 8", source=_EVAL),
    Metric(
        name="greedy", meaning="The share of held-out problems solved when the likeliest token is taken at each place.",
        healthy="Usually at or above pass@1. Far below it: the model's favourite answer is worse than its average one.",
        formula="correct / problems at temperature 0", source=_EVAL),
    Metric(
        name="format", meaning="The share of samples in the form that the task asks for, right or wrong.",
        healthy="Close to 1 after supervised training. A fall in the middle of policy training often comes before a collapse.",
        formula="samples in form / samples", source=_EVAL),
    Metric(
        name="lenient", meaning="pass@1 by the lenient reading: the right answer is there, marked as such or not; only "
                                "the strict reading is paid.",
        healthy="A little above pass@1. A wide gap is a matter of form, which a few demonstrations mend.",
        formula="mean over problems of right answers, read leniently / samples", source=_EVAL),
    Metric(
        name="length", meaning="The mean number of tokens in a sampled completion, the stop token included.",
        healthy="It may grow if writing out steps helps. Growth without better scores is padding; a jump to the limit "
                "is a loop.",
        formula="mean over samples of tokens", source=_ROLLOUTS),
    Metric(
        name="mean_length", meaning="The mean number of tokens in a completion on held-out problems.",
        healthy="As for length: growth should come with better answers.",
        formula="mean over samples of tokens", source=_EVAL),
    Metric(
        name="finished", meaning="The share of held-out samples that stopped by themselves within the length limit.",
        healthy="Near 1. If it falls, raise the limit or look for loops.",
        formula="samples with a stop token / samples", source=_EVAL),
    Metric(
        name="kl", meaning="How far the policy has moved from the reference model, per token, on its own samples.",
        healthy="It starts at 0 and rises slowly. Above about 0.1 a token look at the samples; a jump means that an update was "
                "too large.",
        formula="mean over tokens of k3 = exp(-d) - 1 + d, with d = logp - ref_logp", source=_TRAIN),
    Metric(
        name="kl_k1", meaning="The plain estimate of the same distance as kl, which may come out below zero.",
        healthy="On average equal to kl. If the two part ways, few tokens carry most of the distance.",
        formula="mean over tokens of d = logp - ref_logp", source=_TRAIN),
    Metric(
        name="entropy", meaning="How undecided the model is about each next token: 0 is certain.",
        healthy="It falls slowly as training sharpens the model. Near 0 early on: all samples are alike and learning stops. A "
                "steep rise: the model is falling apart.",
        formula="mean over tokens of -sum over v of p(v) log p(v)", source=_TRAIN),
    Metric(
        name="clip_fraction", meaning="The share of tokens on which the clip of the ratio held the update back.",
        healthy="0 when each batch of samples is used once; 0.01 to 0.2 with several updates. Above 0.3: lower the rate or "
                "take fewer updates per batch.",
        formula="clipped tokens / tokens", source=_TRAIN),
    Metric(
        name="ratio_max", meaning="The largest ratio of new to old probability over the tokens of the step.",
        healthy="1 on the first update on fresh samples, a few after several. Tens or more: a few tokens moved far.",
        formula="max over tokens of exp(logp - old_logp)", source=_TRAIN),
    Metric(
        name="mismatch", meaning="How much the sampler and the trainer disagree about the log-probability of the same token.",
        healthy="Below 1e-4 in float32 and 0.02 in bfloat16. More means that samples come from a model other than the one "
                "trained: a wrong temperature, mask or weight copy.",
        formula="mean over tokens of |sampler_logp - old_logp|", source=_TRAIN),
    Metric(
        name="approx_kl", meaning="How far the policy has moved from the one that drew the samples, per token.",
        healthy="0 on the first update on fresh samples, below about 0.02 after several. More: lower the rate or take "
                "fewer updates.",
        formula="mean over tokens of k3 = exp(d) - 1 - d, with d = logp - old_logp", source=_TRAIN),
    Metric(
        name="grad_norm", meaning="The length of the gradient before it is clipped.",
        healthy="Of one size for most of a run. A spike of ten times is one odd batch; steady growth warns of divergence.",
        formula="sqrt of the sum of squared gradients", source=_TRAIN),
    Metric(
        name="lr", meaning="The learning rate of this step, after warm-up and schedule.",
        healthy="As planned. Too high shows as rising kl and falling format; too low as a flat reward.",
        formula="optim.lr * schedule(step)", source="the optimizer"),
    Metric(
        name="flat_groups", meaning="The share of prompts whose samples all got the same score, so that they teach nothing.",
        healthy="Below about 0.5. Near 1 the problems are all too hard or all too easy for the model.",
        formula="groups with equal scores / groups drawn", source=_ROLLOUTS),
    Metric(
        name="resampled", meaning="How many extra prompts were drawn to replace groups that taught nothing.",
        healthy="0 unless the method resamples (DAPO). Always at the limit: most of the sampling is wasted, change the "
                "problems.",
        formula="groups drawn - groups wanted", source=_ROLLOUTS),
    Metric(
        name="truncated", meaning="The share of samples that hit the length limit instead of stopping by themselves.",
        healthy="Near 0. If it grows, raise rollouts.max_new_tokens or look for loops: a cut answer can't be right.",
        formula="samples without a stop token / samples", source=_ROLLOUTS),
    Metric(
        name="skipped", meaning="1 if the step's loss or gradient was not finite and the weights were left as they were.",
        healthy="0. Now and then: one bad batch, its ids stand in the events. Several in a row end the run.",
        formula="1 if loss or grad_norm is nan or infinite, else 0", source="the optimizer"),
    Metric(
        name="tokens", meaning="How many tokens went through training in this step, prompts included.",
        healthy="Steady, or growing with length. It is what the time of a step depends on.",
        formula="sum over rows of tokens that are not padding", source="the batch"),
    Metric(
        name="time/step", meaning="Seconds from the end of the last step to the end of this one.",
        healthy="Steady. The part that is neither sampling nor training is scoring, evaluation and saving.",
        formula="wall-clock seconds", source=_CLOCK),
    Metric(
        name="time/sample", meaning="Seconds spent drawing and scoring the step's samples.",
        healthy="Usually the larger part of a policy step; it grows with length.",
        formula="wall-clock seconds", source=_CLOCK),
    Metric(
        name="time/score", meaning="Seconds spent on old, reference and critic passes and on advantages, before training.",
        healthy="Small next to sampling; it grows with tokens and with a reference or a critic.",
        formula="wall-clock seconds", source=_CLOCK),
    Metric(
        name="time/train", meaning="Seconds spent in the forward and backward passes and the update.",
        healthy="Steady; it grows with tokens.",
        formula="wall-clock seconds", source=_CLOCK),
    Metric(
        name="value_loss", meaning="How far the critic's guesses of the final reward are from what came out.",
        healthy="It falls at first, then follows the reward's spread. Rising: the policy changes faster than the critic "
                "learns.",
        formula="mean over tokens of (value - return)^2 / 2, with the value clipped around the old one", source=_TRAIN),
    Metric(
        name="explained_variance", meaning="How much of the spread in returns the critic foresees: 1 is all, 0 is none.",
        healthy="Above 0 and rising. Below 0 the critic is worse than saying the mean, and makes advantages noisier.",
        formula="1 - Var(value - return) / Var(return)", source=_TRAIN),
    Metric(
        name="value", meaning="The mean reward that the critic expects at the tokens of the step.",
        healthy="It follows return, with a lag. Far from it for long: the critic learns too slowly.",
        formula="mean over tokens of value", source=_TRAIN),
    Metric(
        name="return", meaning="The mean target that the critic is trained towards.",
        healthy="It follows the reward, less the KL penalty where a method puts that into the reward.",
        formula="mean over tokens of adv + value, before advantages are whitened", source=_TRAIN),
    Metric(
        name="accuracy", meaning="The share of pairs, or of labelled steps or answers, that the model's score gets right.",
        healthy="From 0.5 upwards. 1.0 on what it was trained on is memory: judge by what was held out.",
        formula="pairs with chosen > rejected / pairs; steps with score above 0 exactly if right / steps; a tie counts half",
        source=_PAIRS),
    Metric(
        name="accuracy_right", meaning="The share of right steps or answers that score above 0.",
        healthy="Read it with accuracy_wrong: a model that says right to everything has 1 here and 0 there.",
        formula="right steps with score > 0 / right steps, a score of 0 counts half", source=_STEPS),
    Metric(
        name="accuracy_wrong", meaning="The share of wrong steps or answers that score below 0.",
        healthy="Read it with accuracy_right. Low: mistakes go unseen, and a policy trained on this model will make them.",
        formula="wrong steps with score < 0 / wrong steps, a score of 0 counts half", source=_STEPS),
    Metric(
        name="balanced_accuracy", meaning="The mean of accuracy_right and accuracy_wrong on held-out replies.",
        healthy="From 0.5, which is guessing, upwards, whatever the share of right steps is.",
        formula="(accuracy_right + accuracy_wrong) / 2", source=_EVAL),
    Metric(
        name="right_steps", meaning="The share of the labelled steps or answers that are right.",
        healthy="Between 0.2 and 0.8. Near 0 or 1 there is little to tell apart: take another generator.",
        formula="labels that say right / labels", source=_STEPS),
    Metric(
        name="margin", meaning="By how much the chosen answers outscore the rejected ones on average.",
        healthy="It grows from 0. Growing without end means over-fitting: stop earlier or raise beta.",
        formula="mean of chosen - rejected", source=_PAIRS),
    Metric(
        name="chosen", meaning="The mean score of the preferred answers.",
        healthy="For DPO and its kin it may fall a little while the margin grows; a steep fall makes all answers unlikely.",
        formula="mean score of chosen answers (for DPO the sum of logp - ref_logp)", source=_PAIRS),
    Metric(
        name="rejected", meaning="The mean score of the answers that were not preferred.",
        healthy="It falls below chosen. If both fall together, add a likelihood term on the chosen answers or lower the rate.",
        formula="mean score of rejected answers (for DPO the sum of logp - ref_logp)", source=_PAIRS),
    Metric(
        name="baseline", meaning="The mean score above which KTO counts an answer as improved.",
        healthy="At or a little above 0; it grows as the policy moves away from the reference.",
        formula="the batch's estimate of the distance to the reference, not below 0", source="the batch"),
    Metric(
        name="kl_reply", meaning="How far the policy is from where it began, in nats per whole reply.",
        healthy="It grows and levels off. What a leash should hold; in the tens, the policy has left the language it knew.",
        formula="mean over samples of the sum over tokens of logp - ref_logp", source=_ROLLOUTS),
    Metric(
        name="kl_coefficient", meaning="The weight of the KL in the reward at this step.",
        healthy="Constant, or, with anchor.target, steered: it rises while the KL is above the target and falls below it.",
        formula="beta (1 + clip(kl_reply / target - 1, -0.2, 0.2) samples / horizon)", source=_ROLLOUTS),
    Metric(
        name="proxy", meaning="The mean score that the reward model gives to samples on held-out prompts.",
        healthy="It rises with reward, the true measure beside it. If it rises while reward falls, the policy games the reward "
                "model: raise anchor.kl or stop earlier.",
        formula="mean over samples of the reward model's score", source=_EVAL),
    Metric(
        name="chosen_share", meaning="The share of the step's samples that were chosen to be learned from.",
        healthy="2 / group_size for pairs, 1 / group_size for best-of-n. Near 0: the samples all score alike, or none passes.",
        formula="chosen samples / samples", source=_ROLLOUTS),
    Metric(
        name="kl_bound", meaning="The most that picking the best of n can move the policy away from itself.",
        healthy="0.64 for n = 4, 1.2 for n = 8, 1.8 for n = 16: it grows slowly, which is why best-of-n is gentle.",
        formula="log n - (n - 1) / n", source=_ROLLOUTS),
    Metric(
        name="ptx_loss", meaning="The negative log-likelihood of the texts that are imitated beside the rollouts.",
        healthy="Steady: what was learned before is kept. Rising: raise anchor.ptx.",
        formula="mean over the texts' tokens of -logp", source=_TRAIN),
    Metric(
        name="disagreement", meaning="How much the members of an ensemble of reward models differ.",
        healthy="Small on answers like those of the labelled pairs. It grows where the labels do not decide: there the policy "
                "is on its own.",
        formula="standard deviation over members, mean over pairs or samples", source=_PAIRS),
    Metric(
        name="ece", meaning="How far the reward model's stated chances are from how often it is right, on held-out pairs.",
        healthy="Below about 0.05. More: its gaps are too wide (overfitted; smooth the labels) or too narrow.",
        formula="sum over bins of share |accuracy - confidence|, confidence = sigmoid(|gap|)", source=_EVAL),
    Metric(
        name="errors", meaning="Samples that could not be judged, for a reason that is not the model's (a broken sandbox).",
        healthy="0. Such samples are left out of the loss, never scored 0; if they keep coming, mend the verifier.",
        formula="verdicts with an infrastructure error", source=_ROLLOUTS),
    Metric(
        name="repetition", meaning="How much of a completion repeats itself.",
        healthy="Low and steady. A rise, with length, is a model going round in circles: stop and lower the rate.",
        formula="1 - distinct n-grams / n-grams", source=_ROLLOUTS),
)
_PARTS = {  # parts of verdicts that mean the same in every task that has them
    "correct": "The share of samples whose answer is right by the reading that is paid.",
    "lenient": "The share of samples whose answer is right by the lenient reading, which is watched and not paid.",
    "format": "The share of samples in the format that the task asks for, right or wrong.",
    "partial": "What reasoning-gym's own scorers give to the answers, from 0 to 1: watched, for only a full 1 is paid.",
    "instruction": "The share of the constraints that are kept: watched, for a reply is paid when it keeps all of them.",
    "instruction_lenient": "The share of the constraints that are kept by the lenient reading, which is watched and not paid.",
}
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def explain(name: str) -> Metric:
    """The entry of a metric. explain("pass@4") and explain("reward/format") are made from their family."""
    if name in METRICS:
        return METRICS[name]
    if found := re.fullmatch(r"pass@([1-9]\d*)", name):
        k = found[1]
        return Metric(
            name=name, meaning=f"The share of held-out problems that at least one of {k} samples solves.",
            healthy=METRICS["pass@8"].healthy, formula=METRICS["pass@8"].formula.replace("k = 8", f"k = {k}"), source=_EVAL)
    if found := re.fullmatch(r"reward/(.+)", name):
        return Metric(
            name=name, meaning=_PARTS.get(found[1], f"The mean of one part of the verdicts, {found[1]}."),
            healthy="The parts that are paid make the reward together: look here for the part that moves it. One that is only "
                    "watched often rises first.",
            formula=f"mean over samples of the verdict's part {found[1]!r}", source=_ROLLOUTS)
    near = difflib.get_close_matches(name.lower().replace("-", "_"), METRICS, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(METRICS)}"
    raise ValueError(f"no metric is called {name!r}; {hint}")
