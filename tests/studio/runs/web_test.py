"""The pages about runs: what is read, listed and told live, and nothing else."""

import fcntl
import json
import math
import os
import random

import pytest
from studio_small import Texts, client, grow, make

from postgrad.runs import Run
from postgrad.studio.runs import curves, live, processes, traces
from postgrad.studio.runs import progress as pace


def logged(trace):
    """All numbers of a trace, as text: nan is equal to nan."""
    return {name: str(column) for name, column in trace.columns.items() if column[0]}


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_that_grew_equals_one_that_was_read_at_once(tmp_path, seed):
    rng, run = random.Random(seed), make(tmp_path / "a", 0, done=False)
    held = traces.Traces(tmp_path)
    for _ in range(12):
        for step in range(run.next_step, run.next_step + rng.randrange(4)):
            row = {"reward": rng.choice([rng.random(), math.nan, math.inf]), "time/step": 1.0}
            run.log(step, row | ({"extra": 1} if rng.random() < 0.3 else {}))
            if rng.random() < 0.4:
                run.log_eval(step, {"pass@1": rng.random(), "pass@1_interval": [0.1, 0.9]})
        if rng.random() < 0.3:
            run.rewind(rng.randrange(run.next_step))  # a resume: what comes then replaces what stood there
            run.log(run.next_step, {"reward": -1.0, "time/step": 1.0})
        grown, fresh = held.get("a"), traces.Trace(tmp_path / "a").refresh()
        assert logged(grown) == logged(fresh)
        assert grown.evals == fresh.evals and grown.step == fresh.step == run.next_step - 1


def test_runs_are_found_wherever_they_are_and_links_are_not_followed(tmp_path):
    make(tmp_path / "runs" / "b", 2)
    make(tmp_path / "runs" / "demo" / "rl", 1)
    make(tmp_path / "runs" / "lab" / "x" / "y", 1)
    make(tmp_path / "elsewhere" / "c", 1)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere" / "c")
    (tmp_path / "runs" / ".output").mkdir()
    assert list(traces.find_runs(tmp_path / "runs")) == ["b", "demo/rl", "lab/x/y"]
    with pytest.raises(traces.NoSuchRun, match="out of the runs folder"):
        traces.existing_run_folder(tmp_path / "runs", "link")
    page = client(tmp_path / "runs").get("/runs").text
    assert (all(f'href="/runs/{name}"' in page for name in ("b", "demo/rl", "lab/x/y"))
            and "link" not in Texts(page).text)


def test_the_list_is_sorted_filtered_and_says_what_is_broken(tmp_path):
    for name, steps in (("aa", 1), ("bb", 5), ("cc", 3)):
        make(tmp_path / name, steps)
    make(tmp_path / "zz", 2, method="ppo", done=False).close()  # its process died
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text("{")
    web = client(tmp_path)
    names = ["aa", "bb", "cc", "zz", "torn"]

    def order(query):
        text = Texts(web.get(f"/runs?{query}").text).text
        return sorted((n for n in names if f"\n{n}\n" in text), key=lambda n: text.index(f"\n{n}\n"))

    assert (order("sort=step&order=down")[:2] == ["bb", "cc"]
            and order("sort=reward&order=up")[:2] == ["aa", "zz"])
    assert order("q=ppo") == ["zz"] and order("q=grpo+BB") == ["bb"] and order("q=nothing") == []
    assert order("q=interrupted") == ["zz"] and order("q=broken") == ["torn"]
    assert "is not a JSON object" in web.get("/runs?q=broken").text
    assert web.get("/runs?sort=colour").status_code == 400


