"""A reward model on the labels so far, judged on pairs that it did not see.

A process of its own, so that nobody waits for it:

    python -m postgrad.studio.label.reward_process STORE  a training and a line of JSON for each line of input

What is trained is `reward_head`'s: a linear head on the embedded model's states, by the loss of `postgrad
train reward`. That takes a fraction of a second, so it can be done five times over: every prompt is judged by
a head that was trained without it.
Left out on purpose: training the body too, which needs minutes and, with the few labels of a sitting,
does no better.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from postgrad.data.preferences import ask_of
from postgrad.data.store import Item, Store
from postgrad.maths.intervals import grouped_interval
from postgrad.studio.json_types import JsonDict
from postgrad.studio.label.reward_head import MODEL, FeatureReader, fit_head, standardised, win_share

FOLDS = 5
AHEAD = 200  # items not judged yet that are scored too


class CachedReader(FeatureReader):
    """A reader that keeps what it has read of an item."""

    def __init__(self, model: str = MODEL):
        super().__init__(model)
        self.known: dict[str, Tensor | None] = {}

    def pair(self, item: Item) -> Tensor | None:  # [2, D]: answers a and b
        if item.uid not in self.known:
            self.known[item.uid] = self.read(item.messages, (item.a, item.b))
        return self.known[item.uid]


def fold_of(item: Item) -> int:
    """By the prompt, so that no prompt is on both sides."""
    return int(hashlib.sha256(ask_of(item.messages).encode()).hexdigest(), 16) % FOLDS


def cross_validate(judged: Sequence[tuple[Item, str]], ahead: Sequence[Item],
                   reader: CachedReader) -> JsonDict:
    """Held-out accuracy with its interval, and the chance that a wins for every item:
    each by a head that has not seen it."""
    began = time.perf_counter()
    rows = [(item, choice) for item, choice in judged if reader.pair(item) is not None]
    coming = [item for item in ahead if reader.pair(item) is not None]
    won = [(item, choice) for item, choice in rows if choice != "tie"]
    found: JsonDict = {"judged": len(judged), "decided": len(won), "ties": len(rows) - len(won),
             "too_long": len(judged) - len(rows), "accuracy": None, "low": None, "high": None, "held_out": 0,
             "longer": None, "chance": {}}
    if won:
        found["chance"] = chance = win_chances(rows, coming, reader)
        tested = [(item, choice) for item, choice in won if item.uid in chance]
        if tested:
            hits = [hit_or_half((chance[item.uid] - 0.5) * (1 if choice == "a" else -1)) 
                    for item, choice in tested]
            held = grouped_interval(hits, [ask_of(item.messages) for item, _ in tested], (0.0, 1.0))
            found |= dict(zip(("accuracy", "low", "high"), held, strict=True))
        found["held_out"] = len(tested)
        found["longer"] = sum(hit_or_half((len(item.a) - len(item.b)) * (1 if choice == "a" else -1))
                              for item, choice in won) / len(won)
    return found | {"seconds": time.perf_counter() - began}


def hit_or_half(gap: float) -> float:
    """1 above 0, 0 below; a gap that is exactly 0 counts half."""
    return 0.5 if gap == 0 else float(gap > 0)


def win_chances(rows: Sequence[tuple[Item, str]], coming: Sequence[Item],
                reader: CachedReader) -> dict[str, float]:
    """P(a > b) of each item: a judged one by a head trained on the other folds (left out where there is none
    to train on), one that is still to come by a head trained on all."""
    items, n = [*(item for item, _ in rows), *coming], len(rows)
    states = torch.stack([pair for item in items if (pair := reader.pair(item)) is not None])
    states = standardised(states, states.flatten(0, 1))
    won = win_share([choice[0] for _, choice in rows])
    fold = torch.tensor([fold_of(item) for item, _ in rows])
    chance = torch.full((len(items),), float("nan"), dtype=torch.float64)
    for number in sorted(set(fold.tolist())):
        out, rest = (fold == number).nonzero().flatten(), (fold != number).nonzero().flatten()
        if len(rest):
            chance[out] = chance_of(fit_head(states[rest, 0], states[rest, 1], won[rest]), states[out])
    if coming:
        chance[n:] = chance_of(fit_head(states[:n, 0], states[:n, 1], won), states[n:])
    return {item.uid: p for item, p in zip(items, chance.tolist(), strict=True) if p == p}


def chance_of(head: Tensor, states: Tensor) -> Tensor:  # [D], [N, 2, D] -> [N]
    """P(a > b) = sigmoid(r_a - r_b)."""
    a, b = (states @ head).unbind(1)
    return torch.sigmoid(a - b)


def train_on_store(path: str, reader: CachedReader) -> JsonDict:
    """A training on what the store holds now: one judgement an item, by the majority of its labellers."""
    with Store.open(path, create=False) as store:
        judged = [(item, choice) for item, choice, _ in store.judged()]
        seen = {item.uid for item, _ in judged}
        ahead = [item for item, _ in store.items() if item.uid not in seen][:AHEAD]
    return cross_validate(judged, ahead, reader)


def serve_trainings() -> None:
    os.nice(10)
    torch.set_num_threads(1)
    reader = CachedReader()
    for _ in sys.stdin:
        try:
            said = train_on_store(sys.argv[1], reader)
        except ValueError as error:
            said = {"error": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    serve_trainings()
