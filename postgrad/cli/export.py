"""`postgrad export`: a model, or the adapter alone, out of a run."""

from __future__ import annotations

import sys
from pathlib import Path

from postgrad.cli.output import say_json

LARGE = 100_000_000  # bytes of weights from which on one waits


def export(args) -> int:
    from postgrad.recipes.export import export as write
    if not args.json:
        announce(args.model, args.out)
    made = write(args.model, Path(args.out), adapter=args.adapter, dtype=args.dtype)
    if args.json:
        say_json(made)
        return 0
    print(f"{made['from']} -> {made['folder']}: {made['bytes'] / 1e6:,.1f} MB ({', '.join(made['files'])})\n"
          f"  postgrad {'audit' if made['scores'] else 'chat'} {made['folder']}")
    return 0


def announce(model: str, out: str) -> None:
    """What takes long is said before it begins."""
    from postgrad.models.load import model_files
    from postgrad.resolve.models import open_folder
    size = sum(path.stat().st_size for path in model_files(open_folder(model)))
    if size >= LARGE:
        print(f"{model}: {size / 1e9:.1f} GB of weights are read, then written to {out} ...", file=sys.stderr)
