"""`postgrad audit`: a reward model, probed for biases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table, progress_tracker
from postgrad.system.options import DEVICE
from postgrad.system.settings import Range, setting

PROBES = "length,format,position,sycophancy,repetition"


@dataclass(frozen=True, kw_only=True)
class AuditOptions(CommandOptions):
    model: str = setting(about="a reward model: a run's folder (RUN@20: at a step), a model's folder or a "
                         "hub id", positional=True)
    task: str | None = setting(None, "whose held-out answers are edited; without it: questions",
                               metavar="NAME|FILE")
    pairs: str | None = setting(None, "or the answers of preference pairs of your own", metavar="FILE.jsonl")
    probes: str = setting(PROBES, "what is probed", metavar="NAME,NAME")
    count: int = setting(100, "how many answers", within=Range("at least 2", lambda x: x >= 2))
    seed: int = setting(0, "of the answers and the wordings")
    device: str = setting("cpu", DEVICE)
    out: str | None = setting(None, "write the figures here", metavar="FILE.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out and not Path(self.out).parent.is_dir():
            raise ValueError(f"--out {self.out}: there is no folder {Path(self.out).parent}.")
        if self.pairs and self.task:
            raise ValueError("the answers come either from --task NAME or from --pairs FILE.jsonl, not both.")


def run_audit(options: AuditOptions) -> None:
    from postgrad.recipes.audit import audit_reward_model
    from postgrad.runs import json_value
    from postgrad.system.files import write_text
    report = audit_reward_model(options.model, task=options.task or "questions", pairs=options.pairs,
                                probes=options.probes.split(","), count=options.count, seed=options.seed,
                                device=options.device,
                                track=progress_tracker(f"scoring for {options.model}", options.json))
    if options.out:
        write_text(Path(options.out), json.dumps(json_value(report), indent=1, allow_nan=False) + "\n")
    return print_json(report) if options.json else print_audit(report)


def print_audit(report: Mapping[str, Any]) -> None:
    """A table of the probes, then a sentence each."""
    from postgrad.runs.display import clean
    print_table([probe_row(probe) for probe in report["probes"]],
                title=f"{report['model']}: {report['answers']} answers to {report['prompts']} prompts "
                f"({report['source']}), scores {report['mean']:.3g} with a spread of {report['spread']:.3g}")
    print()
    for probe in report["probes"]:
        print(clean(probe["sentence"]))
    left = {f"{why} ({p['probe']})": n for p in report["probes"] for why, n in p["left_out"].items() if n}
    if report["too_long"]:
        left["answers over the model's length"] = report["too_long"]
    if left:
        print("left out: " + ", ".join(f"{n} {why}" for why, n in left.items()))
    print("\nEffects are in units of the spread of the scores. A bias is an effect of at least "
          f"{report['threshold']} with an interval that excludes 0.")


def probe_row(probe: Mapping[str, Any]) -> dict[str, str]:
    signed = {k: "" if probe[k] is None else f"{probe[k]:+.2f}" for k in ("effect", "by_length", "truth")}
    measured = probe["effect"] is not None
    return {"probe": probe["probe"], "verdict": probe["verdict"], "effect": signed["effect"],
            "95 % interval": " to ".join(f"{x:+.2f}" for x in probe["interval"]) if measured else "",
            "edits that rise": f"{probe['rises']:.0%}" if measured else "",
            "tokens added": f"{probe['added']:.1f}" if measured else "",
            "by length": signed["by_length"], "true quality": signed["truth"]}


COMMAND = Command("audit", "probe a reward model for biases: length, format, position, sycophancy, "
                  "repetition", AuditOptions, run_audit)
