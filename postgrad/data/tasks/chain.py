"""The written steps of a chain of operations, checked one by one: "5+8=13, 13-3=10, 10*2=20".

A chain may look back, where a mark says so: "but wait, 5+8=13" takes back what was wrong, "from the start:
5+8=13" begins again, "now check: 13-8=5" looks at what is done. The mark opens the way, and says what is
meant where a step can be read in two ways; which of the three it is follows from what the step does.

Left out on purpose: steps in another order ("8+5=13"), parentheses, decimals.
Such a step is no step of the chain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from postgrad.records import Step, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.expression import BadExpression, expression_value, integers, parse_expression
from postgrad.rewards.format import ANSWER, END_THINK, THINK
from postgrad.rewards.number import exact_number

MOST = 1000  # steps of a reply that are read: the last of so many goes on to the end of the thoughts
_STEP = re.compile(r"\s*([0-9]{1,9})((?:\s*[-+*/]\s*[0-9]{1,9}){1,16})\s*=\s*([0-9]{1,9})\s*")
_OPERATION = re.compile(r"([-+*/])\s*([0-9]+)")
_OPPOSITE = {"+": "-", "-": "+", "*": "/", "/": "*"}

KINDS = TURN_BACK, RESTART, RECHECK = "turn_back", "restart", "recheck"
MARKS = {  # language -> how its writers say that they look back
    "en": {TURN_BACK: "but wait", RESTART: "from the start", RECHECK: "now check"},
    "es": {TURN_BACK: "pero espera", RESTART: "desde el principio", RECHECK: "ahora compruebo"},
}
_MEANT = {mark: kind for own in MARKS.values() for kind, mark in own.items()} | {
    "wait": TURN_BACK, "no": TURN_BACK, "espera": TURN_BACK, "check": RECHECK, "compruebo": RECHECK}
_MARK = re.compile(rf"\s*({'|'.join(_MEANT)})(?:[:.;!\s]+|$)", re.IGNORECASE)

Ops = Sequence[tuple[str, int]]


def step_spans(text: str) -> list[tuple[int, int]]:
    """Where the steps of a reply stand: what commas and line ends part between <think> and </think>,
    spaces left out.

    "<think>5+8=13, 13*2=26</think><answer>26</answer>" -> [(7, 13), (15, 22)]. Without the tags:
    the text up to the answer.
    """
    start, stop = thought_span(text)
    spans = []
    for found in re.finditer(r"[^,\n]+", text[start:stop]):
        piece, at = found[0], start + found.start()
        if piece.strip():
            spans.append((at + len(piece) - len(piece.lstrip()), at + len(piece.rstrip())))
        if len(spans) == MOST:
            end = start + len(text[start:stop].rstrip(",\n\t "))
            return [*spans[:-1], (spans[-1][0], max(spans[-1][1], end))]
    return spans


def thought_span(text: str) -> tuple[int, int]:
    """Where the thoughts of a reply begin and end: between the tags, or without them before the answer."""
    start = text.find(THINK) + len(THINK) if THINK in text else 0
    stops = [place for tag in (END_THINK, ANSWER) if (place := text.find(tag, start)) >= 0]
    return start, min(stops, default=len(text))


def check_chain(values: Sequence[int], ops: Ops, text: str, said: Verdict,
                symbols: Mapping[str, str]) -> list[Step]:
    """Every written step, and the answer as the last step at the end of the text, right or wrong.

    values: the start and the value after each of ops. said: the verdict on the answer. symbols: words that
    stand for signs. A step is right when its arithmetic holds, it does operations that are still to be done,
    from the value they start at, and all before it is right. Several may be done in one step, and some may be
    left unwritten. What follows a wrong step builds on it and is wrong as well: a label says whether all is
    right so far (Uesato et al. 2022, 2211.14275; in Lightman et al.
    2023, 2305.20050, labelling stops at the first mistake).
    A step after a mark may go back: what it takes back counts no more, and where it is right, all is.
    """
    steps, place, fault, since, mark = [], 0, "", 0, ""
    for begin, end in step_spans(text):
        meant, piece = split_mark(text[begin:end])
        mark = meant or mark
        if not piece:
            continue  # a mark alone belongs to the step after it
        since += not mark
        if fault and not mark:
            steps.append(Step(end=end, right=False, reason="follows a wrong step"))
            continue
        found = follow_step(values, ops, place, _signs(piece, symbols), mark, bool(fault))
        mark = ""
        if isinstance(found, str):
            fault = found
            steps.append(Step(end=end, right=False, reason=fault))
            continue
        kind = found.kind(place, bool(fault), since)
        steps.append(Step(end=end, right=True, kind=kind, solves=found.after == len(ops)))
        place, fault, since = found.after, "", 1 if kind == RESTART else since
    right = not fault and said.score >= 1.0
    steps.append(Step(end=len(text), right=right, reason="follows a wrong step" if fault else said.reason,
                      solves=right))
    return steps


class StepPlace(NamedTuple):
    """Where a right step stands in the chain: it does the operations before .. after - 1, or checks them."""

    before: int
    after: int
    undoes: bool = False

    def kind(self, place: int, fault: bool, since: int) -> str:
        """How it looks back. place: the operations done before it; fault: it stands after a wrong step;
        since: the steps that the chain has had since it began, without what took them back."""
        if fault:
            return RESTART if self.before == 0 and since > 1 else TURN_BACK
        return RECHECK if self.undoes or self.before < place else ""


def follow_step(values: Sequence[int], ops: Ops, place: int, step: str, mark: str = "",
                fault: bool = False) -> StepPlace | str:
    """What a step does, `place` operations being done before it; or why it is wrong.

    follow((5, 13, 10), (("+", 8), ("-", 3)), 0, "5+8=13") -> Found(0, 1);  "13-3=10" -> Found(1, 2);
        "5+8-3=10" -> Found(0, 2);  "5+8=14" -> the reason
    mark: what a mark before it means; then it may also do again what is done, or, as a check where no fault
    is open, undo it: "13-8=5" after "5+8=13".
    """
    claim = parse_step(step)
    if isinstance(claim, str):
        return claim
    first, done, result = claim.first, claim.done, claim.result
    if claim.value != result:
        return f"{shorten(claim.sum)} is {claim.value}, not {claim.written}"
    if mark == RECHECK and not fault and any(
            (first, *done[0], result) == undone(values[at], *ops[at], values[at + 1])
            for at in range(place) if len(done) == 1):
        return StepPlace(place, place, undoes=True)
    for at in step_places(place, len(ops), mark):
        after = at + len(done)
        if tuple(ops[at:after]) == done and (values[at], values[after]) == (first, result):
            return StepPlace(at, after)
    return f"{shorten(claim.sum)} is not what comes next"


class StepClaim(NamedTuple):
    """What a step says, and what its left side is worth: "5+8-3=11" -> Claim(first=5, done=(("+", 8),
    ("-", 3)), result=11, written="11", sum="5+8-3", value=10)."""

    first: int
    done: tuple[tuple[str, int], ...]
    result: int
    written: str
    sum: str
    value: Fraction


def parse_step(step: str) -> StepClaim | str:
    """What a step says, or why it says nothing."""
    match = _STEP.fullmatch(step)
    if match is None:
        return f"{shorten(step)!r} is no step"
    first, rest, result = match.groups()
    try:
        worth = expression_value(parse_expression(first + rest))
    except BadExpression as error:
        return str(error)
    done = tuple((op, int(n)) for op, n in _OPERATION.findall(rest))
    return StepClaim(int(first), done, int(result), result, first + rest, worth)


def check_each(start: int, ops: Ops, text: str, answer: str, symbols: Mapping[str, str]) -> list[bool]:
    """The steps of `check_chain`, each by itself: what stands before it is taken as it is written.

    A step holds when its arithmetic does, it does the operations that come next, and it starts from what the
    step before it ends with, the first from the start; the answer holds when it is what the last step ends
    with and nothing is left to do. So a slip is one step that does not hold, the steps built on it do, and
    where all hold the answer is right. "5+8=14, 14*2=28" and 28, of 5 + 8 doubled: [False, True, True].
    """
    before: int | None = start
    place, holds = 0, []
    for begin, end in step_spans(text):
        _, piece = split_mark(text[begin:end])
        if not piece:
            continue
        claim = parse_step(_signs(piece, symbols))
        if isinstance(claim, str):
            holds.append(False)
            before, place = None, place + 1
            continue
        after = place + len(claim.done)
        holds.append(claim.value == claim.result and claim.first == before
                     and tuple(ops[place:after]) == claim.done)
        before, place = claim.result, after
    return [*holds, place == len(ops) and before is not None and exact_number(before)(answer).score >= 1]


def step_places(place: int, count: int, mark: str) -> Sequence[int]:
    """Where in the chain a step may stand, likeliest first, `place` of `count` operations being done."""
    ahead, done = range(place, count), range(place)
    return {TURN_BACK: (*ahead, *done[::-1]), RESTART: (*done, *ahead),
            RECHECK: (*done[::-1], *ahead)}.get(mark, ahead)


def undone(before: int, op: str, n: int, after: int) -> tuple[int, str, int, int]:
    """A step backwards: undone(5, "+", 8, 13) -> (13, "-", 8, 5)."""
    return after, _OPPOSITE[op], n, before


def split_mark(piece: str) -> tuple[str, str]:
    """What the first mark at the beginning of a piece means, and what follows the marks: "but wait" ->
    ("turn_back", ""), "now check: 13-8=5" -> ("recheck", "13-8=5"), "5+8=13" -> ("", "5+8=13")."""
    kind, rest = "", piece
    while found := _MARK.match(rest):
        kind, rest = kind or _MEANT[found[1].lower()], rest[found.end():]
    return kind, rest


def _signs(text: str, symbols: Mapping[str, str]) -> str:
    """A spoken step in signs: "then 5 plus 8 is 13" -> "5 + 8 = 13"."""
    return " ".join(symbols.get(word, word) for word in text.split()).strip()


_SAID = r"\b(?:no|yes)\b[.!]?"
_PIECE = re.compile(rf"[^,\n]*?{_SAID}|[^,\n]+")  # what commas, line ends, no. and yes part
_TRY_STEP = re.compile(r"\s*([^=]+)=\s*([0-9]{1,9})\s*")


def check_tries(numbers: Sequence[int], target: int, text: str, said: Verdict) -> list[Step]:
    """Every written step, and the answer as the last at the end of the text, right or wrong.

    said: the verdict on the answer. The first step of a try after one that was given up is a turn_back.
    """
    steps: list[Step] = []
    pool, fault, begun, turned = Counter(numbers), "", False, False
    pieces = (found for found in _PIECE.finditer(text, *thought_span(text)) if found[0].strip())
    for found in islice(pieces, MOST):
        step, verdict = split_try(found[0])
        reason = "follows a wrong step" if fault else join_numbers(pool, step) if step else ""
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


def split_try(piece: str) -> tuple[str, str]:
    """A step and what is said of its try: "8*8=64 no." -> ("8*8=64", "no"), "3+5=8" -> ("3+5=8", "")."""
    found = re.search(rf"({_SAID})\s*$", piece)
    return (piece[:found.start()].strip(), found[1].rstrip(".!")) if found else (piece.strip(), "")


def join_numbers(pool: Counter[int], step: str) -> str:
    """Takes the numbers of a step out of the pool and puts its result there; or says what is wrong with it.

    Of {3: 1, 5: 1, 8: 1}, "3+5=8" leaves {8: 2}.
    """
    match = _TRY_STEP.fullmatch(step)
    if match is None:
        return f"{shorten(step)!r} is no step"
    try:
        tree = parse_expression(match[1].strip())
        holds = expression_value(tree)
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
