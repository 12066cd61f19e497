"""Any other architecture, through `transformers` (postgrad[hf]):
a network of its own with the interface of `Decoder`.

Slower than the decoder, and for everything that it does not read: in training rows are padded again, and a
prompt is computed once for each of its samples. The same Llama weights (tiny-chat, one CPU core) sample about
2.5 times slower through here and train about 4 times slower (bench/foreign.py ratio). What stands between
the last state and the logits (a bias, a cap, a scale) is the network's own code. Only safetensors are read,
and only code that comes with `transformers` is run. Left out on purpose: dropout, which stays off;
torch.compile; quantised weights.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from postgrad.maths.packing import Packed, last_masked, pack, take_rows
from postgrad.models.choices import Choices, choice_columns
from postgrad.models.families import FAMILIES, check_positions, largest_allowed
from postgrad.models.hf_engine import HFEngine

ENDLESS = 1 << 20  # positions of a network whose config knows no end of them
INSIDE = "network."  # where an HFModel has the network, in its names of weights
TOLD: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class HFSizes:
    """What the rest of the code asks of a config."""

    model_type: str
    vocab_size: int
    hidden_size: int
    max_position_embeddings: int


class BodyOutput(tuple):
    """A body's output that has the last states and nothing else."""

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        return None


class FixedBody(nn.Module):
    """Stands where a network's body stood, and says what it is given: so the network's own code goes from
    states to logits."""

    def forward(self, *args, **options) -> BodyOutput:
        return BodyOutput((self.states,))

    @property
    def decoder(self):  # where some classes look for it
        return self


class HFModel(nn.Module):
    """A causal language model of `transformers`.

    network: what AutoModelForCausalLM would make of its folder.
    """

    active_adapter: Any  # as in Decoder

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, sizes = network.eval(), network.config.get_text_config()
        ends = (getattr(sizes, name, None)
                for name in ("max_position_embeddings", "max_seq_len", "seq_length"))
        self.config = HFSizes(
            model_type=network.config.model_type, vocab_size=len(self.head), hidden_size=sizes.hidden_size,
            max_position_embeddings=next((n for n in ends if isinstance(n, int) and n > 0), ENDLESS))
        self.precision: torch.dtype | None = None
        self.compiled = False  # asked of every model; this one never is
        self.recompute = False  # as a decoder has it
        reader = copy.copy(network)  # its own table of modules, which are the same but for one
        reader._modules = network._modules | {network.base_model_prefix: FixedBody()}
        self._reader = (reader,)  # in a tuple: not a part of this module

    def _apply(self, fn, recurse: bool = True) -> HFModel:
        """Where .to() goes through. Buffers (rotary frequencies, say) move and keep their precision, as when
        `transformers` itself opens a folder in bfloat16."""
        kept = [(module, name, x) for module in self.network.modules() for name, x in module._buffers.items()
                if x is not None]
        super()._apply(fn, recurse)
        for module, name, x in kept:
            module._buffers[name] = x.to(module._buffers[name].device)
        return self

    @property
    def head(self) -> Tensor:  # [V, D]
        return self.network.get_output_embeddings().weight

    def run(self, tokens: Tensor, **inputs) -> Tensor:  # [B, T] -> [B, T, D]
        """The network below its head.

        inputs: a cache of earlier tokens, with mask and positions; nothing for whole rows.
        """
        inputs = {"use_cache": "past_key_values" in inputs, **inputs}
        return self.network.base_model(input_ids=tokens, **inputs).last_hidden_state

    def read(self, states: Tensor) -> Tensor:  # [N, D] -> [N, V]
        """The network from its last states to the logits."""
        (reader,) = self._reader
        reader._modules[self.network.base_model_prefix].states = states[None]
        return reader(input_ids=torch.zeros(1, len(states), dtype=torch.int64, device=states.device),
                      use_cache=False).logits[0]

    def states(self, tokens: Tensor, packed: Packed) -> Tensor:  # [B, T] -> [N, D]
        """The final hidden state of each token of the packed rows.

        Padding stands on the right, where no token looks.
        """
        check_positions(tokens.shape[1], self.config.max_position_embeddings)
        with self._cast():
            return take_rows(self.run(tokens).flatten(0, 1), packed.cells)

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T, D]
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return take_rows(self.states(tokens, packed), packed.home)

    def logits(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T, V]
        with self._cast():
            return self.read(self.hidden(tokens).flatten(0, 1)).view(*tokens.shape, -1)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-probability of each masked token given those before it, and the entropy of the choice;
        zero elsewhere."""
        logp, entropy = choice_columns(self.choices(tokens, mask, packed), tokens, temperature)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """What each masked token was chosen from."""
        if packed is None:
            packed = pack(last_masked(mask) + 1, tokens, mask).to(tokens.device)
        states = take_rows(self.states(tokens, packed), packed.before)
        return Choices(states=states, read=self._logits, cells=packed.chosen)

    def _logits(self, states: Tensor) -> Tensor:  # [N, D] -> [N, V]
        with self._cast():
            return self.read(states)

    def _cast(self):
        return torch.autocast(self.head.device.type, self.precision) if self.precision else nullcontext()

    def engine(self, **sizes) -> HFEngine:
        return self.engine_for(self, **sizes)

    engine_for = staticmethod(HFEngine)

    def merged(self) -> dict[str, Tensor]:
        return self.state_dict()

    def save(self, tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype | None, largest: int,
             facts: dict) -> None:
        """tensors: as `merged` names them, and what stands beside them. facts: likewise, in config.json."""
        plain = {name.removeprefix(INSIDE): x.detach() for name, x in tensors.items()}
        if dtype:
            once = {x.data_ptr(): x.to(dtype) for x in plain.values()}  # a tied weight stays one
            plain = {name: once[x.data_ptr()] for name, x in plain.items()}
        with quiet_transformers():
            self.network.save_pretrained(folder, state_dict=plain, max_shard_size=largest)
        path = folder / "config.json"
        kept = {"dtype": str(dtype or self.head.dtype).removeprefix("torch.")}
        path.write_text(json.dumps(json.loads(path.read_text()) | kept | facts, indent=1))

    def hf_class(self, purpose: str) -> str:
        """The class of `transformers` for a purpose; the network's own where there is none."""
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as classes,
        )
        assert purpose == "SequenceClassification"
        found = classes.get(self.config.model_type, type(self.network).__name__)
        return found if isinstance(found, str) else found[0]


