"""Tokens to text by a table, for tokenizers that spell in bytes (GPT-2's way, which Llama 3, Qwen and SmolLM
have too): a step's replies come at once, and then their text is what the GPU waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

# the byte that each character stands for: itself where it can be seen, the others from U+0100 on
SEEN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
HIDDEN = [byte for byte in range(256) if byte not in SEEN]
BYTES = {byte: byte for byte in SEEN} | {256 + i: byte for i, byte in enumerate(HIDDEN)}


class ByteTable:
    """The bytes of all tokens end to end, how many each has, and where they begin; of control tokens, and of
    numbers that are no token, none."""

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
        """None where the tokenizer makes text in another way."""
        decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
        return cls(tokenizer) if decoder.get("type") == "ByteLevel" else None

    def texts(self, rows: Sequence[Any]) -> list[str]:
        """As the tokenizer decodes them; what is no text in UTF-8 becomes U+FFFD. Of rows that are begun
        (sampler/numbers.py) only the rest is spelled."""
        begun = [getattr(row, "begun", (0, b"")) for row in rows]
        rest = [row.array[n:] if n else row for row, (n, _) in zip(rows, begun, strict=True)]
        return [(said + more).decode("utf-8", "replace")
                for (_, said), more in zip(begun, self.spelled(rest), strict=True)]

    def spelled(self, rows: Sequence[Sequence[int]]) -> list[bytes]:
        from postgrad.maths.packing import concat_rows  # here: it loads torch
        tokens = np.minimum(concat_rows(rows), len(self.size) - 1)
        size = self.size[tokens]
        ends = np.concatenate([[0], size.cumsum()])  # of each token, in the bytes of all rows
        whole = self.bytes[np.repeat(self.first[tokens] - ends[:-1], size) + np.arange(ends[-1])].tobytes()
        cuts = ends[np.cumsum([0, *map(len, rows)])].tolist()
        return [whole[a:b] for a, b in pairwise(cuts)]


def token_bytes(name: str) -> bytes:
    """A token that was added may have characters that stand for no byte: it is what it says."""
    known = all(ord(character) in BYTES for character in name)
    return name.translate(BYTES).encode("latin-1") if known else name.encode()
