"""Tools are Python functions: JSON schemas from signature and docstring, and the tool calls in a reply.

A call has one of two forms:
    <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>    Qwen's and Hermes's
    <tool>calc 12*34</tool>                                                  a name and its one argument
A malformed call is data: `malformed` lists it in a sentence, for the environment to answer.

Not transformers.utils.get_json_schema: that needs transformers, and refuses a tool without a docstring, a
type hint or an `Args:` line for each argument.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from postgrad.models.chat.inert import BROKEN, LONE
from postgrad.system.json_text import strict_json

KINDS: dict[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", tuple: "array",
    dict: "object", type(None): "null"}
WRITTEN = re.compile(r"<(tool|tool_call)>(.*?)(</\1>|\Z)", re.DOTALL)
LONGEST = 4000  # characters of a tool's result that are shown


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool call with arguments that fit the tool; call.run() returns the result as text."""

    name: str
    arguments: Mapping[str, Any]
    function: Callable[..., object] = field(repr=False, compare=False)

    def run(self) -> str:
        """The tool's result; where it raises, the error, for the model to read."""
        try:
            result = self.function(**self.arguments)
            text = result if isinstance(result, str) else json.dumps(result, default=str)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, or its result when written
            text = f"error: {type(error).__name__}: {' '.join(str(error).split())}"
        text = LONE.sub(BROKEN, text)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]} (cut)"

    def message(self) -> dict[str, str]:
        return {"role": "tool", "content": self.run()}


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """One turn of the model: text, tool calls, malformed calls (a sentence each), and tokens with their
    log-probs where it was sampled."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    tokens: tuple[int, ...] = field(default=(), repr=False)
    logp: tuple[float, ...] = field(default=(), repr=False)


def append_messages(messages: Sequence[Mapping[str, Any]],
                    added: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation with an environment's messages; {"joins": True}: appended to the message before.

    added_to([{"role": "user", "content": "Go. "}], [{"role": "user", "content": "A 5.", "joins": True}])
      -> [{"role": "user", "content": "Go. A 5."}]
    """
    out = [dict(message) for message in messages]
    for message in added:
        plain = {key: value for key, value in message.items() if key != "joins"}
        if message.get("joins") and out and out[-1]["role"] == plain["role"]:
            plain |= {"content": out.pop()["content"] + plain["content"]}
        out.append(plain)
    return out


def tool_schema(function: Callable[..., object]) -> dict[str, Any]:
    """{"type": "function", "function": {"name", "description", "parameters"}}: types from the signature,
    descriptions from the docstring and its `Args:`."""
    hints, parameters = get_type_hints(function), inspect.signature(function).parameters
    description, by_name = parse_docstring(function)
    for name, p in parameters.items():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(f"tool {function.__name__}: *{name} has no schema: name each argument.")
    properties = {name: json_type(hints.get(name, str))
                  | ({"description": by_name[name]} if name in by_name else {}) for name in parameters}
    required = [name for name, p in parameters.items() if p.default is p.empty]
    return {"type": "function", "function": {
        "name": function.__name__, "description": description,
        "parameters": {"type": "object", "properties": properties, "required": required}}}


def parse_docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The first paragraph of a docstring, and the description of each argument in its `Args:`."""
    text, _, args = (inspect.getdoc(function) or "").partition("Args:")
    lines = [line.strip() for line in args.split("\n\n")[0].splitlines() if ":" in line]
    named = {name.split("(")[0].strip(): about.strip()
             for name, _, about in (line.partition(":") for line in lines)}
    return " ".join(text.split("\n\n")[0].split()), named


def json_type(hint: object) -> dict[str, Any]:
    """A type hint as JSON schema."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": KINDS.get(type(inside[0]), "string"), "enum": list(inside)}
    if origin in (Union, types.UnionType):
        kinds = [json_type(x) for x in inside]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    kind = {"type": KINDS.get(origin or hint, "string")}
    return kind | {"items": json_type(inside[0])} if kind["type"] == "array" and inside else kind


def read_reply(text: str, tools: Sequence[Callable[..., object]]) -> ModelReply:
    """A reply's text and tool calls; without tools, text alone."""
    if not tools:
        return ModelReply(text=text)
    named = {tool.__name__: tool for tool in tools}
    calls, malformed = [], []
    for form, inside, end in WRITTEN.findall(text):
        try:
            if not end:
                raise ValueError(f"<{form}> without </{form}>")
            name, given = _json_call(inside) if form == "tool_call" else _short_call(inside, named)
            calls.append(ToolCall(name=name, arguments=bind_arguments(named, name, given),
                                  function=named[name]))
        except ValueError as error:
            malformed.append(f"{error}: {inside[:60]!r}")
    return ModelReply(text=text, tool_calls=tuple(calls), malformed=tuple(malformed))


def _json_call(inside: str) -> tuple[str, dict[str, Any]]:
    try:
        call = strict_json(inside)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a call is one JSON object ({' '.join(str(error).split())[:100]})") from None
    arguments = call.get("arguments", {}) if isinstance(call, dict) else None
    if not isinstance(arguments, dict) or not isinstance(call.get("name"), str):
        raise ValueError('a call is {"name": ..., "arguments": {...}}')
    return call["name"], arguments


def _short_call(inside: str, named: Mapping[str, Callable[..., object]]) -> tuple[str, dict[str, Any]]:
    name, _, rest = inside.strip().partition(" ")
    parameters = list(inspect.signature(named[name]).parameters) if name in named else [""]
    if not parameters:
        return name, {}
    if len(parameters) > 1:
        raise ValueError(f"{name} takes {len(parameters)} arguments: call it as <tool_call>")
    return name, {parameters[0]: rest.strip()}


def bind_arguments(named: Mapping[str, Callable[..., object]], name: str,
                   given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments bound to the tool's parameters, numeric strings parsed; ValueError on a misfit."""
    if name not in named:
        raise ValueError(f"there is no tool {name[:20]!r}, there is {', '.join(named)}")
    try:
        bound = inspect.signature(named[name]).bind(**given).arguments
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    hints = get_type_hints(named[name])
    for key, value in bound.items():
        wanted = hints.get(key)
        if wanted in (int, float) and (isinstance(value, str) or type(value) is int):
            try:
                bound[key] = wanted(value)
            except (ValueError, OverflowError):
                raise ValueError(f"{name}: {key} is no {KINDS[wanted]}") from None
            if not math.isfinite(bound[key]):
                raise ValueError(f"{name}: {key} is no finite number")
        elif isinstance(wanted, type) and wanted in KINDS and not isinstance(value, wanted):
            raise ValueError(f"{name}: {key} is no {KINDS[wanted]}")
    return dict(bound)
