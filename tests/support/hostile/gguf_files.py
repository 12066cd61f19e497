"""GGUF files whose counts, kinds and facts are not what they seem."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from hostile.drive import Case, Place
from hostile.run_files import endless, sparse

FETCH = ("fetch", "bad.gguf", "--out", "out")


def text(x: str) -> bytes:
    return struct.pack("<Q", len(x.encode())) + x.encode()


def gguf(
    *pairs: bytes, tensors: bytes = b"", count: int | None = None, many: int = 0, version: int = 3
) -> bytes:
    return (
        b"GGUF"
        + struct.pack("<IQQ", version, many, len(pairs) if count is None else count)
        + b"".join(pairs)
        + tensors
        + b"\0" * 64
    )


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


def tensor(
    name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0, count: int | None = None
) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(dims) if count is None else count)
        + struct.pack(f"<{len(dims)}Q", *dims)
        + struct.pack("<IQ", kind, offset)
    )


def ggufs() -> Iterator[tuple[str, bytes]]:
    kind = pair("general.architecture", 8, text("llama"))
    for code, what in ((0, "bytes"), (4, "numbers"), (8, "texts"), (9, "arrays"), (12, "doubles")):
        yield f"an array of 2^60 {what}", gguf(kind, pair("x", 9, array(code, 2**60)))
    yield "an array of 2^64-1", gguf(kind, pair("x", 9, array(4, 2**64 - 1)))
    yield "arrays nested 10,000 deep", gguf(kind, pair("x", 9, array(9, 1) * 10_000))
    yield "a text of 2^60", gguf(kind, pair("x", 8, struct.pack("<Q", 2**60)))
    yield "a name of 2^60", gguf(kind, struct.pack("<Q", 2**60))
    yield "2^60 facts", gguf(kind, count=2**60)
    yield "2^60 tensors", gguf(kind, many=2**60)
    yield "an array of an unknown kind", gguf(kind, pair("x", 9, array(99, 3)))
    yield "a fact of an unknown kind", gguf(kind, pair("x", 99, b"\0" * 8))
    yield "a fact twice", gguf(kind, kind)
    yield (
        "an alignment of 0",
        gguf(kind, pair("general.alignment", 4, struct.pack("<I", 0)), many=1, tensors=tensor("a", (4,))),
    )
    yield (
        "an alignment of 2^31",
        gguf(kind, pair("general.alignment", 4, struct.pack("<I", 2**31)), many=1, tensors=tensor("a", (4,))),
    )
    yield "a tensor of 2^60", gguf(kind, many=1, tensors=tensor("a", (2**60,)))
    yield "a tensor that overflows", gguf(kind, many=1, tensors=tensor("a", (2**32, 2**32, 2**32)))
    yield "a tensor of 2^31 dimensions", gguf(kind, many=1, tensors=tensor("a", (1,), count=2**31))
    yield "a tensor beyond the file", gguf(kind, many=1, tensors=tensor("a", (4,), offset=2**60))
    yield "a tensor of an unknown kind", gguf(kind, many=1, tensors=tensor("a", (4,), kind=999))
    yield "one tensor twice", gguf(kind, many=2, tensors=tensor("a", (4,)) * 2)
    yield "no architecture", gguf(pair("x", 8, text("y")))
    yield "an architecture of numbers", gguf(pair("general.architecture", 4, struct.pack("<I", 3)))
    yield (
        "an architecture in an array",
        gguf(pair("general.architecture", 9, array(4, 1, struct.pack("<I", 3)))),
    )
    yield "another version", gguf(kind, version=99)
    yield "another byte order", gguf(kind, version=3 << 24)
    yield "no file", b""
    yield "four letters", b"GGUF"
    yield (
        "a text that is no text",
        gguf(pair("general.architecture", 8, struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc")),
    )


def facts(changes: dict, at: Place) -> None:
    """A whole file of a model with some facts changed."""
    sound = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 8,
        "attention.head_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    named = {
        f"llama.{key}": value for key, value in (sound | changes).items() if not key.startswith("tokenizer")
    }
    named |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.token_type": [1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
    }
    named |= {key: value for key, value in changes.items() if key.startswith("tokenizer")}
    (at.inside / "bad.gguf").write_bytes(
        gguf(
            pair("general.architecture", 8, text("llama")),
            *(pair(key, *coded(value)) for key, value in named.items()),
        )
    )


def coded(value: object) -> tuple[int, bytes]:
    if isinstance(value, list):
        inside = [coded(x) for x in value]
        return 9, array(inside[0][0] if inside else 4, len(value), b"".join(data for _, data in inside))
    if isinstance(value, str):
        return 8, text(value)
    return (6, struct.pack("<f", value)) if isinstance(value, float) else (11, struct.pack("<q", value))


FACTS = (
    {"block_count": 10**7},
    {"block_count": "x"},
    {"block_count": -1},
    {"block_count": [1, 2]},
    {"block_count": 0},
    {"attention.head_count": 0},
    {"attention.head_count": [2]},
    {"embedding_length": 2**40},
    {"embedding_length": "x"},
    {"attention.layer_norm_rms_epsilon": float("nan")},
    {"attention.layer_norm_rms_epsilon": "x"},
    {"rope.freq_base": "x"},
    {"context_length": -5},
    {"feed_forward_length": []},
    {"tokenizer.ggml.tokens": [1, 2]},
    {"tokenizer.ggml.tokens": "x"},
    {"tokenizer.ggml.merges": ["ab"]},
    {"tokenizer.ggml.merges": [1]},
    {"tokenizer.ggml.token_type": [1]},
    {"tokenizer.ggml.token_type": "x"},
    {"tokenizer.ggml.eos_token_id": 2**40},
    {"tokenizer.ggml.eos_token_id": -1},
    {"tokenizer.ggml.eos_token_id": "x"},
    {"tokenizer.ggml.model": [1]},
    {"tokenizer.ggml.tokens": ["a", "a"]},
    {"tokenizer.chat_template": 3},
    {"attention.key_length": 3},
    {},
    {"tokenizer.ggml.merges": ["a c"]},
    {"tokenizer.ggml.merges": ["b a"]},
)


def placed(data: bytes, at: Place) -> None:
    (at.inside / "bad.gguf").write_bytes(data)


def cases() -> Iterator[Case]:
    for name, data in ggufs():
        yield Case(f"gguf: {name}", partial(placed, data), FETCH)
    for changes in FACTS:
        yield Case(f"gguf: {str(changes)[:60]}", partial(facts, changes), FETCH)
    for kind, change in (("endless", endless), ("a terabyte", sparse)):
        yield Case(f"gguf: {kind}", lambda at, change=change: change("bad.gguf", at.inside, at), FETCH)
