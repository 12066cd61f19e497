"""The Llama family of decoders, for training and sampling alike,
in Hugging Face's weight names and layout.

RMS norm, rotary positions (half-split), grouped-query attention, SwiGLU; and what Mistral, Qwen and OLMo add:
biases, norms of queries and keys, norms after instead of before, sliding windows, scaled rotary positions.
families.py says which and reads their config.json; the modules of a layer are modules.py. Left out on
purpose: dropout, attention maps, loss functions (objectives.py), a generate method (sampler/).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import chosen_logp, product
from postgrad.maths.packing import Packed, last_of, pack, take_rows
from postgrad.models.choices import Choices
from postgrad.models.cuda_graphs import PassGraphs
from postgrad.models.engine import Engine, Merged
from postgrad.models.families import Config, check_positions
from postgrad.models.kernels import kernels_for, softmax_for
from postgrad.models.layer import layer_spec
from postgrad.models.modules import DecoderLayer, Linear, NormModule, layer_functions
from postgrad.models.recompute import run_checkpointed


class DecoderBody(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        # Zero until `start` or a file fills it: nn.Embedding's own draw takes seconds the first time it
        # meets the meta device.
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(c.vocab_size, c.hidden_size),
                                                         freeze=False)
        self.layers = nn.ModuleList(DecoderLayer(c, i) for i in range(c.num_hidden_layers))
        self.norm = NormModule(c.hidden_size, c.rms_norm_eps)


def rotary_frequencies(c: Config) -> Tensor:  # -> [head_dim / 2]
    """theta^(-2i / head_dim), then scaled for texts longer than those the model was first trained on.

    linear: divided by the factor. dynamic: as they are, since it changes them past max_position_embeddings
    alone. llama3 (Llama 3.1): waves longer than original / low are divided by the factor, those shorter than
    original / high stay, and those in between are mixed.
    """
    plain = 1.0 / c.rope_theta ** (torch.arange(0, c.head_dim, 2, dtype=torch.int64).float() / c.head_dim)
    scaling = dict(c.architecture.scaling)
    if scaling.get("rope_type", "dynamic") == "dynamic":
        return plain
    if scaling["rope_type"] == "linear":
        return plain / scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # in the original length
    kept = ((waves - low) / (high - low)).clamp(0, 1)
    return plain * (kept + (1 - kept) / scaling["factor"])


class Decoder(nn.Module):
    """A causal language model.

    `states` is the whole network below the head; `logp` is what training asks for.

    precision: the type in which matrices are multiplied, where that is not the weights'. The softmax of
    `logp` is in float32 at least, whatever the weights are in.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = DecoderBody(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.precision: torch.dtype | None = None
        self.compiled = False  # through torch.compile and, in training, CUDA graphs
        self.recompute = False  # in a backward pass, of each layer all but its input
        self._angles: tuple[Tensor, Tensor] | None = None
        self._replays: dict[bool, PassGraphs] = {}  # of passes that train, and that only read
        self.copy: Any = None  # of a decoder that is divided among ranks: a whole one, to sample from

    @property
    def head(self) -> Tensor:  # [V, D]
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def start(self, generator: torch.Generator) -> Decoder:
        """Fresh weights: normal, 0.02; the projections that write into the residual stream are
        scaled down by depth."""
        outputs = tuple(f"{half.output.name}.weight" for half in layer_spec(self.config, 0).halves)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(outputs)
                std = 0.02 / (2 * self.config.num_hidden_layers) ** 0.5 if deep else 0.02
                p.data.copy_(torch.empty(p.shape).normal_(0.0, std, generator=generator))
            elif name.endswith("bias"):
                p.data.zero_()
        return self

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the first positions, [>= positions, head_dim / 2]: kept,
        and made anew when more are asked for."""
        check_positions(positions, self.config.max_position_embeddings)
        device, dtype = self.head.device, self.head.dtype
        made = None if self._angles is None else self._angles[0]
        if made is None or len(made) < positions or (made.device, made.dtype) != (device, dtype):
            many = min(max(1024, 2 * positions), self.config.max_position_embeddings)
            table = torch.outer(torch.arange(many).float(), rotary_frequencies(self.config)).to(device)
            self._angles, self._replays = (table.cos().to(dtype), table.sin().to(dtype)), {}
        return self._angles

    def states(self, tokens: Tensor, packed: Packed,
               keep: Callable[[int, Tensor, Tensor], None] | None = None) -> Tensor:
        """The final hidden state [N, D] of each token of the packed rows [B, T]; keep is shown
        each layer's k and v."""
        self.angles(tokens.shape[1])
        trained = torch.is_grad_enabled()
        compiled = self.joins and keep is None
        if compiled and (self.head.requires_grad or not trained):
            if trained not in self._replays:
                self._replays[trained] = PassGraphs(self, trained)
            if (states := self._replays[trained](tokens, packed)) is not None:
                return states
        laid = (self.ops.block_layout(packed, self.config.head_dim) if compiled
                else self.ops.attention_layout(packed.spans, self.head))
        return self.run(tokens.flatten()[packed.cells], packed.positions, laid, keep)

    def run(self, tokens: Tensor, positions: Tensor, laid,
            keep: Callable | None = None) -> Tensor:  # [N] -> [N, D]
        """Tokens at their positions, in sequences as the kernels' attention takes them,
        through all layers."""
        (cos, sin), ops = (table[positions] for table in self._angles), self.ops
        made = layer_functions(self.joins)
        x = self.model.embed_tokens(tokens)
        for i, layer in enumerate(self.model.layers):
            x = run_checkpointed(self, layer, x, cos, sin, laid, ops, made, keep and partial(keep, i))
        return self.model.norm(x, ops)

    @property
    def joins(self) -> bool:
        """Whether its layers are compiled, with matrices that read the same as one; not beside an adapter."""
        return self.compiled and not hasattr(self, "active_adapter")

    @property
    def ops(self) -> ModuleType:
        return kernels_for(self.head.device, self.head.dtype, self.precision)

    def engine(self, **sizes) -> Engine:
        return self.copy.engine(**sizes) if self.copy else self.engine_for(self, **sizes)

    engine_for = staticmethod(Engine)  # also for an adapter on this

    def merged(self) -> Merged:
        """The weights of a plain decoder that says the same: its own."""
        return Merged(self)

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T, D]
        """The final hidden state of each token; rows that are not packed yet are taken at
        their full width."""
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return take_rows(self.states(tokens, packed), packed.home)

    def logits(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T, V]
        return F.linear(self.hidden(tokens), self.head)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-probability of each masked token given those before it, and the entropy of the choice;
        zero elsewhere."""
        made = self.choices(tokens, mask, packed)
        columns = chosen_logp(made.states, self.head, tokens.flatten()[made.cells], temperature,
                              softmax=softmax_for(self.head))
        blank = torch.zeros(tokens.numel(), dtype=columns[0].dtype, device=tokens.device)
        logp, entropy = (blank.scatter(0, made.cells, x).view(tokens.shape) for x in columns)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """What each masked token was chosen from."""
        if packed is None:
            packed = pack(last_of(mask) + 1, tokens, mask).to(tokens.device)
        states = take_rows(self.states(tokens, packed), packed.before)
        return Choices(states=states, read=lambda part: product(part, self.head.T), cells=packed.chosen)