@contextmanager
def quiet_transformers():
    """`transformers` without its bars and remarks: what matters of them is raised here."""
    from transformers.utils import logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_hf_model(folder: Path, raw: dict, device: str, dtype: torch.dtype | None,
                 beside: tuple[str, ...] = ()) -> HFModel:
    """The network that config.json (raw) describes, with its weights.

    beside: tensors in the files that are not its own.
    """
    kind = raw.get("model_type")
    check_hf_config(folder, raw)
    network_class, config = hf_classes(folder, kind)
    try:
        with quiet_transformers():
            network, seen = network_class.from_pretrained(
                folder, config=config, dtype=dtype or "auto", use_safetensors=True, local_files_only=True,
                output_loading_info=True,
                attn_implementation="sdpa" if network_class._supports_sdpa else "eager")
    except Exception as error:  # whatever its code makes of a file that it does not expect
        raise ValueError(f"{folder}: transformers cannot open it as {network_class.__name__} "
                         f"({_line(error)}).") from error
    missing, unknown = sorted(seen["missing_keys"]), sorted(set(seen["unexpected_keys"]) - set(beside))
    if missing or unknown:
        raise ValueError(f"{folder} does not fit config.json: missing {missing[:3]}, unknown {unknown[:3]}.")
    if kind not in TOLD:
        TOLD.add(kind)
        print(f"postgrad: {kind} runs through transformers, slower than {', '.join(FAMILIES)}, which have "
              "a decoder here.",
              file=sys.stderr)
    return check_head_split(HFModel(network.to(device)), folder)


def check_hf_config(folder: Path, raw: dict) -> None:
    """What no network may ask for: quantised weights, and kernels,
    which would be code from somewhere else."""
    stack = [raw]
    while stack:
        for key, value in stack.pop().items():
            if key == "quantization_config" and value:
                raise ValueError(f"{folder}/config.json: quantization_config is {value!r}; only "
                                 "None is supported.")
            if key.endswith("_implementation") and value not in (None, "eager", "sdpa"):
                raise ValueError(f"{folder}/config.json: {key} is {value!r}; only eager and sdpa "
                                 "are supported.")
            if isinstance(value, int) and value > largest_allowed(key):
                raise ValueError(f"{folder}/config.json: {key} is {value!r:.60}; no network has so many.")
            stack += [value] if isinstance(value, dict) else []


def hf_classes(folder: Path, kind: str) -> tuple[type, object]:
    """The class of a model_type and its config.

    By name from what comes with `transformers`: a folder's own code never runs.
    """
    ours = ", ".join(FAMILIES)
    try:
        from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
    except ImportError as error:
        raise ValueError(f"{folder}/config.json: model_type is {kind!r}, which runs through transformers: "
                         f"pip install 'postgrad[hf]', or name a model of {ours}, "
                         "which need no more.") from error
    known = isinstance(kind, str) and kind in CONFIG_MAPPING
    if not known or CONFIG_MAPPING[kind] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(f"{folder}/config.json: model_type is {kind!r}, which is no language model that "
                         f"transformers has code for; {ours} need none.")
    try:
        with quiet_transformers():
            config = CONFIG_MAPPING[kind].from_pretrained(folder)
    except Exception as error:  # likewise
        raise ValueError(f"{folder}/config.json cannot be read as {kind} ({_line(error)}).") from error
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found, config


@torch.no_grad()
def check_head_split(model: HFModel, folder: Path) -> HFModel:
    """States and head, taken apart here, say what the whole network says: asked once, of a few tokens."""
    tokens = torch.arange(6, device=model.head.device).remainder(len(model.head))[None]
    try:
        whole = model.network(input_ids=tokens, use_cache=False).logits
        apart = model.logits(tokens)
    except Exception as error:  # likewise
        raise ValueError(f"{folder}: {type(model.network).__name__} of transformers does not run as a plain "
                         f"language model ({_line(error)}).") from error
    if whole.shape != apart.shape or (whole - apart).abs().max() > 1e-3 * whole.abs().max():
        raise ValueError(f"{folder}: the head of {type(model.network).__name__} is not a function of the "
                         "last states alone, which training needs.")
    return model.requires_grad_(True)


def _line(error: Exception) -> str:
    """What an error says, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200].rstrip(".")