def test_a_hostile_run_folder_is_shown_not_obeyed(tmp_path):
    run = make(tmp_path / "odd", 2)
    (run.folder / "run.json").write_text(json.dumps({"created": "yesterday", "steps": [], "method": {"a": 1},
                                                     "model": None}))
    (run.folder / "config.json").write_text(json.dumps({"optim": {"lr": "\ud800"}}))
    (run.folder / "status.json").write_text(json.dumps({"state": "running", "pid": 1, "updated": {}}))
    with open(run.folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": null, "reward": 1}\n{"step": 99999999999999999999, "reward": 1}\n'
                   b'{"step": 3, "reward": [1]}\n')
    with open(run.folder / "samples.jsonl", "ab") as file:
        file.write(b'{"step": 3}\n{"step": 3, "tokens": 5, "columns": [], "parts": 1, "prompt": "\\ud800", '
                   b'"score": "x"}\n')
    web = client(tmp_path)
    pages = ("/runs", "/runs/odd", "/runs/-/samples?run=odd&step=3&group=1", "/runs/-/curves?run=odd",
             "/runs/compare?ids=odd")
    for path in pages:
        assert web.get(path).status_code == 200, path
    # nobody holds its lock: process 1 is left alone
    assert web.post("/runs/-/stop", data={"run": "odd"}).status_code == 400


def test_a_long_run_s_first_picture_keeps_its_extremes_and_is_small(tmp_path):
    run = make(tmp_path / "long", 0)
    values = [math.sin(s / 40) for s in range(10_000)]
    values[7_776], values[123] = 50.0, -50.0
    rows = (json.dumps({"step": s + 1, "reward": v}) for s, v in enumerate(values))
    (run.folder / "metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    found = curves.chart_curves({"long": traces.Trace(run.folder).refresh()},
                                ["reward"])["reward"]["series"][0]
    assert len(found["steps"]) <= curves.POINTS + 1 and not found["whole"]
    assert dict(zip(found["steps"], found["values"], strict=True))[7_777] == 50.0 == max(found["values"])
    assert (min(found["values"]) == -50.0 and found["steps"][-1] == 10_000
            and found["steps"] == sorted(set(found["steps"])))
    web = client(tmp_path)
    detail = web.get("/runs/-/curves?run=long&name=reward&from=7700&to=7800").json()["reward"]
    assert detail["steps"] == list(range(7_700, 7_801)) and detail["values"][77] == 50.0
    assert len(web.get("/runs/long").content) < 60_000


def test_a_band_of_seeds_is_that_of_the_steps_all_have_and_gaps_stay():
    band = curves.seed_band([([1, 2, 3], [0.0, math.nan, 1.0]), ([1, 2, 3, 5], [1.0, 3.0, math.inf, 9.0])])
    assert band == {"steps": [1, 2, 3], "values": [0.5, None, None], "low": [0.0, 3.0, 1.0],
                    "high": [1.0, 3.0, 1.0]}
    assert curves.seed_band([([1, 2, 2], [0.0, 5.0, 1.0]), ([2, 1], [3.0, 4.0])])["values"] == [2.0, 2.0]
    assert curves.seed_band([([1], [1.0]), ((), ())]) == {"steps": [], "values": [], "low": [], "high": []}


def test_further_curves_of_seeds_come_when_they_are_asked_for_and_follow_a_resume(tmp_path):
    runs = [make(tmp_path / f"s-{seed}", 4, config={"steps": 4, "seed": seed}) for seed in (0, 1)]
    web = client(tmp_path)
    charts = Texts(web.get("/runs/compare?ids=s-0,s-1&seeds=1").text).data["charts"]
    assert charts["time/step"]["series"] == [{"run": "s", "steps": [], "values": [], "late": True}]
    asked = web.get("/runs/-/curves?seeds=1&run=s-0&run=s-1").json()
    assert set(asked) == set(charts) and asked["reward"] == charts["reward"]
    assert asked["time/step"]["series"][0]["values"] == [2.0] * 4
    runs[1].rewind(2)
    runs[1].log(3, {"reward": 0.5, "kl": 0.0, "time/step": 4.0})
    again = web.get("/runs/-/curves?seeds=1&run=s-0&run=s-1").json()["time/step"]["series"][0]
    assert (again["steps"], again["values"], again["high"]) == ([1, 2, 3], [2.0, 2.0, 3.0], [2.0, 2.0, 4.0])
    exported = Texts(web.get("/runs/compare?ids=s-0,s-1&seeds=1", headers={"X-Postgrad-Export": "1"}).text)
    assert exported.data["charts"]["time/step"] == web.get(
        "/runs/-/curves?seeds=1&run=s-0&run=s-1").json()["time/step"]


