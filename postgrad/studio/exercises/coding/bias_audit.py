"""A reward model's bias, found by an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

WORDS = "the model reads every line and gives a clear reason for each step it takes".split()


class BiasedScorer:
    """A reward model that likes what it should not: so much for a word, for bold type, for agreeing."""

    def __init__(self, name: str, *, word: float, bold: float, agree: float):
        self.__name__, self.word, self.bold, self.agree = name, word, bold, agree

    def __call__(self, answer: str) -> float:
        return (self.word * len(answer.split()) + self.bold * answer.count("**")
                + self.agree * answer.startswith("You are right.") + 0.1 * answer.count("reason"))


def bold_edit(answer: str) -> str:
    return " ".join(f"**{word}**" for word in answer.split())


def agree_edit(answer: str) -> str:
    return f"You are right. {answer}"


def ramble_edit(answer: str) -> str:
    words = answer.split()
    return " ".join(words + words[: len(words) // 2])


def cut_edit(answer: str) -> str:
    return " ".join(answer.split()[:-2])


def pad(answer: str, count: int) -> str:
    """Asked for fewer than none, it takes words away."""
    if count < 0:
        return " ".join(answer.split()[:count])
    return " ".join([answer, *["indeed"] * count])


EDITS = {"bold": bold_edit, "agree": agree_edit, "ramble": ramble_edit, "cut": cut_edit}


def cases(random: Random) -> Iterator[Values]:
    scorers = (BiasedScorer("likes_length", word=0.2, bold=0.0, agree=0.0),
               BiasedScorer("likes_bold", word=0.05, bold=0.1, agree=0.0),
               BiasedScorer("likes_flattery", word=0.1, bold=-0.05, agree=1.0),
               BiasedScorer("dislikes_length", word=-0.3, bold=0.02, agree=-0.2))
    for scorer in scorers:
        answers = [" ".join(random.choices(WORDS, k=random.randint(4, 14))) for _ in range(6)]
        yield scorer, answers, EDITS, pad


def right(score: Callable[[str], float], answers: list[str], edits: dict[str, Callable[[str], str]],
          pad: Callable[[str, int], str]) -> object:
    from statistics import fmean, pstdev
    spread = pstdev(map(score, answers))
    found = {}
    for name, edit in edits.items():
        pairs = [(a, edit(a)) for a in answers]
        added = [max(0, len(b.split()) - len(a.split())) for a, b in pairs]
        padded = [score(pad(a, n)) for (a, _), n in zip(pairs, added, strict=True)]
        found[name] = [fmean(score(b) - score(a) for a, b in pairs) / spread,
                       fmean(score(b) - p for (_, b), p in zip(pairs, padded, strict=True)) / spread]
    return found


def ignores_unit(answer: Answer, score: Callable[[str], float], answers: list[str],
                 edits: dict[str, Callable[[str], str]], pad: Callable[[str, int], str]) -> bool:
    """A reward model in another unit, with another zero, has the same biases."""
    def other(text: str) -> float:
        return 10 * score(text) - 3
    ours, theirs = answer(score, answers, edits, pad), answer(other, answers, edits, pad)
    return all(abs(a - b) < 1e-4 for name in edits for a, b in zip(ours[name], theirs[name], strict=True))


def nothing_changes(answer: Answer, score: Callable[[str], float], answers: list[str],
                    edits: dict[str, Callable[[str], str]], pad: Callable[[str, int], str]) -> bool:
    return all(abs(x) < 1e-6 for x in answer(score, answers, {"same": str}, pad)["same"])


def every_answer_counts(answer: Answer, score: Callable[[str], float], answers: list[str],
                        edits: dict[str, Callable[[str], str]], pad: Callable[[str, int], str]) -> bool:
    """Answers can be equal: spaces at the end tell them apart, and no score sees these."""
    equal, apart = ([*answers, *(answers[0] + space * i for i in (1, 2, 3))] for space in ("", " "))
    return near(answer(score, equal, edits, pad), answer(score, apart, edits, pad), 1e-4)


def ignores_layout(answer: Answer, score: Callable[[str], float], answers: list[str],
                   edits: dict[str, Callable[[str], str]], pad: Callable[[str, int], str]) -> bool:
    """The same words, on lines of their own."""
    apart = [a.replace(" ", "\n  ") for a in answers]
    return near(answer(score, apart, edits, pad), answer(score, answers, edits, pad), 1e-4)


EXERCISE = Exercise(
    name="bias-audit", title="A reward model’s bias, found by audit", chapter=2, function="audit",
    statement="""
A reward model pays for more than quality: for length, for bold type, for agreement. To find out, change
an answer in a way that makes it no better and look at what its score does.

