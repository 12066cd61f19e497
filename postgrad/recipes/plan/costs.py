"""Seconds of the parts of a step, from the shape of a model and the figures of a card.

Sampling goes token by token: a step of all rows reads the weights, the rows' keys and values, and writes
their logits, at the bandwidth of the card, after a start of its kernels in each layer. Training multiplies
matrices (6 products a weight and token) and moves what is kept for the backward pass several times. Fitted
has the numbers that no data sheet has, chosen by hand so that they meet the points of
docs/results/speed-h200.json (tests/recipes/plan/plan_test.py has the points, and how far off each is).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from postgrad.models.families import Config
from postgrad.models.layer import layer_spec
from postgrad.recipes.plan.cards import NODE, Card
from postgrad.training.memory import Setup, cache, kept, matrices, parameters

SLOTS = 1024  # rows that a sampler writes at once, at most
TALK = 20e-6  # seconds of an exchange between GPUs that share a matrix: not measured
ADAMW = 30    # bytes that an update moves for each weight


@dataclass(frozen=True)
class Fitted:
    """layer: seconds that a layer takes at least, in a step of sampling. read: of the bandwidth, what
    sampling reaches. picked: bytes that choosing a token moves, for each of the vocabulary. moved: how often
    training moves what is kept of a token. headed: bytes that the loss moves, for each of the vocabulary.
    step: seconds of an update, beside. row: seconds of a row beside sampling and training: text, verdict,
    log, columns."""

    layer: float = 26e-6
    read: float = 0.78
    picked: float = 5.0
    moved: float = 9.5
    headed: float = 20.0
    step: float = 3e-3
    row: float = 0.03e-3


FITTED = Fitted()


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a step samples and trains on. reply: mean tokens. tokens_per_pass: as in optim."""

    prompts: int
    group: int
    prompt: int
    reply: float
    tokens_per_pass: int = 8192

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def sampled(self) -> float:
        return self.rows * self.reply

    @property
    def computed(self) -> float:
        """Tokens that go through the layers in training: a prompt once for its group."""
        return self.prompts * self.prompt + self.sampled


@dataclass(frozen=True)
class Costs:
    """A model's shape on a card."""

    shape: Config
    card: Card
    fitted: Fitted = FITTED

    @cached_property
    def layers(self) -> int:
        return self.shape.num_hidden_layers

    @cached_property
    def weights(self) -> int:
        """Bytes of all weights, in bfloat16."""
        return 2 * parameters(self.shape)

    @cached_property
    def matrices(self) -> int:
        return matrices(self.shape)

    @cached_property
    def head(self) -> int:
        return self.shape.vocab_size * self.shape.hidden_size

    @cached_property
    def cached(self) -> float:
        """Bytes of keys and values of a token."""
        return cache(self.shape, Setup(tokens=1, samples=1))

    @cached_property
    def held(self) -> int:
        """Bytes that are kept of a token for the backward pass."""
        return 2 * self.shape.num_hidden_layers * kept(layer_spec(self.shape, 0), Setup())

    # sampling

    def token(self, rows: float, context: float, tensor: int = 1) -> float:
        """One more token for so many rows, each with so many behind it: of much work, what a layer takes at
        least is hidden in part. tensor: GPUs that share each matrix."""
        f, vocabulary = self.fitted, self.shape.vocab_size
        read = self.weights - (0 if self.shape.tie_word_embeddings else 2 * self.head)  # one is looked up
        moved = read + rows * context * self.cached + rows * vocabulary * f.picked
        products = 2 * rows * (self.matrices + self.head)
        busy = max(moved / (self.card.reached_bandwidth * f.read), products / self.card.reached_flops)
        talk = 2 * self.layers * TALK if tensor > 1 else 0.0
        return math.hypot(self.layers * f.layer, busy / tensor) + talk

    # training

    def parts(self, tokens: float, sampled: float) -> tuple[float, float]:
        """Seconds of products, and of moving. sampled: the tokens that meet the head."""
        f = self.fitted
        products = 6 * (self.matrices * tokens + self.head * sampled)
        moved = f.moved * self.held * tokens + f.headed * self.shape.vocab_size * sampled
        return products / self.card.reached_flops, moved / self.card.reached_bandwidth

    def train(self, tokens: float, sampled: float) -> float:
        """Forward and backward."""
        return sum(self.parts(tokens, sampled)) + self.fitted.step

    def forward(self, tokens: float, sampled: float) -> float:
        """Without a gradient: a third of the products, a quarter of what is moved."""
        products, moved = self.parts(tokens, sampled)
        return products / 3 + moved / 4

    def update(self, work: Work, ranks: int = 1) -> float:
        """Forward and backward over a step, shared by so many ranks with all weights divided among them, and
        the optimizer."""
        tokens = work.computed / ranks
        computing = self.train(tokens, work.sampled / ranks)
        passes = max(1, math.ceil(tokens / work.tokens_per_pass))
        link = self.card.near if ranks <= NODE else self.card.far
        talking = 3 * self.weights * passes / link if ranks > 1 else 0.0  # gathered twice, gradients once
        optimizer = ADAMW * self.weights / 2 / ranks / self.card.reached_bandwidth
        return max(computing, talking) + optimizer
