"""Rows of published data sets: every way they are written,
and one sentence for every way they can be broken."""

import gzip
import json

import pytest

from postgrad.data import sets
from postgrad.data.tasks import load_task

ROWS = [{"question": "a", "answer": "1"}, {"question": "é", "answer": "2"}]


def write(path, rows=ROWS):
    """The rows in the form that the path's suffix says."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
        from pyarrow import Table, parquet
        parquet.write_table(Table.from_pylist(rows), path)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode(), mtime=0))
    else:
        path.write_text(json.dumps(rows) if path.name.endswith(".json") else lines)
    return path


@pytest.mark.parametrize(("name", "second"), [("t.jsonl", "line 2"), ("t.jsonl.gz", "line 2"),
                                              ("t.json", "entry 2"), ("t.parquet", "row 2")])
def test_the_same_rows_in_every_form(tmp_path, name, second):
    found = sets.read_rows_file(write(tmp_path / name))
    assert [row for _, row in found] == ROWS and found[1][0] == f"{name}, {second}"


@pytest.mark.parametrize(("name", "data", "said"), [
    ("t.jsonl", b'{"a": 1}\n{"a": ', "t.jsonl, line 2 is not JSON in UTF-8"),
    ("t.jsonl.gz", gzip.compress(b'{"a": 1}\n[2]', mtime=0), "t.jsonl.gz, line 2 is a list; each"),
    ("t.jsonl.gz", b"plain text", "not a sound gzip file"),
    ("t.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 100, mtime=0)[:-20], "not a sound gzip file"),
    ("t.jsonl.gz", gzip.compress(b"0" * 2_000_000, mtime=0), "line 1 is longer than"),
    ("t.json", b'{"a": 1', "t.json, line 1 is not JSON"),
    ("t.json", b"[1]", "t.json, entry 1 is a int; each"),
    ("t.json", b'[{"a": 1, "a": 2}]', "'a' stands twice"), ("t.json", b"[{]", "not JSON"),
    ("t.json", b"[]", "holds no rows"), ("t.json", b"[" * 100_000, "t.json is not JSON in UTF-8: "),
    ("t.json", b"\xff", "can't decode byte 0xff in position 0"),
    ("t.parquet", b"PAR1 or not", "not a sound parquet file"), ("t.txt", b"", "no file of rows"),
])
def test_a_broken_file_is_named(tmp_path, name, data, said):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=said) as caught:
        sets.read_rows_file(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"pip install 'postgrad\[data\]'"):
        sets.read_rows_file(tmp_path / "t.parquet")


GSM8K = [{"question": f"What is {i}+1?", "answer": f"{i}+1={i + 1}\n#### {i + 1}"} for i in range(60)]


def test_the_hub_is_asked_for_the_files_that_it_has(tmp_path, monkeypatch):
    asked = []

    def download(id, files, *, kind, instead):
        asked.append((id, *files, kind))
        (tmp_path / "main").mkdir(exist_ok=True)
        split = files[0].removeprefix("main/").partition("-")[0]
        write(tmp_path / f"main/{split}-00000-of-00001.parquet",
              GSM8K[:40] if split == "train" else GSM8K[40:])
        return tmp_path

    monkeypatch.setattr(sets, "download", download)
    task = load_task("gsm8k")
    assert asked == [("openai/gsm8k", f"main/{split}-*.parquet", "dataset") for split in ("train", "test")]
    assert task.meta["sizes"]["test"] == 20 and sum(task.meta["sizes"].values()) == 60
    assert load_task(f"gsm8k:{tmp_path / 'main'}").prompts("test", 99, 0) == task.prompts("test", 99, 0)


@pytest.mark.parametrize("name", ["gsm8k:FOLDER", "mbpp:FILE", "mbpp-sanitized:FILE", "humaneval:FILE"])
def test_offline_and_without_a_place_the_sentence_says_how_to_name_one(name, monkeypatch, tmp_path):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*args, **kwargs):
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ValueError, match="the hub cannot be reached: go online once") as caught:
        load_task(name.partition(":")[0])
    assert f"or write {name} (" in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_without_the_split_is_refused(tmp_path):
    write(tmp_path / "train.jsonl", GSM8K)
    with pytest.raises(ValueError, match="has no file of the split 'test': write gsm8k:FOLDER"):
        load_task(f"gsm8k:{tmp_path}")
    with pytest.raises(ValueError, match="is one file: write gsm8k:FOLDER"):
        load_task(f"gsm8k:{tmp_path / 'train.jsonl'}")


def test_a_question_in_two_splits_stays_in_the_held_out_one_and_is_counted(tmp_path):
    again = [{**GSM8K[3], "question": " what  is 3+1? "}, *GSM8K[40:]]
    write(tmp_path / "train.jsonl", GSM8K[:40])
    write(tmp_path / "test.jsonl", again)
    task = load_task(f"gsm8k:{tmp_path}")
    assert task.meta["repeats"] == 1 and task.meta["sizes"]["test"] == 21
    assert not any("What is 3+1?" in p.question for split in ("train", "validation")
                   for p in task.prompts(split, 99, 0))
    write(tmp_path / "test.jsonl", GSM8K)
    with pytest.raises(ValueError, match="every question of the split train is asked in another split too"):
        load_task(f"gsm8k:{tmp_path}")


def test_a_users_prompts_are_checked_in_the_same_place(tmp_path):
    path = tmp_path / "t.py"
    path.write_text("def prompts(split): return [{'question': q, 'id': split + q} for q in ('a', split)]\n"
                    "def verify(p, c): return 0.5\n")
    task = load_task(path)
    assert task.meta["repeats"] == 2 and task.meta["sizes"] == {"train": 1, "validation": 1, "test": 2}
