"""Exports a model: a folder in Hugging Face's layout, without the training state, or its adapter alone. A
run's model comes with a model card, a README.md with YAML front matter.

    postgrad export runs/grpo-words-1 --out mine                 what `transformers` and vLLM open
    postgrad export runs/grpo-words-1 --out mine --dtype bf16    half the size
    postgrad export runs/grpo-words-1 --out mine --adapter       what peft and vLLM's LoRA read
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from postgrad.models import load_model, load_scalar, on_hub, save_model
from postgrad.models.load import is_scalar_model, model_files
from postgrad.models.peft import copy_adapter, is_adapter
from postgrad.resolve.models import open_chat, open_folder, run_named
from postgrad.runs import Run
from postgrad.runs.disk import refuse_if_unwritable
from postgrad.runs.rows import JsonDict
from postgrad.system.files import atomic_folder

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def export_model(name: str, out: Path, *, adapter: bool = False, dtype: str | None = None) -> JsonDict:
    """Writes the folder, atomically; -> what was written. dtype None: that of the weights."""
    if out.exists():
        raise ValueError(f"{out} exists already: name another folder with --out, or remove it.")
    refuse_if_unwritable(out)
    folder, kind = open_folder(name), DTYPES[dtype] if dtype else None
    scalar = is_scalar_model(folder)
    with atomic_folder(out) as place:
        if adapter:
            copy_adapter(adapter_of(name, folder), place, kind)
        else:
            save_model((load_scalar if scalar else load_model)(folder, dtype=kind), place)
            open_chat(folder).save(place)
        if (card := model_card(name, adapter=adapter)) is not None:
            (place / "README.md").write_text(card, "utf-8")
    files = sorted(path.name for path in out.iterdir())
    return {"model": str(name), "from": str(folder), "folder": str(out), "adapter": adapter, "scores": scalar,
            "files": files, "bytes": sum((out / file).stat().st_size for file in files)}


def weight_bytes(name: str) -> int:
    """The bytes of a model's weights on disk."""
    return sum(path.stat().st_size for path in model_files(open_folder(name)))


def adapter_of(name: str, folder: Path) -> Path:
    """The folder of an adapter: the model's own, or that of a checkpoint."""
    for place in (folder, folder / "adapter"):
        if is_adapter(place):
            return place
    raise ValueError(f"{name} has no adapter: it was trained whole; leave --adapter out, or train it "
                     "with lora=RANK.")


def model_card(name: str, *, adapter: bool = False) -> str | None:
    """The card of the model of RUN or RUN@STEP; None where the name is no run's, or that of its start."""
    named = run_named(name)
    if not named or named[1] == "0":
        return None
    run = Run.open(named[0])
    latest = run.latest()
    facts = card_facts(run, int(named[1] or (latest.name if latest else 0)))
    facts |= {"library_name": "peft" if adapter else "transformers"}
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items())
    return f"---\n{front}\n---\n\n{card_text(run, facts)}"


def card_facts(run: Run, step: int) -> JsonDict:
    """The front matter. Folders are cut to their last part: a card is read on other machines."""
    info, config = run.info, run.config
    row, method, model = info.get("row") or {}, info.get("method") or info["recipe"], info.get("model")
    evals = [row for row in run.rows("evals")[0] if row["step"] <= step]
    figures = {k: v for k, v in evals[-1].items() if k not in ("seconds", "answers")} if evals else None
    return {"base_model": model if on_hub(str(model)) else last_part(model), "tags": ["postgrad", method],
            "method": method, "constants": row.get("constants", {}),
            "task": last_part(info.get("task") or config.get("data")),
            "reward": last_part(config.get("reward")), "steps": step, "seed": info.get("seed"),
            "evaluation": figures}


def last_part(value: object) -> object:
    """The last part of a path; of an object that a run was given, the name in its record."""
    name = value.get("name") if isinstance(value, dict) else value
    return Path(name).name if isinstance(name, str) else name


def card_text(run: Run, facts: JsonDict) -> str:
    row = run.info.get("row") or {}
    paper = f" ({row['paper']})" if row.get("paper") else ""
    lines = [f"# {run.folder.name}", "",
             f"{facts['base_model']} after {facts['steps']} steps of {facts['method']}{paper} on "
             f"{facts['task']}, trained with postgrad {run.info.get('version', '')}.".replace(" .", ".")]
    if facts["constants"]:
        lines += ["", "Constants: " + ", ".join(f"{k} {v}" for k, v in facts["constants"].items()) + "."]
    figures = (facts["evaluation"] or {}).items()
    if measured := {k: v for k, v in figures if isinstance(v, int | float) and k != "step"}:
        lines += ["", f"| held-out problems, step {facts['evaluation']['step']} | |", "|---|---|",
                  *(f"| {k} | {v:.4g} |" for k, v in measured.items())]
    return "\n".join(lines) + "\n"
