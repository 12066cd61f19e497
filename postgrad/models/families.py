"""Families of decoders: how each differs from Llama, and its config.json.

Llama 2 and 3 (and SmolLM2), Mistral, Qwen2 and 2.5, Qwen3 (dense), OLMo 2, Gemma 2 and 3 (text), SmolLM3,
Phi-3 and Phi-4-mini, Granite 3, Qwen3-MoE. A family is a row of FAMILIES; layer.py derives the layer's
description from it. A key that would change the result and is not supported is refused, never ignored. Left
out on purpose: biases in the MLP, quantised weights, images.
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
SANDWICH = {"before_attention": "input_layernorm", "before_mlp": "pre_feedforward_layernorm", **AFTER}
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model_type. classes: prefix of its classes in `transformers`. config_defaults: of keys missing in
    config.json. norms: before or after sublayers, by name.

    norm: "rms", x / rms(x), or "layer", which subtracts the mean. eps_key: config.json's key of its epsilon.
    norm_offset: what is added to a norm's weight. qk_norm: norms before the rotation, by "head" or over the
    "projection" of all heads. matrices: Hugging Face's names where they are not Llama's, by short name; "qkv"
    or "gate_up" is one matrix for all of these. numbers: the keys of config.json of NUMBERS that it has.
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
    norm_offset: float = 0.0
    eps_key: str = "rms_norm_eps"
    qk_norm: str = ""
    activation: str = "silu"
    activation_key: str = "hidden_act"
    matrices: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    scaled_embedding: bool = False  # by sqrt(hidden_size)
    parts_of_heads: bool = False  # a part of each head may be rotated: partial_rotary_factor
    experts: bool = False  # MLPs may be mixtures of experts
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


# scales and caps of a layer or its ends; a cap c of x: c tanh(x / c)
NUMBERS = ("attention_multiplier", "query_pre_attn_scalar", "attn_logit_softcapping", "residual_multiplier",
           "embedding_multiplier", "logits_scaling", "final_logit_softcapping")
MULTIPLIERS = ("attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling")
GEMMA = {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": True,
         "query_pre_attn_scalar": 256, "attn_logit_softcapping": None, "final_logit_softcapping": None}
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
    "gemma2": Family(classes="Gemma2", norms=SANDWICH, norm_offset=1.0, activation="gelu_pytorch_tanh",
                     activation_key="hidden_activation", bias_by_config=True, scaled_embedding=True,
                     numbers=("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"),
                     config_defaults={**GEMMA, "max_position_embeddings": 8192, "sliding_window_pattern": 2,
                                      "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gemma3_text": Family(classes="Gemma3", norms=SANDWICH, norm_offset=1.0, activation="gelu_pytorch_tanh",
                          activation_key="hidden_activation", bias_by_config=True, scaled_embedding=True,
                          qk_norm="head", numbers=("query_pre_attn_scalar", "final_logit_softcapping"),
                          config_defaults={**GEMMA, "max_position_embeddings": 131072, "rope_theta": 1e6,
                                           "rope_local_base_freq": 1e4, "sliding_window_pattern": 6},
                          fixed={"use_bidirectional_attention": False, "attn_logit_softcapping": None},
                          gguf_arch="gemma3"),
    "smollm3": Family(classes="SmolLM3", bias_by_config=True, gguf_arch="smollm3",
                      config_defaults={"max_position_embeddings": 32768, "num_key_value_heads": 4,
                                       "rope_theta": 2e6, "no_rope_layer_interval": 4,
                                       "tie_word_embeddings": True}, fixed={"use_sliding_window": False}),
    "phi3": Family(classes="Phi3", parts_of_heads=True,
                   matrices={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"},
                   config_defaults={"max_position_embeddings": 4096, "sliding_window": None,
                                    "rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}),
    "qwen3_moe": Family(classes="Qwen3Moe", bias_by_config=True, qk_norm="head", experts=True,
                        config_defaults={"max_position_embeddings": 32768, "num_key_value_heads": 4,
                                         "decoder_sparse_step": 1, "moe_intermediate_size": 768,
                                         "num_experts_per_tok": 8, "norm_topk_prob": False},
                        fixed={"use_sliding_window": False}),
    "granite": Family(classes="Granite", bias_by_config=True, numbers=MULTIPLIERS, gguf_arch="granite",
                      config_defaults={"max_position_embeddings": 2048, **dict.fromkeys(MULTIPLIERS, 1.0)}),
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
ORIGINAL = "original_max_position_embeddings"
SCALINGS = {"linear": ("factor",), "dynamic": ("factor",), "yarn": ("factor", ORIGINAL),
            "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL), "longrope": (ORIGINAL,)}
FREE = {"yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
        "longrope": ("factor", "attention_factor")}  # further keys, which may be left out
LONGEST = "longest"  # max_position_embeddings of a file with longrope
OLD_NAMES = {"su": "longrope"}
KINDS = {"sliding_attention", "full_attention"}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
# limits of sizes: far beyond any model
MOST = {"vocab_size": 10**8, "hidden_size": 10**6, "intermediate_size": 10**7, "num_hidden_layers": 2000,
        "num_attention_heads": 10**5, "num_key_value_heads": 10**5, "head_dim": 10**5,
        "max_position_embeddings": 10**9}
REPEATED = ("layers", "n_layer", "experts", "blocks", "depth")  # in the keys of other families


@dataclass(frozen=True, kw_only=True)
class ExpertSizes:
    """count experts of this width, of which a token goes to `active`; renormalised: their shares add up to 1.
    dense: the layers that have an MLP in their place."""

    count: int
    active: int
    width: int
    renormalised: bool = False
    dense: tuple[int, ...] = ()

    def to_hf(self) -> dict[str, Any]:
        return {"num_experts": self.count, "num_experts_per_tok": self.active, "decoder_sparse_step": 1,
                "moe_intermediate_size": self.width, "norm_topk_prob": self.renormalised,
                "mlp_only_layers": list(self.dense)}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The family of a decoder, and the options in its config.json beside the sizes."""

    model_type: str = "llama"
    qkv_bias: bool = False
    o_bias: bool = False
    window: int | None = None  # sliding window, the token itself included
    window_layers: tuple[int, ...] = ()
    scaling: tuple[tuple[str, object], ...] = ()  # rope_type and its parameters
    rotated: float = 1.0  # the share of a head that is rotated
    unrotated_layers: tuple[int, ...] = ()
    local_theta: float | None = None  # of layers with a window, without scaling
    numbers: tuple[tuple[str, float], ...] = ()  # of NUMBERS
    experts: ExpertSizes | None = None
    # token ids, written back to config.json
    tokens: tuple[tuple[str, object], ...] = field(default=(), compare=False)

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]

    def number(self, key: str) -> float | None:
        return dict(self.numbers).get(key)

    def to_hf(self, layers: int) -> dict[str, Any]:
        """The keys of config.json for it."""
        family, plain = self.family, "full_attention"
        out = {"model_type": self.model_type, family.activation_key: family.activation, **family.fixed,
               **dict.fromkeys(family.numbers), **dict(self.numbers), **dict(self.tokens)}
        if family.bias_by_config:
            out |= {"attention_bias": self.qkv_bias}
        if self.model_type == "llama":
            out |= {"mlp_bias": False}
        if "sliding_window" in family.config_defaults:
            out |= {"sliding_window": self.window}
        kinds = ["sliding_attention" if i in self.window_layers else plain for i in range(layers)]
        if "max_window_layers" in family.config_defaults:
            out |= {"use_sliding_window": self.window is not None, "layer_types": kinds,
                    "max_window_layers": min(self.window_layers, default=layers)}
        if "sliding_window_pattern" in family.config_defaults:
            out |= {"layer_types": kinds}
        if "no_rope_layer_interval" in family.config_defaults:
            out |= {"no_rope_layers": [int(i not in self.unrotated_layers) for i in range(layers)]}
        if self.local_theta is not None:
            out |= {"rope_local_base_freq": self.local_theta}
        if self.experts is not None:
            out |= self.experts.to_hf()
        if self.rotated != 1:
            out |= {"partial_rotary_factor": self.rotated}
        scaling = {key: value for key, value in self.scaling if key != LONGEST}
        return out | ({"rope_scaling": scaling} if scaling else {})


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
        if self.rotary_dim % 2 or not self.rotary_dim:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions need an even number.")

    @property
    def rotary_dim(self) -> int:
        """Of a head's numbers, the first ones, which are rotated."""
        return int(self.head_dim * self.architecture.rotated)

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
        for key, plain in {"mlp_bias": False, family.activation_key: family.activation,
                           "quantization_config": None,
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
        theta, local, rotated, scaling = _rotary(raw)
        window, layers = _window(raw)
        numbers = tuple((key, raw[key]) for key in family.numbers if raw.get(key) is not None)
        if wrong := [key for key, x in numbers if not is_finite_number(x) or x <= 0]:
            raise ValueError(f"{wrong[0]} is {raw[wrong[0]]!r:.60}; it must be a number above 0.")
        bias = bool(raw.get("attention_bias"))
        architecture = Architecture(
            model_type=raw["model_type"], scaling=scaling, window=window, window_layers=layers,
            rotated=rotated, local_theta=local, unrotated_layers=_unrotated(raw), numbers=numbers,
            experts=_experts(raw) if family.experts else None,
            qkv_bias=family.bias_on_qkv or (family.bias_by_config and bias),
            o_bias=family.bias_by_config and bias, tokens=tuple((k, raw[k]) for k in TOKENS if k in raw))
        long = {"max_position_embeddings": dict(scaling)[ORIGINAL]} if LONGEST in dict(scaling) else {}
        sizes = {**raw, **long, "rope_theta": theta, "rms_norm_eps": raw.get(family.eps_key, 1e-6),
                 "architecture": architecture,
                 "num_key_value_heads": raw.get("num_key_value_heads") or raw["num_attention_heads"],
                 "head_dim": raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]}
        return cls(**{f.name: sizes[f.name] for f in fields(cls) if f.name in sizes})

    def to_hf(self) -> dict[str, Any]:
        """As config.json of the same model_type, readable by `transformers`."""
        names = {"rms_norm_eps": self.architecture.family.eps_key}
        sizes = {names.get(name, name): value for name, value in asdict(self).items()
                 if name != "architecture"}
        scaling = dict(self.architecture.scaling)
        if LONGEST in scaling:  # longrope
            sizes |= {"max_position_embeddings": scaling[LONGEST], ORIGINAL: scaling[ORIGINAL]}
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


