"""The form <think>...</think><answer>...</answer>, and the answer that a reply marks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from operator import itemgetter

from postgrad.records import Verdict
from postgrad.rewards.retraction import takes_back
from postgrad.rewards.visible import has_content, outside_comments, outside_thoughts, visible

THINK, END_THINK, ANSWER, END_ANSWER = TAGS = ("<think>", "</think>", "<answer>", "</answer>")
BOX, MARK = "\\boxed{", "####"
END = 20_000  # characters at the end of a reply in which its answer is looked for
_HEADING = r"(?:the )?(?:final )?answer[*_: ]{0,8}\n\s*"
_SAID = re.compile(rf"(?:\banswer(?:\s+is\b|\s*[:=])|\n[#*_ ]{{0,8}}{_HEADING})[\s*_:]*"
                   r"(?:(?:therefore|thus|then|simply|just|exactly|equal to)\b[\s,:*]*)?", re.IGNORECASE)
_REASON = re.compile(r",? (?:because|since)\b", re.IGNORECASE)
_DRESSES = ("**", "__", "*", "`", '"', "\u201c\u201d")  # what stands around an answer and is no part of it
_BEGIN = frozenset("".join(_DRESSES))


def split_reply(text: str) -> tuple[str, str] | str:
    """"<think>2+3=5</think><answer>5</answer>" -> ("2+3=5", "5"), or the reason why a reply is not in form:
    each tag once, in this order, nothing but whitespace outside. Invisible characters count for nothing."""
    text = visible(text)
    for tag in TAGS:
        count = text.count(tag)
        if count != 1:
            return f"no {tag}" if count == 0 else f"{count} times {tag} instead of once"
    places = [text.index(tag) for tag in TAGS]
    if places != sorted(places):
        return "the tags are not in the order <think></think><answer></answer>"
    start, end, answer, stop = places
    if text[:start].strip():
        return "text before <think>"
    if text[end + len(END_THINK) : answer].strip():
        return "text between </think> and <answer>"
    if text[stop + len(END_ANSWER) :].strip():
        return "text after </answer>"
    return text[start + len(THINK) : end], text[answer + len(ANSWER) : stop].strip()


def think_answer(text: str) -> Verdict:
    """1 for a reply in the strict form, else 0. An empty <think> is allowed, an empty <answer> is not."""
    parts = split_reply(text)
    if isinstance(parts, str):
        return Verdict(score=0.0, reason=parts)
    return (Verdict(score=1.0, reason="in form") if has_content(parts[1])
            else Verdict(score=0.0, reason="an empty <answer>"))


def extract_answer(text: str) -> str | None:
    """The answer of a reply in the strict form, else None."""
    parts = split_reply(text)
    return None if isinstance(parts, str) else parts[1]


def find_answer(text: str) -> str | None:
    """The text in the last closed <answer>...</answer>, whatever is around it; else None."""
    stop = text.rfind(END_ANSWER)
    start = text.rfind(ANSWER, 0, stop) if stop >= 0 else -1
    return text[start + len(ANSWER) : stop].strip() if start >= 0 else None


def find_boxed(text: str) -> str | None:
    """The text in the last \\boxed{...}, None where it does not close. Braces after a backslash are text."""
    text = text[-END:].replace("\\boxed {", BOX)
    start, end = _boxed_span(text)
    return text[start + len(BOX): end].strip() if end > 0 else None


def _boxed_span(text: str) -> tuple[int, int]:
    """Where the last \\boxed{ begins, and where its closing brace stands; -1 for none."""
    start = text.rfind(BOX)
    depth, at = 1, start + len(BOX)
    while start >= 0 and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return start, at
        at += 2 if text[at] == "\\" else 1
    return start, -1


def tidy(answer: str) -> str:
    """An answer without emphasis, quotes and a full stop around it: "**5**." -> "5", "5**" -> "5"."""
    for _ in range(4):
        answer = answer.strip().removesuffix(".").rstrip()
        if answer[:1] not in _BEGIN and answer[-1:] not in _BEGIN:
            return answer
        for dress in _DRESSES:
            begin, end = (dress[0], dress[1]) if dress[0] != dress[-1] else (dress, dress)
            inner = answer[len(begin): len(answer) - len(end)]
            if len(answer) > len(begin + end) and answer.startswith(begin) and answer.endswith(end):
                answer = inner if begin not in inner else answer
        answer = answer.removesuffix("**") if answer.count("**") == 1 else answer
    return answer


def _said(text: str) -> str:
    """What follows "the answer is", up to the end of the line, of the sentence, or a "because"."""
    rest = text.split("\n", 1)[0].split("</", 1)[0].split(". ", 1)[0]
    return _REASON.split(rest, maxsplit=1)[0]


def _marks(text: str) -> Iterator[tuple[int, str, int]]:
    """(where it begins, the answer, where it ends) for the last mark of each kind."""
    stop = text.rfind(END_ANSWER)
    if stop >= 0 and (start := text.rfind(ANSWER, 0, stop)) >= 0:
        yield start, text[start + len(ANSWER): stop], stop + len(END_ANSWER)
    start, end = _boxed_span(text)
    if end > 0:
        yield start, text[start + len(BOX): end], end + 1
    if (start := text.rfind(MARK)) >= 0:
        after = text[start + len(MARK):]
        heading = re.match(rf"\s*{_HEADING}", after, re.IGNORECASE)
        begin = heading.end() if heading else len(after) - len(after.lstrip())
        line = after[begin:].split("\n", 1)[0]
        if tidy(line):
            yield start, line, start + len(MARK) + begin + len(line)
    for last in deque(_SAID.finditer(text), maxlen=1):
        said = _said(text[last.end():])
        if tidy(said):
            yield last.start(), said, last.end() + len(said)


def find_marked(text: str) -> str | None:
    """The answer that a reply marks as its own, by whichever mark begins last; None where it marks none, ""
    where it takes the marked one back. Thoughts and comments are not read.

    "<answer>5</answer>"   "\\boxed{5}"   "#### 5\nThat is all."   "The answer is **5**. Bye!" -> "5"
    "It is not \\boxed{5}"   "\\boxed{5} is wrong"   "\\boxed{4} or \\boxed{5}" -> ""
    """
    text = outside_thoughts(visible(text))[-END:].replace("\\boxed {", BOX).rstrip().removesuffix(MARK)
    start, answer, end = max(_marks(text), default=(0, None, 0), key=itemgetter(0))
    return None if answer is None else "" if takes_back(text[:start], answer, text[end:]) else tidy(answer)


def boxed(text: str) -> Verdict:
    """1 for a reply with exactly one closed, non-empty \\boxed{...} outside its thoughts, else 0."""
    if not (text := outside_comments(visible(text))).count(BOX):
        text = text.replace("\\boxed {", BOX)
    seen, count = outside_thoughts(text), text.replace("\\boxed {", BOX).count(BOX)
    if count != 1:
        return Verdict(score=0.0,
                       reason=f"no {BOX}...}}" if count == 0 else f"{count} times {BOX}...}} instead of once")
    inside = find_boxed(seen)
    formed = inside is not None and has_content(inside)
    return Verdict(score=float(formed), reason="in form" if formed else f"an open or empty {BOX}...}}")