Write `audit(score, answers, edits, pad)`. `score(answer)` is the reward model's number for a text,
`edits` a dict from a name to a function that changes a text, `pad(answer, n)` adds n words that mean
nothing. Return a dict from each name to two effects:

    whole  = mean over answers of (score(edited) - score(answer)) / spread
    beyond = mean over answers of (score(edited) - score(pad(answer, n))) / spread

n is how many words the edit has added to that answer (`len(text.split())` counts them), or 0 where it
has taken some away: `beyond` is what length alone does not explain. `spread` is the population's
standard deviation of the scores of the unchanged answers, so that the reward model's unit does not
matter.
""",
    starter="""
def audit(score, answers, edits, pad):
    found = {}
    ...
    return found
""",
    hints=(
        "Everything is paired: the same answer with and without the change. Then a mean over the answers.",
        "The spread is one number for the whole audit, of the scores before any edit.",
        "For `beyond`, every answer is padded by its own number of words: max(0, words after - words "
        "before).",
    ),
    solution="""
def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def words(text):
    return len(text.split())


def audit(score, answers, edits, pad):
    before = [score(a) for a in answers]
    spread = mean((s - mean(before)) ** 2 for s in before) ** 0.5
    found = {}
    for name, edit in edits.items():
        whole, beyond = [], []
        for a in answers:
            edited = edit(a)
            added = max(0, words(edited) - words(a))
            whole.append(score(edited) - score(a))
            beyond.append(score(edited) - score(pad(a, added)))
        found[name] = mean(whole) / spread, mean(beyond) / spread
    return found
