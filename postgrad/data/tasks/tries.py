"""The steps of a search for an expression, checked one by one: "3+5=8, 8*8=64 no. 3+5=8, 8+8=16 yes".

A try joins the numbers step by step, and ends with "no." or "yes" or without a word. That it does not make
the target is no mistake where "no." says so: the next try has all numbers again, and whatever was wrong in
the one before is dropped with it. A step is wrong when its arithmetic does not hold, when it uses a number
that is not there, when it follows such a step in its try, or when its "no" or "yes" is false.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from postgrad.data.tasks.chain import MOST, TURN_BACK, thoughts
from postgrad.records import Step, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.expression import BadExpression, integers, parse, value

_SAID = r"\b(?:no|yes)\b[.!]?"
_PIECE = re.compile(rf"[^,\n]*?{_SAID}|[^,\n]+")  # what commas, line ends, no. and yes part
_STEP = re.compile(r"\s*([^=]+)=\s*([0-9]{1,9})\s*")


def check_tries(numbers: Sequence[int], target: int, text: str, said: Verdict) -> list[Step]:
    """Every written step, and the answer as the last at the end of the text, right or wrong.

    said: the verdict on the answer. The first step of a try after one that was given up is a turn_back.
    """
    steps: list[Step] = []
    pool, fault, begun, turned = Counter(numbers), "", False, False
    pieces = (found for found in _PIECE.finditer(text, *thoughts(text)) if found[0].strip())
    for found in islice(pieces, MOST):
        step, verdict = parted(found[0])
        reason = "follows a wrong step" if fault else join(pool, step) if step else ""
        made = not reason and list(pool.elements()) == [target]
        if not reason and verdict and made != (verdict == "yes"):
            reason = f"{verdict!r} is false: {target} is {'' if made else 'not '}made"
        steps.append(Step(end=found.start() + len(found[0].rstrip()), right=not reason, reason=reason,
                          kind=TURN_BACK if turned and step and not reason else "",
                          solves=made and not reason))
        fault, begun, turned = fault or reason, begun or bool(step), turned and not step
        if verdict == "no":
            pool, fault, begun, turned = Counter(numbers), "", False, begun or turned
    right = not fault and said.score >= 1.0
    steps.append(Step(end=len(text), right=right, solves=right,
                      reason="follows a wrong step" if fault else said.reason))
    return steps


def parted(piece: str) -> tuple[str, str]:
    """A step and what is said of its try: "8*8=64 no." -> ("8*8=64", "no"), "3+5=8" -> ("3+5=8", "")."""
    found = re.search(rf"({_SAID})\s*$", piece)
    return (piece[:found.start()].strip(), found[1].rstrip(".!")) if found else (piece.strip(), "")


def join(pool: Counter, step: str) -> str:
    """Takes the numbers of a step out of the pool and puts its result there; or says what is wrong with it.

    Of {3: 1, 5: 1, 8: 1}, "3+5=8" leaves {8: 2}.
    """
    match = _STEP.fullmatch(step)
    if match is None:
        return f"{shorten(step)!r} is no step"
    try:
        tree = parse(match[1].strip())
        holds = value(tree)
    except BadExpression as error:
        return str(error)
    used, result = Counter(integers(tree)), int(match[2])
    if holds != result:
        return f"{shorten(match[1])} is {holds}, not {result}"
    if isinstance(tree, int):
        return f"{shorten(step)!r} joins nothing"
    if missing := used - pool:
        return f"there is no {min(missing)} left"
    pool.subtract(used)
    pool[result] += 1
    return ""
