"""Labelling in a real browser, by keyboard: reloads, double clicks, two tabs, a server that is killed."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from paths import ROOT
from studio_browser import STRANGE, browser, studio, tab  # noqa: F401
from studio_small import poisons

from postgrad.data.store import Item, Store, shown_sides

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
HOME = ROOT
ITEMS = [Item.of(({"role": "user", "content": f"Where is {n}?"},), (f"It is here, at {n}.", f"Go away, {n}."),
                 "test") for n in range(8)]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "preferences.db") as store:
        store.add(ITEMS)
        yield store


def said(store):
    return [labels.get("ann") for _, labels in store.items()]


def rows(store):
    with store._session() as db:
        return db.execute("SELECT count(*) FROM labels").fetchone()[0]


def shows(page, n, done):
    """Waits until pair n is there and takes a judgement."""
    expect(page.locator(
        f'#pair[data-item="{ITEMS[n].uid}"][data-done="{done}"]:not([data-fresh])')).to_be_visible()


def side(n, letter):
    return shown_sides(ITEMS[n].uid, "ann")["AB".index(letter)]


def test_by_keyboard_with_undo_across_a_reload(studio, tab, store):  # noqa: F811
    page = tab(studio())
    page.goto("/label")
    page.get_by_label("Your name").fill("ann")
    page.keyboard.press("Enter")
    for n, key in enumerate("abts"):
        shows(page, n, n)
        page.keyboard.press(key)
    shows(page, 4, 4)
    assert said(store)[:5] == [side(0, "A"), side(1, "B"), "tie", "skip", None]
    page.reload()
    shows(page, 4, 4)
    page.keyboard.press("u")
    shows(page, 3, 3)
    page.reload()
    shows(page, 3, 3)
    page.keyboard.press("U")
    shows(page, 2, 2)
    page.get_by_role("button", name="B is better").click()
    shows(page, 3, 3)
    assert said(store)[:4] == [side(0, "A"), side(1, "B"), side(2, "B"), None]


def test_the_left_answer_is_a_and_stays_there(studio, tab, store):  # noqa: F811
    page = tab(studio())
    page.goto("/label?labeller=ann")
    shows(page, 0, 0)
    left = page.get_by_role("group", name="Answer A").locator(".answer").text_content()
    page.reload()
    assert page.get_by_role("group", name="Answer A").locator(".answer").text_content() == left
    shows(page, 0, 0)
    page.keyboard.press("a")
    shows(page, 1, 1)
    assert getattr(ITEMS[0], said(store)[0]) == left


def test_a_double_click_and_a_held_key_judge_one_pair(studio, tab, store):  # noqa: F811
    page = tab(studio())
    page.goto("/label?labeller=ann")
    shows(page, 0, 0)
    page.get_by_role("button", name="A is better").dblclick()
    shows(page, 1, 1)
    for _ in range(5):
        page.keyboard.down("b")  # from the second on, as a key that is held down sends it
    shows(page, 2, 2)
    page.keyboard.up("b")
    page.get_by_role("button", name="Tie").dblclick(delay=5)
    shows(page, 3, 3)
    assert said(store)[:4] == [side(0, "A"), side(1, "B"), "tie", None] and rows(store) == 3


def test_two_tabs_make_one_label(studio, tab, store):  # noqa: F811
    one = tab(studio())
    two = one.context.new_page()
    for page in (one, two):
        page.goto("/label?labeller=ann")
        shows(page, 0, 0)
    one.keyboard.press("a")
    shows(one, 1, 1)
    two.keyboard.press("b")
    shows(two, 1, 1)
    expect(two.locator(".message")).to_contain_text("judged that pair already (A)")
    assert said(store)[:2] == [side(0, "A"), None] and rows(store) == 1


@contextmanager
def process(tmp_path, port=0):
    """`postgrad studio` as a user starts it; -> (its process, its start address)."""
    command = [sys.executable, "-m", "postgrad", "studio", str(tmp_path / "runs"), "--store",
               str(tmp_path / "preferences.db"), "--port", str(port), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HOME,
                              env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")})
    try:
        line = ""
        while not line.rstrip().endswith("}"):
            part = server.stdout.readline()
            assert part, "the server ended"
            line += part
        yield server, json.loads(line)["url"]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_label_survives_kill_9_of_the_server(tab, store, tmp_path):  # noqa: F811
    with process(tmp_path) as (server, url):
        origin, token = re.fullmatch(r"(http://[^/]*)/start\?token=(.*)", url).groups()
        page = tab(origin, token=token, errors=("ERR_", "htmx", "Failed to fetch"))
        page.goto("/label?labeller=ann")
        for n in range(3):
            shows(page, n, n)
            page.keyboard.press("a")
        shows(page, 3, 3)  # the third is acknowledged by the fourth
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert said(store)[:4] == [side(n, "A") for n in range(3)] + [None]
        page.keyboard.press("b")
        expect(page.get_by_text("not saved")).to_be_visible()
        shows(page, 3, 3)  # and the pair is still there
    with process(tmp_path, port=int(origin.rpartition(":")[2])):
        page.keyboard.press("b")
        shows(page, 4, 4)
        expect(page.get_by_text("not saved")).to_be_hidden()
        page.reload()
        shows(page, 4, 4)
        page.keyboard.press("u")
        shows(page, 3, 3)
    assert said(store)[:4] == [side(n, "A") for n in range(3)] + [None]
    with store._session() as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_live_model_comes_by_itself_while_labelling_goes_on(studio, tab, store):  # noqa: F811
    store.add(more := [Item.of(({"role": "user", "content": f"Who is {n}?"},),
                               (f"Hello! It is {n}.", f"Go away, {n}.")) for n in range(12)])
    for item in more:
        store.label(item.uid, "ben", "a" if item.a.startswith("Hello") else "b")
    page = tab(studio())
    page.goto("/label?labeller=ann")
    expect(page.locator("#live")).to_have_attribute("data-state", "training")
    shows(page, 0, 0)
    page.keyboard.press("a")
    shows(page, 1, 1)
    expect(page.locator("#live")).to_have_attribute("data-state", "ready", timeout=120_000)
    expect(page.locator("#live .insight")).to_contain_text(re.compile(r"in \d+ % of 1[23]"))


def test_the_table_edits_removes_and_takes_back(studio, tab, store):  # noqa: F811
    store.label(ITEMS[0].uid, "ann", "a")
    page = tab(studio())
    page.goto("/label/data?shown=a")
    row = page.locator(f"#row-{ITEMS[0].uid}")
    row.get_by_label("ann").select_option("tie")
    expect(row.get_by_text("ann: a → tie.")).to_be_visible()
    assert said(store)[0] == "tie"
    row.get_by_role("button", name="Undo").click()
    expect(row.get_by_text("ann: tie → a.")).to_be_visible()
    row.get_by_role("button", name="Remove the pair").click()
    expect(row.get_by_text("Removed.")).to_be_visible()
    assert len(store.items()) == 7
    row.get_by_role("button", name="Undo").click()
    expect(row.get_by_text("Brought back.")).to_be_visible()
    assert said(store) == ["a"] + [None] * 7


def test_a_file_goes_in_and_comes_out(studio, tab, tmp_path):  # noqa: F811
    lines = [{"prompt": "Hi", "chosen": "Hello!", "rejected": "What?"},
             {"prompt": "Bye", "answers": ["See you!", "Go."]}]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tab(studio())
    page.goto("/label/data")
    page.get_by_label("File").set_input_files(tmp_path / "mine.jsonl")
    expect(page.get_by_label("Its lines")).to_have_value(re.compile("Hello!"))
    page.get_by_label("Labeller, where").fill("ann")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("mine.jsonl: 2 new pairs")).to_be_visible()
    page.goto("/label/data")
    with page.expect_download() as download:
        page.get_by_role("link", name="pairs.jsonl").click()
    row = json.loads(Path(download.value.path()).read_text())
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("Hi", "Hello!", "What?")


def test_100_poisons_run_on_no_page_of_labels(studio, tab, store):  # noqa: F811
    """As prompts, answers, where they come from, and names of labellers, ten to a pair:
    in the table and as pairs to judge."""
    items = []
    for ten in (poisons()[n: n + 10] for n in range(0, 100, 10)):
        turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(ten)]
        items.append(Item.of((*turns, {"role": "user", "content": ten[0]}),
                             ("\n".join(ten), "\n".join(ten[::-1])), ten[5]))
        store.add(items[-1:])
        for text in ten:
            store.label(items[-1].uid, text.replace("\0", "").strip()[:100].strip(), "skip")
    page = tab(studio())
    for path in ["/label/data", *(f"/label?labeller=ann&item={item.uid}" for item in items)]:
        page.goto(path)
        assert page.evaluate("window.pwned") is None
        assert page.locator(STRANGE).count() == 0
    assert page.locator(".prompt p").count() == 11
    shown = page.locator(".answer").first.text_content()
    assert shown in [text.replace("\0", "") for text in (items[-1].a, items[-1].b)]  # a browser drops the NUL
