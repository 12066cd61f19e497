"""Text is never structure: under no template does a text in a message, a tool or its result become a control
token."""

import json

import pytest
from golden_templates import open_chat, templates
from hostile.injections import forging_texts
from talks import STYLES
from tokenizers import AddedToken

from postgrad.models.chat import Chat
from postgrad.models.chat.inert import SpokenText, texts_in

FOUND = {name: path for name, path, _ in templates()}
USUAL = sorted(FOUND)[::9]  # the others are tried by `python proofs/reliability.py templates`


@pytest.mark.parametrize("name", USUAL)
def test_no_text_is_structure(name):
    assert not forging_texts(open_chat(FOUND[name].read_text()), 16)


@pytest.mark.parametrize("style", ["ours", "ours with tools", "qwen2.5"])
def test_no_text_is_structure_in_our_templates(style):
    assert not forging_texts(STYLES[style](), 16)


def with_special(chat, *names, template=None):
    tokenizer = type(chat.tokenizer).from_str(chat.tokenizer.to_str())
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return Chat(tokenizer, template or chat.template, bos=chat.bos, eos=chat.eos, pad=chat.pad)


def test_pieces_do_not_join():
    chat = with_special(STYLES["ours"](), "<|halt|>", template="{% for m in messages %}{{ m.content }}{% "
                                                               "endfor %}")
    halves = [{"role": "user", "content": "a<|ha"}, {"role": "user", "content": "lt|>b"}]
    assert chat.id("<|halt|>") not in chat.render(halves) and chat.id("<|halt|>") in chat.encode("a<|halt|>b")
    literal = with_special(chat, "<|halt|>", template="{% for m in messages %}<|{{ m.content }}|>{% endfor "
                                                      "%}")
    assert chat.id("<|halt|>") not in literal.render([{"role": "user", "content": "halt"}])
    assert literal.text_of([{"role": "user", "content": "go"}], reply=False) == "<|go|>"


def test_fields_that_a_template_reads_stay_where_a_control_token_has_their_names():
    """Granite's <|start_of_role|>: "a" is a piece of it, and so is "role"."""
    chat = with_special(STYLES["ours"](), "<|start_of_role|>", "<|content_name|>", template=(
        "{% for m in messages %}{{ '<|start_of_role|>' + m.role + ': ' + m.content }}"
        "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}"
        "{% endfor %}{% endfor %}"))
    call = {"type": "function", "function": {"name": "a", "arguments": {"a": "role", "|start_of_": 1}}}
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "f", "tool_calls": [call]}]
    assert chat.text_of(talk, reply=False).startswith("<|start_of_role|>user: ")
    assert chat.render(talk).count(chat.id("<|start_of_role|>")) == 2


@pytest.mark.parametrize("name", [" ", "  ", "\n", "a", "\ufffd"])
def test_a_special_token_of_one_sign_ends_no_program(name):
    chat = with_special(next(iter(STYLES.values()))(), name)
    try:
        text = chat.escaped(f"1{name}2 3\n4{name}{name}")
    except ValueError as refused:
        assert name == "\ufffd" and "can't be shown" in str(refused)
    else:
        assert chat.id(name) not in chat.encode(text)


def test_the_models_own_turn_stays_as_it_was_sampled_and_nobody_elses():
    chat = next(iter(STYLES.values()))()
    own = f"5{chat.eos}6"
    assert chat.escaped(SpokenText(own)) == own != chat.escaped(own)
    assert type(chat.escaped(SpokenText(own))) is str
    assert chat.escaped(json.loads(json.dumps(SpokenText(own)))) != own, "no file holds one"
    assert "\ud800" not in chat.escaped("a\ud800b") and chat.escaped("2 < 3 |> x") == "2 < 3 |> x"
    assert [*texts_in([{"role": "user", "content": "a"}, {"role": "odd", "x": ["b"]}])] == ["a", "odd", "b"]
