"""Deliberate faults in the glue between maths and loop, one at a time:
each must make a test fail within three minutes.

    python proofs/mutations.py [NAME ...] [--out FILE.json]

A copy of the working tree is made aside, one line of it is spoilt, the tests of the glue are run until the
first failure, and the line is put back. A fault that no test sees, or a line that is no longer there, ends
the script with code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parent.parent
LIMIT = 180.0
TESTS = ("tests/training/batches/rollouts_test.py", "tests/training/batches/faults_test.py",
         "tests/training/learning_test.py",
         "tests/training/oracle_test.py", "tests/training/loop_test.py", "tests/recipes/every_recipe_test.py")


class Fault(NamedTuple):
    """One line spoilt. file: inside postgrad/."""

    name: str
    file: str
    right: str
    wrong: str


COLUMNS, ROLLOUTS = "training/batches/columns.py", "training/batches/rollouts.py"
FAULTS = (
    Fault("returns", COLUMNS, "returns = adv + value if",
          "returns = credit.whiten(adv, batch.mask) + value if"),
    Fault("whitening", COLUMNS, "adv = credit.whiten(adv, batch.mask)",
          "adv = credit.whiten(adv, torch.ones_like(batch.mask))"),
    Fault("masks", ROLLOUTS, "mask=batch.mask & sound[:, None]", "mask=batch.mask"),
    Fault("ids", ROLLOUTS, "{i % group_size}", "{i}"),
    Fault("weights", COLUMNS, "method.weigh(counted, budget)",
          "method.weigh(torch.ones_like(counted), budget)"),
    Fault("temperature", COLUMNS, "model_logp(models.policy, batch, tokens_per_pass, temperature,",
          "model_logp(models.policy, batch, tokens_per_pass, 1.0,"),
    Fault("reference", COLUMNS, "model_logp(models.reference, batch", "model_logp(models.policy, batch"),
    Fault("epochs order", COLUMNS, 'seed_of(seed, "minibatch", step, epoch)',
          'seed_of(seed, "minibatch", step, 0)'),
    Fault("group order", "training/batches/episodes.py", "range(at, at + group_size)",
          "range(at + group_size - 1, at - 1, -1)"),
    Fault("stop token", COLUMNS, "reply.copy()", "reply & (column < read + written - 1)"),
    Fault("value column", COLUMNS, "models.critic.value(", "models.critic.token_scores("),
    Fault("old log-probs", COLUMNS, 'old_logp=old if several or "old_logp" in early else None',
          "old_logp=ref if several else None"),
    Fault("kl coefficient", COLUMNS, "reward, old, ref, batch.mask, kl)",
          "reward, old, ref, batch.mask, method.kl_in_reward * 2)"),
    Fault("step-wide choice", COLUMNS, "counted = counted & method.choose",
          "counted = counted | method.choose"),
)
MORE = {"step-wide choice": ("tests/training/batches/columns_test.py",),
        "kl coefficient": ("tests/training/rlhf_test.py",)}


def copy_of(home: Path, to: Path) -> None:
    """The files of the working tree that git tracks or would."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=home, capture_output=True,
                            text=True, check=True).stdout.splitlines()
    for name in listed:
        if (home / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / name, to / name)


def tried(fault: Fault, place: Path) -> dict:
    """What the tests say of the copy with this fault in it."""
    path = place / "postgrad" / fault.file
    text = path.read_text()
    if text.count(fault.right) != 1:
        raise SystemExit(f"{fault.name}: {fault.right!r} stands {text.count(fault.right)} times in "
                         f"{fault.file}: mend it.")
    path.write_text(text.replace(fault.right, fault.wrong))
    began = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p",
                               "no:cacheprovider", *MORE.get(fault.name, ()), *TESTS],
                              cwd=place, capture_output=True, text=True, check=False, timeout=3 * LIMIT,
                              env=os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"})
    finally:
        path.write_text(text)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return {"name": fault.name, "line": fault.right, "became": fault.wrong,
            "caught by": failed[1] if failed else None, "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these faults")
    parser.add_argument("--out", metavar="FILE.json")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy_of(HOME, Path(folder))
        for fault in FAULTS:
            if not args.names or fault.name in args.names:
                rows.append(tried(fault, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["caught by"] is None or row["seconds"] > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
