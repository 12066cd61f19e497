"""Hostile replies through every verifier: how many raised, gave an error or were paid, and how long it takes.

    python proofs/totality.py [--count 50000] [--seed 0] [--out FILE.json]
Every reply goes to every verifier that reads in this process, and to one of those that ask the jail, in turn.
Then every verifier reads 232 replies of 100,000 characters. About a quarter of an hour on one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tools")]

from hostile.arena import family  # noqa: E402
from hostile.replies import longest, replies  # noqa: E402
from hostile.verifiers import Judge, fault_of, jailed, ours  # noqa: E402
from results import bar, end  # noqa: E402

LENGTH, BUDGET = 100_000, 0.25  # characters, seconds of processor time


def fuzz(here: list[Judge], inside: list[Judge], count: int, seed: int) -> tuple[Counter, list[str]]:
    """How many verdicts each verifier gave, and what was wrong with any."""
    given, found = Counter(), []
    golds = tuple(judge.gold for judge in here + inside)
    for at, (kind, text) in enumerate(islice(replies(seed, golds), count)):
        for judge in [*here, *inside[at % len(inside): at % len(inside) + 1]]:
            given[judge.name] += 1
            if why := fault_of(judge, kind, text):
                found.append(f"{judge.name}: {kind} {ascii(text[:60])}: {why}")
    return given, found


def slowest(judges: list[Judge]) -> dict[str, tuple[float, str]]:
    """Verifier -> the most processor time of this process for a reply of LENGTH characters, and for which."""
    worst: dict[str, tuple[float, str]] = {}
    for what, text in longest(LENGTH):
        for judge in judges:
            start = time.process_time()
            judge.verify(judge.prompt, text)
            took = time.process_time() - start
            worst[judge.name] = max(worst.get(judge.name, (0.0, "")), (took, ascii(what)))
    return worst


def held() -> tuple[int, int]:
    return len(family()), len(os.listdir("/proc/self/fd"))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--count", type=int, default=50_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here, inside = ours(), jailed(Path(folder))
        fuzz(here, inside, 40 * len(inside), args.seed + 1)  # the workers start
        before = held()
        given, found = fuzz(here, inside, args.count, args.seed)
        worst = slowest(here + inside)
        after = held()
    for name, (took, what) in sorted(worst.items(), key=lambda row: -row[1][0]):
        print(f"{name:40} {given[name]:7,} verdicts; {LENGTH:,} characters: {1e3 * took:6.1f} ms ({what})")
    print("\n".join(found[:50]))
    command = f"python proofs/totality.py --count {args.count} --seed {args.seed}"
    slow, name = max((took, name) for name, (took, _) in worst.items())
    rows = [
        bar(f"{args.count:,} hostile replies, {len(here + inside)} verifiers: raised, errors, paid", "0",
            f"{len(found)} of {given.total():,} verdicts", not found, command),
        bar(f"processor time of a verdict on {LENGTH:,} characters", f"<= {BUDGET} s",
            f"{slow:.3f} s ({name})", slow <= BUDGET, command),
        bar("children and descriptors left behind", "0", f"{after[0] - before[0]} and {after[1] - before[1]}",
            after <= before, command)]
    end(rows, args.out)


if __name__ == "__main__":
    main()
