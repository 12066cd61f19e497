"""Chains that look back: a slip that is taken back at once, a fresh start after mistakes, a check of what was
done; and, for countdown, tries given up one after another.

"5+8=14, but wait, 5+8=13, 13-3=10"             turn_back
"5+8=14, 14-3=11, from the start: 5+8=13, ..."  restart
"5+8=13, now check: 13-8=5, 13-3=10"            recheck
"3+5=8, 8*8=64 no. 3+5=8, 8+8=16 yes"           countdown's way of turning back
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

from postgrad.data.tasks.base import split_of
from postgrad.data.tasks.chain import MARKS, RECHECK, RESTART, TURN_BACK, undone
from postgrad.data.tasks.countdown import NO, YES, combine, key
from postgrad.data.tasks.word_problems import Problem, apply, say, worked
from postgrad.rewards.expression import Tree, render, steps

SLIPS = (1, -1, 2, 10, -10)  # by how much a result is wrong
DRAWN = 40  # ways of joining the numbers that are looked at before a search ends short of its patience
THEN = {"": "", "en": "then ", "es": "luego "}


def chain(rng: random.Random, problem: Problem, languages: Sequence[str], kind: str = "") -> str:
    """The worked steps of a problem, right in the end; kind: how they look back, "" for not at all.

    languages: of each step, "" for signs. What looks back speaks the language of the step it looks back at,
    and of a step in signs the problem's. The random numbers drawn are the same whatever the kind.
    """
    done = worked(problem.start, problem.ops)
    at, slip, repeats = int(rng.random() * len(done)), pick(rng, SLIPS), rng.random() < 0.5
    at = max(at, 1) if kind == RESTART else at  # one step taken back is no fresh start
    said = [say(*step, language) for step, language in zip(done, languages, strict=True)]
    own = languages[at]
    mark = MARKS[own or problem.language].get(kind)
    plain = [(THEN[language] if i else "") + text
             for i, (text, language) in enumerate(zip(said, languages, strict=True))]
    if kind == RECHECK:
        check = said[at] if repeats else say(*undone(*done[at]), own)
        return ", ".join([*plain[: at + 1], f"{mark}: {check}", *plain[at + 1:]])
    if not kind:
        return ", ".join(plain)
    value, op, n, after = done[at]
    wrong = after + (slip if after + slip >= 0 else -slip)
    slipped = [*plain[:at], (THEN[own] if at else "") + say(value, op, n, wrong, own)]
    if kind == TURN_BACK:
        return ", ".join([*slipped, f"{mark}, {said[at]}", *plain[at + 1:]])
    assert kind == RESTART, kind
    if at + 1 < len(done) and goes_on(wrong, *problem.ops[at + 1]):
        op, n = problem.ops[at + 1]
        slipped.append(THEN[own] + say(wrong, op, n, apply(wrong, op, n), own))
    return ", ".join([*slipped, f"{mark}: {plain[0]}", *plain[1:]])


def goes_on(value: int, op: str, n: int) -> bool:
    """Whether an operation can follow on a value, in whole numbers from 0 up."""
    return value >= n if op == "-" else value % n == 0 if op == "/" else True


def pick(rng: random.Random, choices: Sequence):
    return choices[int(rng.random() * len(choices))]


def tries(rng: random.Random, numbers: list[int], target: int, patience: int) -> tuple[str, str]:
    """What is thought and what is answered by one who tries at random, up to `patience` times, each time to
    another end, and stops where the target is made. One who tries once says neither yes nor no.

    tries(rng, [3, 5, 8], 16, 2) -> ("3+5=8, 8*8=64 no. 3+5=8, 8+8=16 yes", "3+5+8")
    A try is written only where its own problem is of the train split: it is a solution of that problem.
    """
    ends: dict[int, Tree] = {}
    for drawn in count():
        if len(ends) == patience or target in ends or ends and drawn > DRAWN:
            break
        made = combine(rng, numbers)
        if made is not None and made[1] not in ends and split_of(key(numbers, made[1])) == "train":
            ends[made[1]] = made[0]
    written = [", ".join(steps(tree)[1]) for tree in ends.values()]
    last = render(list(ends.values())[-1])
    if patience == 1:
        return written[0], last
    marked = [f"{text} {YES if end == target else NO}" for end, text in zip(ends, written, strict=True)]
    return " ".join(marked), last
