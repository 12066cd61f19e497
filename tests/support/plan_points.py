"""What was measured on one H200 (docs/results/speed-h200.json), and what the plan says of the same work."""

import random
from statistics import median
from typing import NamedTuple

from postgrad.models.families import Config
from postgrad.recipes.plan import CARDS, SLOTS, Costs, ReplyLengths, Work, sampling_seconds


def shape(layers, width, inner, heads, kv, vocab, tied=True):
    return Config(vocab_size=vocab, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv, head_dim=64,
                  max_position_embeddings=4096, tie_word_embeddings=tied)


SMALL = shape(30, 576, 1536, 9, 3, 49152)                 # SmolLM2-135M
LARGE = shape(16, 2048, 8192, 32, 8, 32000)               # Llama 3.2 1B with Llama 2's vocabulary


class Point(NamedTuple):
    what: str
    measured: float
    planned: float
    unit: str = "s"

    @property
    def off(self):
        return self.planned / self.measured - 1

    @property
    def line(self):
        """A row of the table in docs/scale.md."""
        both = " | ".join(f"{x:.3g} {self.unit}" for x in (self.measured, self.planned))
        return f"| {self.what} | {both} | {self.off:+.0%} |"


def costs(c):
    return Costs(c, CARDS["H200"])


def sampling(c, lengths, prompt=128, group=8):
    made = costs(c)
    return (sampling_seconds(lengths, SLOTS, lambda rows, at: made.token(rows, prompt + at))
            + made.forward(Work(prompts=len(lengths) // group, group=1, prompt=prompt, reply=0)))


def step(c, rows=512, prompt=128, new=128, reference=False, group=8, recompute=False):
    made, work = costs(c), Work(prompts=rows // group, group=group, prompt=prompt, reply=new,
                                tokens_per_pass=16384)
    score = made.forward(work) if reference else 0.0
    return (sampling(c, [new] * rows, prompt, group) + made.update(work, recompute=recompute) + score
            + rows * made.fitted.row)


def training(c, rows, prompt=128, new=128, group=8):
    work = Work(prompts=rows // group, group=group, prompt=prompt, reply=new)
    return costs(c).train(work)


def points():
    def ragged(rows, seed=0):
        lengths = ReplyLengths(mean=128, longest=1024).draw(rows, random.Random(seed))
        return sum(lengths) / sampling(SMALL, lengths) / 1e3
    alone = median(ragged(512, seed) for seed in range(5))
    return [
        Point("135M, sampling, 512 rows of 128 + 128 tokens", 0.1602, sampling(SMALL, [128] * 512)),
        Point("135M, sampling, 16,384 equal rows over 1,024 slots", 493.1,
              16384 * 128 / sampling(SMALL, [128] * 16384) / 1e3, "k tokens/s"),
        Point("135M, sampling, 16,384 ragged rows over 1,024 slots", 320.7, ragged(16384), "k tokens/s"),
        Point("135M, sampling, 512 ragged rows alone", 85.7, alone, "k tokens/s"),
        Point("135M, training, 512 rows of 128 + 128 tokens", 0.1833, training(SMALL, 512)),
        Point("135M, GRPO step, beta 0", 0.3633, step(SMALL)),
        Point("135M, GRPO step, beta 0.04", 0.4111, step(SMALL, reference=True)),
        Point("135M, GRPO step, beta 0, optim.recompute", 0.413, step(SMALL, recompute=True)),
        Point("1B, GRPO step, beta 0", 1.2453, step(LARGE)),
    ]
