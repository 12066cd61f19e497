"""Hostile files and folders through the real command: tracebacks, too long, written outside.

    python proofs/hostile_files.py [--only WORDS] [--out FILE.json]
Every case runs `postgrad` in a child with 2 seconds of processor time and 3 GiB of memory; one in twelve once
more as `python -m postgrad`, with some seconds on top for its imports. About ten minutes on one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tools")]

from hostile import data_files, gguf_files, model_files, run_files, store_files  # noqa: E402
from hostile.drive import BUDGET, Outcome, drive, small_run, warm  # noqa: E402
from results import bar, end  # noqa: E402

IMPORTS, EVERY = 8.0, 12  # seconds of processor time for a fresh process, and which cases get one


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--only", default="")
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    homes = (run_files, model_files, gguf_files, data_files, store_files)
    cases = [case for home in homes for case in home.cases() if args.only in case.name]
    found, worst = Counter(), (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        run = small_run(Path(folder) / "sound")
        warm()
        for number, case in enumerate(cases):
            outcomes = [drive(case, run)]
            if number % EVERY == 0 and case.words[0] != "GET":
                again = drive(case, run, fresh=True)
                outcomes.append(Outcome(again.code, again.said, again.seconds - IMPORTS, again.strayed))
            for outcome in outcomes:
                found[outcome.fault or "sound"] += 1
                worst = max(worst, (outcome.seconds, case.name))
                if outcome.fault:
                    last = outcome.said.strip().splitlines()[-1:] or [""]
                    print(f"{outcome.fault}: {case.name}: {outcome.seconds:.1f} s, code {outcome.code}, "
                          f"{' '.join(outcome.strayed)} {last[0][:200]}", flush=True)
    command = "python proofs/hostile_files.py"
    faults = {"traceback": "tracebacks", "over": f"over {BUDGET:.0f} s of processor time",
              "outside": "written or deleted outside", "no sentence": "refused in more than a sentence"}
    rows = [bar(f"{len(cases)} hostile files: {what}", "0", str(found[fault]), not found[fault], command)
            for fault, what in faults.items()]
    rows.append(bar("the longest", f"<= {BUDGET} s", f"{worst[0]:.2f} s ({worst[1]})", worst[0] <= BUDGET,
                    command))
    end(rows, args.out)


if __name__ == "__main__":
    main()
