"""The pages that are made from the code: python -m postgrad.cli.reference [FOLDER] writes docs/settings.md, and
the index of settings that `postgrad explain` reads without torch. A test holds them against the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from postgrad.cli.settings import INDEX, as_shown, as_typed

MADE = "Made from the code by `python -m postgrad.cli.reference`; edit the dataclasses, not this page."


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def markdown(columns: list[str], rows: list[list[object]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(map(cell, line)) + " |" for line in lines]


def settings_page() -> str:
    """docs/settings.md: a table a recipe, and one for the constants of rows."""
    from postgrad import recipes
    from postgrad.recipes.explained import first_row, preview, rows_of, settings_of
    lines = ["# Settings", "", MADE, "",
             "`postgrad train grpo:words optim.lr=1e-4 group_size=4` sets two of them: KEY=VALUE, without its group "
             "where only one group has it. `postgrad train grpo --show` prints those of a run, `postgrad explain "
             "group_size` one of them. In Python: "
             "`postgrad.fit(\"tiny-chat\", \"grpo\", task=\"words\", lr=1e-4, group_size=4)`.", "",
             "A value that is left open is `none`; what stands for it is in brackets. Defaults are those for the "
             "recipe's own model."]
    for recipe in recipes.RECIPES | recipes.PIPELINES:
        config = preview(first_row(recipe))[1]
        rows = [row for row in settings_of(config) if not row["setting"].startswith("method.")]
        trained = ", ".join(rows_of(recipe)) or recipe
        lines += ["", f"## {recipe}", "", f"`postgrad train NAME` with one of: {trained}.", "",
                  *markdown(["setting", "default", "what it is", "when to change it"],
                            [[f"`{r['setting']}`", as_shown(r), r["about"], r["when"]] for r in rows])]
    return "\n".join([*lines, *constants_part()]) + "\n"


def constants_part() -> list[str]:
    from postgrad.recipes.explained import index
    rows = [row for row in index() if row["setting"].startswith("method.")]

    def defaults(row: dict) -> str:
        return ", ".join(f"{name} {as_typed(value)}" for name, value in row["defaults"].items())

    return ["", "## Constants of rows", "", "Every number of a row can be set: `method.high=0.3`.", "",
            *markdown(["constant", "what it is", "when to change it", "in the rows"],
                      [[f"`{r['setting']}`", r["about"], r["when"], defaults(r)] for r in rows])]


def pages() -> dict[str, str]:
    """What is written into the folder of documents, by file."""
    return {"settings.md": settings_page()}


def index_text() -> str:
    from postgrad.recipes.explained import as_json, index
    return as_json(index())


def main(folder: str = "docs") -> int:
    for name, text in pages().items():
        (Path(folder) / name).write_text(text, encoding="utf-8")
    INDEX.write_text(index_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
