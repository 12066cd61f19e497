"""Tools at the endpoint: they reach the chat template, and what the model calls comes back as a call."""

import json
import re

import pytest
import torch
from serve_small import ASK, client, events, on_a_socket, post, served

from postgrad.data.tasks import load_task
from postgrad.models import find_model
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.sampling import RequestBatch
from postgrad.serving.messages import OPEN, ToolCallBuffer, read_calls

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


def play(monkeypatch, batch, token_of):
    """Each sequence samples what `token_of` says."""
    def draw(logits, u):
        tokens = torch.zeros(len(u), dtype=torch.int64)
        tokens[: len(batch.active)] = torch.tensor([token_of(row) for row in batch.active])
        return tokens, torch.zeros(len(u))
    monkeypatch.setattr(batch, "draw_each", draw)
    monkeypatch.setattr(RequestBatch, "settings", property(lambda _: None, lambda *_: None), raising=False)


def test_tools_reach_the_template_and_calls_come_back(monkeypatch):
    what = with_tools()
    said = 'Let me see.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    script = [*what.chat.encode(said), *what.chat.stop]
    play(monkeypatch, what.worker.batch, lambda row: script[len(row.tokens)])
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
    ("so <tool>f</tool>", "so", ["f"]), ("<tool> h 3 </tool><tool>h 4</tool>", "", ["h", "h"]),
    ("<tool>h x</tool>", "<tool>h x</tool>", []),                    # no number
    ("<tool>h 3", "<tool>h 3", []),                                  # cut: it might have gone on
    ("<tool>two 3</tool>", "<tool>two 3</tool>", []), ("<tool>other 3</tool>", "<tool>other 3</tool>", []),
    ("a <toolbox> is no call <tool", "a <toolbox> is no call <tool", []),
])
def test_calls_are_read_and_what_is_none_stays_text(text, left, names):
    tools = {"f": {}, "g": {}, "h": {"n": {"type": "integer"}}, "two": {"a": {}, "b": {}}}
    found, calls = read_calls(text, tools)
    assert (found, [c["function"]["name"] for c in calls]) == (left, names)
    held = ToolCallBuffer()
    shown = "".join(held.add(c) for c in text)
    rest, later = held.end(tools)
    assert not set(OPEN) & set(re.findall("<[^>]*>", shown)) and (shown + rest).strip() == left
    assert [c["function"] for c in later] == [c["function"] for c in calls]


def test_the_openai_client_plays_a_game_with_tiny_tools(monkeypatch):
    """A call in the short form comes back as one, and what the client says next is read as training reads it:
    the call's own tokens, then the tool's answer."""
    openai = pytest.importorskip("openai", reason="the openai client is not installed: pip install openai")
    what, task = served(rows=2, context=512, model="tiny-tools"), load_task("big-numbers")
    said = iter([what.chat.encode("<tool>calc 1234*56</tool>"), what.chat.encode("69104")] * 2)
    scripts, seen = {}, []

    def token_of(row):
        if row not in scripts:
            seen.append(what.chat.tokenizer.decode(row.prompt.tokens, skip_special_tokens=False))
            scripts[row] = [*next(said), *what.chat.stop]
        return scripts[row][len(row.tokens)]

    play(monkeypatch, what.worker.batch, token_of)
    with on_a_socket(what) as port:
        api = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        asked = {"model": "small", "tools": [tool_schema(tool) for tool in task.tools], "max_tokens": 40}
        talk = [{"role": "user", "content": "What is 1234*56?"}]
        choice = api.chat.completions.create(messages=talk, **asked).choices[0]
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        given = json.loads(call.function.arguments)
        assert (call.function.name, given) == ("calc", {"expression": "1234*56"})
        told = str(task.tools[0](**given))
        talk += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": told}]
        assert api.chat.completions.create(messages=talk, **asked).choices[0].message.content == "69104"
        parts = [c.choices[0] for c in api.chat.completions.create(messages=talk[:1], stream=True, **asked)]
    calls = [c for part in parts for c in part.delta.tool_calls or ()]
    assert [(c.function.name, c.function.arguments) for c in calls] == [("calc", call.function.arguments)]
    assert not "".join(part.delta.content or "" for part in parts) and parts[-1].finish_reason == "tool_calls"
    assert seen[1] == f"{seen[0]}<tool>calc 1234*56</tool><|end|><|tool|>69104<|end|><|assistant|>"
