"""`postgrad rlaif` and `pick`: a model's replies as data for SFT, DPO and reward models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postgrad.cli.options import Command, CommandOptions, options_from
from postgrad.cli.output import format_figure, print_json, print_table, progress_tracker
from postgrad.system.options import PickConfig, RLAIFConfig
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class RLAIFOptions(RLAIFConfig, CommandOptions):
    out: str = setting(about="folder for revisions.jsonl and pairs.jsonl", metavar="FOLDER")


def run_rlaif_command(options: RLAIFOptions) -> None:
    from postgrad.recipes import rlaif
    folder = Path(options.out)
    summary = rlaif.run_rlaif(options_from(RLAIFConfig, options), folder,
                              track=progress_tracker(f"{options.model} on {options.task}", options.json))
    if options.json:
        return print_json(summary)
    print_rlaif(summary)
    for recipe, file in (("sft", "revisions"), ("dpo", "pairs")):
        if summary[file]:
            print(f"  postgrad train {recipe} model={options.model} data={folder}/{file}.jsonl")
    return None


def print_rlaif(summary: Mapping[str, Any]) -> None:
    from postgrad.runs.display import clean
    print_table(summary["rules"],
                title=f"{summary['revisions']} replies of {summary['model']}, judged by {summary['judge']}")
    print(f"\nkeep every rule: {summary['keep all rules before']} before, "
          f"{summary['keep all rules after']} after the revision"
          f"\npairs: {summary['pairs']}; ties {summary['ties']}, equal texts {summary['identical']}, repeats "
          f"{summary['repeated']}"
          f"\nleft out: {summary['empty']} empty replies, {summary['emptied']} revisions that left nothing")
    if summary["judge"] != "rules" and summary["reply shown first preferred"] is not None:
        print(f"the reply shown first was preferred by {summary['reply shown first preferred']:.1%} "
              "(50 % is no bias)")
    if example := summary.get("example"):
        print("\n" + "\n".join(f"{name:<10}{clean(text)}" for name, text in example.items()) + "\n")


# pick

@dataclass(frozen=True, kw_only=True)
class PickOptions(PickConfig, CommandOptions):
    out: str = setting(about="file for the replies kept", metavar="FILE.jsonl")
    rates: str | None = setting(None, "also write each prompt's pass rate, for the setting difficulty.rates",
                                metavar="FILE.jsonl")


def run_pick(options: PickOptions) -> None:
    from postgrad.recipes import pick
    counts = pick.pick_replies(options_from(PickConfig, options), Path(options.out),
                      rates=Path(options.rates) if options.rates else None,
                      track=progress_tracker(f"sampling {options.model}", options.json))
    if options.json:
        return print_json(counts)
    return print_table([{"": name, "value": format_figure(value)} for name, value in counts.items()
                        if value is not None])


COMMANDS = (
    Command("rlaif", "critique, revise and compare a model's replies by a constitution, as data for "
            "SFT, DPO and reward models", RLAIFOptions, run_rlaif_command),
    Command("pick", "keep a model's best replies as data for SFT: best-of-n or rejection sampling",
            PickOptions, run_pick),
)
