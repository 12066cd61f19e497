"""Log-probabilities of tokens, the shift and the mask."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    def draw(length: int, vocabulary: int, size: float = 2.0) -> tuple[list[list[float]], list[int]]:
        return ([[round(random.gauss(0, size), 2) for _ in range(vocabulary)] for _ in range(length)],
                [random.randrange(vocabulary) for _ in range(length)])
    yield [[0.0, 0.0], [3.0, 0.0], [1.0, 2.0]], [0, 1, 0], [False, True, True]
    for length, vocabulary in ((4, 3), (5, 5), (6, 4)):
        prompt = random.randint(1, length - 2)
        mask = [t >= prompt and random.random() < 0.8 for t in range(length)]
        yield *draw(length, vocabulary), mask
    yield *draw(4, 3), [False, True, True, True]
    yield *draw(3, 3), [True, True, True]
    yield *draw(4, 3, 900.0), [False, True, True, True]


def right(logits: list[list[float]], tokens: list[int], mask: list[int]) -> object:
    import torch

    from postgrad.maths.logprob import logp_of_logits
    found = logp_of_logits(torch.tensor([logits], dtype=torch.float64), torch.tensor([tokens]))[0]
    wanted = torch.tensor(mask)
    wanted[0] = False
    return torch.where(wanted, found, 0.0)


def is_a_log(answer: Answer, logits: list[list[float]], tokens: list[int], mask: list[int]) -> bool:
    return all(x <= 1e-6 for x in answer(logits, tokens, mask))


def nothing_first(answer: Answer, logits: list[list[float]], tokens: list[int], mask: list[int]) -> bool:
    return bool(answer(logits, tokens, [True] * len(tokens))[0] == 0)


def sums_to_one(answer: Answer, logits: list[list[float]], tokens: list[int], mask: list[int]) -> bool:
    """Over every token that could stand last, the probabilities sum to 1."""
    from math import exp
    whole = [False] + [True] * (len(tokens) - 1)
    chances = (exp(answer(logits, [*tokens[:-1], v], whole)[-1]) for v in range(len(logits[0])))
    return abs(sum(chances) - 1) < 1e-3


def keeps_shift(answer: Answer, logits: list[list[float]], tokens: list[int], mask: list[int]) -> bool:
    raised = [[x + 3 for x in row] for row in logits]
    return near(answer(raised, tokens, mask), answer(logits, tokens, mask), 1e-3)


EXERCISE = Exercise(
    name="log-probs", title="Log-probabilities and the mask", chapter=3, function="log_probs",
    statement="""
Everything that trains a policy begins here: the log-probability of each token that the policy wrote.

Write `log_probs(logits, tokens, mask)` for one row. `logits[t]` is a list of numbers over the
vocabulary, what the model says after it has read token t: so it is about token t + 1. `tokens[t]` is
the token at place t, `mask[t]` whether the policy wrote it (prompt, tool replies and padding are
False).

Return as many numbers as there are tokens: at place t the log-probability of token t given those before
it, and 0 where the mask is False. The first token is predicted by nobody: its number is always 0.

    log_probs([[0, 0], [3, 0], [1, 2]], [0, 1, 0], [False, True, True]) -> [0, -0.6931, -0.0486]

Logits can be 1000 and more; no number may overflow.
""",
    starter="""
def log_probs(logits, tokens, mask):
    ...
""",
    hints=(
        "What the model says about token t stands in `logits[t - 1]`.",
        "log softmax(x)[v] = x[v] - log(sum(exp(x))).",
        "Take the largest logit out before exp: log(sum(exp(x))) = m + log(sum(exp(x - m))), m = max(x).",
    ),
    solution="""
import math


def log_softmax(row):
    top = max(row)
    total = top + math.log(sum(math.exp(x - top) for x in row))
    return [x - total for x in row]


def log_probs(logits, tokens, mask):
    found = [0.0] * len(tokens)
    for t in range(1, len(tokens)):
        if mask[t]:
            found[t] = log_softmax(logits[t - 1])[tokens[t]]
    return found
