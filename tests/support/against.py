"""What a test against TRL or verl holds of a row, in a sentence that stands on the test itself.

    @against("TRL", rloo="clips the ratio of whole replies; the paper has no ratio")
    def test_rloo(): ...

The pages of the rows are made from these sentences (`found` reads them, the tests are not run), with a link
to the test: a sentence and what holds it cannot part unseen.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent


class Held(NamedTuple):
    """One sentence of a row, and the test that holds it."""

    row: str
    library: str
    words: str
    test: str
    file: str
    line: int


def against(library: str, **rows: str):
    """On a test: how the library stands to each of these rows."""
    return lambda test: test


def found() -> list[Held]:
    """Every sentence on a test of this folder, in the order of the files."""
    return [held for path in sorted(HERE.rglob("*_test.py")) for held in of_file(path)]


def of_file(path: Path) -> list[Held]:
    out = []
    for node in ast.parse(path.read_text()).body:
        calls = [d for d in getattr(node, "decorator_list", ()) if isinstance(d, ast.Call)
                 and isinstance(d.func, ast.Name) and d.func.id == against.__name__]
        for call in calls:
            library = ast.literal_eval(call.args[0])
            file = f"tests/{path.relative_to(HERE).as_posix()}"
            out += [Held(k.arg, library, ast.literal_eval(k.value), node.name, file,
                         node.lineno) for k in call.keywords]
    return out
