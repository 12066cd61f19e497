"""Tokens to text by a table, for tokenizers that spell in bytes (GPT-2's way, which Llama 3, Qwen and SmolLM
have too): a step's replies come at once, and then their text is what the GPU waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter

from tokenizers import Tokenizer

# the byte that each character stands for: itself where it can be seen, the others from U+0100 on
SEEN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
HIDDEN = [byte for byte in range(256) if byte not in SEEN]
BYTES = {byte: byte for byte in SEEN} | {256 + i: byte for i, byte in enumerate(HIDDEN)}


class Spelling:
    """table: the bytes of each token; of control tokens, and of numbers that are no token, none."""

    def __init__(self, tokenizer: Tokenizer):
        names = tokenizer.get_vocab()
        self.table = [b""] * (1 + max(names.values(), default=-1))
        for name, i in names.items():
            self.table[i] = spelled(name)
        for i, token in tokenizer.get_added_tokens_decoder().items():
            if token.special:
                self.table[i] = b""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Spelling | None:
        """None where the tokenizer makes text in another way."""
        decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
        return cls(tokenizer) if decoder.get("type") == "ByteLevel" else None

    def text(self, tokens: Sequence[int]) -> str:
        """As the tokenizer decodes them; what is no text in UTF-8 becomes U+FFFD."""
        try:
            parts = itemgetter(*tokens, *tokens[:1])(self.table)[: len(tokens)]  # of one it would be no tuple
        except (IndexError, TypeError):  # numbers that are no token, or none at all
            parts = [self.table[token] for token in tokens if token < len(self.table)]
        return b"".join(parts).decode("utf-8", "replace")


def spelled(name: str) -> bytes:
    """A token that was added may have characters that stand for no byte: it is what it says."""
    known = all(ord(character) in BYTES for character in name)
    return name.translate(BYTES).encode("latin-1") if known else name.encode()
