"""The bake-off: every policy row on one task, equal samples, four updates of each collection for rows with a
ratio, rates chosen on other seeds and other problems than those reported.

    python proofs/bakeoff.py FOLDER [device=cuda] [at_once=16]      about seven minutes on one H200

The task is word problems of four to six operations. Each run draws 40 collections of 16 prompts x 8 samples
and nothing more: rows that draw flat groups again leave them out here. All but the number of updates is as
the row has it. Rates are chosen on the validation split with seeds 10 and 11, reported on the test split with
seeds 0, 1 and 2. What is measured is kept in FOLDER/bakeoff.jsonl, and not measured again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]

TASK = "words-hard"
RATES = ("1e-4", "3e-4", "1e-3")
LOWER = "3e-5"  # tried where the lowest of them was the best
CHOOSING, REPORTED = (10, 11), (0, 1, 2)
UPDATES, COLLECTIONS = 4, 40
COMMAND = "python proofs/bakeoff.py FOLDER device=cuda at_once=16"


def rows() -> list[str]:
    """The policy rows that learn from a judge."""
    from postgrad import methods
    return [row.name for row in methods.METHODS.values()
            if row.kind == "policy" and "teacher_logp" not in row.wanted]


def one(job: tuple[str, str, int, str, str]) -> dict:
    """A run: held-out pass@1 before and after, and how far the updates went."""
    row, rate, seed, split, device = job
    from postgrad import methods
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes import rollouts, running
    from postgrad.recipes.defaults import fitted
    updates = UPDATES if methods.get_method(row).ratio else 1
    changes = [f"task={TASK}", f"seed={seed}", f"optim.lr={rate}", f"device={device}", "optim.compile=false",
               "evaluation.problems=192", "evaluation.samples=8", f"evaluation.split={split}",
               "rollouts.resample_limit=0", "method.epochs=1", f"method.minibatches={updates}",
               f"rollouts.collections={COLLECTIONS}", f"evaluation.every={COLLECTIONS * updates}"]
    _, config = config_from_text(f"{row}:words", changes)
    config, _ = fitted(config)
    with tempfile.TemporaryDirectory() as folder:
        run = running.start("rollouts", config, rollouts.build, Path(folder) / "run")
        evals, _ = run.rows("evals")
        seen = {name: run.curve(name)[1] for name in ("clip_fraction", "ratio_max", "entropy")}
    first, last = evals[0], evals[-1]
    return {"row": row, "rate": float(rate), "seed": seed, "split": split, "updates": config.steps,
            "first": first["pass@1"], "pass@1": last["pass@1"], "interval": last["pass@1_interval"],
            "pass@8": last["pass@8"], "length": last["mean_length"],
            "samples": COLLECTIONS * config.rollouts.prompts_per_step * config.rollouts.group_size,
            "clipped": mean(seen["clip_fraction"]), "ratio_max": max(seen["ratio_max"]),
            "entropy": seen["entropy"][-1]}


def measured(jobs: list[tuple], kept: Path, at_once: int) -> list[dict]:
    """The figures of all jobs; those in the file are taken from it, the others join it as they come."""
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(r["row"], r["rate"], r["seed"], r["split"]): r for r in done}
    left = [job for job in jobs if (job[0], float(job[1]), job[2], job[3]) not in known]
    if left:
        with multiprocessing.get_context("spawn").Pool(at_once) as pool, kept.open("a") as file:
            for row in pool.imap_unordered(one, left):
                file.write(json.dumps(row) + "\n")
                file.flush()
                known[row["row"], row["rate"], row["seed"], row["split"]] = row
    return [known[job[0], float(job[1]), job[2], job[3]] for job in jobs]


def best_rate(found: list[dict], row: str) -> str:
    """The rate with the highest mean pass@1 over the seeds it was tried on; the lower one of two equals."""
    tried: dict[float, list[float]] = {}
    for r in found:
        if r["row"] == row:
            tried.setdefault(r["rate"], []).append(r["pass@1"])
    return f"{max(sorted(tried), key=lambda rate: mean(tried[rate])):g}"


def table(found: list[dict]) -> list[dict]:
    """A line a row, the best mean first."""
    lines = []
    for row in dict.fromkeys(r["row"] for r in found):
        mine = [r for r in found if r["row"] == row]
        lines.append({"row": row, "mean pass@1": mean(r["pass@1"] for r in mine), "rate": mine[0]["rate"],
                      "updates": mine[0]["updates"],
                      **{f"seed {r['seed']}": f"{r['pass@1']:.3f} ({r['interval'][0]:.3f} to "
                                              f"{r['interval'][1]:.3f})" for r in mine},
                      "pass@8": mean(r["pass@8"] for r in mine), "length": mean(r["length"] for r in mine),
                      "clipped": mean(r["clipped"] for r in mine),
                      "largest ratio": max(r["ratio_max"] for r in mine),
                      "entropy": mean(r["entropy"] for r in mine)})
    return sorted(lines, key=lambda line: -line["mean pass@1"])


def bars(found: list[dict]) -> list[dict]:
    import results
    lines = table(found)
    lowest, highest = lines[-1], lines[0]
    return [results.bar(
        "bake-off: all policy rows, one task, equal samples, 4 updates a collection for rows with a ratio",
        "3 seeds, intervals, rates chosen on seeds that are not reported",
        f"{len(lines)} rows x {len(REPORTED)} seeds, {found[0]['samples']:,} samples each, from "
        f"{mean(r['first'] for r in found):.1%}: {highest['row']} {highest['mean pass@1']:.1%} to "
        f"{lowest['row']} {lowest['mean pass@1']:.1%}",
        all(sum(r["row"] == line["row"] for r in found) == len(REPORTED) for line in lines), COMMAND)]


def main(folder: str, *words: str) -> None:
    given = dict(word.split("=") for word in words)
    device, at_once = given.get("device", "cpu"), int(given.get("at_once", os.cpu_count() or 1))
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    names = given["rows"].split(",") if "rows" in given else rows()
    kept = place / "bakeoff.jsonl"

    def tried_at(rates: Sequence[str], rows: Sequence[str]) -> list[dict]:
        return measured([(row, rate, seed, "validation", device) for rate in rates for seed in CHOOSING
                         for row in rows], kept, at_once)

    tried = tried_at(RATES, names)
    tried += tried_at([LOWER], [row for row in names if float(best_rate(tried, row)) == float(RATES[0])])
    rates = {row: best_rate(tried, row) for row in names}
    found = measured([(row, rates[row], seed, "test", device) for seed in REPORTED for row in names], kept,
                     at_once)
    facts = {"task": TASK, "bars": bars(found), "rows": found, "table": table(found), "tried": tried}
    (place / "bakeoff.json").write_text(json.dumps(facts, indent=1) + "\n")
    for line in facts["table"]:
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
