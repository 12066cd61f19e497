"""Model folders, tokenizers, chat templates, adapters and safetensors files that ask for too much."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.drive import Case, Place
from hostile.run_files import DEEP, endless, piped, said, sparse, written
from hostile.template_bombs import BOMBS
from hostile.tokenizer_files import CHAT, tokenizers

from postgrad.models import find_model

SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "tie_word_embeddings",
    "rope_scaling",
    "sliding_window",
    "model_type",
    "bos_token_id",
    "attention_bias",
    "quantization_config",
    "torch_dtype",
)
VALUES = ("x", None, [], {}, -1, 0, 10**7, 10**30, float("nan"), True, 2.5, [[1]], {"rope_type": "linear"})


def spoilt(change: Callable[[Path, Place], object], at: Place) -> None:
    folder = at.inside / "bad"
    shutil.copytree(find_model("tiny-chat"), folder)
    change(folder, at)


def value_of(x: object) -> str:
    return "10^30" if x == 10**30 else repr(x)


def configs() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    for turn, key in enumerate(SIZES):
        for at, value in enumerate(VALUES):
            if (turn + at) % 3 == 0 or value == 10**7:
                words = ("memory", "bad") if (turn + at) % 6 == 0 else CHAT
                yield (
                    f"config.json: {key} is {value_of(value)}",
                    partial(said, "config.json", {key: value}),
                    words,
                )
    for what, raw in {
        "mistral with a window of text": {"model_type": "mistral", "sliding_window": "x"},
        "qwen2 with layer_types of numbers": {"model_type": "qwen2", "layer_types": [1, 2]},
        "qwen2 with a window list": {
            "model_type": "qwen2",
            "use_sliding_window": True,
            "max_window_layers": -1,
        },
        "llama3 scaling of nan": {"rope_scaling": {"rope_type": "llama3", "factor": float("nan")}},
        "linear scaling of inf": {"rope_scaling": {"rope_type": "linear", "factor": float("inf")}},
        "gpt2 with 10^7 layers": {"model_type": "gpt2", "n_layer": 10**7},
        "gpt2 with 10^9 positions": {"model_type": "gpt2", "n_positions": 10**9, "n_layer": 1},
        "gpt2 with a text for a width": {"model_type": "gpt2", "n_embd": "x"},
        "gpt2 with nested settings": {"model_type": "gpt2", "task_specific_params": {"a": [{}] * 10}},
        "cohere2 with 10^8 layers": {"model_type": "cohere2", "num_hidden_layers": 10**8},
        "mixtral with 10^8 experts": {"model_type": "mixtral", "num_local_experts": 10**8},
    }.items():
        yield f"config.json: {what}", partial(said, "config.json", raw), CHAT
    for name in (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ):
        yield f"{name} is endless", partial(endless, name), CHAT
        yield f"{name} is a pipe", partial(piped, name), CHAT
        yield f"{name} is a terabyte", partial(sparse, name), CHAT
    for name in (
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "model.safetensors.index.json",
    ):
        for what, text in {"brackets": DEEP, "a list": "[]", "bytes": b"\xff\x00"}.items():
            yield f"{name} of {what}", partial(indexed, name, text), CHAT


def indexed(name: str, text: str | bytes, folder: Path, at: Place) -> None:
    if name.endswith("index.json"):
        (folder / "model.safetensors").unlink()
    written(name, text, folder, at)


# weights


def tensors(header: object, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def weights() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    def one(**more) -> dict:
        return {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | more}

    two = one() | {"b": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}
    for what, data in {
        "a header of 2^60 bytes": tensors({}, length=2**60),
        "a header of 2^63": tensors({}, length=2**63),
        "a header of all bits": tensors({}, length=2**64 - 1),
        "no header": tensors({}, length=0),
        "overlapping offsets": tensors(two),
        "offsets of 2^60": tensors(one(data_offsets=[0, 2**60])),
        "a shape of 2^60": tensors(one(shape=[2**60])),
        "a shape that overflows": tensors(one(shape=[2**32] * 3)),
        "negative offsets": tensors(one(data_offsets=[-8, 8])),
        "a shape of text": tensors(one(shape="x")),
        "an unknown dtype": tensors(one(dtype="F7")),
        "brackets": tensors(DEEP.encode()),
        "a list": tensors([1]),
        "numbers": tensors({"a": 1}),
        "zero by 2^60": tensors(one(shape=[0, 2**60], data_offsets=[0, 0]), b""),
        "a million dimensions": tensors(one(shape=[1] * 10**6)),
        "300,000 empty tensors": tensors(
            {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(300_000)}, b""
        ),
    }.items():
        yield f"weights with {what}", partial(written, "model.safetensors", data), CHAT
    for what, raw in {
        "paths": {"weight_map": {"a": "../x.safetensors"}},
        "numbers": {"weight_map": {"a": 1}},
        "itself": {"weight_map": {"a": "model.safetensors.index.json"}},
        "no map": {"weight_map": []},
        "a null": {"weight_map": {"a": "a\0.safetensors"}},
    }.items():
        yield f"an index of {what}", partial(indexed, "model.safetensors.index.json", json.dumps(raw)), CHAT


def adapters() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    sound = {"peft_type": "LORA", "base_model_name_or_path": "tiny-chat", "lora_alpha": 4, "r": 2}
    for what, raw in {
        "an alpha of nan": {"lora_alpha": float("nan")},
        "an alpha of text": {"lora_alpha": "x"},
        "an alpha of true": {"lora_alpha": True},
        "itself as its base": {"base_model_name_or_path": "bad"},
        "a base of lists": {"base_model_name_or_path": [1]},
        "a base of nul": {"base_model_name_or_path": "a\0b"},
        "a base of a megabyte": {"base_model_name_or_path": "x" * 10**6},
        "a kind of lists": {"peft_type": []},
        "layers of numbers": {"modules_to_save": [1, "score"]},
        "a number for layers": {"modules_to_save": 3},
        "a bias of lists": {"bias": []},
        "a start of lists": {"init_lora_weights": [[]]},
        "an alpha of 10^400": {"lora_alpha": 10**400},
        "an alpha of inf": {"lora_alpha": float("inf")},
        "nothing odd": {},
    }.items():
        yield f"an adapter with {what}", partial(adapter, sound | raw), CHAT


def adapter(raw: dict, folder: Path, _) -> None:
    import torch
    from safetensors.torch import save_file

    for path in folder.iterdir():
        path.unlink()
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    save_file(
        {f"{name}.lora_A.weight": torch.zeros(0, 128), f"{name}.lora_B.weight": torch.zeros(128, 0)},
        folder / "adapter_model.safetensors",
    )
    (folder / "adapter_config.json").write_text(json.dumps(raw))


def templated(text: str, folder: Path, _) -> None:
    (folder / "chat_template.jinja").write_text(text)


def templates() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    for what, text in BOMBS.items():
        yield f"a template with {what}", partial(templated, text), CHAT
    for kind, change in (("endless", endless), ("a pipe", piped), ("a terabyte", sparse)):
        yield f"a template that is {kind}", partial(change, "chat_template.jinja"), CHAT


# code beside the weights


class Ran:
    """As a pickle: a folder is made where nothing may change."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def pickled(name: str, folder: Path, at: Place) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps({"a": Ran(at.outside / "ran")}))


def programmed(file: str, raw: dict, folder: Path, at: Place) -> None:
    """Code that names itself in a JSON file, as trust_remote_code runs it."""
    (folder / "theirs.py").write_text(f"import os\nos.mkdir({str(at.outside / 'ran')!r})\nclass A: pass\n")
    said(file, raw, folder, at)


def programs() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    for name in ("pytorch_model.bin", "model.pt", "model.ckpt", "consolidated.00.pth", "model.pkl"):
        yield f"a pickle that runs, {name}", partial(pickled, name), CHAT
    names = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer")
    for name in names:
        raw = {"auto_map": {name: "theirs.A"}}
        yield f"code for {name}", partial(programmed, "config.json", raw), CHAT
        yield (f"code for {name} of a kind of its own",
               partial(programmed, "config.json", raw | {"model_type": "theirs"}), CHAT)
    yield ("code for a tokenizer", partial(programmed, "tokenizer_config.json",
                                           {"auto_map": {"AutoTokenizer": ["theirs.A", None]}}), CHAT)


def cases() -> Iterator[Case]:
    for group in (programs, configs, weights, adapters, tokenizers, templates):
        for name, change, words in group():
            yield Case(f"model: {name}", partial(spoilt, change), words)
