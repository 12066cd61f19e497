"""Detokenisation by a byte table, for byte-level tokenizers (GPT-2, Llama 3, Qwen, SmolLM). A step's replies
end together, and the GPU waits for their text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

# GPT-2: printable bytes stand for themselves, the others from U+0100 on
SEEN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
HIDDEN = [byte for byte in range(256) if byte not in SEEN]
BYTES = {byte: byte for byte in SEEN} | {256 + i: byte for i, byte in enumerate(HIDDEN)}


class ByteTable:
    """The bytes of all tokens end to end, with length and offset of each; special tokens and unknown ids have
    none."""

    def __init__(self, tokenizer: Tokenizer):
        names = tokenizer.get_vocab()
        table = [b""] * (2 + max(names.values(), default=-1))  # the last one is no token
        for name, i in names.items():
            table[i] = token_bytes(name)
        for i, token in tokenizer.get_added_tokens_decoder().items():
            if token.special:
                table[i] = b""
        self.bytes = np.frombuffer(b"".join(table), np.uint8)
        self.size = np.array([len(x) for x in table])
        self.first = self.size.cumsum() - self.size

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ByteTable | None:
        """None for a tokenizer that is not byte-level."""
        decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
        return cls(tokenizer) if decoder.get("type") == "ByteLevel" else None

    def texts(self, rows: Sequence[Any]) -> list[str]:
        """As the tokenizer decodes them; invalid UTF-8 becomes U+FFFD. A row with `begun` (tokens, bytes) has
        that prefix decoded already (sampling)."""
        begun = [getattr(row, "begun", (0, b"")) for row in rows]
        rest = [row.array[n:] if n else row for row, (n, _) in zip(rows, begun, strict=True)]
        return [(first + more).decode("utf-8", "replace")
                for (_, first), more in zip(begun, self.spelled(rest), strict=True)]

    def spelled(self, rows: Sequence[Sequence[int]]) -> list[bytes]:
        from postgrad.maths.packing import concat_rows  # here: it loads torch
        tokens = np.minimum(concat_rows(rows), len(self.size) - 1)
        size = self.size[tokens]
        ends = np.concatenate([[0], size.cumsum()])  # of each token, in the bytes of all rows
        whole = self.bytes[np.repeat(self.first[tokens] - ends[:-1], size) + np.arange(ends[-1])].tobytes()
        cuts = ends[np.cumsum([0, *map(len, rows)])].tolist()
        return [whole[a:b] for a, b in pairwise(cuts)]


def token_bytes(name: str) -> bytes:
    """The bytes of a vocabulary entry; an added token with other characters is UTF-8."""
    known = all(ord(character) in BYTES for character in name)
    return name.translate(BYTES).encode("latin-1") if known else name.encode()
