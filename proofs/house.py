"""The house with one door: what was to be shown, measured; writes docs/results/house.json and .md.

    python proofs/house.py [--before COMMIT] [--gpu FILE.json] [--kept FOLDER]

About half an hour on two cores. --before: the commit that the demo's table and its CPU time are held against
(a worktree of it is made aside). --gpu: what proofs/families_gpu.py and bench/h200.py printed on a GPU, as
{"families": [...], "speed": [...]}.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME)]

from harness import bar, write  # noqa: E402

BEFORE = "2c160c9"
LONGEST = 300


def run(*words: str, cwd: Path = HOME, **more) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(cwd), "OMP_NUM_THREADS": "1"} | more
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False,
                          env=environment)


def tested(name: str, target: str, *words: str) -> dict:
    done = run("-m", "pytest", "-n", "0", *words)
    said = next((line for line in reversed(done.stdout.splitlines()) if "passed" in line or "failed" in line),
                "nothing ran")
    return bar(name, target, said.strip("= "), done.returncode == 0, f"pytest {' '.join(words)}")


def ports() -> dict:
    """The scripts ported from TRL: lines of code, comments and blank lines left out."""
    counts = {}
    for path in sorted((HOME / "examples" / "trl").glob("*_postgrad.py")):
        lines = re.sub(r'""".*?"""', "", path.read_text(), flags=re.S).splitlines()
        counts[path.stem.removesuffix("_postgrad")] = sum(bool(x.strip()) and not x.strip().startswith("#")
                                                          for x in lines)
    return bar("TRL's GRPO, DPO, SFT and reward scripts, ported", "<= 12 lines each",
               ", ".join(f"{name} {count}" for name, count in counts.items()),
               len(counts) == 4 and max(counts.values()) <= 12, "python proofs/house.py")


def script(name: str, folder: Path) -> list[dict]:
    """What another proof found: kept from an earlier run (--kept), or measured now."""
    out = folder / f"{name}.json"
    if not out.exists():
        run(f"proofs/{name}.py", "--out", str(out))
    return json.loads(out.read_text()) if out.exists() else []


def changes(folder: Path) -> tuple[list[dict], list[dict]]:
    rows = script("changes", folder)
    targets = {"row": "1 file of code + its test", "loss": "1 file of code + its test",
               "task": "1 file + registration", "family": "described in one place"}
    most = {"row": 1, "loss": 1, "task": 2, "family": 1}
    bars = [bar(f"a stranger's change: {row['name']}", targets[row["name"]],
                f"{row['files of code']} file(s), {row['lines of code']} lines of code; {row['checks']} "
                f"checks, {len(row['failed'])} failed",
                not row["failed"] and row["files of code"] <= most[row["name"]],
                f"python proofs/changes.py {row['name']}") for row in rows]
    return bars, [{k: v for k, v in row.items() if k != "failed"} for row in rows]


def mutations(folder: Path) -> tuple[dict, list[dict]]:
    rows = script("mutations", folder)
    caught = sum(row["caught by"] is not None and row["seconds"] <= 180 for row in rows)
    slowest = max((row["seconds"] for row in rows), default=0.0)
    return bar("deliberate faults in the glue, each caught within 3 minutes", "12 or more, all",
               f"{caught} of {len(rows)}, the slowest in {slowest:.0f} s", caught == len(rows) >= 12,
               "python proofs/mutations.py"), rows


def sizes() -> dict:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=HOME, capture_output=True, text=True,
                            check=True).stdout.split()
    long = {name: n for name in listed if (n := (HOME / name).read_text().count("\n")) > LONGEST}
    return bar("Python files over 300 lines", "0", ", ".join(f"{k} {v}" for k, v in long.items())
               or f"0 of {len(listed)}", not long, "python proofs/house.py")


def started(name: str, target: float, *words: str) -> dict:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        run(*words)
        took.append(time.perf_counter() - began)
    bare = min(took) if name.startswith("postgrad") else float(run(*words).stdout or "nan")
    return bar(name, f"< {target} s", f"{bare:.3f} s", bare < target, f"python {' '.join(words)}")


def demo(place: Path, folder: Path) -> tuple[dict, float]:
    """The demo's summary in a tree, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("-m", "postgrad", "demo", "--json", "--run", str(folder), cwd=place, OMP_NUM_THREADS="1")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout.splitlines()[-1]), after.ru_utime - before.ru_utime


def unchanged(before: str, folder: Path) -> list[dict]:
    """The demo's table here and at another commit, digit by digit, and the CPU time of both."""
    aside = folder / "before"
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(aside), before], cwd=HOME, check=True)
    try:
        old, old_seconds = demo(aside, folder / "old")
        new, new_seconds = demo(HOME, folder / "new")
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(aside)], cwd=HOME, check=True)
    clock = ("seconds", "seconds_evaluating")
    tables = [[{k: v for k, v in stage.items() if k not in clock} for stage in x["stages"]]
              for x in (old, new)]
    figures = ", ".join(f"{stage['name']} {stage['pass@1']:.4f}" for stage in new["stages"])
    return [bar(f"the demo's table against {before}", "unchanged to the digit", figures,
                tables[0] == tables[1], "postgrad demo"),
            bar(f"CPU time of the demo against {before}", "within noise (0.9 to 1.1)",
                f"{new_seconds / old_seconds:.3f}", 0.9 <= new_seconds / old_seconds <= 1.1,
                "python proofs/house.py")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--gpu", type=Path)
    parser.add_argument("--kept", type=Path, help="a folder with changes.json or mutations.json of this tree")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bars = [
            tested("the four fit lines, and every kind of argument", "run", "tests/recipes/fit_test.py",
                   "tests/recipes/door_rewards_test.py"),
            ports(),
            tested("the scripts, both sides, on the embedded model", "run",
                   "tests/whole/trl_scripts_test.py"),
            tested("gradients, and weights after two steps, on the same rollouts or rows: ours against TRL",
                   "<= 1e-5", "tests/training/trl_parity_test.py")]
        found, four = changes(args.kept or folder)
        bars += found
        bars.append(tested("a changed row is refused on resume; its constants are in the run, on the compare "
                           "page, in the card",
                           "tests pass", "tests/methods/row_test.py", "tests/recipes/resume_test.py"))
        caught, faults = mutations(args.kept or folder)
        typed = run("-m", "mypy")
        bars += [caught, bar("types of the named modules", "clean", typed.stdout.strip().splitlines()[-1],
                             not typed.returncode, "make lint"),
                 tested("layers hold, import cycles 0", "0", "tests/whole/layers_test.py"), sizes(),
                 started("import postgrad", 0.2, "-c", "import time; t = time.perf_counter(); import "
                         "postgrad; print(time.perf_counter() - t)"),
                 started("postgrad --help", 0.5, "-m", "postgrad", "--help"), *unchanged(args.before, folder)]
    size = len((HOME / "README.md").read_bytes())
    bars += [bar("README", "<= 9,000 bytes", f"{size:,} bytes", size <= 9000, "wc -c README.md"),
             tested("commands, snippets and links of README and docs", "run by a test or marked",
                    "tests/whole/docs_test.py")]
    tables = {"Four changes": four, "Deliberate faults": faults}
    if args.gpu:
        tables |= {f"On one NVIDIA H200: {k}": v for k, v in json.loads(args.gpu.read_text()).items()}
    print(write("house", "One door: what was to be shown, and what was measured", bars, seeds=[0],
                tables=tables))


if __name__ == "__main__":
    main()
