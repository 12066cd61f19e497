"""The right answers of the book's questions, by calculations of their own: no function of the library."""

import json
import math

from paths import ROOT

from postgrad.studio.book import chapters, inline

RECORDED = ROOT / "postgrad" / "models" / "embedded" / "recordings" / "pipeline.json"
OVERSIGHT = json.loads((ROOT / "docs" / "results" / "oversight.json").read_text())["tables"]
WORKSHOP = json.loads(RECORDED.with_name("workshop.json").read_text())["runs"]
FIRST_RUN = WORKSHOP["nano"]["evals"]
STAGES = {s["name"]: s["measured"] for s in json.loads(RECORDED.read_text())["stages"]}


def share(stage, task):
    found = STAGES[stage][task]
    return f"{100 * sum(found['right']) / (found['samples'] * found['problems']):.0f} %"


def first_percent(text):
    return float(text.split("%")[0])


def recovered():
    weak, student, strong = (first_percent(OVERSIGHT["Weak to strong, fresh problems"][0][name])
                             for name in ("weak", "student", "strong"))
    return f"{100 * (student - weak) / (strong - weak):.0f} %"


def bearable():
    """The share of lies at which listening is worth as much as judging alone, by halving."""
    right = {row["judge"]: first_percent(row["believing, mean over seeds"])
             for row in OVERSIGHT["Which of two answers is right"]}
    low, high = 0.0, 1.0
    for _ in range(60):
        lies = (low + high) / 2
        heard = (1 - lies) * right["critic: strong model"] + lies * right["lying critic: strong model"]
        low, high = (lies, high) if heard > right["alone, any step"] else (low, lies)
    return f"{100 * low:.0f} %"


def trick():
    """1 % of a trick that pays 1, against 99 % of work that pays a half, each times exp(pay / 0.1)."""
    tricks, work = 0.01 * math.exp(1 / 0.1), 0.99 * math.exp(0.5 / 0.1)
    return f"{100 * tricks / (tricks + work):.0f} %"


ANSWERS = {
    ("why", "bandit-steps"): "1",
    ("why", "what-rl-pays"): f"{share('sft', 'questions')} to {share('rl', 'questions')}: no change beyond "
    "what so few questions can show",
    ("why", "which-reward"): "Whether a function returns what its tests ask for",
    ("why", "explore"): f"Nothing: every sample has the same reward, {0 - 0} above the expected one",
    ("why", "baseline-bias"): f"Nothing: the bias is {sum((1, -0.5, -0.5)):g}",
    ("why", "sft-ceiling"): f"{8 * 10} %: the loss is least where the model writes as the demonstrations do",
    ("why", "loop-difference"): "Only what is handed in: the batches and the objective",
    ("rewards", "gap-zero"): f"{1 / (1 + math.e**0):.1f} and log 2 = {math.log(2):.4f}",
    ("rewards", "accuracy-meaning"): "Little: the policy’s answers are no sample of the held-out pairs",
    (
        "rewards",
        "find-bias",
    ): "Put neutral sentences into the same answers, and look at the change of each score",
    ("rewards", "ensemble"): "A flaw that all members share",
    ("rewards", "loss-at-two"): f"{math.log(1 + math.exp(2)):.4f}",
    (
        "algorithms",
        "beta-extremes",
    ): "Very high: the reference. Very low: all probability on the answers with the highest reward",
    ("algorithms", "clip-ratio"): f"{min(4 * 1.0, max(0.8, min(4, 1.2)) * 1.0):.1f}",
    ("algorithms", "dpo-needs"): "Reward model: no. Sampling: no",
    ("algorithms", "grpo-critic"): "no: the other samples of the prompt say what was to be expected",
    ("algorithms", "models-in-memory"): "4, 2 and 2",
    ("algorithms", "dpo-probability"): f"{2 / (2 + 0.5):.1f}",
    ("algorithms", "kl-in-loss"): "Nothing: its gradient has mean zero",
    (
        "algorithms",
        "row-difference",
    ): "The credit, where the KL stands, how tokens are weighed, and the critic; the clip is the same",
    ("reasoning", "right-answer"): f"{(1 - 0.5) / math.sqrt(0.25):.0f}",
    ("reasoning", "flat-group"): f"Nothing: every advantage is {1 - 1}",
    ("reasoning", "one-sample"): "Its baseline is the mean of the group, and alone an answer is its own mean",
    ("reasoning", "amplify"): "Most of what RL solves at once was already within reach of the model’s "
                              "samples",
    ("reasoning", "divide"): "Those that are almost always or almost never solved",
    ("workshop", "centre"): f"{1 - (1 + 0 + 0 + 1) / 4:.1f}",
    ("workshop", "spared"): "Each batch of samples is used for one update, by the policy that drew it",
    ("workshop", "flat-share"): f"{100 * (FIRST_RUN[0][1] ** 2 + (1 - FIRST_RUN[0][1]) ** 2):.0f} %",
    ("workshop", "paid"): f"{100 * WORKSHOP['reward-form']['evals'][-1][1]:.0f} %",
    ("workshop", "normaliser"): "As many times as it is longer",
    ("frontiers", "what-the-log-shows"): "Nothing: it goes on rising",
    ("frontiers", "more-than-choosing"): "The gain is more than picking out what eight tries would have "
                                         "contained",
    ("frontiers", "more-to-choose-from"): "More answers also mean more wrong ones that the judge overrates, "
                                          "and it takes the highest score",
    ("frontiers", "lying-advocate"): "The steps of a right answer hold, and a step that holds speaks for its "
                                     "answer",
    ("frontiers", "gap-recovered"): recovered(),
    ("frontiers", "hole-odds"): trick(),
    ("frontiers", "bearable-lies"): bearable(),
    ("teacher", "factor"): f"{1536 / 256:.0f}",
    ("teacher", "which-push"): f"{0.3 - 0.001:.3f} and {0.001 * (0.5 - math.log(0.001 / 0.3)):.3f}",
    ("teacher", "kept-share"): f"{100 * 0.9 / (0.9 + 0.1):.0f} %",
    ("teacher", "own-vote"): "Those whose most frequent answer is right",
    ("teacher", "two-numbers"): f"{0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1):.3f} and "
                                f"{0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5):.3f}",
    ("systems", "straggler"): f"{sum(1 / k for k in range(1, 513)):.1f}",
    ("systems", "whole-reply"): f"{100 * 0.99**256:.0f} %",
    ("systems", "oldest"): f"{2 * 4 + 3}",
    ("systems", "one-missing"): "They wait for it, without an error, until a time limit ends the run",
    ("systems", "cut-mean"): f"{0.7 * 0.5 + 0.2 * 1.5 + 0.1 * 2:.2f}",
    ("agents", "masked-tokens"): f"{3 * 2}",
    ("agents", "turn-by-turn"): f"{(1 - 0.5) / 0.5:.0f} and {0 - 0}",
    ("agents", "crashed"): "Nothing is decided: it is counted and left out of the loss",
    ("agents", "stalling"): f"{4 * 0.4:.1f}, which is more",
    ("agents", "one-turn"): f"{0.3 - 0.4 + 0.5 * 0.2:.1f}".replace("-0.0", "0.0"),
    ("measuring", "narrower"): "k^2 n problems",
    ("measuring", "none-right"): f"{100 * 2.0930**2 / (20 + 2.0930**2):.0f} %",  # t of 19 degrees, by table
    ("measuring", "many-comparisons"): f"{100 * (1 - 0.95**20):.0f} %",
    ("measuring", "both-orders"): f"{100 * (1 - 0.7):.0f} % and {100 * (0.7 + 0.3) / 2:.0f} %",
    ("measuring", "sign-test"): f"{2 * sum(math.comb(48, k) for k in range(19)) / 2**48:.2f}",
}


