"""The model card of what a run made: a README.md whose YAML front matter says how it came about."""

from __future__ import annotations

import json
from pathlib import Path

from postgrad.models import on_hub
from postgrad.resolve.models import run_named
from postgrad.runs import Run


def model_card(name: str, *, adapter: bool = False) -> str | None:
    """The card of the model that RUN or RUN@STEP opens; None where the name is no run's, or that of a run's
    start."""
    found = run_named(name)
    if not found or found[1] == "0":
        return None
    run = Run.open(found[0])
    step = int(found[1] or run.latest().name)
    facts = facts_of(run, step) | {"library_name": "peft" if adapter else "transformers"}
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items())
    return f"---\n{front}\n---\n\n{card_text(run, facts)}"


def facts_of(run: Run, step: int) -> dict:
    """What the front matter says. Names of folders are cut to their last part: a card is read elsewhere."""
    info = run.info
    row, method = info.get("row") or {}, info.get("method") or info["recipe"]
    model, asked = info.get("model"), info.get("task") or kept_name(run.config.get("data"))
    said = [e for e in run.rows("evals")[0] if e["step"] <= step]
    return {"base_model": model if on_hub(str(model)) else last_part(model), "tags": ["postgrad", method],
            "method": method, "constants": row.get("constants", {}), "task": last_part(asked),
            "reward": kept_name(run.config.get("reward")), "steps": step, "seed": info.get("seed"),
            "evaluation": figures_of(said[-1]) if said else None}


def figures_of(row: dict) -> dict:
    """An evaluation without its replies, and without how long it took."""
    return {k: v for k, v in row.items() if k not in ("seconds", "answers")}


def last_part(name: object) -> object:
    return Path(name).name if isinstance(name, str) else name


def kept_name(value: object) -> object:
    """A value of a saved config as its name: what was handed in has one in its record."""
    return last_part(value.get("name") if isinstance(value, dict) else value)


def card_text(run: Run, facts: dict) -> str:
    row = run.info.get("row") or {}
    paper = f" ({row['paper']})" if row.get("paper") else ""
    lines = [f"# {run.folder.name}", "",
             f"{facts['base_model']} after {facts['steps']} steps of {facts['method']}{paper} on "
             f"{facts['task']}, trained with postgrad {run.info.get('version', '')}.".replace(" .", ".")]
    if facts["constants"]:
        lines += ["", "Constants: " + ", ".join(f"{k} {v}" for k, v in facts["constants"].items()) + "."]
    figures = (facts["evaluation"] or {}).items()
    measured = {k: v for k, v in figures if isinstance(v, int | float) and k != "step"}
    if measured:
        lines += ["", f"| held-out problems, step {facts['evaluation']['step']} | |", "|---|---|",
                  *(f"| {k} | {v:.4g} |" for k, v in measured.items())]
    return "\n".join(lines) + "\n"
