"""GPUs by name, as their makers give them, and what a program reaches of that."""

from __future__ import annotations

import re
from dataclasses import dataclass

# of an H200's data sheet, measured there: bench/h200.py rates (772.6 of 989 TFLOP/s, 3,240 of 4,800 GB/s)
REACHED_FLOPS, REACHED_BYTES = 772.6e12 / 989e12, 3240e9 / 4800e9
NODE = 8  # GPUs that a fast link joins


@dataclass(frozen=True)
class Card:
    """memory: bytes. flops: bfloat16 products a second, without sparsity. bandwidth: bytes a second of its
    own memory. near, far: bytes a second that it exchanges with GPUs of its node, and with those beyond."""

    name: str
    memory: float
    flops: float
    bandwidth: float
    near: float
    far: float = 40e9

    @property
    def reached_flops(self) -> float:
        return self.flops * REACHED_FLOPS

    @property
    def reached_bandwidth(self) -> float:
        return self.bandwidth * REACHED_BYTES


CARDS = {card.name: card for card in (
    Card("H200", 141e9, 989e12, 4800e9, 300e9),
    Card("H100", 80e9, 989e12, 3350e9, 300e9),
    Card("A100", 80e9, 312e12, 2039e9, 200e9),
    Card("L40S", 48e9, 362e12, 864e9, 20e9),
    Card("RTX4090", 24e9, 165e12, 1008e9, 20e9),
    Card("B200", 180e9, 2250e12, 8000e9, 600e9),
)}


def cards_named(text: str) -> tuple[int, Card]:
    """"64xH100" -> (64, the card); without a number, one."""
    found = re.fullmatch(r"(?:(\d+)x)?([A-Za-z0-9]+)", text.strip())
    card = CARDS.get(found[2].upper()) if found else None
    if found is None or card is None or (count := int(found[1] or 1)) < 1:
        raise ValueError(f"--gpus {text!r}: write a number and a card, such as 8xH100; there are "
                         f"{', '.join(CARDS)}.")
    return count, card
