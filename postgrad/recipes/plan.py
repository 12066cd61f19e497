"""A plan before a training: does it fit, on which GPUs it trains and samples, and how long a step takes.

All of it is arithmetic. It stands on measurements of one H200 (docs/results/speed-h200.md); tests hold it
against those points, and docs/scale.md says how far off each is. Nothing past one GPU was measured.

Sampling goes token by token: a step of all rows reads the weights and the rows' KV cache, and writes their
logits, at the bandwidth of the GPU, after a launch of its kernels in each layer. Training multiplies matrices
(6 FLOPs a weight and token, 8 where activations are recomputed), attends to every earlier token (4 d FLOPs a
pair of tokens and layer forward, d the width of all heads, and 2.5 times that backward), and moves the
activations several times. Of experts a token costs those that it goes to.

Together: every GPU samples its share and then trains its share, in turn, as torchrun with `shard=true` does.
Apart: some train, the others sample, and the weights go from one to the other through a folder; then sampling
can run ahead. A model too large for one GPU has its matrices split among the GPUs of a sampler. Left out on
purpose: pipelines of layers, split matrices in training, offloading.
"""

from __future__ import annotations

import heapq
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from postgrad import methods
from postgrad.methods import Method, Policy
from postgrad.models.families import Config
from postgrad.models.layer import MatrixSpec, layer_spec, layer_window
from postgrad.recipes.defaults import FREE, PASSES
from postgrad.resolve.models import read_config
from postgrad.system.options import FootprintOptions
from postgrad.training.memory import (
    PARTS,
    SIZES,
    Memory,
    Setup,
    cache,
    estimate,
    kept,
    parameters,
    shape_of,
)

# GPUs

# measured share of an H200's data sheet: bench/h200.py rates (772.6 of 989 TFLOP/s, 3,240 of 4,800 GB/s)
REACHED_FLOPS, REACHED_BYTES = 772.6e12 / 989e12, 3240e9 / 4800e9
NODE = 8  # GPUs that a fast link joins


class AttentionRates(NamedTuple):
    """Share of the data sheet's FLOPs that an attention kernel reaches: on an H100, head dimension 128, 16k
    tokens, causal forward, and backward (FlashAttention-3, arXiv:2407.08608, figures 5 and 6)."""

    forward: float
    backward: float


FLASH2 = AttentionRates(335e12 / 989e12, 322e12 / 989e12)  # torch's, which the trainer calls
FLASH3 = AttentionRates(616e12 / 989e12, 561e12 / 989e12)
BACKWARD = 2.5  # FLOPs of attention's backward pass, of its forward's: five products, not two
# share of the data sheet's FLOPs in training on many GPUs, at most: Llama 3's 430 TFLOP/s on 8,192 H100
# (arXiv:2407.21783, table 4); of one GPU REACHED_FLOPS and the traffic say it
MANY_FLOPS = 430e12 / 989e12


@dataclass(frozen=True)
class Card:
    """A GPU by its data sheet. memory: bytes. flops: bfloat16 products a second, without sparsity. bandwidth:
    bytes a second of its own memory. near, far: bytes a second to GPUs of its node, and beyond."""

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
    match = re.fullmatch(r"(?:(\d+)x)?([A-Za-z0-9]+)", text.strip())
    card = CARDS.get(match[2].upper()) if match else None
    if match is None or card is None or (count := int(match[1] or 1)) < 1:
        raise ValueError(f"--gpus {text!r}: write a number and a card, such as 8xH100; there are "
                         f"{', '.join(CARDS)}.")
    return count, card


# seconds of the parts of a step

SLOTS = 1024  # rows that a sampler writes at once, at most
TALK = 20e-6  # seconds of an exchange between GPUs that share a matrix: not measured
ADAMW = 30    # bytes that an update moves for each weight


