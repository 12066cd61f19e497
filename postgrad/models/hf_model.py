"""Any other architecture, through `transformers` (postgrad[hf]): its network with the interface of `Decoder`.

Slower than the decoder: in training rows are padded again, and a prompt is computed once for each of its
samples. The same Llama weights (tiny-chat, one CPU core) sample about 2.5 times slower and train about 4
times slower (bench/foreign.py ratio). Between the last state and the logits (a bias, a cap, a scale) runs the
network's own code. Only safetensors are read, and only code that comes with `transformers` runs. Left out on
purpose: dropout, which stays off; torch.compile; quantised weights.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from postgrad.maths.packing import Packed, last_masked, pack, take_rows
from postgrad.models.families import FAMILIES, HFSizes, check_positions, largest_allowed
from postgrad.models.pass_noise import PassNoise
from postgrad.models.protocols import Choices, choice_columns
from postgrad.system.files import error_text

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from postgrad.models.hf_engine import HFEngine, SampledModel

ENDLESS = 1 << 20  # positions of a network whose config has no limit
INSIDE = "network."  # prefix of the network's weights in an HFModel
REPORTED: set[str] = set()  # model types


class BodyOutput(tuple[Tensor, ...]):
    """The output of a body: the last states alone."""

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        return None


class FixedBody(nn.Module):
    """Replaces a network's body and returns given states, so that the network's own code computes their
    logits."""

    states: Tensor

    def forward(self, *args: object, **options: object) -> BodyOutput:
        return BodyOutput((self.states,))

    @property
    def decoder(self) -> FixedBody:  # where some classes look for it
        return self


class HFModel(nn.Module):
    """A causal language model of `transformers`, as AutoModelForCausalLM opens it."""

    active_adapter: Any  # as in Decoder
    pass_noise: PassNoise | None = None  # of a training pass (pass_noise.py)
    neftune = 0.0

    def __init__(self, network: PreTrainedModel):
        super().__init__()
        self.network, sizes = network.eval(), network.config.get_text_config()
        ends = (getattr(sizes, name, None)
                for name in ("max_position_embeddings", "max_seq_len", "seq_length"))
        self.config = HFSizes(
            model_type=network.config.model_type, vocab_size=len(self.head), hidden_size=sizes.hidden_size,
            max_position_embeddings=next((n for n in ends if isinstance(n, int) and n > 0), ENDLESS))
        self.precision: torch.dtype | None = None
        self.compiled = False  # set on every model; without effect here
        self.recompute = False  # as in Decoder
        reader, self._fixed = copy.copy(network), (FixedBody(),)  # shares all modules but the body
        reader._modules = network._modules | {network.base_model_prefix: self._fixed[0]}
        self._reader = (reader,)  # in a tuple: not a submodule

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> HFModel:
        """`to` comes through here. Buffers (rotary frequencies) move and keep their precision, as when
        `transformers` itself opens a folder in bfloat16."""
        before = [(module._buffers, name, x) for module in self.network.modules()
                  for name, x in module._buffers.items() if x is not None]
        nn.Module._apply(self, fn, recurse)
        for buffers, name, x in before:
            buffers[name] = x.to(buffers[name].device)
        return self

    @property
    def head(self) -> Tensor:  # [V, D]
        weight: Tensor = self.network.get_output_embeddings().weight
        return weight

    def run(self, tokens: Tensor, **inputs: object) -> Tensor:  # [B, T] -> [B, T, D]
        """The network below its head. inputs: a cache of earlier tokens, with mask and positions."""
        inputs = {"use_cache": "past_key_values" in inputs, **inputs}
        states: Tensor = self.network.base_model(input_ids=tokens, **inputs).last_hidden_state
        return states

    def read(self, states: Tensor) -> Tensor:  # [N, D] -> [N, V]
        """The network from its last states to the logits."""
        (reader,), (fixed,) = self._reader, self._fixed
        fixed.states = states[None]
        none = torch.zeros(1, len(states), dtype=torch.int64, device=states.device)
        logits: Tensor = reader(input_ids=none, use_cache=False).logits[0]
        return logits

    def states(self, tokens: Tensor, packed: Packed) -> Tensor:  # [B, T] -> [N, D]
        """The final hidden state of each token of the packed rows. Padding is on the right, out of
        attention's reach."""
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
        """As `Decoder.logp`."""
        logp, entropy = choice_columns(self.choices(tokens, mask, packed), tokens, temperature)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """As `Decoder.choices`."""
        if packed is None:
            packed = pack(last_masked(mask) + 1, tokens, mask).to(tokens.device)
        states = take_rows(self.states(tokens, packed), packed.before)
        return Choices(states=states, read=self._logits, cells=packed.chosen)

    def _logits(self, states: Tensor) -> Tensor:  # [N, D] -> [N, V]
        with self._cast():
            return self.read(states)

    def _cast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.head.device.type, self.precision) if self.precision else nullcontext()

    def engine(self, **sizes: Any) -> HFEngine:
        return self.engine_for(self, **sizes)

    @staticmethod
    def engine_for(model: SampledModel, **sizes: Any) -> HFEngine:
        from postgrad.models.hf_engine import HFEngine  # imports transformers
        return HFEngine(model, **sizes)

    def merged(self) -> dict[str, Tensor]:
        return self.state_dict()

    def save(self, tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype | None, largest: int,
             facts: Mapping[str, object]) -> None:
        """tensors: by the names of `merged`, and further ones. facts: further keys of config.json."""
        plain = {name.removeprefix(INSIDE): x.detach() for name, x in tensors.items()}
        if dtype:
            once = {x.data_ptr(): x.to(dtype) for x in plain.values()}  # a tied weight stays one
            plain = {name: once[x.data_ptr()] for name, x in plain.items()}
        with quiet_transformers():
            self.network.save_pretrained(folder, state_dict=plain, max_shard_size=largest)
        path = folder / "config.json"
        stored = {"dtype": str(dtype or self.head.dtype).removeprefix("torch."), **facts}
        path.write_text(json.dumps(json.loads(path.read_text()) | stored, indent=1))

    def hf_class(self, purpose: str) -> str:
        """The class of `transformers` for a purpose; the network's own where there is none."""
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as classes,
        )
        assert purpose == "SequenceClassification"
        name: str | tuple[str, ...] = classes.get(self.config.model_type, type(self.network).__name__)
        return name if isinstance(name, str) else name[0]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """`transformers` without progress bars and warnings."""
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


