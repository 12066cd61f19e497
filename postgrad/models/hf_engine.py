"""One new token a step for many rows, on a network of `transformers`: the methods of `Engine`.

How rows are kept between steps is what the network understands (hf_cache.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from postgrad.maths.packing import to_device
from postgrad.models.families import check_positions
from postgrad.models.kernels import kernels_for

TOLD: set[str] = set()


class HFEngine:
    """rows slots of `new` tokens each, and as many prompts of up to `read` tokens.

    The last slot and prompt are for no one. positions: how many a prompt and a row have together, where that
    is not all that both have places for. graphs: whether on a GPU a step can be captured.
    """

    appends = False  # a step has one token of a slot
    independent = False  # a row may be rounded in another way where few stand beside it
    weights: Mapping[str, Tensor] = {}  # that it keeps itself: none

    @torch.no_grad()
    def __init__(self, model, *, rows: int, prompts: int, read: int, new: int, positions: int | None = None):
        from postgrad.models.hf_cache import cache_for  # opens `transformers`
        self.model, self.read, self.new, self.rows, self.prompts = model, read, new, rows, prompts
        self.positions = positions or read + new - 1
        check_positions(self.positions, model.config.max_position_embeddings)
        self.device, self.dtype = model.head.device, model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        with self.adapted_network() as network:
            self.memory = cache_for(self, network)
        self.graphs = self.memory.static and self.device.type == "cuda"
        if self.graphs:
            self.rehearse()

    def refresh(self, often: bool = False) -> None:
        """The weights are the model's own: always fresh."""

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int]) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places; returns the state from which each one's first
        new token is chosen."""
        tokens, lengths, place = (to_device(x, self.device) for x in (tokens, lengths, torch.tensor(places)))
        with self.adapted_network() as network:
            states = self.memory.read(network, tokens, place)
        return states[torch.arange(len(places), device=self.device), lengths - 1]

    def seat(self, slot: Tensor, prompt: Tensor) -> None:
        """Rows begin in these slots, after the prompts in these places."""
        self.memory.seat(slot, prompt)

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor,
             longest: int | None = None) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] from which the
        next one is chosen. longest: tokens of the longest row, prompt included, where that is known."""
        with self.adapted_network() as network:
            return self.memory.step(network, token, at, slot, prompt, prompt_length, longest)

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        with self.adapted_network() as network:
            logits = network.read(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def adapted_network(self):
        """The network, with the model's adapter active if it has one."""
        adapted = getattr(self.model, "body", None) is not None
        return self.model.active() if adapted else nullcontext(self.model)

    def rehearse(self) -> None:
        """A step for no one, of which all work is queued and none waited for: a graph can hold no waiting."""
        none = torch.zeros(2, dtype=torch.int64, device=self.device)
        row = (none, none, none + self.rows, none + self.prompts, none + 1)
        self.logits(self.step(*row))  # what is made once is made here
        try:
            with NoSync():
                self.logits(self.step(*row))
        except RuntimeError as error:
            self.uncaptured(error)

    def uncaptured(self, error: RuntimeError) -> None:
        """Steps run without a graph, which is said once."""
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        self.graphs, kind = False, self.model.config.model_type
        if kind not in TOLD:
            TOLD.add(kind)
            print(f"postgrad: a step of {kind} cannot be captured as a CUDA graph and is launched kernel by "
                  f"kernel, slower ({str(error).splitlines()[0]:.200}).", file=sys.stderr)


class NoSync(TorchDispatchMode):
    """Raises where this thread would wait for what a GPU computes: to read a number, to learn a size, to copy
    to the host or from it."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "_unique",
             "bincount")

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name, kwargs = operation.__name__.split(".")[0], kwargs or {}
        flat = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])
                if isinstance(x, Tensor)]
        moved = kwargs.get("device") if name == "_to_copy" else flat[-1].device if name == "copy_" else None
        crosses = moved is not None and torch.device(moved).type != flat[0].device.type
        chosen = (name in ("index", "index_put", "index_put_")
                  and any(x is not None and x.dtype == torch.bool for x in args[1]))
        if name.startswith(self.READS) or chosen or crosses:
            raise RuntimeError(f"{operation} waits for the GPU")
        return operation(*args, **kwargs)
