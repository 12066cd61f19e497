"""Generates every file that is built from the code.

    python tools/docs.py              `make docs`; the bias of a new row is measured
    python tools/docs.py --measure    measures the bias of all rows: after a change of a row's maths
    python tools/docs.py --check      lists stale files; exit code 1 if there is one
    python tools/docs.py numbers      lists every number of the book's prose; 1 where one is not accounted for

docs/architecture.md from the rooms and their docstrings, docs/coming-from-trl.md from
recipes/foreign_settings.py, docs/methods.md from the table of rows,
docs/settings.md and commands.md from the configs and the parser, docs/results/*.md and docs/board.md from
their JSON; for
`postgrad explain` cli/settings.json, and in studio/ book/bias.json, book/values.json, static/book-index.js.
The page of a row is built by the studio and its exported site.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME / name) for name in ("", "proofs", "tests/support")]
DOCS, PACKAGE = HOME / "docs", HOME / "postgrad"
Files = dict[Path, str]

NOUNS = {"Prompt": "records", "Rollout": "records", "Scored": "records", "Batch": "records",
         "Method": "methods.row", "Objective": "training.objectives", "Models": "models", "Run": "runs",
         "Task": "data.tasks"}
VERBS = {"sample": "sampling", "score": "rewards", "credit": "maths.credit",
         "weigh": "maths.weights", "train": "training.loop", "evaluate": "evaluation"}
FAMILIES = {  # kind of a row -> heading, and what its functions are for
    "supervised": ("Imitate", "`-log pi` of the tokens that are trained. `weigh` says how much each token "
                   "counts; `select`, which samples are imitated where the model writes its own."),
    "preference": ("Prefer", "`score` makes a number of each row (no score: a scalar head does), `loss` "
                   "makes a loss of the numbers of a pair, of a labelled answer or of a labelled step."),
    "policy": ("Reinforce", "`credit` makes advantages of rewards, `surrogate` a loss of advantages, `weigh` "
               "says how much each token counts in the step."),
}


def head(name: str) -> str:
    """The hand-written beginning of a page."""
    return (HOME / "tools" / "pages" / f"{name}.md").read_text()


def markdown(text: str) -> str:
    """Text in which no sign means anything to Markdown but for `code`, with the papers of arXiv as links."""
    words = [part if i % 2 else re.sub(r"([*<|\[])", r"\\\1", part) for i, part in enumerate(text.split("`"))]
    return re.sub(r"(?:arXiv:)?\b(\d{4}\.\d{5})\b", r"[arXiv:\1](https://arxiv.org/abs/\1)", "`".join(words))


def table(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *rows))


# docs/methods.md

def methods_page(measured: Mapping[str, dict]) -> str:
    import bias
    from against import found

    from postgrad.methods import METHODS
    from postgrad.studio.book.methods import row_source
    parts = [head("methods")]
    for kind, (title, about) in FAMILIES.items():
        rows = [[f"[`{row.name}`](../{row_source(row.name)['file']}#L{row_source(row.name)['line']})",
                 row.source, markdown(row.about), markdown(row.paper)]
                for row in METHODS.values() if row.kind == kind]
        parts.append(f"## {title}\n\n{about}\n\n"
                     f"{table(['row', 'learns from', 'what is particular', 'paper'], rows)}\n")
    rows = [[f"`{name}`", bias.said(x["bias"]), f"{x['scale']:.3g}", f"{x['noise']:.2g}",
             f"{bias.said(x['own']['bias'])}: {bias.OWN[name].words}" if "own" in x else ""]
            for name, x in measured.items()]
    names = ["row", "relative bias", "times the exact gradient", "noise of a group", "of its own objective"]
    parts += [head("bias").format(group=bias.GROUP), table(names, rows) + "\n", head("libraries")]
    held = [[f"`{h.row}`", h.library, f"[{markdown(h.words)}](../{h.file}#L{h.line})"] for h in found()]
    return "\n".join([*parts, table(["row", "library", "what is held"], held)]) + "\n"


# docs/coming-from-trl.md

def trl_page() -> str:
    """A table for each group of TRL's arguments."""
    from postgrad.recipes.foreign_settings import TRAINERS, TRL, foreign_answer
    parts = [head("coming-from-trl")]
    for title, names in {**TRL, "Of trainers, scripts, peft and other libraries": TRAINERS}.items():
        rows = [[f"`{name}`", foreign_answer(name).replace("|", r"\|")] for name in names]
        parts.append(f"### {title}\n\n{table(['argument', 'here'], rows)}\n")
    return "\n".join(parts)


# docs/architecture.md


