"""Mistakes at the command line, each through the real `main`: tracebacks, codes, words and time.

    python proofs/mistakes.py [--out FILE.json]
The mistakes are those of tests/support/hostile/mistakes.py. Ten of them run again, each in its own process.
About a minute on one core.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tools")]

from hostile.mistakes import BUDGET, MISTAKES, Answer, Mistake, lay, try_one  # noqa: E402
from results import bar, end  # noqa: E402


def load() -> None:
    """What the commands import, so that it is not counted."""
    import uvicorn  # noqa: F401

    import postgrad.cli.commands
    import postgrad.recipes.measuring
    import postgrad.studio.app  # noqa: F401


def in_a_child(mistake: Mistake, folder: Path) -> list[str]:
    """What is wrong with the answer of a process of its own."""
    command = [sys.executable, "-m", "postgrad", *shlex.split(mistake.line)]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    faults = {"a traceback": "Traceback" in done.stderr, "exit code 0": done.returncode == 0,
              f"does not name {mistake.wrong}": mistake.wrong not in done.stderr}
    return [name for name, holds in faults.items() if holds]


def counted(found: list[tuple[Mistake, Answer, list[str]]], word: str) -> int:
    return sum(any(fault.startswith(word) for fault in faults) for _, _, faults in found)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    load()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        lay(folder)
        found = [(mistake, *try_one(mistake, folder)) for mistake in MISTAKES]
        plain = [mistake for mistake in MISTAKES if "{port}" not in mistake.line]
        sample = plain[:: len(plain) // 10][:10]
        apart = [(mistake, faults) for mistake in sample if (faults := in_a_child(mistake, folder))]
    for mistake, answer, faults in found:
        if faults or answer.seconds > BUDGET:
            print(f"postgrad {mistake.line}: {', '.join(faults)} ({answer.seconds:.2f} s)\n{answer.said}"
                  f"{answer.escaped}")
    for mistake, faults in apart:
        print(f"in a child: postgrad {mistake.line}: {', '.join(faults)}")
    slow, line = max((answer.seconds, mistake.line) for mistake, answer, _ in found)
    command, what = "python proofs/mistakes.py", f"{len(found)} mistakes at the command line"
    rows = [bar(f"{what}: tracebacks", "0", str(counted(found, "a traceback")),
                not counted(found, "a traceback"), command),
            bar(f"{what}: exit code 0", "0", str(counted(found, "exit code 0")),
                not counted(found, "exit code 0"), command),
            bar(f"{what}: messages that do not name the wrong word", "0",
                str(counted(found, "does not name")), not counted(found, "does not name"), command),
            bar(f"{what}: other than one line, or anything left behind", "0",
                str(counted(found, "more than") + counted(found, "something")),
                not counted(found, "more than") + counted(found, "something"), command),
            bar(f"{what}: processor time beyond imports", f"<= {BUDGET:g} s", f"{slow:.2f} s ({line})",
                slow <= BUDGET, command),
            bar("10 of them in processes of their own: faults", "0", str(len(apart)), not apart, command)]
    end(rows, args.out)


if __name__ == "__main__":
    main()
