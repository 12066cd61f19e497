"""Deliberate faults in the code between maths and loop: each must make a test fail within three minutes.

    python proofs/mutations.py [NAME ...] [out=FILE.json]

mutations.toml has the faults. In a scratch copy of the working tree one line is replaced at a time, and the
tests run until the first failure. Exit code 1: a fault that no test sees, or a line that is not there once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from harness import HOME, arguments, copy_tree, environment

LIMIT = 180.0
LISTED = tomllib.loads((HOME / "proofs" / "mutations.toml").read_text())


def try_fault(fault: dict, place: Path) -> dict:
    """The first test that fails in the copy with this fault."""
    path = place / "postgrad" / fault["file"]
    text = path.read_text()
    if text.count(fault["right"]) != 1:
        raise SystemExit(f"{fault['name']}: {fault['right']!r} stands {text.count(fault['right'])} times in "
                         f"{fault['file']}: change proofs/mutations.toml.")
    path.write_text(text.replace(fault["right"], fault["wrong"]))
    began = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p",
                               "no:cacheprovider", *fault.get("tests", ()), *LISTED["tests"]], cwd=place,
                              capture_output=True, text=True, timeout=3 * LIMIT, env=environment(place))
    finally:
        path.write_text(text)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return {"name": fault["name"], "line": fault["right"], "became": fault["wrong"],
            "caught by": failed[1] if failed else None, "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    names, settings = arguments()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for fault in LISTED["fault"]:
            if not names or fault["name"] in names:
                rows.append(try_fault(fault, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
    if "out" in settings:
        Path(settings["out"]).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["caught by"] is None or row["seconds"] > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
