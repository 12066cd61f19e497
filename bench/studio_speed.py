"""How fast the studio is in a real browser: its start, its first page, its sliders, a long run.

    python bench/studio_speed.py        needs chromium and a quiet machine; about four minutes

A slider's time is from its event to the frame after the new picture, of every instrument there is: on an
idle machine, and while trainings as the studio starts them keep every core busy. proofs/studio.py adds the
studio's tests and writes docs/results/studio.*
"""

from __future__ import annotations

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
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("tools", "tests/support"))]

from playwright.sync_api import sync_playwright  # noqa: E402
from results import bar  # noqa: E402

from postgrad.runs import Run  # noqa: E402
from postgrad.studio.instruments import INSTRUMENTS  # noqa: E402
from postgrad.studio.instruments.base import Slider  # noqa: E402
from postgrad.studio.pages import STATIC  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SPEED = "python bench/studio_speed.py"
STARTS, MOVES, LABELS = 5, 60, 30
ACT = """
([selector, value]) => new Promise((done) => {
  const control = document.querySelector(selector);
  const picture = control.closest(".instrument").querySelector(".picture");
  const began = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(performance.now() - began);
    requestAnimationFrame(() => painted.port2.postMessage(0));
  });
  watch.observe(picture, { attributes: true, attributeFilter: ["data-query"] });
  if (value === null) return control.click();
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
})
"""


@contextmanager
def studio(runs: Path, state: Path):
    """The command itself, as a user starts it; -> (its start address,
    seconds until it has answered a first request)."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "postgrad", "studio", str(runs), "--port", "0", "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE,
                               env=os.environ | {"XDG_STATE_HOME": str(state)})
    try:
        url = json.loads(process.stdout.readline())["url"]
        try:
            urllib.request.urlopen(url.partition("/start")[0])  # noqa: S310
        except urllib.error.HTTPError as refused:
            assert refused.code == 401, refused
        yield url, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


@contextmanager
def training(folder: Path):
    """GRPO runs as the studio starts them, niced, one for each core so that none is idle;
    -> once all have made a step."""
    places = [folder / str(n) for n in range(os.cpu_count())]
    command = [sys.executable, "-m", "postgrad", "train", "grpo:words"]
    processes = [subprocess.Popen(["nice", "-n", "10", *command, "steps=100000", "--run", str(place)],
                                  cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for place in places]
    logs = [place / "metrics.jsonl" for place in places]
    try:
        while not all(log.exists() and log.stat().st_size for log in logs):
            assert all(process.poll() is None
                       for process in processes), "a training ended before its first step"
            time.sleep(0.2)
        yield processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def spent(processes) -> float:
    """Seconds of processor time of these processes together."""
    stats = [Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
             for process in processes]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def long_run(folder: Path, steps: int = 10_000) -> None:
    """A run of 10,000 steps with the metrics of GRPO, and samples at every hundredth."""
    rng = random.Random(0)
    run = Run.create(folder, recipe="grpo", config={"steps": steps}, steps=steps, method="grpo",
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


def starts(playwright, runs: Path, state: Path) -> tuple[list[float], list[float]]:
    """Seconds from the command to an answering server, and from the address to a loaded first page."""
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
    return up, page_after


def slider_of(instrument, state) -> Slider | None:
    """The slider with the most places."""
    sliders = [c for c in instrument.shown(instrument.settle(state)) if isinstance(c, Slider)]
    return max(sliders, key=lambda s: (s.high - s.low) / s.step, default=None)


def slide(page, instrument, slider: Slider) -> list[float]:
    """Milliseconds of each of MOVES moves, each to another place."""
    name = f"{instrument.name}-{slider.name}" + (f"-{slider.index}" if slider.index is not None else "")
    places = [slider.low + slider.step * k for k in range(1, round((slider.high - slider.low) / slider.step))]
    rng, at, found = random.Random(0), float(page.locator(f"#{name}").input_value()), []
    for _ in range(MOVES):
        at = rng.choice([place for place in places if abs(place - at) > slider.step / 2])
        found.append(page.evaluate(ACT, [f"#{name}", at]))
    return found


def pictures(page, origin: str) -> dict[str, list[float]]:
    """instrument -> milliseconds from a control's event to the frame after the new picture."""
    found = {}
    for instrument in INSTRUMENTS.values():
        page.goto(f"{origin}/instruments/{instrument.name}", wait_until="networkidle")
        slider = slider_of(instrument, instrument.state())
        if slider:
            found[instrument.name] = slide(page, instrument, slider)
        else:
            keys = random.Random(0).choices("ab", k=LABELS)
            found[f"{instrument.name}, a label"] = [
                page.evaluate(ACT, [f'#{instrument.name} [data-key="{key}"]', None]) for key in keys]
    page.goto(f"{origin}/instruments/grpo?size=32", wait_until="networkidle")
    found["grpo, 32 answers"] = slide(page, INSTRUMENTS["grpo"],
                                      slider_of(INSTRUMENTS["grpo"], INSTRUMENTS["grpo"].state()))
    return found


