"""Runs the README's own example, a newcomer's task file, and prints what docs/tasks-and-verifiers.md states:
pass@1 before and after.

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
    """The file larger.py, as the README has it."""
    return re.search(r"<!-- file: larger.py -->\n```python\n(.*?)```", README, re.S)[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "larger.py").write_text(task_file())

        def postgrad(*args):
            command = [sys.executable, "-m", "postgrad", *args, "--json"]
            return json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True,
                                             text=True).stdout)

        before = postgrad("eval", "tiny-chat", "--task", "larger.py")
        run = postgrad("train", "grpo", "--task", "larger.py", "--run", "runs/larger")
        after = postgrad("eval", "runs/larger", "--task", "larger.py")
    for name, row in (("before", before), ("after", after)):
        low, high = row["pass@1_interval"]
        print(f"{name}: pass@1 {row['pass@1']:.1%} ({low:.1%} to {high:.1%}), {row['problems']} "
              "held-out prompts")
    print(f"training: {run['seconds']:.0f} s, {run['steps']} steps")


if __name__ == "__main__":
    main()
