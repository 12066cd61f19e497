"""The command `postgrad ledger`: what a training gained and what it lost."""

from __future__ import annotations

from postgrad.cli.measuring_options import LedgerOptions
from postgrad.cli.options import made
from postgrad.cli.output import say_json, table
from postgrad.runs import ledger as book


def ledger(args) -> int:
    from postgrad.recipes.panel import ledger_of
    asked = made(LedgerOptions, args)
    found = ledger_of(asked.run, panel=asked.panel, problems=asked.problems, samples=asked.samples,
                      seed=asked.seed, every=asked.all, device=asked.device,
                      watch=None if args.json else "auto")
    first, *others = found["entries"]
    stages = not all(entry["name"].startswith(("start", "step ")) for entry in found["entries"])
    others = others if asked.all or stages else others[-1:]
    against = {entry["name"]: book.lines(first, entry) for entry in others}
    if args.json:
        return say_json(found | {"against_first": {name: [line._asdict() for line in lines]
                                                   for name, lines in against.items()},
                                 "says": {name: book.sentences(lines) for name, lines in against.items()}})
    for name, lines in against.items():
        table([book.shown(line) for line in lines],
              title=f"{asked.run}, {first['name']} against {name}: up to {found['problems']} problems of "
              f"each task, {found['samples']} samples of each (95 % intervals over problems)")
        print("\n" + "\n".join(book.sentences(lines)) + "\n")
    return print(f"One interval in twenty misses by chance: believe a small loss when it comes again with "
                 f"another --seed. Kept in {asked.run}/{book.FILE}.")
