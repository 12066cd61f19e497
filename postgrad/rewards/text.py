"""Verifiers of how a text is written: a pattern that it matches, its length, its language.

A length in tokens is not here: a verifier sees text.
DAPO's row shapes the score by tokens (maths/credit.py, `overlong`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable

from postgrad.records import Verdict
from postgrad.rewards.base import JudgeText, error_verdict, shorten
from postgrad.rewards.format import TAGS
from postgrad.rewards.sandbox import Jailed

READ = 100_000  # characters of a reply that a pattern may see

REGEX = Jailed("regex",
               "import re\ndef found(pattern, text):\n    return re.search(pattern, text) is not None",
               instead="check the form in a .py task file")


def regex_verifier(pattern: str) -> JudgeText:
    """1 where the pattern is found in the text. Use ^ and $ (or \\A and \\Z) to hold the whole of it.

    Python's re has no time limit, and a pattern that backtracks can be made to run for hours by the text that
    it meets. So the search runs in the jail, with a wall limit; what takes longer is not a match.
    """
    try:
        re.compile(pattern)
    except re.error as wrong:
        raise ValueError(f"regex({pattern}) is no regular expression: {wrong}.") from None
    if not pattern or re.search(pattern, ""):
        raise ValueError(f"regex({pattern}) is found in an empty text, so it would pay for everything: write "
                         "a pattern that needs something to be there.")
    REGEX.require()

    def verify(text: str) -> Verdict:
        if len(text) > READ:
            return Verdict(score=0.0, reason=f"longer than {READ:,} characters")
        said = REGEX("found", pattern, text)
        if said.kind == "infrastructure":
            return error_verdict(said.reason)
        found = said.kind == "pass" and said.value is True
        return Verdict(score=float(found),
                       reason="matches" if found else said.reason or f"no match of {shorten(pattern)}")

    return verify


UNITS: dict[str, Callable[[str], int]] = {"words": lambda text: len(text.split()), "characters": len}


def length_verifier(low: int, high: int, unit: str = "words") -> JudgeText:
    """1 for a text of low to high words (or characters), without the tags of the form; else 0."""
    if unit not in UNITS or not 0 <= low <= high or high < 1:
        raise ValueError(f"length({low},{high},{unit}): expected 0 <= low <= high, and a unit of "
                         f"{' or '.join(UNITS)}.")

    def verify(text: str) -> Verdict:
        count = UNITS[unit](untagged(text).strip())
        fits = low <= count <= high and count > 0
        return Verdict(score=float(fits), reason=f"{count} {unit}, wanted {low} to {high}")

    return verify


def untagged(text: str) -> str:
    for tag in TAGS:
        text = text.replace(tag, " ")
    return text


_LISTS = {  # words that no text of some length does without
    "en": "the and of to is that it for was with as on are this be have from or by not but what all were "
          "when we there can an your which their said if each she how will up other about out many then them "
          "these so some her would make like him has two could been than its now who did get come may he "
          "you they at had i plus",
    "es": "el los las del y que en un una por con para es su al lo como más pero sus le ya este sí porque "
          "esta entre cuando muy sin sobre también hasta hay donde quien desde todo nos durante todos uno ni "
          "contra otros ese eso ante ellos e esto mí antes algunos qué unos yo otro otras él cada hace tiene "
          "entonces tenemos son ahora día tanto siempre está se tu luego menos",
    "fr": "le les des du et est que qui dans une pour pas sur au avec ce il sont par plus ne se cette ou "
          "elle mais nous vous ils ont été leur être aux comme tout fait donc alors ces ses deux même aussi "
          "était où très sans sa son peut après faut je tu on y avoir cela ainsi chaque un en entre ni es",
    "de": "der die das und ist von zu den mit sich des auf für nicht dem ein eine als auch es an werden aus "
          "er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum haben nur oder "
          "aber vor zur bis mehr durch man dann sein wurde wenn ich wir ihr kann also jeder hier gibt nun "
          "alle diese im was will",
}
_SETS = {name: frozenset(words.split()) for name, words in _LISTS.items()}
WORDS = {name: own - frozenset().union(*(other for n, other in _SETS.items() if n != name))
         for name, own in _SETS.items()}
SCRIPTS = {"zh": ("CJK",), "ja": ("CJK", "HIRAGANA", "KATAKANA"), "ko": ("HANGUL",), "ru": ("CYRILLIC",),
           "uk": ("CYRILLIC",), "ar": ("ARABIC",), "he": ("HEBREW",), "el": ("GREEK",), "hi": ("DEVANAGARI",),
           "th": ("THAI",), **{name: ("LATIN",) for name in WORDS}}
LANGUAGES = tuple(SCRIPTS)
_LETTERS = re.compile(r"[^\W\d_]+")


def function_words(text: str) -> dict[str, int]:
    """How many words are function words of each language: "the cat y el gato" -> {"en": 1, "es": 2, ...}."""
    said = Counter(_LETTERS.findall(text.lower()))
    return {name: sum(count for word, count in said.items() if word in own) for name, own in WORDS.items()}


def language_verifier(wanted: str) -> JudgeText:
    """The share of a text that is in a language: DeepSeek-R1's language consistency (Guo et al.
    2025, arXiv:2501.12948).

    share of letters in its script * share of its own function words among those of en, es,
    fr and de (for these four)
    A text without letters ("2+3=5") is in no language: there is nothing to judge, and the verdict is absent.
    With no function word at all nobody can tell, and the second factor is 1/2. Function words that two of the
    lists share tell nothing and are in neither. Limits: a script is not a language (uk is judged as ru is, zh
    as Japanese without kana is), other Latin-script languages are not told apart from the four, and a few
    words are little evidence.
    """
    if wanted not in SCRIPTS:
        raise ValueError(f"language({wanted}) is not known: choose one of {', '.join(LANGUAGES)}.")

    def verify(text: str) -> Verdict:
        text = untagged(text[:READ])
        letters = Counter(char for char in text if char.isalpha())
        if not letters:
            return Verdict(score=0.0, reason="no letters, so no language", absent=True)
        script = {char for char in letters if unicodedata.name(char, "").startswith(SCRIPTS[wanted])}
        share = sum(letters[char] for char in script) / letters.total()
        if wanted not in WORDS:
            return Verdict(score=share, reason=f"{share:.0%} of the letters are of {wanted}")
        said = function_words(text)
        known = sum(said.values())
        score = share * (said[wanted] / known if known else 0.5)
        found = f"{share:.0%} of the letters and {said[wanted]} of {known} function words"
        return Verdict(score=score, reason=f"{found} are of {wanted}")

    return verify
