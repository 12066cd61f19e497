"""The numbers of chapter 8: where a step's time goes, ragged replies, async depth, old samples, hangs."""

from __future__ import annotations

import json
import re
from math import fsum
from pathlib import Path
from typing import Any

from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

ROWS = 512           # replies of a collection
WORTH, LONG = 0.99, 256  # of a token, and tokens of a reply
DEPTH, UPDATES = 2, 4    # collections ahead, and updates of a collection
WEIGHTS, CHANCES, CAP = (0.5, 1.5, 3.5), (0.7, 0.2, 0.1), 2.0
RANKS = (1, 2, 4, 8, 16, 64)


def values(repository: Path) -> JsonDict:
    scale = json.loads((repository / "docs" / "results" / "scale.json").read_text())
    return {**layout_values(), **ragged_values(), **depth_values(scale["tables"]), **stale_values(),
            **engine_values(), **sharding_values(), **hang_values(scale["bars"])}


def layout_values() -> JsonDict:
    """The division of the figure's first state, and with longer replies."""
    from postgrad.studio.instruments.layouts import State, compute

    start = compute(State())
    equal = compute(State(lengths="equal"))
    turn = start["turn"]
    return {
        "plan_model": start["model"], "plan_gpus": start["gpus"], "plan_reply": start["reply"],
        "turn_step": turn["step"], "turn_waiting": turn["waiting"],
        "turn_share": turn["waiting"] / turn["step"],
        "equal_sampling": equal["turn"]["sampling"], "ragged_sampling": turn["sampling"],
        "ragged_factor": turn["sampling"] / equal["turn"]["sampling"],
    }


def ragged_values() -> JsonDict:
    """The longest of many replies whose lengths are geometric, in means: a harmonic number."""
    sizes = (1, 8, 64, ROWS)
    longest = {n: fsum(1 / k for k in range(1, n + 1)) for n in sizes}
    return {
        "rows": ROWS, "longest_mean": longest[ROWS], "busy": 1 / longest[ROWS], "double": 2.0,
        "longest_table": {
            "caption": "Replies of one collection, lengths spread as a geometric distribution",
            "columns": ["replies", *map(str, sizes)],
            "rows": [["the longest, in mean lengths", *(format_value(longest[n], "1") for n in sizes)],
                     ["share of the time in which a row writes",
                      *(format_value(1 / longest[n], "%") for n in sizes)]],
        },
    }


def depth_values(tables: JsonDict) -> JsonDict:
    """Throughput and pass@1 at several depths, as measured."""
    title, rows = next(item for item in tables.items() if item[0].startswith("rollouts.async_depth"))
    return {
        "depth_gain": rows[1]["times"], "depth_most": rows[-1]["times"],
        "depth_one_right": float(rows[1]["pass@1"].partition(" ")[0]),
        "depth_most_right": float(rows[-1]["pass@1"].partition(" ")[0]),
        "depth_right": float(rows[0]["pass@1"].partition(" ")[0]), "deepest": rows[-1]["async_depth"],
        "depths": {
            "caption": title.partition(": ")[2].capitalize().replace("grpo", "GRPO"),
            "columns": ["collections ahead", "tokens a second", "against none ahead", "pass@1 at the end"],
            "rows": [[str(row["async_depth"]), f"{row['tokens/s']:,}".replace(",", "\u202f"),
                      f"{row['times']:.2f} times", row["pass@1"].replace("+-", "±")] for row in rows],
        },
    }


def stale_values() -> JsonDict:
    """What old samples are worth in the figure, and examples of the questions."""
    from postgrad.studio.instruments.staleness import State, compute

    early, late = (compute(State(updates=n)) for n in (1, 4))
    held = fsum(p * min(w, CAP) for p, w in zip(CHANCES, WEIGHTS, strict=True))
    return {
        "stale_tokens": early["tokens"], "early_token": early["share"], "early_reply": early["reply"],
        "late_updates": late["updates"], "late_token": late["share"], "late_reply": late["reply"],
        "worth": WORTH, "long": LONG, "worth_reply": WORTH**LONG, "worth_lost": LONG * (1 - WORTH),
        "depth": DEPTH, "updates": UPDATES, "oldest": DEPTH * UPDATES + UPDATES - 1,
        "steady": DEPTH * UPDATES,
        "w_low": WEIGHTS[0], "w_middle": WEIGHTS[1], "w_high": WEIGHTS[2], "p_low": CHANCES[0],
        "p_middle": CHANCES[1], "p_high": CHANCES[2], "cap": CAP, "held_mean": held, "whole_mean": 1.0,
        "dropped_mean": fsum(p * w for p, w in zip(CHANCES, WEIGHTS, strict=True) if w <= CAP),
    }


def engine_values() -> JsonDict:
    """The recorded samplers that are not quite the trainer."""
    from postgrad.studio.instruments.mismatch import SAMPLERS, State, compute

    found = {name: compute(State(sampler=name)) for name in SAMPLERS}
    return {
        "engine_tokens": found["bfloat16"]["tokens"], "half_apart": found["bfloat16"]["mean_apart"],
        "half_least": found["bfloat16"]["least"], "half_most": found["bfloat16"]["most"],
        "four_bits_most": found["nf4"]["most"], "four_bits_least": found["nf4"]["least"],
    }


def sharding_values() -> JsonDict:
    """Bytes of a training GPU as weights are divided among more of them."""
    from postgrad import methods
    from postgrad.recipes.plan import CARDS, Costs, named_shape, trainer_memory
    from postgrad.training.memory import GB, Setup, estimate

    shape = named_shape("7B")
    needs = estimate(shape, methods.get_method("grpo"), Setup(bits=16))
    costs = Costs(shape, CARDS["H100"])
    parts = {n: trainer_memory(needs, costs, n) for n in RANKS}
    names = [*parts[RANKS[-1]]]
    return {
        "sharded_model": "7B", "sharded_one": sum(parts[1].values()) / GB, "card": CARDS["H100"].memory / GB,
        "sharded_eight": sum(parts[8].values()) / GB,
        "sharded": {
            "caption": "GB of each GPU that trains a 7B model by GRPO, weights divided among so many",
            "columns": ["GPUs", *map(str, RANKS)],
            "rows": [*([name, *(format_value(parts[n].get(name, 0.0) / GB, "1") for n in RANKS)]
                       for name in names),
                     ["in all", *(format_value(sum(parts[n].values()) / GB, "1") for n in RANKS)]],
        },
    }


def hang_values(bars: list[JsonDict]) -> JsonDict:
    """Processes that were stopped or killed on purpose, and the messages."""
    def text_of(start: str) -> Any:
        return next(bar["measured"] for bar in bars if bar["name"].startswith(start))

    hung, killed = text_of("a rank that hangs"), text_of("20 kills of random ranks")
    resumed, struck = text_of("each of these runs resumed"), text_of("20 kills of trainer or sampler")
    seconds = re.search(r"\(([\d.]+) s\)", hung)
    slowest = re.search(r"after ([\d.]+) s", killed)
    assert seconds and slowest
    return {
        "hang_seconds": float(seconds[1]), "kill_seconds": float(slowest[1]),
        "hangs": {
            "caption": "Processes stopped on purpose",
            "columns": ["what was done", "what happened"],
            "rows": [["a rank hangs, limit of 20 s",
                      hung.partition("; last seen")[0].removeprefix("postgrad: ")],
                     ["random ranks killed at random moments", killed],
                     ["each of these runs resumed", resumed],
                     ["trainer or sampler killed, the dead one started again", struck]],
        },
    }
