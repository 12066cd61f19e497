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


@dataclass(frozen=True)
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

# name, meaning, healthy, formula, source

# what nearly every run logs: scores, lengths, distances, the update and the clock
USUAL = (
    Metric("loss", "The quantity whose gradient moves the weights in this step.",
           "In supervised and preference training it falls. In policy training it hovers around zero and "
           "says nothing about progress: look at the reward.",
           "sum over tokens of loss * weight", TRAIN),
    Metric("reward", "The mean score that the verifier or reward model gave to the step's samples.",
           "It rises, unevenly. Stuck at 0: no sample is ever right, so there is nothing to learn from; try "
           "easier problems or a better start. If it rises while held-out pass@1 falls, the reward is being "
           "gamed.",
           "mean over samples of score", ROLLOUTS),
    Metric("reward_std", "How much the scores of one prompt's samples differ, averaged over prompts.",
           "Above 0. Near 0 the samples of a group all score alike, and group methods such as GRPO get no "
           "signal.",
           "mean over groups of std(scores in the group)", ROLLOUTS),
    Metric("pass@1", "The share of single samples that solve a held-out problem.",
           "It rises over training. Read it with its interval: a change smaller than the interval may be "
           "luck.",
           "mean over problems of correct / samples", EVAL),
    Metric("pass@8", "The share of held-out problems that at least one of eight samples solves.",
           "At least pass@1. If it falls while pass@1 rises, the model is narrowing to fewer ways of "
           "answering.",
           "1 - C(n-c, k) / C(n, k), with c of n samples correct and k = 8", EVAL),
    Metric("greedy", "The share of held-out problems solved when the likeliest token is taken at each place.",
           "Usually at or above pass@1. Far below it: the model's favourite answer is worse than its "
           "average one.",
           "correct / problems at temperature 0", EVAL),
    Metric("format", "The share of samples in the form that the task asks for, right or wrong.",
           "Close to 1 after supervised training. A fall in the middle of policy training often comes "
           "before a collapse.",
           "samples in form / samples", EVAL),
    Metric("lenient",
           "pass@1 by the lenient reading: the right answer is there, marked as such or not; only the "
           "strict reading is paid.",
           "A little above pass@1. A wide gap is a matter of form, which a few demonstrations mend.",
           "mean over problems of right answers, read leniently / samples", EVAL),
    Metric("greedy_lenient",
           "greedy by the lenient reading: the right answer is there, marked as such or not.",
           "A little above greedy. A wide gap is a matter of form.",
           "right answers, read leniently / problems at temperature 0", EVAL),
    Metric("length", "The mean number of tokens in a sampled completion, the stop token included.",
           "It may grow if writing out steps helps. Growth without better scores is padding; a jump to the "
           "limit is a loop.",
           "mean over samples of tokens", ROLLOUTS),
    Metric("mean_length", "The mean number of tokens in a completion on held-out problems.",
           "As for length: growth should come with better answers.",
           "mean over samples of tokens", EVAL),
    Metric("answers", "The replies to the first held-out problems, the same at each evaluation.",
           "Right, and for the right reasons. Read them: a reward that is met in another way than meant "
           "shows here first.",
           "no number: prompts, replies and scores", EVAL),
    Metric("finished", "The share of held-out samples that stopped by themselves within the length limit.",
           "Near 1. If it falls, raise the limit or look for loops.",
           "samples with a stop token / samples", EVAL),
    Metric("kl", "How far the policy has moved from the reference model, per token, on its own samples.",
           "It starts at 0, rises and levels off; how far depends on what the task asks for. GRPO on the "
           "embedded word problems stays below 0.15 nats a token; on a form of reply that it has never "
           "written it goes to 1 or 2, with a low KL weight or none further. Above 3, or at a jump, an "
           "update was too large: look at the samples.",
           "mean over tokens of k3 = exp(-d) - 1 + d, with d = logp - ref_logp", TRAIN,
           Limit(above=3.0, unit="nats a token", advice=
                 "look at the samples; where they have fallen apart, lower optim.lr or raise kl.coef")),
    Metric("kl_k1", "The k1 estimate of the same KL, which can be negative.",
           "On average equal to kl. If the two differ, few tokens carry most of the KL.",
           "mean over tokens of d = logp - ref_logp", TRAIN),
    Metric("teacher_kl", "How far the policy is from its teacher, per token, on its own samples.",
           "It falls, fast at first, and levels off above 0. Flat from the start: the rate is too low, or "
           "the teacher knows nothing that the policy does not. A rise: an update was too large.",
           "mean over tokens of logp - teacher_logp", TRAIN),
    Metric("entropy", "How undecided the model is about each next token: 0 is certain.",
           "It falls slowly as training sharpens the model. Near 0 early on: all samples are alike and "
           "learning stops. A steep rise: the model is falling apart.",
           "mean over tokens of -sum over v of p(v) log p(v)", TRAIN),
    Metric("clip_fraction", "The share of tokens on which the clip of the ratio held the update back.",
           "0 when each batch of samples is used once; 0.01 to 0.2 with several updates. Above 0.3: lower "
           "the rate or take fewer updates per batch.",
           "clipped tokens / tokens", TRAIN),
    Metric("ratio_max", "The largest ratio of new to old probability over the tokens of the step.",
           "1 on the first update on fresh samples, a few after several. Tens or more: a few tokens moved "
           "far.",
           "max over tokens of exp(logp - old_logp)", TRAIN),
    Metric("mismatch",
           "How much the sampler and the trainer disagree about the log-probability of the same token.",
           "Below 1e-4 in float32 and 0.02 in bfloat16. More means that samples come from a model other "
           "than the one trained: a wrong temperature, mask or weight copy. With top_k, top_p or min_p: "
           "-log of the probability that they keep.",
           "mean over tokens of |sampler_logp - old_logp|", TRAIN),
    Metric("staleness",
           "How many optimizer steps the policy has made since the one that wrote these samples.",
           "rollouts.async_depth times the updates of a collection, and what those updates add; lower in "
           "the first steps. 0 without rollouts.async_depth.",
           "optimizer steps made - optimizer steps behind the sampler's weights", ROLLOUTS),
    Metric("mismatch_kl",
           "How far the sampler's distribution is from the trainer's, per token, with a correction on.",
           "Below 1e-3. Growth over a run: the engines part as the policy changes, and so do sampled and "
           "trained text.",
           "mean over tokens of k3 = w - 1 - log w, with w = exp(old_logp - sampler_logp)", TRAIN),
    Metric("corrected_away", "The share of tokens that the correction for another sampler drops.",
           "Below 0.01. More: much of what is sampled is not learned from; look at mismatch_kl.",
           "tokens with a weight of 0 / tokens", TRAIN),
    Metric("effective_share",
           "What the corrected tokens are worth, as a share of as many samples of the policy itself.",
           "Above 0.9. Near 0: a few tokens have nearly all the weight.",
           "(sum of w)^2 / (tokens * sum of w^2)", TRAIN),
    Metric("approx_kl", "How far the policy has moved from the one that drew the samples, per token.",
           "0 on the first update on fresh samples, below about 0.02 after several. More: lower the rate or "
           "take fewer updates.",
           "mean over tokens of k3 = exp(d) - 1 - d, with d = logp - old_logp", TRAIN),
    Metric("grad_norm", "The length of the gradient before it is clipped.",
           "Of one size for most of a run. A spike of ten times is one odd batch; steady growth warns of "
           "divergence.",
           "sqrt of the sum of squared gradients", TRAIN),
    Metric("lr", "The learning rate of this step, after warm-up and schedule.",
           "As planned. Too high shows as rising kl and falling format; too low as a flat reward.",
           "optim.lr * schedule(step)", "the optimizer"),
    Metric("flat_groups",
           "The share of prompts whose samples all got the same score, so that they teach nothing.",
           "Below about 0.5. Near 1 the problems are all too hard or all too easy for the model.",
           "groups with equal scores / groups drawn", ROLLOUTS),
    Metric("resampled", "How many extra prompts were drawn to replace groups that taught nothing.",
           "0 unless the method resamples (DAPO). Always at the limit: most of the sampling is wasted, "
           "change the problems.",
           "groups drawn - groups wanted", ROLLOUTS),
    Metric("truncated", "The share of samples that hit the length limit instead of stopping by themselves.",
           "Near 0. If it grows, raise rollouts.max_new_tokens or look for loops: a cut answer can't be "
           "right.",
           "samples without a stop token / samples", ROLLOUTS),
    Metric("skipped",
           "1 if the step's loss or gradient was not finite and the weights were left as they were.",
           "0. Now and then: one bad batch, its ids stand in the events. Several in a row end the run.",
           "1 if loss or grad_norm is nan or infinite, else 0", "the optimizer"),
    Metric("tokens", "How many tokens went through training in this step, prompts included.",
           "Steady, or growing with length. It is what the time of a step depends on.",
           "sum over rows of tokens that are not padding", "the batch"),
    Metric("sampled", "How many tokens the policy wrote for this step.",
           "Steady, or growing with length; with time/sample it gives the speed of sampling.",
           "sum over samples of the tokens written", ROLLOUTS),
    Metric("memory",
           "GB that were taken at most so far: by tensors on the GPU, or by the process where there is none.",
           "Steady after the first steps; `postgrad memory` says what to expect.",
           "peak bytes / 1e9", "the machine"),
    Metric("time/step", "Seconds from the end of the last step to the end of this one.",
           "Steady. The part that is neither sampling nor training is scoring, evaluation and saving.",
           "wall-clock seconds", CLOCK),
    Metric("time/sample", "Seconds spent drawing and scoring the step's samples.",
           "Usually the larger part of a policy step; it grows with length.",
           "wall-clock seconds", CLOCK),
    Metric("time/wait", "Seconds for which training waited for samples that were begun ahead of it.",
           "Near 0: sampling keeps up. Near time/step: the samplers are the slower part; give them more "
           "machines, or shorter replies.",
           "wall-clock seconds", CLOCK),
    Metric("time/score",
           "Seconds spent on old, reference and critic passes and on advantages, before training.",
           "Small next to sampling; it grows with tokens and with a reference or a critic.",
           "wall-clock seconds", CLOCK),
    Metric("time/train", "Seconds spent in the forward and backward passes and the update.",
           "Steady; it grows with tokens.",
           "wall-clock seconds", CLOCK),
)