@dataclass(frozen=True)
class Fitted:
    """The numbers that no data sheet has, chosen by hand to meet the points of docs/results/speed-h200.json
    (tests/support/plan_points.py has them).

    layer: least seconds of a layer in a sampling step. read: the share of the bandwidth that sampling
    reaches. picked: bytes that choosing a token moves, per entry of the vocabulary. moved: how often training
    moves the activations of a token. headed: bytes that the loss moves, per entry of the vocabulary. step:
    further seconds of an update. row: host seconds of a row: text, verdict, log, columns.
    """

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
    """What a step samples and trains on. prompt: tokens; reply: mean tokens. tokens_per_pass: as in optim."""

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
        """Tokens of a training pass through the layers: a prompt once for its group."""
        return self.prompts * self.prompt + self.sampled

    @property
    def pairs(self) -> float:
        """Pairs of a token and one that it attends to, of rows of the mean length."""
        return self.prompts * self.prompt**2 / 2 + self.sampled * (self.prompt + self.reply / 2)


@dataclass(frozen=True)
class Costs:
    """A model's shape on a card."""

    shape: Config
    card: Card
    fitted: Fitted = FITTED
    kernel: AttentionRates = FLASH2

    @cached_property
    def layers(self) -> int:
        return self.shape.num_hidden_layers

    @cached_property
    def weights(self) -> int:
        """Bytes of all weights, in bfloat16."""
        return 2 * parameters(self.shape)

    @cached_property
    def matrices(self) -> tuple[int, int]:
        """Weights of the layers' matrices that a token is multiplied with, and those of all experts."""
        active = experts = 0
        for half in (half for i in range(self.layers) for half in layer_spec(self.shape, i).halves):
            for matrix in (w for w in half.weights if isinstance(w, MatrixSpec)):
                active += matrix.size * (half.active if matrix.copies else 1)
                experts += matrix.size * matrix.copies
        return active, experts

    @cached_property
    def head(self) -> int:
        return self.shape.vocab_size * self.shape.hidden_size

    @cached_property
    def cached(self) -> float:
        """Bytes of the KV cache of a token."""
        return cache(self.shape, Setup(tokens=1, samples=1))

    @cached_property
    def held(self) -> float:
        """Bytes of the activations of a token."""
        return 2 * self.shape.num_hidden_layers * kept(layer_spec(self.shape, 0), Setup())

    def attention(self, tokens: float, pairs: float) -> float:
        """FLOPs of a forward pass; a window bounds what a token attends to."""
        width = self.shape.num_attention_heads * self.shape.head_dim
        windows = (layer_window(self.shape, i) for i in range(self.layers))
        return 4 * width * sum(pairs if window is None else min(pairs, tokens * window) for window in windows)

    # sampling

    def read(self, rows: float) -> float:
        """Bytes of the weights that a sampling step reads: one embedding is looked up, and of the experts
        those that some row goes to, where each goes to any of them alike."""
        skipped = 0.0 if self.shape.tie_word_embeddings else 2.0 * self.head
        if sizes := self.shape.architecture.experts:
            skipped += 2 * self.matrices[1] * (1 - sizes.active / sizes.count) ** rows
        return self.weights - skipped

    def token(self, rows: float, context: float, tensor: int = 1) -> float:
        """Seconds of one more token for so many rows, each with so much context. The launch of kernels is
        hidden in part by much work. tensor: GPUs that share each matrix."""
        f, vocabulary = self.fitted, self.shape.vocab_size
        moved = self.read(rows) + rows * context * self.cached + rows * vocabulary * f.picked
        flops = 2 * rows * (self.matrices[0] + self.head)
        busy = max(moved / (self.card.reached_bandwidth * f.read), flops / self.card.reached_flops)
        talk = 2 * self.layers * TALK if tensor > 1 else 0.0
        return math.hypot(self.layers * f.layer, busy / tensor) + talk

    # training

    def flops(self, work: Work) -> tuple[float, float, float]:
        """Of a forward pass: of the layers' products, of attention, of the head."""
        return (2 * self.matrices[0] * work.computed, self.attention(work.computed, work.pairs),
                2 * self.head * work.sampled)

    def traffic(self, work: Work) -> tuple[float, float]:
        """Seconds of what a training pass moves in the layers, and at the head."""
        f, bandwidth = self.fitted, self.card.reached_bandwidth
        return (f.moved * self.held * work.computed / bandwidth,
                f.headed * self.shape.vocab_size * work.sampled / bandwidth)

    def on_ranks(self, alone: float, flops: float, gathers: int, work: Work, ranks: int) -> float:
        """Seconds on so many ranks with sharded weights, which are gathered so often in each pass. alone: on
        one."""
        if ranks == 1:
            return alone
        passes = max(1, math.ceil(work.computed / ranks / work.tokens_per_pass))
        return max(alone / ranks, flops / (MANY_FLOPS * self.card.flops) / ranks,
                   gathers * passes * self.weights / self.link(ranks))

    def link(self, ranks: int) -> float:
        return self.card.near if ranks <= NODE else self.card.far

    def forward(self, work: Work, ranks: int = 1) -> float:
        """A no-grad forward: a quarter of the traffic."""
        layers, attention, head = self.flops(work)
        alone = ((layers + head) / self.card.reached_flops + sum(self.traffic(work)) / 4
                 + attention / (self.kernel.forward * self.card.flops))
        return self.on_ranks(alone, layers + attention + head, 1, work, ranks)

    def train(self, work: Work, ranks: int = 1, recompute: bool = False) -> float:
        """Forward and backward; recomputed, the layers' forward once more. Weights are gathered twice, and
        then gradients are summed."""
        (layers, attention, head), (moved, headed) = self.flops(work), self.traffic(work)
        forwards = 2 if recompute else 1
        attending = forwards / self.kernel.forward + BACKWARD / self.kernel.backward
        alone = (((2 + forwards) * layers + 3 * head) / self.card.reached_flops
                 + attending * attention / self.card.flops + (3 + forwards) / 4 * moved + headed)
        return self.on_ranks(alone, (2 + forwards) * (layers + attention) + 3 * head, 3, work, ranks)

    def update(self, work: Work, ranks: int = 1, recompute: bool = False) -> float:
        """Forward, backward and the optimizer of a step."""
        optimizer = ADAMW * self.weights / 2 / ranks / self.card.reached_bandwidth
        return self.train(work, ranks, recompute) + self.fitted.step + optimizer


