"""Messages and tools of a request, as the model's chat template takes them; tool calls in a reply, and which
part of a streamed reply may be shown before they are known.

Three formats of calls are parsed: <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen), a
bare object of that kind as the whole reply (Llama 3, with "parameters"), and <tool>NAME ARGUMENT</tool>, for
tools with one argument or none (tiny-tools). A malformed call stays text.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postgrad.models.chat import Chat
from postgrad.serving.request_body import Refusal, RequestBody
from postgrad.system.json_text import shorten_value, strict_json

ROLES = ("system", "user", "assistant", "tool")
MOST_TOOLS = 128


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """text: as the chat template shows them, with the generation prompt."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    text: str

    @classmethod
    def read(cls, body: RequestBody, chat: Chat) -> ChatMessages:
        listed = body.take("messages", list)
        if not listed:
            body.refuse("messages", "is empty: there has to be at least one")
        messages = [read_message(one, f"messages[{i}].") for i, one in enumerate(listed)]
        tools = [read_tool(one, f"tools[{i}].") for i, one in enumerate(body.take("tools", list, []))]
        if len(tools) > MOST_TOOLS:
            body.refuse("tools", f"has {len(tools)} tools, and {MOST_TOOLS} are taken at most")
        choice = body.left.pop("tool_choice", None)
        if choice not in (None, "auto", "none"):
            body.refuse("tool_choice", f"is {shorten_value(choice)}, which this server does not honour: a "
                                       "call can't be forced; use auto or none")
        if choice == "none":
            tools = []
        text = rendered_text(chat, messages, tools)
        if name := chat.left_out(messages, tools):
            where, param = ("", "tools") if name == "tools" else (" in a message", "messages")
            raise Refusal(f"{name}{where} are not honoured: this model's chat template has no place for "
                          "them.", param=param)
        return cls(messages=messages, tools=tools or None, text=text)


def rendered_text(chat: Chat, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None,
                  reply: bool = True) -> str:
    try:
        return chat.text_of(messages, reply=reply, tools=tools or ())
    except ValueError as error:
        raise Refusal(f"the messages can't be shown to the model: {error}", param="messages") from None


def read_message(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refusal(f"{place[:-1]} is {shorten_value(value)}, and has to be an object.", param=place[:-1])
    body = RequestBody(value, place)
    role = body.take("role", str)
    if role not in ROLES:
        body.refuse("role", f"is {shorten_value(role)}, and has to be one of {', '.join(ROLES)}")
    listed = body.take("tool_calls", list, []) if role == "assistant" else []
    calls = [read_tool_call(one, f"{place}tool_calls[{i}].") for i, one in enumerate(listed)]
    message: dict[str, Any] = {"role": role, "content": read_content(body, optional=bool(calls))}
    if calls:
        message["tool_calls"] = calls
    if role == "tool":
        message |= {k: v for k in ("tool_call_id", "name") if (v := body.take(k, str, None)) is not None}
    body.done({"refusal": (), "audio": (), "function_call": (), "tool_calls": ([],), "annotations": ([],),
               "name": ()})
    return message


def read_content(body: RequestBody, optional: bool) -> str:
    """The field content: a text, or parts that are texts."""
    value = body.left.get("content")
    if not isinstance(value, list):
        return str(body.take("content", str, "") if optional else body.take("content", str))
    body.take("content", list)
    texts = []
    for i, part in enumerate(value):
        inside = RequestBody(part if isinstance(part, dict) else {"": part}, f"{body.place}content[{i}].")
        kind = inside.take("type", str)
        if kind != "text":
            inside.refuse("type", f"is {shorten_value(kind)}, and only text is read")
        texts.append(inside.take("text", str))
        inside.done()
    return "".join(texts)


def read_tool_call(value: object, place: str) -> dict[str, Any]:
    """A call that the assistant made: its arguments as an object, which templates write out."""
    body = RequestBody(value if isinstance(value, dict) else {"": value}, place)
    kind = body.take("type", str, "function")
    if kind != "function":
        body.refuse("type", f"is {shorten_value(kind)}, and only functions are called")
    name = body.take("id", str, None)
    inside = RequestBody(body.take("function", dict), f"{place}function.")
    function, text = inside.take("name", str), inside.take("arguments", str)
    inside.done()
    body.done()
    try:
        arguments = strict_json(text)
    except ValueError:
        arguments = text  # what a model wrote need not be JSON
    return {"type": "function", "function": {"name": function, "arguments": arguments}} | (
        {"id": name} if name else {})


def read_tool(value: object, place: str) -> dict[str, Any]:
    """A function: its name, what it does, the schema of its parameters."""
    body = RequestBody(value if isinstance(value, dict) else {"": value}, place)
    kind = body.take("type", str)
    if kind != "function":
        body.refuse("type", f"is {shorten_value(kind)}, and only functions are taken")
    inside = RequestBody(body.take("function", dict), f"{place}function.")
    function: dict[str, Any] = {"name": inside.take("name", str)}
    if not function["name"]:
        inside.refuse("name", "is empty")
    for field, kind_of in (("description", str), ("parameters", dict)):
        if (given := inside.take(field, kind_of, None)) is not None:
            function[field] = given
    inside.done({"strict": (False,)})
    body.done()
    return {"type": "function", "function": function}


ToolSchemas = Mapping[str, Mapping[str, dict[str, Any]]]  # by name: the schema of each parameter
OPEN = ("<tool>", "<tool_call>")
CALL = re.compile(r"<(tool|tool_call)>(.*?)(</\1>|\Z)", re.DOTALL)
NUMBERS = {"integer": int, "number": float}


def read_calls(text: str, tools: ToolSchemas) -> tuple[str, list[dict[str, Any]]]:
    """The text without its calls, and the calls of these tools."""
    if (bare := parse_json_call(text, tools)) is not None:
        return "", [bare]
    calls: list[dict[str, Any]] = []

    def take(match: re.Match[str]) -> str:
        form, inside, end = match.groups()
        call = (parse_json_call(inside, tools) if form == "tool_call"
                else parse_short_call(inside, tools) if end else None)
        if call is None:
            return match[0]
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
        call = strict_json(text)
    except (ValueError, RecursionError):
        return None
    name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
    known = isinstance(name, str) and name in tools and isinstance(arguments, dict)
    return tool_call(name, arguments) if known else None


def parse_short_call(text: str, tools: ToolSchemas) -> dict[str, Any] | None:
    """calc 12*34 -> the tool call of a message; a number where the tool takes one."""
    name, _, argument = text.strip().partition(" ")
    schemas = tools.get(name)
    if schemas is None or len(schemas) > 1:
        return None
    try:
        return tool_call(name, {key: NUMBERS.get(str(kind.get("type", "")), str)(argument.strip())
                           for key, kind in schemas.items()})
    except (ValueError, OverflowError):
        return None


def parameter_schemas(function: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each parameter of a tool; {} for one that is no object."""
    schemas = function.get("parameters", {}).get("properties")
    return {key: kind if isinstance(kind, dict) else {} for key, kind in schemas.items()} if isinstance(
        schemas, dict) else {}


def tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
            "function": {"name": name, "arguments": text}}


class ToolCallBuffer:
    """Pieces of a reply that may hold calls: a possible beginning of one is held back to the end."""

    def __init__(self) -> None:
        self.text, self.shown = "", 0

    def add(self, piece: str) -> str:
        self.text += piece
        to = len(self.text)
        if not self.text.strip() or self.text.lstrip().startswith("{"):
            to = 0
        elif starts := [self.text.index(mark) for mark in OPEN if mark in self.text]:
            to = min(starts)
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
