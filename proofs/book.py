"""The book: what stands in it, what its tests found, the exported site.

    python proofs/book.py [PART ...] [report=tests.xml]     half an hour; report: the suite's, run before
                                                            (pytest --junitxml, with a browser)
The part `site` needs chromium and a quiet machine: `postgrad studio export` opened from files, its bytes, its
scripts against Python on random states of every instrument, the time from a control to its picture.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import quantiles

from harness import HOME, TESTS, Bars, Page, Tables, bar, rooms, run_tests, test_bar
from chapters import distances, linked
from studio import chromium
from studio_small import make

from postgrad.studio.book import chapters
from postgrad.studio.export import export_site
from postgrad.studio.instruments import INSTRUMENTS

STATES, MOVES, ROUNDS = 220, 40, 3
TIME = (HOME / "proofs" / "site_moves.js").read_text()


def text(folder: Path) -> Bars:
    minutes = sum(c.minutes("intuition") for c in chapters.all_chapters())
    return [bar("Reading time of the Intuition layer, figures and cells not counted", "45 to 75 minutes",
                f"{minutes} minutes at {chapters.PACE} words a minute", 45 <= minutes <= 75)]


def tested(folder: Path, report: str = "") -> tuple[Bars, Tables]:
    """Interactions in a browser, and the promises on sentences and terms."""
    counts = run_tests(folder, TESTS["interactions"]["run"], report)
    rows = [test_bar(name, "all pass", words, counts)
            for name, words in TESTS["interactions"]["bars"].items()]
    fails = [row["name"] for row in rows if not row["holds"]]
    rest = f"; not shown: {'; '.join(fails)}" if fails else ""
    return [bar("Interactions in a real browser", "all", f"{len(rows) - len(fails)} of {len(rows)}{rest}",
                not fails, "pytest --junitxml=tests.xml"),
            *(test_bar(name, "all pass", words, counts) for name, words in TESTS["book"]["bars"].items())], {
        "Interactions in a real browser": [
            {"interaction": row["name"], "holds": "yes" if row["holds"] else "no", "tests": row["measured"]}
            for row in rows]}


def site(folder: Path) -> Bars:
    from studio_alive import compared, random_states
    place, strange, rows = folder / "site", [], []
    make(folder / "runs" / "one", 20)
    written = export_site(place, runs=folder / "runs", store=folder / "p.db")
    with chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda m: strange.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: strange.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else strange.append(r.url))
        for name in INSTRUMENTS:
            begun = time.monotonic()
            page.goto((place / "instruments" / name / "index.html").as_uri())
            page.evaluate(TIME, 5)
            rounds = [sorted(page.evaluate(TIME, MOVES)) for _ in range(ROUNDS)]
            took = min(rounds, key=lambda took: took[MOVES // 2])  # the machine does else too
            worst, faults = compared(page, name, random_states(INSTRUMENTS[name], STATES))
            rows.append((name, worst, faults, quantiles(took, n=20)[-1]))
            print(f"{name}: {worst:.1e}, {len(faults)} faults, {time.monotonic() - begun:.0f} s", flush=True)
        files = sorted(place.rglob("index.html"))
        for file in files:
            page.goto(file.as_uri(), wait_until="load")
    slowest, furthest = max(rows, key=lambda r: r[3]), max(rows, key=lambda r: r[1])
    faults = [fault for _, _, some, _ in rows for fault in some]
    print(*faults[:10], *strange[:10], sep="\n")
    return [bar("Static site: bytes", "<= 12 MB",
                f"{written['bytes'] / 1e6:.1f} MB, {written['pages']} pages", written["bytes"] <= 12e6),
            bar("Static site: opens from files, no console error, no other host", "0",
                f"{len(strange)} on {len(files)} pages", not strange),
            bar("Static site: numbers of every instrument's script against Python",
                ">= 200 states each, 1e-9",
                f"{STATES} states of {len(rows)} instruments, {furthest[1]:.1e} at most ({furthest[0]})",
                furthest[1] <= 1e-9),
            bar("Static site: sentences and pictures that differ from Python's", "0",
                f"{len(faults)} of {STATES * len(rows)}", not faults),
            bar("Static site: from a control to the picture, p95, every instrument", "<= 100 ms",
                f"{slowest[3]:.0f} ms at most ({slowest[0]})", slowest[3] <= 100)]


PAGE = Page("book", "The book", {"text": text, "joins": linked, "distances": distances, "tests": tested,
                                 "site": site}, [0],
            paths=rooms("studio"))

if __name__ == "__main__":
    PAGE.main()