# episodes, critics, pairs, reward and process models, best-of-n
SPECIAL = (
    Metric("turns", "The mean number of replies that the model wrote in an episode.",
           "What the task needs. At rollouts.turns for all, episodes end without a verdict: allow more. "
           "Falling to 1, the model has stopped asking its tools.",
           "mean over episodes of replies", ROLLOUTS),
    Metric("new_rows",
           "How often a turn began a new row, since the chat template rewrote what came before it.",
           "0 for most templates. Where it is as many as the turns (templates that drop older thoughts), "
           "every turn is read anew and costs as much as a prompt.",
           "number of turns whose context is no continuation of the tokens so far", ROLLOUTS),
    Metric("value_loss", "How far the critic's guesses of the final reward are from what came out.",
           "It falls at first, then follows the reward's spread. Rising: the policy changes faster than the "
           "critic learns.",
           "mean over tokens of (value - return)^2 / 2, with the value clipped around the old one", TRAIN),
    Metric("explained_variance",
           "How much of the spread in returns the critic foresees: 1 is all, 0 is none.",
           "Above 0 and rising. Below 0 the critic is worse than saying the mean, and makes advantages "
           "noisier.",
           "1 - Var(value - return) / Var(return)", TRAIN),
    Metric("value", "The mean reward that the critic expects at the tokens of the step.",
           "It follows return, with a lag. Far from it for long: the critic learns too slowly.",
           "mean over tokens of value", TRAIN),
    Metric("return", "The mean target that the critic is trained towards.",
           "It follows the reward, less the KL penalty where a method puts that into the reward.",
           "mean over tokens of adv + value, before advantages are whitened", TRAIN),
    Metric("accuracy",
           "The share of pairs, or of labelled steps or answers, that the model's score gets right.",
           "From 0.5 upwards. 1.0 on what it was trained on is memory: judge by what was held out.",
           "pairs with chosen > rejected / pairs; steps with score above 0 exactly if right / steps; a tie "
           "counts half", PAIRS),
    Metric("accuracy_right", "The share of right steps or answers that score above 0.",
           "Read it with accuracy_wrong: a model that says right to everything has 1 here and 0 there.",
           "right steps with score > 0 / right steps, a score of 0 counts half", STEPS),
    Metric("accuracy_wrong", "The share of wrong steps or answers that score below 0.",
           "Read it with accuracy_right. Low: mistakes go unseen, and a policy trained on this model will "
           "make them.",
           "wrong steps with score < 0 / wrong steps, a score of 0 counts half", STEPS),
    Metric("balanced_accuracy", "The mean of accuracy_right and accuracy_wrong on held-out replies.",
           "From 0.5, which is guessing, upwards, whatever the share of right steps is.",
           "(accuracy_right + accuracy_wrong) / 2", EVAL),
    Metric("right_steps", "The share of the labelled steps or answers that are right.",
           "Between 0.2 and 0.8. Near 0 or 1 there is little to tell apart: take another generator.",
           "labels that say right / labels", STEPS),
    Metric("margin", "By how much the chosen answers outscore the rejected ones on average.",
           "It grows from 0. Growing without end means over-fitting: stop earlier or raise beta.",
           "mean of chosen - rejected", PAIRS),
    Metric("chosen", "The mean score of the preferred answers.",
           "For DPO and its kin it may fall a little while the margin grows; a steep fall makes all answers "
           "unlikely.",
           "mean score of chosen answers (for DPO the sum of logp - ref_logp)", PAIRS),
    Metric("rejected", "The mean score of the answers that were not preferred.",
           "It falls below chosen. If both fall together, add a likelihood term on the chosen answers or "
           "lower the rate.",
           "mean score of rejected answers (for DPO the sum of logp - ref_logp)", PAIRS),
    Metric("baseline", "The mean score above which KTO counts an answer as improved.",
           "At or a little above 0; it grows as the policy moves away from the reference.",
           "the batch's estimate of the distance to the reference, not below 0", "the batch"),
    Metric("kl_reply", "How far the policy is from where it began, in nats per whole reply.",
           "It grows and levels off. Against a verifier 2 nats (word problems) to 9 (a new form of reply) "
           "were healthy here; above 40 the policy was destroyed. Against a reward model the true quality "
           "turned at 5 to 12 without a leash, and was highest at 2 to 3 with one: above 4 it worries. That "
           "is for replies of 7 to 35 tokens: longer ones travel further in sum.",
           "mean over samples of the sum over tokens of logp - ref_logp", ROLLOUTS,
           Limit(above=4.0, unit="nats a reply", advice=
                 "from here on the true quality has been seen to fall against a reward model; measure it, "
                 "or raise kl.coef")),
    Metric("kl_coefficient", "The weight of the KL in the reward at this step.",
           "Constant, or, with kl.target, steered: it rises while the KL is above the target and falls "
           "below it.",
           "beta (1 + gain clip(kl_reply / target - 1, -0.2, 0.2)), once a collection", ROLLOUTS),
    Metric("proxy", "The mean score that the reward model gives to samples on held-out prompts.",
           "It rises with reward, the true measure beside it. If it rises while reward falls, the policy "
           "games the reward model: raise kl.coef or stop earlier.",
           "mean over samples of the reward model's score", EVAL),
    Metric("chosen_share", "The share of the step's samples that were chosen to be learned from.",
           "2 / group_size for pairs, 1 / group_size for best-of-n. Near 0: the samples all score alike, or "
           "none passes.",
           "chosen samples / samples", ROLLOUTS),
    Metric("kl_bound", "The most that picking the best of n can move the policy away from itself.",
           "0.64 for n = 4, 1.2 for n = 8, 1.8 for n = 16: it grows slowly, which is why best-of-n is "
           "gentle.",
           "log n - (n - 1) / n", ROLLOUTS),
    Metric("ptx_loss", "The negative log-likelihood of the texts that are imitated beside the rollouts.",
           "Steady: what was learned before is kept. Rising: raise ptx.coef.",
           "mean over the texts' tokens of -logp", TRAIN),
    Metric("disagreement", "How much the members of an ensemble of reward models differ.",
           "Small on answers like those of the labelled pairs. It grows where the labels do not decide: "
           "there the policy is on its own.",
           "standard deviation over members, mean over pairs or samples", PAIRS),
    Metric("ece",
           "How far the reward model's stated chances are from how often it is right, on held-out pairs.",
           "Below about 0.05. More: its gaps are too wide (overfitted; smooth the labels) or too narrow.",
           "sum over bins of share |accuracy - confidence|, confidence = sigmoid(|gap|)", EVAL),
    Metric("errors",
           "Samples that could not be judged, for a reason that is not the model's (a broken sandbox).",
           "0. Such samples are left out of the loss, never scored 0; if they keep coming, mend the "
           "verifier.",
           "verdicts with an infrastructure error", ROLLOUTS),
    Metric("same_replies", "Samples that say the same as an earlier one to their prompt.",
           "Few at first, more as the policy becomes certain.",
           "samples - different samples, of replies of one turn, summed over prompts", ROLLOUTS),
    Metric("contradicted", "Of same_replies, those that are scored otherwise than the earlier one.",
           "0. More: the verifier is no function of prompt and reply.",
           "same replies whose scores differ by more than half the range of all scores", ROLLOUTS),
    Metric("kl_share", "The KL's part of what pulls at the tokens.",
           "0 at step 1, then below 0.2. Above 0.5 the policy is held where it began: lower kl.coef.",
           "sum of |d KL term / d logp| / the same of KL term and surrogate", TRAIN),
    Metric("stop_trained", "The share of conversations whose stop token is trained.",
           "1, or a little less where rows are cut. 0: the model is not taught where a reply ends.",
           "rows with a trained stop token / rows", "the batch"),
    Metric("repetition", "How much of a reply repeats itself.",
           "Low and steady. A rise, with length, is a model going round in circles: stop and lower the rate.",
           "1 - distinct runs of four tokens / runs of four tokens, mean over replies", ROLLOUTS),
)

