"""Verifiers of a reply's style: a regular expression, the length, the language.

Left out on purpose: a length in tokens, which DAPO's row shapes (maths/credit.py, `overlong`).
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
from postgrad.rewards.visible import LONE, normal, outside_comments, visible

READ = 100_000  # characters of a reply that a pattern may see

REGEX = Jailed("regex",
               "import re\ndef found(pattern, text):\n    return re.search(pattern, text) is not None",
               instead="check the form in a .py task file")


def strict_pattern(pattern: str) -> str:
    r"""A pattern whose $ is the end of the text alone, not before a newline, and whose \d is 0-9.

    strict_pattern(r"^\d+$") -> "^[0-9]+\\Z". With (?m), where $ ends each line, the $ stays.
    """
    end = "$" if re.search(r"\(\?[a-zA-Z]*m", pattern) else r"\Z"
    inside = False

    def piece(match: re.Match[str]) -> str:
        nonlocal inside
        text = match[0]
        if text in ("[", "]"):
            inside = text == "["
        elif text.startswith("[^") or text.startswith("[]"):
            inside = True
        elif text == r"\d":
            return "0-9" if inside else "[0-9]"
        return end if text == "$" and not inside else text

    return re.sub(r"\\.|\[\^\]|\[\]|\[\^|[\[\]$]", piece, pattern, flags=re.DOTALL)


def regex_verifier(pattern: str) -> JudgeText:
    """1 where `re.search` finds the pattern, in the reply as it is and in what a reader sees of it. Python's
    re has no time limit and may backtrack for hours, so the search runs in the jail, with a wall limit; a
    timeout is no match."""
    try:
        re.compile(pattern)
    except re.error as wrong:
        raise ValueError(f"regex({pattern}) is no regular expression: {wrong}.") from None
    if not pattern or re.search(pattern, ""):
        raise ValueError(f"regex({pattern}) is found in an empty text, so it would pay for everything: write "
                         "a pattern that needs something to be there.")
    REGEX.require()
    strict, is_normal = strict_pattern(pattern), normal(pattern) == pattern

    def verify(text: str) -> Verdict:
        if len(text) > READ:
            return Verdict(score=0.0, reason=f"longer than {READ:,} characters")
        text = LONE.sub("\ufffd", text)
        for reading in dict.fromkeys((text, visible(text), normal(text) if is_normal else text)):
            outcome = REGEX("found", strict, reading[:READ])
            if outcome.kind != "pass" or outcome.value is not True:
                break
        if outcome.kind == "infrastructure":
            return error_verdict(outcome.reason)
        matches = outcome.kind == "pass" and outcome.value is True
        return Verdict(score=float(matches),
                       reason="matches" if matches else outcome.reason or f"no match of {shorten(pattern)}")

    return verify


_WORD = re.compile(r"[0-9]+(?:[.,:/][0-9]+)*|[^\W\d_]+(?:['’][^\W\d_]+)?")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
LONG_WORD, LETTERS = 30, 10  # a longer word counts as one for every so many letters


def count_words(text: str) -> int:
    """Runs of letters, with one apostrophe, and numbers: words_joined, words-joined and wordsJoined are two.
    A run of over 30 letters, which no word is, counts as one for every ten."""
    words = [word for word in _WORD.findall(text) if word]
    return sum(max(1 + len(_HUMP.findall(word)), -(-len(word) // LETTERS) if len(word) > LONG_WORD else 1)
               for word in words)


def count_characters(text: str) -> int:
    """Characters that are seen: a letter with its accents is one, and so is any blank space."""
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    return sum(1 for char in text if not unicodedata.combining(char))


UNITS: dict[str, Callable[[str], int]] = {"words": count_words, "characters": count_characters}


def length_verifier(low: int, high: int, unit: str = "words") -> JudgeText:
    """1 for a text of low to high words (or characters), else 0. Tags of the form, comments and what is not
    visible are not counted; thoughts are."""
    if unit not in UNITS or not 0 <= low <= high or high < 1:
        raise ValueError(f"length({low},{high},{unit}): expected 0 <= low <= high, and a unit of "
                         f"{' or '.join(UNITS)}.")

    def verify(text: str) -> Verdict:
        count = UNITS[unit](untagged(outside_comments(visible(text[:READ * 10]))).strip())
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
_AT_HOME = frozenset("abcdefghijklmnopqrstuvwxyzàâäáçéèêëíìîïñóòôöœæúùûüÿßı'’")  # of the four languages
SPOKEN = 4  # one word in so many is a function word; one in all of SPOKEN + 1 words is enough


def function_words(text: str, most: int | None = None) -> dict[str, int]:
    """The number of function words of each language: "the cat y el gato" -> {"en": 1, "es": 2, ...}. most:
    how often the same word counts."""
    words = Counter(_LETTERS.findall(text.lower()))
    return {name: sum(min(count, most or count) for word, count in words.items() if word in own)
            for name, own in WORDS.items()}


def _is_foreign(word: str) -> bool:
    """Whether a Latin-script word has a letter that none of the four languages has."""
    return not _AT_HOME.issuperset(word) and unicodedata.name(word[0], "").startswith("LATIN")


def language_verifier(wanted: str) -> JudgeText:
    """Language consistency of DeepSeek-R1 (Guo et al. 2025, arXiv:2501.12948).

    share of letters in the script * (for en, es, fr, de) share of own function words among those of the four
    and words with letters of none of the four (ł, š) * how many there are, at most 1: one word in four is
    enough, and the same one over and over is one. Without letters ("2+3=5") the verdict is absent; without
    function words the second factor is 1/2, and the third 1 for up to 8 words. Function words that two lists
    share are in neither. Limits: a script is not a language (uk scores as ru, zh as Japanese without kana);
    languages with the same letters are told apart by their function words alone.
    """
    if wanted not in SCRIPTS:
        raise ValueError(f"language({wanted}) is not known: choose one of {', '.join(LANGUAGES)}.")

    def verify(text: str) -> Verdict:
        text = untagged(outside_comments(normal(text[:READ])))
        letters = Counter(char for char in text if char.isalpha())
        if not letters:
            return Verdict(score=0.0, reason="no letters, so no language", absent=True)
        script = {char for char in letters if unicodedata.name(char, "").startswith(SCRIPTS[wanted])}
        share = sum(letters[char] for char in script) / letters.total()
        if wanted not in WORDS:
            return Verdict(score=share, reason=f"{share:.0%} of the letters are of {wanted}")
        words = _LETTERS.findall(text.lower())
        counts = function_words(text)
        own, known = counts[wanted], sum(counts.values()) + sum(map(_is_foreign, words))
        spoken = own if len(set(words) & WORDS[wanted]) > 1 else min(own, 1)
        enough = min(1.0, SPOKEN * spoken / len(words) if known else 2 * SPOKEN / len(words))
        enough = 1.0 if len(words) <= SPOKEN + 1 else enough
        return Verdict(score=share * (own / known if known else 0.5) * enough,
                       reason=f"{share:.0%} of the letters and {own} of {known} function words are "
                              f"of {wanted}")

    return verify
