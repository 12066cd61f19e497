"""Which leash holds: the over-optimisation lab over a grid of settings and seeds, side by side on one GPU.

    python proofs/lab_grid.py OUT SEEDS KLS[/KLS...] VARIANTS SECONDS [CHANGE ...]
    python proofs/lab_grid.py leash.json 0,1,2,3 0,0.05/0.1,0.2 optim.lr=1e-4/optim.lr=2e-4 500

Writes a row for each policy: where its true reward peaks, where it ends, how far both rewards went.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def command(folder: Path, seed: str, kls: str, variant: str, changes: list[str]) -> list[str]:
    return [sys.executable, "-m", "postgrad", "train", "overoptimise", f"seed={seed}", "members=1",
            f"kls={kls}", "best_of=1", *variant.split(","), "optim.compile=false", *changes,
            "--run", str(folder)]


def rows_of(folder: Path, seed: str, variant: str) -> list[dict]:
    """A row for each policy that has been examined, also where the run was cut off."""
    from postgrad.recipes.pipelines.overoptimise import points, turning
    from postgrad.run import Run
    out = []
    for place in sorted(folder.glob("ppo-*")):
        run = Run.open(place)
        curve = points(run)
        if len(curve) > 2:
            out.append({"seed": int(seed), "variant": variant, "policy": place.name, **turning(curve),
                        "examined": [[p["step"], round(p["kl"], 3), round(p["proxy"], 3), round(p["true"], 3)]
                                     for p in curve], "state": run.summary()["state"],
                        "clipped": sum(run.curve("clip_fraction")[1]) / max(1, curve[-1]["step"])})
    return out


def main(out: str, seeds: str, kls: str, variants: str, seconds: str, *changes: str) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    began, top = time.monotonic(), Path(tempfile.mkdtemp())
    jobs = []
    for seed in seeds.split(","):
        for weights in kls.split("/"):
            for variant in variants.split("/"):
                folder = top / str(len(jobs))
                process = subprocess.Popen(command(folder, seed, weights, variant, list(changes)), env=env,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                jobs.append((folder, seed, variant, process))
    for folder, _, _, process in jobs:
        try:
            _, said = process.communicate(timeout=max(1, float(seconds) - (time.monotonic() - began)))
            if process.returncode:
                print(folder.name, said[-300:], file=sys.stderr)
        except subprocess.TimeoutExpired:
            process.kill()
    rows = [row for folder, seed, variant, _ in jobs for row in rows_of(folder, seed, variant)]
    Path(out).write_text(json.dumps(rows, indent=1))
    for r in rows:
        print(f"{r['seed']} {r['variant']} {r['policy']:12} peak {r['peak']:+.2f} at {r['step']:4} end "
              f"{r['end']:+.2f} fall {r['fall']:+.0%}, of the gain {r['gain_lost']:+.0%} kl "
              f"{r['examined'][-1][1]} proxy {r['proxy_at_peak']:+.2f} -> {r['proxy_at_end']:+.2f} "
              f"{r['state'] if r['state'] != 'done' else ''}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    sys.path[:0] = [str(HERE)]
    main(*sys.argv[1:])