def file_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def docstring(module: str) -> str:
    return ast.get_docstring(ast.parse(file_of(module).read_text())) or ""


def first_words(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line, as Markdown that stands for itself."""
    from postgrad.methods.pages import first_paragraph
    return markdown(first_paragraph(doc))


def described(noun: str, module: str) -> tuple[str, str]:
    """The module that defines a noun, and the docstring of its class; of an alias, that of the module."""
    found = getattr(importlib.import_module(f"postgrad.{module}"), noun)
    home = found.__module__.removeprefix("postgrad.") if isinstance(found, type) else module
    return home, (found.__doc__ if isinstance(found, type) else "") or docstring(home)


def architecture_page() -> str:
    """The rooms are those of tests/whole/layers_test.py, read without running it."""
    tree = ast.parse((HOME / "tests" / "whole" / "layers_test.py").read_text())
    value = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "ROOMS")
    rooms = []
    for level, name in reversed(list(enumerate(ast.literal_eval(value)))):
        place = f"{name}.py" if (PACKAGE / f"{name}.py").is_file() else f"{name}/"
        rooms.append([str(level), f"[`{place}`](../postgrad/{place})", first_words(docstring(name))])

    def where(module: str) -> str:
        return f"[`{module}`](../{file_of(module).relative_to(HOME)})"

    homes = {noun: described(noun, module) for noun, module in NOUNS.items()}
    nouns = [[noun, where(home), first_words(doc)] for noun, (home, doc) in homes.items()]
    verbs = [[verb, where(module), first_words(docstring(module))] for verb, module in VERBS.items()]
    return "\n".join([
        head("architecture"),
        "## Rooms\n\nImports go down only: a room imports from rooms below it in this table.\n",
        table(["level", "room", "what it holds"], rooms), "\n## Nouns\n",
        table(["noun", "where", "what it is"], nouns), "\n## Verbs\n",
        table(["verb", "where", "what it does"], verbs)]) + "\n"


# all of them

def pages(measure: bool = False) -> Files:
    """What people read on GitHub, and the biases."""
    import harness
    import bias
    import board

    from postgrad.cli import reference
    from postgrad.cli.settings import INDEX
    from postgrad.methods import METHODS
    measured = bias.kept(METHODS, anew=measure)
    return {bias.BIAS: bias.as_json(measured), DOCS / "methods.md": methods_page(measured),
            DOCS / "board.md": board.rendered(),
            DOCS / "architecture.md": architecture_page(),
            DOCS / "coming-from-trl.md": trl_page(), INDEX: reference.index_text(),
            **{DOCS / name: text for name, text in reference.pages().items()},
            **{path.with_suffix(".md"): harness.rendered(path) for path in harness.RESULTS.glob("*.json")}}


def book_values() -> Files:
    import json

    from postgrad.studio.book import chapters, computed
    values = json.dumps(computed.compute_values(HOME), indent=1, ensure_ascii=False) + "\n"
    for cached in (chapters.stored_values, chapters.chapter, chapters.all_chapters):
        cached.cache_clear()
    return {chapters.VALUES: values}


def book_index() -> Files:
    """Made of texts that hold the values: they have to be written before."""
    from postgrad.studio.book import places
    from postgrad.studio.pages import STATIC
    return {STATIC / "book-index.js": places.search_script()}


def stale(files: Files, exact: bool = False) -> list[Path]:
    """The files that would be made otherwise; exact: also where a result has become stale since."""
    from harness import settled
    settle = str if exact else settled
    return [path for path, text in files.items()
            if not path.is_file() or settle(path.read_text()) != settle(text)]


def numbers() -> int:
    from postgrad.studio.book.numbers import numbers_of_book
    rows = numbers_of_book()
    for row in rows:
        print(f"{row.kind:12} {row.number:>14}  {row.where}  {row.source}")
    count = Counter(row.kind for row in rows)
    print(f"{len(rows)} numbers: " + ", ".join(f"{count[kind]} {kind}" for kind in (
        "computed", "cited", "structural", "unaccounted")))
    return int(count["unaccounted"] > 0)


def main(words: list[str]) -> int:
    if words == ["numbers"]:
        return numbers()
    if unknown := {*words} - {"--check", "--measure"}:
        sys.exit(f"{unknown.pop()}: not known\n\n{__doc__}")
    old = []
    for make in (lambda: pages("--measure" in words), book_values, book_index):
        files = make()
        for path in stale(files, exact="--check" not in words):
            old.append(path)
            if "--check" not in words:
                path.write_text(files[path], encoding="utf-8")
            print(path.relative_to(HOME), "is not up to date: make docs" * ("--check" in words))
    return int(bool(old) and "--check" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
