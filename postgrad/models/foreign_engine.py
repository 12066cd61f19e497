"""One new token a step for many rows, on a network of `transformers`:
the methods of `Engine`, for correctness first.

Prompts and rows keep their keys and values in places of their own. A step lays each row's out without gaps
and flush right, as `generate` has them for a left-padded batch, so positions, masks and windows are what the
network knows. A network that keeps anything else than keys and values for each token (a state space, say)
reads every row from its beginning at each step.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext

import torch
from torch import Tensor

from postgrad.models.families import check_positions
from postgrad.models.kernels import kernels_for
from postgrad.packing import sent


class ForeignEngine:
    """rows slots of `new` tokens each, and as many prompts of up to `read` tokens.

    The last slot and prompt are for no one. positions: how many a prompt and a row have together, where that
    is not all that both have places for.
    """

    graphs = False   # a step cannot be captured: its shapes change
    appends = False  # a step has one token of a slot

    @torch.no_grad()
    def __init__(self, model, *, rows: int, prompts: int, read: int, new: int, positions: int | None = None):
        self.model, self.read, self.new, self.rows, self.prompts = model, read, new, rows, prompts
        check_positions(positions or read + new - 1, model.config.max_position_embeddings)
        self.device, self.dtype = model.head.device, model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        whole = {"dtype": torch.int64, "device": self.device}
        self.asked = torch.zeros(prompts + 1, read, **whole)
        self.written = torch.zeros(rows + 1, new, **whole)
        self.store = self.new_store()

    def refresh(self) -> None:
        """The weights are the model's own: always fresh."""

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int]) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places; returns the state from which each one's first
        new token is chosen."""
        tokens, lengths, place = (sent(x, self.device) for x in (tokens, lengths, torch.tensor(places)))
        self.asked[place, : tokens.shape[1]] = tokens
        with self.adapted_network() as network:
            cache = new_cache() if self.store else None
            states = network.run(tokens, **({"past_key_values": cache} if self.store else {}))
        for layer, (prompts, _) in enumerate(self.store or ()):
            for mine, fresh in zip(prompts, kept(cache, layer), strict=True):
                mine[place, :, : tokens.shape[1]] = fresh
        return states[torch.arange(len(places), device=self.device), lengths - 1]

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] from which the
        next one is chosen."""
        self.written[slot, at] = token
        # length: tokens before this one
        length, widest = prompt_length + at, [int(x.max()) for x in (prompt_length, at)]
        if not self.store:
            return self.again(length, slot, prompt, prompt_length)
        many = int(length.max())
        # [R, S] in its row; below 0: nothing
        place = torch.arange(many, device=self.device) - (many - length)[:, None]
        index = torch.where(place < prompt_length[:, None], place,
                            place - prompt_length[:, None] + widest[0]).clamp_min(0)
        cache = new_cache()
        for layer, (prompts, rows) in enumerate(self.store):
            cache.update(*(torch.cat([p[prompt, :, : widest[0]], r[slot, :, : widest[1]]], 2)
                           .gather(2, index[:, None, :, None].expand(-1, p.shape[1], -1, p.shape[3]))
                           for p, r in zip(prompts, rows, strict=True)), layer)
        mask = torch.cat([place >= 0, torch.ones_like(place[:, :1], dtype=torch.bool)], 1).long()
        # a row that ended and waits to be seen may stand beyond it
        last = self.model.config.max_position_embeddings - 1
        with self.adapted_network() as network:
            named = ({"position_ids": length.clamp_max(last)[:, None]} if "position_ids" in arguments(network)
                     else {})
            state = network.run(token[:, None], past_key_values=cache, attention_mask=mask, **named)
        for layer, (_, rows) in enumerate(self.store):
            for mine, fresh in zip(rows, kept(cache, layer), strict=True):
                mine[slot, :, at] = fresh[:, :, -1]
        return state[:, -1]

    def again(self, length: Tensor, slot: Tensor, prompt: Tensor,
              prompt_length: Tensor) -> Tensor:  # -> [R, D]
        """The same by reading the whole rows, padded on the right."""
        place = torch.arange(int(length.max()) + 1, device=self.device).expand(len(slot), -1)
        asked = self.asked[prompt].gather(1, place.clamp_max(self.read - 1))
        mine = self.written[slot].gather(1, (place - prompt_length[:, None]).clamp(0, self.new - 1))
        with self.adapted_network() as network:
            states = network.run(torch.where(place < prompt_length[:, None], asked, mine))
        return states[torch.arange(len(slot), device=self.device), length]

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        with self.adapted_network() as network:
            logits = network.read(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def adapted_network(self):
        """The network, with the model's adapter active if it has one."""
        adapted = getattr(self.model, "body", None) is not None
        return self.model.active() if adapted else nullcontext(self.model)

    def new_store(self) -> list | None:
        """For each layer, keys and values of the prompts and of the rows;
        None where the network keeps something else."""
        with self.adapted_network() as network:
            if not keeps_keys(network):
                return None
            cache = new_cache()
            network.run(torch.zeros(1, 2, dtype=torch.int64, device=self.device), past_key_values=cache)
        layers = [kept(cache, i) for i in range(len(cache.layers))]
        if any(x is None for pair in layers for x in pair):  # a layer that looks at another one's
            return None

        def empty(count: int, long: int, like: tuple) -> tuple:
            return tuple(x.new_zeros(count + 1, x.shape[1], long, x.shape[3]) for x in like)

        return [(empty(self.prompts, self.read, pair), empty(self.rows, self.new, pair)) for pair in layers]


def new_cache():
    from transformers import DynamicCache
    return DynamicCache()


def kept(cache, layer: int) -> tuple:
    """Keys and values of a layer, [B, heads, S, size] each."""
    return cache.layers[layer].keys, cache.layers[layer].values


def keeps_keys(network) -> bool:
    """Whether every layer keeps keys and values for each token, in a window at most."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
    layers = DynamicCache(config=network.network.config).layers
    return (bool(layers) and all(type(x) in (DynamicLayer, DynamicSlidingWindowLayer) for x in layers)
            and not network.network._is_stateful
            and {"past_key_values", "attention_mask"} <= arguments(network))


def arguments(network) -> set[str]:
    return set(inspect.signature(network.network.base_model.forward).parameters)
