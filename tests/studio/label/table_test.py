"""The table of labels: filters, edits, files out and in, pairs made by a model."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from starlette.testclient import TestClient
from studio_labels import ITEMS, TOKEN, found, labels

from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.store import Store
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


def test_filters(client, store):
    for item, choice in zip(ITEMS, ("a", "b", "tie", "skip", "a"), strict=False):
        store.label(item.uid, "ann", choice)
    store.label(ITEMS[4].uid, "ben", "b")
    wanted = {"": 30, "unjudged": 26, "a": 2, "b": 2, "tie": 1, "skip": 1, "contradicted": 1, "surprising": 0,
              "removed": 0}
    assert {shown: found(client.get(f"/label/data?shown={shown}").text) for shown in wanted} == wanted
    assert (found(client.get("/label/data?labeller=ben").text) == 1
            and found(client.get("/label/data?text=NO%202").text) == 11)
    assert (client.get("/label/data?shown=odd").status_code == 400
            and client.get("/label/data?start=-1").status_code == 400)
    assert "Later" in client.get("/label/data").text and "Earlier" in client.get("/label/data?start=25").text


def test_an_edit_is_undoable_and_never_overwrites_what_it_did_not_see(client, store):
    uid = ITEMS[0].uid
    store.label(uid, "ann", "a")
    sent = {"item": uid, "labeller": "ann", "choice": "b", "was": "a"}
    answer = client.post("/label/data/edit", data=sent).text
    assert labels(store) == [{"ann": "b"}]
    back = json.loads(unescape(re.search(r"hx-vals='([^']*)'[^>]*>Undo", answer)[1]))
    assert ("Not changed: meanwhile ann has said b"
            in client.post("/label/data/edit", data=sent | {"choice": "tie"}).text)
    client.post(f"/label/data/{back.pop('act')}", data=back)
    assert labels(store) == [{"ann": "a"}]


def test_a_label_and_a_pair_are_taken_out_and_brought_back(client, store):
    uid = ITEMS[0].uid
    store.label(uid, "ann", "a")
    for route, sent, gone in (("edit", {"item": uid, "labeller": "ann", "choice": "", "was": "a"}, 30),
                              ("remove", {"item": uid}, 29)):
        answer = client.post(f"/label/data/{route}", data=sent).text
        assert labels(store) == [] and len(store.items()) == gone
        back = json.loads(unescape(re.search(r"hx-vals='([^']*)'[^>]*>Undo", answer)[1]))
        client.post(f"/label/data/{back.pop('act')}", data=back)
        assert labels(store) == [{"ann": "a"}] and len(store.items()) == 30
    client.post("/label/data/remove", data={"item": uid})
    assert "Bring back" in client.get("/label/data?shown=removed").text
    client.post("/label/data/remove", data={"item": uid, "removed": "0"})
    assert len(store.items()) == 30
    assert client.post("/label/data/remove", data={"item": "nowhere"}).status_code == 400


def test_what_goes_out_is_what_reward_dpo_and_kto_read_and_comes_in_again(client, store, tmp_path):
    for item, choice in zip(ITEMS, ("a", "b", "tie"), strict=False):
        store.label(item.uid, "ann", choice)
    answer = client.get("/label/data/export?format=pairs&labeller=ann")
    assert 'filename="pairs.jsonl"' in answer.headers["content-disposition"]
    (tmp_path / "pairs.jsonl").write_bytes(answer.content)
    (tmp_path / "labels.jsonl").write_bytes(client.get("/label/data/export?format=singles").content)
    x, y, z = ITEMS[:3]
    assert [(p.chosen, p.rejected, p.weight) for p in read_pairs(tmp_path / "pairs.jsonl")] == [
        (x.a, x.b, 1), (y.b, y.a, 1), (z.a, z.b, 0.5), (z.b, z.a, 0.5)]
    assert [s.label for s in read_singles(tmp_path / "labels.jsonl")] == [True, False, False, True]
    other = create_studio(runs=tmp_path, token=TOKEN, hosts=("testserver",), store=tmp_path / "other.db")
    second = TestClient(other, cookies={COOKIE: TOKEN}, headers={"x-postgrad": "1"},
                        raise_server_exceptions=False)
    said = second.post("/label/data/import", data={"name": "../pairs.jsonl", "rows": answer.text}).text
    assert "pairs.jsonl: 3 new pairs, 0 known; 3 new labels" in said
    with Store.open(tmp_path / "other.db") as copy:
        assert copy.items() == [(replace(item, origin="pairs.jsonl"), said)
                                for item, said in store.items()[:3]]


@pytest.mark.parametrize(("text", "words"), [
    ("{", "pasted.jsonl line 1"),
    ('{"prompt": "x", "chosen": "a", "rejected": "b"}', "Name the labeller beside the file"),
    ("", "pasted.jsonl"), ('{"prompt": "x", "answers": ["a"]}', "list of two or more"),
])
def test_a_file_that_cannot_be_read_is_refused_whole(client, store, text, words):
    good = json.dumps({"prompt": "new", "answers": ["x", "y"]}) + "\n" if text else ""
    answer = client.post("/label/data/import", data={"rows": (text + "\n" + good) if text else ""})
    assert answer.status_code == 400 and words in unescape(answer.text) and "/tmp" not in answer.text
    assert len(store.items()) == 30


# making pairs

@pytest.mark.parametrize("changed", [
    {"model": "/etc"}, {"model": "../x"}, {"task": "evil.py"}, {"prompts": "0"}, {"prompts": "1e9"},
    {"prompts": "-1"}, {"seed": "x"},
])
def test_only_known_models_and_tasks_make_pairs(client, changed):
    sent = {"model": "tiny-chat", "task": "questions", "prompts": "3", "seed": "0"} | changed
    assert client.post("/label/make", data=sent).status_code == 400


def test_pairs_are_made_by_a_process_of_their_own(client, tmp_path):
    sent = {"model": "tiny-chat", "task": "questions", "prompts": "3", "seed": "0"}
    answer = client.post("/label/make", data=sent)
    assert 'data-state="making"' in answer.text
    assert "wait until it is done" in client.post("/label/make", data=sent).text
    client.app.state.pair_maker.thread.join(120)
    assert "3 new pairs" in client.get("/label/made").text
    assert "0 of 3 judged" in client.get("/label?labeller=ann").text
