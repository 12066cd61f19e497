"""Low-rank adapters: W x + s B A x with W frozen (Hu et al. 2021, arXiv:2106.09685).

s is alpha / rank, or alpha / sqrt(rank) (rsLoRA, Kalajdzievski 2023, arXiv:2312.03732). DoRA (Liu et al.
2024, arXiv:2402.09353) also learns the norm m of each row: m / ||W + s B A|| (W + s B A) x.

Policy, critic and reward model are adapters on one body, at most one of them active; the reference is the
body alone. Not peft's classes: they share no body, and the sampler needs merged weights after each step.
peft.py reads and writes peft's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from postgrad.maths.packing import Packed
from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine, Merged
from postgrad.models.families import Config, HFSizes
from postgrad.models.hf_model import HFModel
from postgrad.models.nf4 import Linear4, linear_layers
from postgrad.models.protocols import Choices
from postgrad.models.recompute import adapter_active
from postgrad.models.weights import full_tensor
from postgrad.system.settings import Settings, setting

if TYPE_CHECKING:
    from postgrad.models.hf_engine import HFEngine

Network = Decoder | HFModel


@dataclass(frozen=True, kw_only=True)
class Adapters(Settings):
    """Low-rank adapters: thin matrices are trained, and the model under them is frozen."""

    lora: int | None = setting(None, "the rank of low-rank adapters; 0 trains all weights; none: by the "
                               "model's size", "16 or 32 where all weights do not fit the GPU (`postgrad "
                               "memory`); give it about ten times the rate")
    alpha: float | None = setting(None, "what they add is scaled by alpha / rank; none: twice the rank",
                                  "to match an adapter made elsewhere; else change the rate instead")
    targets: str | list[str] = setting("all", "the layers that get one, by name: q_proj,v_proj; all: every "
                                       "linear layer of the body", "fewer layers save memory and learn less; "
                                       "the names are those of the model's own layers")
    rslora: bool = setting(False, "rsLoRA: the scale is alpha / sqrt(rank) in place of alpha / rank",
                           "true for ranks of 64 and more, whose steps are too small otherwise")
    dora: bool = setting(False, "DoRA: the norm of each row of a weight is learned too",
                         "true for ranks of 8 and less; slower, for each layer's norm is computed anew")
    bits: int = setting(16,
                        "4: the matrices of the frozen model in NF4 (QLoRA; pip install 'postgrad[qlora]')",
                        "4 where the frozen model itself does not fit the GPU; slower, and slightly less "
                        "exact")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "targets", ",".join(self.names))
        if self.lora is not None and self.lora < 0:
            raise ValueError(f"optim.adapter.lora is {self.lora}: it is the rank of the adapters, 1 or more, "
                             "or 0 for none.")
        if self.alpha is not None and not 0 < self.alpha < float("inf"):
            raise ValueError(f"optim.adapter.alpha is {self.alpha}: it must be a positive number, or none "
                             "for twice the rank.")
        if self.bits not in (16, 4):
            raise ValueError(f"optim.adapter.bits is {self.bits}: a frozen model is held in 4 bits, or in "
                             "16 (as it is).")
        if not self.names:
            raise ValueError("optim.adapter.targets names no layer: write all, or names such as "
                             "q_proj,v_proj.")
        if not self.lora and (self.bits, self.alpha, self.targets) != (16, None, "all"):
            raise ValueError(f"optim.adapter has bits {self.bits}, alpha {self.alpha} and targets "
                             f"{self.targets!r}, but lora is 0, so that all weights would be trained: set a "
                             "rank, e.g. lora=16, or leave them out.")
        for name in (name for name in ("rslora", "dora") if getattr(self, name) and not self.lora):
            raise ValueError(f"optim.adapter.{name} is true, but lora is 0, so that all weights would be "
                             f"trained: set a rank, e.g. lora=16, or leave {name} out.")

    @property
    def names(self) -> tuple[str, ...]:
        names = self.targets.split(",") if isinstance(self.targets, str) else self.targets
        return tuple(name.strip() for name in names if name.strip())


class Adapter(nn.Module):
    """A and B for each linear layer of a body whose name is in targets. B starts at zero: no change at
    first."""

    def __init__(self, body: nn.Module, *, rank: int, generator: torch.Generator, alpha: float | None = None,
                 targets: Iterable[str] = ("all",), rslora: bool = False, dora: bool = False):
        super().__init__()
        if rank < 1:
            raise ValueError(f"LoRA rank is {rank}: it must be at least 1.")
        layers, targets = linear_layers(body), set(targets)
        if not layers:
            raise ValueError("the model has no linear layer that an adapter could be added to (GPT-2's, say, "
                             "are Conv1D): leave lora out.")
        known = {path.split(".")[-1]: None for path in layers}
        if missing := sorted(targets - {"all", *known}):
            raise ValueError(f"no linear layer is named {' or '.join(missing)}: the model has "
                             f"{', '.join(known)}.")
        self.rank, self.alpha, self.rslora = rank, 2.0 * rank if alpha is None else alpha, rslora
        if "all" not in targets:
            layers = {path: layer for path, layer in layers.items() if path.split(".")[-1] in targets}
        self.A, self.B, self.norms = nn.ParameterDict(), nn.ParameterDict(), nn.ParameterDict()
        for path, layer in layers.items():
            w = layer.weight
            a = torch.randn(rank, layer.in_features, generator=generator) / layer.in_features**0.5
            self.A[parameter_key(path)] = nn.Parameter(a.to(w.device, w.dtype))
            self.B[parameter_key(path)] = nn.Parameter(torch.zeros(layer.out_features, rank, device=w.device,
                                                         dtype=w.dtype))
            if dora:
                self.norms[parameter_key(path)] = nn.Parameter(full_tensor(w.detach()).norm(dim=1))

    @property
    def scale(self) -> float:
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    def update(self, path: str, weight: Tensor) -> Tensor | None:
        """The change of a layer's weight; None for a layer without an adapter."""
        key = parameter_key(path)
        if key not in self.A:
            return None
        change: Tensor = self.scale * (self.B[key] @ self.A[key])
        if key not in self.norms:
            return change
        moved = full_tensor(weight) + change
        update: Tensor = self.norm_ratio(key, moved)[:, None] * moved - full_tensor(weight)
        return update

    def norm_ratio(self, key: str, moved: Tensor) -> Tensor:
        """DoRA's m / ||W + s B A|| of each row; the norm is a constant of the gradient, as in the paper's
        section 4.3."""
        ratio: Tensor = self.norms[key].to(moved.dtype) / moved.detach().norm(dim=1)
        return ratio

    @property
    def paths(self) -> list[str]:
        return [layer_path(name) for name in self.A]


