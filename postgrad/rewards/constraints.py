"""Constraints on the form of a reply that code can check (IFEval: Zhou et al. 2023, arXiv:2311.07911).

A kind says how it is asked for, how a reply is checked, and how a draft is made to keep it, for gold replies.
Checked is what a reader sees outside thoughts and comments, in NFKC. Words are runs of letters and digits;
sentences end in . ! or ? before a space or the end; paragraphs have a blank line between them; a language is
told by its function words. Left out on purpose: whether the request was answered, which IFEval leaves out
too.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from postgrad.rewards.schema import parse_json
from postgrad.rewards.text import function_words
from postgrad.rewards.visible import normal, outside_thoughts, spelled_words

LONGEST = 20_000  # characters: a longer reply keeps no constraint
SHORTEST = 4      # words with a letter: less is no reply, and keeps no constraint either
PARTING = "******"
V = TypeVar("V")  # what a kind of constraint asks for

_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)")  # a run of dots is read once
_BULLET = re.compile(r"^[ \t]*[*\-][ \t]+(?=\S)(.*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,80}\]")
_TITLE = re.compile(r"<<[^<>\n]{1,200}>>")
CODES = {"English": "en", "Spanish": "es", "French": "fr", "German": "de"}
STOCK = {
    "English": ("This is one way to see it.", "It is a fine place to start for most people.",
                "There is more to say of it.", "You will find that it is not hard.",
                "Most of the work is in the first step.", "That is all there is to it.",
                "It will be as long as you make it.", "Start with the part that you know.",
                "Then go on to the rest of it.", "Keep what is of use and leave the rest.",
                "The end of it will be clear to you.", "It is fine to stop there."),
    "Spanish": ("Este es el principio de la historia.", "Es una idea que se entiende en un día.",
                "Por eso se lee con calma.", "El final es para los que esperan."),
    "French": ("Ce texte est le début de la journée.", "Il est dans la maison avec les enfants.",
               "Le soir est pour les amis.", "La fin est pour les gens qui attendent."),
    "German": ("Das ist der Anfang von der Geschichte.", "Es ist nicht schwer und wird auch kurz.",
               "Die Idee ist für den Abend.", "Das Ende ist ein Zeichen."),
}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A gold reply being built: sentences, stock of its language, their joint, and changes of the text."""

    sentences: tuple[str, ...] = STOCK["English"][:3]
    stock: tuple[str, ...] = STOCK["English"]
    joint: str = " "
    whole: tuple[Callable[[str], str], ...] = ()

    def text(self) -> str:
        made = self.joint.join(self.sentences)
        for change in self.whole:
            made = change(made)
        return made

    def of(self, count: int) -> Draft:
        """The same with so many sentences."""
        more = tuple(self.stock[i % len(self.stock)] for i in range(len(self.sentences), count))
        return replace(self, sentences=(self.sentences + more)[:count])

    def then(self, change: Callable[[str], str]) -> Draft:
        return replace(self, whole=(*self.whole, change))


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[V]):
    """A kind of constraint. values: what it may ask for. wording: with {} for the value. keeps(reply, value).

    write(draft, value): a draft that keeps it, unless another constraint stands against it.
    """

    values: tuple[V, ...]
    wording: str
    keeps: Callable[[str, V], bool]
    write: Callable[[Draft, V], Draft] = lambda draft, value: draft

    def ask(self, value: V) -> str:
        return self.wording.format(*value) if isinstance(value, tuple) else self.wording.format(value)


