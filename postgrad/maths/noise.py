"""Random numbers without a state: a hash of (seed, counter).

Sample i of a run is the same in any batch, order or device.

splitmix64 (Steele, Lea & Flood 2014) in wrapping int64; torch has no unsigned shift,
so the sign bits are masked away.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed number, like the two multipliers
MULTIPLIERS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))


def widest(x: Tensor) -> Tensor:
    """x in float64, or in float32 on MPS, which has no other."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def _shift(x: Tensor, bits: int) -> Tensor:  # x >> bits, with zeros from the left
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def splitmix64(x: Tensor) -> Tensor:  # int64 -> int64
    """splitmix64's finaliser: a bijection in which every input bit moves about half of the output bits."""
    x = (x ^ _shift(x, 30)) * MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def uniform(seed: Tensor, counter: Tensor) -> Tensor:  # int64 [B], int64 [B] -> float64 [B] in [0, 1)
    """The top 53 bits of splitmix64(splitmix64(seed) + golden * (counter + 1)), of each pair."""
    bits = splitmix64(splitmix64(seed + GOLDEN) + GOLDEN * (counter + 1))
    return widest(_shift(bits, 11)) * 2.0**-53


def poisson(u: Tensor) -> Tensor:  # [...] in [0, 1) -> counts
    """Poisson(1) by the inverse of its distribution: how often a bootstrap sample holds an item
    (Oza & Russell 2001)."""
    steps = [sum(math.exp(-1.0) / math.factorial(i) for i in range(k + 1)) for k in range(8)]
    return (u[..., None] >= torch.tensor(steps, dtype=u.dtype, device=u.device)).sum(-1)


def seed_of(*parts: int | str) -> int:
    """A seed in [0, 2^63) from names and numbers, the same in every process: seed_of("rollout", 3, "a/7")."""
    text = repr(tuple(part if isinstance(part, str) else int(part) for part in parts))
    return _hash_to_seed(text)


def seeds_of(*parts: int | str, numbers: range) -> list[int]:
    """seed_of(*parts, n) for each of these numbers, in half the time."""
    begun = repr((*(part if isinstance(part, str) else int(part) for part in parts), ""))[: -len("'')")]
    return [_hash_to_seed(f"{begun}{n})") for n in numbers]


def _hash_to_seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
