"""Runs the README's own example, a newcomer's task file, and prints what its page states: pass@1 before and after.

    python proofs/readme.py      about a minute and a half on 2 cores
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def task_file() -> str:
    """The first Python block of the README."""
    return re.search(r"```python\n(.*?)```", README, re.S)[1]


def commands() -> list[str]:
    """Every line of the README's plain blocks that begins with `postgrad`, without its comment."""
    inside, found = False, []
    for line in README.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside and line.startswith("postgrad "):
            found.append(line.split("  #")[0].strip())
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mytask.py").write_text(task_file())

        def postgrad(*args):
            command = [sys.executable, "-m", "postgrad", *args, "--json"]
            return json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)

        before = postgrad("eval", "tiny-chat", "--task", "mytask.py")
        run = postgrad("train", "grpo", "--task", "mytask.py", "--run", "runs/larger")
        after = postgrad("eval", "runs/larger", "--task", "mytask.py")
    for name, row in (("before", before), ("after", after)):
        low, high = row["pass@1_interval"]
        print(f"{name}: pass@1 {row['pass@1']:.1%} ({low:.1%} to {high:.1%}), {row['problems']} held-out prompts")
    print(f"training: {run['seconds']:.0f} s, {run['steps']} steps")


if __name__ == "__main__":
    main()
