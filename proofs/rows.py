"""The rows: what was to be shown, and what was measured.

    python proofs/rows.py [FOLDER]      writes docs/results/rows.json and .md

Tests are run here and counted (a few minutes), unless their counts are there: FOLDER/tests.xml. The rest is
measured by others and read from FOLDER (runs/proof-rows): bakeoff.json (proofs/bakeoff.py), distil.json
(proofs/distil.py), doctor.json (proofs/doctor.py), and by_hand.json, {"make test, minutes": 13.5}. What is
not there is not measured, and does not hold.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools"), str(HERE / "tests/support")]

import bias  # noqa: E402
import results  # noqa: E402
from against import found  # noqa: E402
from results import bar  # noqa: E402

from postgrad.methods import METHODS  # noqa: E402

FOLDER = HERE / "runs" / "proof-rows"
SLOWEST = 15.0  # minutes that `make test` may take
EACH = 3  # rows against each of two libraries, at least
POLICY = [name for name, row in METHODS.items() if row.kind == "policy"]
LEARNS = "tests/training/learning_test.py::test_a_row_makes_the_good_likelier"
BIASED = "tests/training/oracle_test.py::test_a_row_is_as_biased_as_it_says"
SPLIT = "tests/training/batches/microbatch_test.py::test_any_split_is_the_whole_bit_for_bit"
ONE_A_ROW = {  # bars that a test for every row holds: what, the test, the rows
    "every row: what is rewarded, chosen or shown becomes likelier": (LEARNS, list(METHODS)),
    "every policy row: as biased as it says, by enumeration": (BIASED, POLICY),
    "every row: any split of a step into passes is the whole, bit for bit": (SPLIT, list(METHODS)),
}
TESTED = {  # bars that whole tests hold
    "kl_cov, and every choice of tokens: made once for a step": (
        "tests/training/batches/columns_test.py", "postgrad/maths/choice_test.py"),
    "maxrl is unbiased for sum of pass@k / k: k < G where an all-wrong group gets 0, k <= G with -1": (
        "tests/training/oracle_test.py::test_maxrl_is_unbiased_for_the_objective_it_states",),
    "a user's own row and correction, from the docs, in one file: trained, diffed, shown": (
        "tests/methods/own_row_test.py",),
    "a page for every row: lines, links, figures, libraries": ("tests/methods/pages_test.py",),
}
EXACT = {"TRL": ("tests/training/trl_objectives_test.py", "tests/training/trl_rollouts_test.py",
                 "tests/training/trl_distillation_test.py"),
         "verl": ("tests/training/verl_formulas_test.py",)}
ELSEWHERE = {  # file -> what it measures, the target, and the command that writes it
    "bakeoff": ("bake-off: all policy rows on one task, equal samples, 3 seeds", "one table with intervals",
                "python proofs/bakeoff.py"),
    "distil": ("opd reaches the teacher's pass@1 within its interval", "<= a third of GRPO's rollouts",
               "python proofs/distil.py"),
    "doctor": ("doctor: planted faults named first, false alarms", ">= 18 of 20, <= 1 of 20",
               "python proofs/doctor.py"),
}


def names() -> list[str]:
    """The tests that are run here."""
    own = [test for test, _ in ONE_A_ROW.values()]
    return sorted({*own, *(t for group in (*TESTED.values(), *EXACT.values()) for t in group)})


def passes(counts: Mapping, name: str) -> bool:
    ran, wrong = counts.get(name, (0, 0))
    return bool(ran) and not wrong


def by_row(counts: Mapping) -> list[dict]:
    out = []
    for what, (test, rows) in ONE_A_ROW.items():
        ran, wrong = counts.get(test, (0, 0))
        out.append(bar(what, f"{len(rows)} rows", f"{ran - wrong} of {len(rows)} pass",
                       ran == len(rows) and not wrong, f"pytest {test}"))
    return out


def by_test(counts: Mapping, groups: Mapping[str, Iterable[str]]) -> list[dict]:
    out = []
    for what, tests in groups.items():
        total, wrong = map(sum, zip(*(counts.get(name, (0, 0)) for name in tests), strict=True))
        out.append(bar(what, "tests pass", f"{total - wrong} of {total} tests pass",
                       all(passes(counts, name) for name in tests), f"pytest {' '.join(tests)}"))
    return out


def by_library(counts: Mapping) -> list[dict]:
    """The rows that a test holds against a library's code or formula, value and gradient."""
    out = []
    for library, files in EXACT.items():
        held = [h for h in found() if h.library == library and h.file in files]
        rows = list(dict.fromkeys(h.row for h in held if passes(counts, f"{h.file}::{h.test}")))
        out.append(bar(f"rows against {library}, to 1e-6, differences as exact factors", f">= {EACH} rows",
                       f"{len(rows)}: {', '.join(rows)}",
                       len(rows) >= EACH and all(passes(counts, file) for file in files),
                       f"pytest {' '.join(files)}"))
    return out


def elsewhere(folder: Path) -> tuple[list[dict], dict[str, dict]]:
    """The bars that others measured, and what they left; where nothing is there, a bar that does not hold."""
    bars, left = [], {}
    for name, (what, target, command) in ELSEWHERE.items():
        path = folder / f"{name}.json"
        left[name] = json.loads(path.read_text()) if path.exists() else {}
        bars += left[name].get("bars") or [bar(what, target, "not measured", False, command)]
    return bars, left


def by_hand(folder: Path) -> list[dict]:
    path = folder / "by_hand.json"
    minutes = json.loads(path.read_text()).get("make test, minutes") if path.exists() else None
    measured = "not measured" if minutes is None else f"{minutes:g} minutes"
    return [bar("make test", f"<= {SLOWEST:g} minutes", measured,
                minutes is not None and minutes <= SLOWEST, "make test")]


def bias_table() -> list[dict]:
    kept = bias.kept(METHODS)
    return [{"row": name, "claims to have none": "yes" if METHODS[name].unbiased else "",
             "relative bias": bias.said(x["bias"]), "times the exact gradient": x["scale"],
             "noise of a group": x["noise"],
             "of its own objective": bias.said(x["own"]["bias"]) if "own" in x else ""}
            for name, x in kept.items()]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = results.tested(folder / "tests.xml", names())
    measured, left = elsewhere(folder)
    bars = [*by_row(counts), *by_library(counts), *by_test(counts, TESTED), *measured, *by_hand(folder)]
    tables = {"The exact bias of every policy row": bias_table(),
              "Bake-off: pass@1 after equal samples": left["bakeoff"].get("table", []),
              "Distillation on policy": left["distil"].get("rows", []),
              **{f"Doctor: {name.lower()}": rows for name, rows in left["doctor"].get("tables", {}).items()}}
    written = results.write("rows", "Rows, corrections, a bake-off and a doctor: what was measured", bars,
                            seeds=[0], tables=tables, on=results.machine() | {"cpu": platform.machine()})
    print(written.read_text())
    sys.exit(not all(b["holds"] for b in bars))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
