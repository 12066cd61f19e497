"""SFT on several sources: shares by weight or by size, the turns that are learned, what was cut."""

import json
from collections import Counter

import pytest
from small import CHAT, begins, build

import postgrad as pg
from postgrad.methods import METHODS
from postgrad.recipes import sft
from postgrad.recipes.row_reader import RowSettings
from postgrad.records import Conversation
from postgrad.resolve.sources import sources_of
from postgrad.training.batches import ConversationBatches
from postgrad.training.batches.shuffled import StreamMixture

ALL = RowSettings(holdout=0.0)  # every row is learned from


def talks(name, count, turns=1):
    def turn(i, t):
        return [{"role": "user", "content": f"Say {name} {i} {t}."},
                {"role": "assistant", "content": f"{name} {t}!"}]

    return [{"id": f"{name}{i}", "messages": [m for t in range(turns) for m in turn(i, t)]}
            for i in range(count)]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("a", 30), ("b", 10)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in talks(name, count)))
    return tmp_path


def built(data, **settings):
    return build(sft.SFTConfig(data=data, **settings), begins("tiny"))


def origins(parts, steps):
    """How many rows of each source the batches of a run hold, step by step."""
    batches = iter(parts.batches)
    return [Counter(name[0] for name in next(batches).ids) for _ in range(steps)]


@pytest.mark.parametrize(("text", "found"), [
    ("a.jsonl", [("a.jsonl", None)]), ("a.jsonl,b.jsonl", [("a.jsonl", None), ("b.jsonl", None)]),
    ("a.jsonl:0.7, b.jsonl:0.3", [("a.jsonl", 0.7), ("b.jsonl", 0.3)]),
    ("a.jsonl:3,words:1", [("a.jsonl", 3.0), ("words", 1.0)]),
    ("gsm8k:data/gsm8k:0.5,words:0.5", [("gsm8k:data/gsm8k", 0.5), ("words", 0.5)]),
    ("gsm8k:data,words", [("gsm8k:data", None), ("words", None)]),
])
def test_sources_and_weights_are_read(text, found, files):
    assert [(source.rows, source.weight) for source in sources_of(text)] == found


def test_a_file_is_that_file_whatever_its_name(files):
    for name in ("x,y.jsonl", "z:0.5", "words"):
        (files / name).write_text(json.dumps(talks("x", 1)[0]) + "\n")
        (source,) = sources_of(name)
        assert (source.rows, source.weight, source.task) == (name, None, False)
    assert [s.rows for s in sources_of("z:0.5,a.jsonl")] == ["z:0.5", "a.jsonl"]


@pytest.mark.parametrize(("text", "words"), [
    ("a.jsonl:0.7,b.jsonl", "give each source a weight, or none of them"),
    ("a.jsonl:0,b.jsonl:1", "data gives a.jsonl the weight 0: it must be a number above 0"),
    ("a.jsonl:nan,b.jsonl:1", "the weight nan"), (",", "give each source a weight"),
])
def test_weights_that_cannot_be(text, words, files):
    with pytest.raises(ValueError, match=words):
        sources_of(text)


def test_after_any_number_of_items_each_source_has_its_share():
    for shares in ((0.75, 0.25), (0.5, 0.3, 0.2), (0.9, 0.05, 0.05)):
        line = StreamMixture([[k] * 7 for k in range(len(shares))], shares, seed=3)
        seen = Counter()
        for n in range(1, 400):
            seen.update(line.take(1))
            assert all(abs(seen[k] - share * n) < 1.01 for k, share in enumerate(shares)), (shares, n)
    assert Counter(StreamMixture([["a"], ["b"]], (0.75, 0.25), 0).take(8)) == {"a": 6, "b": 2}


def test_a_mixture_goes_on_where_it_was():
    sources = [[f"{name}{i}" for i in range(5)] for name in "abc"]
    whole, cut = (StreamMixture(sources, (0.6, 0.3, 0.1), seed=1) for _ in range(2))
    first = whole.take(23)
    assert len(set(first[:8])) == 8  # each item once a round
    after = whole.take(9)
    cut.at = 23
    assert cut.take(9) == after and cut.at == 32


def test_a_step_holds_the_sources_by_weight(files):
    parts = built("a.jsonl:0.25,b.jsonl:0.75", steps=3, rows_per_step=8, rows=ALL)
    assert origins(parts, 3) == [{"a": 2, "b": 6}] * 3
    assert parts.data["sources"] == [{"name": "a.jsonl", "rows": 30, "share": 0.25},
                                     {"name": "b.jsonl", "rows": 10, "share": 0.75}]
    assert parts.notes[0] == "imitated: a.jsonl 25.0% (30 rows), b.jsonl 75.0% (10 rows)"


