"""The studio's bars, in a real browser: up in < 2 s, first page in < 1 s, a slider's picture in 60 ms (p50) and 150 ms (p95)
while a training uses the cores, a run of 10,000 steps in < 1 s, static files under 3 MB.

    python bench/studio.py [--out FILE.json]      needs chromium; about two minutes
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from postgrad.run import Run
from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.instruments.base import Slider
from postgrad.studio.pages import STATIC

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STARTS, MOVES = 5, 60
MOVE = """
([id, value]) => new Promise((done) => {
  const slider = document.getElementById(id), picture = slider.closest(".instrument").querySelector(".picture");
  const began = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(performance.now() - began);
    requestAnimationFrame(() => painted.port2.postMessage(0));
  });
  watch.observe(picture, { attributes: true, attributeFilter: ["data-query"] });
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
})
"""


@contextmanager
def studio(runs: Path, state: Path):
    """The command itself, as a user starts it; -> (address, seconds until it has printed that address)."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "postgrad", "studio", str(runs), "--port", "0", "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"XDG_STATE_HOME": str(state)})
    try:
        yield json.loads(process.stdout.readline())["url"], time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


@contextmanager
def training(folder: Path):
    """A GRPO run as the studio starts one: a process of its own, niced, on all cores; -> once it has made a step."""
    command = [sys.executable, "-m", "postgrad", "train", "grpo:words", "steps=100000", "--run", str(folder)]
    process = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").stat().st_size:
            assert process.poll() is None, "the training ended before its first step"
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def long_run(folder: Path, steps: int = 10_000) -> None:
    """A run of 10,000 steps with the metrics of GRPO, and samples at every hundredth."""
    rng, run = random.Random(0), Run.create(folder, recipe="grpo", config={"steps": steps}, steps=steps, method="grpo",
                                            model="tiny-chat", task="words")
    for step in range(1, steps + 1):
        rise = 1 - math.exp(-step / 2500)
        run.log(step, {"reward": rise + rng.gauss(0, 0.05), "loss": rng.gauss(0, 0.1), "kl": 0.3 * rise,
                       "entropy": 1 - rise / 2, "length": 20 + 10 * rise, "clip_fraction": 0.02,
                       "grad_norm": abs(rng.gauss(1, 0.2)), "time/step": 0.5})
        if step % 100 == 0:
            run.log_samples(step, [{"prompt": "What is 2 + 3?", "text": f"It is {i}.", "score": float(i == 5)}
                                   for i in range(8)])
    run.status("done")


def starts(playwright, runs: Path, state: Path) -> dict[str, float]:
    """From the command to a listening server, and from the address to a loaded first page."""
    up, page_after = [], []
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    for _ in range(STARTS):
        with studio(runs, state) as (url, seconds):
            up.append(seconds)
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(url, wait_until="load")
            page_after.append(time.perf_counter() - began)
            page.close()
    browser.close()
    return {"server up, s": statistics.median(up), "first page, s": statistics.median(page_after)}


def sliders(page, origin: str) -> dict[str, list[float]]:
    """instrument -> milliseconds from a slider's event to the frame in which the new picture is drawn."""
    found = {}
    for instrument in INSTRUMENTS.values():
        slider = next((c for c in instrument.shown(instrument.settle(instrument.state())) if isinstance(c, Slider)), None)
        if slider is None:
            continue
        page.goto(f"{origin}/instruments/{instrument.name}", wait_until="networkidle")
        name = f"{instrument.name}-{slider.name}" + (f"-{slider.index}" if slider.index is not None else "")
        places = [slider.low + slider.step * k for k in range(1, int((slider.high - slider.low) / slider.step))]
        values = random.Random(0).sample(places, min(MOVES, len(places)))
        found[instrument.name] = [page.evaluate(MOVE, [name, value]) for value in values]
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    args = words.parse_args()
    home = Path(tempfile.mkdtemp(prefix="studio-bench-"))
    (home / "runs").mkdir()
    long_run(home / "runs" / "long")
    with sync_playwright() as playwright:
        figures = starts(playwright, home / "runs", home)
        with studio(home / "runs", home) as (url, _), training(home / "runs" / "beside"):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(url)
            origin = url.partition("/start")[0]
            moved = sliders(page, origin)
            began = time.perf_counter()
            page.goto(f"{origin}/runs/long", wait_until="load")
            figures["run of 10,000 steps, s"] = time.perf_counter() - began
            browser.close()
    for name, times in moved.items():
        figures[f"{name}: p50, ms"] = statistics.median(times)
        figures[f"{name}: p95, ms"] = statistics.quantiles(times, n=20)[-1]
    figures["static files, MB"] = sum(p.stat().st_size for p in STATIC.rglob("*") if p.is_file()) / 1e6
    for name, value in figures.items():
        print(f"{name:<40}{value:>10.2f}")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
