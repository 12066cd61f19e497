"""Labels of the steps of a reply: of a chain of operations ("5+8=13, 13-3=10"), of tries of a countdown.

After a mark a chain may look back: "but wait, 5+8=13" corrects a step, "from the start: 5+8=13" restarts,
"now check: 13-8=5" checks. The mark permits looking back, and decides where a step is ambiguous; the kind
follows from what the step does. Left out: steps in another order ("8+5=13"), parentheses, decimals.
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

MOST = 1000  # steps of a reply; the last one extends to the end of the thoughts
_STEP = re.compile(r"\s*([0-9]{1,9})((?:\s*[-+*/]\s*[0-9]{1,9}){1,16})\s*=\s*([0-9]{1,9})\s*")
_OPERATION = re.compile(r"([-+*/])\s*([0-9]+)")
_OPPOSITE = {"+": "-", "-": "+", "*": "/", "/": "*"}

KINDS = TURN_BACK, RESTART, RECHECK = "turn_back", "restart", "recheck"
MARKS = {  # by language
    "en": {TURN_BACK: "but wait", RESTART: "from the start", RECHECK: "now check"},
    "es": {TURN_BACK: "pero espera", RESTART: "desde el principio", RECHECK: "ahora compruebo"},
}
_MEANT = {mark: kind for own in MARKS.values() for kind, mark in own.items()} | {
    "wait": TURN_BACK, "no": TURN_BACK, "espera": TURN_BACK, "check": RECHECK, "compruebo": RECHECK}
_MARK = re.compile(rf"\s*({'|'.join(_MEANT)})(?:[:.;!\s]+|$)", re.IGNORECASE)

Ops = Sequence[tuple[str, int]]


def step_spans(text: str) -> list[tuple[int, int]]:
    """The spans of the steps of a reply: between <think> and </think>, separated by commas and line ends.

    "<think>5+8=13, 13*2=26</think><answer>26</answer>" -> [(7, 13), (15, 22)]
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
    """The span of the thoughts of a reply: between the tags, or without them up to the answer."""
    start = text.find(THINK) + len(THINK) if THINK in text else 0
    stops = [place for tag in (END_THINK, ANSWER) if (place := text.find(tag, start)) >= 0]
    return start, min(stops, default=len(text))


def check_chain(values: Sequence[int], ops: Ops, text: str, verdict: Verdict,
                symbols: Mapping[str, str]) -> list[Step]:
    """The labelled steps of a chain; the last is the answer, at the end of the text.

    values: the start and the value after each of ops. verdict: of the answer. symbols: words for signs. A
    step is right if its arithmetic holds, it does pending operations from the value they start at, and all
    before it is right. A step may do several operations; some may be omitted. Steps after a wrong one are
    wrong: a label says whether all is right so far (Uesato et al. 2022, 2211.14275; in Lightman et al. 2023,
    2305.20050, labelling stops at the first mistake). A right step after a mark may redo earlier operations;
    what it takes back no longer counts.
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
        step = follow_step(values, ops, place, _signs(piece, symbols), mark, bool(fault))
        mark = ""
        if isinstance(step, str):
            fault = step
            steps.append(Step(end=end, right=False, reason=fault))
            continue
        kind = step.kind(place, bool(fault), since)
        steps.append(Step(end=end, right=True, kind=kind, solves=step.after == len(ops)))
        place, fault, since = step.after, "", 1 if kind == RESTART else since
    return [*steps, _answer_step(text, fault, verdict)]


def _answer_step(text: str, fault: str, verdict: Verdict) -> Step:
    right = not fault and verdict.score >= 1.0
    return Step(end=len(text), right=right, solves=right,
                reason="follows a wrong step" if fault else verdict.reason)


class StepPlace(NamedTuple):
    """The place of a right step: it does, or checks, the operations before .. after - 1."""

    before: int
    after: int
    undoes: bool = False

    def kind(self, place: int, fault: bool, since: int) -> str:
        """How it looks back. place: operations done before it. fault: it follows a wrong step. since: steps
        since the chain began."""
        if fault:
            return RESTART if self.before == 0 and since > 1 else TURN_BACK
        return RECHECK if self.undoes or self.before < place else ""


def follow_step(values: Sequence[int], ops: Ops, place: int, step: str, mark: str = "",
                fault: bool = False) -> StepPlace | str:
    """The place of a step after `place` operations, or why it is wrong.

    follow_step((5, 13, 10), (("+", 8), ("-", 3)), 0, "5+8=13") -> StepPlace(0, 1); "13-3=10" -> (1, 2);
        "5+8-3=10" -> (0, 2); "5+8=14" -> the reason
    mark: the kind of mark before it. A marked step may redo operations or, as a check without an open fault,
    undo one: "13-8=5" after "5+8=13".
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
    """"5+8-3=11" -> StepClaim(first=5, done=(("+", 8), ("-", 3)), result=11, written="11", sum="5+8-3",
    value=10)"""

    first: int
    done: tuple[tuple[str, int], ...]
    result: int
    written: str
    sum: str
    value: Fraction


