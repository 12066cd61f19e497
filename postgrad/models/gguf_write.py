"""Writes model folders in Hugging Face's layout as GGUF files, and adapters in peft's layout as LoRA files,
as llama.cpp reads them: the inverse of `gguf.convert_gguf`.

f16 rounds matrices to 16 bits, q8_0 and q4_0 to blocks of 32 numbers with a scale; norms and biases stay in
float32. In a q4_0 file the embedding and the head are q8_0. Needs the package `gguf` (postgrad[gguf]).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers

from postgrad.models.families import FAMILIES, Config, read_config_json
from postgrad.models.gguf import CONTROL, SPLITS, USER, gguf_package, pre_tokenizer_for
from postgrad.models.layer import TensorSpec, stored_tensors
from postgrad.models.load import EMBEDDING, HEAD
from postgrad.models.peft import ADAPTER, ADAPTER_CONFIG, AHEAD
from postgrad.models.weights import list_weights, read_tensors, read_weights

KINDS = ("f16", "q8_0", "q4_0")
NORMAL, UNUSED, BLOCK = 1, 5, 32
IDS = {"bos": "bos", "eos": "eos", "unk": "unk", "pad": "pad"}


def write_gguf(folder: Path, out: Path, kind: str, name: str) -> None:
    """A model's folder as one file. kind: of KINDS; name: what the file calls the model."""
    package, config = gguf_package(), Config.read(folder / "config.json")
    writer = gguf_writer(config, out)
    writer.add_name(name)
    for key, value in config_facts(config).items():
        getattr(writer, f"add_{key}")(value)
    writer.add_file_type({"f16": package.LlamaFileType.MOSTLY_F16, "q8_0": package.LlamaFileType.MOSTLY_Q8_0,
                          "q4_0": package.LlamaFileType.MOSTLY_Q4_0}[kind])
    add_tokenizer(writer, folder, config.vocab_size)
    stored = list_weights(folder)
    for tensor in stored_tensors(config):
        x = read_weights({tensor.name: stored[tensor.name]}, "cpu", torch.float32)[tensor.name]
        add_tensor(writer, tensor.gguf, paired(x, tensor, config), tensor_kind(tensor, kind))
    finish(writer)


def write_gguf_adapter(folder: Path, base: Path, out: Path) -> None:
    """An adapter's folder as a LoRA file in float16. base: the folder of the model that it belongs to."""
    config, facts = Config.read(base / "config.json"), read_config_json(folder / ADAPTER_CONFIG)
    tensors = read_tensors(folder / ADAPTER)
    alpha, rank = float(facts["lora_alpha"]), int(facts["r"])
    writer = gguf_writer(config, out)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha * math.sqrt(rank) if facts.get("use_rslora") else alpha)
    for tensor in stored_tensors(config):
        path = f"{AHEAD}{tensor.name.removesuffix('.weight')}"
        a, b = (tensors.pop(f"{path}.lora_{x}.weight", None) for x in "AB")
        if a is not None and b is not None:
            add_tensor(writer, f"{tensor.gguf}.lora_a", a.float(), "f16")
            add_tensor(writer, f"{tensor.gguf}.lora_b", paired(b.float(), tensor, config), "f16")
    if tensors:
        raise ValueError(f"{folder / ADAPTER} has {min(tensors)}, and a GGUF adapter holds LoRA matrices "
                         "alone: leave --adapter out, so that it is merged.")
    finish(writer)


def gguf_writer(config: Config, out: Path) -> Any:
    """A writer for the architecture of a model; one that GGUF files cannot hold here is refused."""
    kind, family = config.architecture, config.architecture.family
    if not family.gguf or not family.gguf_arch:
        known = [name for name, other in FAMILIES.items() if other.gguf]
        raise ValueError(f"its architecture is {kind.model_type!r}; {', '.join(known)} are written as GGUF.")
    if kind.scaling or kind.window is not None or kind.o_bias or kind.qkv_bias != family.bias_on_qkv:
        raise ValueError("scaled rotary angles, sliding windows and further biases are not supported in GGUF "
                         "files: export the folder instead, without --gguf.")
    return gguf_package().GGUFWriter(out, family.gguf_arch)


def config_facts(config: Config) -> dict[str, Any]:
    """Sizes by the names of the writer's methods."""
    return {"block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
            "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
            "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
            "key_length": config.head_dim, "value_length": config.head_dim,
            "rope_dimension_count": config.head_dim, "rope_freq_base": config.rope_theta,
            "layer_norm_rms_eps": config.rms_norm_eps, "vocab_size": config.vocab_size}


