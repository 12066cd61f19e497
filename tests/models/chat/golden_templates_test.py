"""Conversations with the chat templates that TRL ships: the ids of `transformers` and the masks of TRL."""

import hashlib
import json

import pytest
from golden_templates import RECORD, TALKS, Today, open_chat, short_hash, templates

from postgrad.training.batches.offline import encode_completion

FOUND = {name: (path, twin) for name, path, twin in templates()}
RECORDED = json.loads(RECORD.read_text())["templates"] if RECORD.exists() else {}
# whose training templates mark a part of the generation prompt too, which is never sampled
HEADERS = ("deepseek_r1_distill", "deepseekv3", "gptoss", "muse_glimmer", "qwen2_5")


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
        tokens, _ = encode_completion(messages[:-1], tuple(messages[-1:]), chat, tools)
        assert short_hash(tokens) == wanted["ids"], talk
        tokens, mask = chat.conversation(messages, tools=tools)
        assert short_hash(tokens) == wanted["ids"], talk
        assert short_hash(chat.render(messages[:-1], tools)) == wanted["prompt"], talk
        assert any(mask), talk
        if marked:
            theirs, on = marked.conversation(messages, tools=tools)
            assert short_hash(theirs) == wanted["twin"], talk
            assert short_hash(list(map(int, on))) == wanted["mask"], talk
            if theirs == tokens:
                more, less = ([token for token, a, b in zip(tokens, mask, on, strict=True) if (a, b) == which]
                              for which in ((True, False), (False, True)))
                # Gemma ends a call with this token, which the tool's result begins with
                assert set(chat.pieces(more)) <= {"<|tool_response>"}, talk
                assert not less or path.stem in HEADERS, talk
