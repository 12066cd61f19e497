"""What a run was given by name is hashed when it starts and held against what is there when it goes on."""

import json

import pytest

from postgrad import methods
from postgrad.cli.settings import config_from_text
from postgrad.recipes.inputs import check_inputs, input_hashes
from postgrad.runs import Run

ROWS = '{"question": "What is 2+3?", "answer": "#### 5"}\n' * 30
CHATS = '{"prompt": "hi", "completion": "yes"}\n'
PAIRS = '{"prompt": "hi", "chosen": "yes", "rejected": "no"}\n'
TASK = "def verify(prompt, text): return 1.0\nprompts = [{'question': 'x'}]\n"
ROW = ("from postgrad import method\nfrom postgrad.methods import METHODS\n\n\n"
       "def scale():\n    return 1.0\n\n\n"
       "def mine(*args, **named):\n    loss, stats = METHODS['nano'].surrogate(*args, **named)\n"
       "    return loss * scale(), stats\n\n\nrow = method('nano', name='mine', surrogate=mine)\n")
SCHEMA = json.dumps({"type": "object"})
GIVEN = {  # file -> (its text, what is trained with it)
    "chats.jsonl": (CHATS, ("sft", ["data=chats.jsonl"])),
    "pairs.jsonl": (PAIRS, ("dpo", ["data=pairs.jsonl"])),
    "asked.jsonl": (ROWS, ("grpo", ["task=number:asked.jsonl"])),
    "task.py": (TASK, ("grpo", ["task=task.py"])),
    "gsm/train.jsonl": (ROWS, ("grpo", ["task=gsm8k:gsm"])),
    "schema.json": (SCHEMA, ("grpo", ["task=words", "reward=json(schema.json)"])),
    "rubric.txt": ("Be kind.", ("grpo", ["task=words", "reward=judge:tiny-chat:rubric.txt"])),
    "row.py": (ROW, ("row.py", ["task=words"])),
}


@pytest.mark.parametrize("name", GIVEN)
def test_an_edited_file_is_noticed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, (what, changes) = GIVEN[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    _, config = config_from_text(what, changes)
    given = input_hashes(config) | {"row": methods.describe_row(config.row)}
    run = Run.create(tmp_path / "run", recipe="sft", config={}, steps=1, **given)
    check_inputs(run, config)
    path.write_text(text.replace("1.0", "2.0").replace("#### 5", "#### 6") + " ")
    with pytest.raises(ValueError, match="has changed since this run began"):
        check_inputs(run, config)
    path.unlink()
    with pytest.raises(ValueError):
        check_inputs(run, config)
