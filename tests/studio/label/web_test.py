"""The labelling page: one judgement a click, on the disk before the next pair, undone and revised."""

import re
from collections import Counter
from html import unescape

import pytest
from starlette.testclient import TestClient
from studio_labels import ITEMS, TOKEN, field, judge, labels

from postgrad.data.store import Item, Store, shown_sides
from postgrad.studio.app import create_studio
from postgrad.studio.security import COOKIE


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        yield store


@pytest.fixture
def client(tmp_path):
    app = create_studio(runs=tmp_path / "runs", token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db")
    yield TestClient(app, cookies={COOKIE: TOKEN}, headers={"x-postgrad": "1"}, raise_server_exceptions=False)
    for name in ("reward_trainer", "pair_maker", "runner"):
        if hasattr(app.state, name):
            getattr(app.state, name).close()


def rows(store):
    with store._session() as db:
        return db.execute("SELECT count(*) FROM labels").fetchone()[0]


def test_a_judgement_is_on_the_disk_before_the_next_pair_is_shown(client, store):
    first = client.get("/label?labeller=ann").text
    uid = field(first, "item")
    assert uid == ITEMS[0].uid and "0 of 30 judged" in first
    second = judge(client, first, "B").text
    with Store.open(store.path) as fresh:
        assert fresh.items(0, 1)[0][1] == {"ann": shown_sides(uid, "ann")[1]}
    assert field(second, "item") == ITEMS[1].uid and "1 of 30 judged" in second


def test_sides_are_mixed_and_stay_where_they_are(client, store):
    seen = Counter()
    for who in ("ann", "ben"):
        for item in ITEMS:
            text = client.get(f"/label?labeller={who}&item={item.uid}").text
            shown = [unescape(x) for x in re.findall(r'class="wrap answer"[^>]*>([^<]*)<', text)]
            assert shown == [getattr(item, side) for side in shown_sides(item.uid, who)]
            seen[shown[0] == item.a] += 1
    assert 15 < seen[True] < 45  # +- 3.9 standard deviations of a fair coin


def test_a_double_click_and_a_second_tab_make_one_label(client, store):
    tab = other = client.get("/label?labeller=ann").text
    assert judge(client, tab, "A").status_code == judge(client, tab, "A").status_code == 200
    late = judge(client, other, "B").text
    assert "judged that pair already (A)" in late and field(late, "item") == ITEMS[1].uid
    assert labels(store) == [{"ann": shown_sides(ITEMS[0].uid, "ann")[0]}] and rows(store) == 1


def test_undo_after_a_reload_and_again_to_the_beginning(client, store):
    for choice in ("A", "tie", "skip"):
        judge(client, client.get("/label?labeller=ann").text, choice)
    for item in reversed(ITEMS[:3]):
        assert field(client.get("/label").text, "item") != item.uid
        answer = client.post("/label/undo", data={"labeller": "ann"}).text
        assert field(answer, "item") == item.uid and "taken back" in answer
        assert field(client.get("/label").text, "item") == item.uid  # a reload shows the same
    assert "nothing to undo" in client.post("/label/undo", data={"labeller": "ann"}).text
    assert labels(store) == []


def test_a_pair_that_was_removed_meanwhile_is_passed_over(client, store):
    page = client.get("/label?labeller=ann").text
    store.remove(ITEMS[0].uid)
    answer = judge(client, page, "A").text
    assert "removed meanwhile" in answer and field(answer, "item") == ITEMS[1].uid and labels(store) == []


def test_a_judgement_can_be_revised_by_its_address(client, store):
    judge(client, client.get("/label?labeller=ann").text, "A")
    page = client.get(f"/label?labeller=ann&item={ITEMS[0].uid}").text
    assert "your judgement so far" in page
    judge(client, page, "tie")
    assert labels(store) == [{"ann": "tie"}]


def test_who_labels_is_asked_and_remembered(client, store):
    assert "Your name" in client.get("/label").text
    client.get("/label?labeller=Jörg%20K.")
    assert "Jörg K. · 0 of 30" in client.get("/label").text
    assert "Your name" in client.get("/label?labeller=").text
    assert client.get("/label?labeller=%00").status_code == 400


@pytest.mark.parametrize(("changed", "words"), [
    ({"choice": "c"}, "no choice"), ({"choice": ""}, "no choice"),
    ({"labeller": "\x00"}, "cannot name"), ({"labeller": ""}, "cannot name"),
])
def test_what_is_no_judgement_is_refused(client, store, changed, words):
    answer = judge(client, client.get("/label?labeller=ann").text, "A", **changed)
    assert answer.status_code == 400 and words in answer.text and labels(store) == []


def test_looking_makes_no_file(client, tmp_path):
    for path in ("/label", "/label?labeller=ann", "/label/data", "/label/live"):
        assert client.get(path).status_code == 200
    assert client.get("/label/data/export").status_code == 400
    assert list(tmp_path.iterdir()) == []


def test_completions_are_words(client, store):
    bad = '</pre><script>alert(1)</script>"\'{{7*7}}'
    store.add([Item.of(({"role": "user", "content": bad},), (bad + "1", bad + "2"), bad)])
    uid = store.items()[-1][0].uid
    store.label(uid, bad, "a")
    for path in (f"/label?labeller=ann&item={uid}", "/label/data?start=25", "/label/live"):
        text = client.get(path).text
        assert "<script>alert" not in text and ("{{7*7}}" in text or "live" in path)
    answer = client.post("/label/data/edit",
                         data={"item": uid, "labeller": bad, "choice": "b", "was": "a"}).text
    assert "<script>alert" not in answer and store.items()[-1][1] == {bad: "b"}
