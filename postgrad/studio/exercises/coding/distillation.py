"""Two gradients that lead a student to its teacher."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [0.0, 0.0], [2.0, 0.0]
    yield [1.0, 0.0, -1.0], [1.0, 0.0, -1.0]
    for count in (2, 3, 3, 5, 8):
        yield ([round(random.gauss(0, 1.5), 2) for _ in range(count)],
               [round(random.gauss(0, 1.5), 2) for _ in range(count)])
    yield [3.0, 3.0, -2.0], [-3.0, 0.0, 3.0]
    yield [900.0, 0.0, 899.0], [0.0, 900.0, 902.0]


def right(student: list[float], teacher: list[float]) -> object:
    """By automatic differentiation."""
    import torch
    ours = torch.tensor(student, dtype=torch.float64, requires_grad=True)
    logs, theirs = ours.log_softmax(0), torch.tensor(teacher, dtype=torch.float64).log_softmax(0)
    reverse, forward = (logs.exp() * (logs - theirs)).sum(), (theirs.exp() * (theirs - logs)).sum()
    return [torch.autograd.grad(kl, ours, retain_graph=True)[0] for kl in (reverse, forward)]


def sums_to_nothing(answer: Answer, student: list[float], teacher: list[float]) -> bool:
    return all(abs(sum(part)) < 1e-3 for part in answer(student, teacher))


def rests_at_the_teacher(answer: Answer, student: list[float], teacher: list[float]) -> bool:
    return all(abs(x) < 1e-6 for part in answer(teacher, teacher) for x in part)


def ignores_level(answer: Answer, student: list[float], teacher: list[float]) -> bool:
    """Logits of another level are the same policies."""
    return near(answer([x + 5 for x in student], [x - 3 for x in teacher]), answer(student, teacher), 1e-3)


EXERCISE = Exercise(
    name="distillation", title="Two gradients towards a teacher", chapter=7, function="gradients",
    statement="""
A student learns from a teacher. On texts that the student samples itself, what falls is the reverse KL;
on texts of the teacher's, the forward KL.

Write `gradients(student, teacher)`: two lists of logits over the vocabulary, at one place of a text. With
s = softmax(student) and t = softmax(teacher) return the gradients of both with respect to the student's
logits, first of the reverse KL, then of the forward KL, each a list:

    reverse: KL(s || t) = sum over v of s[v] * log(s[v] / t[v])
    forward: KL(t || s) = sum over v of t[v] * log(t[v] / s[v])

    gradients([0, 0], [2, 0]) -> [[-0.5, 0.5], [-0.3808, 0.3808]]

Work them out by hand. Logits can be 900 and more; no number may overflow, and no probability that has
vanished may break a logarithm.
""",
    starter="""
def gradients(student, teacher):
    ...
    return reverse, forward
""",
    hints=(
        "The derivative of log s[v] by logit w is (1 if v == w else 0) - s[w].",
        "In the forward KL the weights t do not depend on the student, so only s - t remains.",
        "In the reverse KL they do: s[v] * (gap[v] - mean of the gaps under s), with gap = log s - log t.",
    ),
    solution="""
import math


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def gradients(student, teacher):
    logs, theirs = log_softmax(student), log_softmax(teacher)
    s = [math.exp(x) for x in logs]
    t = [math.exp(x) for x in theirs]
    gaps = [a - b for a, b in zip(logs, theirs)]
    kl = sum(p * gap for p, gap in zip(s, gaps))
    reverse = [p * (gap - kl) for p, gap in zip(s, gaps)]
    forward = [p - q for p, q in zip(s, t)]
    return reverse, forward
""",
    mistakes=(
        Mistake(says="You returned the forward gradient first: asked for is the reverse one, then the "
                     "forward one.", old="return reverse, forward", new="return forward, reverse"),
        Mistake(says="Your forward gradient has the wrong sign: the KL falls where the student gives more to "
                     "what the teacher prefers, s - t.", old="[p - q for p, q", new="[q - p for p, q"),
        Mistake(says="Your reverse gradient has the wrong sign: it is s * (gap - KL), with gap = log s - "
                     "log t.",
                old="p * (gap - kl)", new="p * (kl - gap)"),
        Mistake(says="Your reverse gradient is the terms of the KL itself, without the mean of the gaps: "
                     "raising one logit lowers all other "
                     "probabilities, so the KL is to be subtracted.", old="p * (gap - kl)", new="p * gap"),
        Mistake(says="Your reverse gradient is not weighted by the student's probabilities.",
                old="p * (gap - kl)", new="(gap - kl)"),
        Mistake(says="You weighted the reverse gradient by the teacher's probabilities: it is the student "
                     "that samples.", old="for p, gap in zip(s, gaps)]", new="for p, gap in zip(t, gaps)]"),
        Mistake(says="You took the mean of the gaps under the teacher: under the reverse KL the student "
                     "samples.", old="kl = sum(p * gap for p, gap in zip(s, gaps))",
                new="kl = sum(p * gap for p, gap in zip(t, gaps))"),
        Mistake(says="Your forward gradient lacks the teacher: it is s - t.",
                old="[p - q for p, q in zip(s, t)]", new="[p for p, q in zip(s, t)]"),
        Mistake(says="Your forward gradient is a difference of logits or logs: it is one of probabilities.",
                old="[p - q for p, q in zip(s, t)]", new="gaps"),
        Mistake(says="Your forward gradient is -t: the softmax of the student also moves, which adds s.",
                old="[p - q for p, q in zip(s, t)]", new="[-q for p, q in zip(s, t)]"),
        Mistake(says="You took the plain mean of the gaps: each counts by the student's probability.",
                old="kl = sum(p * gap for p, gap in zip(s, gaps))", new="kl = sum(gaps) / len(gaps)"),
        Mistake(says="It overflows or takes the log of 0 for large logits: take the largest one out before "
                     "exp.", old="top = max(logits)", new="top = 0"),
        Mistake(says="You took the log of a probability that has vanished: subtract log-probabilities.",
                old="gaps = [a - b for a, b in zip(logs, theirs)]",
                new="gaps = [math.log(a / b) for a, b in zip(s, t)]"),
        Mistake(says="You differentiated by the teacher's logits: it is the student that learns.",
                old="    logs, theirs = log_softmax(student), log_softmax(teacher)",
                new="    logs, theirs = log_softmax(teacher), log_softmax(student)"),
    ),
    cases=cases, right=right, parts={"the reverse gradient": itemgetter(0),
                                     "the forward gradient": itemgetter(1)},
    properties=(
        Property(says="Each gradient sums to 0: a softmax does not see the level of its logits.",
                 holds=sums_to_nothing),
        Property(says="A student that is its teacher stays where it is.", holds=rests_at_the_teacher),
        Property(says="A constant added to all logits changes nothing.", holds=ignores_level),
        AGAIN,
    ),
)
