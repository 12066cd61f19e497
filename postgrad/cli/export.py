"""`postgrad export`: a model, or the adapter alone, out of a run."""

from __future__ import annotations

from pathlib import Path

from postgrad.cli.output import say_json


def export(args) -> int:
    from postgrad.recipes.export import export as write
    made = write(args.model, Path(args.out), adapter=args.adapter, dtype=args.dtype)
    if args.json:
        say_json(made)
        return 0
    print(f"{made['from']} -> {made['folder']}: {made['bytes'] / 1e6:,.1f} MB ({', '.join(made['files'])})\n"
          f"  postgrad {'audit' if made['scores'] else 'chat'} {made['folder']}")
    return 0
