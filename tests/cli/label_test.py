"""`postgrad label`: in the terminal, import, export, items made from a model, bad input."""

import io
import json

import pytest
from store_small import write

from postgrad.cli import main
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.store import Store

# the commands

def run(capsys, line):
    code = main([*line.split(), "--json"])
    out = capsys.readouterr()
    return json.loads(out.out) if code == 0 else out.err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ask.jsonl",
          *({"prompt": f"Question {n}?", "answers": [f"yes {n}", f"no {n}"]} for n in range(4)))
    return tmp_path


def test_label_in_the_terminal(here, capsys, monkeypatch):
    assert run(capsys, "label import ask.jsonl --store p.db")["added"] == 4
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nx\n\nB\nu\nt\ns\nu\nb\na\na\n"))
    assert main("label ask --store p.db --labeller ann".split()) == 0
    out = capsys.readouterr().out
    assert ("'x' is no key here" in out and "nothing left to label" in out
            and "6 labelled, 2 undone, 0 left for ann" in out)
    shown = [part.split("\n")[0] for part in out.split("[a] ")[1:]]
    with Store.open("p.db") as store:
        said = [(item, labels["ann"]) for item, labels in store.items()]
    assert ([choice if choice in ("tie", "skip") else "clear" for _, choice in said]
            == ["clear", "tie", "clear", "clear"])
    first, _ = said[0]
    assert getattr(first, said[0][1]) == shown[0]  # a: the answer that was shown first
    # b: the other one
    assert getattr(said[2][0], said[2][1]) != [text for text in shown if text.endswith("2")][0]
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nq\n"))
    assert run(capsys, "label ask --store p.db --labeller ben") == {"labelled": 1, "undone": 0, "refused": 0,
                                                                    "left": 3}


def test_control_characters_cannot_steer_the_terminal(here, capsys, monkeypatch):
    write(here / "bad.jsonl", {"prompt": "\x1b[2J", "answers": ["\x1b]0;x\x07", "y"]})
    run(capsys, "label import bad.jsonl --store p.db")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main("label ask --store p.db --labeller ann".split()) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_import_stats_export(here, capsys):
    write(here / "pairs.jsonl",
          *({"prompt": f"Question {n}?", "chosen": f"yes {n}", "rejected": f"no {n}"} for n in range(4)),
          {"prompt": "Question 0?", "chosen": "no 0", "rejected": "yes 0", "labeller": "ben"})
    run(capsys, "label import ask.jsonl")
    found = run(capsys, "label import pairs.jsonl --labeller ann")
    assert (found["added"], found["known"], found["labels"], found["file"]["contradicted"]) == (0, 5, 5, 1)
    found = run(capsys, "label stats")
    assert (found["items"], found["labels"], found["contradicted"]) == (4, 5, 1)
    assert found["agreement"] == [{"labellers": ["ann", "ben"], "items": 1, "agreed": 0, "kappa": None}]
    assert main(["label", "stats"]) == 0
    assert ("ann and ben" in (out := capsys.readouterr().out) and "judged both ways" in out
            and "unknown" in out)
    assert run(capsys, "label export --out out.jsonl")["ties"] == 1  # one against one
    assert [p.chosen for p in read_pairs(here / "out.jsonl") if not p.tie] == ["yes 1", "yes 2", "yes 3"]
    assert run(capsys, "label export --out one.jsonl --format singles --labeller ann")["rows"] == 8
    assert {(s.messages[-1]["content"], s.label) for s in read_singles(here / "one.jsonl")} == \
        {(f"{word} {n}", word == "yes") for n in range(4) for word in ("yes", "no")}


def test_items_made_from_a_model(here, capsys):
    line = ("label make --model tiny-chat --task questions --prompts 3 --max-new-tokens 12 "
            "--store p.db --seed 1")
    assert run(capsys, line) == {"prompts": 3, "skipped": 0, "added": 3, "known": 0}
    assert run(capsys, line) == {"prompts": 3, "skipped": 0, "added": 0, "known": 3}
    with Store.open("p.db") as store:
        assert {item.origin for item, _ in store.items()} == {"tiny-chat on questions, seed 1"}


WRONG = {
    "stats": "there is no store at preferences.db",
    "ask --labeller ann": "there is no store at preferences.db",
    "export --out x.jsonl": "there is no store at preferences.db",
    "export --out x.jsonl --store ask.jsonl": "is no preference store",
    "import none.jsonl": "no file none.jsonl",
    "import empty.jsonl": "empty.jsonl has no rows",
    "import half.jsonl --labeller ann": "half.jsonl line 2: 'rejected' is missing or empty",
    "import pair.jsonl": "pair.jsonl line 1: it is labelled, but by whom?",
    "import single.jsonl --labeller ann": "single.jsonl line 1: 'chosen' is missing or empty",
    "import who.jsonl": "who.jsonl line 1: 'ann\\n' cannot name a labeller",
    "import one.jsonl": "one.jsonl line 1: 'answers' must be a list of two or more",
    "import ask.jsonl --store file/p.db": "in a folder that exists",
    "make --model nowhere --task questions": "no model at nowhere",
    "make --model tiny --task wrods": "did you mean 'words'?",
    "make --model tiny --task words --prompts 0": "must be at least 1",
    "make --model tiny --task words --temperature 0": "above 0, for the two answers to differ",
}


@pytest.mark.parametrize("line", WRONG)
def test_bad_input_gets_a_sentence_and_leaves_nothing(here, capsys, line):
    ask = {"prompt": "Hi", "answers": ["x"]}
    write(here / "empty.jsonl"), write(here / "one.jsonl", ask), (here / "file").write_text("in the way")
    write(here / "pair.jsonl", {"prompt": "Hi", "chosen": "x", "rejected": "y"})
    write(here / "half.jsonl", {"prompt": "Hi", "chosen": "x", "rejected": "y"},
          {"prompt": "Hi", "chosen": "x"})
    write(here / "single.jsonl", {"prompt": "Hi", "completion": "x", "label": True})
    write(here / "who.jsonl", {"prompt": "Hi", "chosen": "x", "rejected": "y", "labeller": "ann\n"})
    before = sorted(here.rglob("*"))
    assert main(["label", *line.split()]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("postgrad: ") and WRONG[line] in said[0], said
    assert sorted(here.rglob("*")) == before


def test_an_export_that_cannot_be_is_said(here, capsys):
    run(capsys, "label import ask.jsonl --store p.db")
    assert "no judgements to write" in run(capsys, "label export --store p.db --out x.jsonl")
    with Store.open("p.db") as store:
        store.label(store.next("ann").item.uid, "ann", "a")
    before = {path.name for path in here.iterdir()}
    assert "is the store itself" in run(capsys, "label export --store p.db --out p.db")
    assert "in a folder that exists" in run(capsys, "label export --store p.db --out a/x.jsonl")
    assert "'cy' has labelled nothing" in run(capsys, "label export --store p.db --out x.jsonl --labeller cy")
    assert {path.name for path in here.iterdir()} == before
