"""What is judged and what is said of it: items, labels, and what follows from them.

Plain Python, no torch, no files.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from postgrad.maths.agreement import cohen_kappa

if TYPE_CHECKING:
    from postgrad.records import Message

CHOICES = ("a", "b", "tie", "skip")


def digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Item:
    """Two answers to one prompt.

    `Item.of` names them a and b by a hash: the name says nothing of which came first or won.

    So the same two answers are one item, whichever way round they come (uid), and a labeller who is always
    right does not always say "a", which would make kappa meaningless.
    """

    uid: str
    messages: tuple[Message, ...]
    a: str
    b: str
    origin: str = ""

    @classmethod
    def of(cls, messages: Sequence[Message], answers: Collection[str], origin: str = "") -> Item:
        if len(set(answers)) != 2 or not all(text.strip() for text in answers):
            raise ValueError("an item is two different answers, neither empty; there are "
                             f"{[text[:40] for text in answers]}.")
        if not messages:
            raise ValueError("an item needs a prompt: give at least one message.")
        ask = json.dumps([[m["role"], m["content"]] for m in messages])
        a, b = sorted(answers, key=lambda text: digest(ask, text))
        plain = tuple({"role": m["role"], "content": m["content"]} for m in messages)
        return cls(uid=digest(ask, a, b)[:16], messages=plain, a=a, b=b, origin=origin)


def check_labeller(name: str, where: str = "") -> None:
    if not name or name != name.strip() or len(name) > 100 or not name.isprintable():
        raise ValueError(f"{where}{name[:40]!r} cannot name a labeller: 1 to 100 printable characters, no "
                         "space at the ends.")


@dataclass(frozen=True, kw_only=True)
class Label:
    """What somebody says of an item: "a", "b", "tie", or "skip" (seen, not judged, not to be asked again)."""

    item: str
    labeller: str
    choice: str

    def __post_init__(self) -> None:
        check_labeller(self.labeller)
        if self.choice not in CHOICES:
            raise ValueError(f"there is no choice {self.choice!r}: it is one of {', '.join(CHOICES)}.")


@dataclass(frozen=True, kw_only=True)
class AskedItem:
    """An item as one labeller sees it: sides[0] is the choice that stands for the answer shown first."""

    item: Item
    sides: tuple[str, str]

    @property
    def answers(self) -> tuple[str, str]:
        return getattr(self.item, self.sides[0]), getattr(self.item, self.sides[1])


def shown_sides(uid: str, labeller: str) -> tuple[str, str]:
    """Which answer this labeller sees first: even odds over items and labellers, so that a liking for one
    side averages out."""
    return ("a", "b") if int(digest(uid, labeller), 16) % 2 else ("b", "a")


def majority(choices: Collection[str]) -> str | None:
    """What more than half of those who judged said; a tie where there is no such thing,
    None where all skipped."""
    judged = [choice for choice in choices if choice != "skip"]
    if not judged:
        return None
    choice, count = Counter(judged).most_common(1)[0]
    return choice if 2 * count > len(judged) else "tie"


def label_counts(items: Sequence[tuple[object, Mapping[str, str]]]) -> dict[str, Any]:
    """Items, those judged by somebody, those judged both ways; labels, by choice and by labeller."""
    labels = [(who, choice) for _, said in items for who, choice in said.items()]
    total, by = Counter(choice for _, choice in labels), Counter(labels)
    return {"items": len(items), "judged": sum(majority(said.values()) is not None for _, said in items),
            "contradicted": sum({"a", "b"} <= set(said.values()) for _, said in items), "labels": len(labels),
            "choices": {c: total[c] for c in CHOICES},
            "labellers": {who: {c: by[who, c] for c in CHOICES}
                          for who in sorted({who for who, _ in labels})}}


def labeller_agreement(items: Sequence[tuple[object, Mapping[str, str]]]) -> list[dict[str, Any]]:
    """Cohen's kappa of each two labellers, on the items that both judged;
    "tie" is a third answer, a skip is no judgement.

    kappa is None with fewer than two such items, or where chance alone explains everything.
    """
    judged = [{who: choice for who, choice in said.items() if choice != "skip"} for _, said in items]
    out = []
    for x, y in combinations(sorted({who for said in judged for who in said}), 2):
        both = [(said[x], said[y]) for said in judged if x in said and y in said]
        out.append({"labellers": [x, y], "items": len(both), "agreed": sum(p == q for p, q in both),
                    "kappa": cohen_kappa(*zip(*both, strict=True)) if len(both) > 1 else None})
    return out
