"""`postgrad data check` on files of each kind: what is understood, what is bad, and what is trained."""

import json

import pytest

import postgrad
from postgrad.cli import main
from postgrad.models.chat import Chat
from postgrad.recipes.data_check import check_data, kind_of, trained_spans


def user(text):
    return {"role": "user", "content": text}


def bot(text, **more):
    return {"role": "assistant", "content": text, **more}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


FILES = {
    "conversations": [{"messages": [user("Hi"), bot("Hello", weight=0), user("And?"), bot("Bye")], "web": 1},
                      {"prompt": "Hi", "completion": "Hello"}, {"instruction": "Hi", "output": "Hello"}],
    "pairs": [{"prompt": "Hi", "chosen": "Hello", "rejected": "No", "by": "me"},
              {"prompt": "Hi", "chosen": "No", "rejected": "Hello"}],
    "labelled": [{"prompt": "Hi", "completion": "Hello", "label": True},
                 {"prompt": "Hi", "completion": "No", "label": False}],
    "prompts": [{"prompt": [user("Hi")], "level": 3}, {"prompt": "Hi", "level": 4}],
}
SHOWN = {
    "conversations": "<|bos|><|user|>Hi<|end|><|assistant|>Hello<|end|><|user|>And?<|end|><|assistant|>"
                     "[[Bye<|end|>]]",
    "pairs": "<|bos|><|user|>Hi<|end|><|assistant|>[[No<|end|>]]",
    "labelled": "<|bos|><|user|>Hi<|end|><|assistant|>[[Hello<|end|>]]",
    "prompts": "<|bos|><|user|>Hi<|end|><|assistant|>",
}


@pytest.mark.parametrize("kind", FILES)
def test_what_is_understood_and_trained(kind, tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", "{broken", *FILES[kind], {"other": 1})
    assert kind_of(path) == kind
    assert main(["data", "check", path]) == 1
    said = capsys.readouterr().out
    assert SHOWN[kind] in said.splitlines()
    assert f"{len(FILES[kind]) + 2} {kind}, for" in said and "; 2 bad, 0 over the limit of 512" in said
    assert "line 1 is not JSON" in said and f"line {len(FILES[kind]) + 2}: " in said
    assert main(["data", "check", path, "--json", "--rows", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["bad"], len(report["faults"])) == (kind, 2, 2)
    assert {"conversations": report["unused"] == {"web": 1}, "pairs": report["contradicted"] == 1,
            "labelled": report["used"].get("label") == 2,
            "prompts": report["repeated"] == 1 and report["unused"] == {"level": 2}}[kind]
    assert main(["data", "check", write(tmp_path / "b.jsonl", *FILES[kind])]) == 0


def test_spans_are_the_row_and_long_rows_are_named(tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", FILES["conversations"][0], {"prompt": "Hi", "completion": "so " * 40})
    assert main(["data", "check", path, "--max-tokens", "40", "--rows", "0"]) == 1
    said = capsys.readouterr().out
    assert "1 over the limit of 40 tokens" in said and f"too long  {path} line 2 (" in said
    chat = Chat.load(f"{postgrad.__path__[0]}/models/embedded/tiny-tools")
    tokens, mask = chat.conversation([user("What is 2+3?"), bot("It is 5, I say.")])
    spans = trained_spans(tokens, mask, chat)
    assert "".join(text for text, _ in spans) == chat.tokenizer.decode(tokens, skip_special_tokens=False)
    assert [text for text, trained in spans if trained] == ["It is 5, I say.<|end|>"]


def test_what_a_template_has_no_place_for_is_a_bad_row(tmp_path):
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    path = write(tmp_path / "a.jsonl", {"messages": [user("2?"), bot("", tool_calls=[call])]},
                 FILES["conversations"][0])
    report = check_data(path)
    assert report.bad == 1 and "has tool_calls, and the model's chat template has no" in report.faults[0]
    assert check_data(path, model="tiny-tools").bad == 0


def test_tasks_by_name_and_what_cannot_be_read(tmp_path, capsys):
    assert main(["data", "check", "words", "--kind", "conversations", "--rows", "1"]) == 0
    assert "[[<think>" in capsys.readouterr().out
    for name, said in ((write(tmp_path / "a.jsonl", "{x", "{y"), "2 of 2 rows are bad"),
                       (str(tmp_path / "none.jsonl"), "there is no file"),
                       ("arithmetic --kind pairs", "has no pairs: it has prompts")):
        assert main(["data", "check", *name.split()]) == 2
        assert said in capsys.readouterr().err


def test_rows_that_are_bad_alike_are_one_line(tmp_path, capsys):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    rows = [{"messages": [user("Hi"), bot("Hello")], "tools": tools}] * 25
    thought = {"messages": [user("Hi"), bot("Hello", reasoning_content="Hm.")]}
    assert main(["data", "check", write(tmp_path / "a.jsonl", thought, *rows)]) == 1
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  bad ")]
    assert [line.split(" has ")[1].split(",")[0] for line in bad[:2]] == ["reasoning_content", "tools"]
    assert "(and 18 more like it)" in bad[1] and bad[2].split() == ["bad", "and", "6", "more"]
    assert len(bad) == 3
