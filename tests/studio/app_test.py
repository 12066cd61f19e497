"""The studio's shell without a browser: numbers, charts, instruments, vendored files, errors, export."""

import hashlib
import json
import math
import re
import subprocess
import sys

import pytest
import torch
from paths import ROOT
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from postgrad.maths.preference import bradley_terry
from postgrad.runs import Run
from postgrad.studio import export, home, pages, svg
from postgrad.studio.app import create_studio
from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.instruments import bradley_terry as example
from postgrad.studio.instruments.base import ChoiceControl, Slider, function_source, parse_field
from postgrad.studio.security import COOKIE

TOKEN = "the-token-of-the-owner-of-this-studio"


@pytest.fixture
def client(tmp_path):
    app = create_studio(runs=tmp_path / "runs", token=TOKEN, hosts=("testserver",), store=tmp_path / "p.db")
    return TestClient(app, headers={"cookie": f"{COOKIE}={TOKEN}", "x-postgrad": "1"},
                      raise_server_exceptions=False)


def small_run(folder, steps=5, **facts):
    run = Run.create(folder, recipe="grpo", config={}, steps=steps, **facts)
    for step in range(1, steps + 1):
        run.log(step, {"reward": step / steps, "time/step": 1.0})
    run.status("done")
    return run


# numbers for people

@pytest.mark.parametrize(("value", "digits", "text"), [
    (-0.5, 3, "−0.500"), (12, 3, "12"), (-12, 3, "−12"), (None, 3, "–"), (math.nan, 3, "nan"),
    (-math.inf, 3, "−∞"), (1234.56, 3, "1234.6"), (0.00001, 3, "1.00e−05"), (0.0, 2, "0.00"),
    (-0.0, 2, "0.00"), (1234567, 3, "1\u202f234\u202f567"), (0.94846, 1, "0.9"), (True, 3, "True"),
])
def test_num(value, digits, text):
    assert pages.num(value, digits) == text


@pytest.mark.parametrize(("seconds", "text"), [
    (4.24, "4.2 s"), (59, "59 s"), (75, "1 min 15 s"), (3700, "1 h 1 min"), (None, "–"), (200_000, "2 days"),
])
def test_dur(seconds, text):
    assert pages.dur(seconds) == text


@pytest.mark.parametrize(("past", "text"), [
    (2, "just now"), (61, "1 minute ago"), (7200, "2 hours ago"), (86400 * 3, "3 days ago"),
])
def test_ago(past, text):
    assert pages.ago(1e9 - past, now=1e9) == text


# charts

def test_ticks_are_round_and_inside():
    assert svg.axis_ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1] and svg.axis_ticks(-6, 6, 5) == [-5, -2.5, 0, 2.5,
                                                                                            5]
    assert svg.axis_ticks(3, 3) == [3]


def test_a_plot_puts_data_in_its_place():
    p = svg.Plot((-5, 5), (0, 1), width=100, height=50, left=0, right=0, top=0, bottom=0)
    assert p.at(0, 0.5) == (50, 25) and p.at(-5, 0) == (0, 50) and p.at(5, 1) == (100, 0)
    assert p.path([(-5, 0), (0, math.nan), (5, 1)]) == "M0.0 50.0M100.0 0.0"
    assert ([p.digits([(0, t) for t in ticks]) for ticks in ([0, 5], [0, 2.5], [0.25, 0.5], [1e-9])]
            == [0, 1, 2, 6])


def test_a_sparkline_of_nothing_has_no_path():
    assert svg.spark([])["path"] == "" and svg.spark([math.nan])["end"] is None
    assert svg.spark([1.0])["end"] is not None


# instruments

def test_the_default_of_bradley_terry_by_hand(client):
    numbers = example.compute(example.State(chosen=2.0, rejected=2.0))
    assert numbers["probability"] == pytest.approx(0.5) and numbers["loss"] == pytest.approx(math.log(2))
    assert numbers["slope"] == pytest.approx(-0.5)
    assert "log 2 = 0.693" in client.get("/instruments/bradley-terry/figure?chosen=2&rejected=2").text


