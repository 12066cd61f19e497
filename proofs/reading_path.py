"""One GRPO step to read: the definitions that run from the prompt to the update, by file and lines.

    python proofs/reading_path.py

A run of one step is traced, imports and the command line apart. Every function and method that ran counts
with all its lines, decorators and docstring included. Algorithm: records, methods, maths, training. Wiring:
recipes, resolve. The sampler, the model, the task and the verifier stand behind their protocols.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "postgrad"
ROOMS = {"records.py": "algorithm", "methods": "algorithm", "maths": "algorithm", "training": "algorithm",
         "recipes": "wiring", "resolve": "wiring"}


class Definition(NamedTuple):
    """A function or method that ran."""

    file: str
    name: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        return self.last - self.first + 1

    @property
    def kind(self) -> str:
        return ROOMS[self.file.split("/")[0]]


def trace(action: Callable[[], object]) -> set[CodeType]:
    """The code objects of the package that run."""
    ran: set[CodeType] = set()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            ran.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return ran


def one_step() -> None:
    """One GRPO step of the embedded model, with every default that a step has."""
    import postgrad

    with tempfile.TemporaryDirectory() as folder:
        postgrad.fit("tiny-chat", "grpo", task="words", steps=1, prompts_per_step=2, group_size=2,
                     rollouts={"max_new_tokens": 8}, evaluation={"every": 0}, run=f"{folder}/run",
                     display=False)


def definitions(ran: set[CodeType]) -> list[Definition]:
    """Functions and methods at module or class level that ran; an inner function counts with its outer."""
    starts: dict[str, set[int]] = {}
    for code in ran:
        file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
        starts.setdefault(file, set()).add(code.co_firstlineno)
    found = []
    for file in sorted(f for f in starts if f.split("/")[0] in ROOMS):
        inside: list[tuple[str, ast.stmt]] = [("", node) for node in
                                              ast.parse((PACKAGE / file).read_text()).body]
        while inside:
            prefix, node = inside.pop(0)
            if isinstance(node, ast.ClassDef):
                inside += [(f"{prefix}{node.name}.", child) for child in node.body]
            elif isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if {first, node.lineno} & starts[file]:
                    found.append(Definition(file, prefix + node.name, first, node.end_lineno or first))
    return found


def totals(path: list[Definition]) -> dict[str, int]:
    return {kind: sum(d.lines for d in path if d.kind == kind) for kind in ("algorithm", "wiring")}


def main() -> None:
    path = definitions(trace(one_step))
    for d in path:
        print(f"{d.kind:10}{d.file}:{d.first}-{d.last}  {d.name}")
    print("{algorithm:,} lines of algorithm, {wiring:,} of wiring".format(**totals(path)))


if __name__ == "__main__":
    sys.path.insert(0, str(HOME))
    main()
