"""Calls that a reply writes: bound to the tool, or a sentence; never an exception."""

import pytest

from postgrad.models.chat.tools import read_reply
from postgrad.serving.messages import parse_short_call


def scale(x: float, n: int = 1) -> object:
    return {"x": x * n}


def echo(text: str) -> object:
    return "\ud800" + text


def loop() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        '{"x": 1%s}' % ("0" * 309),
        '{"x": "1%s"}' % ("0" * 309),
        '{"x": 1e999}',
        '{"x": NaN}',
        '{"x": "inf"}',
        '{"x": "nan"}',
        '{"x": 1, "x": 2}',
        '{"x": 1, "n": "%s"}' % ("9" * 5000),
        '{"x": "\\ud800"}',
        '{"x": []}',
    ],
)
def test_arguments_that_do_not_fit_are_a_sentence(arguments):
    reply = read_reply(f'<tool_call>{{"name": "scale", "arguments": {arguments}}}</tool_call>', [scale])
    assert not reply.tool_calls and len(reply.malformed) == 1


def test_what_a_tool_returns_is_text():
    (call,) = read_reply("<tool>echo hi</tool>", [echo]).tool_calls
    assert call.run() == "\ufffdhi"
    (call,) = read_reply("<tool>loop</tool>", [loop]).tool_calls
    assert call.run().startswith("error: ")


@pytest.mark.parametrize("kind", [["string", "null"], None, "integer", {"a": 1}, 7])
def test_a_short_call_by_any_schema(kind):
    call = parse_short_call("calc 12", {"calc": {"x": {"type": kind}}})
    assert call["function"]["arguments"] == ('{"x": 12}' if kind == "integer" else '{"x": "12"}')
    assert parse_short_call(f"calc 1{'0' * 5000}", {"calc": {"x": {"type": "integer"}}}) is None
