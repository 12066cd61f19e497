"""The live reward model: it learns what can be learned, on prompts it has not seen, in its own process."""

import random
import re

import pytest
from starlette.testclient import TestClient
from studio_labels import ITEMS, TOKEN, field, found, judge

from postgrad.data.store import Item, Label, Store, shown_sides
from postgrad.studio.app import create_studio
from postgrad.studio.label.reward_process import CachedReader, cross_validate, fold_of
from postgrad.studio.label.workers import FIRST, STEP, RewardTrainer
from postgrad.studio.security import COOKIE

RUDE, KIND = "Do not waste my time. It is {}.", "Hello there! It is {}. I hope this helps!"


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


# the live reward model

def talk(n, clear=True, seed=0):
    """Pairs of a kind and a rude reply to different questions, judged:
    the kind one wins, or a coin decides."""
    coin = random.Random(seed)
    made = [Item.of(({"role": "user", "content": f"Where is {n}?"},), (RUDE.format(n), KIND.format(n)))
            for n in range(n)]
    return [(item, "a" if ((item.a.startswith("Hello")) if clear else coin.random() < 0.5) else "b")
            for item in made]


@pytest.fixture(scope="module")
def reader():
    return CachedReader()


def test_it_learns_what_can_be_learned_and_nothing_else(reader):
    clear = cross_validate(talk(30), [], reader)
    assert clear["accuracy"] == 1.0 and clear["low"] > 0.85 and clear["held_out"] == 30
    coin = cross_validate(talk(30, clear=False), [], reader)
    assert coin["low"] < 0.5


def test_it_is_judged_on_prompts_that_it_has_not_seen(reader):
    """Six pairs to each prompt, the winner a coin toss for the prompt:
    only a model that has seen the prompt could know."""
    coin, judged = random.Random(1), []
    for n in range(12):
        up = coin.random() < 0.5
        for k in range(6):
            two = f"It is in the {n + k}.", f"It is on the {n + k}."
            item = Item.of(({"role": "user", "content": f"Where is {n}?"},), two)
            judged.append((item, "a" if ("in" in item.a) == up else "b"))
    found = cross_validate(judged, [], reader)
    assert found["held_out"] == 72 and found["low"] < 0.55
    assert len({fold_of(item) for item, _ in judged[:6]}) == 1


def test_ties_and_long_texts_are_counted_not_tested(reader):
    judged = [*talk(20), (Item.of(({"role": "user", "content": "Q"},), ("x", "y")), "tie"),
              (Item.of(({"role": "user", "content": "Q"},), ("long " * 2000, "y")), "a")]
    found = cross_validate(judged, [item for item, _ in talk(25)[20:]], reader)
    assert ((found["judged"], found["decided"], found["ties"], found["too_long"], found["held_out"])
            == (22, 20, 1, 1, 20))
    ahead = [found["chance"][item.uid] if choice == "a" else 1 - found["chance"][item.uid]
             for item, choice in talk(25)[20:]]
    assert min(ahead) > 0.5 and found["longer"] == 1.0
    nothing = cross_validate([(ITEMS[0], "tie")], [], reader)
    assert nothing["accuracy"] is None and nothing["chance"] == {}


def test_the_trainer_trains_when_enough_was_said_and_shows_it(client, tmp_path):
    judged = talk(30)
    with Store.open(tmp_path / "p.db") as store:
        store.add([item for item, _ in judged])
        right = {item.uid: choice for item, choice in judged}
        page = client.get("/label?labeller=ann").text
        for n in range(FIRST):
            assert f"{FIRST - n} to go" in client.get("/label/live").text
            uid = field(page, "item")
            page = judge(client, page, "A" if shown_sides(uid, "ann")[0] == right[uid] else "B").text
        assert 'data-state="training"' in client.get("/label/live").text  # begun, and nobody has waited
        client.app.state.reward_trainer.thread.join(120)
        text = client.get("/label/live").text
        assert 'data-state="ready"' in text and f'data-judged="{FIRST}"' in text and "100 %" in text
        page = judge(client, page,
                     "A" if shown_sides(field(page, "item"), "ann")[0] == right[field(page, "item")]
                     else "B").text
        assert re.search(r"[AB]\. The reward model had guessed [AB], at \d+ %", page)
        store.add([], [Label(item=item.uid, labeller="ann", choice=choice)
                       for item, choice in judged[12: 12 + STEP]])
        client.get("/label/live")
        client.app.state.reward_trainer.thread.join(120)
        assert client.app.state.reward_trainer.result["judged"] == FIRST + 1 + STEP
        assert [n for n, _ in client.app.state.reward_trainer.history] == [FIRST, FIRST + 1 + STEP]
        assert found(client.get("/label/data?shown=surprising").text) == 0


def test_a_trainer_whose_process_dies_says_so_and_goes_on(tmp_path, store):
    store.add([], [Label(item=item.uid, labeller="ann", choice="a") for item in ITEMS])
    trainer = RewardTrainer(tmp_path / "gone.db")
    trainer.notice(30)
    trainer.thread.join(120)
    assert "no store at" in trainer.error and not trainer.busy
    trainer.notice(30)
    assert not trainer.busy  # it does not try for ever
    trainer.store = store.path
    trainer._process.kill()
    trainer._process.wait()
    trainer.changed()
    trainer.notice(30)
    trainer.thread.join(120)
    assert trainer.error == "" and trainer.result["judged"] == 30
    trainer.close()


def test_agreement_is_shown(client, store):
    for item, ann, ben in zip(ITEMS, "aaaaabbbbt", "aaaabbbbat", strict=False):
        store.label(item.uid, "ann", "tie" if ann == "t" else ann)
        store.label(item.uid, "ben", "tie" if ben == "t" else ben)
    text = client.get("/label/live").text
    assert re.search(r"ann and ben</th><td[^>]*>10</td><td[^>]*>8</td><td[^>]*>0.66</td>", text)
    assert "2 pairs are judged both ways" in text