def _rotary(raw: dict[str, Any]) -> tuple[float, float | None, float, tuple[tuple[str, object], ...]]:
    """theta, that of layers with a window if they have their own, the share of a head that is rotated, and
    the scaling. 'dynamic' changes nothing up to max_position_embeddings, the longest text; of 'longrope' only
    texts up to the original length are read, for longer ones have other angles from their first token."""
    both = [raw.get(key) or {} for key in ("rope_scaling", "rope_parameters")]
    if not all(isinstance(said, dict) for said in both):
        raise ValueError(f"rope_scaling is {raw.get('rope_scaling')!r:.60}; it must be an object, or null.")
    local = raw.get("rope_local_base_freq")
    if local is not None and KINDS & both[1].keys():
        inside = both[1].get("sliding_attention") or {}
        if not isinstance(inside, dict) or inside.get("rope_type", "default") != "default":
            raise ValueError(f"rope_parameters of layers with a window are {inside!r:.60}; only theta may "
                             "differ there.")
        local, both[1] = inside.get("rope_theta", local), both[1].get("full_attention") or {}
    rope = both[0] | both[1]
    rotated = rope.pop("partial_rotary_factor", None) or raw.get("partial_rotary_factor") or 1.0
    if not is_finite_number(rotated) or not 0 < rotated <= 1:
        raise ValueError(f"partial_rotary_factor is {rotated!r:.60}; it must be a share of a head, up to 1.")
    if rotated != 1 and not FAMILIES[raw["model_type"]].parts_of_heads:
        raise ValueError(f"partial_rotary_factor is {rotated!r}; {raw['model_type']} rotates whole heads.")
    if any(isinstance(x, dict) for x in rope.values()):
        raise ValueError("rope_parameters differ by layer type, which is not supported.")
    theta = rope.get("rope_theta") or raw.get("rope_theta") or 10000.0
    kind = rope.get("rope_type", rope.get("type", "default"))  # "type" is the older name
    kind = OLD_NAMES.get(kind, kind) if isinstance(kind, str) else kind
    if kind == "default":
        return theta, local, rotated, ()
    if str(kind) not in SCALINGS:
        raise ValueError(f"rotary scaling {kind!r:.60} is not supported; default, {', '.join(SCALINGS)} are.")
    rope = {ORIGINAL: raw.get(ORIGINAL) or raw["max_position_embeddings"], **rope}
    free = [key for key in FREE.get(kind, ()) if rope.get(key) is not None]
    for key in (*SCALINGS[kind], *(key for key in free if key != "truncate")):
        if not is_finite_number(rope.get(key)) or rope[key] <= 0:
            raise ValueError(f"rotary scaling {kind!r} needs {key} as a number above 0, not "
                             f"{rope.get(key)!r:.60}.")
    scaling: list[tuple[str, object]] = [("rope_type", kind), *((key, rope[key]) for key in
                                                               (*SCALINGS[kind], *free))]
    if kind == "longrope":
        for key in ("short_factor", "long_factor"):
            if not isinstance(rope.get(key), list) or not all(is_finite_number(x) and x > 0
                                                              for x in rope[key]):
                raise ValueError(f"rotary scaling 'longrope' needs {key} as a list of numbers above 0, not "
                                 f"{rope.get(key)!r:.60}.")
            scaling.append((key, tuple(rope[key])))
        scaling.append((LONGEST, raw["max_position_embeddings"]))
    return theta, local, rotated, tuple(scaling)