def test_the_list_follows_each_file_of_a_run(tmp_path):
    run = make(tmp_path / "a", 2, done=False)
    web = client(tmp_path)

    def row():
        return Texts(web.get("/runs").text).text

    assert "running" in row() and "0.20" in row()
    with open(run.folder / "metrics.jsonl", "ab") as log:
        log.write(b'{"step": 3, "reward": 0.7')
    assert "0.20" in row()  # the row is still being written
    with open(run.folder / "metrics.jsonl", "ab") as log:
        log.write(b', "kl": 0.0}\n')
    assert "0.70" in row()
    run.rewind(1)
    assert "0.10" in row() and "0.70" not in row()
    run.log_eval(1, {"pass@1": 0.37})
    assert "37" in row()
    run.close()
    assert "interrupted" in row()


# live

def test_the_stream_tells_each_row_once_and_goes_on_from_a_cursor(tmp_path):
    run = make(tmp_path / "a", 2, done=False)
    seen = live.WatchedRun(tmp_path, "a", [0, 0, 0])
    first = seen.news()
    assert [row["step"] for row in first["metrics"]] == [1, 2] and first["samples"] == 2
    assert first["state"]["state"] == "running"
    assert seen.news() is None
    grow(run, 2)
    run.log_eval(4, {"pass@1": 0.5, "pass@1_interval": [0.25, 0.75], "errors": math.nan})
    run.event("skipped", "step 4: <b>", step=4)
    later, again = seen.news(), live.WatchedRun(tmp_path, "a", [*seen.cursor]).news()
    assert [row["step"] for row in later["metrics"]] == [3, 4] and later["metrics"][1]["reward"] == 0.4
    assert later["evals"] == [{"step": 4, "pass@1": 0.5, "errors": None, "pass@1_interval": [0.25, 0.75]}]
    assert later["events"] == [{"step": 4, "kind": "skipped", "text": "step 4: <b>"}]
    assert again["metrics"] == again["evals"] == [] and again["state"] == later["state"]
    run.status("stopped", error="stopped by SIGTERM")
    assert seen.news()["state"] == {"state": "stopped", "step": 4, "steps": 2, "error": "stopped by SIGTERM"}


def test_a_reader_far_behind_is_told_to_read_anew(tmp_path, monkeypatch):
    make(tmp_path / "a", 5)
    monkeypatch.setattr(live, "MOST", 3)
    assert live.WatchedRun(tmp_path, "a", [0, 0, 0]).news()["reload"] is True


def test_the_list_s_signature_changes_with_what_the_list_shows(tmp_path):
    seen = [live.runs_signature(tmp_path)]
    run = make(tmp_path / "a", 1, done=False)
    seen.append(live.runs_signature(tmp_path))
    assert live.runs_signature(tmp_path) == seen[-1]
    grow(run, 1)
    seen.append(live.runs_signature(tmp_path))
    run.close()
    seen.append(live.runs_signature(tmp_path))  # its process is gone: "interrupted"
    assert len(set(seen)) == 4


@pytest.mark.parametrize("watch", ["a", "a:1:2", "a:1:2:x", "a:-1:0:0", "../a:0:0:0", "a:0:0:0:0",
                                   "a:9999999999999999999:0:0"])
def test_a_bad_cursor_is_refused(tmp_path, watch):
    make(tmp_path / "a", 1)
    assert client(tmp_path).get("/runs/-/live", params={"watch": watch}).status_code == 400


# how a run stands

