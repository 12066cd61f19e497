"""Conversations with the chat templates that TRL ships: the ids of `transformers` and the masks of TRL."""

import hashlib
import json

import pytest
from golden_templates import RECORD, TALKS, Today, open_chat, short_hash, templates

FOUND = {name: (path, twin) for name, path, twin in templates()}
RECORDED = json.loads(RECORD.read_text())["templates"] if RECORD.exists() else {}


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr("postgrad.models.chat.template.datetime", Today)


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("trl/")])
def test_ids_and_masks_are_those_recorded(name):
    if name not in FOUND:
        pytest.skip("TRL is not installed, or has no such template")
    path, twin = FOUND[name]
    if hashlib.sha256(path.read_bytes()).hexdigest()[:16] != RECORDED[name]["file"]:
        pytest.skip("this TRL has another version of the template than the record")
    chat, marked = open_chat(path.read_text()), twin and open_chat(path.read_text())
    if marked:
        marked._render = open_chat(twin.read_text())._render
    for talk, wanted in RECORDED[name]["talks"].items():
        if "refused" in wanted:
            continue
        messages, tools = TALKS[talk]
        tokens, mask = chat.conversation(messages, tools=tools)
        assert short_hash(tokens) == wanted["ids"], talk
        assert short_hash(chat.render(messages[:-1], tools)) == wanted["prompt"], talk
        assert any(mask), talk
        if marked:
            theirs, on = marked.conversation(messages, tools=tools)
            assert short_hash(theirs) == wanted["twin"], talk
            assert short_hash(list(map(int, on))) == wanted["mask"], talk
            if theirs == tokens:  # without marks: TRL's but for headers and white space after the stop token
                more = [token for token, a, b in zip(tokens, mask, on, strict=True) if a and not b]
                # Gemma ends a call with this token, which the tool's result begins with
                assert set(chat.pieces(more)) <= {"<|tool_response>"}, talk