def _unrotated(raw: dict[str, Any]) -> tuple[int, ...]:
    """Layers without rotary positions: those that no_rope_layers has as 0, or every so many."""
    layers, every = range(raw["num_hidden_layers"]), raw.get("no_rope_layer_interval")
    if "no_rope_layer_interval" not in FAMILIES[raw["model_type"]].config_defaults:
        return ()
    rotated = raw.get("no_rope_layers")
    if rotated is None and isinstance(every, int) and every > 0:
        rotated = [int((i + 1) % every != 0) for i in layers]
    if not isinstance(rotated, list) or len(rotated) < len(layers) or not {*rotated} <= {0, 1}:
        raise ValueError(f"no_rope_layers is {rotated!r:.60}; it has a 1 or a 0 for each layer.")
    return tuple(i for i in layers if not rotated[i])


def _experts(raw: dict[str, Any]) -> ExpertSizes:
    raw = {"num_experts": raw.get("num_local_experts"), **raw}
    for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"):
        if type(raw.get(key)) is not int or not 1 <= raw[key] <= MOST["num_key_value_heads"]:
            raise ValueError(f"{key} is {raw.get(key)!r:.60}; it must be a whole number above 0.")
    if raw["num_experts_per_tok"] > raw["num_experts"]:
        raise ValueError(f"num_experts_per_tok is {raw['num_experts_per_tok']}, and there are "
                         f"{raw['num_experts']} experts.")
    dense, layers = raw.get("mlp_only_layers") or [], range(raw["num_hidden_layers"])
    if not isinstance(dense, list) or not isinstance(raw.get("norm_topk_prob"), bool):
        raise ValueError("mlp_only_layers must be a list of layers, and norm_topk_prob true or false.")
    return ExpertSizes(count=raw["num_experts"], active=raw["num_experts_per_tok"],
                       width=raw["moe_intermediate_size"], renormalised=raw["norm_topk_prob"],
                       dense=tuple(i for i in layers if i in dense or (i + 1) % raw["decoder_sparse_step"]))


def _window(raw: dict[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The sliding window and its layers. Mistral: all; Qwen: layer_types, or from max_window_layers on;
    Gemma: layer_types, or all but every so many."""
    config_defaults, layers = FAMILIES[raw["model_type"]].config_defaults, range(raw["num_hidden_layers"])
    every = raw.get("sliding_window_pattern") if "sliding_window_pattern" in config_defaults else None
    by_layer = "max_window_layers" in config_defaults or every is not None
    first = raw["max_window_layers"] if "max_window_layers" in config_defaults else 0
    if every is not None and (type(every) is not int or every < 1):
        raise ValueError(f"sliding_window_pattern is {every!r:.60}; it must be a whole number above 0.")
    window = (raw["sliding_window"] if "sliding_window" in config_defaults
              and (raw.get("use_sliding_window") or "max_window_layers" not in config_defaults) else None)
    usual = ["sliding_attention" if window is not None and i >= first and not (every and (i + 1) % every == 0)
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
