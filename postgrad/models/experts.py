"""Mixtures of experts (Qwen3-MoE): a router sends each token to the k likeliest of E experts, each a gated
MLP, and adds what they give by its probabilities.

    p = softmax(x router^T);  y = sum over the k chosen e of p_e / (sum of the chosen p) down_e(gated_e(x))

Routing replay (Ma et al. 2025, arXiv:2510.11370): two nearly equal probabilities may come out in another
order where the same sum is taken in another order, so that sampler and trainer send a token to other experts.
The sampler records its choices (`Rollout.routes`), and a training pass takes them (`replaying`); the
probabilities, and so the router's gradient, are the trainer's own. Left out on purpose: a balancing loss,
experts over several machines, kernels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.packing import Packed
from postgrad.models.families import Config
from postgrad.models.kernels import plain
from postgrad.models.layer import LAYERS, LayerSpec, SublayerSpec, layer_specs

NO_SHARDS = "shard=true divides matrices by their rows, and experts are not divided so: leave shard out."


def route(x: Tensor, router: Tensor, spec: SublayerSpec,
          replay: Tensor | None = None) -> tuple[Tensor, Tensor]:  # [N, D], [E, D], [N, K] -> [N, K] twice
    """The experts of each token, and their shares; replay: the numbers of the experts plus 1, or 0 where the
    model chooses itself."""
    p = F.linear(x, router.to(x.dtype)).softmax(-1, dtype=torch.promote_types(x.dtype, torch.float32))
    chosen = p.topk(spec.active, dim=-1).indices
    if replay is not None:
        chosen = torch.where(replay == 0, chosen, replay.to(chosen) - 1)
    share = p.gather(-1, chosen)
    return chosen, (share / share.sum(-1, keepdim=True) if spec.renormalised else share).to(x.dtype)


def mix(x: Tensor, chosen: Tensor, share: Tensor, gate_up: Tensor, down: Tensor,
        activation: str) -> Tensor:  # [N, D], [N, K] twice, [E, 2F, D], [E, D, F] -> [N, D]
    """The sum of what each token's experts give, expert by expert."""
    order = chosen.flatten().argsort(stable=True)
    token, many = order // chosen.shape[1], chosen.flatten().bincount(minlength=len(down)).tolist()
    parts = []
    for e, rows in enumerate(x[token].split(many)):
        if len(rows):
            a, b = F.linear(rows, gate_up[e].to(x.dtype)).chunk(2, dim=-1)
            parts.append(F.linear(plain.gated(activation, a, b), down[e].to(x.dtype)))
    return torch.zeros_like(x).index_add(0, token, torch.cat(parts) * share.flatten()[order, None])


class Router(nn.Module):
    """No linear layer: adapters and 4 bits leave it as it is."""

    def __init__(self, experts: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, width))


class ExpertWeights(nn.Module):
    def __init__(self, spec: SublayerSpec):
        super().__init__()
        for matrix in (*spec.inputs, spec.output):
            self.register_parameter(matrix.name.split(".")[-1], nn.Parameter(torch.zeros(matrix.shape)))


class Experts(nn.Module):
    """The experts in place of an MLP. chosen: of the last pass, [N, K]; replay: of the next one."""

    def __init__(self, spec: SublayerSpec, activation: str):
        super().__init__()
        self.spec, self.activation = spec, activation
        self.gate, self.experts = Router(spec.inputs[0].copies, spec.inputs[0].inputs), ExpertWeights(spec)
        self.chosen: Tensor | None = None
        self.replay: Tensor | None = None

    def forward(self, x: Tensor, ops: object = None) -> Tensor:
        self.chosen, share = route(x, self.gate.weight, self.spec, self.replay)
        weights = [getattr(self.experts, m.name.split(".")[-1]) for m in (self.spec.inputs[0],
                                                                          self.spec.output)]
        return mix(x, self.chosen, share, weights[0], weights[1], self.activation)


def expert_layers(model: nn.Module) -> list[Experts]:
    return [module for module in model.modules() if isinstance(module, Experts)]


def last_routes(layers: list[Experts]) -> Tensor:  # -> [N, L, K] int16
    """The experts of each token in the last pass, as `route` replays them."""
    return torch.stack([layer.chosen for layer in layers if layer.chosen is not None], 1).short() + 1


@contextmanager
def replaying(model: Any, routes: Tensor | None, packed: Packed | None) -> Iterator[None]:
    """Within the block a pass over packed rows takes the experts of routes [B, T, L, K]."""
    body = getattr(model, "body", model)
    layers = expert_layers(body) if routes is not None and isinstance(body, nn.Module) else []
    if layers and routes is not None and packed is not None:
        for layer, replay in zip(layers, routes.flatten(0, 1)[packed.cells].unbind(1), strict=True):
            layer.replay = replay
    try:
        yield
    finally:
        for layer in layers:
            layer.replay = None


# files, which have the matrices of each expert by itself

def expert_files(c: Config) -> dict[str, tuple[str, int, slice]]:
    """Name in a file -> the weight that it is a part of, the expert, and the rows of its matrix."""
    out: dict[str, tuple[str, int, slice]] = {}
    for i, layer in enumerate(layer_specs(c)):
        for whole, names, width in _stacks(layer):
            for e in range(layer.mlp.inputs[0].copies):
                for n, name in enumerate(names):
                    out[f"{LAYERS}.{i}.mlp.experts.{e}.{name}.weight"] = (
                        f"{LAYERS}.{i}.{whole}", e, slice(n * width, (n + 1) * width))
    return out


def _stacks(layer: LayerSpec) -> list[tuple[str, tuple[str, ...], int]]:
    if not layer.mlp.inputs[0].copies:
        return []
    return [(layer.mlp.inputs[0].name, ("gate_proj", "up_proj"), layer.mlp.widths[0]),
            (layer.mlp.output.name, ("down_proj",), layer.mlp.output.outputs)]


class ExpertFiles(Mapping[str, Tensor]):
    """A decoder's tensors as its files have them: each expert's matrices by themselves."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Config):
        self.tensors, self.parts = tensors, expert_files(config)
        wholes = {whole for whole, *_ in self.parts.values()}
        self.names = [*(name for name in tensors if name not in wholes), *self.parts]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.parts:
            return self.tensors[name]
        whole, expert, rows = self.parts[name]
        return self.tensors[whole][expert, rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def stack_experts(tensors: dict[str, Tensor], c: Config) -> dict[str, Tensor]:
    """The inverse of ExpertFiles: what was read of a folder, as the decoder holds it."""
    parts = expert_files(c)
    out = {name: x for name, x in tensors.items() if name not in parts}
    shapes = {f"{LAYERS}.{i}.{m.name}": m.shape for i, layer in enumerate(layer_specs(c))
              for m in (*layer.mlp.inputs, layer.mlp.output) if m.copies}
    for name, (whole, expert, rows) in parts.items():
        x = tensors[name]
        if whole not in out:
            out[whole] = x.new_empty(shapes[whole])
        out[whole][expert, rows] = x
        del tensors[name]
    return out
