"""What only some runs log: episodes, critics, pairs, reward and process models, best-of-n."""

from postgrad.runs.explain.metric import EVAL, PAIRS, ROLLOUTS, STEPS, TRAIN, Limit, Metric

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
