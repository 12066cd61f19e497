"""`postgrad verifiers`: what can judge replies by name."""

from __future__ import annotations

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table


def run_verifiers(options: CommandOptions) -> None:
    from postgrad.resolve.rewards import describe_verifiers
    rows = describe_verifiers()
    return print_json(rows) if options.json else print_table(rows)


COMMAND = Command("verifiers", "what can judge replies by name, alone or in a weighted sum",
                  run=run_verifiers,
                  epilog="--task 'number+0.2*think:FILE.jsonl' pays 1 for the right number and 0.2 for the "
                  "form.")
