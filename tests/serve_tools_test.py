"""Tools at the endpoint: they reach the chat template, and what the model calls comes back as a call."""

import json

import pytest
from serve_small import ASK, client, events, post, served

from postgrad.chat import Chat
from postgrad.models import find_model
from postgrad.sampler import Chosen
from postgrad.serve.tools import Holding, read_calls

TEMPLATE = """{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
<|{{ m.role }}|>{{ m.content }}\
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\
<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
ADD = {"type": "function", "function": {"name": "add", "description": "a + b", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}}}}}


def with_tools():
    own = Chat.load(find_model("tiny-chat"))
    chat = Chat(own.tokenizer, TEMPLATE, bos=own.bos, eos=own.eos, pad=own.pad)
    return served(rows=2, context=512, chat=chat)


def test_tools_reach_the_template_and_calls_come_back(monkeypatch):
    what = with_tools()
    said = 'Let me see.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    script = [*what.chat.encode(said), *what.chat.stop]
    monkeypatch.setattr(what.worker.slots, "choose",
                        lambda rows: [Chosen(script[len(row.tokens)], 0.0) for row in rows])
    history = [*ASK, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 4}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"}]
    with client(what) as web:
        asked = {"messages": history, "tools": [ADD], "max_tokens": 99}
        shown = what.chat.tokenizer.decode(post(web, "/tokenize", messages=history, tools=[ADD])["tokens"],
                                           skip_special_tokens=False)
        assert '"description": "a + b"' in shown
        assert '<tool_call>{"name": "add", "arguments": {"a": 4}}' in shown
        choice = post(web, "/v1/chat/completions", **asked)["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Let me see."
        assert call["function"]["name"] == "add"
        assert json.loads(call["function"]["arguments"]) == {"a": 1} and call["id"].startswith("call_")
        parts = events(web.post("/v1/chat/completions", json=asked | {"stream": True}).text)
        deltas = [p["choices"][0]["delta"] for p in parts]
        assert "".join(d.get("content", "") for d in deltas) == "Let me see."
        (streamed,) = [c for d in deltas for c in d.get("tool_calls", ())]
        assert streamed["function"] == call["function"] and streamed["index"] == 0
        bare = post(web, "/v1/chat/completions", **asked | {"tool_choice": "none"})["choices"][0]
        assert bare["message"]["content"] == said and "tool_calls" not in bare["message"]


@pytest.mark.parametrize(("text", "left", "names"), [
    ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "", ["f"]),
    ('a<tool_call>{"name": "f"}</tool_call> <tool_call>{"name": "g"}</tool_call>b', "a b", ["f", "g"]),
    ('{"name": "f", "parameters": {"x": [1]}}', "", ["f"]),
    ('<tool_call>{"name": "f", "arguments": {"x": 1}}', "", ["f"]),  # cut before its end
    ('<tool_call>{"name": "f", "arg</tool_call>', '<tool_call>{"name": "f", "arg</tool_call>', []),
    ('<tool_call>{"name": "unknown"}</tool_call>', '<tool_call>{"name": "unknown"}</tool_call>', []),
    ('{"name": [1], "arguments": 3}', '{"name": [1], "arguments": 3}', []),
    ("plain {x} text < y", "plain {x} text < y", []),
])
def test_calls_are_read_and_what_is_none_stays_text(text, left, names):
    found, calls = read_calls(text, ("f", "g"))
    assert (found, [c["function"]["name"] for c in calls]) == (left, names)
    held = Holding()
    shown = "".join(held.add(c) for c in text)
    rest, later = held.end(("f", "g"))
    assert "<tool_call" not in shown and (shown + rest).strip() == left
    assert [c["function"] for c in later] == [c["function"] for c in calls]
