"""What a practitioner does on the pages about runs, in a real browser: the doctor, curves, seeds, notes,
samples, chat, and the form of a new run."""

import csv
import io
import json
import re

import pytest
from health_small import collapsed
from studio_browser import Watched, axe, browser, studio, tab  # noqa: F401
from studio_small import make
from talk_small import talking

from postgrad.runs.notes import RunNote, write_note

expect = pytest.importorskip("playwright.sync_api").expect


def chart(page, name="reward"):
    return page.locator(f'live-chart[name="{name}"]')


def test_a_run_that_collapses_turns_red_while_it_is_watched(studio, tab, tmp_path):  # noqa: F811
    run = collapsed(tmp_path / "a", steps=9, after=9, of=30)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    doctor = page.locator("#doctor")
    expect(doctor).to_have_attribute("data-level", "well")
    assert not page.title().startswith("!")
    collapsed(run, steps=12, after=0)
    expect(doctor).to_have_attribute("data-level", "bad")
    expect(doctor).to_contain_text("lower optim.lr")
    expect(page).to_have_title(re.compile("^! a"))
    page.goto("/runs")
    verdict = page.locator("tr", has_text="a").locator(".verdict.bad")
    expect(verdict).to_have_text("reward collapse")
    verdict.click()
    expect(doctor).to_be_in_viewport()


def test_curves_are_smoothed_by_tokens_on_a_log_scale_and_found(studio, tab, tmp_path):  # noqa: F811
    run = make(tmp_path / "a", 0, done=False)
    for step in range(1, 21):
        run.log(step, {"reward": float(step % 2) + 1, "kl": 0.1, "tokens": 1000, "time/step": 60.0,
                       "odd/figure": 1.0})
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    reward, tools = chart(page), page.locator("#curve-tools")
    assert reward.evaluate("e => [e.plot.data.length, e.plot.data[0].at(-1)]") == [2, 20]
    tools.get_by_label("smoothing").fill("0.9")
    expect(reward).to_have_js_property("plot.data.length", 3)
    raw, soft = reward.evaluate("e => [e.plot.data[1], e.plot.data[2]]")
    mean = raw[0]
    for value, want in zip(raw, soft, strict=True):
        mean = 0.9 * mean + 0.1 * value
        assert abs(mean - want) < 1e-9
    expect(reward.locator(".now")).to_have_text("1")  # the number is the logged one
    tools.get_by_label("Curves by").select_option("tokens")
    expect(reward).to_have_js_property("plot.data.0.19", 20_000)
    tools.get_by_label("Curves by").select_option("time")
    expect(reward).to_have_js_property("plot.data.0.19", 1200)
    run.log(21, {"reward": 5.0, "kl": 0.1, "tokens": 1000, "time/step": 60.0, "odd/figure": 1.0})
    expect(reward).to_have_js_property("plot.data.0.20", 1260)  # it goes on by time, and smoothed
    tools.get_by_label("log scale").check()
    expect(reward).to_have_js_property("plot.scales.y.distr", 3)
    page.reload()  # as it was left
    expect(reward).to_have_js_property("plot.scales.y.distr", 3)
    expect(tools.get_by_label("smoothing")).to_have_value("0.9")
    tools.get_by_label("Show curves with these words").fill("figure")
    expect(chart(page, "odd/figure")).to_be_visible()
    expect(reward).to_be_hidden()
    tools.get_by_label("Show curves with these words").fill("nothing")
    expect(page.locator("#none-found")).to_be_visible()


def test_a_long_curve_is_smoothed_over_every_step(studio, tab, tmp_path):  # noqa: F811
    run = make(tmp_path / "a", 0)
    values = [s % 7 / 7 for s in range(3000)]
    (run.folder / "metrics.jsonl").write_text(
        "".join(f'{{"step": {s + 1}, "reward": {v}}}\n' for s, v in enumerate(values)))
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    page.get_by_label("smoothing").fill("0.99")
    expect(chart(page)).to_have_js_property("plot.data.length", 3)
    mean = values[0]
    for value in values:
        mean = 0.99 * mean + 0.01 * value
    assert abs(chart(page).evaluate("e => e.plot.data[2].at(-1)") - mean) < 1e-5