def timings() -> dict:
    home = Path(tempfile.mkdtemp(prefix="studio-bench-"))
    long_run(home / "runs" / "long")
    with sync_playwright() as playwright:
        up, first = starts(playwright, home / "runs", home)
        with studio(home / "runs", home) as (url, _):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(url)
            origin = url.partition("/start")[0]
            idle = pictures(page, origin)
            with training(home / "runs" / "beside") as beside:
                began, before = time.perf_counter(), spent(beside)
                time.sleep(5)
                cores = (spent(beside) - before) / (time.perf_counter() - began)
                busy, long = pictures(page, origin), opened(page, f"{origin}/runs/long")
            browser.close()
    shutil.rmtree(home)
    static = sum(p.stat().st_size for p in STATIC.rglob("*") if p.is_file()) / 1e6
    return {"up": up, "first": first, "long": long, "idle": idle, "busy": busy, "cores": cores,
            "static": static}


def opened(page, run: str) -> list[float]:
    """Seconds until the page of a run shows its last value, each time anew."""
    took = []
    for _ in range(STARTS):
        began = time.perf_counter()
        page.goto(run, wait_until="load")
        page.locator('live-chart[name="reward"] .now[data-count]').wait_for()
        took.append(time.perf_counter() - began)
    return took


def rows_of(moved: dict[str, list[float]]) -> list[dict]:
    return [{"instrument": name, "p50, ms": statistics.median(ms),
             "p95, ms": statistics.quantiles(ms, n=20)[-1], "worst, ms": max(ms), "moves": len(ms)}
            for name, ms in moved.items()]


def tables(found: dict) -> dict[str, list[dict]]:
    """title -> a row for each instrument."""
    return {"Slider to new picture": rows_of(found["idle"]),
            "Slider to new picture, beside trainings": rows_of(found["busy"])}


def show(found: dict) -> None:
    for title, rows in tables(found).items():
        print(title)
        for row in rows:
            print("  ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{value}"
                            for key, value in row.items()))


def line(b: dict) -> str:
    return f"{'ok ' if b['holds'] else 'NO '} {b['name']}: {b['measured']} ({b['target']})"


def speed_bars(found: dict) -> list[dict]:
    def time_bar(name, target, times):
        middle = statistics.median(times)
        said = f"{middle:.2f} s (median of {len(times)}; worst {max(times):.2f})"
        return bar(name, f"< {target} s", said, middle < target, SPEED)

    def slider_bar(which, key, target, where):
        rows, every = rows_of(found[which]), [ms for times in found[which].values() for ms in times]
        slowest = max(rows, key=lambda row: row[f"{key}, ms"])
        whole = statistics.median(every) if key == "p50" else statistics.quantiles(every, n=20)[-1]
        return bar(f"Slider to new picture, {key}, slowest instrument, {where}", f"<= {target} ms",
                   f"{slowest[f'{key}, ms']:.0f} ms ({slowest['instrument']}); all moves {whole:.0f} ms",
                   slowest[f"{key}, ms"] <= target, SPEED)

    beside = (f"beside {os.cpu_count()} trainings on {os.cpu_count()} cores, which used "
              f"{found['cores']:.1f} before")
    return [
        time_bar("First page after the server is up", 1, found["first"]),
        time_bar("Server up, from the command to a first answer", 2, found["up"]),
        slider_bar("idle", "p95", 100, "idle machine"),
        slider_bar("busy", "p50", 60, beside),
        slider_bar("busy", "p95", 150, beside),
        time_bar("A run of 10,000 steps is interactive, beside the training", 1, found["long"]),
        bar("Static files in the wheel", "< 3 MB", f"{found['static']:.2f} MB", found["static"] < 3, SPEED),
    ]


def main() -> None:
    found = timings()
    show(found)
    for b in speed_bars(found):
        print(line(b))


if __name__ == "__main__":
    main()
