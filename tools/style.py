"""Holds the English of the book, its figures, the docs and the docstrings against docs/style.md.

    python tools/style.py         lists every banned construction; exit code 1 if there is one
    python tools/style.py PATH... the same for these files

A rule is a pattern and what to write instead. Formulas, code and values ({{...}}) are left out. The rules
name the faults of our own earlier text; they are no grammar.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parent.parent
STUDIO = HOME / "postgrad" / "studio"

RULES = {  # pattern -> instead
    r"what (?:is|was|were|has been) (?:left|found|told|said|shown|kept|made|given|seen|judged|sampled|meant|"
    r"rewarded|expected|written|compared)\b": "the noun: the rest, the samples, the intention",
    r", for (?:(?:it|they|there|he|she|one|nobody) (?:is|are|was|were|has|have|had|does|can|cannot|\w+s)|"
    r"(?:the|its|their) \w+ (?:is|are|was|were|has|have|had))\b": "because, or two sentences",
    r"\bof the size called\b": "a 7B model",
    r"\b[Aa]s what (?:does|do|is|are)\b": "What does it count as?",
    r"\bmakes? as many\b": "the verb of what happens",
    r"\bfind methods that\b": "find that methods which ... come out ahead",
    r"\bbelongs? into\b": "belongs in",
    r"\brightly\b": "correctly",
    r"\banew\b": "again",
    r"\b(?:[Ww]hoever|[Ss]omebody who|[Nn]obody who)\b": "a person, or the role: a labeller, a judge",
    r"\bbefalls?\b": "happens to",
    r"\ball the same\b": "even so",
    r"\bmends?\b(?![=.])": "fixes",
    r"\bin the mean\b": "on average",
    r"\belse than\b": "other than",
    r"\bless (?:the|its|beta|β)\b": "minus",
    r"\b(?:told|tell it) from\b": "told apart from",
    r"\bat the time of asking\b": "at inference time",
    r"\bcame to on\b": "scored on",
    r"\bby far is\b": "clearly",
    r"\bin the place of\b": "in place of",
    r"\bnor of the one\b": "nor that of the one",
}
COMPILED = [(re.compile(pattern), instead) for pattern, instead in RULES.items()]
OUTSIDE = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$|`[^`\n]+`|\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|"
                     r"\]\([^)\s]+\)|\[@\w+\]", re.S)


class StyleHit(NamedTuple):
    """A banned construction: its file and line, the words around it, and what to write instead."""

    where: str
    words: str
    instead: str


def prose_files() -> list[Path]:
    """The texts of the book, the pages of the book and of the instruments, the docs, and the package for its
    docstrings. Results are written by proofs, and the style sheet quotes what it bans."""
    text = STUDIO / "book" / "text"
    pages = STUDIO / "templates"
    return [*sorted(text.rglob("*.md")), *sorted(p for p in text.rglob("*.toml") if p.name != "sources.toml"),
            *sorted((pages / "book").glob("*.html")), *sorted((pages / "instruments").rglob("*.html")),
            HOME / "README.md", HOME / "CONTRIBUTING.md",
            *sorted(p for p in (HOME / "docs").glob("*.md") if p.name != "style.md"),
            *sorted((HOME / "postgrad").rglob("*.py"))]


def prose_of(path: Path) -> str:
    """The text of a file, on its lines: of code its docstrings, of an instrument all that it says."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or "instruments" in path.parts or "exercises" in path.parts:
        return text
    prose, lines = [""] * text.count("\n"), text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            first, last = node.body[0].lineno - 1, node.body[0].end_lineno
            prose[first:last] = lines[first:last]
    return "\n".join(prose)


def style_hits(text: str, where: str) -> Iterator[StyleHit]:
    bare = OUTSIDE.sub(lambda m: "\n" * m[0].count("\n") + " ", text)
    for pattern, instead in COMPILED:
        for match in pattern.finditer(bare):
            line = bare.count("\n", 0, match.start()) + 1
            around = " ".join(bare[max(0, match.start() - 40): match.end() + 40].split())
            yield StyleHit(f"{where}:{line}", around, instead)


def all_hits(files: Iterable[Path]) -> list[StyleHit]:
    return [hit for path in files for hit in style_hits(prose_of(path), str(path))]


def main(paths: list[str]) -> int:
    hits = all_hits(map(Path, paths)) if paths else all_hits(prose_files())
    for hit in hits:
        print(f"{hit.where}: {hit.words}\n    write: {hit.instead}")
    print(f"{len(hits)} banned constructions")
    return int(bool(hits))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
