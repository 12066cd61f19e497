"""The pages about runs in a real browser: curves that grow, samples by keyboard, runs side by side,
poison that stays text."""

import fcntl
import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from paths import TESTS
from studio_browser import TOKEN, browser, studio, tab  # noqa: F401
from studio_small import grow, make, poisoned

from postgrad.runs import Run
from postgrad.studio.runs import processes

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=20_000)
HERE = TESTS
SMALL = {"rollouts.prompts_per_step": "2", "rollouts.group_size": "2", "rollouts.max_new_tokens": "6",
         "evaluation.every": "2", "evaluation.problems": "2", "evaluation.samples": "1", "save_every": "2"}
SERVER = """
import socket, sys, uvicorn
from pathlib import Path
from postgrad.studio.app import create_studio
sock = socket.create_server(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
app = create_studio(runs=Path(sys.argv[1]), token=sys.argv[2], hosts=("127.0.0.1",))
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
"""


def points(page, name="reward"):
    return page.locator(f'live-chart[name="{name}"] .now')


def test_a_run_is_started_watched_stopped_and_resumed(studio, tab, tmp_path):  # noqa: F811
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/new?recipe=grpo:arithmetic")
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    for key, value in (SMALL | {"steps": "60"}).items():
        page.locator(f'[name="set.{key}"]').fill(value)
    page.get_by_label("name of the run").fill("mine")
    expect(page.locator("#plan code")).to_contain_text("steps=60")
    expect(page.locator("#plan code")).to_contain_text("/mine")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile("/runs/mine"))
    expect(points(page)).to_have_attribute("data-count", re.compile(r"^([2-9]|\d\d)$"), timeout=120_000)
    before = int(points(page).get_attribute("data-count"))
    # it grows while it trains
    expect(points(page)).not_to_have_attribute("data-count", str(before), timeout=60_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#head .state")).to_have_text("stopped", timeout=60_000)
    run = Run.open(tmp_path / "mine")
    stopped = run.next_step - 1
    assert 2 <= stopped < 60 and int(run.latest().name) == stopped  # saved, and left
    page.get_by_role("button", name="Resume").click()
    expect(points(page)).to_have_attribute("data-count", re.compile(rf"^(?!{stopped}$)\d+$"), timeout=120_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#head .state")).to_have_text("stopped", timeout=60_000)
    steps = [row["step"] for row in run.rows("metrics")[0]]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > stopped  # each step once
    page.reload()
    expect(points(page)).to_have_attribute("data-count", str(len(steps)))
    expect(page.locator("#events")).to_contain_text(f"resumed after step {stopped}")


def ask(port, path, **fields):
    body = urllib.parse.urlencode(fields).encode() if fields else None
    headers = {"Cookie": f"postgrad={TOKEN}", "X-Postgrad": "1"}
    return urllib.request.urlopen(  # noqa: S310
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers), timeout=120)


def test_the_run_goes_on_when_the_server_is_killed(studio, tab, tmp_path):  # noqa: F811
    server = subprocess.Popen([sys.executable, "-c", SERVER, tmp_path, TOKEN], stdout=subprocess.PIPE,
                              cwd=HERE.parent)
    try:
        port = int(server.stdout.readline())
        asked = ({"recipe": "grpo:arithmetic", "name": "free"}
                 | {f"set.{k}": v for k, v in (SMALL | {"steps": "12"}).items()})
        ask(port, "/runs/-/start", **asked)
        with ask(port, "/runs/-/live?list=none") as stream:  # until the list says that the run is there
            while not (tmp_path / "free" / "run.json").exists():
                assert stream.readline()
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        server.stdout.close()
    assert Run.open(tmp_path / "free").alive()
    with open(processes.output_file(tmp_path, "free")) as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # until the run's process has ended by itself
    run = Run.open(tmp_path / "free")
    assert run.state()["state"] == "done"
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/free")
    expect(points(page)).to_have_attribute("data-count", "12")
    for step in (12, 1, 7):  # every step's samples are there
        page.locator("#step").fill(str(step))
        expect(page.locator("#samples-body")).to_have_attribute("data-step", str(step))


def test_rows_appear_as_they_are_logged_and_a_resume_replaces_them(studio, tab, tmp_path):  # noqa: F811
    run = make(tmp_path / "a", 3, done=False)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    expect(points(page)).to_have_text("0.3")
    grow(run, 2)
    expect(points(page)).to_have_attribute("data-count", "5")
    expect(points(page)).to_have_text("0.5")
    expect(page.locator("#step")).to_have_attribute("max", "5")
    # whoever stands at the end goes along
    expect(page.locator("#samples-body")).to_have_attribute("data-step", "5")
    page.locator("summary", has_text="more curve").click()
    expect(points(page, "time/step")).to_have_attribute("data-count", "5")
    run.rewind(2)
    run.log(3, {"reward": 0.9, "kl": 0.0, "time/step": 1.0})
    expect(points(page)).to_have_text("0.9")
    expect(points(page)).to_have_attribute("data-count", "3")
    expect(points(page, "time/step")).to_have_attribute("data-count", "3")
    run.event("skipped", "step 3: <b>bold</b>", step=3)
    expect(page.locator("#events li")).to_have_text("step 3 skipped step 3: <b>bold</b>")
    run.status("done")
    expect(page.locator("#head .state")).to_have_text("done")


def test_a_hidden_tab_has_no_stream_and_misses_nothing(studio, tab, tmp_path):  # noqa: F811
    run = make(tmp_path / "a", 3, done=False)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    hide = """x => { Object.defineProperty(document, "hidden", {value: x, configurable: true});
                      document.dispatchEvent(new Event("visibilitychange")) }"""
    page.evaluate(hide, True)
    assert page.evaluate("live.source === null")
    grow(run, 4)
    page.evaluate(hide, False)
    expect(points(page)).to_have_attribute("data-count", "7")


def test_a_run_started_elsewhere_appears_in_the_list(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 1)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs")
    page.get_by_label("Compare a").check()
    run = make(tmp_path / "demo" / "b", 1, done=False)
    expect(page.get_by_role("link", name="demo/b")).to_be_visible()
    expect(page.get_by_label("Compare a")).to_be_checked()  # what was chosen stays chosen
    run.status("done")
    expect(page.locator("tr", has_text="demo/b").locator(".state")).to_have_text("done")
    page.get_by_label("Show runs with these words").fill("demo")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_samples_and_tokens_by_keyboard(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 5)
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    page.keyboard.press(",")
    expect(page.locator("#samples-body")).to_have_attribute("data-step", "4")
    page.locator("#step").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#samples-body")).to_have_attribute("data-step", "3")
    page.locator("input[name=sample]").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page).to_have_url(re.compile("step=3&group=0&sample=1&colour=adv"))
    expect(page.locator(".tok.up-6")).to_have_count(3)
    page.get_by_role("radio", name="Ratio").check(force=True)
    expect(page.locator(".tok.down-6")).to_have_text("</answer>")
    expect(page).to_have_url(re.compile("colour=ratio"))
    page.locator(".tok[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("ratio 2.0000")
    page.keyboard.press("End")
    expect(page.locator(".readout")).to_contain_text("KL 0.2000")
    page.reload()
    expect(page.locator("#samples-body")).to_have_attribute(
        "data-query", re.compile("step=3&group=0&sample=1&colour=ratio"))
    page.get_by_role("button", name="Work it out").click()
    expect(page.locator("#worked")).to_contain_text("postgrad.maths.credit.group_zscore")
    expect(page.locator("#worked annotation")).to_contain_text(r"\frac{1.00 - 0.500}{0.500} = 1.000")


def test_two_runs_have_one_cursor(studio, tab, tmp_path):  # noqa: F811
    make(tmp_path / "a", 5, config={"lr": 1})
    make(tmp_path / "b", 8, config={"lr": 2})
    page = tab(studio(runs=tmp_path))
    page.goto("/runs")
    page.get_by_label("Compare a").check()
    page.get_by_label("Compare b").check()
    page.get_by_role("button", name="Compare the chosen runs").click()
    expect(points(page)).to_have_attribute("data-count", re.compile("^(5 8|8 5)$"))
    over = page.locator('live-chart[name="reward"] .u-over')
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2 / 7, box["y"] + 20)  # step 3 of 1 .. 8
    expect(points(page)).to_contain_text("step 3")
    expect(points(page, "kl")).to_have_text(re.compile("step 3.*0.03.*0.03"))
    expect(page.locator("#pairs-body")).to_contain_text("What is 2+2?")
    page.locator("#pair").fill("3")
    expect(page.locator("#pairs-body")).to_contain_text("step 3")