# collections on a clock

COLLECTIONS, FIRST = 24, 8  # simulated, and from which on the clock is read


@dataclass(frozen=True, kw_only=True)
class ReplyLengths:
    """Lengths of replies, in tokens. kind: equal, or geometric, cut at the longest; mean: of those cut."""

    mean: float
    longest: int
    kind: str = "geometric"

    @cached_property
    def stays(self) -> float:
        """The chance q that a geometric reply goes on: cut at L, their mean is 1 + q + ... + q^(L-1)."""
        low, high = 0.0, 1.0
        for _ in range(50):
            q = (low + high) / 2
            low, high = (q, high) if (1 - q**self.longest) / (1 - q) < self.mean else (low, q)
        return low

    def draw(self, rows: int, rng: random.Random) -> list[int]:
        if self.kind == "equal" or not 1 < self.mean < self.longest:
            return [round(self.mean)] * rows
        rate = -math.log(self.stays)
        return [min(self.longest, 1 + int(rng.expovariate(rate))) for _ in range(rows)]


class Times(NamedTuple):
    """Seconds between two steps, of waiting and training in them, and of sampling a collection."""

    step: float
    waiting: float
    training: float
    sampling: float


def sampling_seconds(lengths: Sequence[int], slots: int, token: Callable[[float, float], float]) -> float:
    """Seconds of one sampler with continuous batching: rows of these lengths, at most `slots` at once.
    token(rows, tokens): seconds of one more token for rows of so many tokens on average."""
    waiting = list(lengths)[::-1]
    active: list[tuple[int, int]] = []  # (token at which it ends, token at which it began)
    at, clock, begun = 0, 0.0, 0  # begun: the sum of the active rows' starts
    while waiting or active:
        while waiting and len(active) < slots:
            heapq.heappush(active, (at + waiting.pop(), at))
            begun += at
        until = active[0][0]
        middle = (at + until) / 2 - begun / len(active)
        clock += (until - at) * token(len(active), max(middle, 0.0))
        at = until
        while active and active[0][0] <= at:
            begun -= heapq.heappop(active)[1]
    return clock


