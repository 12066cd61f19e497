"""Chat templates in the style of the families: text, tokens and stops of `transformers`,
and what a folder may hold."""

import json

import pytest
from small import change_tokens, tokens_of_tiny
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from postgrad.models import find_model
from postgrad.models.chat import Chat

TINY = find_model("tiny-chat")
SHORT = ({"role": "user", "content": " What is 2 < 3 & \"é\"?\n"},)
LONG = ({"role": "system", "content": "Be brief."}, *SHORT,
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."},
        {"role": "user", "content": "Sure?"})

TURNS = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set first, rest = messages[0].content | trim, messages[1:] %}
{%- else %}
    {%- set first, rest = '', messages %}
{%- endif %}
{%- if tools is not none %}{{- 'Tools: ' ~ tools | tojson(indent=4) }}{%- endif %}
{{- '<|system|>Date: ' ~ strftime_now('%d %b %Y') ~ '\\n' ~ first ~ '<|end|>' }}
{%- for message in rest %}
    {{- '<|' ~ message['role'] ~ '|>\\n\\n' + message['content'] | trim + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n\\n' }}{%- endif %}
"""
THINKING = """{% set ns = namespace(last=-1) %}
{% for message in messages[::-1] %}
    {% set at = messages | length - 1 - loop.index0 %}
    {% set said = message.content %}
    {% if message.role == 'user' and not (said is string and said.startswith('<tool>')) %}
        {% set ns.last = at %}
        {% break %}
    {% endif %}
{% endfor %}
{% for message in messages %}
    {% if message.role == 'tool' %}{% continue %}{% endif %}
<|{{ message.role }}|>
{%- if message.role == 'assistant' and loop.index0 < ns.last %}
{{ message.content.split('</think>')[-1].lstrip('\\n') }}
{%- else %}
{{ message.content }}
{%- endif %}
<|end|>
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}
{% endif %}
"""
TEMPLATES = {
    "trimmed turns with a date": TURNS,
    "older thoughts left out, loop controls": THINKING,
    "a marked reply": "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %} "
                      "{{ m.content }}"
                      "<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
                      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "json": "{% for m in messages %}{{ m | tojson }}{{ {'ä': [1, '<b>']} | tojson(indent=2) }}"
            "{{ m.content | tojson(ensure_ascii=true, separators=(',', ':')) }}{% endfor %}{{ eos_token }}",
    "names that are and are not there":
    "{{ pad_token }}|{{ unk_token }}|{{ tools is defined }}|{{ tools is none }}|"
    "{{ documents is none }}|{{ date_string is defined }}|{{ enable_thinking is defined }}",
    "macros":
    "{% macro turn(m) -%} {{ '[INST] ' if m.role == 'user' else ' ' }}{{ m.content | trim }} {%- endmacro %}"
    "{{ bos_token }}{% for m in messages %}{{ turn(m) }}{{ eos_token if m.role == 'assistant' }}{% endfor %}",
}


@pytest.fixture
def folder(tmp_path):
    return tokens_of_tiny(tmp_path)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_transformers(name, folder):
    change_tokens(folder, chat_template=TEMPLATES[name])
    ours, theirs = Chat.load(folder), PreTrainedTokenizerFast.from_pretrained(folder)
    for talk in (SHORT, LONG):
        for reply in (True, False):
            wanted = theirs.apply_chat_template(list(talk), add_generation_prompt=reply, tokenize=False)
            assert ours.text_of(talk, reply=reply) == wanted and len(wanted) > 20
        assert (ours.render(talk)
                == theirs.apply_chat_template(list(talk), add_generation_prompt=True)["input_ids"])


def test_where_a_template_stands(folder):
    change_tokens(folder, chat_template=[{"name": "tool_use", "template": "no"},
                                         {"name": "default", "template": TURNS}])
    assert Chat.load(folder).template == TURNS
    (folder / "chat_template.jinja").write_text(THINKING)  # the file wins, as in transformers
    assert Chat.load(folder).template == THINKING == AutoTokenizer.from_pretrained(folder).chat_template
    (folder / "chat_template.jinja").unlink()
    change_tokens(folder, chat_template=[{"name": "rag", "template": "no"}])
    with pytest.raises(ValueError, match="no chat_template, as a base model has none: name one with "
                                         "template=chatml, llama3, plain or FILE, or use the model's"):
        Chat.load(folder)


def test_names_of_tokens_in_the_older_file(folder, tmp_path):
    change_tokens(folder, eos_token="leave out", bos_token="leave out")
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "<|end|>"}, "bos_token": "<|bos|>"}))
    assert (Chat.load(folder).eos, Chat.load(folder).bos) == ("<|end|>", "<|bos|>")


def test_every_token_that_ends_a_turn(folder, tmp_path):
    """In the style of Llama 3 and Gemma: the template ends turns with another token than
    the tokenizer's eos."""
    plain = Chat.load(folder)
    end, bos = plain.id("<|end|>"), plain.id("<|bos|>")
    change_tokens(folder, eos_token="<|bos|>", bos_token=None)
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [end, bos], "temperature": 0.6}))
    chat = Chat.load(folder)
    assert chat.stop == (bos, end)
    tokens, mask = chat.answer(SHORT, "Yes.")
    assert chat.pieces([t for t, on in zip(tokens, mask, strict=True) if on])[-2:] == [".", "<|end|>"]
    (tmp_path / "saved").mkdir()
    chat.save(tmp_path / "saved")
    assert Chat.load(tmp_path / "saved").stop == chat.stop
    assert GenerationConfig.from_pretrained(tmp_path / "saved").eos_token_id == [bos, end]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    assert Chat.load(folder).stop == (bos, end)


def test_others_find_the_end_of_a_turn_in_the_saved_folder(folder, tmp_path):
    (tmp_path / "saved").mkdir()
    chat = Chat.load(folder)
    chat.save(tmp_path / "saved")
    said = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert said["eos_token_id"] == [chat.id(chat.eos)] and said["pad_token_id"] == chat.id(chat.pad)
    assert Chat.load(tmp_path / "saved").stop == chat.stop


@pytest.mark.parametrize(("text", "said"), [
    ('{"eos_token_id": [99999]}',
     "token 99999 ends a reply, and the tokenizer has no such token: mend its eos_token_id"),
    ('{"eos_token_id": ["x"]}', "token 'x' ends a reply"),
    ("[1]", "generation_config.json holds no JSON object"),
    ("{", "generation_config.json: Expecting property name")])
def test_a_faulty_file_is_named(folder, text, said):
    (folder / "generation_config.json").write_text(text)
    with pytest.raises(ValueError, match=said):
        Chat.load(folder)
