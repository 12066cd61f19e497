"""Families of decoders: how each differs from Llama, and its config.json.

Llama 2 and 3 (and SmolLM2), Mistral, Qwen2 and 2.5, Qwen3 (dense), OLMo 2. A family is a row of FAMILIES;
layer.py derives the layer's description from it. A key that would change the result and is not supported is
refused, never ignored. Left out on purpose: yarn and longrope, biases in the MLP, experts, quantised weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from postgrad.system.files import error_text, load_json
from postgrad.system.plugins import load_plugins

# place of a norm in a layer -> Hugging Face's name
BEFORE = {"before_attention": "input_layernorm", "before_mlp": "post_attention_layernorm"}
AFTER = {"after_attention": "post_attention_layernorm", "after_mlp": "post_feedforward_layernorm"}
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model_type. classes: prefix of its classes in `transformers`. config_defaults: of keys missing in
    config.json. norms: before or after sublayers, by name.

    norm: "rms", x / rms(x), or "layer", which subtracts the mean. eps_key: config.json's key of its epsilon.
    qk_norm: norms before the rotation, by "head" or over the "projection" of all heads.
    fixed: further keys of config.json and the one value that is supported.
    gguf_arch: GGUF's name of the architecture; None: it has none. gguf: how GGUF lays out the rotary pairs,
    "halves" of a head, as here, or "neighbours"; "": GGUF files of it are not read.
    """

    classes: str
    config_defaults: Mapping[str, Any]
    norms: Mapping[str, str] = field(default_factory=lambda: BEFORE)
    norm: str = "rms"
    norm_weight: bool = True
    norm_bias: bool = False
    eps_key: str = "rms_norm_eps"
    qk_norm: str = ""
    activation: str = "silu"  # hidden_act
    bias_on_qkv: bool = False
    bias_by_config: bool = False  # attention_bias, on all four projections
    fixed: Mapping[str, Any] = field(default_factory=dict)
    gguf_arch: str | None = None
    gguf: str = ""

    def __post_init__(self) -> None:
        for value, choices in ((self.norm, ("rms", "layer")), (self.qk_norm, ("", "head", "projection")),
                               (self.activation, ACTIVATIONS), (self.gguf, ("", "halves", "neighbours"))):
            if value not in choices:
                raise ValueError(f"family {self.classes}: {value!r} is none of "
                                 f"{', '.join(map(repr, choices))}.")
        if self.norms.keys() - {*BEFORE, *AFTER}:
            raise ValueError(f"family {self.classes}: norms stand {', '.join((*BEFORE, *AFTER))}, not "
                             f"{', '.join(self.norms.keys() - {*BEFORE, *AFTER})}.")


WINDOWS = {"max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28,
           "num_key_value_heads": 32}
FAMILIES = {
    "llama": Family(classes="Llama", config_defaults={"max_position_embeddings": 2048}, bias_by_config=True,
                    gguf_arch="llama", gguf="neighbours"),
    "mistral": Family(classes="Mistral", config_defaults={"max_position_embeddings": 131072,
                                                          "sliding_window": 4096, "num_key_value_heads": 8},
                      gguf_arch="llama"),
    "qwen2": Family(classes="Qwen2", config_defaults=WINDOWS, bias_on_qkv=True, gguf_arch="qwen2",
                    gguf="halves"),
    "qwen3": Family(classes="Qwen3", config_defaults={**WINDOWS, "head_dim": 128}, bias_by_config=True,
                    qk_norm="head", gguf_arch="qwen3", gguf="halves"),
    "olmo2": Family(classes="Olmo2", config_defaults={"max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
                    bias_by_config=True, norms=AFTER, qk_norm="projection", gguf_arch="olmo2"),
}


def register_family(model_type: str, family: Family) -> Family:
    """Adds a family to this process; a plugin calls it (system/plugins.py)."""
    if model_type in BUILT_IN:
        raise ValueError(f"there is a built-in family {model_type!r}: give yours another model_type.")
    FAMILIES[model_type] = family
    return family


def find_family(model_type: object) -> Family | None:
    """The family of a model_type, plugins' included; None if the decoder has none."""
    if str(model_type) not in FAMILIES:
        load_plugins()
    return FAMILIES.get(str(model_type))


BUILT_IN = frozenset(FAMILIES)
SCALINGS = {"linear": ("factor",), "dynamic": ("factor",),
            "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")}
