"""The book: what stands in it, what its tests found, the exported site, and what other proofs measured of it.

    python proofs/book.py [PART ...] [report=tests.xml]     half an hour; report: the suite's, run before
                                                            (pytest --junitxml, with a browser)
The part `site` needs chromium and a quiet machine: `postgrad studio export` opened from files, its bytes, its
scripts against Python on random states of every instrument, the time from a control to its picture.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

from harness import RESULTS, TESTS, Bars, Page, Tables, bar, run_tests, test_bar

STATES, MOVES, ROUNDS = 220, 40, 3
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


def text(folder: Path) -> tuple[Bars, Tables]:
    """Items that must be there, reading time, numbers, and right answers held against calculations."""
    from book_answers import ANSWERS
    from book_items import items, lost, pages

    from postgrad.studio.book import chapters, inline, numbers
    page, rows = pages(), []
    for item in items():
        gone = lost(item, page)
        rows.append({"part": item.group, "item": item.name, "where": ", ".join(item.places) or "nowhere",
                     "found": f"no: {'; '.join(gone)}" if gone else "yes"})

    def count(name: str, some: list[dict]) -> dict:
        missing = [row["item"] for row in some if row["found"] != "yes"]
        said = f"; missing: {', '.join(missing)}" if missing else ""
        return bar(name, "all", f"{len(some) - len(missing)} of {len(some)}{said}", not missing)

    minutes = sum(c.minutes("intuition") for c in chapters.all_chapters())
    kinds = Counter(row.kind for row in numbers.numbers_of_book())
    asked = {(c.name, name): inline.plain_text(check.right.says).replace("\u00a0", " ")
             for c in chapters.all_chapters() for name, check in c.checks.items()}
    right = sum(ANSWERS.get(key) == says for key, says in asked.items())
    return [count("Every item of the book's list can be read", rows),
            count("Questions that must be asked",
                  [r for r in rows if r["part"] == "Self-checks that must be there"]),
            bar("Reading time of the Intuition layer, figures and cells not counted", "about 60 minutes",
                f"{minutes} minutes at {chapters.PACE} words a minute", 45 <= minutes <= 75),
            bar("Numbers in prose, computed or cited", "0 unaccounted",
                f"{kinds['unaccounted']} unaccounted of {kinds.total()}: {kinds['computed']} computed, "
                f"{kinds['cited']} cited, {kinds['structural']} structural", not kinds["unaccounted"],
                "python tools/docs.py numbers"),
            bar("Self-checks whose right answer is what a calculation of its own says", ">= 20, all",
                f"{right} of {len(asked)}", right == len(asked) >= 20,
                "pytest tests/studio/book_test.py -k the_questions")], {"Items, and where they stand": rows}


def tested(folder: Path, report: str = "") -> tuple[Bars, Tables]:
    """What readers do in a browser, and what is promised of sentences and terms."""
    counts = run_tests(folder, TESTS["interactions"]["run"], report)
    rows = [test_bar(name, "", words, counts) for name, words in TESTS["interactions"]["bars"].items()]
    fails = [row["name"] for row in rows if not row["holds"]]
    said = f"; not shown: {'; '.join(fails)}" if fails else ""
    return [bar("Interactions in a real browser", "all", f"{len(rows) - len(fails)} of {len(rows)}{said}",
                not fails, "pytest --junitxml=tests.xml"),
            *(test_bar(name, "all pass", words, counts) for name, words in TESTS["book"]["bars"].items())], {
        "Interactions in a real browser": [
            {"interaction": row["name"], "holds": "yes" if row["holds"] else "no", "tests": row["measured"]}
            for row in rows]}


def site(folder: Path) -> Bars:
    from studio import chromium
    from studio_alive import compared, random_states
    from studio_small import make

    from postgrad.studio.export import export_site
    from postgrad.studio.instruments import INSTRUMENTS
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


def taken(folder: Path) -> Bars:
    """Bars of docs/results/exercises.json and studio.json, with where they were measured."""
    from postgrad.studio.instruments import INSTRUMENTS
    pages = {topic: json.loads((RESULTS / f"{topic}.json").read_text()) for topic in ("exercises", "studio")}
    where = {topic: f"(commit {page['commit']}, {page['machine']['cpu']})" for topic, page in pages.items()}
    p95 = {row["instrument"]: row["p95, ms"] for row in pages["studio"]["tables"]["Slider to new picture"]}
    slowest = max(p95, key=p95.get)
    untimed = [name for name in INSTRUMENTS if not any(row.startswith(name) for row in p95)]
    said = f"; not timed: {', '.join(untimed)}" if untimed else ""
    begins = {"exercises": ("",), "studio": ("Slider to new picture", "First page")}
    rows = {topic: [row | {"name": f"{topic.capitalize()}: {row['name']}",
                           "measured": f"{row['measured']} {where[topic]}"}
                    for row in pages[topic]["bars"] if row["name"].startswith(words)]
            for topic, words in begins.items()}
    return [*rows["exercises"],
            bar("Slider to picture p95, every instrument", "<= 100 ms",
                f"{p95[slowest]:.0f} ms at most ({slowest}){said} {where['studio']}",
                p95[slowest] <= 100 and not untimed, "python proofs/studio.py speed"), *rows["studio"]]


PAGE = Page("book", "The book", {"text": text, "tests": tested, "site": site, "taken": taken}, [0])

if __name__ == "__main__":
    PAGE.main()
