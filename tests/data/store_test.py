"""The preference store: items, labels, what stands of them, and what they come to."""

import random
import sqlite3
from contextlib import closing

import pytest
from store_small import ITEMS, NAMES, write

from postgrad.data.exchange import read_items
from postgrad.data.store import Item, Label, Store, majority, shown_sides


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        yield store


def test_the_same_answers_are_one_item_whichever_way_round(store):
    twin = Item.of(ITEMS[0].messages, (ITEMS[0].b, ITEMS[0].a), "elsewhere")
    assert (twin.uid, twin.a, twin.b) == (ITEMS[0].uid, ITEMS[0].a, ITEMS[0].b)
    other = Item.of(({"role": "user", "content": "Question?"},), (ITEMS[0].b, ITEMS[0].a))
    assert store.add([twin, other]) == {"added": 1, "known": 1, "labels": 0, "known_labels": 0,
                                        "conflicting": 0}
    assert [item.uid for item, _ in store.items()] == [item.uid for item in [*ITEMS, other]]
    assert store.items(2, 1)[0][0] == ITEMS[2]


def test_names_and_sides_say_nothing():
    asks = [Item.of(({"role": "user", "content": str(n)},), ("right", "wrong")) for n in range(400)]
    assert 160 < sum(item.a == "right" for item in asks) < 240  # +- 4 standard deviations of a fair coin
    for who in ("ann", "ben"):
        assert 160 < sum(shown_sides(item.uid, who) == ("a", "b") for item in asks) < 240
    assert 160 < sum(shown_sides(item.uid, "ann") == shown_sides(item.uid, "ben") for item in asks) < 240


def test_who_has_fewest_judgements_comes_first(store):
    for item in ITEMS[:6]:
        store.label(item.uid, "ann", "a")
    store.label(ITEMS[6].uid, "ann", "skip")
    order = []
    while asked := store.next("ben"):
        order.append(asked.item)
        store.label(asked.item.uid, "ben", asked.sides[0])
        assert asked.answers == tuple(getattr(asked.item, side)
                                      for side in shown_sides(asked.item.uid, "ben"))
    assert order == [*ITEMS[6:], *ITEMS[:6]] and store.left("ben") == 0
    assert store.next("ann").item == ITEMS[7] and store.left("ann") == 5


def test_undo_brings_back_what_stood_before(store):
    first, second = ITEMS[0].uid, ITEMS[1].uid
    # the last says nothing new
    for uid, choice in ((first, "a"), (second, "tie"), (first, "b"), (first, "b")):
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
    # another tab, which saw nothing yet
    assert store.revise(uid, "ann", "b", None) == "a"
    assert store.revise(uid, "ann", "b", "a") == "b" and store.asked(uid, "ann")[1] == "b"
    assert store.revise(uid, "ann", None, "a") == "b" and store.revise(uid, "ann", None, "b") is None
    # taken back with all that it had replaced
    assert store.items(0, 1)[0][1] == {} and store.undo("ann") is None
    assert store.revise(uid, "ann", "b", None) == "b" and store.asked(uid, "ann")[0].item == ITEMS[0]
    with pytest.raises(ValueError, match="has no item 'x'"):
        store.asked("x", "ann")


def test_a_removed_item_is_nowhere_until_it_comes_back(store):
    for item in ITEMS[:3]:
        store.label(item.uid, "ann", "a")
    store.remove(ITEMS[2].uid)
    assert store.stats()["items"] == 11 and store.stats()["labels"] == 2 and store.left("ann") == 9
    assert ([item for item, _ in store.items(removed=True)] == [ITEMS[2]]
            and store.next("ben").item == ITEMS[3])
    with pytest.raises(ValueError, match="has no item"):
        store.label(ITEMS[2].uid, "ben", "a")
    assert store.undo("ann").item == ITEMS[1]  # what was removed is not what was last said
    store.remove(ITEMS[2].uid, removed=False)
    assert store.items(2, 1)[0] == (ITEMS[2], {"ann": "a"})
    store.remove(ITEMS[2].uid)
    # an import brings it back
    assert store.add(ITEMS[:3])["added"] == 1 and store.items(2, 1)[0][1] == {"ann": "a"}
    with pytest.raises(ValueError, match="has no item 'x'"):
        store.remove("x")


