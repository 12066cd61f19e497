"""The texts in messages and tools: each is found and changed wherever it stands, names and keys included; the
fields that templates read are keys that stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

BROKEN = "\ufffd"  # where a text is broken up that a space does not break, and for half a character
LONE = re.compile("[\ud800-\udfff]")
FIELDS = frozenset(("role", "content", "reasoning_content", "thinking", "name", "type", "text", "id",
                    "function", "arguments", "tool_calls", "tool_call_id", "weight", "parameters",
                    "properties", "items", "required", "enum", "description"))
ROLES = frozenset(("system", "user", "assistant", "tool", "developer", "function"))


class SpokenText(str):
    """A reply that this model sampled, in its own turn of a conversation that goes on: the control tokens in
    it are tokens that it has sampled."""


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value of lists and objects with every text in it changed, keys included except FIELDS."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key if key in FIELDS or not isinstance(key, str) else change(key):
                inside if key == "role" and inside in ROLES else map_texts(inside, change)
                for key, inside in value.items()}
    return [map_texts(inside, change) for inside in value] if isinstance(value, list | tuple) else value


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value of lists and objects, keys and names of roles aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            if key != "role" or inside not in ROLES:
                yield from texts_in(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from texts_in(inside)