def load_hf_model(folder: Path, raw: dict[str, Any], device: str, dtype: torch.dtype | None,
                  beside: tuple[str, ...] = ()) -> HFModel:
    """The network that config.json (raw) describes, with its weights. beside: further tensors in the
    files."""
    kind = raw.get("model_type")
    check_hf_config(folder, raw)
    network_class, config = hf_classes(folder, kind)
    try:
        with quiet_transformers():
            network, info = network_class.from_pretrained(
                folder, config=config, dtype=dtype or "auto", use_safetensors=True, local_files_only=True,
                output_loading_info=True,
                attn_implementation="sdpa" if network_class._supports_sdpa else "eager")
    except Exception as error:  # whatever its code makes of a file that it does not expect
        raise ValueError(f"{folder}: transformers cannot open it as {network_class.__name__} "
                         f"({error_text(error)}).") from error
    missing, unknown = sorted(info["missing_keys"]), sorted(set(info["unexpected_keys"]) - set(beside))
    if missing or unknown:
        raise ValueError(f"{folder} does not fit config.json: missing {missing[:3]}, unknown {unknown[:3]}.")
    if str(kind) not in REPORTED:
        REPORTED.add(str(kind))
        print(f"postgrad: {kind} runs through transformers, slower than {', '.join(FAMILIES)}, which have "
              "a decoder here.", file=sys.stderr)
    return check_head_split(HFModel(network.to(device)), folder)


def check_hf_config(folder: Path, raw: dict[str, Any]) -> None:
    """Refuses quantised weights, kernels (foreign code) and sizes beyond any network."""
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


def hf_classes(folder: Path, kind: object) -> tuple[type[PreTrainedModel], PretrainedConfig]:
    """The class of a model_type and its config, by name from those of `transformers`: a folder's own code
    never runs."""
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
        raise ValueError(f"{folder}/config.json cannot be read as {kind} ({error_text(error)}).") from error
    network = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return network[0] if isinstance(network, tuple) else network, config


@torch.no_grad()
def check_head_split(model: HFModel, folder: Path) -> HFModel:
    """Checks on a few tokens that states and head, split here, give the logits of the full network."""
    tokens = torch.arange(6, device=model.head.device).remainder(len(model.head))[None]
    try:
        whole = model.network(input_ids=tokens, use_cache=False).logits
        apart = model.logits(tokens)
    except Exception as error:  # likewise
        raise ValueError(f"{folder}: {type(model.network).__name__} of transformers does not run as a plain "
                         f"language model ({error_text(error)}).") from error
    if whole.shape != apart.shape or (whole - apart).abs().max() > 1e-3 * whole.abs().max():
        raise ValueError(f"{folder}: the head of {type(model.network).__name__} is not a function of the "
                         "last states alone, which training needs.")
    return model.requires_grad_(True)
