"""The workshop of the book: recorded runs until there is one of the reader's own, predictions, starting."""

import json
import math
import re

import pytest
from studio_browser import axe, browser, studio, tab  # noqa: F401
from studio_small import Texts, client, make

from postgrad.cli.settings import config_from_text
from postgrad.runs import Run
from postgrad.studio.book import workshop
from postgrad.studio.book.experiments import EXPERIMENTS, FIRST, VARIANTS
from postgrad.studio.recordings import FOLDER, recording
from postgrad.studio.runs import processes

expect = pytest.importorskip("playwright.sync_api").expect
TALK = {"prompt": "What is 2+2?", "gold": "4"}


def evaluated(folder, rates, *, done=True, **facts):
    """A run with an evaluation every five steps, whose replies are right from 0.5 on."""
    run = Run.create(folder, recipe="nano", config={}, steps=5 * (len(rates) - 1), **facts)
    for k, rate in enumerate(rates):
        for step in range(5 * k - 4, 5 * k + 1) if k else ():
            run.log(step, {"reward": rate, "time/step": 2.0, "tokens": 100})
        reply = {"text": f"<b>{k}</b>", "score": float(rate >= 0.5), "reason": ""}
        run.log_eval(5 * k, {"pass@1": rate, "pass@1_interval": [rate - 0.1, rate + 0.1], "mean_length": 9.0,
                             "answers": [{**TALK, "replies": [reply]}]})
    if done:
        run.status("done")
    return run


