"""Calls of tools in what a model wrote, and which part of a growing text may be shown before they are known.

Three ways of writing them are read: <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen),
a bare object of that kind as the whole reply (Llama 3, with "parameters"), and <tool>NAME ARGUMENT</tool>,
for tools with one argument or none (tiny-tools). What is no whole call stays text: a malformed one is data
for whoever reads it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping

Tools = Mapping[str, Mapping[str, dict]]  # by name: the schema of each parameter
OPEN = ("<tool>", "<tool_call>")
CALL = re.compile(r"<(tool|tool_call)>(.*?)(</\1>|\Z)", re.DOTALL)
NUMBERS = {"integer": int, "number": float}


def read_calls(text: str, tools: Tools) -> tuple[str, list[dict]]:
    """The text without its calls, and the calls of these tools."""
    if (bare := read_call(text, tools)) is not None:
        return "", [bare]
    calls = []

    def take(found: re.Match) -> str:
        form, inside, end = found.groups()
        call = read_call(inside, tools) if form == "tool_call" else read_short(inside, tools) if end else None
        if call is None:
            return found[0]
        calls.append(call)
        return ""

    left = CALL.sub(take, text)
    return (left.rstrip() if calls else text), calls


def read_call(text: str, tools: Tools) -> dict | None:
    """{"name": "add", "arguments": {"a": 1}} -> as a reply has it."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name, arguments = found.get("name"), found.get("arguments", found.get("parameters", {}))
    known = isinstance(name, str) and name in tools and isinstance(arguments, dict)
    return made(name, arguments) if known else None


def read_short(text: str, tools: Tools) -> dict | None:
    """calc 12*34 -> as a reply has it; a number where the tool takes one."""
    name, _, given = text.strip().partition(" ")
    parameters = tools.get(name)
    if parameters is None or len(parameters) > 1:
        return None
    try:
        return made(name, {key: NUMBERS.get(kind.get("type", ""), str)(given.strip())
                           for key, kind in parameters.items()})
    except ValueError:
        return None


def parameters(function: dict) -> dict[str, dict]:
    """Of a tool as a request names it: the schema of each parameter, {} for one that is none."""
    found = function.get("parameters", {}).get("properties")
    return {key: kind if isinstance(kind, dict) else {} for key, kind in found.items()} if isinstance(
        found, dict) else {}


def made(name: str, arguments: dict) -> dict:
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


class Holding:
    """Pieces of a reply that may hold calls: what may be the beginning of one waits for the end."""

    def __init__(self):
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

    def end(self, tools: Tools) -> tuple[str, list[dict]]:
        """What is left to show, and the calls."""
        left, calls = read_calls(self.text, tools)
        return left[self.shown:], calls

    def show(self, to: int) -> str:
        piece, self.shown = self.text[self.shown: to], max(to, self.shown)
        return piece
