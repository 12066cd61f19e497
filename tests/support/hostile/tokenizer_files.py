"""Tokenizers and the settings beside them that are not what they seem."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.run_files import said

CHAT = ("chat", "bad", "--prompt", "hi", "--max-new-tokens", "2")


def tokens(change: Callable[[dict], object], folder: Path, _) -> None:
    raw = json.loads((folder / "tokenizer.json").read_text())
    change(raw)
    (folder / "tokenizer.json").write_text(json.dumps(raw))


def growing(count: int, content: str) -> dict:
    one = {"type": "Replace", "pattern": {"Regex": "."}, "content": content}
    return {"type": "Sequence", "normalizers": [one] * count}


def nested(depth: int) -> dict:
    raw: dict = {"type": "NFC"}
    for _ in range(depth):
        raw = {"type": "Sequence", "normalizers": [raw]}
    return raw


def tokenizers() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    def added(**more) -> dict:
        return {
            "id": 5000,
            "content": "<x>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        } | more

    changes: dict[str, Callable[[dict], object]] = {
        "a token of id 2^32-1": lambda raw: raw["model"]["vocab"].update({"<far>": 2**32 - 1}),
        "a token of id 2^40": lambda raw: raw["model"]["vocab"].update({"<far>": 2**40}),
        "a token of id -1": lambda raw: raw["model"]["vocab"].update({"<far>": -1}),
        "two tokens of one id": lambda raw: raw["model"]["vocab"].update({"<again>": 3}),
        "ids far apart": lambda raw: raw["model"].update(
            vocab={k: v * 1000 for k, v in raw["model"]["vocab"].items()}
        ),
        "an added token far away": lambda raw: raw["added_tokens"].append(added(id=2**31)),
        "an empty added token": lambda raw: raw["added_tokens"].append(added(content="")),
        "merges of nothing": lambda raw: raw["model"].update(merges=[["no", "such"]]),
        "merges of numbers": lambda raw: raw["model"].update(merges=[1, 2]),
        "no vocabulary": lambda raw: raw["model"].update(vocab={}, merges=[]),
        "a vocabulary of lists": lambda raw: raw["model"].update(vocab=[]),
        "no model": lambda raw: raw.pop("model"),
        "a model of text": lambda raw: raw.update(model="x"),
        "an unknown model": lambda raw: raw["model"].update(type="Nosuch"),
        "a normalizer that doubles 40 times": lambda raw: raw.update(normalizer=growing(40, "xx")),
        "a normalizer of a megabyte a letter": lambda raw: raw.update(normalizer=growing(3, "x" * 10**6)),
        "a normalizer that prepends": lambda raw: raw.update(
            normalizer={
                "type": "Sequence",
                "normalizers": [{"type": "Prepend", "prepend": "x" * 1000}] * 1000,
            }
        ),
        "a normalizer nested 100,000 deep": lambda raw: raw.update(normalizer=nested(300)),
        "a regex that backtracks": lambda raw: raw.update(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "(.+)+$x"},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "a regex that is none": lambda raw: raw.update(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "("},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "a regex of a huge count": lambda raw: raw.update(
            normalizer={
                "type": "Replace",
                "pattern": {"Regex": "((a{1,99999}){1,99999}){1,99999}"},
                "content": "",
            }
        ),
        "padding to 10^9": lambda raw: raw.update(
            padding={
                "strategy": {"Fixed": 10**9},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "x",
            }
        ),
        "padding to a multiple of 2^60": lambda raw: raw.update(
            padding={
                "strategy": "BatchLongest",
                "direction": "Right",
                "pad_to_multiple_of": 2**60,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "x",
            }
        ),
        "truncation to 0": lambda raw: raw.update(
            truncation={"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 0}
        ),
        "truncation with a stride": lambda raw: raw.update(
            truncation={"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 10**9}
        ),
        "a decoder that grows": lambda raw: raw.update(
            decoder={
                "type": "Sequence",
                "decoders": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "xx"}] * 40,
            }
        ),
        "a decoder of text": lambda raw: raw.update(decoder="x"),
    }
    for what, change in changes.items():
        yield f"tokenizer.json with {what}", partial(tokens, change), CHAT
    for what, raw in {
        "eos of a number": {"eos_token": 3},
        "eos of lists": {"eos_token": []},
        "eos of no content": {"eos_token": {"x": 1}},
        "eos of numbers inside": {"eos_token": {"content": 3}},
        "an eos that is no token": {"eos_token": "<nosuch>"},
        "bos of a list": {"bos_token": [1]},
        "a template of numbers": {"chat_template": 3},
        "templates of numbers": {"chat_template": [1, 2]},
        "templates of lists": {"chat_template": [{"name": [], "template": 3}]},
    }.items():
        yield f"tokenizer_config.json with {what}", partial(said, "tokenizer_config.json", raw), CHAT
    for ends in (2**40, -1, "x", [2**31], [None], {"a": 1}, True, [1.5], 10**30):
        yield (
            f"generation_config.json: eos_token_id {ends!r:.20}",
            partial(said, "generation_config.json", {"eos_token_id": ends}),
            CHAT,
        )
