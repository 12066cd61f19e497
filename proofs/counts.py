"""Counts of the code base: rooms, import arrows, circles, shared names, lines.

    python proofs/counts.py              a summary
    python proofs/counts.py arrows       every arrow between rooms, with the files that make it
    python proofs/counts.py names [ROOM] public definitions that share their name with another
    python proofs/counts.py circles      modules that import each other, imports inside functions counted
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "postgrad"

# Module protocols: every module of such a folder defines these names on purpose, and a registry reads them.
PROTOCOLS = {
    # a task's `load`, and what it is made of, by the names of a task file (data/tasks/__init__.py)
    "data/tasks": {"load", "prompts", "verify", "gold", "demonstrations", "play"},
    "data/tasks/adapters": {"load"},
    "studio/instruments": {"State", "compute", "controls", "insight", "settle"},
    "studio/exercises/coding": {"cases", "right"},
    "studio/book/computed": {"values"},
    "models/kernels": {  # the Protocol `Kernels`
        "add_norm", "attend_cached", "attention", "attention_layout", "compact_rows", "fused_sampler",
        "fused_step", "linear", "nudge", "packed_names", "record_tokens", "rms_norm", "rotate",
        "rotate_and_store", "sample_tokens", "step_attention", "store_kv", "swiglu", "swiglu_joined"},
    "recipes": {"build"},
    "recipes/pipelines": {"pipeline"},
}


def modules() -> dict[str, Path]:
    """Module name -> file, tests left out."""
    out = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.name.endswith("_test.py"):
            parts = ("postgrad", *path.relative_to(PACKAGE).with_suffix("").parts)
            out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a module imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("postgrad"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else str(node.module)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def arrows(known: dict[str, Path], trees: dict[str, ast.Module]) -> dict[tuple[str, str], set[str]]:
    """(room, room it imports) -> the modules that do; the package's root apart."""
    out: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for other in imported(tree, known):
            pair = room(module), room(other)
            if pair[0] != pair[1] and not {"__init__", "__main__"} & {*pair}:
                out[pair].add(module)
    return out


def circles(known: dict[str, Path], trees: dict[str, ast.Module]) -> list[str]:
    """Modules on import circles, or between two of them; imports inside functions count."""
    needs = {m: set(imported(tree, known)) - {m} for m, tree in trees.items()}
    left = {*needs}
    loose = left
    while loose:
        needed = set().union(*(needs[m] for m in left))
        loose = {m for m in left if not needs[m] & left or m not in needed}
        left = left - loose
    return sorted(left)


def shared_names(trees: dict[str, ast.Module], files: dict[str, Path]) -> dict[str, list[str]]:
    """Public name -> the modules that define it at their top level, where several do."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        folder = files[module].parent.relative_to(PACKAGE).as_posix()
        protocol = PROTOCOLS.get(folder, set())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not node.name.startswith("_") and node.name not in protocol:
                    homes[node.name].append(module)
    return {name: where for name, where in sorted(homes.items()) if len(where) > 1}


def lines(*folders: str, without: tuple[str, ...] = ()) -> int:
    return sum(len(path.read_text().splitlines()) for folder in folders
               for path in (HOME / folder).rglob("*.py")
               if not any(path.is_relative_to(HOME / other) for other in without)
               and not (folder == "postgrad" and path.name.endswith("_test.py")))


def summary() -> dict[str, int]:
    files = modules()
    trees = {module: ast.parse(path.read_text()) for module, path in files.items()}
    names = shared_names(trees, files)
    return {
        "rooms": sum(path.is_dir() and any(path.glob("*.py")) for path in PACKAGE.iterdir()),
        "loose modules": len(list(PACKAGE.glob("*.py"))),
        "arrows": len(arrows(files, trees)),
        "modules in circles": len(circles(files, trees)),
        "shared names": len(names),
        "definitions that share a name": sum(map(len, names.values())),
        "lines of the package without studio": lines("postgrad", without=("postgrad/studio",)),
        "lines of studio": lines("postgrad/studio"),
        "lines of proofs, bench, tools": lines("proofs", "bench", "tools"),
        "lines of tests": lines("tests"),
        "lines of examples": lines("examples"),
    }


def main() -> None:
    what, *rest = sys.argv[1:] or ["summary"]
    files = modules()
    trees = {module: ast.parse(path.read_text()) for module, path in files.items()}
    if what == "arrows":
        for (a, b), by in sorted(arrows(files, trees).items(), key=lambda item: len(item[1])):
            print(f"{a} -> {b}: {len(by)} {sorted(by)[:4]}")
    elif what == "circles":
        print(*circles(files, trees), sep="\n")
    elif what == "names":
        for name, where in shared_names(trees, files).items():
            if not rest or any(room(module) == rest[0] for module in where):
                print(f"{name}: {' '.join(module.removeprefix('postgrad.') for module in where)}")
    else:
        for name, value in summary().items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
