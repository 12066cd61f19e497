"""The preference store as a file: out and in again, kills, several writers, what is no store."""

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from small import CHAT
from store_small import ITEMS, NAMES, write

from postgrad.data.exchange import draw_items, export_store, read_items
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.store import CHOICES, Item, Store
from postgrad.records import Prompt
from postgrad.sampling import Sampling
from postgrad.sampling.sampler import ScriptedSampler

ODD = "line\u2028end\nnext \u0000 \U0001f600 \"quoted\" \\ back"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        yield store


def python(code, *args, **more):
    """A process of its own, in which `store` and `items` are at hand."""
    head = ("import sys; from postgrad.data.store import Store; store = Store.open(sys.argv[1]); "
            "items = [item for item, _ in store.items()]\n")
    return subprocess.Popen([sys.executable, "-c", head + code, *map(str, args)], text=True, **more)


def test_a_file_in_a_file_out_in_again(tmp_path):
    talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    rows = [{"prompt": "Hi", "chosen": ODD, "rejected": "y"},
            {"prompt": talk, "chosen": "p", "rejected": [{"role": "assistant", "content": "q"}]},
            {"prompt": "Tie?", "chosen": "x", "rejected": "y", "tie": True, "labeller": "ben"},
            {"prompt": "Three?", "answers": ["x", "y", "z"], "ranks": [2, 1, 2], "labeller": "ben"},
            {"prompt": "Hi", "chosen": "y", "rejected": ODD, "labeller": "ben", "margin": 2},
            {"prompt": "Open?", "answers": ["x", "y"]}]
    items, labels, seen = read_items(write(tmp_path / "0.jsonl", *rows), "ann")
    assert (len(items) == 8 and len(labels) == 7
            and (seen["margins"], seen["rankings"], seen["rows"]) == (1, 1, 6))
    settings = {"1": {}, "2": {"how": "all"}, "3": {"labeller": "ben"}, "4": {"form": "singles"}}
    with Store.open(tmp_path / "0.db") as store:
        store.add(items, labels)
        found = [export_store(store, tmp_path / f"{name}.jsonl", **more) for name, more in settings.items()]
    assert [f["rows"] for f in found] == [6, 7, 5, 6] and [f["ties"] for f in found] == [3, 2, 2, 3]
    assert [f["unjudged"] for f in found] == [1, 1, 2, 1]
    for name in "123":  # export, import, export
        with Store.open(tmp_path / f"{name}.db") as fresh:
            fresh.add(*read_items(tmp_path / f"{name}.jsonl", "ann")[:2])
            export_store(fresh, tmp_path / "again.jsonl", **settings[name])
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes()
    pairs = read_pairs(tmp_path / "2.jsonl")
    assert {(p.chosen, p.rejected) for p in pairs
            if p.messages[-1]["content"] == "Hi" and len(p.messages) == 1} == {(ODD, "y"), ("y", ODD)}
    assert [p.messages for p in pairs if p.chosen == "p"] == [tuple(talk)]
    singles = read_singles(tmp_path / "4.jsonl")
    assert ({(s.messages[-1]["content"], s.label) for s in singles if len(s.messages) == 3}
            == {("p", True), ("q", False)})


def test_labels_survive_kill_9(store):
    # until it is killed
    loop = ("for item in items: store.label(item.uid, 'ann', 'tie'); print(item.uid, flush=True)\n"
            "while True: store.label(items[0].uid, 'ben', 'a'); store.label(items[0].uid, 'ben', 'b')")
    process = python(loop, store.path, stdout=subprocess.PIPE)
    said = [process.stdout.readline().strip() for _ in range(5)]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    with Store.open(store.path, create=False) as after:
        kept = {item.uid for item, labels in after.items() if labels.get("ann") == "tie"}
        assert set(said) <= kept
        assert after._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert after._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        # FULL: on the disk when `label` returns
        assert after._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_two_processes_write_at_once_and_lose_nothing(tmp_path):
    more = ["from postgrad.data.store import Item\nstore.add([Item.of(({'role': 'user', 'content': "
            f"str(n)}},), ('x', 'y')) for n in range({start}, {start + 30})])\n"
            "for item, _ in store.items(): store.label(item.uid, sys.argv[2], 'a')"
            for start in (0, 15)]  # both make the store, and each adds some that the other adds too
    both = [python(code, tmp_path / "p.db", who, stderr=subprocess.PIPE)
            for code, who in zip(more, NAMES[:2], strict=True)]
    assert [process.communicate()[1] for process in both] == ["", ""]
    with Store.open(tmp_path / "p.db") as store:
        found = store.stats()
        assert found["items"] == 45 and all(found["labellers"][who]["a"] >= 30 for who in ("ann", "ben"))
        assert found["labels"] == sum(found["labellers"][who]["a"] for who in ("ann", "ben"))