def test_without_weights_sources_count_by_their_size(files):
    parts = built("a.jsonl,b.jsonl", steps=2, rows_per_step=40, rows=ALL)
    assert origins(parts, 1) == [{"a": 30, "b": 10}]  # every row once
    assert [source["share"] for source in parts.data["sources"]] == [0.75, 0.25]
    one = built("a.jsonl", steps=1)
    assert "sources" not in one.data and len(one.notes) == 1


def test_a_task_s_demonstrations_are_a_source(files):
    parts = built("a.jsonl:0.5,words:0.5", steps=1, rows_per_step=8, examples=20)
    ids = next(iter(parts.batches)).ids
    assert sum(name.startswith("words/") for name in ids) == 4
    with pytest.raises(ValueError, match="there is no file nowhere.jsonl"):
        built("a.jsonl:0.5,nowhere.jsonl:0.5")


def test_a_prompt_that_is_held_out_is_held_out_of_every_source(files):
    (files / "b.jsonl").write_text((files / "a.jsonl").read_text())
    parts = built("a.jsonl:0.5,b.jsonl:0.5", steps=1)
    assert parts.data["evaluated"] == 6 and parts.data["leaked"] == 0  # three prompts, in both files


@pytest.mark.parametrize("turns", ["all", "last"])
def test_all_turns_or_the_last_are_learned(turns, tmp_path):
    rows = [Conversation(id="1", messages=tuple(talks("x", 1, turns=3)[0]["messages"]))]
    parts = built(rows, steps=1, rows_per_step=1, turns=turns)
    batch = next(iter(parts.batches))
    learned = CHAT.decode(batch.tokens[0][batch.mask[0]].tolist())
    assert [f"x {t}!" in learned for t in range(3)] == [turns == "all", turns == "all", True]
    with pytest.raises(ValueError, match="turns is 'first': expected all, last or prompts"):
        sft.SFTConfig(task="words", turns="first")


def test_what_is_left_out_or_cut_is_counted(files):
    long = {"messages": [{"role": "user", "content": "w " * 900}, {"role": "assistant", "content": "yes"}]}
    with open(files / "a.jsonl", "a") as file:
        file.write(json.dumps(long) + "\n" + '{"messages": 3}\n')
    with open(files / "b.jsonl", "a") as file:
        file.write("[]\n")
    dropped = built("a.jsonl,b.jsonl", rows=RowSettings(skip_bad=True, truncate="drop", holdout=0.0))
    assert {k: dropped.data[k] for k in ("bad", "dropped", "cut")} == {"bad": 2, "dropped": 1, "cut": 0}
    assert sum("left out" in note for note in dropped.notes) == 3
    cut = built("a.jsonl,b.jsonl", rows=RowSettings(skip_bad=True, truncate="left", holdout=0.0))
    assert {k: cut.data[k] for k in ("bad", "dropped", "cut")} == {"bad": 2, "dropped": 0, "cut": 1}
    assert any("the rows: 1 of 41 rows are cut at the start" in note for note in cut.notes)


@pytest.mark.parametrize(("data", "share"), [
    ({"a.jsonl": 0.25, "b.jsonl": 0.75}, 0.25), (["a.jsonl", "b.jsonl"], 0.75),
    ([(talks("a", 30), 0.25), ("b.jsonl", 0.75)], 0.25)])
def test_the_door_from_python(data, share, files):
    run = pg.fit("tiny", "sft", data=data, run=files / "run", display=False, steps=1, rows_per_step=8,
                 holdout=0)
    kept = json.loads((files / "run/run.json").read_text())["data"]["sources"]
    assert [(s["rows"], s["share"]) for s in kept] == [(30, share), (10, 1 - share)]
    assert any("imitated" in row["text"] for row in run.rows("events")[0])


def test_a_changed_file_of_several_is_refused(files):
    pg.fit("tiny", "sft", data="a.jsonl:0.5,b.jsonl:0.5", run=files / "run", display=False, steps=1)
    with open(files / "b.jsonl", "a") as file:
        file.write(json.dumps(talks("c", 1)[0]) + "\n")
    with pytest.raises(ValueError, match=r"data a.jsonl:0.5,b.jsonl:0.5 has changed since this run began"):
        pg.resume(files / "run", steps=2, display=False)


def test_a_line_of_sources_is_cut_and_goes_on(files):
    rows = [[Conversation(id=f"{n}{i}", messages=tuple(talks(n, 9)[i]["messages"])) for i in range(9)]
            for n in "ab"]

    def line():
        return ConversationBatches(rows, CHAT, METHODS["sft"], per_step=3, steps=6, seed=0, max_tokens=128,
                                   shares=(0.7, 0.3))

    whole, first, second = line(), line(), line()
    all_ids = [batch.ids for batch in whole]
    begun = iter(first)
    ids = [next(begun).ids for _ in range(2)]
    second.restore(first.state())
    assert ids + [batch.ids for batch in second] == all_ids