def test_what_the_page_says_is_what_the_library_computes(client):
    text = client.get("/instruments/bradley-terry/figure?chosen=-1.5&rejected=0.5").text
    loss = bradley_terry(torch.tensor(-1.5), torch.tensor(0.5), torch.tensor(0.0))
    assert f"{loss.item():.3f}" in text and f"{(-loss).exp().item():.3f}" in text


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=lambda i: i.name)
def test_every_instrument_says_what_computes_it(instrument):
    assert instrument.functions and all(function_source(name)["text"] for name in instrument.functions)
    state = instrument.settle(instrument.state())
    assert instrument.read(QueryParams(instrument.query(state))) == state
    names = {c.name for c in instrument.shown(state)}
    assert names <= set(vars(state)), "a control has no field in the state"


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=lambda i: i.name)
def test_a_state_goes_through_the_url_and_back(client, instrument):
    state = instrument.settle(instrument.state())
    for c in instrument.shown(state):
        value = (c.high if isinstance(c, Slider) else text_of(c.pairs()[-1][0])
                 if isinstance(c, ChoiceControl)
                 else 0)
        answer = client.get(f"/instruments/{instrument.name}", params={c.name: value})
        assert answer.status_code == 200, answer.text
        query = re.search(r'data-query="([^"]*)"', answer.text)[1].replace("&amp;", "&")
        again = client.get(f"/instruments/{instrument.name}/figure?{query}")
        assert f'data-query="{query}"'.replace("&", "&amp;") in again.text


def text_of(value):
    return int(value) if isinstance(value, bool) else value


def test_values_that_make_no_sense(client):
    for query, words in [("chosen=abc", "chosen is a number"), ("chosen=nan", "is a number"),
                         ("chosen=1e999", "is a number"), ("shape=1", "no control"),
                         ("before=chosen%3Dx", "is a number"), ("chosen=", "is a number")]:
        for path in ("/instruments/bradley-terry", "/instruments/bradley-terry/figure"):
            answer = client.get(f"{path}?{query}")
            assert answer.status_code == 400 and words in answer.text and "Traceback" not in answer.text
    assert 'data-query="chosen=5"' in client.get("/instruments/bradley-terry?chosen=99").text
    assert client.get("/instruments/nothing").status_code == 404


def test_parse_by_kind():
    size = ChoiceControl("size", "Size", ((1, "1B"), (7, "7B")))
    assert parse_field("size", ["7"], 1, size) == 7 and parse_field("on", ["0"], True, None) is False
    assert parse_field("r", ["1", "0.5", "9"], (0.0,), Slider("r", "", 0, 1, 0.1, 0)) == (1.0, 0.5, 1.0)
    assert parse_field("n", ["3.7"], 4, None) == 4
    with pytest.raises(ValueError, match="one of 1, 7, not '8'"):
        parse_field("size", ["8"], 1, size)
    with pytest.raises(ValueError, match="at most 256"):
        parse_field("r", ["1"] * 300, (0.0,), None)


def test_the_ghost_is_the_state_before(client):
    text = client.get("/instruments/bradley-terry?chosen=2&before=chosen%3D3%26rejected%3D1").text
    assert 'name="before" value="chosen=3&amp;rejected=1"' in text


def test_source_needs_no_torch():
    code = ("import sys, postgrad.studio.app\n"
            "from postgrad.studio.instruments.base import function_source as source\n"
            "print(source('postgrad.maths.preference.bradley_terry')['line'], 'torch' in sys.modules, "
            "'numpy' in sys.modules)")
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    line, *heavy = done.stdout.split()
    assert heavy == ["False", "False"]
    assert (root / "postgrad/maths/preference.py").read_text().splitlines()[int(line) - 1].startswith(
        "def bradley_terry")


# pages

