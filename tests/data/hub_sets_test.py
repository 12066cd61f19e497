"""Data sets of the hub by name, from a double of its endpoint on this machine."""

import io
import json

import pytest
from hub_double import hub_of

import postgrad
from postgrad.data.preferences import read_pairs
from postgrad.data.rows import read_conversations, read_data_rows
from postgrad.resolve.tasks import files_in

CARD = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: [data/test-*.parquet]
- config_name: raw
  data_files:
  - split: train
    path: "raw/**"
---
# A set
"""


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def chat(n):
    return {"messages": [{"role": "user", "content": f"What is {n}+{n}?"},
                         {"role": "assistant", "content": f"{2 * n}"}]}


def parquet(rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    sets = {"me/chats": {"README.md": CARD.encode(), ".gitattributes": b"",
                         "data/train-00000-of-00002.parquet": parquet([chat(n) for n in range(20)]),
                         "data/train-00001-of-00002.parquet": parquet([chat(n) for n in range(20, 30)]),
                         "data/test-00000-of-00001.parquet": parquet([chat(99)]),
                         "raw/a/one.jsonl": lines(chat(1)), "raw/two.jsonl": lines(chat(2))},
            "me/pairs": {".gitattributes": b"", "README.md": b"# No table of files",
                         "train.jsonl": lines({"prompt": "Hi", "chosen": "Hello", "rejected": "No"}),
                         "validation.jsonl": lines({"prompt": "Ho", "chosen": "Hello", "rejected": "No"}),
                         "script.py": b"raise SystemExit"},
            "me/binary": {".gitattributes": b"", "README.md": CARD.encode(), "data/train-0.arrow": b"x"}}
    with hub_of(sets, tmp_path / "cache", monkeypatch):
        yield sets


def test_splits_and_configs_are_those_of_the_card(hub):
    assert read_conversations("hub:me/chats") == read_conversations("hub:me/chats:default:train")
    rows = [row for _, _, row in read_data_rows("hub:me/chats")]
    assert rows == [chat(n) for n in range(30)]
    assert [row for _, _, row in read_data_rows("hub:me/chats:test")] == [chat(99)]
    assert [row for _, _, row in read_data_rows("hub:me/chats@main:raw:train")] == [chat(1), chat(2)]
    assert [path.name for path in files_in("hub:me/chats:test")] == ["test-00000-of-00001.parquet"]
    assert [path.name for path in files_in("hub:me/pairs:0.5,a.jsonl:0.5")] == ["train.jsonl"]


def test_without_a_card_the_files_names_are_the_splits(hub):
    assert [pair.chosen for pair in read_pairs("hub:me/pairs")] == ["Hello"]
    assert read_pairs("hub:me/pairs:validation")[0].messages[0]["content"] == "Ho"


@pytest.mark.parametrize(("name", "said"), [
    ("hub:me/none", "there is no dataset me/none on the hub"),
    ("hub:me/chats:dev", "hub:me/chats:dev has no split 'dev': it has train, test"),
    ("hub:me/chats:big:train", "name one of default, raw"),
    ("hub:me/pairs:dev", "name another split"),
    ("hub:me/binary", "has the file train-0.arrow, which is none of .jsonl"),
    ("hub:chats", "expected hub:OWNER/NAME"),
])
def test_what_is_not_there_is_a_sentence(hub, name, said):
    with pytest.raises(ValueError) as caught:
        read_conversations(name)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_is_trained_on_it_and_is_resumed_on_the_same_rows_alone(hub, tmp_path):
    small = {"rows_per_step": 4, "steps": 1, "save_every": 1, "display": False}
    run = postgrad.fit("tiny-chat", "sft", data="hub:me/chats", run=tmp_path / "run", **small)
    assert postgrad.resume(run.folder, steps=2, display=False).info["files"]["data"]
    (path,) = files_in("hub:me/chats:test")
    first = path.parent / "train-00000-of-00002.parquet"
    data = first.read_bytes()
    first.unlink()
    first.write_bytes(data + b" ")
    with pytest.raises(ValueError, match="data hub:me/chats has changed since this run began"):
        postgrad.resume(run.folder, steps=3, display=False)
