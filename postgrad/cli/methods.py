"""The command `postgrad methods`: the table, the rows of a file, and one row in full, as its page has it."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

from postgrad.cli.output import say_json, table


def methods(args) -> int:
    from postgrad.methods import METHODS, rows_named
    rows = rows_named(args.method) if args.method else list(METHODS.values())
    if args.json:
        say_json([describe(row) for row in rows])
    elif args.method and len(rows) == 1:
        in_full(rows[0])
    else:
        table([{"method": r.name, "batches": r.source, "what is particular": r.about, "paper": r.paper}
               for r in rows])
    return 0


def describe(row) -> dict:
    """A row's fields; functions by name, with the constants bound to them."""
    from postgrad.methods.row import format_call

    def name(x):
        if isinstance(x, partial):
            return format_call(x.func.__name__, x.keywords)
        return x.__name__ if callable(x) else x

    return {f.name: name(getattr(row, f.name)) for f in fields(row)}


def in_full(row) -> None:
    """Its functions with their formulas and places, then its constants, then what is said about it."""
    from postgrad.cli.settings import as_typed
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    from postgrad.methods.row import format_call
    said = method_page(row, METHODS)
    print(f"{said.name}: {said.about}\nlearns from {said.source}\npaper: {said.paper or 'none'}")
    for part in said.parts:
        print(f"\n{part.field}  {format_call(part.function, part.constants)}  {part.file}:{part.line}")
        for piece in part.pieces:
            print(f"  {'  ' * (piece.kind == 'formula')}{piece.text}")
    for name, about in said.wants.items():
        print(f"\nwants {name}: {about}")
    on = [c for c in said.constants if c.on]
    if on:
        print()
        table([{"constant": c.name, "value": as_typed(c.value), "what it is": c.about} for c in on])
    for head, text in (("off", ", ".join(c.name for c in said.constants if not c.on)),
                       ("departs from its paper", said.departures),
                       ("next to it", ", ".join(f"{n.name} ({len(n.differences)} differences)"
                                                for n in said.neighbours))):
        if text:
            print(f"\n{head}: {text}")