def test_errors_are_sentences(client):
    answer = client.get("/nowhere<script>")
    assert answer.status_code == 404 and "Nothing is at" in answer.text and "<script>" not in answer.text
    part = client.get("/instruments/bradley-terry/figure?chosen=x", headers={"hx-request": "true"})
    assert part.status_code == 400 and part.text.startswith('<p class="error"') and "<html" not in part.text


def test_the_theme_is_remembered_by_a_cookie(client):
    assert "data-theme" not in client.get("/").text.split("<head>")[0]
    for theme, wanted in (("dark", ' data-theme="dark"'), ("x\"><script>", "")):
        client.cookies.clear()
        text = client.get("/", headers={"cookie": f"{COOKIE}={TOKEN}; theme={theme}"}).text
        assert f'<html lang="en"{wanted}>' in text


def test_home_shows_the_newest_runs(client, tmp_path):
    assert "There are no runs in" in client.get("/").text
    small_run(tmp_path / "runs" / "one")
    small_run(tmp_path / "runs" / "align-1" / "ppo")
    (tmp_path / "runs" / "broken").mkdir()
    for name in ("metrics.jsonl", "run.json", "config.json"):
        (tmp_path / "runs" / "broken" / name).write_text("<b>no")
    text = client.get("/").text
    assert 'href="/runs/one"' in text and 'href="/runs/align-1/ppo"' in text and "reward 1.00" in text
    assert "broken" in text and "<b>no" not in text
    names = {row["name"]: row for row in home.newest_runs(tmp_path / "runs")}
    assert names["one"]["step"] == 5 and names["broken"]["state"] == "broken"


@pytest.mark.parametrize("steps", [0, 1, 2, 31, 700])
def test_glimpses_are_rows_of_the_log_and_end_with_its_last(tmp_path, steps):
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(b"".join(b'{"step": %d, "reward": %d}\n' % (s, s) for s in range(1, steps + 1))
                    + b'{"step": 99999, "torn')
    found = [row["step"] for row in home.sampled_rows(log)]
    assert (found == sorted(set(found)) and set(found) <= set(range(1, steps + 1))
            and found[-1:] == [steps][:steps])
    assert found[:1] == [1][:steps] and len(found) <= 34


# files of others

def test_every_vendored_file_is_the_one_that_was_taken():
    listed = {}
    for item in json.loads((pages.STATIC / "vendor" / "VENDOR.json").read_text()):
        assert re.search(r"\d+\.\d+\.\d+",
                         item["version"]) and item["licence_file"] in item["files"], item["name"]
        listed |= item["files"]
    found = {p.relative_to(pages.STATIC).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
             for folder in ("vendor", "fonts") for p in (pages.STATIC / folder).rglob("*")
             if p.is_file() and p.name != "VENDOR.json"}
    assert found == listed


def test_static_files_stay_small():
    assert sum(p.stat().st_size for p in pages.STATIC.rglob("*") if p.is_file()) < 3_000_000


# export

def test_what_writes_is_cut_out_and_text_is_left():
    form = '<form class="x" hx-post="/runs/-/stop"><button>Stop</button></form>'
    text = f'<a href="/label">L</a>{form}<p>a &#34;/x&#34;</p><a href="/">h</a>'
    assert export.with_relative_links(text, "a/b/index.html", {"index.html"}) == (
        '<a>L</a><p>a &#34;/x&#34;</p><a href="../../index.html">h</a>')
    assert export.exported_file("/runs/../../etc") is None
    assert export.exported_file("/runs/a?x=1") == "runs/a/index.html"


def test_asking_without_a_port(tmp_path):
    app = create_studio(runs=tmp_path, token=TOKEN, hosts=("here",))
    status, headers, body = export.run_coroutine(export.get_from_app(app, "/",
                                                                     headers={"host": "here",
                                                                              "cookie": f"{COOKIE}={TOKEN}"}))
    assert status == 200 and headers["content-type"].startswith("text/html") and b"postgrad" in body
