"""The written steps of a chain of operations, checked one by one: "5+8=13, 13-3=10, 10*2=20".

Left out on purpose: steps in another order ("8+5=13"), parentheses, decimals.
Such a step is no step of the chain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from postgrad.records import Step, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.expression import BadExpression, parse, value
from postgrad.rewards.format import ANSWER, END_THINK, THINK

MOST = 1000  # steps of a reply that are read: the last of so many goes on to the end of the thoughts
_STEP = re.compile(r"\s*([0-9]{1,9})((?:\s*[-+*/]\s*[0-9]{1,9}){1,16})\s*=\s*([0-9]{1,9})\s*")
_OPERATION = re.compile(r"([-+*/])\s*([0-9]+)")


def written(text: str) -> list[tuple[int, int]]:
    """Where the steps of a reply stand: what commas and line ends part between <think> and </think>,
    spaces left out.

    "<think>5+8=13, 13*2=26</think><answer>26</answer>" -> [(7, 13), (15, 22)]. Without the tags:
    the text up to the answer.
    """
    start = text.find(THINK) + len(THINK) if THINK in text else 0
    stops = [place for tag in (END_THINK, ANSWER) if (place := text.find(tag, start)) >= 0]
    stop, spans = min(stops, default=len(text)), []
    for found in re.finditer(r"[^,\n]+", text[start:stop]):
        piece, at = found[0], start + found.start()
        if piece.strip():
            spans.append((at + len(piece) - len(piece.lstrip()), at + len(piece.rstrip())))
        if len(spans) == MOST:
            end = start + len(text[start:stop].rstrip(",\n\t "))
            return [*spans[:-1], (spans[-1][0], max(spans[-1][1], end))]
    return spans


def check_chain(values: Sequence[int], ops: Sequence[tuple[str, int]], text: str, said: Verdict,
                symbols: Mapping[str, str]) -> list[Step]:
    """Every written step, and the answer as the last step at the end of the text, right or wrong.

    values: the start and the value after each of ops. said: the verdict on the answer. symbols: words that
    stand for signs. A step is right when its arithmetic holds, it does operations that are still to be done,
    from the value they start at, and all before it is right. Several may be done in one step, and some may be
    left unwritten. What follows a wrong step builds on it and is wrong as well: a label says whether all is
    right so far (Uesato et al. 2022, 2211.14275; in Lightman et al.
    2023, 2305.20050, labelling stops at the first mistake).
    """
    steps, place, fault = [], 0, ""
    for begin, end in written(text):
        if not fault:
            found = follow(values, ops, place, _signs(text[begin:end], symbols))
            place, fault = (found, "") if isinstance(found, int) else (place, found)
            steps.append(Step(end=end, right=not fault, reason=fault))
        else:
            steps.append(Step(end=end, right=False, reason="follows a wrong step"))
    right = not fault and said.score >= 1.0
    steps.append(Step(end=len(text), right=right, reason="follows a wrong step" if fault else said.reason))
    return steps


def follow(values: Sequence[int], ops: Sequence[tuple[str, int]], place: int, step: str) -> int | str:
    """How many operations are done after a step, `place` of them being done before it;
    or why the step is wrong.

    follow((5, 13, 10), (("+", 8), ("-", 3)), 0, "5+8=13") -> 1;  "13-3=10" -> 2;  "5+8-3=10" -> 2;  "5+8=14"
        -> the reason
    """
    match = _STEP.fullmatch(step)
    if match is None:
        return f"{shorten(step)!r} is no step"
    first, rest, result = match.groups()
    try:
        holds = value(parse(first + rest))
    except BadExpression as error:
        return str(error)
    if holds != int(result):
        return f"{shorten(first + rest)} is {holds}, not {result}"
    done = tuple((op, int(n)) for op, n in _OPERATION.findall(rest))
    for at in range(place, len(ops) - len(done) + 1):
        if (values[at] == int(first) and tuple(ops[at: at + len(done)]) == done
                and values[at + len(done)] == int(result)):
            return at + len(done)
    return f"{shorten(first + rest)} is not what comes next"


def _signs(text: str, symbols: Mapping[str, str]) -> str:
    """A spoken step in signs: "then 5 plus 8 is 13" -> "5 + 8 = 13"."""
    return " ".join(symbols.get(word, word) for word in text.split()).strip()