def paired(x: torch.Tensor, tensor: TensorSpec, config: Config) -> torch.Tensor:
    """The rows of queries and keys in GGUF's order, for a family whose rotation pairs neighbours: the inverse
    of `gguf.half_split`."""
    if config.architecture.family.gguf != "neighbours" or tensor.of.short not in ("q", "k"):
        return x
    return x.view(-1, 2, config.head_dim // 2, x.shape[1]).transpose(1, 2).reshape(x.shape)


def tensor_kind(tensor: TensorSpec, kind: str) -> str:
    if len(tensor.shape) == 1:
        return "f32"
    return "q8_0" if kind == "q4_0" and tensor.name in (EMBEDDING, HEAD) else kind


def add_tensor(writer: Any, name: str, x: torch.Tensor, kind: str) -> None:
    package, values = gguf_package(), x.contiguous().numpy()
    if kind == "f16" and x.abs().max() > torch.finfo(torch.float16).max:
        raise ValueError(f"{name} has {x.abs().max():.3g}, beyond the range of float16: write q8_0.")
    if kind.startswith("q"):
        if x.shape[-1] % BLOCK:
            raise ValueError(f"{name} has rows of {x.shape[-1]}, and {kind} packs blocks of {BLOCK}: write "
                             "f16.")
        quantised = package.GGMLQuantizationType[kind.upper()]
        writer.add_tensor(name, package.quantize(values, quantised), raw_dtype=quantised)
    else:
        writer.add_tensor(name, values.astype("float16" if kind == "f16" else "float32"))


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# the tokenizer

def add_tokenizer(writer: Any, folder: Path, size: int) -> None:
    """Tokens, merges, special tokens and the chat template. size: of the vocabulary of the weights."""
    tokenizer, settings = Tokenizer.from_file(str(folder / "tokenizer.json")), tokenizer_settings(folder)
    raw = json.loads(tokenizer.to_str())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split_name(raw))
    vocabulary = {i: token for token, i in tokenizer.get_vocab().items()}
    added = {item["id"]: CONTROL if item["special"] else USER for item in raw["added_tokens"]}
    if max(vocabulary) >= size:
        raise ValueError(f"its tokenizer has token {max(vocabulary)}, and its weights have {size} rows.")
    writer.add_token_list([vocabulary.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types([added.get(i, NORMAL if i in vocabulary else UNUSED) for i in range(size)])
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair)
                             for pair in raw["model"]["merges"]])
    for name, key in IDS.items():
        token = settings.get(f"{name}_token")
        text = token.get("content") if isinstance(token, Mapping) else token
        if text is not None:
            getattr(writer, f"add_{key}_token_id")(tokenizer.token_to_id(str(text)))
    writer.add_add_bos_token(begins_with_bos(tokenizer))
    if template := settings.get("chat_template"):
        writer.add_chat_template(template)


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, with the chat template of its own file."""
    file = folder / "chat_template.jinja"
    settings = read_config_json(folder / "tokenizer_config.json")
    return settings | ({"chat_template": file.read_text("utf-8")} if file.is_file() else {})


def split_name(raw: dict[str, Any]) -> str:
    """How a tokenizer splits a text into words, by llama.cpp's name; one without a name here is refused."""
    for name in SPLITS:
        like = Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
        like.pre_tokenizer = pre_tokenizer_for(name)
        if name == "qwen2":
            like.normalizer = normalizers.NFC()
        if splitting(json.loads(like.to_str())) == splitting(raw):
            return name
    raise ValueError(f"its tokenizer is none whose splitting has a name here ({', '.join(SPLITS)}): export "
                     "the folder instead, without --gguf.")


def splitting(raw: dict[str, Any]) -> Any:
    """What decides into which tokens a text falls, besides vocabulary and merges."""
    model = raw["model"]
    return [[*without_offsets(raw["pre_tokenizer"])], raw["normalizer"], model["type"],
            bool(model.get("ignore_merges")), bool(model.get("byte_fallback"))]


def without_offsets(step: Any) -> Iterator[dict[str, Any]]:
    """The steps of a pre-tokenizer, without what concerns offsets alone."""
    for part in (step or {}).get("pretokenizers", [step] if step else []):
        yield {key: value for key, value in part.items() if key != "trim_offsets"}


def begins_with_bos(tokenizer: Tokenizer) -> bool:
    """Whether a text's first token is one that the tokenizer puts there; anything else put there is
    refused."""
    plain, whole = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    if whole[-len(plain):] != plain or len(whole) > len(plain) + 1:
        raise ValueError("its tokenizer puts tokens around a text that a GGUF file cannot describe here.")
    return len(whole) > len(plain)
