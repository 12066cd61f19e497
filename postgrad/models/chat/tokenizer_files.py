"""Reads a tokenizer's files, which are untrusted: size limits, and an error for each fault."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from postgrad.system.files import error_text, is_fault, load_json, read_text

LARGEST = 2**28  # bytes of a tokenizer.json
GROWTH = 64      # times that a text may become longer on its way to tokens or back


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} where there is no file."""
    try:
        found = load_json(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: {error_text(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return found


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file, with padding and truncation off."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} has over {LARGEST:,} bytes")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:  # the library raises plain Exception, and where it panics BaseException
        if is_fault(error):
            raise ValueError(f"{path.name}: {error_text(error)}") from None
        raise
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for part in (tokenizer.normalizer, tokenizer.decoder):
        if part is not None and text_growth(json.loads(part.__getstate__())) > GROWTH:
            raise ValueError(f"{path.name}: it makes a text more than {GROWTH} times as long")
    return tokenizer


def text_growth(part: object) -> float:
    """By how much a normalizer or decoder may lengthen a text, from what it replaces and prepends."""
    if isinstance(part, list):
        return math.prod(map(text_growth, part))
    if not isinstance(part, dict):
        return 1
    own = 1.0
    if part.get("type") == "Replace":
        pattern, content = part.get("pattern") or {}, len(part.get("content") or "")
        own = max(1, content / max(1, len(pattern["String"]))) if "String" in pattern else 1 + content
    elif part.get("type") == "Prepend":
        own = max(1, len(part.get("prepend") or "") / 4)
    return own * math.prod(text_growth(value) for value in part.values() if isinstance(value, list | dict))


def token_text(name: str, value: object) -> str:
    """The text of a special token, given as a string or as an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise ValueError(f"{name} is {value!r:.60}, and must be a text")
    return text


def read_template(folder: Path, raw: Mapping[str, Any]) -> str:
    """The chat template: chat_template.jinja, or tokenizer_config.json's, the default of several."""
    file = folder / "chat_template.jinja"
    template = read_text(file) if file.is_file() else raw.get("chat_template")
    if isinstance(template, list):
        listed = [x for x in template if isinstance(x, dict) and x.get("name") == "default"]
        template = listed[0].get("template") if listed else None
    if not isinstance(template, str):
        raise ValueError(f"{folder}/tokenizer_config.json has no chat_template: add one in a file "
                         "chat_template.jinja beside it, or use the model's instruct or chat version, which "
                         "has one (a base model has none).")
    return template
