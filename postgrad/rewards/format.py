"""The form <think>...</think><answer>...</answer>, and the answer that a reply marks."""

from __future__ import annotations

import re
from collections import deque

from postgrad.records import Verdict

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
    each tag once, in this order, nothing but whitespace outside."""
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
    return (Verdict(score=1.0, reason="in form") if parts[1]
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
    start = text.rfind(BOX)
    depth, at = 1, start + len(BOX)
    while start >= 0 and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + len(BOX): at].strip()
        at += 2 if text[at] == "\\" else 1
    return None


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


def _said(text: str) -> str | None:
    """What follows "the answer is", up to the end of the line, of the sentence, or a "because"."""
    rest = text.split("\n", 1)[0].split("</", 1)[0].split(". ", 1)[0]
    return tidy(_REASON.split(rest, maxsplit=1)[0]) or None


def _after_mark(text: str) -> str | None:
    """The line after a last ####, where that is no heading: "72\\nThat is all." -> "72"."""
    text = text.strip()
    heading = re.match(_HEADING, text, re.IGNORECASE)
    return tidy(text[heading.end() if heading else 0:].split("\n", 1)[0]) or None


def find_marked(text: str) -> str | None:
    """The answer that a reply marks as its own, by whichever mark begins last; None where it marks none.

    "<answer>5</answer>"   "\\boxed{5}"   "#### 5\\nThat is all."   "The answer is **5**. Bye!" -> "5"
    """
    text = text[-END:].replace("\\boxed {", BOX).rstrip().removesuffix(MARK)
    said = [(text.rfind(ANSWER, 0, text.rfind(END_ANSWER)), find_answer(text)),
            (text.rfind(BOX), find_boxed(text))]
    if (at := text.rfind(MARK)) >= 0:
        said.append((at, _after_mark(text[at + len(MARK):])))
    for last in deque(_SAID.finditer(text), maxlen=1):
        said.append((last.start(), _said(text[last.end():])))
    found = max(((at, answer) for at, answer in said if answer is not None), default=(0, None))[1]
    return None if found is None else tidy(found)


def boxed(text: str) -> Verdict:
    """1 for a reply with exactly one closed, non-empty \\boxed{...}, else 0."""
    count = text.replace("\\boxed {", BOX).count(BOX)
    if count != 1:
        return Verdict(score=0.0,
                       reason=f"no {BOX}...}}" if count == 0 else f"{count} times {BOX}...}} instead of once")
    found = find_boxed(text)
    return Verdict(score=float(bool(found)), reason="in form" if found else f"an open or empty {BOX}...}}")
