"""`postgrad plan` against steps that others measured and published (published.toml). A part of
proofs/ecosystem.py."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from harness import HOME, Bars, Tables, bar

from postgrad import methods
from postgrad.models import Config
from postgrad.recipes.plan import (
    DISK,
    FITTED,
    FLASH3,
    Costs,
    ReplyLengths,
    Work,
    cards_named,
    plan_options,
)
from postgrad.training.memory import Setup

WITHIN = 0.25


def planned(row: dict, source: dict, shape: Config) -> float | None:
    """Seconds that the plan says of a published row; None where it finds no way that fits."""
    count, card = cards_named(row["gpus"])
    if tokens := row.get("microbatch"):
        each = source["micro_batches"]
        work = Work(prompts=count * each, group=1, prompt=0, reply=tokens, tokens_per_pass=tokens)
        costs = Costs(shape, card, replace(FITTED, headed=source["head_bytes"]), FLASH3)
        return (costs.update(work, count, recompute=True) + costs.weights / DISK) / each
    rows = source["prompts"] * source["group"]
    prompt = round(row["tokens_per_second"] * count * row["seconds"] / rows) - row["reply"]
    lengths = ReplyLengths(mean=row["reply"], longest=row["longest"] - prompt)
    work = Work(prompts=rows, group=1, prompt=prompt, reply=lengths.mean)  # each row with a prompt of its own
    method = methods.change(methods.get_method("grpo"), minibatches=source["updates"])
    options = plan_options(shape, method, count, card, work, lengths,
                           Setup(bits=16, recompute=row["recompute"]), sync=card.far)
    return next((option.times.step for option in options if option.layout.together == row["collocated"]
                 and option.ahead == (not row["collocated"]) and option.layout.tensor == row["tensor"]
                 and (row["collocated"] or option.layout.trainers == option.layout.samplers)), None)


def plan(folder: Path) -> tuple[Bars, Tables]:
    """Each published row, with the plan of the same work."""
    file = tomllib.loads((HOME / "proofs/published.toml").read_text())
    shapes = {name: Config(**shape, max_position_embeddings=65536) for name, shape in file["models"].items()}
    bars, table = [], []
    for name, source in file["sources"].items():
        offs = []
        for row in source["rows"]:
            seconds = planned(row, source, shapes[row["model"]])
            offs.append(seconds / row["seconds"] - 1 if seconds else None)
            table.append({"source": row["cited"], "model": row["model"], "GPUs": row["gpus"],
                          "work": f"{row['microbatch']} tokens a GPU" if "microbatch" in row else
                          f"{row['reply']} tokens a reply, {'in turn' if row['collocated'] else 'one ahead'}",
                          "published": row["seconds"], "planned": seconds and round(seconds, 2),
                          "off": "does not fit" if offs[-1] is None else f"{offs[-1]:+.0%}"})
        met = sum(off is not None and abs(off) <= WITHIN for off in offs)
        bars.append(bar(f"postgrad plan against published steps of {name}, {len(offs)} rows",
                        "all within 25 %",
                        f"{met} of {len(offs)}: {', '.join(row['off'] for row in table[-len(offs):])}",
                        met == len(offs)))
    return bars, {"postgrad plan against published steps, in seconds": table}


PARTS = {"plan": plan}