def test_the_head_tells_how_far_and_how_fast(tmp_path):
    """Twelve steps of 2 s and 500 tokens, three seconds ago."""
    run = Run.create(tmp_path / "a", recipe="grpo", config={}, steps=40)
    for step in range(1, 13):
        run.log(step, {"reward": 0.5, "time/step": 2.0, "tokens": 500})
    trace = traces.Trace(run.folder).refresh()
    written = (run.folder / "metrics.jsonl").stat().st_mtime
    assert pace.progress_text(trace, "running", now=written + 3.2) == (
        "step 12 of 40, 27 s so far, about 52 s to go, 250 tokens/s")
    assert pace.progress_text(trace, "running", now=written + 1000).endswith("about 0 s to go, 250 tokens/s")
    assert pace.progress_text(trace, "stopped") == "step 12 of 40, 24 s"
    os.utime(run.folder / "metrics.jsonl", (written - 900, written - 900))  # it stood still, and was resumed
    resumed = run.state()["updated"]
    assert pace.progress_text(trace, "running", now=resumed + 5.5).startswith("step 12 of 40, 29 s so far")
    first = traces.Trace(Run.create(tmp_path / "b", recipe="grpo", config={}, steps=9).folder).refresh()
    begun = first.run.state()["updated"]
    assert pace.progress_text(first, "running", now=begun + 4.5) == "step 0 of 9, 4 s in the first step"
    assert live.WatchedRun(tmp_path, "a", [0, 0, 0]).news()["state"]["step"] == 12
    head = Texts(client(tmp_path).get("/runs/a").text)
    assert "step 12 of 40, 2" in head.text
    assert ("progress", {"max": "40", "value": "12", "aria-label": "Steps done"}) in head.elements


def test_a_resume_on_its_way_is_told(tmp_path):
    """A process of another id than the one that stopped holds the run's output; when it goes, so does the
    word."""
    run = make(tmp_path / "a", 2, done=False)
    run.status("stopped", error="stopped by SIGTERM")
    web, said = client(tmp_path), processes.output_file(tmp_path, "a")
    seen = live.WatchedRun(tmp_path, "a", [0, 0, 0])
    assert seen.news()["state"]["state"] == "stopped" and ">Resume<" in web.get("/runs/a").text
    said.parent.mkdir()
    with open(said, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for pid, state in ((run.state()["pid"], "stopped"), (1, "resuming")):
            said.with_suffix(".json").write_text(json.dumps({"pid": pid}))
            page = web.get("/runs/-/head?run=a").text
            assert f'<span class="state {state}">' in page and (">Resume<" in page) == (state == "stopped")
        assert "goes on after step 2" in page and seen.news()["state"]["state"] == "resuming"
    assert seen.news()["state"]["state"] == "stopped"


def test_pass_at_1_is_a_share_everywhere(tmp_path):
    run = make(tmp_path / "a", 2, done=False)
    run.log_eval(2, {"pass@1": 0.85, "pass@1_interval": [0.8, 0.9], "mean_length": 12.0})
    run.status("done")
    page = Texts(client(tmp_path).get("/runs/a").text)
    assert page.data["charts"]["evals/pass@1"]["share"] and not page.data["charts"]["reward"]["share"]
    assert "85\u00a0%" in Texts(client(tmp_path).get("/runs").text).text


def test_a_folder_of_runs_is_a_list_and_its_report_is_linked(tmp_path):
    make(tmp_path / "lab" / "a", 1)
    web = client(tmp_path)
    found = web.get("/runs/lab")
    assert found.status_code == 200 and found.url.query == b"q=lab%2F" and "lab/a" in found.text
    assert web.get("/runs/nothing").status_code == 404
    (tmp_path / "lab" / "pipeline.json").write_text(json.dumps({"recipe": "demo", "steps": []}))
    assert "Its report" not in web.get("/runs/lab").text
    assert web.get("/runs/-/report?run=lab").status_code == 404
    (tmp_path / "lab" / "report.html").write_text("<style>p{}</style><script>window.pwned=1</script><p>told")
    assert 'href="/runs/-/report?run=lab"' in web.get("/runs/lab").text
    report = web.get("/runs/-/report?run=lab")
    assert report.text.endswith("told") and report.headers["content-security-policy"].startswith("sandbox;")
    (tmp_path / "lab" / "report.html").rename(tmp_path / "secret")
    (tmp_path / "lab" / "report.html").symlink_to(tmp_path / "secret")
    assert web.get("/runs/-/report?run=lab").status_code == 404
