"""A constitution in TOML: rules in words, each with a check, a critique and a way to repair a reply.

The principles of Constitutional AI (Bai et al. 2022, arXiv:2212.08073), checked by code, as a model of two
million parameters cannot read. Checks are data, never code: an untrusted file names one of the kinds below
and its texts. No rule sees the gold answer. `constitution.toml` beside this file ships, and explains fields.
"""

from __future__ import annotations

import math
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from postgrad.rewards.text import count_words
from postgrad.rewards.visible import normal, outside_comments, skeleton, spelled_words
from postgrad.system.files import error_text, read_bytes

LARGEST = 2**20  # bytes of a constitution
DEEP = re.compile(r"(?:[\w-]{1,99}\s{0,9}\.\s{0,9}){32}")  # tables in tables, which take long to make
SHIPPED = Path(__file__).with_suffix(".toml")
SHOWN = 4  # words of a reply that a critique quotes
_WORDS = re.compile(r"[^\W_]+")


def split_words(text: str) -> list[str]:
    """The visible words of a text without case, in NFKC; everything that is no letter or digit parts them."""
    return _WORDS.findall(normal(text).casefold())


@lru_cache(8)
def padded_words(text: str) -> str:
    """Words to search phrases in: each between its own two spaces, so that "art" is not found in "part"."""
    return "".join(f" {word} " for word in split_words(text))


