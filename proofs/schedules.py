"""What the rows' own schedules do: the same samples drawn, one update of each collection or the row's, and
what the clip cuts.

    python proofs/schedules.py                             the table, on one device
    python proofs/schedules.py one ROW SCHEDULE RATE SEED DEVICE     one run's figures, as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE)]

ROWS = ("ppo", "dapo", "gspo", "cispo")
SCHEDULES = {"one": ("epochs=1", "minibatches=1"), "own": ()}


def one(row: str, schedule: str, rate: str, seed: str, device: str) -> dict:
    """A run on word problems: held-out pass@1 before and after, and how far the updates went."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes import rollouts, running
    from postgrad.recipes.defaults import fitted
    changes = [f"seed={seed}", f"optim.lr={rate}", f"device={device}", "optim.compile=false",
               "evaluation.problems=128", *SCHEDULES[schedule]]
    _, config = config_from_text(f"{row}:words", changes)
    config, _ = fitted(config)
    with tempfile.TemporaryDirectory() as folder:
        run = running.start("rollouts", config, rollouts.build, Path(folder) / "run")
        evals, _ = run.rows("evals")
        curve = {name: run.curve(name)[1] for name in ("clip_fraction", "ratio_max", "approx_kl", "skipped")}
    return {"row": row, "schedule": schedule, "rate": float(rate), "seed": int(seed), "steps": config.steps,
            "start": evals[0]["pass@1"], "end": evals[-1]["pass@1"],
            "best": max(e["pass@1"] for e in evals), "clipped": sum(curve["clip_fraction"]) / config.steps,
            "ratio_max": max(curve["ratio_max"]), "approx_kl": sum(curve["approx_kl"]) / config.steps,
            "skipped": sum(curve["skipped"])}


def table(rates=("3e-4", "1e-4"), seeds=("0", "1"), device="cpu", at_once=2) -> list[dict]:
    asked = [(row, schedule, rate, seed, device) for row in ROWS for schedule in SCHEDULES for rate in rates
             for seed in seeds]

    def measured(what: tuple[str, ...]) -> dict:
        done = subprocess.run([sys.executable, __file__, "one", *what], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        row = json.loads(done.stdout.splitlines()[-1])
        print(row, flush=True)
        return row

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(measured, asked))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        given = dict(word.split("=") for word in sys.argv[1:])
        rates, seeds = (given.get(name, default).split(",") for name, default in (("rates", "3e-4,1e-4"),
                                                                                  ("seeds", "0,1")))
        rows = table(rates, seeds, given.get("device", "cpu"), int(given.get("at_once", 2)))
        Path(given.get("out", "schedules.json")).write_text(json.dumps(rows, indent=1))
