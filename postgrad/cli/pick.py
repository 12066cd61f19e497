"""`postgrad pick`: best-of-n or rejection sampling, as data for SFT."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import Command, CommandOptions, options_from
from postgrad.cli.output import format_figure, print_json, print_table, progress_tracker
from postgrad.system.options import PickConfig
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class PickOptions(PickConfig, CommandOptions):
    out: str = setting(about="where the kept replies are written", metavar="FILE.jsonl")
    rates: str | None = setting(None, "where to write how often each prompt was answered well enough, for "
                                "difficulty.rates of a training", metavar="FILE.jsonl")


def run_pick(options: PickOptions) -> None:
    from postgrad.recipes import pick
    counts = pick.pick_replies(options_from(PickConfig, options), Path(options.out),
                      rates=Path(options.rates) if options.rates else None,
                      track=progress_tracker(f"sampling {options.model}", options.json))
    if options.json:
        return print_json(counts)
    return print_table([{"": name, "value": format_figure(value)} for name, value in counts.items()
                        if value is not None])


COMMAND = Command("pick", "best-of-n or rejection sampling: keep a model's good replies as data for SFT",
                  PickOptions, run_pick)