def test_a_curve_is_pinned_shown_large_and_saved(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 5)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Reward as PNG").click()
    assert saved.value.suggested_filename == "a-reward.png"
    with open(saved.value.path(), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    with page.expect_download() as saved:
        page.get_by_role("link", name="Reward as CSV").click()
    with open(saved.value.path()) as file:
        assert [row["reward"] for row in csv.DictReader(file)] == ["0.1", "0.2", "0.3", "0.4", "0.5"]
    whole = list(csv.DictReader(io.StringIO(page.request.get("/runs/-/csv?run=a").text())))
    assert len(whole) == 5 and whole[2] == {"step": "3", "reward": "0.3", "kl": "0.03", "time/step": "2.0"}
    page.get_by_role("button", name="Reward full screen").click()
    expect(page.locator("live-chart:fullscreen")).to_have_attribute("name", "reward")
    page.keyboard.press("Escape")
    page.evaluate("document.fullscreenElement && document.exitFullscreen()")
    page.locator("summary", has_text="more curve").click()
    page.get_by_role("button", name="Pin time/step").click()
    expect(page.locator("#pinned live-chart")).to_have_attribute("name", "time/step")
    page.reload()
    expect(page.locator("#pinned live-chart .now")).to_have_text("2")
    page.get_by_role("button", name="Pin time/step").click()
    expect(page.locator("#pinned")).to_be_hidden()


def test_seeds_are_one_row_and_one_curve_with_a_band(studio, tab, tmp_path):  # noqa: F811
    for seed, scale in enumerate((1, 2, 3)):
        run = make(tmp_path / f"words-{seed}", 0, config={"steps": 4, "seed": seed})
        with run.locked():
            for step in range(1, 5 - (seed == 2)):
                run.log(step, {"reward": scale * step / 10, "odd": scale * step})
    make(tmp_path / "other", 4, config={"steps": 4, "seed": 0, "optim": {"lr": 1.0}})
    page = tab(studio(runs=tmp_path))
    page.goto("/runs")
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_label("Seeds together").check()
    expect(page.locator("tbody tr")).to_have_count(2)
    row = page.locator("tbody tr", has_text="3 seeds: 0, 1, 2")
    expect(row).to_contain_text("0.70 ± 0.26")
    row.get_by_role("link", name="words").click()
    assert chart(page).evaluate("e => e.plot.data") == [[1, 2, 3], [0.2, 0.4, 0.6]]
    (series,) = chart(page).evaluate("e => e.chart.series")
    assert series["band"] and (series["low"], series["high"]) == ([0.1, 0.2, 0.3], [0.3, 0.6, 0.9])
    assert chart(page, "odd").evaluate("e => e.chart.series[0].late && !e.plot")
    with page.expect_response(re.compile("/runs/-/curves")):  # in the drawer: fetched when it is opened
        page.locator("details.drawer > summary").click()
    expect(chart(page, "odd").locator("canvas")).to_be_visible()
    assert chart(page, "odd").evaluate("e => e.plot.data") == [[1, 2, 3], [2, 4, 6]]
    assert chart(page, "odd").evaluate("e => e.chart.series[0].high") == [3, 6, 9]
    page.get_by_role("link", name="Seeds apart").click()
    expect(page.locator("h1")).to_have_text("3 runs side by side")


def test_the_form_has_a_dozen_fields_and_marks_the_faulty_one(studio, tab, tmp_path):  # noqa: F811
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/new")
    seen = page.locator("#settings :is(input, select):visible")
    assert 10 <= seen.count() <= 14
    assert page.locator("#method option").count() < 60 and page.locator("#setting option").count() < 15
    assert page.evaluate("document.documentElement.scrollHeight") < 2000
    page.get_by_label("optim.lr").fill("fast")
    field = page.locator(".field.faulty")
    expect(field).to_have_count(1)
    expect(field.locator("input")).to_have_attribute("name", "set.optim.lr")
    expect(field.locator(".fault")).to_contain_text("fast")
    page.get_by_label("optim.lr").fill("1e-3")
    expect(field).to_have_count(0)
    page.goto("/runs/new?recipe=grpo:words&set.rollouts.min_p=7")  # its section is folded
    expect(page.locator(".field.faulty input")).to_be_visible()
    expect(page.locator(".field.faulty input")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Method").select_option("dpo")  # has no words: the first of its tasks
    page.wait_for_url(re.compile("method=dpo"))
    expect(page.get_by_label("Task", exact=True)).to_have_value("questions")
    expect(page.locator("#plan code")).to_contain_text("postgrad train dpo:questions")
    page.get_by_label("Task", exact=True).select_option("own")
    expect(page.locator("#plan code")).to_contain_text("postgrad train dpo task=mytask.py")


def test_samples_of_all_steps_are_searched_ranked_followed_and_saved(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 12)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    search, hits = page.locator("#search"), page.locator("#found .hits li")
    search.get_by_label("Words").fill("answer 4")
    expect(page.locator("#found [role=status]")).to_contain_text("48 samples at 12 steps")
    search.get_by_label("Order").select_option("best")
    expect(hits.first.locator(".score")).to_have_text("1.00")
    search.get_by_label("Order").select_option("worst")
    expect(hits.first.locator(".score")).to_have_text("0.00")
    search.get_by_label("Score from").fill("0.5")
    expect(page.locator("#found [role=status]")).to_contain_text("24 samples at 12 steps")
    page.locator("#found").get_by_role("button", name="Next").click()
    expect(hits).to_have_count(4)
    with page.expect_download() as saved:
        page.get_by_role("link", name="JSON lines").click()
    with open(saved.value.path()) as file:
        assert len(file.readlines()) == 24
    hits.last.get_by_role("link", name="Follow this prompt").click()
    expect(page.locator("#found svg.chart")).to_be_visible()
    expect(page.locator("#found .prompt")).to_have_text("What is 2+2?")
    hits.first.get_by_role("link", name="step 1", exact=True).click()
    expect(page.locator("#samples-body")).to_have_attribute("data-step", "1")


def test_a_run_is_named_tagged_and_archived(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 2)
    make(tmp_path / "b", 2)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    page.locator("#note summary").click()
    page.get_by_label("Name", exact=True).fill("the baseline")
    page.get_by_label("Tags").fill("paper, v2")
    page.get_by_label("Note", exact=True).fill("as in table 2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("the baseline")
    expect(page.locator("#note .written")).to_have_text("as in table 2")
    page.locator("#note").get_by_role("link", name="paper").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="the baseline").click()
    page.locator("#note summary").click()
    page.get_by_label("archived: left out of the list").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#note span.tag")).to_have_text("archived")  # the form's label has the word before
    page.goto("/runs")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Archived (1)").check()
    expect(page.get_by_role("link", name="the baseline")).to_be_visible()


def test_a_checkpoint_answers_beside_itself(studio, tab, tmp_path):  # noqa: F811
    talking(tmp_path)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    page.get_by_label("Question").fill("What is 2 + 3?")
    page.get_by_label("Tokens", exact=True).fill("16")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#replies h3")).to_have_text("step 2")
    expect(page.locator("#replies .text")).to_contain_text("answer")


def test_a_pipeline_tells_which_of_its_runs_is_ill(studio, tab, tmp_path):  # noqa: F811
    steps = [{"kind": "run", "name": name, "needs": [], "settings": {}} for name in ("sft", "rl")]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pipeline.json").write_text(json.dumps({"name": "mine", "steps": steps}))
    make(tmp_path / "mine" / "sft", 2)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/mine")
    expect(page.locator("#list progress")).to_have_attribute("value", "1")
    run = collapsed(tmp_path / "mine" / "rl", steps=12, of=40)
    row = page.locator("tr", has_text="rl")
    expect(row.locator(".verdict.bad")).to_have_text("no signal")
    expect(row).to_contain_text(re.compile("step 12 of 40, .* to go, 100 tokens/s"))
    run.status("done")
    expect(page.locator("#list progress")).to_have_attribute("value", "2")


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(studio, browser, tmp_path,  # noqa: F811
                                                                       dark):
    talking(tmp_path)
    collapsed(tmp_path / "ill", steps=20, after=10).status("done")
    write_note(tmp_path / "ill", RunNote(name="ill", tags=("paper",), note="why?"))
    for seed in (0, 1):
        make(tmp_path / f"s-{seed}", 12, config={"steps": 12, "seed": seed})
    origin = studio(runs=tmp_path)
    for width in (1280, 390):
        watched = Watched(browser, origin, dark=dark, width=width)
        page = watched.page
        for address in ("/runs", "/runs?seeds=1", "/runs/ill", "/runs/a?q=answer", "/runs/new",
                        "/runs/a?prompt=What+is+2%2B2%3F", "/runs/compare?ids=s-0,s-1&seeds=1",
                        "/runs/new?recipe=grpo:words&set.optim.lr=fast&set.rollouts.min_p=7"):
            page.goto(address)
            if "?q=" in address or "prompt" in address:
                expect(page.locator("#found .hits")).to_be_visible()
            if address == "/runs/ill":
                expect(page.locator("#doctor")).to_have_attribute("data-level", "bad")
            assert axe(page) == [], address
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        watched.context.close()
        watched.judge()