# how replies reason, in evaluations: looking back, languages, what follows the answer
REFLECTION = (
    Metric("turn_back",
           "The share of replies that take back a wrong step, or give up a try, and go on from what is "
           "right.",
           "It rises with pass@1 where a second try helps, as in countdown. Falling with fewer slips is as "
           "good; rising alone, the model doubts instead of solving.",
           "replies with a step of kind turn_back, by the task's checker / replies", EVAL),
    Metric("restart", "The share of replies that drop several steps and begin again.",
           "Rare, and dear: the tokens before it are lost. A rise with length and without pass@1 is "
           "wandering.",
           "replies with a step of kind restart, by the task's checker / replies", EVAL),
    Metric("recheck", "The share of replies that check a right step, by doing it again or undoing it.",
           "It costs tokens and pays where slips are found. A rise without a rise of pass@1 or turn_back is "
           "ritual.",
           "replies with a step of kind recheck, by the task's checker / replies", EVAL),
    Metric("after_right", "How many tokens a reply goes on for after its answer is worked out.",
           "The closing tags and the answer: 6 for a word problem here. More is checking, or talk that "
           "earns nothing.",
           "tokens after the first step that solves the problem, mean over replies that have one", EVAL),
    Metric("worded", "The share of replies whose thoughts have words, and so a language.",
           "Read the other figures of language with it: with few worded replies they rest on few.",
           "replies with a function word of a known language in their thoughts / replies to prompts that "
           "say their language", EVAL),
    Metric("wrong_language",
           "The share of worded replies that think mostly in another language than the prompt's.",
           "0 where people are to read the thoughts. Rewards for answers alone leave it where it was or "
           "raise it: pay for language too.",
           "worded replies with more function words of other languages than of their own / worded "
           "replies", EVAL),
    Metric("mixed_languages", "The share of worded replies that think in two languages or more.",
           "0. As for wrong_language.",
           "worded replies with function words of their own language and of another / worded replies", EVAL),
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