def test_100_poisons_run_in_no_page(studio, tab, tmp_path):  # noqa: F811
    bad = poisoned(tmp_path)
    page = tab(studio(runs=tmp_path))
    for path in ("/runs", "/runs/bad", "/runs/compare?ids=bad", "/"):
        page.goto(path)
        assert page.evaluate("window.pwned") is None
    page.goto("/runs/bad?step=1")
    for step in range(2, 101):
        page.keyboard.press(".")
        expect(page.locator("#samples-body")).to_have_attribute("data-step", str(step))
    page.locator(".tok").first.hover()
    assert page.evaluate("window.pwned") is None
    expect(page.locator(".answer .text")).to_have_text(bad[-1].replace("\0", "\ufffd"))
    run = Run.open(tmp_path / "bad")
    with run.locked():
        run.event("skipped", bad[1], step=100)
    expect(page.locator("#events li").last).to_contain_text(bad[1])
    assert page.evaluate("window.pwned") is None


def test_zooming_into_a_long_curve_fetches_what_was_left_out(studio, tab, tmp_path):  # noqa: F811
    run = make(tmp_path / "long", 0)
    rows = (json.dumps({"step": s, "reward": s % 7 / 7}) for s in range(1, 10_001))
    (run.folder / "metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/long")
    expect(points(page)).to_have_attribute("data-count", re.compile(r"^[78]\d\d$"))
    box = page.locator('live-chart[name="reward"] .u-over').bounding_box()
    with page.expect_response(re.compile("/runs/-/curves")):
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + 30, steps=4)
        page.mouse.up()
    chart = page.locator('live-chart[name="reward"]')
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    expect(chart.locator(".at")).to_have_text(re.compile(r"step 5[01]\d\d"))
    steps = chart.evaluate("e => e.plot.data[0]")
    assert 150 < len(steps) < 250 and steps == list(range(steps[0], steps[0] + len(steps)))


