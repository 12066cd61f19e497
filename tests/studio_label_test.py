"""Labelling without a browser: nothing lost, nothing doubled; the table; files in and out; the live reward model."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from html import unescape

import pytest
from starlette.testclient import TestClient

from postgrad.data.items import Item, Label, sides
from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.store import Store
from postgrad.studio.app import create_app
from postgrad.studio.coach import FIRST, STEP, Coach
from postgrad.studio.reward import Remembering, fold_of, train
from postgrad.studio.security import COOKIE

TOKEN = "the-token-of-the-owner-of-this-studio"
ITEMS = [Item.of(({"role": "user", "content": f"What is {n}?"},), (f"Yes {n}.", f"No {n}."), "test") for n in range(30)]
RUDE, KIND = "Do not waste my time. It is {}.", "Hello there! It is {}. I hope this helps!"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "p.db") as store:
        store.add(ITEMS)
        yield store


@pytest.fixture
def client(tmp_path):
    app = create_app(runs=tmp_path / "runs", token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db")
    yield TestClient(app, cookies={COOKIE: TOKEN}, headers={"x-postgrad": "1"}, raise_server_exceptions=False)
    for name in ("coach", "maker", "runner"):
        if hasattr(app.state, name):
            getattr(app.state, name).close()


def field(text, name):
    return unescape(re.search(rf'name="{name}" value="([^"]*)"', text)[1])


def judge(client, text, press, **changed):
    """Presses a button of the pair on a page: "A", "B", "tie" or "skip"."""
    words = {"A is better": "A", "B is better": "B"}
    buttons = {words.get(said.strip(), value): value for value, said in
               re.findall(r'name="choice" value="([^"]*)"[^>]*>([^<]*)<', text)}
    sent = {name: field(text, name) for name in ("labeller", "item", "was")} | {"choice": buttons[press]} | changed
    return client.post("/label/choose", data=sent)


def labels(store):
    return [said for _, said in store.items() if said]


def rows(store):
    with store._session() as db:
        return db.execute("SELECT count(*) FROM labels").fetchone()[0]


def test_a_judgement_is_on_the_disk_before_the_next_pair_is_shown(client, store):
    first = client.get("/label?labeller=ann").text
    uid = field(first, "item")
    assert uid == ITEMS[0].uid and "0 of 30 judged" in first
    second = judge(client, first, "B").text
    with Store.open(store.path) as fresh:
        assert fresh.items(0, 1)[0][1] == {"ann": sides(uid, "ann")[1]}
    assert field(second, "item") == ITEMS[1].uid and "1 of 30 judged" in second


def test_sides_are_mixed_and_stay_where_they_are(client, store):
    seen = Counter()
    for who in ("ann", "ben"):
        for item in ITEMS:
            text = client.get(f"/label?labeller={who}&item={item.uid}").text
            shown = [unescape(x) for x in re.findall(r'class="wrap answer"[^>]*>([^<]*)<', text)]
            assert shown == [getattr(item, side) for side in sides(item.uid, who)]
            seen[shown[0] == item.a] += 1
    assert 15 < seen[True] < 45  # +- 3.9 standard deviations of a fair coin


def test_a_double_click_and_a_second_tab_make_one_label(client, store):
    tab = other = client.get("/label?labeller=ann").text
    assert judge(client, tab, "A").status_code == judge(client, tab, "A").status_code == 200
    late = judge(client, other, "B").text
    assert "judged that pair already (A)" in late and field(late, "item") == ITEMS[1].uid
    assert labels(store) == [{"ann": sides(ITEMS[0].uid, "ann")[0]}] and rows(store) == 1


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
    answer = client.post("/label/data/edit", data={"item": uid, "labeller": bad, "choice": "b", "was": "a"}).text
    assert "<script>alert" not in answer and store.items()[-1][1] == {bad: "b"}


# the table

def found(text):
    return int(re.search(r'data-found="(\d+)"', text)[1])


def test_filters(client, store):
    for item, choice in zip(ITEMS, ("a", "b", "tie", "skip", "a"), strict=False):
        store.label(item.uid, "ann", choice)
    store.label(ITEMS[4].uid, "ben", "b")
    wanted = {"": 30, "unjudged": 26, "a": 2, "b": 2, "tie": 1, "skip": 1, "contradicted": 1, "surprising": 0, "removed": 0}
    assert {shown: found(client.get(f"/label/data?shown={shown}").text) for shown in wanted} == wanted
    assert found(client.get("/label/data?labeller=ben").text) == 1 and found(client.get("/label/data?text=NO%202").text) == 11
    assert client.get("/label/data?shown=odd").status_code == 400 and client.get("/label/data?start=-1").status_code == 400
    assert "Later" in client.get("/label/data").text and "Earlier" in client.get("/label/data?start=25").text


def test_an_edit_is_undoable_and_never_overwrites_what_it_did_not_see(client, store):
    uid = ITEMS[0].uid
    store.label(uid, "ann", "a")
    sent = {"item": uid, "labeller": "ann", "choice": "b", "was": "a"}
    answer = client.post("/label/data/edit", data=sent).text
    assert labels(store) == [{"ann": "b"}]
    back = json.loads(unescape(re.search(r"hx-vals='([^']*)'[^>]*>Undo", answer)[1]))
    assert "Not changed: meanwhile ann has said b" in client.post("/label/data/edit", data=sent | {"choice": "tie"}).text
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
    other = create_app(runs=tmp_path, token=TOKEN, hosts=("testserver",), store=tmp_path / "other.db")
    second = TestClient(other, cookies={COOKIE: TOKEN}, headers={"x-postgrad": "1"}, raise_server_exceptions=False)
    said = second.post("/label/data/import", data={"name": "../pairs.jsonl", "rows": answer.text}).text
    assert "pairs.jsonl: 3 new pairs, 0 known; 3 new labels" in said
    with Store.open(tmp_path / "other.db") as copy:
        assert copy.items() == [(replace(item, origin="pairs.jsonl"), said) for item, said in store.items()[:3]]


@pytest.mark.parametrize(("text", "words"), [
    ("{", "pasted.jsonl line 1"), ('{"prompt": "x", "chosen": "a", "rejected": "b"}', "Name the labeller beside the file"),
    ("", "pasted.jsonl"), ('{"prompt": "x", "answers": ["a"]}', "list of two or more"),
])
def test_a_file_that_cannot_be_read_is_refused_whole(client, store, text, words):
    good = json.dumps({"prompt": "new", "answers": ["x", "y"]}) + "\n" if text else ""
    answer = client.post("/label/data/import", data={"rows": (text + "\n" + good) if text else ""})
    assert answer.status_code == 400 and words in unescape(answer.text) and "/tmp" not in answer.text
    assert len(store.items()) == 30


# making pairs

@pytest.mark.parametrize("changed", [
    {"model": "/etc"}, {"model": "../x"}, {"task": "evil.py"}, {"prompts": "0"}, {"prompts": "1e9"}, {"prompts": "-1"},
    {"seed": "x"},
])
def test_only_known_models_and_tasks_make_pairs(client, changed):
    sent = {"model": "tiny-chat", "task": "questions", "prompts": "3", "seed": "0"} | changed
    assert client.post("/label/make", data=sent).status_code == 400


def test_pairs_are_made_by_a_process_of_their_own(client, tmp_path):
    sent = {"model": "tiny-chat", "task": "questions", "prompts": "3", "seed": "0"}
    answer = client.post("/label/make", data=sent)
    assert 'data-state="making"' in answer.text
    assert "wait until it is done" in client.post("/label/make", data=sent).text
    client.app.state.maker.thread.join(120)
    assert "3 new pairs" in client.get("/label/made").text
    assert "0 of 3 judged" in client.get("/label?labeller=ann").text


# the live reward model

def talk(n, clear=True, seed=0):
    """Pairs of a kind and a rude reply to different questions, judged: the kind one wins, or a coin decides."""
    coin = random.Random(seed)
    made = [Item.of(({"role": "user", "content": f"Where is {n}?"},), (RUDE.format(n), KIND.format(n))) for n in range(n)]
    return [(item, "a" if ((item.a.startswith("Hello")) if clear else coin.random() < 0.5) else "b") for item in made]


@pytest.fixture(scope="module")
def reader():
    return Remembering()


def test_it_learns_what_can_be_learned_and_nothing_else(reader):
    clear = train(talk(30), [], reader)
    assert clear["accuracy"] == 1.0 and clear["low"] > 0.85 and clear["held_out"] == 30
    coin = train(talk(30, clear=False), [], reader)
    assert coin["low"] < 0.5


def test_it_is_judged_on_prompts_that_it_has_not_seen(reader):
    """Six pairs to each prompt, the winner a coin toss for the prompt: only a model that has seen the prompt could know."""
    coin, judged = random.Random(1), []
    for n in range(12):
        up = coin.random() < 0.5
        for k in range(6):
            two = f"It is in the {n + k}.", f"It is on the {n + k}."
            item = Item.of(({"role": "user", "content": f"Where is {n}?"},), two)
            judged.append((item, "a" if ("in" in item.a) == up else "b"))
    found = train(judged, [], reader)
    assert found["held_out"] == 72 and found["low"] < 0.55
    assert len({fold_of(item) for item, _ in judged[:6]}) == 1


def test_ties_and_long_texts_are_counted_not_tested(reader):
    judged = [*talk(20), (Item.of(({"role": "user", "content": "Q"},), ("x", "y")), "tie"),
              (Item.of(({"role": "user", "content": "Q"},), ("long " * 2000, "y")), "a")]
    found = train(judged, [item for item, _ in talk(25)[20:]], reader)
    assert (found["judged"], found["decided"], found["ties"], found["too_long"], found["held_out"]) == (22, 20, 1, 1, 20)
    ahead = [found["chance"][item.uid] if choice == "a" else 1 - found["chance"][item.uid] for item, choice in talk(25)[20:]]
    assert min(ahead) > 0.5 and found["longer"] == 1.0
    nothing = train([(ITEMS[0], "tie")], [], reader)
    assert nothing["accuracy"] is None and nothing["chance"] == {}


def test_the_coach_trains_when_enough_was_said_and_shows_it(client, tmp_path):
    judged = talk(30)
    with Store.open(tmp_path / "p.db") as store:
        store.add([item for item, _ in judged])
        right = {item.uid: choice for item, choice in judged}
        page = client.get("/label?labeller=ann").text
        for n in range(FIRST):
            assert f"{FIRST - n} to go" in client.get("/label/live").text
            uid = field(page, "item")
            page = judge(client, page, "A" if sides(uid, "ann")[0] == right[uid] else "B").text
        assert 'data-state="training"' in client.get("/label/live").text  # begun, and nobody has waited
        client.app.state.coach.thread.join(120)
        text = client.get("/label/live").text
        assert 'data-state="ready"' in text and f'data-judged="{FIRST}"' in text and "100 %" in text
        page = judge(client, page, "A" if sides(field(page, "item"), "ann")[0] == right[field(page, "item")] else "B").text
        assert re.search(r"[AB]\. The reward model had guessed [AB], at \d+ %", page)
        store.add([], [Label(item=item.uid, labeller="ann", choice=choice) for item, choice in judged[12: 12 + STEP]])
        client.get("/label/live")
        client.app.state.coach.thread.join(120)
        assert client.app.state.coach.result["judged"] == FIRST + 1 + STEP
        assert [n for n, _ in client.app.state.coach.history] == [FIRST, FIRST + 1 + STEP]
        assert found(client.get("/label/data?shown=surprising").text) == 0


def test_a_coach_whose_process_dies_says_so_and_goes_on(tmp_path, store):
    store.add([], [Label(item=item.uid, labeller="ann", choice="a") for item in ITEMS])
    coach = Coach(tmp_path / "gone.db")
    coach.notice(30)
    coach.thread.join(120)
    assert "no store at" in coach.error and not coach.busy
    coach.notice(30)
    assert not coach.busy  # it does not try for ever
    coach.store = store.path
    coach._process.kill()
    coach._process.wait()
    coach.changed()
    coach.notice(30)
    coach.thread.join(120)
    assert coach.error == "" and coach.result["judged"] == 30
    coach.close()


def test_agreement_is_shown(client, store):
    for item, ann, ben in zip(ITEMS, "aaaaabbbbt", "aaaabbbbat", strict=False):
        store.label(item.uid, "ann", "tie" if ann == "t" else ann)
        store.label(item.uid, "ben", "tie" if ben == "t" else ben)
    text = client.get("/label/live").text
    assert re.search(r"ann and ben</th><td[^>]*>10</td><td[^>]*>8</td><td[^>]*>0.66</td>", text)
    assert "2 pairs are judged both ways" in text
