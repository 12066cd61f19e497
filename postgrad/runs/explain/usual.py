"""What nearly every run logs: scores, lengths, distances, the update and the clock."""

from postgrad.runs.explain.metric import CLOCK, EVAL, ROLLOUTS, TRAIN, Limit, Metric

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