""",
    mistakes=(
        Mistake(says="You read a token's log-probability at its own place: `logits[t]` is about token t + 1.",
                old="logits[t - 1]", new="logits[t]"),
        Mistake(says="You shifted the wrong way: token t is predicted one place before it.",
                old="found[t] = log_softmax(logits[t - 1])[tokens[t]]",
                new="found[t] = log_softmax(logits[min(t + 1, len(tokens) - 1)])[tokens[t]]"),
        Mistake(says="You wrote the log-probability of the next token into this token's place: everything "
                     "about token t stands in column t.",
                old="    for t in range(1, len(tokens)):\n        if mask[t]:\n"
                    "            found[t] = log_softmax(logits[t - 1])[tokens[t]]",
                new="    for t in range(len(tokens) - 1):\n        if mask[t]:\n"
                    "            found[t] = log_softmax(logits[t])[tokens[t + 1]]"),
        Mistake(says="You shifted the tokens and not the mask: it is the predicted token that must be the "
                     "policy's.", old="if mask[t]:", new="if mask[t - 1]:"),
        Mistake(says="You did not use the mask: the prompt's tokens are not the policy's.",
                old="if mask[t]:", new="if True:"),
        Mistake(says="You returned raw logits: they are no log-probabilities before log_softmax.",
                old="log_softmax(logits[t - 1])[tokens[t]]", new="logits[t - 1][tokens[t]]"),
        Mistake(says="You returned probabilities: the log is missing.",
                old="= log_softmax(logits[t - 1])[tokens[t]]",
                new="= math.exp(log_softmax(logits[t - 1])[tokens[t]])"),
        Mistake(says="It overflows or takes the log of 0 for large logits: take the largest one out before "
                     "exp.",
                old="top = max(row)", new="top = 0"),
        Mistake(says="You normalised over the places and not over the vocabulary: the wrong axis.",
                old="log_softmax(logits[t - 1])[tokens[t]]",
                new="log_softmax([row[tokens[t]] for row in logits])[t - 1]"),
        Mistake(says="The sign is turned round: that is the loss, -log p.",
                old="= log_softmax(logits[t - 1])", new="= -log_softmax(logits[t - 1])"),
        Mistake(says="You used the log of base 2: log-probabilities are natural logarithms.",
                old="= log_softmax(logits[t - 1])[tokens[t]]",
                new="= log_softmax(logits[t - 1])[tokens[t]] / math.log(2)"),
        Mistake(says="You took the log-probability of the token before: it is token t that row t - 1 is "
                     "about.",
                old="[tokens[t]]", new="[tokens[t - 1]]"),
        Mistake(says="You used the mask the wrong way round: it is True where the policy wrote the token.",
                old="if mask[t]:", new="if not mask[t]:"),
        Mistake(says="You gave the first token a number: nobody predicted it, so it is 0.",
                old="for t in range(1, len(tokens))", new="for t in range(len(tokens))"),
        Mistake(says="You left the second token out: only the first is predicted by nobody.",
                old="range(1, len(tokens))", new="range(2, len(tokens))"),
        Mistake(says="You left the last token out.", old="range(1, len(tokens))",
                new="range(1, len(tokens) - 1)"),
        Mistake(says="You stopped after the first token.", old="    return found",
                new="        break\n    return found"),
        Mistake(says="You divided the logits by the sum of their exponentials: subtract the log of that sum.",
                old="[x - total for x in row]", new="[x / total for x in row]"),
        Mistake(says="You added the log of the sum: it is subtracted.", old="[x - total for x in row]",
                new="[x + total for x in row]"),
        Mistake(says="You took the largest logit out and did not put it back: log-sum-exp is top + log(sum).",
                old="total = top + math.log", new="total = math.log"),
        Mistake(says="You subtracted only the largest logit: the log of the sum belongs to it.",
                old="[x - total for x in row]", new="[x - top for x in row]"),
        Mistake(says="You took one largest logit for all rows: a row far below it underflows.",
                old="found[t] = log_softmax(logits[t - 1])[tokens[t]]",
                new="whole = max(map(max, logits))\n"
                    "            found[t] = logits[t - 1][tokens[t]] - whole - math.log("
                    "sum(math.exp(x - whole) for x in logits[t - 1]))"),
        Mistake(says="You summed the log-probabilities up as you went: asked for is each token's own.",
                old="    return found",
                new="    for t in range(1, len(found)):\n        found[t] += found[t - 1]\n"
                "    return found"),
        Mistake(says="You cut the logits off: that changes the probabilities.",
                old="found[t] = log_softmax(logits[t - 1])",
                new="found[t] = log_softmax([min(x, 700) for x in logits[t - 1]])"),
        Mistake(says="You stopped at the first token of the policy's that is followed by another's: what the "
                     "policy writes after a tool's reply counts too.",
                old="            found[t] = log_softmax(logits[t - 1])[tokens[t]]",
                new="            found[t] = log_softmax(logits[t - 1])[tokens[t]]\n"
                    "        elif any(mask[1:t]):\n            break"),
        Mistake(says="You read a token's log-probability at its own place, the first one's too: `logits[t]` "
                     "is about "
                     "token t + 1.",
                old="    for t in range(1, len(tokens)):\n        if mask[t]:\n"
                    "            found[t] = log_softmax(logits[t - 1])[tokens[t]]",
                new="    for t in range(len(tokens)):\n        if mask[t]:\n"
                    "            found[t] = log_softmax(logits[t])[tokens[t]]"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="No log-probability is above 0.", holds=is_a_log),
        Property(says="The first token's number is 0, whatever the mask says.", holds=nothing_first),
        Property(says="Over all tokens that could stand last, the probabilities sum to 1.",
                 holds=sums_to_one),
        Property(says="A constant added to all logits changes nothing.", holds=keeps_shift),
        AGAIN,
    ),
)
