"""Does the doctor name a planted fault first, and stay silent where nothing is wrong?

    python proofs/doctor.py             the proof, on seed 7; writes runs/proof-rows/doctor.json
    python proofs/doctor.py --seed 0    another seed, and writes nothing; on 0 the limits were chosen

Twenty runs with one fault each and twenty without (proofs/doctor_runs.py), about 15 seconds each on one core.
They are kept in runs/proof-doctor, and one that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from doctor_runs import HEALTHY, PLANTED, Plan, make

from postgrad.runs import Run
from postgrad.runs.doctor import diagnose

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "tools")]

import results  # noqa: E402

RUNS = HERE / "runs" / "proof-doctor"
OUT = HERE / "runs" / "proof-rows" / "doctor.json"
PROOF, CHOSEN_ON = 7, 0
FOUND, ALARMS = 18, 1  # what has to be reached, of twenty each
NOTHING, COMMAND = "nothing", "python proofs/doctor.py"


def look(name: str, plan: Plan, seed: int) -> dict:
    """The run, and what the doctor says of it, worst first."""
    began = time.process_time()
    folder = make(plan, seed, RUNS / f"{name.replace(' ', '-').replace(',', '')}-{seed}")
    spent = time.process_time() - began
    found = diagnose(Run.open(folder))
    names = ", ".join(named.symptom for named in found.findings) or NOTHING
    row = {"run": name, "setting": plan.spec, "steps": found.steps, "named, worst first": names,
           "evidence of the first": found.findings[0].finding.evidence if found.findings else ""}
    print(f"{name:<34}{spent:6.0f} s   {names}", flush=True)
    return row


def bars(planted: list[dict], healthy: list[dict]) -> list[dict]:
    first = sum(row["named, worst first"].startswith(row["run"]) for row in planted)
    alarms = sum(row["named, worst first"] != NOTHING for row in healthy)
    return [results.bar(f"planted faults named first (limits chosen on seed {CHOSEN_ON})",
                        f">= {FOUND} of {len(planted)}", f"{first} of {len(planted)}", first >= FOUND,
                        COMMAND),
            results.bar("false alarms in healthy runs", f"<= {ALARMS} of {len(healthy)}",
                        f"{alarms} of {len(healthy)}", alarms <= ALARMS, COMMAND)]


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=PROOF)
    seed = words.parse_args().seed
    torch.set_num_threads(1)
    planted = [look(name, plan, seed) for name, plan in PLANTED.items()]
    healthy = [look(name, plan, seed) for name, plan in HEALTHY.items()]
    said = bars(planted, healthy)
    for row in said:
        print(f"{row['name']}: {row['measured']}")
    if seed == PROOF:  # a part of proofs/rows.py
        OUT.parent.mkdir(parents=True, exist_ok=True)
        tables = {"Planted": planted, "Healthy": healthy}
        OUT.write_text(json.dumps({"bars": said, "tables": tables}, indent=1) + "\n")
    return 0 if all(row["holds"] for row in said) else 1


if __name__ == "__main__":
    raise SystemExit(main())