def choose(n, k):
    """By Pascal's triangle."""
    return 1 if k in (0, n) else 0 if k > n else choose(n - 1, k - 1) + choose(n - 1, k)


NUMBERS = {  # the answers by number, and what the hints stand for, in their order
    ("why", "leave-one-out"): (1 - 1 / 7, 1 - 2 / 8, 0 - 2 / 7),
    ("why", "some-try"): (1 - math.prod([0.9] * 20), math.prod([0.9] * 20), 2),
    ("rewards", "preferred"): (math.exp(2.5) / (math.exp(2.5) + math.exp(1)),
                               math.exp(1) / (math.exp(2.5) + math.exp(1)), 2.5 / 3.5,
                               math.exp(2.5) / math.exp(1)),
    ("rewards", "kappa"): ((0.9 - 0.5) / (1 - 0.5), 0.9, 0.4),
    ("algorithms", "blamed-in-full"): (1.5 * 2, 1.2 * 2, -3),
    ("algorithms", "dpo-by-hand"): (math.log(1 + math.exp(-0.5 * 4)), math.log(1 + math.exp(0.5 * 4)),
                                    1 / (1 + math.exp(-2)), math.log(1 + math.exp(-4))),
    ("algorithms", "k3-by-hand"): (math.e ** -0.5 - 0.5, math.e ** 0.5 - 1.5, 0.125, 0.5),
    ("reasoning", "rare-advantage"): (0.8 / math.sqrt((0.64 + 4 * 0.04) / 5), 0.8,
                                      0.8 / math.sqrt((0.64 + 4 * 0.04) / 4), 0.8 / 0.16),
    ("reasoning", "pass-at-two"): (1 - choose(7, 2) / choose(10, 2), 1 - 0.7 * 0.7, 7 * 6 / 90, 0.6,
                                   3 * 2 / 90),
    ("workshop", "flat-four"): (0.0256 + 0.1296, 0.0256, 0.1296, 1 - 0.1552),
    ("workshop", "token-weight"): (1 / 2 / 5, 1 / 20, 1 / 5, 1 / 30),
    ("frontiers", "best-of-kl"): (4 * math.log(2) - 15 / 16, 4 * math.log(2), 4 * math.log(2) + 15 / 16, 4),
    ("frontiers", "hole-share"): (1 / (1 + 0.98 / (0.02 * math.e ** 2)), 0.02 * math.e ** 2,
                                  1 / (1 + 0.98 / (0.02 * math.e ** 0.5))),
}


def answered() -> dict[tuple[str, str], bool]:
    """Every question of the book: whether its right answer, and what its hints stand for, are these."""
    return {(chapter.name, name): is_so(check, (chapter.name, name))
            for chapter in chapters.all_chapters() for name, check in chapter.checks.items()}


def is_so(check, key):
    if isinstance(check, chapters.NumberCheck):
        stated = [check.answer, *(hint.value for hint in check.hints)]
        return key in NUMBERS and len(stated) == len(NUMBERS[key]) and all(
            abs(a - b) <= 1e-4 for a, b in zip(stated, NUMBERS[key], strict=True))
    return inline.plain_text(check.right.says).replace("\u00a0", " ") == ANSWERS.get(key)
