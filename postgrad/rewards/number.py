"""Exact numbers: a cheap parser with caps, compared as fractions. No floats, no eval, no symbolic algebra.

Left out on purpose: exponents, units, percent signs, words. A task that needs them writes its own verifier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from postgrad.records import Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.format import tidy

LONGEST = 64  # characters of a number; more is never a number somebody meant
_PLAIN = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(rf"({_PLAIN})(?:(\.[0-9]+)|\s?/\s?([0-9]+))?")
_ANYWHERE = re.compile(r"(?<![0-9.,/])(?:(?<![\w)])[+\u2212-])?[0-9][0-9,]{0,62}"
                       r"(?:[./][0-9]{1,62})?(?![0-9])")


def parse_number(text: str) -> Fraction | None:
    """The number that the whole text is, or None. "20" "20.0" "1,000" "-3" "1/2"; never raises.

    A minus may be U+2212.
    "1,00" (a misplaced comma), "1/0", "2e9", digits of other scripts and anything over 64
    characters are not numbers.
    """
    if len(text) > LONGEST:
        return None
    match = _NUMBER.fullmatch(text.strip().replace("\u2212", "-"))
    if match is None:
        return None
    whole, decimals, below = match.groups()
    if below is not None:
        return Fraction(int(whole.replace(",", "")), int(below)) if int(below) else None
    return Fraction(whole.replace(",", "") + (decimals or ""))


def bare_number(text: str) -> str:
    r"""A written number without its dress: "**$72$**." -> "72", r"\$1{,}000" -> "1,000"."""
    text = text.strip()
    if len(text) > 2 * LONGEST:
        return text
    text = tidy(text)
    for begin, end in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(begin + end) and text.startswith(begin) and text.endswith(end):
            text = text[len(begin): len(text) - len(end)]
    return tidy(text).removeprefix("\\").removeprefix("$").replace("{,}", ",").strip()


def last_number(text: str) -> str | None:
    """The last number written in a text, for replies without <answer>;
    looks at the last 2,000 characters only."""
    found = _ANYWHERE.findall(text[-2000:])
    return found[-1].rstrip(",") if found else None


def exact_number(gold: object) -> Callable[[str], Verdict]:
    """A verifier of one answer: 1 when the text is the gold number exactly (20 = 20.0 = 40/2),
    else 0 with the reason.

    exact_number("20")("20.0").score -> 1.0;  exact_number("twenty") -> ValueError, before any model is asked.
    """
    fit = isinstance(gold, (str, int, float, Fraction)) and not isinstance(gold, bool)
    wanted = parse_number(str(gold)) if fit else None
    if wanted is None:
        raise ValueError(f"the gold answer {shorten(str(gold))!r} is not a number: expected one like "
                         "20, -3, 1,000 or 1/2.")

    def verify(text: str) -> Verdict:
        got = parse_number(text)
        if got is None:
            return Verdict(score=0.0,
                           reason=f"{shorten(text)!r} is not a number" if text.strip() else "no answer")
        if got != wanted:
            return Verdict(score=0.0, reason=f"{shorten(text)} is not the answer")
        return Verdict(score=1.0, reason=f"{shorten(text)} is the answer")

    return verify
