"""The rows' schedules on word problems: equal samples, one update of each collection or the row's own.

    python examples/experiments/schedules.py [DEVICE [AT_ONCE]]      32 runs; a line of JSON each

docs/results/mend.md has the table.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile

import postgrad as pg

ROWS, RATES, SEEDS = ("ppo", "dapo", "gspo", "cispo"), (3e-4, 1e-4), (0, 1)


def measure(job: tuple[str, str, float, int, str]) -> dict:
    """A run: held-out pass@1 before and after, and how far the updates went."""
    row, schedule, rate, seed, device = job
    with tempfile.TemporaryDirectory() as folder:
        run = pg.fit("tiny-chat", row, task="words", run=f"{folder}/run", seed=seed, lr=rate, device=device,
                     compile=False, display=False, evaluation={"problems": 128},
                     **({"epochs": 1, "minibatches": 1} if schedule == "one" else {}))
        passed = [e["pass@1"] for e in run.evaluations()]
        curve = {name: run.curve(name)[1] for name in ("clip_fraction", "ratio_max", "approx_kl", "skipped")}
        steps = run.config["steps"]
    return {"row": row, "schedule": schedule, "rate": rate, "seed": seed, "steps": steps,
            "start": passed[0], "end": passed[-1], "best": max(passed),
            "clipped": sum(curve["clip_fraction"]) / steps, "ratio_max": max(curve["ratio_max"]),
            "approx_kl": sum(curve["approx_kl"]) / steps, "skipped": sum(curve["skipped"])}


if __name__ == "__main__":
    device, at_once = sys.argv[1:] + ["cpu", "2"][len(sys.argv) - 1:]
    jobs = [(row, schedule, rate, seed, device) for row in ROWS for schedule in ("one", "own")
            for rate in RATES for seed in SEEDS]
    with multiprocessing.get_context("spawn").Pool(int(at_once)) as pool:
        for figures in pool.imap(measure, jobs):
            print(json.dumps(figures), flush=True)