def word_list(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def language_of(text: str) -> str | None:
    """The language whose function words are the most frequent, at least one word in eight; else None."""
    words = word_list(text)
    counts = function_words(text, most=max(1, len(words) // 12))
    ranked = sorted(((counts[code], name) for name, code in CODES.items()), reverse=True)
    (most, name), (second, _) = ranked[:2]
    return name if most > second and 8 * most >= len(words) else None


def split_paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n[ \t]*\n", text.strip()) if word_list(part)]


def with_words(pieces: list[str]) -> int:
    """How many of the pieces have a word in them."""
    return sum(1 for piece in pieces if _WORD.search(piece))


def has_comma(text: str) -> bool:
    """Whether any script's comma, or what looks like one, is there."""
    return any(char in ",\u201a\xb8" or not char.isascii() and "COMMA" in unicodedata.name(char, "")
               for char in text)


def is_cased(text: str, category: str) -> bool:
    """Whether every letter is a capital ("Lu") or a small one ("Ll")."""
    return all(unicodedata.category(char) == category for char in text if char.isalpha())


def is_quoted(text: str) -> bool:
    """Whether one pair of quotation marks holds the whole: "a" b "c" is two."""
    text = text.strip()
    first = text.find('"', 1)
    return (len(text) > 2 and text[0] == text[-1] == '"' and text[1] != '"' != text[-2]
            and (first == len(text) - 1 or not text[first - 1].isalnum() and text[first - 1] not in ".!?"))


def is_json(text: str) -> bool:
    """Whether a text is one JSON object; a ```json fence around it is allowed, as in IFEval."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    return isinstance(parse_json(bare)[0], dict)


def two_parts(text: str) -> bool:
    parts = [word_list(part) for part in text.split(PARTING)]
    return len(parts) == 2 and min(map(len, parts)) > 1 and parts[0] != parts[1]


def _long(draft: Draft, least: int) -> Draft:
    while len(word_list(draft.text())) < least:
        draft = draft.of(len(draft.sentences) + 1)
    return draft


def _short(draft: Draft, most: int) -> Draft:
    while len(word_list(draft.text())) > most and len(draft.sentences) > 1:
        draft = draft.of(len(draft.sentences) - 1)
    return draft


def _mention(draft: Draft, pair: tuple[str, str]) -> Draft:
    return replace(draft, sentences=(f"This is about the {pair[0]} and the {pair[1]}.", *draft.sentences[1:]))


def _fill(draft: Draft, count: int) -> Draft:
    last = draft.sentences[-1]
    marks = " ".join(f"[{name}]" for name in ("name", "date", "place")[:count])
    return replace(draft, sentences=(*draft.sentences[:-1], f"{last[:-1]} {marks}{last[-1]}"))


def _end(draft: Draft, phrase: str) -> Draft:
    return replace(draft, sentences=(*draft.sentences[:-1], phrase))


def _begin(draft: Draft, phrase: str) -> Draft:
    return replace(draft, sentences=(f"{phrase} {draft.sentences[0]}", *draft.sentences[1:]))


def _bullets(draft: Draft, count: int) -> Draft:
    made = draft.of(count)
    return replace(made, sentences=tuple(f"* {sentence}" for sentence in made.sentences), joint="\n")


KINDS: dict[str, Kind[Any]] = {  # drafts are written in this order
    "language": Kind(values=("Spanish", "French", "German"), wording="Write the whole reply in {}.",
                     keeps=lambda text, name: language_of(text) == name,
                     write=lambda draft, name: replace(draft, sentences=STOCK[name][:3], stock=STOCK[name])),
    "sentences": Kind(values=(2, 3, 4, 5, 6), wording="Write exactly {} sentences.",
                      keeps=lambda text, count: with_words(_SENTENCE_END.split(text)[:-1]) == count,
                      write=Draft.of),
    "at least": Kind(values=(20, 30, 40, 50, 60, 80), wording="Write at least {} words.",
                     keeps=lambda text, least: len(word_list(text)) >= least, write=_long),
    "at most": Kind(values=(10, 15, 20, 25, 30), wording="Write at most {} words.",
                    keeps=lambda text, most: len(word_list(text)) <= most, write=_short),
    "paragraphs": Kind(values=(2, 3, 4, 5),
                       wording="Write exactly {} paragraphs, with a blank line between them.",
                       keeps=lambda text, count: len(split_paragraphs(text)) == count,
                       write=lambda draft, count: replace(draft.of(count), joint="\n\n")),
    "include": Kind(values=(("river", "lamp"), ("garden", "clock"), ("bread", "window"), ("winter", "paper"),
                            ("music", "stone"), ("bridge", "apple")),
                    wording="Use the words \"{}\" and \"{}\".",
                    keeps=lambda text, pair: set(pair) <= set(word_list(text)), write=_mention),
    "avoid": Kind(values=(("very", "really"), ("good", "nice"), ("can", "could"),
                          ("important", "interesting"), ("but", "so")),
                  wording="Do not use the words \"{}\" and \"{}\".",
                  keeps=lambda text, pair: not set(pair) & (spelled_words(text) | set(word_list(text)))),
    "ending": Kind(
        values=("That is all I know.", "Ask me for more.", "I wish you luck with it!",
                "Now it is your turn."),
        wording="End the reply with exactly this sentence: {}",
        keeps=lambda text, phrase: text.rstrip().rstrip('"').casefold().endswith(phrase.casefold()),
        write=_end),
    "opening": Kind(
        values=("In short,", "First of all,", "To begin with,", "As far as I know"),
        wording="Begin the reply with these words: {}",
        keeps=lambda text, phrase: text.lstrip().lstrip('"').casefold().startswith(phrase.casefold()),
        write=_begin),
    "placeholders": Kind(values=(1, 2, 3),
                         wording="Put at least {} placeholders in square brackets, such as [address], in it.",
                         keeps=lambda text, count: with_words(_PLACEHOLDER.findall(text)) >= count,
                         write=_fill),
    "bullets": Kind(values=(2, 3, 4, 5),
                    wording="Write exactly {} bullet points, each on a line that begins with *.",
                    keeps=lambda text, count: with_words(_BULLET.findall(text)) == count, write=_bullets),
    "parts": Kind(values=(PARTING,), wording="Give two different replies, with {} between them.",
                  keeps=lambda text, _: two_parts(text),
                  write=lambda draft, mark: draft.then(lambda text: f"{text}\n{mark}\n{draft.stock[3]}")),
    "title": Kind(values=("<<a good day>>",),
                  wording="Give it a title in double angular brackets, such as {}.",
                  keeps=lambda text, _: with_words(_TITLE.findall(text)) > 0,
                  write=lambda draft, _: draft.then(lambda text: f"<<One way>>\n{text}")),
    "no commas": Kind(values=("",), wording="Do not use any commas.",
                      keeps=lambda text, _: not has_comma(text)),
    "lower": Kind(values=("",), wording="Use lower case letters only.",
                  keeps=lambda text, _: is_cased(text, "Ll"), write=lambda draft, _: draft.then(str.lower)),
    "upper": Kind(values=("",), wording="Use capital letters only.",
                  keeps=lambda text, _: is_cased(text, "Lu"), write=lambda draft, _: draft.then(str.upper)),
    "json": Kind(
        values=("",), wording="Write the reply as one JSON object and nothing else.",
        keeps=lambda text, _: is_json(text),
        write=lambda draft, _: draft.then(lambda text: json.dumps({"reply": text}, ensure_ascii=False))),
    "quoted": Kind(values=("",), wording="Put the whole reply in double quotation marks.",
                   keeps=lambda text, _: is_quoted(text),
                   write=lambda draft, _: draft.then(lambda text: f'"{text}"')),
}

Rule = tuple[str, object]  # (a kind's name, its value)


def is_kept(text: str, rule: Rule) -> bool:
    """Whether a reply, as it stands, keeps a constraint."""
    name, value = rule
    text = normal(outside_thoughts(text[:LONGEST + 1]))
    words = [word for word in word_list(text[:LONGEST]) if any(map(str.isalpha, word))]
    return len(text) <= LONGEST and len(words) >= SHORTEST and KINDS[name].keeps(text, value)


def is_kept_loosely(text: str, rule: Rule) -> bool:
    """IFEval's loose reading: the reply without its first line, its last, both or neither, or stars."""
    lines = text.split("\n") if len(text) <= LONGEST else []
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return any(is_kept(variant, rule) for part in (text, *cut) for variant in (part, part.replace("*", "")))


def gold_for(rules: tuple[Rule, ...]) -> str | None:
    """A reply that keeps all rules; None where they contradict one another."""
    draft = Draft()
    for name, value in sorted(rules, key=lambda rule: list(KINDS).index(rule[0])):
        draft = KINDS[name].write(draft, value)
    text = draft.text()
    return text if all(is_kept(text, rule) for rule in rules) else None
