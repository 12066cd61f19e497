"""The book's bars: what stands in it, what its tests found, and what other proofs measured of it;
docs/results/book.*

    python proofs/the_book.py FOLDER

FOLDER/tests.xml: the suite's report (pytest --junitxml, with a browser); FOLDER/site.json: what
proofs/static_site.py wrote. What is not there is said to be not measured.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("tests/support", "tools", "proofs"))]

import results  # noqa: E402
from book_answers import ANSWERS  # noqa: E402
from book_items import items, lost, pages  # noqa: E402
from book_tests import INTERACTIONS, SENTENCES, TERMS  # noqa: E402
from results import bar  # noqa: E402

from postgrad.studio.book import chapters, inline, numbers  # noqa: E402
from postgrad.studio.instruments import INSTRUMENTS  # noqa: E402

COMMAND = "python proofs/the_book.py FOLDER"
SUITE = "pytest --junitxml=FOLDER/tests.xml"
UNMEASURED = "not measured"
MUST_ASK = "Self-checks that must be there"
Counts = dict[str, tuple[int, int]]  # a test's file::name -> how many ran, how many of them failed


def listed() -> tuple[list[dict], list[dict]]:
    """The bars of the list and of the questions that must be asked, and a row for each item."""
    page, rows = pages(), []
    for item in items():
        gone = lost(item, page)
        rows.append({"part": item.group, "item": item.name, "where": ", ".join(item.places) or "nowhere",
                     "found": f"no: {'; '.join(gone)}" if gone else "yes"})

    def counted(name: str, some: list[dict]) -> dict:
        missing = [row["item"] for row in some if row["found"] != "yes"]
        said = f"; missing: {', '.join(missing)}" if missing else ""
        return bar(name, "all", f"{len(some) - len(missing)} of {len(some)}{said}", not missing, COMMAND)

    return [counted("Every item of the book's list can be read", rows),
            counted("Questions that must be asked", [r for r in rows if r["part"] == MUST_ASK])], rows


def accounted() -> dict:
    kinds = Counter(row.kind for row in numbers.numbers_of_book())
    return bar("Numbers in prose, computed or cited", "0 unaccounted",
               f"{kinds['unaccounted']} unaccounted of {kinds.total()}: {kinds['computed']} computed, "
               f"{kinds['cited']} cited, {kinds['structural']} structural", not kinds["unaccounted"],
               "python tools/book.py numbers")


def questions() -> dict:
    """Right answers, each held against a calculation of its own."""
    asked = {(c.name, name): inline.plain_text(check.right.says).replace("\u00a0", " ")
             for c in chapters.all_chapters() for name, check in c.checks.items()}
    right = sum(ANSWERS.get(key) == says for key, says in asked.items())
    return bar("Self-checks whose right answer is what a calculation of its own says", ">= 20, all",
               f"{right} of {len(asked)}", right == len(asked) >= 20,
               "pytest tests/studio/book_test.py -k the_questions")


def reading() -> dict:
    minutes = sum(c.minutes("intuition") for c in chapters.all_chapters())
    return bar("Reading time of the Intuition layer, figures and cells not counted", "about 60 minutes",
               f"{minutes} minutes at {chapters.PACE} words a minute", 45 <= minutes <= 75, COMMAND)


def shown(counts: Counts, words: tuple[str, ...]) -> tuple[int, int, list[str]]:
    """Of the tests whose file::name holds one of the words: passed, ran, and the words that name none."""
    named = {word: [count for test, count in counts.items() if "::" in test and word in test]
             for word in words}
    ran = sum(n for found in named.values() for n, _ in found)
    failed = sum(n for found in named.values() for _, n in found)
    return ran - failed, ran, [word for word, found in named.items() if not sum(n for n, _ in found)]


def tested(counts: Counts) -> tuple[list[dict], list[dict]]:
    """What tests show: three bars, and a row for each interaction."""
    rows = []
    for what, words in INTERACTIONS.items():
        passed, ran, absent = shown(counts, words)
        said = f"; none ran that is named {', '.join(absent)}" if absent else ""
        rows.append({"interaction": what, "holds": "yes" if passed == ran > 0 and not absent else "no",
                     "tests": "no test does it" if not words else
                     f"{passed} of {ran} pass{said}" if counts else UNMEASURED})
    fails = [row["interaction"] for row in rows if row["holds"] == "no"]
    said = f"; not shown: {'; '.join(fails)}" if fails else ""
    bars = [bar("Interactions in a real browser", "all",
                f"{len(rows) - len(fails)} of {len(rows)}{said}" if counts else UNMEASURED, not fails, SUITE)]
    for name, words in (("Sentences of instruments, wherever their controls stand", SENTENCES),
                        ("No term undefined in the Intuition layer, each linked at first use", TERMS)):
        passed, ran, absent = shown(counts, words)
        bars.append(bar(name, "all pass", f"{passed} of {ran} tests pass" if counts else UNMEASURED,
                        passed == ran and not absent, SUITE))
    return bars, rows


def result(topic: str) -> dict:
    return json.loads((results.RESULTS / f"{topic}.json").read_text())


def measured_at(found: dict) -> str:
    return f"(commit {found['commit']}, {found['machine']['cpu']})"


def taken(topic: str, begins: tuple[str, ...] = ("",)) -> list[dict]:
    """Bars of another result, with where they were measured."""
    found = result(topic)
    return [row | {"name": f"{topic.capitalize()}: {row['name']}",
                   "measured": f"{row['measured']} {measured_at(found)}"}
            for row in found["bars"] if row["name"].startswith(begins)]


def sliders() -> dict:
    """The slowest p95 of the studio's timings, and the instruments that they leave out."""
    found = result("studio")
    p95 = {row["instrument"]: row["p95, ms"] for row in found["tables"]["Slider to new picture"]}
    slowest = max(p95, key=lambda name: p95[name])
    untimed = [name for name in INSTRUMENTS if not any(row.startswith(name) for row in p95)]
    said = f"; not timed: {', '.join(untimed)}" if untimed else ""
    return bar("Slider to picture p95, every instrument", "<= 100 ms",
               f"{p95[slowest]:.0f} ms at most ({slowest}){said} {measured_at(found)}",
               p95[slowest] <= 100 and not untimed, "python proofs/studio.py")


def site(folder: Path) -> list[dict]:
    path = folder / "site.json"
    if path.exists():
        return json.loads(path.read_text())
    return [bar("Static site", "see proofs/static_site.py", UNMEASURED, False,
                "python proofs/static_site.py FOLDER")]


def main(folder: Path) -> None:
    report = folder / "tests.xml"
    read, rows = listed()
    passed, done = tested(results.tested(report, ()) if report.exists() else {})
    bars = [*read, reading(), accounted(), questions(), *passed, *taken("exercises"), *site(folder),
            sliders(), *taken("studio", ("Slider to new picture", "First page"))]
    print(results.write("book", "The book", bars, seeds=[0],
                        tables={"Interactions in a real browser": done, "Items, and where they stand": rows}))
    for row in bars:
        print("holds" if row["holds"] else "FAILS", row["name"], "|", row["measured"])
    sys.exit(not all(row["holds"] for row in bars))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"expected one folder: {COMMAND}")
    main(Path(sys.argv[1]))
