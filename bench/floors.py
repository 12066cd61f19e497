"""What a work would take if nothing but arithmetic or memory stood in the way,
from rates measured in the same run.

Training: floating-point operations over the rate of a large matrix product. Decoding, step by step: the
larger of bytes that have to be read (weights, and the cache of every live row) over the bandwidth of reading
as much, and operations over the same rate. Prompts are counted once for a group, and only sampled positions
meet the head: what no one has to compute is not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from postgrad.models import Config


def best_of(work, seconds: float = 0.5) -> float:
    """The shortest of as many runs as fit into the time, in seconds."""
    sync = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    work(), sync()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        work(), sync()
        times.append(time.perf_counter() - began)
    return min(times)


def matmul_rate(dtype: torch.dtype, device: str = "cpu") -> float:
    """FLOP/s of a square product of a size that suits the machine."""
    n = 1024 if device == "cpu" else 8192
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / best_of(lambda: a @ b)


def read_rate(size: float, device: str = "cpu") -> float:
    """Bytes/s of summing a buffer of so many bytes over and over: what fits a cache is read from there."""
    x = torch.ones(max(1, int(size) // 4), device=device)
    return x.numel() * 4 / best_of(x.sum)


@dataclass(frozen=True, kw_only=True)
class Rates:
    flops: float        # FLOP/s
    bytes: float        # bytes/s
    item: int           # bytes of a weight

    @classmethod
    def measure(cls, config: Config, dtype: torch.dtype, device: str = "cpu") -> Rates:
        item = dtype.itemsize
        return cls(flops=matmul_rate(dtype, device), bytes=read_rate(parameters(config) * item, device),
                   item=item)


def layer_parameters(c: Config) -> int:
    attention = c.hidden_size * c.head_dim * (2 * c.num_attention_heads + 2 * c.num_key_value_heads)
    return c.num_hidden_layers * (attention + 3 * c.hidden_size * c.intermediate_size)


def parameters(c: Config) -> int:
    return layer_parameters(c) + c.hidden_size * c.vocab_size * (1 if c.tie_word_embeddings else 2)


def forward_flops(c: Config, tokens: float, headed: float, length: float) -> float:
    """A forward pass over so many tokens, `headed` of them through the head,
    in sequences of about this length."""
    attention = 4 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * length / 2
    return tokens * (2 * layer_parameters(c) + attention) + 2 * headed * c.hidden_size * c.vocab_size


def train_floor(c: Config, rates: Rates, tokens: float, headed: float, length: float,
                looks: int = 0) -> float:
    """Seconds of a forward and a backward pass (twice the forward's work),
    and of `looks` more forward passes."""
    return (3 + looks) * forward_flops(c, tokens, headed, length) / rates.flops


def decode_floor(c: Config, rates: Rates, prompts: int, group: int, prompt: int, new: int,
                 chance: float = 0.0) -> float:
    """Seconds to sample. chance: of stopping after each token."""
    slot = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * rates.item
    seconds = forward_flops(c, prompts * prompt, prompts, prompt) / rates.flops
    for t in range(new - 1):
        live = prompts * group * (1 - chance) ** (t + 1)
        read = parameters(c) * rates.item + slot * (prompts * prompt + live * (t + 1))
        seconds += max(read / rates.bytes, forward_flops(c, live, live, 2 * (prompt + t + 1)) / rates.flops)
    return seconds


def expected(chance: float, new: int) -> float:
    """The mean length of a sample that stops after each token by this chance, cut at `new`."""
    return (1 - (1 - chance) ** new) / chance if chance else float(new)