def parse_step(step: str) -> StepClaim | str:
    """The claim of a step, or why it is none."""
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
    """Whether each step of `check_chain` holds by itself, given the steps before it as they are written.

    A step holds if its arithmetic does, it does the next operations, and it starts from the result of the
    step before it. The answer holds if it is the last result and no operation is left. So one slip is one
    step that does not hold. "5+8=14, 14*2=28" and 28, of 5 + 8 doubled: [False, True, True].
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
    """The places that a step may have after `place` of `count` operations, likeliest first."""
    ahead, done = range(place, count), range(place)
    return {TURN_BACK: (*ahead, *done[::-1]), RESTART: (*done, *ahead),
            RECHECK: (*done[::-1], *ahead)}.get(mark, ahead)


def undone(before: int, op: str, n: int, after: int) -> tuple[int, str, int, int]:
    """undone(5, "+", 8, 13) -> (13, "-", 8, 5)"""
    return after, _OPPOSITE[op], n, before


def split_mark(piece: str) -> tuple[str, str]:
    """The kind of a leading mark, and the rest: "but wait" -> ("turn_back", ""), "now check: 13-8=5" ->
    ("recheck", "13-8=5"), "5+8=13" -> ("", "5+8=13")."""
    kind, rest = "", piece
    while mark := _MARK.match(rest):
        kind, rest = kind or _MEANT[mark[1].lower()], rest[mark.end():]
    return kind, rest


def _signs(text: str, symbols: Mapping[str, str]) -> str:
    """"then 5 plus 8 is 13" -> "5 + 8 = 13" """
    return " ".join(symbols.get(word, word) for word in text.split()).strip()


_SAID = r"\b(?:no|yes)\b[.!]?"
_PIECE = re.compile(rf"[^,\n]*?{_SAID}|[^,\n]+")  # separated by commas, line ends, no. and yes
_TRY_STEP = re.compile(r"\s*([^=]+)=\s*([0-9]{1,9})\s*")


def check_tries(numbers: Sequence[int], target: int, text: str, answered: Verdict) -> list[Step]:
    """The labelled steps of tries of a countdown; the last is the answer, at the end of the text. The first
    step after a try that was given up is a turn_back."""
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
    return [*steps, _answer_step(text, fault, answered)]


def split_try(piece: str) -> tuple[str, str]:
    """"8*8=64 no." -> ("8*8=64", "no"), "3+5=8" -> ("3+5=8", "")"""
    found = re.search(rf"({_SAID})\s*$", piece)
    return (piece[:found.start()].strip(), found[1].rstrip(".!")) if found else (piece.strip(), "")


def join_numbers(pool: Counter[int], step: str) -> str:
    """Replaces the numbers of a step in the pool by its result; returns what is wrong with it, or "".

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
