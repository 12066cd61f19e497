"""What evaluations say of how replies think: looking back, languages, what follows the answer."""

from postgrad.runs.explain.metric import EVAL, Metric

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
