"""Messages and tools of a request, as the model's chat template takes them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from postgrad.models.chat import Chat
from postgrad.serving.body import Body, short
from postgrad.serving.errors import Refusal

ROLES = ("system", "user", "assistant", "tool")
MOST_TOOLS = 128


@dataclass(frozen=True, kw_only=True)
class Conversation:
    messages: list[dict]
    tools: list[dict] | None

    @classmethod
    def read(cls, body: Body, chat: Chat) -> Conversation:
        given = body.take("messages", list)
        if not given:
            body.refuse("messages", "is empty: there has to be at least one")
        messages = [message(one, f"messages[{i}].") for i, one in enumerate(given)]
        tools = [tool(one, f"tools[{i}].") for i, one in enumerate(body.take("tools", list, []))]
        if len(tools) > MOST_TOOLS:
            body.refuse("tools", f"has {len(tools)} tools, and {MOST_TOOLS} are taken at most")
        choice = body.left.pop("tool_choice", None)
        if choice not in (None, "auto", "none"):
            body.refuse("tool_choice", f"is {short(choice)}, which this server does not honour: a call can't "
                                       "be forced; use auto or none")
        talk = cls(messages=messages, tools=None if choice == "none" else tools or None)
        talk.check(chat)
        return talk

    def check(self, chat: Chat) -> None:
        """The template shows the model what it was given."""
        plain = self.text(chat)
        if self.tools and plain == replace_tools(self, None).text(chat):
            raise Refusal("tools are not honoured: this model's chat template has no place for them.",
                          param="tools")
        if any("tool_calls" in m for m in self.messages):
            bare = [{k: v for k, v in m.items() if k != "tool_calls"} for m in self.messages]
            if plain == Conversation(messages=bare, tools=self.tools).text(chat):
                raise Refusal("tool_calls in a message are not honoured: this model's chat template has no "
                              "place for them.", param="messages")

    def text(self, chat: Chat, reply: bool = True) -> str:
        try:
            return chat.text_of(self.messages, reply=reply, tools=self.tools or ())
        except ValueError as error:
            raise Refusal(f"the messages can't be shown to the model: {error}", param="messages") from None

    def tokens(self, chat: Chat, reply: bool = True) -> list[int]:
        return chat.encode(self.text(chat, reply))


def replace_tools(talk: Conversation, tools: list[dict] | None) -> Conversation:
    return Conversation(messages=talk.messages, tools=tools)


def message(given: object, place: str) -> dict:
    if not isinstance(given, dict):
        raise Refusal(f"{place[:-1]} is {short(given)}, and has to be an object.", param=place[:-1])
    body = Body(given, place)
    role = body.take("role", str)
    if role not in ROLES:
        body.refuse("role", f"is {short(role)}, and has to be one of {', '.join(ROLES)}")
    calls = [call(one, f"{place}tool_calls[{i}].") for i, one in enumerate(body.take("tool_calls", list, []))
             ] if role == "assistant" else []
    made = {"role": role, "content": content(body, optional=bool(calls))}
    if calls:
        made["tool_calls"] = calls
    if role == "tool":
        made |= {k: v for k in ("tool_call_id", "name") if (v := body.take(k, str, None)) is not None}
    body.done({"refusal": (), "audio": (), "function_call": (), "tool_calls": ([],), "annotations": ([],),
               "name": ()})
    return made


def content(body: Body, optional: bool) -> str:
    """A text, or parts that are texts."""
    value = body.left.get("content")
    if not isinstance(value, list):
        return body.take("content", str, "") if optional else body.take("content", str)
    body.take("content", list)
    texts = []
    for i, part in enumerate(value):
        inside = Body(part if isinstance(part, dict) else {"": part}, f"{body.place}content[{i}].")
        kind = inside.take("type", str)
        if kind != "text":
            inside.refuse("type", f"is {short(kind)}, and only text is read")
        texts.append(inside.take("text", str))
        inside.done()
    return "".join(texts)


def call(given: object, place: str) -> dict:
    """A call that the assistant made: its arguments as an object, which templates write out."""
    body = Body(given if isinstance(given, dict) else {"": given}, place)
    kind = body.take("type", str, "function")
    if kind != "function":
        body.refuse("type", f"is {short(kind)}, and only functions are called")
    name = body.take("id", str, None)
    inside = Body(body.take("function", dict), f"{place}function.")
    function, text = inside.take("name", str), inside.take("arguments", str)
    inside.done()
    body.done()
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = text  # what a model wrote need not be JSON
    return {"type": "function", "function": {"name": function, "arguments": arguments}} | (
        {"id": name} if name else {})


def tool(given: object, place: str) -> dict:
    """A function: its name, what it does, the schema of its parameters."""
    body = Body(given if isinstance(given, dict) else {"": given}, place)
    kind = body.take("type", str)
    if kind != "function":
        body.refuse("type", f"is {short(kind)}, and only functions are taken")
    inside = Body(body.take("function", dict), f"{place}function.")
    made = {"name": inside.take("name", str)}
    if not made["name"]:
        inside.refuse("name", "is empty")
    for field, kind_of in (("description", str), ("parameters", dict)):
        if (value := inside.take(field, kind_of, None)) is not None:
            made[field] = value
    inside.done({"strict": (False,)})
    body.done()
    return {"type": "function", "function": made}
