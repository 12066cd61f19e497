"""Low-rank adapters: W x + s B A x with W frozen (Hu et al. 2021, arXiv:2106.09685).

s is alpha / rank, or alpha / sqrt(rank) (rsLoRA, Kalajdzievski 2023, arXiv:2312.03732). DoRA (Liu et al.
2024, arXiv:2402.09353) also learns the norm m of each row: m / ||W + s B A|| (W + s B A) x. Dropout is on
the x of B A x alone, in a training pass (pass_noise.py). Layers of modules_to_save are trained in full, as
copies that stand in for the body's own while the adapter is active.

Policy, critic and reward model are adapters on one body, at most one of them active; the reference is the
body alone. Not peft's classes: they share no body, and the sampler needs merged weights after each step.
peft.py reads and writes peft's files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from postgrad.maths.noise import seed_of
from postgrad.maths.packing import Packed
from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine, Merged
from postgrad.models.families import Config, HFSizes
from postgrad.models.hf_model import HFModel
from postgrad.models.nf4 import Linear4, LinearLayer, is_conv1d, linear_layers
from postgrad.models.pass_noise import dropout
from postgrad.models.protocols import Choices, choice_columns
from postgrad.models.recompute import adapter_active
from postgrad.models.weights import full_tensor
from postgrad.system.settings import SHARE, Settings, setting

if TYPE_CHECKING:
    from postgrad.models.hf_engine import HFEngine

Network = Decoder | HFModel
HEAD = "lm_head"


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
                         "true for ranks of 8 and less; slower: each layer's norm is recomputed")
    dropout: float = setting(0.0, "dropout on what enters the adapters, in training alone; drawn by the "
                             "seed, the step and the rows", "0.05 to 0.1 where few rows are seen "
                             "several times; with rollouts the ratio to the old policy gets noisy",
                             within=SHARE)
    modules_to_save: str | list[str] = setting("", "layers that are trained in full beside the adapters, by "
                                               "name: embed_tokens,lm_head (tied ones are one)",
                                               "where tokens are new to the model: their embeddings cannot "
                                               "be learned by the other layers")
    bits: int = setting(16,
                        "4: the matrices of the frozen model in NF4 (QLoRA; pip install 'postgrad[qlora]')",
                        "4 where the frozen model itself does not fit the GPU; slower, and slightly less "
                        "exact")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "targets", ",".join(self.names))
        object.__setattr__(self, "modules_to_save", ",".join(self.modules))
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
        for name in (name for name in ("rslora", "dora", "dropout", "modules_to_save")
                     if getattr(self, name) and not self.lora):
            raise ValueError(f"optim.adapter.{name} is {str(getattr(self, name)).lower()}, but lora is 0, so "
                             f"that all weights would be trained: set a rank, e.g. lora=16, or leave "
                             f"{name} out.")

    @property
    def names(self) -> tuple[str, ...]:
        return names_in(self.targets)

    @property
    def modules(self) -> tuple[str, ...]:
        return names_in(self.modules_to_save)


def names_in(listed: str | list[str]) -> tuple[str, ...]:
    names = listed.split(",") if isinstance(listed, str) else listed
    return tuple(name.strip() for name in names if name.strip())


class Adapter(nn.Module):
    """A and B for each linear layer of a body whose name is in targets. B starts at zero: no change at
    first. whole: the trained copies of modules_to_save, by the names of their parameters. head: the head gets
    one too; where it is tied to the embedding, that stays as it is."""

    def __init__(self, body: nn.Module, *, rank: int, generator: torch.Generator, alpha: float | None = None,
                 targets: Iterable[str] = ("all",), rslora: bool = False, dora: bool = False,
                 dropout: float = 0.0, modules_to_save: Iterable[str] = (), head: bool = False):
        super().__init__()
        if rank < 1:
            raise ValueError(f"LoRA rank is {rank}: it must be at least 1.")
        layers, targets = linear_layers(body), set(targets)
        if not layers:
            raise ValueError("the model has no linear layer that an adapter could be added to: leave lora "
                             "out.")
        known = {path.split(".")[-1]: None for path in layers}
        experts = expert_weights(body)
        if named := sorted(targets & {path.split(".")[-1] for path in experts} - {*known}):
            raise ValueError(f"{' and '.join(named)} are weights of experts, one tensor for all of them, and "
                             f"adapters are for linear layers: name some of {', '.join(known)}, or train all "
                             "weights with lora=0.")
        if missing := sorted(targets - {"all", *known}):
            raise ValueError(f"no linear layer is named {' or '.join(missing)}: the model has "
                             f"{', '.join(known)}, and targets=all is all of them.")
        self.rank, self.alpha, self.rslora = rank, 2.0 * rank if alpha is None else alpha, rslora
        if "all" not in targets:
            layers = {path: layer for path, layer in layers.items() if path.split(".")[-1] in targets}
        elif experts:
            print(f"postgrad: the experts get no adapter and stay as they are ({experts[0]} and its like); "
                  "lora=0 trains them.", file=sys.stderr)
        self.dropout, self.seed = dropout, generator.initial_seed()
        self.whole, self.stand_ins = nn.ParameterDict(), dict[str, str]()  # a body's parameter -> its copy
        self.copy_modules(body, set(modules_to_save))
        self.A, self.B, self.norms = nn.ParameterDict(), nn.ParameterDict(), nn.ParameterDict()
        self.transposed = {path for path, layer in layers.items() if is_conv1d(layer)}
        for path, layer in layers.items():
            if f"{path}.weight" in self.stand_ins:
                continue
            w = layer.weight
            outputs, inputs = ((layer.out_features, layer.in_features) if path not in self.transposed
                               else reversed(w.shape))
            a = torch.randn(rank, inputs, generator=generator) / inputs**0.5
            self.A[parameter_key(path)] = nn.Parameter(a.to(w.device, w.dtype))
            self.B[parameter_key(path)] = nn.Parameter(torch.zeros(outputs, rank, device=w.device,
                                                         dtype=w.dtype))
            if dora:
                self.norms[parameter_key(path)] = nn.Parameter(full_tensor(layer_matrix(layer)).norm(dim=1))
        if head:
            self.add_head(body, generator)

    def add_head(self, body: nn.Module, generator: torch.Generator) -> None:
        if not isinstance(body, Decoder) or f"{HEAD}.weight" in self.stand_ins:
            raise ValueError("an adapter of the head is for decoders of our own families whose head is not "
                             "trained in full: leave it out.")
        if body.cap is not None or body.scales[1] != 1:
            raise ValueError(f"the logits of {body.config.architecture.model_type} are scaled or "
                             "capped, which an adapter of the head knows nothing of: leave it out.")
        outputs, inputs = body.head.shape
        a = torch.randn(self.rank, inputs, generator=generator) / inputs**0.5
        self.A[HEAD] = nn.Parameter(a.to(body.head.device, body.head.dtype))
        self.B[HEAD] = nn.Parameter(torch.zeros(outputs, self.rank, device=body.head.device,
                                                dtype=body.head.dtype))

    @property
    def has_head(self) -> bool:
        return HEAD in self.A

    def add_to_logits(self, logits: Tensor, states: Tensor) -> Tensor:
        """Adds the head's change, where it has one, to the logits of these states."""
        if not self.has_head:
            return logits
        change: Tensor = states @ self.A[HEAD].T.to(states.dtype) @ self.B[HEAD].T.to(states.dtype)
        return logits + (change * self.scale).to(logits.dtype)

    def copy_modules(self, body: nn.Module, modules: set[str]) -> None:
        """Copies the parameters of these modules; one in several places (tied embeddings) once."""
        named = dict(body.named_parameters(remove_duplicate=False))
        modules = {"embed_tokens" if name == "lm_head" and tied_head(body) and "lm_head.weight" not in named
                   else name for name in modules}
        home = {name: name.split(".")[-2] for name in named if "." in name}
        if missing := sorted(modules - {*home.values()}):
            raise ValueError(f"optim.adapter.modules_to_save names {' and '.join(missing)}: the model's "
                             f"modules with weights are {', '.join(sorted({*home.values()}))}.")
        for first in (name for name in named if home.get(name) in modules and name not in self.stand_ins):
            self.whole[parameter_key(first)] = nn.Parameter(named[first].detach().clone())
            self.stand_ins |= {name: first for name, p in named.items() if p is named[first]}

    def stand_in(self, name: str) -> nn.Parameter | None:
        """The trained copy of a body's parameter; None where the body's own is used."""
        first = self.stand_ins.get(name)
        copy: nn.Parameter | None = None if first is None else self.whole[parameter_key(first)]
        return copy

    @property
    def scale(self) -> float:
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    def update(self, path: str, weight: Tensor) -> Tensor | None:
        """The change of a layer's weight; None for a layer without an adapter."""
        key = parameter_key(path)
        if key not in self.A:
            return None
        change: Tensor = self.scale * (self.B[key] @ self.A[key])
        if key in self.norms:
            before = full_tensor(weight).T if path in self.transposed else full_tensor(weight)
            change = self.norm_ratio(key, before + change)[:, None] * (before + change) - before
        return change.T if path in self.transposed else change

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


