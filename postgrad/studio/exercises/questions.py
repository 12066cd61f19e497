"""Questions to think about. A model answer is shown after an own one was written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Question:
    """open: nobody has the answer; then the page shows what a good one would weigh."""

    name: str
    chapter: int
    asks: str
    answer: str
    open: bool = False


QUESTIONS = {question.name: question for question in (
    Question(
        name="no-supervised-loss", chapter=1,
        asks="A reward model is trained by supervised learning on labelled pairs. Why can its score not "
             "simply "
             "be used as a supervised loss for the policy, as cross-entropy is?",
        answer="The reward judges text that the policy has sampled. Sampling is a choice among tokens, and "
               "no "
               "derivative passes through a choice: a supervised loss needs a target for each token, and the "
               "reward gives one number for a whole answer and names no better one. So the gradient is "
               "estimated instead: raise the log-probability of the samples in proportion to how much "
               "better than expected it was. The data also moves with the policy; a supervised loss on fixed "
               "answers would judge text that the policy no longer writes."),
    Question(
        name="beta", chapter=3,
        asks="What happens to a policy trained with a KL penalty when beta is very high, and when it is very "
             "low?",
        answer="The best policy is proportional to ref(y) exp(r(y) / beta). Very high: the exponent "
               "vanishes, "
               "and the policy stays at the reference; nothing is learned and nothing is lost. Very low: all "
               "probability goes to the answers with the highest score, diversity dies, and where the score "
               "is a proxy the policy finds what the proxy overrates: the proxy goes on rising while true "
               "quality turns and falls. What is wanted lies between, and where exactly depends on how far "
               "the reward can be trusted."),
    Question(
        name="several-completions", chapter=4,
        asks="Why does GRPO need several completions of each prompt, where PPO can learn from one?",
        answer="Both need to know what was to be expected of a prompt, since only the difference teaches. "
               "PPO "
               "asks a learned critic for it, which generalises over prompts, so one sample is enough. GRPO "
               "has no critic: the mean of the other answers to the same prompt is the expectation. With one "
               "completion the group's mean is its own reward and the advantage is always 0. The price of "
               "the "
               "critic (a second network, and its own errors) is paid in samples."),
    Question(
        name="dpo-or-grpo", chapter=3,
        asks="When would you choose DPO, and when GRPO?",
        answer="DPO where there are pairs of answers, the goal is taste rather than truth, and compute is "
               "short: it is offline, needs no reward model and no sampling, and holds policy and reference "
               "alone. It learns from the answers it is shown, so it re-weights and does not explore, and "
               "suffers where these answers are unlike its own. GRPO where an answer can be checked by a "
               "rule "
               "and the model must find better ones than anybody has written: it samples from itself, sees "
               "the consequences, and can exceed its data; it costs generation in every step, and needs "
               "prompts on which it sometimes succeeds and sometimes fails."),
    Question(
        name="verifiable", chapter=4,
        asks="Why are verifiable rewards more reliable than a learned reward model? Where do they still "
             "fail?",
        answer="A rule does not drift: it gives the same verdict however far the policy has moved from the "
               "data, while a reward model was fitted to answers of an old policy and is wrong in ways that "
               "optimisation seeks out. It has no taste for length or flattery, costs little, and its faults "
               "can be read. But a rule checks what it checks: a verifier that accepts a number anywhere in "
               "the text, tests that can be edited, a scorer that pays for an empty list are all found by a "
               "policy in time. And a right result says nothing of the way to it."),
    Question(
        name="equal-group", chapter=4,
        asks="All eight answers to a prompt are right. What does GRPO learn from them? What should be done "
             "about such prompts?",
        answer="Nothing: every reward equals the mean, all advantages are 0, and so is the gradient. The "
               "same "
               "holds where all are wrong. Such groups cost their tokens and shrink the effective batch. "
               "DAPO "
               "samples others in their place; a curriculum that prefers prompts near a success rate of one "
               "half avoids most of them. They are no error of the method: there is nothing to compare."),
    Question(
        name="truthful", chapter=2,
        asks="“RLHF makes models truthful.” What exactly does it make them?",
        answer="It makes answers likelier that people prefer to others. Where people can tell true from "
               "false "
               "and care, truth is part of that. Where they cannot, confidence, length, agreement with the "
               "asker and good form are preferred, and the model learns those. The reward model is a summary "
               "of judgements by some people on some prompts, not of human values."),
    Question(
        name="amplifies", chapter=4,
        asks="After RL with verifiable rewards pass@1 has risen from 30 to 60 %, and pass@64 has stayed at "
             "85 %. "
             "Has the model learned to reason?",
        answer="It has learned to do reliably what it could already do sometimes: 85 % of the problems were "
               "within reach of 64 tries before, and the policy has moved probability to these ways. That is "
               "worth much, for one try is what a user gets. Whether RL can also create: look at pass@k for "
               "large k on problems that the base model never solves, with enough samples to see small "
               "rates, and at skills that are put together from parts the base has. Distinguish form from "
               "ability too: some of the first gain is the answer being written where the verifier looks."),
    Question(
        name="oversight", chapter=6, open=True,
        asks="How can people oversee systems that are better than they are at the task being judged?",
        answer="Weigh: tasks whose answers are easier to check than to find; critics that point at flaws, "
               "and "
               "whether people judge better with them; debate, and when the honest side has the advantage; "
               "supervising the steps rather than the result; weak labels for strong models, and what makes "
               "them generalise; looking inside; trying the whole method where we do know the answer and "
               "hide it. For each: what does a system that games the overseer do?"),
    Question(
        name="no-verifier", chapter=6, open=True,
        asks="What should the reward be where nothing can be verified: an essay, a diagnosis, a policy "
             "paper?",
        answer="Weigh: comparisons instead of scores; rubrics written for each prompt, checked point by "
               "point; "
               "judges of several kinds and what to do where they disagree; parts that can be verified "
               "(citations, arithmetic, consistency) against the whole that cannot; outcomes that come late; "
               "uncertainty of the judge as a reason to stop optimising; how you would notice that the "
               "reward "
               "is being gamed, before the readers do."),
)}
