"""The preference store: nothing is lost, nothing doubled; files in and out; agreement; the commands."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from small import CHAT

from postgrad.cli import main
from postgrad.data.exchange import draw_items, export, read_items
from postgrad.data.items import CHOICES, Item, Label, majority, sides
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.store import Store
from postgrad.records import Prompt
from postgrad.sampler import Sampling
from postgrad.sampler.scripted import ScriptedSampler

ITEMS = [Item.of(({"role": "user", "content": f"Question {n}?"},), (f"yes {n}", f"no {n}"), "test") for n in range(12)]
NAMES = ("ann", "ben", "cleo", "dan")
ODD = "line\u2028end\nnext \u0000 \U0001f600 \"quoted\" \\ back"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        yield store


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def python(code, *args, **more):
    """A process of its own, in which `store` and `items` are at hand."""
    head = ("import sys; from postgrad.data.store import Store; store = Store.open(sys.argv[1]); "
            "items = [item for item, _ in store.items()]\n")
    return subprocess.Popen([sys.executable, "-c", head + code, *map(str, args)], text=True, **more)


def test_the_same_answers_are_one_item_whichever_way_round(store):
    twin = Item.of(ITEMS[0].messages, (ITEMS[0].b, ITEMS[0].a), "elsewhere")
    assert (twin.uid, twin.a, twin.b) == (ITEMS[0].uid, ITEMS[0].a, ITEMS[0].b)
    other = Item.of(({"role": "user", "content": "Question?"},), (ITEMS[0].b, ITEMS[0].a))
    assert store.add([twin, other]) == {"added": 1, "known": 1, "labels": 0, "known_labels": 0, "conflicting": 0}
    assert [item.uid for item, _ in store.items()] == [item.uid for item in [*ITEMS, other]]
    assert store.items(2, 1)[0][0] == ITEMS[2]


def test_names_and_sides_say_nothing():
    asks = [Item.of(({"role": "user", "content": str(n)},), ("right", "wrong")) for n in range(400)]
    assert 160 < sum(item.a == "right" for item in asks) < 240  # +- 4 standard deviations of a fair coin
    for who in ("ann", "ben"):
        assert 160 < sum(sides(item.uid, who) == ("a", "b") for item in asks) < 240
    assert 160 < sum(sides(item.uid, "ann") == sides(item.uid, "ben") for item in asks) < 240


def test_who_has_fewest_judgements_comes_first(store):
    for item in ITEMS[:6]:
        store.label(item.uid, "ann", "a")
    store.label(ITEMS[6].uid, "ann", "skip")
    order = []
    while asked := store.next("ben"):
        order.append(asked.item)
        store.label(asked.item.uid, "ben", asked.sides[0])
        assert asked.answers == tuple(getattr(asked.item, side) for side in sides(asked.item.uid, "ben"))
    assert order == [*ITEMS[6:], *ITEMS[:6]] and store.left("ben") == 0
    assert store.next("ann").item == ITEMS[7] and store.left("ann") == 5


def test_undo_brings_back_what_stood_before(store):
    first, second = ITEMS[0].uid, ITEMS[1].uid
    for uid, choice in ((first, "a"), (second, "tie"), (first, "b"), (first, "b")):  # the last says nothing new
        store.label(uid, "ann", choice)
    store.label(first, "ben", "skip")
    said = lambda: [labels for _, labels in store.items(0, 2)]  # noqa: E731
    assert said() == [{"ann": "b", "ben": "skip"}, {"ann": "tie"}]
    assert store.undo("ann").item.uid == first and said()[0]["ann"] == "a"
    assert store.undo("ann").item.uid == second and said()[1] == {}
    assert store.undo("ann").item.uid == first and store.undo("ann") is None
    assert said() == [{"ben": "skip"}, {}] and store.next("ann").item == ITEMS[0]


def test_a_label_is_revised_only_by_who_saw_what_stands(store):
    uid = ITEMS[0].uid
    assert store.revise(uid, "ann", "a", None) == "a"
    assert store.revise(uid, "ann", "a", None) == "a" and store.stats()["labels"] == 1  # a double click
    assert store.revise(uid, "ann", "b", None) == "a"                                   # another tab, which saw nothing yet
    assert store.revise(uid, "ann", "b", "a") == "b" and store.asked(uid, "ann")[1] == "b"
    assert store.revise(uid, "ann", None, "a") == "b" and store.revise(uid, "ann", None, "b") is None
    assert store.items(0, 1)[0][1] == {} and store.undo("ann") is None  # taken back with all that it had replaced
    assert store.revise(uid, "ann", "b", None) == "b" and store.asked(uid, "ann")[0].item == ITEMS[0]
    with pytest.raises(ValueError, match="has no item 'x'"):
        store.asked("x", "ann")


def test_a_removed_item_is_nowhere_until_it_comes_back(store):
    for item in ITEMS[:3]:
        store.label(item.uid, "ann", "a")
    store.remove(ITEMS[2].uid)
    assert store.stats()["items"] == 11 and store.stats()["labels"] == 2 and store.left("ann") == 9
    assert [item for item, _ in store.items(removed=True)] == [ITEMS[2]] and store.next("ben").item == ITEMS[3]
    with pytest.raises(ValueError, match="has no item"):
        store.label(ITEMS[2].uid, "ben", "a")
    assert store.undo("ann").item == ITEMS[1]  # what was removed is not what was last said
    store.remove(ITEMS[2].uid, removed=False)
    assert store.items(2, 1)[0] == (ITEMS[2], {"ann": "a"})
    store.remove(ITEMS[2].uid)
    assert store.add(ITEMS[:3])["added"] == 1 and store.items(2, 1)[0][1] == {"ann": "a"}  # an import brings it back
    with pytest.raises(ValueError, match="has no item 'x'"):
        store.remove("x")


def test_a_store_of_version_1_is_brought_up_to_date(tmp_path):
    path = tmp_path / "old.db"
    with Store.open(path) as store:
        store.add(ITEMS)
        store.label(ITEMS[0].uid, "ann", "b")
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE items DROP COLUMN removed")
        db.execute("PRAGMA user_version = 1")
    with Store.open(path, create=False) as store:
        assert store.items(0, 1)[0] == (ITEMS[0], {"ann": "b"}) and store.items(removed=True) == []
    Store.open(path).close()


def test_an_import_never_overwrites_a_label(tmp_path):
    rows = [{"prompt": "Hi", "chosen": "x", "rejected": "y"}, {"prompt": "Hi", "chosen": "y", "rejected": "x"},
            {"prompt": "Hi", "chosen": "x", "rejected": "y"}]
    items, labels, seen = read_items(write(tmp_path / "p.jsonl", *rows), "ann")
    assert (seen["repeats"], seen["contradictions"]) == ([["1", "3"]], [["1", "2"]])
    with Store.open(tmp_path / "p.db") as store:
        assert store.add(items, labels) == {"added": 1, "known": 2, "labels": 1, "known_labels": 1, "conflicting": 1}
        assert [p.chosen for p in store.pairs()] == ["x"]
        assert store.add(items, labels)["conflicting"] == 1 and len(store.items()) == 1


def test_all_of_an_import_or_nothing(store):
    extra = Item.of(({"role": "user", "content": "new"},), ("x", "y"))
    with pytest.raises(ValueError, match="has no item 'nowhere'"):
        store.add([extra], [Label(item=uid, labeller="ann", choice="a") for uid in (extra.uid, "nowhere")])
    assert len(store.items()) == len(ITEMS) and store.stats()["labels"] == 0
    store.label(ITEMS[0].uid, "ann", "a")  # and the store goes on


@pytest.mark.parametrize(("choices", "said"), [
    ("a", "a"), ("ab", "tie"), ("aab", "a"), ("bt", "tie"), ("tta", "tie"), ("aabt", "tie"), ("aaabt", "a"), ("sb", "b"),
    ("s", None), ("", None), ("asss", "a"),
])
def test_majority_is_more_than_half(choices, said):
    names = {"a": "a", "b": "b", "t": "tie", "s": "skip"}
    assert majority([names[c] for c in choices]) == said


def test_pairs_by_majority_by_all_and_by_one(store):
    x, y, z = ITEMS[:3]
    for item, said in ((x, "aab"), (y, "ab"), (z, "bss")):
        for who, choice in zip(NAMES, said, strict=False):
            store.label(item.uid, who, "skip" if choice == "s" else choice)
    pairs = store.pairs()
    assert [(p.chosen, p.rejected, p.weight) for p in pairs] == [
        (x.a, x.b, 1.0), (y.a, y.b, 0.5), (y.b, y.a, 0.5), (z.b, z.a, 1.0)]
    assert [p.chosen for p in store.pairs(how="all")] == [x.a, x.a, x.b, y.a, y.b, z.b]
    assert [(p.id, p.chosen) for p in store.pairs("ben")] == [(f"{x.uid}/ben", x.a), (f"{y.uid}/ben", y.b)]
    assert store.stats() == {
        "items": 12, "judged": 3, "contradicted": 2, "labels": 8, "choices": {"a": 3, "b": 3, "tie": 0, "skip": 2},
        "labellers": {"ann": {"a": 2, "b": 1, "tie": 0, "skip": 0}, "ben": {"a": 1, "b": 1, "tie": 0, "skip": 1},
                      "cleo": {"a": 0, "b": 1, "tie": 0, "skip": 1}}}
    with pytest.raises(ValueError, match="'dan' has labelled nothing .* labellers: ann, ben, cleo"):
        store.pairs("dan")
    with pytest.raises(ValueError, match="how is 'most'"):
        store.pairs(how="most")


def test_agreement_by_hand(store):
    for item, ann, ben in zip(ITEMS, "aaaaabbbbt", "aaaabbbbat", strict=False):
        store.label(item.uid, "ann", "tie" if ann == "t" else ann)
        store.label(item.uid, "ben", "tie" if ben == "t" else ben)
    store.label(ITEMS[10].uid, "ann", "a")     # judged by one of the two
    store.label(ITEMS[10].uid, "ben", "skip")
    store.label(ITEMS[0].uid, "cleo", "a")
    found = {tuple(row["labellers"]): row for row in store.agreement()}
    # 8 of 10 agree; by chance 0.5 * 0.5 + 0.4 * 0.4 + 0.1 * 0.1 = 0.42
    assert found["ann", "ben"] == {"labellers": ["ann", "ben"], "items": 10, "agreed": 8, "kappa": pytest.approx(0.38 / 0.58)}
    assert found["ann", "cleo"]["kappa"] is None and found["ann", "cleo"]["items"] == 1 and len(found) == 3


def test_a_file_in_a_file_out_in_again(tmp_path):
    talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    rows = [{"prompt": "Hi", "chosen": ODD, "rejected": "y"},
            {"prompt": talk, "chosen": "p", "rejected": [{"role": "assistant", "content": "q"}]},
            {"prompt": "Tie?", "chosen": "x", "rejected": "y", "tie": True, "labeller": "ben"},
            {"prompt": "Three?", "answers": ["x", "y", "z"], "ranks": [2, 1, 2], "labeller": "ben"},
            {"prompt": "Hi", "chosen": "y", "rejected": ODD, "labeller": "ben", "margin": 2},
            {"prompt": "Open?", "answers": ["x", "y"]}]
    items, labels, seen = read_items(write(tmp_path / "0.jsonl", *rows), "ann")
    assert len(items) == 8 and len(labels) == 7 and (seen["margins"], seen["rankings"], seen["rows"]) == (1, 1, 6)
    settings = {"1": {}, "2": {"how": "all"}, "3": {"labeller": "ben"}, "4": {"form": "singles"}}
    with Store.open(tmp_path / "0.db") as store:
        store.add(items, labels)
        found = [export(store, tmp_path / f"{name}.jsonl", **more) for name, more in settings.items()]
    assert [f["rows"] for f in found] == [6, 7, 5, 6] and [f["ties"] for f in found] == [3, 2, 2, 3]
    assert [f["unjudged"] for f in found] == [1, 1, 2, 1]
    for name in "123":  # export, import, export
        with Store.open(tmp_path / f"{name}.db") as fresh:
            fresh.add(*read_items(tmp_path / f"{name}.jsonl", "ann")[:2])
            export(fresh, tmp_path / "again.jsonl", **settings[name])
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes()
    pairs = read_pairs(tmp_path / "2.jsonl")
    assert {(p.chosen, p.rejected) for p in pairs if p.messages[-1]["content"] == "Hi" and len(p.messages) == 1} == \
        {(ODD, "y"), ("y", ODD)}
    assert [p.messages for p in pairs if p.chosen == "p"] == [tuple(talk)]
    singles = read_singles(tmp_path / "4.jsonl")
    assert {(s.messages[-1]["content"], s.label) for s in singles if len(s.messages) == 3} == {("p", True), ("q", False)}


def test_labels_survive_kill_9(store):
    loop = ("for item in items: store.label(item.uid, 'ann', 'tie'); print(item.uid, flush=True)\n"
            "while True: store.label(items[0].uid, 'ben', 'a'); store.label(items[0].uid, 'ben', 'b')")  # until it is killed
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
        assert after._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: on the disk when `label` returns


def test_two_processes_write_at_once_and_lose_nothing(tmp_path):
    more = [f"from postgrad.data.items import Item\nstore.add([Item.of(({{'role': 'user', 'content': str(n)}},), ('x', 'y')) "
            f"for n in range({start}, {start + 30})])\nfor item, _ in store.items(): store.label(item.uid, sys.argv[2], 'a')"
            for start in (0, 15)]  # both make the store, and each adds some that the other adds too
    both = [python(code, tmp_path / "p.db", who, stderr=subprocess.PIPE) for code, who in zip(more, NAMES[:2], strict=True)]
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
    for path, words in ((text, "is no preference store"), (other, "a database, but no preference store"), (newer, "version 9"),
                        (tmp_path / "a/b.db", "in a folder that exists"), (tmp_path, "in a folder that exists")):
        with pytest.raises(ValueError, match=words):
            Store.open(path)
    with pytest.raises(ValueError, match="there is no store at"):
        Store.open(tmp_path / "none.db", create=False)
    assert [path.read_bytes() for path in (text, other, newer)] == before and len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_a_label_is_said(store):
    for uid, who, choice, words in ((ITEMS[0].uid, "ann", "c", "no choice 'c': it is one of a, b, tie, skip"),
                                    (ITEMS[0].uid, " ", "a", "cannot name a labeller"), ("x", "ann", "a", "has no item 'x'")):
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


# the commands

def run(capsys, line):
    code = main([*line.split(), "--json"])
    out = capsys.readouterr()
    return json.loads(out.out) if code == 0 else out.err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ask.jsonl", *({"prompt": f"Question {n}?", "answers": [f"yes {n}", f"no {n}"]} for n in range(4)))
    return tmp_path


def test_label_in_the_terminal(here, capsys, monkeypatch):
    assert run(capsys, "label import ask.jsonl --store p.db")["added"] == 4
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nx\n\nB\nu\nt\ns\nu\nb\na\na\n"))
    assert main("label ask --store p.db --labeller ann".split()) == 0
    out = capsys.readouterr().out
    assert "'x' is no key here" in out and "nothing left to label" in out and "6 labelled, 2 undone, 0 left for ann" in out
    shown = [part.split("\n")[0] for part in out.split("[a] ")[1:]]
    with Store.open("p.db") as store:
        said = [(item, labels["ann"]) for item, labels in store.items()]
    assert [choice if choice in ("tie", "skip") else "clear" for _, choice in said] == ["clear", "tie", "clear", "clear"]
    first, _ = said[0]
    assert getattr(first, said[0][1]) == shown[0]  # a: the answer that was shown first
    assert getattr(said[2][0], said[2][1]) != [text for text in shown if text.endswith("2")][0]  # b: the other one
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nq\n"))
    assert run(capsys, "label ask --store p.db --labeller ben") == {"labelled": 1, "undone": 0, "refused": 0, "left": 3}


def test_control_characters_cannot_steer_the_terminal(here, capsys, monkeypatch):
    write(here / "bad.jsonl", {"prompt": "\x1b[2J", "answers": ["\x1b]0;x\x07", "y"]})
    run(capsys, "label import bad.jsonl --store p.db")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main("label ask --store p.db --labeller ann".split()) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_import_stats_export(here, capsys):
    write(here / "pairs.jsonl", *({"prompt": f"Question {n}?", "chosen": f"yes {n}", "rejected": f"no {n}"} for n in range(4)),
          {"prompt": "Question 0?", "chosen": "no 0", "rejected": "yes 0", "labeller": "ben"})
    run(capsys, "label import ask.jsonl")
    found = run(capsys, "label import pairs.jsonl --labeller ann")
    assert (found["added"], found["known"], found["labels"], found["file"]["contradicted"]) == (0, 5, 5, 1)
    found = run(capsys, "label stats")
    assert (found["items"], found["labels"], found["contradicted"]) == (4, 5, 1)
    assert found["agreement"] == [{"labellers": ["ann", "ben"], "items": 1, "agreed": 0, "kappa": None}]
    assert main(["label", "stats"]) == 0
    assert "ann and ben" in (out := capsys.readouterr().out) and "judged both ways" in out and "unknown" in out
    assert run(capsys, "label export --out out.jsonl")["ties"] == 1  # one against one
    assert [p.chosen for p in read_pairs(here / "out.jsonl") if not p.tie] == ["yes 1", "yes 2", "yes 3"]
    assert run(capsys, "label export --out one.jsonl --format singles --labeller ann")["rows"] == 8
    assert {(s.messages[-1]["content"], s.label) for s in read_singles(here / "one.jsonl")} == \
        {(f"{word} {n}", word == "yes") for n in range(4) for word in ("yes", "no")}


def test_items_made_from_a_model(here, capsys):
    line = "label make --model tiny-chat --task questions --prompts 3 --max-new-tokens 12 --store p.db --seed 1"
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
    "make --model tiny --task words --temperature 0": "only differ above 0",
}


@pytest.mark.parametrize("line", WRONG)
def test_bad_input_gets_a_sentence_and_leaves_nothing(here, capsys, line):
    ask = {"prompt": "Hi", "answers": ["x"]}
    write(here / "empty.jsonl"), write(here / "one.jsonl", ask), (here / "file").write_text("in the way")
    write(here / "pair.jsonl", {"prompt": "Hi", "chosen": "x", "rejected": "y"})
    write(here / "half.jsonl", {"prompt": "Hi", "chosen": "x", "rejected": "y"}, {"prompt": "Hi", "chosen": "x"})
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
