"""Calls of tools in what a model wrote, and which part of a growing text may be shown before they are known.

Two ways of writing them are read: <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen),
and a bare object of that kind as the whole reply (Llama 3, with "parameters"). What is no whole call stays
text: a malformed one is data for whoever reads it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection

OPEN, CLOSE = "<tool_call>", "</tool_call>"
CALL = re.compile(re.escape(OPEN) + r"(.*?)(?:" + re.escape(CLOSE) + r"|\Z)", re.DOTALL)


def read_calls(text: str, names: Collection[str]) -> tuple[str, list[dict]]:
    """The text without its calls, and the calls of functions with these names."""
    if (bare := read_call(text, names)) is not None:
        return "", [bare]
    calls = []

    def take(found: re.Match) -> str:
        call = read_call(found[1], names)
        if call is None:
            return found[0]
        calls.append(call)
        return ""

    left = CALL.sub(take, text)
    return (left.rstrip() if calls else text), calls


def read_call(text: str, names: Collection[str]) -> dict | None:
    """{"name": "add", "arguments": {"a": 1}} -> as a reply has it."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if found.get("name") not in names or not isinstance(arguments, dict):
        return None
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
            "function": {"name": found["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}}


class Holding:
    """Pieces of a reply that may hold calls: what may be the beginning of one waits for the end."""

    def __init__(self):
        self.text, self.shown = "", 0

    def add(self, piece: str) -> str:
        self.text += piece
        to = len(self.text)
        if not self.text.strip() or self.text.lstrip().startswith("{"):
            to = 0
        elif OPEN in self.text:
            to = self.text.index(OPEN)
        else:
            to -= next(n for n in range(len(OPEN) - 1, -1, -1) if self.text.endswith(OPEN[:n]))
        return self.show(to)

    def end(self, names: Collection[str]) -> tuple[str, list[dict]]:
        """What is left to show, and the calls."""
        left, calls = read_calls(self.text, names)
        return left[self.shown:], calls

    def show(self, to: int) -> str:
        piece, self.shown = self.text[self.shown: to], max(to, self.shown)
        return piece