def parameter_key(path: str) -> str:
    """A layer's path as a parameter name, without dots."""
    return path.replace(".", "/")


def layer_path(key: str) -> str:
    return key.replace("/", ".")


class Adapted(nn.Module):
    """An adapter, or none, on a shared body. Its state is the adapter's alone."""

    def __init__(self, body: Network, adapter: Adapter | None):
        super().__init__()
        # in a tuple: not a submodule
        self.adapter, self._shared = adapter, (body.requires_grad_(False),)
        self.copy: Any = None  # as in Decoder
        if not hasattr(body, "active_adapter"):
            body.active_adapter = None
            for path, layer in body.named_modules():
                if isinstance(layer, nn.Linear | Linear4):
                    layer.register_forward_hook(_added(body, parameter_key(path)))

    @property
    def body(self) -> Network:
        return self._shared[0]

    @property
    def config(self) -> Config | HFSizes:
        return self.body.config

    @property
    def head(self) -> Tensor:
        return self.body.head

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        assert isinstance(self.body, Decoder)
        return self.body.angles(positions)

    def engine(self, **sizes: Any) -> Engine | HFEngine:
        engine: Engine | HFEngine = (self.copy.engine(**sizes) if self.copy
                                     else self.body.engine_for(cast(Any, self), **sizes))
        return engine

    @contextmanager
    def active(self) -> Iterator[Any]:
        """Within the block this adapter is the body's active one."""
        with adapter_active(self.body, self.adapter):
            yield self.body

    def states(self, tokens: Tensor, packed: Packed, *keep: Any) -> Tensor:
        with self.active() as body:
            return cast(Tensor, body.states(tokens, packed, *keep))

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:
        with adapter_active(self.body, self.adapter):
            return self.body.hidden(tokens, packed)

    def logits(self, tokens: Tensor) -> Tensor:
        with adapter_active(self.body, self.adapter):
            return self.body.logits(tokens)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        with adapter_active(self.body, self.adapter):
            return self.body.logp(tokens, mask, temperature, packed)

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        with adapter_active(self.body, self.adapter):
            return self.body.choices(tokens, mask, packed)

    def merged(self) -> Merged:
        """The weights of a decoder without an adapter that computes the same."""
        return Merged(self.body, self.adapter)


def _added(body: Network, name: str) -> Callable[..., Tensor]:
    def hook(layer: nn.Linear | Linear4, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        adapter = body.active_adapter
        if adapter is None or name not in adapter.A:
            return output
        x = inputs[0]
        change: Tensor = x @ adapter.A[name].T.to(x.dtype) @ adapter.B[name].T.to(x.dtype)
        scale: float = adapter.scale
        if name not in adapter.norms:
            return output + change * scale
        with torch.no_grad():
            moved = layer.weight + scale * (adapter.B[name] @ adapter.A[name])
        ratio: Tensor = adapter.norm_ratio(name, moved).to(x.dtype)
        plain = output if layer.bias is None else output - layer.bias
        return output + (ratio - 1) * plain + ratio * scale * change
    return hook


def is_adapted(model: object) -> bool:
    """Whether a model, or the body of a scalar model, is an adapter."""
    return isinstance(model, Adapted) or isinstance(getattr(model, "body", None), Adapted)