def quote_pieces(pieces: Sequence[str]) -> str:
    return f'"{" ".join(pieces)}"' if pieces else "nothing"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule(name="no insults", rule="Do not insult.", check="contains_none_of", texts=("fool",), critique="It
    says {found}.", mend="drop"). Without a check it is for a judge that reads."""

    name: str
    rule: str
    check: str | None = None
    texts: tuple[str, ...] = ()
    words: int = 0
    critique: str = ""
    mend: str = ""
    weight: float = 1.0

    def found(self, text: str) -> str | None:
        """What in the text breaks the rule; None: nothing does."""
        return CHECKS[self.check].found(self, text) if self.check else None

    def complaint(self, found: str) -> str:
        return self.critique.replace("{found}", found)

    def mended(self, text: str, rng: random.Random) -> str:
        """The text without what breaks this rule; a text that keeps it is left as it is."""
        return text if self.found(text) is None else MENDS[self.mend](self, text, rng)


def _starts(rule: Rule, text: str) -> str | None:
    kept = padded_words(outside_comments(text)).startswith(tuple(map(padded_words, rule.texts)))
    return None if kept else quote_pieces(text.split()[:SHOWN])


def _ends(rule: Rule, text: str) -> str | None:
    kept = padded_words(outside_comments(text)).endswith(tuple(map(padded_words, rule.texts)))
    return None if kept else quote_pieces(text.split()[-SHOWN:])


def _contains_any(rule: Rule, text: str) -> str | None:
    said = padded_words(outside_comments(text))
    return (None if any(padded_words(wanted) in said for wanted in rule.texts)
            else "none of " + ", ".join(f'"{t}"' for t in rule.texts))


def _contains_none(rule: Rule, text: str) -> str | None:
    said, looks, spelled = padded_words(text), padded_words(skeleton(text)), spelled_words(text)
    return ", ".join(f'"{unwanted}"' for unwanted in rule.texts if padded_words(unwanted) in said
                     or padded_words(skeleton(unwanted)) in looks or skeleton(unwanted) in spelled) or None


def _at_most(rule: Rule, text: str) -> str | None:
    count = count_words(normal(text))
    return f"{count} words, {rule.words} are enough" if count > rule.words else None


def _no_repeat(rule: Rule, text: str) -> str | None:
    said, seen = split_words(skeleton(text)), set()
    for i in range(len(said) - rule.words + 1):
        phrase = tuple(said[i: i + rule.words])
        if phrase in seen:
            return quote_pieces(phrase)
        seen.add(phrase)
    return None


def _drop(rule: Rule, text: str, rng: random.Random) -> str:
    """Keeps, one after the other, the sentences with which the rule still holds."""
    kept = ""
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", text.strip()):
        more = f"{kept} {sentence}".strip()
        kept = kept if rule.found(more) else more
    return kept


def _cut(rule: Rule, text: str, rng: random.Random) -> str:
    """Keeps the words before the first with which the rule no longer holds."""
    kept = ""
    for piece in text.split():
        more = f"{kept} {piece}".strip()
        if rule.found(more):
            break
        kept = more
    return kept


def _prepend(rule: Rule, text: str, rng: random.Random) -> str:
    return f"{rng.choice(rule.texts)} {text.strip()}".strip()


def _append(rule: Rule, text: str, rng: random.Random) -> str:
    return f"{text.strip()} {rng.choice(rule.texts)}".strip()


@dataclass(frozen=True)
class RuleCheck:
    """A kind of check: what breaks it, the field that it reads, and the repairs after which it holds."""

    found: Callable[[Rule, str], str | None]
    needs: str
    mends: tuple[str, ...]


MENDS = {"drop": _drop, "cut": _cut, "prepend": _prepend, "append": _append}
CHECKS = {
    "starts_with_one_of": RuleCheck(_starts, "texts", ("prepend",)),
    "ends_with_one_of": RuleCheck(_ends, "texts", ("append",)),
    "contains_any_of": RuleCheck(_contains_any, "texts", ("prepend", "append")),
    "contains_none_of": RuleCheck(_contains_none, "texts", ("drop", "cut")),
    "at_most_words": RuleCheck(_at_most, "words", ("drop", "cut")),
    "no_repeated_phrase": RuleCheck(_no_repeat, "words", ("drop", "cut")),
}


@dataclass(frozen=True)
class Constitution:
    rules: tuple[Rule, ...]

    def broken(self, text: str) -> dict[str, str]:
        """The rules that a text breaks, in their order, each with its critique."""
        seen = ((rule, rule.found(text)) for rule in self.rules)
        return {rule.name: rule.complaint(found) for rule, found in seen if found is not None}

    def debt(self, text: str) -> float:
        """The weight of the rules that a text breaks: 0 is a reply that keeps them all."""
        return math.fsum(rule.weight for rule in self.rules if rule.found(text) is not None)

    def revised(self, text: str, seed: int) -> str:
        """The text after rounds of mending while each lowers the debt: never worse, and idempotent."""
        while True:
            after, rng = text, random.Random(f"{seed}/{text}")
            for rule in self.rules:
                after = rule.mended(after, rng)
            if self.debt(after) >= self.debt(text):
                return text
            text = after


def read_constitution(path: Path | str | None = None) -> Constitution:
    """The rules of a TOML file; without a path, those that ship. A fault is named with its rule and field."""
    path = Path(path) if path else SHIPPED
    if not path.is_file():
        raise ValueError(f"there is no constitution {path}: give the path of a TOML file with "
                         "[[rule]] tables.")
    try:
        text = read_bytes(path, LARGEST).decode()
        if DEEP.search(text):
            raise ValueError("a name of over 32 parts")
        raw = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as TOML in UTF-8: {error_text(error)}") from error
    tables = raw.pop("rule", None)
    if raw or not isinstance(tables, list) or not tables:
        raise ValueError(f"{path}: expected [[rule]] tables and nothing else; found "
                         f"{', '.join(map(repr, raw)) or 'none'}.")
    rules = tuple(_rule(table, f"{path}, rule {number}") for number, table in enumerate(tables, start=1))
    twice = next((r.name for i, r in enumerate(rules) if r.name in [x.name for x in rules[:i]]), None)
    if twice is not None:
        raise ValueError(f"{path}, rule {twice!r}: name stands twice; give each rule its own.")
    return Constitution(rules)


def _rule(table: object, where: str) -> Rule:
    if not isinstance(table, dict):
        raise ValueError(f"{where} is {table!r}; expected a [[rule]] table.")
    if _is_text(table.get("name")):
        where += f" ({table['name']!r})"
    for field, holds, expected in _wanted(table):
        if not holds:
            seen = f"is {repr(table[field])[:80]}" if field in table else "is missing"
            raise ValueError(f"{where}: {field} {seen}; expected {expected}.")
    return Rule(**table | ({"texts": tuple(table["texts"])} if "texts" in table else {}))


def _is_text(x: object) -> bool:
    return isinstance(x, str) and bool(x.strip())


def _wanted(table: Mapping[str, object]) -> Iterator[tuple[str, bool, str]]:
    """(field, whether it is as it must be, what it must be) for each field of a rule."""
    known = [f.name for f in fields(Rule)]
    yield from ((field, field in known, f"no other fields than {', '.join(known)}") for field in table)
    yield from ((field, _is_text(table.get(field)), "a text") for field in ("name", "rule"))
    weight, check = table.get("weight", 1.0), table.get("check")
    positive = isinstance(weight, int | float) and not isinstance(weight, bool) and 0 < weight < math.inf
    yield "weight", positive, "a number above 0"
    if check is None:
        alone = "that it is left out, or a check beside it"
        yield from ((field, field not in table, alone) for field in ("texts", "words", "critique", "mend"))
        return
    yield "check", isinstance(check, str) and check in CHECKS, f"one of {', '.join(CHECKS)}"
    kind = CHECKS[str(check)]
    yield "critique", _is_text(table.get("critique")), "a text, with {found} for what was seen"
    yield "mend", table.get("mend") in kind.mends, f"{' or '.join(kind.mends)}, which can mend {check}"
    value, other = table.get(kind.needs), {"texts": "words", "words": "texts"}[kind.needs]
    if kind.needs == "texts":
        good = (isinstance(value, list) and value
                and all(isinstance(text, str) and split_words(text) for text in value))
        yield "texts", bool(good), f"a list of texts with words in them, which {check} looks for"
    else:
        yield ("words", type(value) is int and value >= 1,
               f"a whole number of at least 1, which {check} counts to")
    yield other, other not in table, f"that it is left out: {check} reads {kind.needs}"
