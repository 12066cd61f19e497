"""Exports a model: a folder in Hugging Face's layout, without the training state, or its adapter alone. A
run's model comes with a model card, a README.md with YAML front matter.

    postgrad export runs/grpo-words-1 --out mine                 what `transformers` and vLLM open
    postgrad export runs/grpo-words-1 --out mine --dtype bf16    half the size
    postgrad export runs/grpo-words-1 --out mine --adapter       what peft and vLLM's LoRA read
    postgrad export runs/grpo-words-1 --out mine.gguf --gguf q8_0  what llama.cpp reads
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from postgrad.models import load_model, load_scalar, save_model
from postgrad.models.gguf import gguf_package
from postgrad.models.gguf_write import write_gguf, write_gguf_adapter
from postgrad.models.load import is_scalar_model, model_files
from postgrad.models.peft import copy_adapter, is_adapter
from postgrad.recipes.model_card import model_card
from postgrad.resolve.models import open_chat, open_folder
from postgrad.runs.disk import refuse_if_unwritable
from postgrad.runs.rows import JsonDict
from postgrad.system.files import atomic_folder

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def export_model(name: str, out: Path, *, adapter: bool = False, dtype: str | None = None,
                 licence: str | None = None) -> JsonDict:
    """Writes the folder, atomically; -> a summary of it. dtype None: that of the weights. licence: of the
    base, where its card does not say it."""
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
        if (card := model_card(name, place, adapter=adapter, licence=licence)) is not None:
            (place / "README.md").write_text(card, "utf-8")
    files = sorted(path.name for path in out.iterdir())
    return {"model": str(name), "from": str(folder), "folder": str(out), "adapter": adapter, "scores": scalar,
            "files": files, "bytes": sum((out / file).stat().st_size for file in files)}


def export_gguf(name: str, out: Path, kind: str, *, adapter: bool = False) -> JsonDict:
    """Writes one GGUF file, atomically; -> a summary of it. kind: f16, q8_0 or q4_0; an adapter is f16."""
    if out.suffix != ".gguf":
        raise ValueError(f"--gguf writes one file, and --out is {out}: name FILE.gguf.")
    if adapter and kind != "f16":
        raise ValueError(f"an adapter's matrices are written as f16, not {kind}: give --gguf f16, or leave "
                         "--adapter out, so that it is merged.")
    refuse_if_unwritable(out)
    gguf_package()  # before a long reading
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as place:
        made = export_model(name, Path(place) / "model", adapter=adapter)
        if made["scores"]:
            raise ValueError(f"{name} scores text and writes none: GGUF files are of language models.")
        file = Path(place) / out.name
        try:
            if adapter:
                write_gguf_adapter(Path(place) / "model", open_folder(name), file)
            else:
                write_gguf(Path(place) / "model", file, kind, Path(name).name)
        except ValueError as error:
            raise ValueError(f"{name} cannot be written as GGUF: {error}") from error
        if out.exists():
            raise ValueError(f"{out} exists already: name another file with --out, or remove it.")
        file.rename(out)
    return made | {"folder": str(out), "files": [out.name], "bytes": out.stat().st_size, "gguf": kind}


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