def layer_matrix(layer: LinearLayer) -> Tensor:  # [out, in]
    weight = layer.weight.detach()
    return weight.T if is_conv1d(layer) else weight


def expert_weights(body: nn.Module) -> list[str]:
    """Parameters that hold a matrix for each expert."""
    return [name for name, p in body.named_parameters() if p.dim() == 3 and ".experts." in name]


def tied_head(body: nn.Module) -> bool:
    """Whether a decoder's head is its embedding."""
    return isinstance(body, Decoder) and body.config.tie_word_embeddings


class Adapted(nn.Module):
    """An adapter, or none, on a shared body. Its state is the adapter's alone."""

    def __init__(self, body: Network, adapter: Adapter | None):
        super().__init__()
        # in a tuple: not a submodule
        self.adapter, self._shared = adapter, (body.requires_grad_(False),)
        self.copy: Any = None  # as in Decoder
        if not hasattr(body, "active_adapter"):
            body.active_adapter = body.pass_noise = None
            for path, layer in body.named_modules():
                if isinstance(layer, nn.Linear | Linear4) or is_conv1d(layer):
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
            logits = self.body.logits(tokens)
        if self.adapter is None or not self.adapter.has_head:
            return logits
        return self.adapter.add_to_logits(logits, self.hidden(tokens))

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        if self.adapter is not None and (self.adapter.whole or self.adapter.has_head):
            logp, entropy = choice_columns(self.choices(tokens, mask, packed), tokens, temperature)
            return logp, entropy
        with adapter_active(self.body, self.adapter):
            return self.body.logp(tokens, mask, temperature, packed)

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        with adapter_active(self.body, self.adapter):
            made = self.body.choices(tokens, mask, packed)

        def read(states: Tensor) -> Tensor:  # the head may be the adapter's
            with adapter_active(self.body, self.adapter):
                logits = made.read(states)
            return logits if self.adapter is None else self.adapter.add_to_logits(logits, states)

        return replace(made, read=read)

    def merged(self) -> Merged:
        """The weights of a decoder without an adapter that computes the same."""
        return Merged(self.body, self.adapter)