KINDS = {"sliding_attention", "full_attention"}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
# limits of sizes: far beyond any model
MOST = {"vocab_size": 10**8, "hidden_size": 10**6, "intermediate_size": 10**7, "num_hidden_layers": 2000,
        "num_attention_heads": 10**5, "num_key_value_heads": 10**5, "head_dim": 10**5,
        "max_position_embeddings": 10**9}
REPEATED = ("layers", "n_layer", "experts", "blocks", "depth")  # in the keys of other families


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The family of a decoder, and the options in its config.json beside the sizes."""

    model_type: str = "llama"
    qkv_bias: bool = False
    o_bias: bool = False
    window: int | None = None  # sliding window, the token itself included
    window_layers: tuple[int, ...] = ()
    scaling: tuple[tuple[str, object], ...] = ()  # rope_type and its parameters
    # token ids, written back to config.json
    tokens: tuple[tuple[str, object], ...] = field(default=(), compare=False)

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]

    def to_hf(self, layers: int) -> dict[str, Any]:
        """The keys of config.json for it."""
        family, plain = self.family, "full_attention"
        out = {"model_type": self.model_type, "hidden_act": family.activation, **family.fixed,
               **dict(self.tokens)}
        if family.bias_by_config:
            out |= {"attention_bias": self.qkv_bias}
        if self.model_type == "llama":
            out |= {"mlp_bias": False}
        if "sliding_window" in family.config_defaults:
            out |= {"sliding_window": self.window}
        if "max_window_layers" in family.config_defaults:
            kinds = ["sliding_attention" if i in self.window_layers else plain for i in range(layers)]
            out |= {"use_sliding_window": self.window is not None, "layer_types": kinds,
                    "max_window_layers": min(self.window_layers, default=layers)}
        return out | ({"rope_scaling": dict(self.scaling)} if self.scaling else {})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a decoder, by the names of Hugging Face's config.json, and its architecture."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    architecture: Architecture = Architecture()

    def __post_init__(self) -> None:
        for name in MOST:
            check_size(name, getattr(self, name))
        for name in ("rms_norm_eps", "rope_theta"):
            if not is_finite_number(getattr(self, name)) or getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)!r:.60}; it must be a number above 0.")
        if not isinstance(self.tie_word_embeddings, bool):
            raise ValueError(f"tie_word_embeddings is {self.tie_word_embeddings!r:.60}; it is true or false.")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"{self.num_attention_heads} attention heads cannot share "
                             f"{self.num_key_value_heads} key-value heads: set "
                             "num_key_value_heads to a divisor.")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions need an even number.")

    @classmethod
    def read(cls, path: Path) -> Config:
        """From a config.json."""
        raw = read_config_json(path)
        if (family := find_family(kind := raw.get("model_type"))) is None:
            raise ValueError(f"{path}: model_type is {kind!r:.60}; the decoder reads {', '.join(FAMILIES)}, "
                             "and only for those are there figures of memory.")
        try:
            return cls._of({**family.config_defaults, **raw})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> Config:
        family, rope = FAMILIES[raw["model_type"]], raw.get("rope_parameters")
        known = raw | (rope if isinstance(rope, dict) else {})
        for key, plain in {"mlp_bias": False, "hidden_act": family.activation, "quantization_config": None,
                           **family.fixed}.items():
            if known.get(key, plain) != plain:
                raise ValueError(f"{key} is {known[key]!r:.100}; only {plain!r} is supported.")
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                  "num_attention_heads", *family.config_defaults.keys()
                  & {"max_position_embeddings", "max_window_layers"})
        if missing := [key for key in needed if not isinstance(raw.get(key), int)]:
            raise ValueError(f"{missing[0]} is {raw.get(missing[0])!r:.60}; a decoder needs it as "
                             "a whole number.")
        for name in MOST.keys() & raw.keys():
            if raw[name] is not None:
                check_size(name, raw[name])
        theta, scaling = _rotary(raw)
        window, layers = _window(raw)
        bias = bool(raw.get("attention_bias"))
        architecture = Architecture(
            model_type=raw["model_type"], scaling=scaling, window=window, window_layers=layers,
            qkv_bias=family.bias_on_qkv or (family.bias_by_config and bias),
            o_bias=family.bias_by_config and bias, tokens=tuple((k, raw[k]) for k in TOKENS if k in raw))
        sizes = {**raw, "rms_norm_eps": raw.get(family.eps_key, 1e-6), "rope_theta": theta,
                 "architecture": architecture,
                 "num_key_value_heads": raw.get("num_key_value_heads") or raw["num_attention_heads"],
                 "head_dim": raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]}
        return cls(**{f.name: sizes[f.name] for f in fields(cls) if f.name in sizes})

    def to_hf(self) -> dict[str, Any]:
        """As config.json of the same model_type, readable by `transformers`."""
        names = {"rms_norm_eps": self.architecture.family.eps_key}
        sizes = {names.get(name, name): value for name, value in asdict(self).items()
                 if name != "architecture"}
        return {"architectures": [self.hf_class("CausalLM")],
                **self.architecture.to_hf(self.num_hidden_layers), **sizes}

    def hf_class(self, purpose: str) -> str:
        """The class of `transformers` that reads the folder: "MistralForCausalLM"."""
        return f"{self.architecture.family.classes}For{purpose}"


@dataclass(frozen=True, kw_only=True)
class HFSizes:
    """The sizes of a network of `transformers` (hf_model.py)."""

    model_type: str
    vocab_size: int
    hidden_size: int
    max_position_embeddings: int


def read_config_json(path: Path) -> dict[str, Any]:
    """The JSON object in a config.json, unchecked."""
    try:
        raw = load_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error_text(error)}): get the file "
                         "again.") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no JSON object: get the file again.")
    return raw


def check_size(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST[name]:
        raise ValueError(f"{name} is {value!r:.60}; it must be a whole number from 1 to {MOST[name]:,}.")


def largest_allowed(key: str) -> int:
    """The limit of an integer in a config.json: lower for keys that count what is built."""
    return MOST["num_hidden_layers"] if any(word in key for word in REPEATED) else max(MOST.values())


def is_finite_number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < math.inf


def check_positions(positions: int, most: int) -> None:
    if positions > most:
        raise ValueError(f"{positions} tokens do not fit the model's {most} positions: shorten the prompts "
                         "or max_new_tokens.")


def _rotary(raw: dict[str, Any]) -> tuple[float, tuple[tuple[str, object], ...]]:
    """theta and the scaling. 'dynamic' changes nothing up to max_position_embeddings, the longest text."""
    both = [raw.get(key) or {} for key in ("rope_scaling", "rope_parameters")]
    if not all(isinstance(said, dict) for said in both):
        raise ValueError(f"rope_scaling is {raw.get('rope_scaling')!r:.60}; it must be an object, or null.")
    rope = both[0] | both[1]
    rotated = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if rotated not in (None, 1):
        raise ValueError(f"partial_rotary_factor is {rotated!r}; only whole heads are rotated here.")
    if any(isinstance(x, dict | list) for x in rope.values()):
        raise ValueError("rope_parameters differ by layer type, which is not supported.")
    theta = rope.get("rope_theta") or raw.get("rope_theta") or 10000.0
    kind = rope.get("rope_type", rope.get("type", "default"))  # "type" is the older name
    if kind == "default":
        return theta, ()
    if str(kind) not in SCALINGS:
        raise ValueError(f"rotary scaling {kind!r:.60} is not supported; default, {', '.join(SCALINGS)} are.")
    rope = {"original_max_position_embeddings": raw["max_position_embeddings"], **rope}
    for key in SCALINGS[kind]:
        if not is_finite_number(rope.get(key)) or rope[key] <= 0:
            raise ValueError(f"rotary scaling {kind!r} needs {key} as a number above 0, not "
                             f"{rope.get(key)!r:.60}.")
    return theta, (("rope_type", kind), *((key, rope[key]) for key in SCALINGS[kind]))


def _window(raw: dict[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The sliding window and its layers. Mistral: all; Qwen: layer_types, or from max_window_layers on."""
    config_defaults, layers = FAMILIES[raw["model_type"]].config_defaults, range(raw["num_hidden_layers"])
    by_layer = "max_window_layers" in config_defaults
    window = (raw["sliding_window"] if "sliding_window" in config_defaults
              and (raw.get("use_sliding_window") or not by_layer) else None)
    usual = ["sliding_attention" if window is not None and i >= (raw["max_window_layers"] if by_layer else 0)
             else "full_attention" for i in layers]
    kinds = raw.get("layer_types") or usual
    if (not isinstance(kinds, list) or len(kinds) != len(usual)
            or (kinds != usual and (window is None or not by_layer)) or not {str(x) for x in kinds} <= KINDS):
        raise ValueError(f"layer_types is {kinds!r:.200}, which does not go with {len(layers)} layers of "
                         f"{raw['model_type']!r} and a sliding window of {window}.")
    chosen = tuple(i for i in layers if kinds[i] == "sliding_attention")
    if chosen and (not isinstance(window, int) or window < 1):
        raise ValueError(f"sliding_window is {window!r:.60}; it must be a whole number above 0, or null.")
    return (window, chosen) if chosen else (None, ())
