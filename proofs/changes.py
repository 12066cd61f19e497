"""Six changes as CONTRIBUTING describes them, each on a scratch copy with the documented files alone.

    python proofs/changes.py [NAME ...] [suite=1] [together=1] [out=FILE.json]

    row       a policy row with a surrogate and a credit of its own   one file in methods/ and its test
    loss      a preference loss that needs another column             one file in methods/ and its test
    task      a task inside the package                               one file in data/tasks/
    family    decoders whose norms subtract the mean                  one description in models/families.py
    tracker   a tracker, from Python and from the command line        one file: examples/own_tracker.py
    sampler   a sampler, from Python and from the command line        one file, as in docs/your-own-sampler.md

changes.toml has the files and the checks. After each change the generated pages are built (`make docs`), then
the checks run: listed, trained, in the studio's form, covered by the tests over every row, task or family.
suite=1: the whole suite as well. together=1: all of them on one copy, checked once.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from harness import HOME, arguments, copy_tree, environment

CHANGES = tomllib.loads((HOME / "proofs" / "changes.toml").read_text())
TEXT = CHANGES.pop("text")


def file_text(name: str, text: str) -> str:
    """The text of a file: as listed, or <SOURCE>, that of a file or of the block `file: NAME` of a page."""
    if not text.startswith("<"):
        return text
    source = (HOME / text[1:-1]).read_text()
    block = re.search(rf"<!-- file: {name} -->\n```python\n(.*?)```", source, flags=re.S)
    return block[1] if block else source


def command(check: str) -> list[str]:
    """The words of a check; {NAME} of [text] is one word after `python`, several elsewhere."""
    tool, *words = shlex.split(check)
    names = {f"{{{name}}}": [text] if tool == "python" else text.split() for name, text in TEXT.items()}
    first = {"python": ["-c"], "postgrad": ["-m", "postgrad"],
             "pytest": ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]}[tool]
    return [sys.executable, *first, *(each for word in words for each in names.get(word, [word]))]


def apply_change(name: str, place: Path) -> dict:
    """Writes the change's files into the copy; says how many it took."""
    change = CHANGES[name]
    files = {path: file_text(path, text) for path, text in change.get("files", {}).items()}
    tests, lines = change.get("tests", {}), change.get("lines", {})
    for path, text in {**files, **tests}.items():
        (place / path).write_text(text)
    for path, text in lines.items():
        before = (place / path).read_text()
        assert before.count(change["before"]) == 1, f"{path}: {change['before']!r} is not there once"
        (place / path).write_text(before.replace(change["before"], text + change["before"]))
    return {"name": name, "files of code": len(files) + len(lines),
            "lines of code": sum(text.count("\n") for text in (*files.values(), *lines.values())),
            "files": [*files, *lines], "tests": len(tests)}


def check_copy(place: Path, names: Sequence[str], suite: bool) -> dict:
    """Builds the generated pages of the copy and runs the checks of these changes in it."""
    checks = [[sys.executable, "tools/docs.py"],
              *(command(check) for name in names for check in CHANGES[name]["checks"].values())]
    checks += [[sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]] if suite else []
    began, failed = time.perf_counter(), []
    for words in checks:
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False,
                              env=environment(PYTHONPATH=f"{place}:{place / 'tests/support'}"))
        if done.returncode:
            failed.append({"command": " ".join(words[2:])[:200],
                           "output": (done.stdout + done.stderr)[-1500:]})
    return {"checks": len(checks), "failed": failed, "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    """Each change on a copy of its own; together=1: all on one, checked once."""
    names, settings = arguments()
    names, suite, rows = names or [*CHANGES], "suite" in settings, []
    for group in [names] if "together" in settings else [[name] for name in names]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            copy_tree(place)
            made = [apply_change(name, place) for name in group]
            checked = check_copy(place, group, suite)
        rows += [row | checked | {"together": len(group)} for row in made]
        print(json.dumps(rows[-len(group):]), flush=True)
    if "out" in settings:
        Path(settings["out"]).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