def test_the_head_moves_shares_have_one_axis_and_the_drawer_fits(studio, tab, tmp_path):  # noqa: F811
    run = Run.create(tmp_path / "a", recipe="grpo", config={}, steps=9)
    long = {f"a_metric_whose_name_is_long_{k}": 0.1 for k in range(3)} | {"mismatch": 0.1, "ratio_max": 1.0}
    row = {"reward": 0.5, "time/step": 2.0, "tokens": 500, **long}
    run.log(1, row)
    run.log_eval(1, {"pass@1": 0.25, "pass@1_interval": [0.2, 0.3]})
    page = tab(studio(runs=tmp_path))
    page.goto("/runs/a")
    head = page.locator("#head")
    expect(head.locator(".progress")).to_contain_text(
        re.compile(r"^step 1 of 9, \d+ s so far, about .* to go, 250 tokens/s$"))
    run.log(2, row)
    run.log(3, row)
    expect(head.locator(".progress")).to_contain_text("step 3 of 9")
    expect(head.locator("progress")).to_have_attribute("value", "3")
    chart = page.locator('live-chart[name="evals/pass@1"]')
    expect(chart.locator(".now")).to_have_text("25 %")
    assert chart.evaluate("e => [e.plot.scales.y.min, e.plot.scales.y.max]") == [0, 1]
    page.locator("summary", has_text="more curve").click()
    expect(points(page, "mismatch")).to_have_attribute("data-count", "3")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    run.status("stopped")
    expect(head.locator(".progress")).to_have_text("step 3 of 9, 6.0 s")