def _added(body: Network, name: str) -> Callable[..., Tensor]:
    def hook(layer: LinearLayer, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        adapter = body.active_adapter
        if adapter is None or name not in adapter.A:
            return output
        x = dropout(inputs[0], adapter.dropout, body.pass_noise, adapter.seed, name)
        change: Tensor = x @ adapter.A[name].T.to(x.dtype) @ adapter.B[name].T.to(x.dtype)
        scale: float = adapter.scale
        if name not in adapter.norms:
            return output + change * scale
        with torch.no_grad():
            matrix = layer_matrix(layer)
            moved = matrix + scale * (adapter.B[name] @ adapter.A[name])
        ratio: Tensor = adapter.norm_ratio(name, moved).to(x.dtype)
        if x is inputs[0]:
            plain = output if layer.bias is None else output - layer.bias
        else:
            plain = x @ matrix.T.to(x.dtype)
        return output + (ratio - 1) * plain + ratio * scale * change
    return hook


def is_adapted(model: object) -> bool:
    """Whether a model, or the body of a scalar model, is an adapter."""
    return isinstance(model, Adapted) or isinstance(getattr(model, "body", None), Adapted)


def with_adapter(body: Network, settings: Adapters, generator: torch.Generator) -> Adapted:
    """A body with a new adapter."""
    return Adapted(body, Adapter(body, rank=settings.lora or 0, alpha=settings.alpha, targets=settings.names,
                                 rslora=settings.rslora, dora=settings.dora, dropout=settings.dropout,
                                 modules_to_save=settings.modules, generator=generator))


def adapter_generator(seed: int, role: str) -> torch.Generator:
    """What draws the weights of a new adapter: of the policy, the critic or a reward model."""
    return torch.Generator().manual_seed(seed_of(seed, "lora", role))
