"""What a reader sees of a reply: no invisible characters, no comments, no thoughts; look-alikes as what they
look like. Verifiers judge that, so that nothing is paid, or missed, for what nobody sees."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

LONGEST = 2000  # characters of an answer that are looked at for something to read
# format and control characters, fillers, variation selectors, tags: all that leaves no mark on a page
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
LONE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"<!--|-->|<think>|</think>")
_NO_INK = re.compile(  # LaTeX and HTML that print nothing, alone or around what they hide
    r"\\(?:[hv]?phantom|hspace\*?|vspace\*?|label|color|kern|rule|smash|mathstrut)\s*(?:\[[^][]*\])?"
    r"\s*(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*|\\(?:q?quad|enspace|thinspace|null|relax|empty|strut|"
    r"displaystyle|[,;:! >])(?![a-z])"
    r"|\\(?:text|textbf|mathrm|mbox|hbox)(?=\s*\{)|<[a-z/][^<>]{0,200}>", re.IGNORECASE)
_LOOKS = str.maketrans({pair[0]: pair[1:] for pair in (
    "аa еe оo рp сc уy хx іi їi јj ѕs һh ԁd ԛq ԝw ӏl вb кk мm нh тt гr зz пn ьb бb үy өo "
    "αa εe νv οo ρp τt υu χx ιi κk ηn ωw βb γy ıi ɑa ɡg ßb օo սu ոn հh ցg ʟl").split()})
_DISGUISED = re.compile(r"(?:[^\W_]|[@$!|](?=[^\W_@$!|]|[@$!|][^\W_]))+")
_DIGITS = str.maketrans("034578@$!|", "oeastbasil")
_LONG_RUN = re.compile(r"(.)\1{2,}")
_POWERS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣ", "0123456789+-()nx", strict=True))
_RAISED = re.compile(f"[{''.join(_POWERS)}]+")
_PHRASES = {0xFDFA: "\u0635", 0xFDFB: "\u062c"}  # 18 and 8 letters in NFKC: their first ones


def visible(text: str) -> str:
    """A text without its invisible characters; half a surrogate pair becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return LONE.sub("\ufffd", _INVISIBLE.sub("", text))


def outside_comments(text: str) -> str:
    """A text without <!-- comments -->; one that is left open goes to the end."""
    return _outside(text, ("<!--",))


def outside_thoughts(text: str) -> str:
    """A reply without comments and <think>thoughts</think>. A thought that is left open goes to the end; one
    that is closed alone began with the reply, as templates write <think> for the model."""
    return _outside(text, ("<!--", "<think>"))


def _outside(text: str, begins: tuple[str, ...]) -> str:
    if not any(mark in text for mark in (*begins, "</think>" if "<think>" in begins else begins[0])):
        return text
    parts, at, within = [], 0, ""
    for mark in _FENCE.finditer(text):
        ends = {"-->": "<!--", "</think>": "<think>"}.get(mark[0], "")
        if within and ends == within:
            at, within = mark.end(), ""
        elif not within and mark[0] in begins:
            parts.append(text[at: mark.start()])
            within = mark[0]
        elif not within and mark[0] == "</think>" and "<think>" in begins:
            parts, at = [], mark.end()
    return " ".join([*parts, *([] if within else [text[at:]])]) if parts or at or within else text


def normal(text: str) -> str:
    """The visible text in NFKC, for checks of form and words: ａ, 𝐚 and ⓐ are a. Not for formulas: 10² would
    be 102."""
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFKC", visible(text).translate(_PHRASES))


@lru_cache(8)
def skeleton(text: str) -> str:
    """The letters that a text looks like, without case and accents: "Ｆооł" with Cyrillic о -> "fool".

    For words that must not be there; a word that must be there is not there by its looks.
    """
    text = normal(text).casefold().replace("ł", "l").replace("ø", "o").replace("đ", "d")
    bare = "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char))
    return bare.translate(_LOOKS)


@lru_cache(8)
def spelled_words(text: str) -> frozenset[str]:
    """The words of a text by their looks, and what they spell in disguise: f o o l, f00l, f@@l and foooool
    are also fool. For words that must not be there."""
    listed = _DISGUISED.findall(skeleton(text))
    words: set[str] = set()
    for word in set(listed):
        letters = word.translate(_DIGITS) if re.search("[a-z]", word) else word
        words |= {word, letters, letters.replace("1", "l"), letters.replace("1", "i"),
                  _LONG_RUN.sub(r"\1\1", letters), _LONG_RUN.sub(r"\1", letters)}
    lone = "".join(word if len(word) == 1 else " " for word in listed)
    return frozenset(words | {run for run in set(lone.split()) if len(run) > 2})


def raised_powers(text: str) -> str:
    """10² -> 10^{2}, x⁻¹ -> x^{-1}"""
    return _RAISED.sub(lambda run: "^{" + "".join(_POWERS[char] for char in run[0]) + "}", text)


def has_content(text: str) -> bool:
    r"""Whether a text has anything to read: a letter, a digit, or a sign that is not punctuation (∞, an
    emoji). Not \quad, \phantom{5}, &nbsp;, {} or an empty tag."""
    text, before = outside_comments(visible(html.unescape(text[:LONGEST]))), ""
    while text != before:
        before, text = text, _NO_INK.sub(" ", text)
    return any(char.isalnum() or not char.isascii() and unicodedata.category(char) in ("Sm", "So", "Sc")
               for char in text)
