"""Tool calls in a model's reply, and which part of a streamed reply may be shown before they are known.

Three formats are parsed: <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen),
a bare object of that kind as the whole reply (Llama 3, with "parameters"), and <tool>NAME ARGUMENT</tool>,
for tools with one argument or none (tiny-tools). A malformed call stays text.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

ToolSchemas = Mapping[str, Mapping[str, dict[str, Any]]]  # by name: the schema of each parameter
OPEN = ("<tool>", "<tool_call>")
CALL = re.compile(r"<(tool|tool_call)>(.*?)(</\1>|\Z)", re.DOTALL)
NUMBERS = {"integer": int, "number": float}


def read_calls(text: str, tools: ToolSchemas) -> tuple[str, list[dict[str, Any]]]:
    """The text without its calls, and the calls of these tools."""
    if (bare := parse_json_call(text, tools)) is not None:
        return "", [bare]
    calls: list[dict[str, Any]] = []

    def take(found: re.Match[str]) -> str:
        form, inside, end = found.groups()
        call = (parse_json_call(inside, tools) if form == "tool_call"
                else parse_short_call(inside, tools) if end else None)
        if call is None:
            return found[0]
        calls.append(call)
        return ""

    left = CALL.sub(take, text)
    return (left.rstrip() if calls else text), calls


def parse_json_call(text: str, tools: ToolSchemas) -> dict[str, Any] | None:
    """{"name": "add", "arguments": {"a": 1}} -> the tool call of a message."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name, arguments = found.get("name"), found.get("arguments", found.get("parameters", {}))
    known = isinstance(name, str) and name in tools and isinstance(arguments, dict)
    return tool_call(name, arguments) if known else None


def parse_short_call(text: str, tools: ToolSchemas) -> dict[str, Any] | None:
    """calc 12*34 -> the tool call of a message; a number where the tool takes one."""
    name, _, argument = text.strip().partition(" ")
    schemas = tools.get(name)
    if schemas is None or len(schemas) > 1:
        return None
    try:
        return tool_call(name, {key: NUMBERS.get(kind.get("type", ""), str)(argument.strip())
                           for key, kind in schemas.items()})
    except ValueError:
        return None


def parameter_schemas(function: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each parameter of a tool; {} for one that is no object."""
    found = function.get("parameters", {}).get("properties")
    return {key: kind if isinstance(kind, dict) else {} for key, kind in found.items()} if isinstance(
        found, dict) else {}


def tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


class ToolCallBuffer:
    """Pieces of a reply that may hold calls: what may be the beginning of one is held back to the end."""

    def __init__(self) -> None:
        self.text, self.shown = "", 0

    def add(self, piece: str) -> str:
        self.text += piece
        to = len(self.text)
        if not self.text.strip() or self.text.lstrip().startswith("{"):
            to = 0
        elif found := [self.text.index(mark) for mark in OPEN if mark in self.text]:
            to = min(found)
        else:
            to -= max(n for mark in OPEN for n in range(len(mark)) if self.text.endswith(mark[:n]))
        return self.show(to)

    def end(self, tools: ToolSchemas) -> tuple[str, list[dict[str, Any]]]:
        """The text not shown yet, and the calls."""
        left, calls = read_calls(self.text, tools)
        return left[self.shown:], calls

    def show(self, to: int) -> str:
        piece, self.shown = self.text[self.shown: to], max(to, self.shown)
        return piece
