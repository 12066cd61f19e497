"""The pages about runs: how fast the server answers with 300 runs of 2,000 steps, and what is tried in a
browser. Parts of proofs/ecosystem.py."""

from __future__ import annotations

import http.client
import json
import math
import random
import statistics
import time
import urllib.parse
import urllib.request
from pathlib import Path

from harness import Bars, Tables, bar, run_tests, served, test_bar

# isort: split
from studio_small import sample

from postgrad.runs import Run

RUNS, STEPS, SEEDS, ROUNDS = 300, 2000, 5, 40
TARGET = 100  # ms
BROWSER = "tests/studio/runs/pages_browser_test.py"
FEATURES = {  # what the pages offer -> the browser tests in whose names the words stand
    "a run that collapses turns red while it is watched, in the list and in its pipeline":
        ["turns_red", "which_of_its_runs_is_ill"],
    "smoothing, log scale, by step, tokens or time, search": ["curves_are_smoothed", "long_curve"],
    "pin, full screen, CSV, PNG": ["pinned"],
    "seeds as one row, as a mean and a band": ["seeds_are_one_row"],
    "name, tags, note, archive": ["named_tagged"],
    "samples of all steps: search, best and worst, follow, export": ["samples_of_all_steps"],
    "talk to a checkpoint": ["checkpoint_answers"],
    "the form of a new run: a dozen fields, the faulty one marked": ["dozen_fields"],
    "axe: serious or critical, light and dark, 1280 and 390 px": ["axe_finds"],
}


def many_runs(folder: Path) -> None:
    """Runs of GRPO in groups that differ in their seed alone, with samples at every tenth step; one in twenty
    collapses."""
    for number in range(RUNS):
        rng, ill = random.Random(number), number % 20 == 7
        config = {"steps": STEPS, "seed": number % SEEDS, "optim": {"lr": 1e-5 * (1 + number // SEEDS)}}
        run = Run.create(folder / f"grpo-{number:03d}", recipe="rollouts", config=config, steps=STEPS,
                         method="grpo", model="tiny-chat", task="words", row={"kind": "policy"})
        rows, samples = [], []
        for step in range(1, STEPS + 1):
            rise = 0.0 if ill and step > STEPS // 2 else 1 - math.exp(-step / 500)
            rows.append({"step": step, "reward": rise * (1 + rng.gauss(0, 0.05)), "loss": rng.gauss(0, 0.1),
                         "kl": 0.3 * rise, "kl_k1": 0.1 * rise, "entropy": 1 - rise / 2,
                         "length": 20 + 10 * rise, "clip_fraction": 0.02, "reward_std": 0.4 * (rise > 0),
                         "flat_groups": 0.2 if rise else 1.0, "grad_norm": abs(rng.gauss(1, 0.2)),
                         "time/step": 0.5, "time/sample": 0.3, "time/train": 0.1, "tokens": 4000,
                         "sampled": 128})
            if step % 10 == 0:
                samples += [{"step": step, **sample(step, k, score=float(k % 2),
                                                    prompt=f"What is {step % 7}+{k // 4}?")}
                            for k in range(8)]
        for name, logged in (("metrics", rows), ("samples", samples)):
            (run.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in logged))
        run.status("done")
        run.close()


class Visitor:
    """A browser's requests without a browser: one connection, the studio's cookie."""

    def __init__(self, start: str):
        place = urllib.parse.urlsplit(start)
        self.connection = http.client.HTTPConnection(place.netloc)
        self.connection.request("GET", f"{place.path}?{place.query}")
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def asks(self, address: str) -> tuple[float, str]:
        """Milliseconds until the whole answer is there, and its text."""
        began = time.perf_counter()
        self.connection.request("GET", address, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, f"{address}: {answer.status}"
        return 1000 * (time.perf_counter() - began), text


def addresses(rng: random.Random) -> dict[str, str]:
    """One request for each kind of page, of runs that are drawn."""
    run, other = (f"grpo-{rng.randrange(RUNS):03d}" for _ in range(2))
    group = SEEDS * rng.randrange(RUNS // SEEDS)
    seeds = ",".join(f"grpo-{group + k:03d}" for k in range(SEEDS))
    return {"list": f"/runs?page={rng.randrange(1, 7)}", "list by reward": "/runs?sort=reward",
            "list, searched": f"/runs/-/list?q=grpo-{rng.randrange(30):02d}", "list, seeds": "/runs?seeds=1",
            "run": f"/runs/{run}", "doctor": f"/runs/-/doctor?run={run}",
            "samples of a step": f"/runs/-/samples?run={run}&step={rng.randrange(STEPS)}",
            "zoomed curve": f"/runs/-/curves?run={run}&name=reward&from=300&to=900&smooth=0.9",
            "search of samples": f"/runs/-/search?run={run}&q=answer&order=best",
            "two runs side by side": f"/runs/compare?ids={run},{other if other != run else 'grpo-000'}",
            "five seeds together": f"/runs/compare?ids={seeds}&seeds=1"}


def quantiles(times: list[float]) -> dict[str, float]:
    return {"p50, ms": statistics.median(times), "p95, ms": statistics.quantiles(times, n=20)[-1],
            "worst, ms": max(times), "requests": len(times)}


def pages(folder: Path) -> tuple[Bars, Tables]:
    """The answers of the server, as `postgrad studio` starts it: while it reads the runs for the first time,
    then when every run has been read and looked at once."""
    runs = folder / "runs"
    if not runs.exists():
        many_runs(runs)
    took: dict[str, list[float]] = {}
    with served("studio", runs, "--port", "0", "--no-open", XDG_STATE_HOME=str(folder)) as url:
        visitor, rng, began = Visitor(url), random.Random(0), time.perf_counter()
        first, text = visitor.asks("/runs")
        cold = []
        while text.count('class="verdict bad"') < RUNS // 20:  # until the doctor knows every collapsed run
            milliseconds, text = visitor.asks("/runs?q=collapse")
            cold.append(milliseconds)
            time.sleep(2)
        ready = time.perf_counter() - began
        for _ in range(ROUNDS):
            for name, address in addresses(rng).items():
                took.setdefault(name, []).append(visitor.asks(address)[0])
    rows = [{"page": name, **quantiles(times)} for name, times in took.items()]
    every = quantiles([ms for times in took.values() for ms in times])
    slowest = max(rows, key=lambda row: row["p95, ms"])
    rows += [{"page": "all of these", **every}, {"page": "the first list after the start", "worst, ms": first,
                                                 "requests": 1},
             {"page": f"list, meanwhile, until all is read and looked at ({ready:.0f} s)", **quantiles(cold)}]
    return [bar(f"run pages, {RUNS} runs of {STEPS:,} steps: p95 of the server's answers, slowest page",
                f"<= {TARGET} ms", f"{slowest['p95, ms']:.0f} ms ({slowest['page']}); of all "
                f"{every['requests']} requests {every['p95, ms']:.0f} ms", slowest["p95, ms"] <= TARGET,
                paths=["postgrad/studio/runs", "postgrad/studio/templates/runs", "postgrad/runs/doctor"])], {
        f"Run pages, {RUNS} runs of {STEPS:,} steps": rows}


def page_tests(folder: Path, report: str = "") -> Bars:
    """Each feature of the pages in a browser."""
    counts = run_tests(folder, [BROWSER], report)
    return [test_bar(name, "all pass", [f"{BROWSER}::" + next(
        test.partition("::")[2] for test in counts if BROWSER in test and word in test) for word in words],
        counts)
        for name, words in FEATURES.items()]


PARTS = {"pages": pages, "page-tests": page_tests}
