"""Tables: on a terminal drawn by `rich`, into a pipe plain aligned text."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

from postgrad.runs.display.text import clean, figure, is_terminal, print_plain

NUMBER = re.compile(r"[-\u2212+]?[\d.,]+(e[-+]?\d+)?\s?%?|nan|-?inf|")


def print_rows(rows: Sequence[Mapping[str, object]],
               columns: Sequence[str | tuple[str, str]] | None = None, *, title: str = "",
               whole: Collection[str] = (), file: TextIO | None = None) -> None:
    """A table of rows: columns are keys, or (key, heading); without them, every key that occurs.

    whole: columns that a narrow terminal does not cut. Piped: plain aligned text.
    """
    file = file or sys.stdout
    columns = list(dict.fromkeys(key for row in rows for key in row)) if columns is None else columns
    keys = [(c, c) if isinstance(c, str) else c for c in columns]
    cells = [[figure(row.get(key)) for key, _ in keys] for row in rows]
    right = [bool(cells) and all(NUMBER.fullmatch(line[i]) for line in cells) for i in range(len(keys))]
    heads = [clean(head).replace("\n", " ") for _, head in keys]
    if is_terminal(file):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        grid = Table(title=Text(clean(title)) if title else None, title_justify="left", box=None,
                     padding=(0, 2, 0, 0))
        for i, ((key, _), head, side) in enumerate(zip(keys, heads, right, strict=True)):
            least = max((len(line[i]) for line in cells), default=0) if key in whole else None
            grid.add_column(Text(head), justify="right" if side else "left", min_width=least)
        for row in cells:
            grid.add_row(*map(Text, row))
        Console(file=file).print(grid)
        return
    if title:
        print_plain(file, title)
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(keys))]
    for line in [heads, *cells]:
        put = [text.rjust(w) if side else text.ljust(w)
               for text, w, side in zip(line, widths, right, strict=True)]
        print_plain(file, "  ".join(put).rstrip())