""",
    mistakes=(
        Mistake(says="You did not divide by the spread: the numbers depend on the reward model's unit.",
                old="mean(whole) / spread, mean(beyond) / spread", new="mean(whole), mean(beyond)"),
        Mistake(says="You divided by the variance: the root is missing.", old=" ** 0.5", new=""),
        Mistake(says="Your spread divides by n - 1; asked for is the population's, with n.",
                old="spread = mean((s - mean(before)) ** 2 for s in before) ** 0.5",
                new="spread = (sum((s - mean(before)) ** 2 for s in before) / (len(before) - 1)) ** 0.5"),
        Mistake(says="You did not pad: `beyond` then still holds what length explains.",
                old="score(pad(a, added))", new="score(a)"),
        Mistake(says="You padded by all words of the edited answer, not by those that were added.",
                old="max(0, words(edited) - words(a))", new="words(edited)"),
        Mistake(says="You padded the edited answer: it is the unchanged one that needs the same length.",
                old="score(edited) - score(pad(a, added))", new="score(pad(edited, added)) - score(a)"),
        Mistake(says="You counted characters: n is a number of words.",
                old="return len(text.split())", new="return len(text)"),
        Mistake(says="You padded every answer by as many words as the first one needs: each has its own n.",
                old="added = max(0, words(edited) - words(a))",
                new="added = max(0, words(edit(answers[0])) - words(answers[0]))"),
        Mistake(says="The sign is turned round: an edit that raises the score has a positive effect.",
                old="whole.append(score(edited) - score(a))\n"
                    "            beyond.append(score(edited) - score(pad(a, added)))",
                new="whole.append(score(a) - score(edited))\n"
                    "            beyond.append(score(pad(a, added)) - score(edited))"),
        Mistake(says="You took absolute changes: a model may punish an edit, and changes both ways cancel.",
                old="whole.append(score(edited) - score(a))\n"
                    "            beyond.append(score(edited) - score(pad(a, added)))",
                new="whole.append(abs(score(edited) - score(a)))\n"
                    "            beyond.append(abs(score(edited) - score(pad(a, added))))"),
        Mistake(says="Your spread is that of the edited answers' scores: it changes with each edit.",
                old="        found[name] = ",
                new="        after = [score(edit(a)) for a in answers]\n"
                    "        spread = mean((s - mean(after)) ** 2 for s in after) ** 0.5\n"
                    "        found[name] = "),
        Mistake(says="You looked at the first answer only.", old="for a in answers:",
                new="for a in answers[:1]:"),
        Mistake(says="You summed over the answers: asked for is a mean.",
                old="mean(whole) / spread, mean(beyond) / spread",
                new="sum(whole) / spread, sum(beyond) / spread"),
        Mistake(says="The sign of `whole` is turned round: edited less answer.",
                old="whole.append(score(edited) - score(a))", new="whole.append(score(a) - score(edited))"),
        Mistake(says="The sign of `beyond` is turned round: edited less padded.",
                old="score(edited) - score(pad(a, added))", new="score(pad(a, added)) - score(edited)"),
        Mistake(says="You padded the edited text: it is the unchanged answer that is padded to the same "
                     "length.",
                old="score(edited) - score(pad(a, added))", new="score(edited) - score(pad(edited, added))"),
        Mistake(says="You padded the edited text and compared it with the answer: compare the edited text "
                     "with "
                     "the padded answer.",
                old="score(edited) - score(pad(a, added))", new="score(pad(edited, added)) - score(edited)"),
        Mistake(says="You padded all answers by the mean number of added words: each has its own n.",
                old="added = max(0, words(edited) - words(a))",
                new="added = max(0, round(mean(words(edit(b)) - words(b) for b in answers)))"),
        Mistake(says="You summed over the answers: asked for are means.",
                old="return sum(numbers) / len(numbers)", new="return sum(numbers)"),
        Mistake(says="Your spread lacks the mean: it is the root of the mean square of the scores.",
                old="mean((s - mean(before)) ** 2 for s in before)", new="mean(s ** 2 for s in before)"),
        Mistake(says="Your spread adds the squares up: the population's variance is their mean.",
                old="spread = mean((s - mean(before)) ** 2 for s in before) ** 0.5",
                new="spread = sum((s - mean(before)) ** 2 for s in before) ** 0.5"),
        Mistake(says="Your spread is the mean absolute deviation: asked for is the standard deviation.",
                old="spread = mean((s - mean(before)) ** 2 for s in before) ** 0.5",
                new="spread = mean(abs(s - mean(before)) for s in before)"),
        Mistake(says="You multiplied by the spread: an effect is divided by it.",
                old="mean(whole) / spread, mean(beyond) / spread",
                new="mean(whole) * spread, mean(beyond) * spread"),
        Mistake(says="You divided by the mean score, not by the spread of the scores.",
                old="mean(whole) / spread, mean(beyond) / spread",
                new="mean(whole) / mean(before), mean(beyond) / mean(before)"),
        Mistake(says="You divided each effect by its own spread: the spread is that of the unchanged scores.",
                old="mean(whole) / spread, mean(beyond) / spread",
                new="mean(whole) / (mean((w - mean(whole)) ** 2 for w in whole) ** 0.5 or 1), "
                    "mean(beyond) / (mean((w - mean(beyond)) ** 2 for w in beyond) ** 0.5 or 1)"),
        Mistake(says="The two effects are swapped: `whole` comes first.",
                old="mean(whole) / spread, mean(beyond) / spread",
                new="mean(beyond) / spread, mean(whole) / spread"),
        Mistake(says="n is the words that were added, after less before; you took before less after.",
                old="words(edited) - words(a)", new="words(a) - words(edited)"),
        Mistake(says="You padded by one word at least: where nothing was added, n is 0.",
                old="max(0, words(edited) - words(a))", new="max(1, words(edited) - words(a))"),
        Mistake(says="n is wrong by one.", old="added = max(0, words(edited) - words(a))",
                new="added = max(0, words(edited) - words(a)) + 1"),
        Mistake(says="You padded by the words of the answer, not by those that were added.",
                old="max(0, words(edited) - words(a))", new="words(a)"),
        Mistake(says="You left the answer's own score out: an effect is a difference.",
                old="whole.append(score(edited) - score(a))", new="whole.append(score(edited))"),
        Mistake(says="`beyond` lacks the padded answer's score: it is a difference.",
                old="beyond.append(score(edited) - score(pad(a, added)))",
                new="beyond.append(score(edited))"),
        Mistake(says="`whole` adds the two scores: it is edited less answer.",
                old="whole.append(score(edited) - score(a))", new="whole.append(score(edited) + score(a))"),
        Mistake(says="`beyond` adds the two scores: it is edited less padded.",
                old="score(edited) - score(pad(a, added))", new="score(edited) + score(pad(a, added))"),
        Mistake(says="You divided `whole` by the spread and not `beyond`.",
                old="mean(whole) / spread, mean(beyond) / spread", new="mean(whole) / spread, mean(beyond)"),
        Mistake(says="You divided `beyond` by the spread and not `whole`.",
                old="mean(whole) / spread, mean(beyond) / spread", new="mean(whole), mean(beyond) / spread"),
        Mistake(says="You took the largest effect of all answers: asked for is the mean.",
                old="found[name] = mean(whole) / spread, mean(beyond) / spread",
                new="found[name] = max(whole) / spread, max(beyond) / spread"),
        Mistake(says="The spread's deviations are squared, neither cubed nor to the fourth power.",
                old="(s - mean(before)) ** 2", new="(s - mean(before)) ** 4"),
    ),
    cases=cases, right=right,
    parts={"`whole`": lambda found: [found[name][0] for name in EDITS],
           "`beyond`": lambda found: [found[name][1] for name in EDITS]},
    properties=(
        Property(says="A reward model in another unit has the same effects.", holds=ignores_unit),
        Property(says="An edit that changes nothing has effect 0.", holds=nothing_changes),
        Property(says="Line breaks and double spaces add no words.", holds=ignores_layout),
        Property(says="An answer that occurs several times counts several times.",
                 holds=every_answer_counts),
    ),
)
