"""The house, third edition: docs/results/house.json and its page.

    python proofs/house.py [PART ...]       counts, bits, changes, mutations, types; half an hour on two cores
    python proofs/house.py changes suite=1  the whole suite after each of the six changes: an hour and a half;
                                            together=1: once, after all six: half an hour

bits compares with proofs/recorded/bits-xeon.json, on that kind of processor. by_hand.json in the folder has
the lines of the H200 (bench/h200.py at both commits, interleaved in one call) and the demo's table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import reading_path
from harness import HOME, Page, bar, environment
from counts import PACKAGE, summary

BEFORE = "6e66ba3"
# the left column of DESIGN.md's table, as definitions, fields or modules
OLD_NAMES = ("Now", "Parts", "Beginning", "Foreign", "Worries", "Anew", "Lanes", "Ahead", 
             "elsewhere",
             "worries", "stepped", "examined", "brought_together", "garbage", "spelling", "listening",
             "looking", "voices", "desk", "opening", "silent", "ahead", "slots", "in_all")


def old_names() -> list[str]:
    """Names of DESIGN.md's left column that the package still defines, the compatibility layer aside."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path.name != "renamed.py":
            text = path.read_text()
            found += [f"{path.relative_to(PACKAGE)}: {name}" for name in OLD_NAMES
                      if re.search(rf"^\s*(?:class|def) {name}\b|^    {name}: .*setting\(", text, flags=re.M)]
            found += [str(path.relative_to(PACKAGE))] if path.stem in OLD_NAMES else []
    return sorted(found)


def script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=HOME, env=environment(), capture_output=True,
                          text=True)


def count_bars(folder: Path) -> tuple[list[dict], dict]:
    c, left, moved = summary(), old_names(), sorted((HOME / "examples" / "labs").glob("*.py"))
    apart = c["lines of proofs, bench, tools"]
    path = reading_path.totals(reading_path.definitions(reading_path.trace(reading_path.one_step)))
    return [
        bar("rooms at the root of the package", "15", c["rooms"], c["rooms"] == 15),
        bar("loose modules at the root", "3: __init__, __main__, records", c["loose modules"],
            c["loose modules"] == 3),
        bar("import arrows between rooms", "<= 75 (92 after the move, 231 before)", c["arrows"],
            c["arrows"] <= 75),
        bar("modules in circles, imports inside functions counted", "0", c["modules in circles"],
            c["modules in circles"] == 0),
        bar("public definitions that share their name, module protocols apart", "<= 450",
            c["definitions that share a name"], c["definitions that share a name"] <= 450),
        bar("names of the left column of DESIGN.md's table outside the compatibility layer", "0",
            f"{len(left)}: {', '.join(left)}" if left else "0", not left),
        bar("lines of the package without studio and exercises", "<= 41,000 (44,767 before)",
            f"{c['lines of the package without studio']:,}",
            c["lines of the package without studio"] <= 41_000),
        bar("lines of proofs, bench and tools", "<= 7,000 (14,162 before)", f"{apart:,}", apart <= 7000),
        bar("lines of tests", "<= 40,080, 3 % over 38,913", f"{c['lines of tests']:,}",
            c["lines of tests"] <= 40_080),
        bar("one GRPO step to read: lines of algorithm and of wiring, by a script that a test keeps honest",
            "<= 1,000 and 400 (1,620 and 1,020 before)", f"{path['algorithm']:,} and {path['wiring']:,}",
            path["algorithm"] <= 1000 and path["wiring"] <= 400),
    ], {"Moved out of the package: pipelines that are uses of the library, in examples/labs": [
        {"file": path.name, "lines": len(path.read_text().splitlines())} for path in moved]}


def bit_bars(folder: Path) -> list[dict]:
    recorded = HOME / "proofs" / "recorded" / "bits-xeon.json"
    done = script("proofs/bits.py", "compare", str(recorded))
    last = done.stdout.strip().splitlines()[-1]
    return [bar(f"weight bits and metrics of short runs of every row and recipe against {BEFORE}",
                "all equal", last, done.returncode == 0)]


def change_bars(folder: Path, suite: str = "", together: str = "", rows_of: str = "",
                at: str = "") -> tuple[list[dict], dict]:
    """rows_of: what proofs/changes.py wrote at a commit, run before."""
    out = Path(rows_of or folder / "changes.json")
    if not rows_of:
        script("proofs/changes.py", f"out={out}", *(["suite=1"] if suite else []),
               *(["together=1"] if together else []))
    rows = json.loads(out.read_text())
    bars = [bar(f"a stranger's change by the documented files alone: {row['name']}",
                "1 file, and 0 failures of the whole suite after it",
                f"{row['files of code']} file, {row['lines of code']} lines; {row['checks']} checks, "
                f"{len(row['failed'])} failed{', all six applied together' if together else ''}"
                f"{'' if suite else '; the whole suite was not run'}",
                not row["failed"] and bool(suite)) for row in rows]
    bars = [{"commit": at} | row for row in bars] if at else bars
    return bars, {"Six changes": [{k: v for k, v in row.items() if k != "failed"} for row in rows]}


def mutation_bars(folder: Path) -> tuple[list[dict], dict]:
    out = folder / "mutations.json"
    script("proofs/mutations.py", f"out={out}")
    rows = json.loads(out.read_text())
    caught = sum(row["caught by"] is not None for row in rows)
    return [bar("deliberate faults in the glue, each caught", "14 of 14", f"{caught} of {len(rows)}",
                caught == len(rows) == 14)], {"Deliberate faults": rows}


def type_bars(folder: Path) -> list[dict]:
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=HOME, capture_output=True, text=True)
    checked = re.search(r"in (\d+) source files", done.stdout)
    files = sum(not path.name.endswith("_test.py") and "kernels" not in path.parts
                for path in PACKAGE.rglob("*.py"))
    count = int(checked[1]) if checked and not done.returncode else 0
    return [bar("mypy --strict over the package, kernels aside", "all clean",
                f"{count} of {files} files clean", count >= files, "make lint")]


PAGE = Page("house", "The house, third edition: what was to be shown, and what was measured",
            {"counts": count_bars, "bits": bit_bars, "changes": change_bars, "mutations": mutation_bars,
             "types": type_bars}, seeds=[0],
            paths=("postgrad", "proofs", "bench", "tools", "tests", "examples/labs"))

if __name__ == "__main__":
    PAGE.main()