def noted(root, name, **note):
    path = processes.output_file(root, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("$ postgrad train\n")
    path.with_suffix(".json").write_text(json.dumps({"pid": 1, **note}))


def test_what_is_recorded_is_what_is_started():
    """The same settings, all of which the library accepts; each run whole, and all of them small."""
    kept = recording("workshop")["runs"]
    assert kept.keys() == VARIANTS.keys()
    assert (FOLDER / "workshop.json").stat().st_size < 150_000
    for name, variant in VARIANTS.items():
        assert kept[name]["command"] == variant.command
        config_from_text(variant.recipe, [f"{k}={v}" for k, v in variant.settings.items()])
        steps = int(variant.settings["steps"])
        assert [row[0] for row in kept[name]["evals"]] == list(range(0, steps + 1, 5))
        assert len(kept[name]["rewards"]) == steps and len(kept[name]["answers"]) == 4
        assert all(0 <= low <= rate <= high <= 1 for _, rate, low, high, _ in kept[name]["evals"])
        for problem in kept[name]["answers"]:
            assert len(problem["replies"]) == len(kept[name]["evals"])
    assert len({variant.command for variant in VARIANTS.values()}) == len(VARIANTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_a_run_the_recorded_one_is_shown_and_said(tmp_path, name):
    page = client(tmp_path).get(f"/book/-/workshop/{name}")
    told = Texts(page.text).text
    assert page.status_code == 200 and "Dashed: recorded" in told and "yours" not in told
    assert page.text.count("line policy dashed") == 2 and "data-signature" not in page.text  # wide and narrow
    assert '<details class="picture reveal">' in page.text  # a guess comes first
    for variant in EXPERIMENTS[name].variants:
        assert f"{100 * recording('workshop')['runs'][variant.name]['evals'][-1][1]:.0f}\u00a0%" in told


def test_a_run_of_one_s_own_stands_in_its_place_and_stays(tmp_path):
    """The newest of its variant, with what was predicted beside what came."""
    evaluated(tmp_path / "workshop-nano-9", [0.3, 0.4])
    evaluated(tmp_path / "workshop-nano-10", [0.3, 0.4, 0.6])
    make(tmp_path / "workshop-nano-x", 1)
    noted(tmp_path, "workshop-nano-10", predicted=80.0)
    page = client(tmp_path).get("/book/-/workshop/first").text
    told = Texts(page).text
    assert "You said 80 %; it came to 60 %: 20 points too high." in " ".join(told.split())
    assert "yours, done" in told and 'href="/runs/workshop-nano-10"' in page and "you said 80 %" in told
    assert "line policy dashed" not in page and "line reward dashed" in page  # grpo is still the recorded one
    assert "<b>2</b>" in told and "<b>2</b>" not in page  # what a model wrote is text
    ghost = client(tmp_path).get("/book/-/workshop/kl").text
    assert "nano 60\u00a0%" in Texts(ghost).text  # the first run of the others is the reader's too


@pytest.mark.parametrize("alive", [True, False])
def test_a_run_without_an_evaluation_has_no_figures(tmp_path, monkeypatch, alive):
    """One that is starting, or never started, shows nothing of the recorded run as its own."""
    noted(tmp_path, "workshop-nano-3", predicted=80.0, seed=3)
    monkeypatch.setattr(processes, "process_alive", lambda root, name: alive)
    page = client(tmp_path).get("/book/-/workshop/first").text
    told = Texts(page).text
    recorded = f"{100 * recording('workshop')['runs']['nano']['evals'][-1][1]:.0f}\u00a0%"
    row = re.search(r"<tr><th[^>]*><span[^>]*>nano</span></th>(.*?)</tr>", page, re.S)[1]
    assert ("starting" if alive else "did not start") in row and "<td>3</td>" in row and recorded not in row
    assert "Follow one problem through nano" not in told and "line policy dashed" not in page


def test_a_run_that_is_started_is_no_recorded_one_over_again(tmp_path, monkeypatch):
    """Each has a seed of its own, and the recorded ones seed 0."""
    seeds = []
    monkeypatch.setattr(processes, "start_process", lambda root, name, words, **how: (
        noted(root, name, **how["note"]), seeds.append(next(w for w in words if w.startswith("seed=")))))
    for _ in range(3):
        client(tmp_path).post("/book/-/workshop/first", data={"variant": "nano", "predicted": "70"})
    assert seeds == ["seed=1", "seed=2", "seed=3"]
    assert all("seed" not in variant.settings for variant in VARIANTS.values())
    assert config_from_text(FIRST.recipe, [])[1].seed == 0


@pytest.mark.parametrize(("said", "words"), [
    (60, "cannot tell"), (69, "cannot tell"), (75, "15 points too high"), (12, "48 points too low"),
    (math.nan, ""), (None, "")])
def test_a_prediction_is_judged(said, words):
    line = {"state": "done", "predicted": said, "evals": [[0, 0.3, 0.2, 0.4, 9], [5, 0.6, 0.5, 0.7, 9]]}
    found = workshop.prediction_text(line)
    assert words in found and bool(found) == bool(words)
    assert workshop.prediction_text(line | {"state": "running"}) == ""


def test_labels_do_not_cover_each_other():
    for ends in ([0.9, 0.91, 0.92], [0.99, 1.0, 0.98], [0.1, 0.5, 0.9], [0.0, 0.0]):
        placed = workshop.spread_labels(ends)
        order = sorted(placed)
        assert all(b - a >= 0.0749 for a, b in zip(order, order[1:], strict=False)) and max(placed) <= 1
        assert all(placed[i] <= placed[j] for i, a in enumerate(ends) for j, b in enumerate(ends) if a < b)


def test_one_predicts_first_and_then_it_is_started_like_any_run(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(processes, "start_process", lambda root, name, words,
                        **how: begun.append((name, words, how)))
    web = client(tmp_path)
    for predicted in ({}, {"predicted": "101"}, {"predicted": "x"}):
        answer = web.post("/book/-/workshop/kl", data={"variant": "kl", **predicted})
        assert "Predict first" in answer.text and begun == []
    assert web.post("/book/-/workshop/kl", data={"variant": "rate", "predicted": "5"}).status_code == 400
    assert web.post("/book/-/workshop/nothing", data={}).status_code == 404
    assert web.post("/book/-/workshop/kl", data={"variant": "kl", "predicted": "70"}).status_code == 200
    ((name, words, how),) = begun
    assert name == "workshop-kl-1" and how["note"] == {"predicted": 70.0, "seed": 1} and "seed=1" in words
    assert words[:2] == ["train", FIRST.recipe] and "kl.coef=1" in words and "steps=30" in words
    elsewhere = client(tmp_path, loopback=False)
    assert elsewhere.post("/book/-/workshop/kl", data={"variant": "kl", "predicted": "7"}).status_code == 403
    assert "switched off" in elsewhere.get("/book/-/workshop/kl").text


def test_the_chapter_is_linked_from_its_neighbours_and_exported(tmp_path):
    web = client(tmp_path)
    for address in ("/book/4", "/book/6", "/book/1"):
        assert re.search(r'class="prose">[^\n]*href="/book/5"', web.get(address).text), address
    still = web.get("/book/5", headers={"x-postgrad-export": "1"}).text
    assert "hx-post" not in still and still.count('class="workshop wide"') == len(EXPERIMENTS)
    assert "runs.js" not in still and "These runs are recorded" in still


@pytest.mark.parametrize(("width", "dark"), [(1280, False), pytest.param(390, True, marks=pytest.mark.long)])
def test_predict_start_and_watch(studio, tab, tmp_path, monkeypatch, width, dark):  # noqa: F811
    """A reader's run in the page: refused without a prediction, then followed as it is written."""
    made = []

    def start(root, name, words, *, fresh, note):
        noted(root, name, **note)
        made.append(evaluated(root / name, [0.33, 0.5], done=False))

    monkeypatch.setattr(processes, "start_process", start)
    page = tab(studio(runs=tmp_path), width=width, dark=dark)
    page.goto("/book/5")
    figure = page.locator("#workshop-first")
    expect(figure.get_by_text("Dashed: recorded")).to_be_hidden()
    figure.get_by_text("look at the recorded runs").click()
    expect(figure.get_by_text("Dashed: recorded")).to_be_visible()
    figure.get_by_role("button", name="Start the run").click()
    assert made == [] and page.evaluate("document.activeElement.name") == "predicted"  # it is asked for
    figure.get_by_label("Your prediction").fill("70")
    figure.get_by_role("button", name="Start the run").click()
    expect(figure.locator(".insight")).to_contain_text("workshop-nano-1 is running: step 5 of 5")
    expect(figure.get_by_role("button", name="Start the run")).to_be_disabled()
    shown = figure.locator("svg.for-wide" if width > 600 else "svg.for-narrow")
    expect(shown.locator("circle.dot.policy")).to_have_count(2)
    run = made[0]
    run.log_eval(10, {"pass@1": 0.7, "pass@1_interval": [0.6, 0.8], "mean_length": 9.0,
                      "answers": [{**TALK, "replies": [{"text": "four", "score": 1.0, "reason": ""}]}]})
    expect(shown.locator("circle.dot.policy")).to_have_count(3)  # it climbs while one looks
    expect(figure.locator(".replies li").nth(2)).to_contain_text("four")
    run.status("done")
    expect(figure.locator(".insight")).to_contain_text("You said 70 %; it came to 70")
    page.reload()
    expect(figure.locator(".insight")).to_contain_text("You said 70 %")  # and stays
    expect(page.locator(".figure-place")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []
