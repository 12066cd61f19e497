"""What Python finds beforehand for the scripts of the instruments: recorded data, constants, and the answers
of functions that are asked for few things."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from typing import Any

from postgrad.studio.instruments import (
    algorithms,
    bandit,
    bradley_terry,
    dpo_ppo,
    gae,
    grpo,
    kl_estimators,
    language_mixing,
    ledger,
    mismatch,
    pass_at_k,
    pipeline,
    ppo_clip,
    reward_hacking,
)
from postgrad.studio.instruments import preference_labeller as labeller
from postgrad.studio.instruments.base import ChoiceControl, Control, Instrument, Slider
from postgrad.studio.json_types import JsonDict, JsonList, Values
from postgrad.studio.recordings import FOLDER, recording
from postgrad.studio.script.expressions import js_literal


def call_tables(instrument: Instrument) -> dict[Any, list[Values]]:
    """Functions that the script of an instrument calls -> the arguments that it may call them with."""
    sizes, ranks, bits = ("1B", "7B", "13B", "70B"), (0, algorithms.RANK), (16, 4)
    tokens = next(control_values(c) for c in algorithms.CONTROLS if c.name == "tokens")
    return {
        algorithms.method_facts: [(name,) for name in algorithms.NAMES],
        algorithms.parameter_counts: list(product(sizes, ranks, bits)),
        algorithms.memory_parts: list(product(algorithms.NAMES, sizes, ranks, bits, tokens, (True, False))),
        bandit.recorded_levers.__wrapped__: [()],
        bandit.machine_draws.__wrapped__: [()],
        grpo.recorded_verdicts: [(size,) for size in grpo.SIZES],
        language_mixing.language_runs: [()],
        ledger.ledger_books: [()],
        pass_at_k.right_counts.__wrapped__: [()],
        pipeline.stage_refusals.__wrapped__: [()],
        labeller.labelled_by.__wrapped__: [()],
        labeller.quality_in_words.__wrapped__: [()],
        recording.__wrapped__: [("pairs" if instrument.state is labeller.State else "pipeline",)],
        reward_hacking.available_labs: [()],
        reward_hacking.rank_chances.__wrapped__: [(n,) for n in reward_hacking.SIZES],
    }


def formula_constants() -> dict[str, JsonDict]:
    """What the formulas of static/formulas.js are given, by instrument."""
    from postgrad.maths.credit import FLAT
    return {
        "bradley-terry": {"widest": bradley_terry.WIDEST, "count": bradley_terry.GRID},
        "ppo-clip": {"lowest": ppo_clip.LOWEST, "highest": ppo_clip.HIGHEST, "close": ppo_clip.CLOSE,
                     "rounding": ppo_clip.ROUNDING, "rows": ppo_clip.clips_of_rows()},
        "grpo": {"group": recording("group"), "flat": FLAT, "methods": ["grpo", "dr_grpo"]},
        "dpo-ppo": {"reference": dpo_ppo.REFERENCE, "pairs": dpo_ppo.PAIRS, "farthest": dpo_ppo.FARTHEST,
                    "count": dpo_ppo.GRID, "length": dpo_ppo.STEP, "machines": dpo_ppo.machines(),
                    "answers": list(dpo_ppo.ANSWERS)},
        "kl-estimators": {"reference": kl_estimators.REFERENCE, "widest": kl_estimators.WIDEST,
                          "count": kl_estimators.GRID, "close": kl_estimators.CLOSE},
        "gae": {"values": gae.true_values(), "needed": gae.NEEDED, "lambdas": gae.GRID, "paths": gae.CHOICES},
        "mismatch": {"data": recording("samplers"), "widest": mismatch.WIDEST, "drawn": mismatch.DRAWN},
    }


def script_twins() -> dict[Any, str]:
    """Functions on tensors that what is translated calls -> the same in static/formulas.js."""
    return {labeller.unseen_accuracy.__wrapped__: "head.onUnseen", labeller.last_pair: "head.lastPair",
            labeller.label_gaps: "head.gaps", labeller.unseen_scores: "head.scores"}


def head_features() -> JsonDict:
    """What the labeller's head is trained on: the features of both answers of each pair, float32 in base64,
    and the constants of `reward_head.fit`."""
    from safetensors.torch import load_file

    from postgrad.studio.label import reward_head
    found = load_file(FOLDER / "features.safetensors")
    quality = [item["quality"] for item in recording("pairs")["unseen"]]
    return {name: b64encode(x.float().numpy().tobytes()).decode() for name, x in found.items()} | {
        "width": found["unseen"].shape[-1], "prior": reward_head.PRIOR, "steps": reward_head.STEPS,
        "better": [(a > b) - (a < b) for a, b in quality]}


def control_values(control: Control) -> JsonList:
    """The values that a control can take."""
    if isinstance(control, Slider):
        steps = round((control.high - control.low) / control.step)
        found = [round(control.low + i * control.step, 10) for i in range(steps + 1)]
        return [int(x) for x in found] if isinstance(control.step, int) else found
    return [value for value, _ in control.pairs()] if isinstance(control, ChoiceControl) else [True, False]


def all_states(instrument: Instrument) -> Iterator[Any]:
    """Every state that its controls can make."""
    controls = instrument.shown(instrument.state())
    names = [control.name for control in controls]
    for values in product(*map(control_values, controls)):
        yield instrument.settle(instrument.state(**dict(zip(names, values, strict=True))))


def state_table(instrument: Instrument) -> JsonDict:
    """The numbers of every state: {"fields", "pool", "rows"}, a row the places of its fields' values in the
    pool, by the state's query. Most values are shared by many states, and stand there once."""
    names: list[str] = []
    pool: dict[str, int] = {}
    rows = {}
    for state in all_states(instrument):
        numbers = instrument.compute(state)
        names = names or list(numbers)
        rows[instrument.query(state)] = [pool.setdefault(js_literal(numbers[name]), len(pool))
                                         for name in names]
    return {"fields": names, "pool": list(pool), "rows": rows}


def field_kinds(instrument: Instrument) -> dict[str, str]:
    """The type of each field of the state; of a tuple, of its members."""
    start = instrument.state()
    values = {f.name: getattr(start, f.name) for f in fields(start)}
    return {name: f"{type(v[0]).__name__}s" if isinstance(v, tuple) else type(v).__name__
            for name, v in values.items()}