def simulate(sample: Callable[[random.Random], float], train: float, hand_over: float, ahead: int,
             seed: int = 0) -> Times:
    """A training with an async depth of `ahead`, admitted as in training/batches/async_collector.py.
    sample(rng): seconds of one collection. hand_over: seconds from the end of an update until the samplers
    have its weights."""
    rng, ready, free, spent = random.Random(seed), 0.0, 0.0, []
    trained: list[float] = []
    waits = []
    for c in range(COLLECTIONS):
        before = c - ahead - 1
        begins = max(free, trained[before] + hand_over if before >= 0 else 0.0)
        spent.append(sample(rng))
        free = begins + spent[-1]
        starts = max(ready, free)
        waits.append(starts - ready)
        ready = starts + train
        trained.append(ready)
    count = COLLECTIONS - FIRST
    return Times(step=(trained[-1] - trained[FIRST - 1]) / count, waiting=sum(waits[FIRST:]) / count,
                 training=train, sampling=sum(spent[FIRST:]) / count)


# how the GPUs can be divided

DISK = 1e9    # bytes a second through a folder, one way: not measured
DEPTHS = (0, 1, 2, 4)
LARGE_PASSES = (16384, 32768, 65536)  # tokens: of use where weights are gathered for every pass
SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A division of GPUs. together: trainers and samplers are the same. tensor: GPUs of one sampler."""

    trainers: int
    samplers: int
    together: bool
    tensor: int = 1

    @property
    def engines(self) -> int:
        """The number of samplers."""
        return self.samplers // self.tensor

    @property
    def words(self) -> str:
        each = f", {self.tensor} a sampler" if self.tensor > 1 else ""
        if self.together:
            return f"{self.trainers} train and sample in turn{each}"
        return f"{self.trainers} train, {self.samplers} sample{each}"


@dataclass(frozen=True, kw_only=True)
class Option:
    """A layout and its costs. training, sampling: bytes of a GPU by part. parts: seconds of sampling, of
    scoring and host work, of the update, of the weight sync. times: of the simulation. notes: what to set,
    and what is not built."""

    layout: Layout
    ahead: int
    tokens_per_pass: int
    recompute: bool
    training: dict[str, float]
    sampling: dict[str, float]
    parts: dict[str, float]
    times: Times
    notes: tuple[str, ...] = ()


def trainer_memory(needs: Memory, costs: Costs, ranks: int) -> dict[str, float]:
    """Bytes of a trainer's GPU: its shards, activations, and two layers and the embeddings unsharded."""
    parts = {"weights": needs.weights / ranks, "gradients": needs.gradients / ranks,
             "optimizer": needs.optimizer / ranks, "activations": needs.activations}
    if ranks > 1:
        outer = 2 * costs.head * (1 if costs.shape.tie_word_embeddings else 2)
        parts["whole for a while"] = outer + 2 * (costs.weights - outer) / costs.layers
    return parts


class Pass(NamedTuple):
    """A way to train: tokens of a pass, whether activations are recomputed, and its memory on one GPU."""

    tokens: int
    recompute: bool
    memory: Memory