def test_a_store_of_version_1_is_brought_up_to_date(tmp_path):
    path = tmp_path / "old.db"
    with Store.open(path) as store:
        store.add(ITEMS)
        store.label(ITEMS[0].uid, "ann", "b")
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE items DROP COLUMN removed")
        for table in ("items", "labels"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN sum")
        db.execute("DROP TABLE sums")
        db.execute("PRAGMA user_version = 1")
    with Store.open(path, create=False) as store:
        assert store.items(0, 1)[0] == (ITEMS[0], {"ann": "b"}) and store.items(removed=True) == []
    Store.open(path).close()


def test_an_import_never_overwrites_a_label(tmp_path):
    rows = [{"prompt": "Hi", "chosen": "x", "rejected": "y"},
            {"prompt": "Hi", "chosen": "y", "rejected": "x"},
            {"prompt": "Hi", "chosen": "x", "rejected": "y"}]
    items, labels, seen = read_items(write(tmp_path / "p.jsonl", *rows), "ann")
    assert (seen["repeats"], seen["contradictions"]) == ([["1", "3"]], [["1", "2"]])
    with Store.open(tmp_path / "p.db") as store:
        assert store.add(items, labels) == {"added": 1, "known": 2, "labels": 1, "known_labels": 1,
                                            "conflicting": 1}
        assert [p.chosen for p in store.pairs()] == ["x"]
        assert store.add(items, labels)["conflicting"] == 1 and len(store.items()) == 1


def test_all_of_an_import_or_nothing(store):
    extra = Item.of(({"role": "user", "content": "new"},), ("x", "y"))
    with pytest.raises(ValueError, match="has no item 'nowhere'"):
        store.add([extra], [Label(item=uid, labeller="ann", choice="a") for uid in (extra.uid, "nowhere")])
    assert len(store.items()) == len(ITEMS) and store.stats()["labels"] == 0
    store.label(ITEMS[0].uid, "ann", "a")  # and the store goes on


@pytest.mark.parametrize(("choices", "said"), [
    ("a", "a"), ("ab", "tie"), ("aab", "a"), ("bt", "tie"), ("tta", "tie"), ("aabt", "tie"), ("aaabt", "a"),
    ("sb", "b"), ("s", None), ("", None), ("asss", "a"),
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
        "items": 12, "judged": 3, "contradicted": 2, "labels": 8,
        "choices": {"a": 3, "b": 3, "tie": 0, "skip": 2}, "labellers":
        {"ann": {"a": 2, "b": 1, "tie": 0, "skip": 0}, "ben": {"a": 1, "b": 1, "tie": 0, "skip": 1},
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
    assert found["ann", "ben"] == {"labellers": ["ann", "ben"], "items": 10, "agreed": 8,
                                   "kappa": pytest.approx(0.38 / 0.58)}
    assert found["ann", "cleo"]["kappa"] is None and found["ann", "cleo"]["items"] == 1 and len(found) == 3


def contents(path):
    with Store.open(path, create=False) as store:
        return store.items(), store.items(removed=True), store.choices(), store.stats()


def test_a_bit_of_the_file_that_changes_is_noticed(tmp_path):
    """In any page: what is read afterwards is what was written, or nothing."""
    path, rng = tmp_path / "p.db", random.Random(0)
    with Store.open(path) as store:
        store.add(ITEMS)
        for item in ITEMS[:3]:
            store.label(item.uid, "ann", "b")
        store.label(ITEMS[0].uid, "bo", "a")
        store.undo("bo")
        store.remove(ITEMS[1].uid)
    sound, before, noticed = path.read_bytes(), contents(path), 0
    used = [i for i, byte in enumerate(sound) if byte] + [*range(0, len(sound), 97)]
    for i in range(300):
        at, flipped = rng.choice(used), bytearray(sound)
        flipped[at] ^= 1 << rng.randrange(8)
        (copy := tmp_path / f"{i}.db").write_bytes(flipped)
        try:
            assert contents(copy) == before, (at, flipped[at])
        except ValueError as fault:
            noticed += str(copy) in str(fault)
        copy.unlink()
    assert noticed > 200


@pytest.mark.parametrize("change", [
    "UPDATE labels SET choice = 'a' WHERE id = 1", "UPDATE labels SET undone = 1",
    "DELETE FROM labels WHERE id = 2",
    "UPDATE items SET a = 'x'", "UPDATE items SET removed = 1", "UPDATE labels SET labeller = 'eve'",
    "DELETE FROM items WHERE id = 3", "UPDATE sums SET rows = 9"])
def test_a_row_that_another_program_changed_is_noticed(tmp_path, change):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        for item in ITEMS[:2]:
            store.label(item.uid, "ann", "b")
    with closing(sqlite3.connect(tmp_path / "p.db")) as db:
        db.execute(change)
        db.commit()
    with pytest.raises(ValueError, match=r"p.db is damaged .*restore it from a copy"):
        Store.open(tmp_path / "p.db")
