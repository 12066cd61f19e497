"""The files of the library that a page's Python is given: whatever a job imports, found by following its
imports, and `torch`, which is small_torch."""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

from postgrad.system.user_code import parse_source

HOME = Path(__file__).parents[3]
WHOLE = ("postgrad/maths", "postgrad/methods", "postgrad/studio/exercises/coding")  # found by their folder
BEGIN = ("postgrad.studio.engine.run", "postgrad.studio.cells.jobs",
         "postgrad.studio.cells.checks", "postgrad.studio.book.worked", "postgrad.studio.exercises.grading")
# a cell's instrument is drawn by the server alone; fitting and packing need numpy
LEFT_OUT = ("postgrad.studio.instruments", "postgrad.rewards", "postgrad.maths.packing")
TORCH = "from small_torch import install\n\ninstall()\n"
NUMPY = 'raise ImportError("this page has no numpy: use plain Python, or run it in `postgrad studio`")\n'


def file_of(module: str) -> Path | None:
    """Its file, where it is a module of the library."""
    path = HOME.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def imported_modules(path: Path) -> set[str]:
    """The names that a file imports, in functions too."""
    found = set()
    for node in ast.walk(parse_source(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def bundled_files() -> dict[str, str]:
    """Path -> text of all files, the exercises' and the library's whole mathematics among them."""
    waiting = [*BEGIN, *(p.relative_to(HOME).with_suffix("").as_posix().replace("/", ".")
                         for folder in WHOLE for p in (HOME / folder).glob("*.py")
                         if not p.stem.endswith("_test"))]
    found = {"torch.py": TORCH, "numpy.py": NUMPY}
    # outside the package, whose functions an answer may not call
    for part in sorted((Path(__file__).parent / "small_torch").glob("*.py")):
        found[f"small_torch/{part.name}"] = part.read_text(encoding="utf-8").replace(f"{__package__}.", "")
    while waiting:
        module = waiting.pop()
        path = file_of(module)
        if path is None or module.startswith(LEFT_OUT):
            continue
        name = path.relative_to(HOME).as_posix()
        if name not in found:
            found[name] = path.read_text(encoding="utf-8")
            waiting += imported_modules(path)
            waiting += [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
    return found


def bundle() -> bytes:
    """The files as a zip; the same files are the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(bundled_files().items()):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
