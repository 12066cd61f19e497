"""`postgrad ledger`: what a training gained and what it lost."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.options import DEVICE
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class LedgerOptions(CommandOptions):
    run: str = setting(about="the folder of a run or of a pipeline", metavar="RUN", positional=True)
    panel: str | None = setting(None, "standard (words, arithmetic, countdown, questions, constraints, "
                                "words-es, and text: the perplexity of held-out pretraining text), or names "
                                "with commas between; without it: as the run has it, else standard",
                                metavar="standard|NAME,NAME")
    problems: int | None = setting(None, "problems of each task; without it: as the run has it, else 50")
    samples: int | None = setting(None, "replies to each problem; without it: as the run has it, else 4")
    seed: int | None = setting(None, "of the problems and the sampling; without it: as the run has it, else "
                               "0")
    all: bool = setting(False, "every checkpoint that the run has kept, not only the first and the last")
    device: str = setting("cpu", DEVICE)


def run_ledger(options: LedgerOptions) -> None:
    from postgrad.recipes.panel import measure_ledger
    from postgrad.runs import ledger
    measured = measure_ledger(options.run, panel=options.panel, problems=options.problems,
                              samples=options.samples,
                         seed=options.seed, every=options.all, device=options.device,
                         display=not options.json)
    first, *others = measured["entries"]
    stages = not all(entry["name"].startswith(("start", "step ")) for entry in measured["entries"])
    others = others if options.all or stages else others[-1:]
    against = {entry["name"]: ledger.compare_entries(first, entry) for entry in others}
    if options.json:
        return print_json(measured | {"against_first": {name: [line._asdict() for line in lines]
                                                        for name, lines in against.items()},
                                      "says": {name: ledger.sentences(lines)
                                               for name, lines in against.items()}})
    for name, lines in against.items():
        print_table([ledger.table_row(line) for line in lines],
                    title=f"{options.run}, {first['name']} against {name}: up to {measured['problems']} "
                    f"problems of each task, {measured['samples']} samples of each (95 % intervals over "
                    "problems)")
        print("\n" + "\n".join(ledger.sentences(lines)) + "\n")
    return print(f"One interval in twenty misses by chance: believe a small loss when it comes again with "
                 f"another --seed. Saved in {options.run}/{ledger.FILE}.")


COMMAND = Command("ledger", "what a run gained and what it lost, on a panel of tasks: its start against its "
                  "end", LedgerOptions, run_ledger)