def test_threads_share_one_store(store):
    def work(who):
        while asked := store.next(who):
            store.label(asked.item.uid, who, "a")
            store.stats()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, NAMES))
    assert store.stats()["choices"] == {"a": 4 * len(ITEMS), "b": 0, "tie": 0, "skip": 0}


def test_what_is_no_store_is_refused_and_left_alone(tmp_path):
    text, other, newer = (tmp_path / name for name in ("text.db", "other.db", "newer.db"))
    text.write_text("this is no database, only some text that is long enough to be looked at " * 10)
    Store.open(newer).close()
    for path, line in ((other, "CREATE TABLE mine (x)"), (newer, "PRAGMA user_version = 9")):
        with closing(sqlite3.connect(path)) as db:
            db.execute(line)
    before = [path.read_bytes() for path in (text, other, newer)]
    for path, words in ((text, "is no preference store"), (other, "a database, but no preference store"),
                        (newer, "version 9"), (tmp_path / "a/b.db", "in a folder that exists"),
                        (tmp_path, "in a folder that exists")):
        with pytest.raises(ValueError, match=words):
            Store.open(path)
    with pytest.raises(ValueError, match="there is no store at"):
        Store.open(tmp_path / "none.db", create=False)
    assert ([path.read_bytes() for path in (text, other, newer)] == before
            and len(list(tmp_path.iterdir())) == 3)


def test_what_cannot_be_a_label_is_said(store):
    for uid, who, choice, words in ((ITEMS[0].uid, "ann", "c", "no choice 'c': it is one of a, b, tie, skip"),
                                    (ITEMS[0].uid, " ", "a", "cannot name a labeller"),
                                    ("x", "ann", "a", "has no item 'x'")):
        with pytest.raises(ValueError, match=words):
            store.label(uid, who, choice)
    for answers in (("x", "x"), ("x", " "), ("x",)):
        with pytest.raises(ValueError, match="two different answers"):
            Item.of(ITEMS[0].messages, answers)
    assert store.stats()["labels"] == 0 and set(store.stats()["choices"]) == set(CHOICES)


def test_the_store_needs_no_torch():
    code = "import sys, postgrad.data.store, postgrad.cli.label; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_equal_and_empty_answers_are_drawn_again():
    asked = [Prompt.ask(text) for text in ("same", "differ", "blank")]
    sampler = ScriptedSampler(CHAT, {"same": ["yes", "yes "], "differ": ["yes", "no"], "blank": ["", "yes"]})
    items, skipped = draw_items(sampler, asked, Sampling(max_new_tokens=8), 0, "scripted")
    assert [item.messages[0]["content"] for item in items] == ["differ"] and skipped == 2
    assert {items[0].a, items[0].b} == {"yes", "no"} and items[0].origin == "scripted"
    turns = iter([["yes", "yes"], ["", "yes"], ["no", "maybe"]])

    class Slow(ScriptedSampler):
        def sample(self, *args):
            self.script = {"q": next(turns)}
            return super().sample(*args)

    (item,), skipped = draw_items(Slow(CHAT, {}), [Prompt.ask("q")], Sampling(max_new_tokens=8), 0, "")
    assert {item.a, item.b} == {"yes", "no"} and skipped == 0