def training_passes(shape: Config, method: Method, work: Work, held: Setup) -> list[Pass]:
    """Those that recompute nothing first, and the usual sizes before larger ones."""
    found = []
    for recompute in (held.recompute,) if held.recompute else (False, True):
        for tokens in (*PASSES, *LARGE_PASSES):
            rows = max(1, round(tokens / (work.prompt + work.reply)))
            setup = replace(held, rows=rows, tokens=max(1, tokens // rows), recompute=recompute)
            found.append(Pass(tokens, recompute, estimate(shape, method, setup)))
    return found


def pass_seconds(costs: Costs, work: Work, ranks: int, each: Pass) -> float:
    """Of a step's log-probs and update."""
    work = replace(work, tokens_per_pass=each.tokens)
    return costs.forward(work, ranks) + costs.train(work, ranks, each.recompute)


def sampler_memory(costs: Costs, tensor: int, rows: int, longest: int,
                   room: float) -> tuple[dict[str, float], int]:
    """Bytes of a sampler's GPU, and its concurrent rows: 0 where none fits."""
    weights, each = costs.weights / tensor, longest * costs.cached / tensor
    slots = min(rows, SLOTS, int(max(0.0, room - weights) // each))
    return {"weights": weights, "cache": slots * each}, slots


def plan_options(shape: Config, method: Method, count: int, card: Card, work: Work, lengths: ReplyLengths,
                 held: Setup, sync: float = DISK) -> list[Option]:
    """Every layout that fits, fastest first. sync: bytes a second by which weights reach samplers apart."""
    room, costs, options = (1 - FREE) * card.memory, Costs(shape, card), []
    passes = {alone: training_passes(shape, method, work, replace(held, compiled=alone))
              for alone in (True, False)}
    for layout in layouts(costs, count):
        ranks = layout.trainers
        fitting = [each for each in passes[ranks == 1]
                   if sum(trainer_memory(each.memory, costs, ranks).values()) <= room]
        if not fitting:
            continue
        tokens, recompute, memory = min(fitting, key=lambda each: pass_seconds(costs, work, ranks, each))
        training = trainer_memory(memory, costs, ranks)
        rows = -(-work.rows // layout.engines)
        beside = 0.0
        if layout.together:
            beside = training["weights"] + training["optimizer"] + sum(memory.stays.values()) / ranks
        sampling, slots = sampler_memory(costs, layout.tensor, rows, work.prompt + lengths.longest,
                                         room - beside)
        sampling |= {"the trainer's part": beside} if beside else {}
        collections = collection_seconds(costs, work, lengths, layout, slots) if slots else []
        for ahead in () if not slots else (0,) if layout.together else DEPTHS:
            parts, times = step_timing(costs, method, replace(work, tokens_per_pass=tokens), collections,
                                       layout, ahead, recompute, sync)
            options.append(Option(layout=layout, ahead=ahead, tokens_per_pass=tokens, recompute=recompute,
                                  training=training, sampling=sampling, parts=parts, times=times,
                                  notes=layout_notes(layout, tokens, recompute)))
    return sorted(options, key=lambda option: option.times.step)


def layouts(costs: Costs, count: int) -> Iterator[Layout]:
    """The GPUs of a sampler: as many as its weights need, and more, up to a node's, where that is not one."""
    least = 1
    while costs.weights / least > 0.6 * costs.card.memory and least < NODE:
        least *= 2
    for tensor in (1,) if least == 1 else (n for n in (2, 4, 8) if n >= least):
        if count % tensor == 0:
            yield Layout(trainers=count, samplers=count, together=True, tensor=tensor)
        for share in SHARES:
            samplers = round(count * share / tensor) * tensor
            if tensor <= samplers < count:
                yield Layout(trainers=count - samplers, samplers=samplers, together=False, tensor=tensor)


def collection_seconds(costs: Costs, work: Work, lengths: ReplyLengths, layout: Layout,
                       slots: int) -> list[float]:
    """Seconds of each collection of a simulation, whatever its depth."""
    prefill = costs.forward(replace(work, group=1, reply=0)) / layout.samplers
    rng, rows = random.Random(0), -(-work.rows // layout.engines)
    return [prefill + sampling_seconds(lengths.draw(rows, rng), slots,
                                       lambda n, at: costs.token(n, work.prompt + at, layout.tensor))
            for _ in range(COLLECTIONS)]


def step_timing(costs: Costs, method: Method, work: Work, collections: Sequence[float], layout: Layout,
                ahead: int, recompute: bool, sync: float) -> tuple[dict[str, float], Times]:
    """Seconds of the parts of a step, and of the step. collections: of sampling each."""
    ranks, left = layout.trainers, iter(collections)
    critic, teacher, epochs = ((method.critic, method.teacher, method.epochs) if isinstance(method, Policy)
                               else (False, False, 1))
    forwards = sum((method.needs_reference, bool(ahead) or method.updates(work.prompts) > 1, critic, teacher))
    score = forwards * costs.forward(work, ranks) + work.rows * costs.fitted.row
    update = epochs * costs.update(work, ranks, recompute)
    if layout.together:
        write, read = 0.0, costs.weights / costs.link(ranks) if ranks > 1 else 0.0
    else:
        write = read = costs.weights / sync  # training waits until the folder is written
    times = simulate(lambda rng: next(left), score + update + write, read, ahead)
    return {"sampling": times.sampling, "scoring": score, "training": update, "weights": write + read}, times


def layout_notes(layout: Layout, tokens: int, recompute: bool) -> tuple[str, ...]:
    told = [f"optim.tokens_per_pass={tokens}"] * (tokens != PASSES[0]) + ["optim.recompute=true"] * recompute
    return (*(["a sampler of several GPUs is vLLM's: ours has one"] if layout.tensor > 1 else []),
            *([f"train it with {' '.join(told)}"] if told else []))


# by name

def named_shape(name: str) -> Config:
    """A size of the table (7B), another size (8B, 350M) as a Llama of so many parameters, or the config.json
    of a model, all that is fetched of a hub id."""
    if name.upper() in SIZES:
        return SIZES[name.upper()]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", name.upper()):
        return shape_of(float(size[1]) * {"M": 1e6, "B": 1e9}[size[2]])
    try:
        return read_config(name)
    except ValueError as error:
        if "/" in name or Path(name).exists():
            raise
        raise ValueError(f"{str(error).rstrip('.')}, or a size like 7B or 350M.") from None


def method_memory(model: str, names: Sequence[str], footprint: FootprintOptions,
                  reward: str | None = None) -> tuple[int, list[dict[str, object]]]:
    """(parameters of the model, a row for each method: the models it holds, and bytes by part).

    reward: "model" or "verifier"; None: a model where the method has a critic.
    """
    shape, rows = named_shape(model), []
    for method in map(methods.get_method, names):
        critic = isinstance(method, Policy) and method.critic
        judged = critic if reward is None else reward == "model"
        memory = estimate(shape, method, Setup(**asdict(footprint), reward_model=judged))
        rows.append({"method": method.name, "models": memory.models,
                     **{part: getattr(memory, part) for part in (*PARTS, "sampling", "updating", "peak")}})
    return parameters(shape), rows


def plan_training(model: str, method: str, gpus: str, work: Work, lengths: ReplyLengths, *,
                  lora: int = 0, sync: float = DISK) -> tuple[int, str, list[Option]]:
    """(parameters of the model, the method's name, every option that fits, fastest first). gpus: "8xH100";
    sync: as in plan_options."""
    shape, (count, card), row = named_shape(model), cards_named(gpus), methods.get_method(method)
    if not row.source.startswith("rollouts"):
        raise ValueError(f"plan is for methods that sample, and {row.name} learns from {row.source}: "
                         "`postgrad memory` says what it asks of a GPU.")
    return (parameters(shape), row.name,
            plan_options(shape, row, count, card, work, lengths, Setup(bits=16, lora=lora), sync))
