"""CUDA graphs of a decoder's forward and backward passes, and of prefill.

Small models on a fast GPU are bound by kernel launches. A graph has fixed shapes, so a pass is padded to one
of a few sizes by dummy sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from postgrad.maths.packing import AttentionLayout, Packed, pad_packed, to_device
from postgrad.models.blocks import Blocks
from postgrad.models.families import Config
from postgrad.models.graph_capture import capturing
from postgrad.models.kernels import Kernels

MOST = 8  # graphs of a model
FINE, COARSE = 64, 8  # sizes per octave: of the first half of the graphs, and of the others
CLOSE = 1.03  # padding up to this factor reuses a graph
STRETCH = 1.25  # the same when there are MOST graphs; larger passes run without one
PIECE = 64  # tokens of a dummy sequence
READ_MOST = 4  # sizes of prefill, close to what is asked for, of more tokens than
READ_FEW = 2048  # these; prompts that come one by one are read by graphs of a few sizes
READ_ROWS = 64  # prompts of such a graph, at least
READ_ALL = 32_768  # tokens up to which prefill has graphs
READ_LONG = 256  # tokens of the longest prompt, at least, where sizes are powers of two
ROOM = 5e9  # bytes of gradients, of which each graph has its own: large models get fewer graphs


def most_graphs(gradients: float) -> int:
    """The limit of graphs for a model with this many bytes of gradients."""
    return min(MOST, int(ROOM // max(1.0, gradients)))


class GraphedDecoder(Protocol):
    """What graphs use of a Decoder."""

    config: Config
    recompute: bool

    @property
    def head(self) -> Tensor: ...

    @property
    def ops(self) -> Kernels: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def angles(self, positions: int) -> tuple[Tensor, Tensor]: ...

    def run(self, tokens: Tensor, positions: Tensor, laid: AttentionLayout | Blocks,
            keep: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None) -> Tensor: ...


class Trunk(nn.Module):
    """A decoder below its head as a function of tensors."""

    def __init__(self, decoder: GraphedDecoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor, positions: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        return self.decoder.run(tokens, positions, Blocks(queries, keys, positions))


class PassGraphs:
    """The graphs of one decoder by size: forward and backward pass each, or a no-grad forward."""

    def __init__(self, decoder: GraphedDecoder, trained: bool = True):
        self.decoder, self.trained = decoder, trained
        self.made: dict[tuple[int, int], Callable[..., Tensor]] = {}
        self.pool: torch.cuda._POOL_HANDLE | None = None
        self.params = [p for p in decoder.parameters() if trained and p.requires_grad]
        self.most = most_graphs(sum(p.nbytes for p in self.params))
        self.copies = [0] * len(self.params)  # addresses of gradients copied out of a graph
        if hasattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch"):
            # captured on another stream than it is replayed on
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    def __call__(self, tokens: Tensor, packed: Packed) -> Tensor | None:
        """The states [N, D] of the packed tokens; None if no graph fits."""
        key = self.fitting(len(packed.cells), len(packed.spans.start))
        if key is None:
            return None
        wide = pad_packed(packed, key[0], PIECE)
        laid = self.decoder.ops.block_layout(wide, self.decoder.config.head_dim, key[1])
        inputs = tokens.flatten()[wide.cells], wide.positions, laid.queries, laid.keys
        if key not in self.made:
            self.made[key] = self.capture(inputs)
        self.keep_gradients()
        return self.made[key](*inputs)[: len(packed.cells)]

    def fitting(self, tokens: int, sequences: int) -> tuple[int, int] | None:
        """The tokens and sequences to pad a pass to: those of a graph that is little larger, or a new size;
        with all graphs captured, the smallest that fits."""
        def filled(N: int) -> int:
            return sequences + -(-(N - tokens) // PIECE)

        def next_size(steps: int) -> tuple[int, int]:
            N = graph_tokens(tokens, steps)
            return N, next_power_of_2(filled(N))

        def there(most: float) -> tuple[int, int] | None:
            return min((made for made in self.made if tokens <= made[0] <= most * tokens
                        and filled(made[0]) <= made[1]), default=None)

        key = next_size(FINE if len(self.made) <= self.most // 2 else COARSE)
        if key in self.made or len(self.made) < self.most:
            return there(CLOSE) or key
        return there(STRETCH)

    def keep_gradients(self) -> None:
        """Before a pass: copies gradients that are a graph's own memory, which its next replay overwrites. A
        pass adds to a copy in place."""
        for i, p in enumerate(self.params):
            if p.grad is not None and p.grad.data_ptr() != self.copies[i]:
                p.grad = p.grad.clone()
                self.copies[i] = p.grad.data_ptr()

    def capture(self, inputs: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        held = tuple(x.clone() for x in inputs)
        trunk = Trunk(self.decoder)
        with capturing():
            self.warm_up(trunk, held)
            if self.trained:
                return cast(Callable[..., Tensor], torch.cuda.make_graphed_callables(
                    trunk, held, num_warmup_iters=0, allow_unused_input=True, pool=self.pool))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                states = trunk(*held)
        return partial(replay_graph, graph, held, states)

    def warm_up(self, trunk: Trunk, held: tuple[Tensor, ...]) -> None:
        """A pass without a graph compiles and loads all kernels; with recomputation, since the graphs' memory
        is allocated too."""
        now, aside, before = torch.cuda.current_stream(), torch.cuda.Stream(), self.decoder.recompute
        aside.wait_stream(now)
        self.decoder.recompute = True
        with torch.cuda.stream(aside):
            states = trunk(*held)
            if self.trained:
                torch.autograd.grad(states, self.params, torch.zeros_like(states), allow_unused=True)
        self.decoder.recompute = before
        now.wait_stream(aside)


def replay_graph(graph: torch.cuda.CUDAGraph, held: tuple[Tensor, ...], states: Tensor,
             *inputs: Tensor) -> Tensor:
    """A copy of the states, which the next replay overwrites."""
    for mine, x in zip(held, inputs, strict=True):
        mine.copy_(x)
    graph.replay()
    return states.clone()


class PrefillGraph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, Tensor]
    states: Tensor
    angles: tuple[Tensor, Tensor]  # read by the graph


class PrefillGraphs:
    """The graphs of prefill by size. keep: called with places, positions and each layer's number, k and v.
    Padding is sequences of `piece` tokens in the place `nobody`."""

    def __init__(self, decoder: GraphedDecoder, keep: Callable[..., tuple[Tensor, Tensor]], piece: int,
                 nobody: int):
        self.decoder, self.keep, self.piece, self.nobody = decoder, keep, piece, nobody
        self.made: dict[tuple[int, ...], PrefillGraph] = {}
        self.pool: torch.cuda._POOL_HANDLE | None = None

    def __call__(self, tokens: Tensor, lengths: Tensor, places: list[int]) -> Tensor | None:
        """The states [N, D] of the tokens of rows [P, T] (on the CPU), stored in these places; None if no
        graph fits."""
        real = np.arange(tokens.shape[1]) < lengths.numpy()[:, None]
        many, device = int(real.sum()), self.decoder.head.device
        key = self.fitting(many, len(lengths), int(lengths.max()))
        if key is None:
            return None
        N, rows, longest = key
        more = np.diff(np.arange(many, N + self.piece, self.piece).clip(max=N))
        own = np.concatenate([lengths.numpy(), more])
        stop = own.cumsum()
        columns = np.zeros((3, N), np.int64)  # tokens, their positions and places
        columns[0, :many] = tokens.numpy()[real]
        columns[1] = np.arange(N) - np.repeat(stop - own, own)
        columns[2] = np.repeat([*places, *[self.nobody] * len(more)], own)
        ends = np.full(rows, N, np.int32)
        ends[: len(own) + 1] = 0, *stop
        inputs = to_device(torch.from_numpy(columns), device), to_device(torch.from_numpy(ends), device)
        if key in self.made:
            graph, held, states, _ = self.made[key]
            states = replay_graph(graph, held, states, *inputs)
        else:
            states = self.read(*inputs, longest)  # loads all kernels before the capture
            self.made[key] = self.capture(inputs, longest)
        return states[:many]

    def fitting(self, tokens: int, prompts: int, longest: int) -> tuple[int, int, int] | None:
        """The tokens, the sequences with those of the padding, and the longest one to pad a pass to. Few
        tokens are padded to a power of two, and so are more once there are READ_MOST other sizes; None for
        more than READ_ALL."""
        def padded(N: int, sequences: int, longest: int) -> tuple[int, int, int]:
            filled = prompts + -(-(N - tokens) // self.piece)
            return N, max(next_power_of_2(filled + 1), sequences), longest

        if tokens <= READ_FEW:
            N = next_power_of_2(max(tokens, 128))
            return padded(N, READ_ROWS, N)
        longest = max(next_power_of_2(longest), self.piece)
        fine = padded(graph_tokens(tokens), 1, longest)
        if fine in self.made or sum(N > READ_FEW for N, *_ in self.made) < READ_MOST:
            return fine
        N = next_power_of_2(tokens)
        return padded(N, N // self.piece, max(longest, READ_LONG)) if N <= READ_ALL else None

    def capture(self, inputs: tuple[Tensor, Tensor], longest: int) -> PrefillGraph:
        graph, first = torch.cuda.CUDAGraph(), self.pool is None
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        with capturing(tidy=first), torch.cuda.graph(graph, pool=self.pool):
            states = self.read(*inputs, longest)
        return PrefillGraph(graph, inputs, states, self.decoder.angles(1))

    def read(self, columns: Tensor, ends: Tensor, longest: int) -> Tensor:
        tokens, positions, place = columns
        layout = AttentionLayout(ends, ends, None, None, None, longest, longest)
        return self.decoder.run(tokens, positions, layout, partial(self.keep, place, positions))


def graph_tokens(n: int, steps: int = 8) -> int:
    """n, rounded up to one of `steps` sizes per octave, at least 128 apart: 1000 -> 1024, 1100 -> 1152."""
    step = max(128, (1 << n.bit_length()) // (2 * steps))
    return -(-n // step) * step


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
