"""Model folders in Hugging Face's layout: reading and writing. safetensors only; nothing in a folder is ever executed."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from postgrad.models.decoder import Config, Decoder

EMBEDDED = {"tiny": Path(__file__).parent.parent / "embedded" / "tiny",
            "tiny-chat": Path(__file__).parent.parent / "embedded" / "tiny-chat"}


def find_model(name: str | Path) -> Path:
    """The folder of a model: an embedded model's name, or a path."""
    folder = EMBEDDED.get(str(name), Path(name))
    if not (folder / "config.json").is_file():
        raise ValueError(f"no model at {name}: expected {' or '.join(EMBEDDED)}, a run, or a folder with config.json and "
                         "model.safetensors.")
    return folder


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error


def load_model(name: str | Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Decoder:
    """load_model("tiny"): the decoder with its weights, in float32 unless told otherwise."""
    folder = find_model(name)
    config = Config.read(folder / "config.json")
    tensors = read_tensors(folder / "model.safetensors")
    with torch.device("meta"):
        model = Decoder(config)
    wanted = model.state_dict()
    missing, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(f"{folder}/model.safetensors does not fit config.json: missing {missing[:3]}, unknown {unknown[:3]}.")
    for key, tensor in tensors.items():
        if tensor.shape != wanted[key].shape:
            raise ValueError(f"{folder}/model.safetensors: {key} is {list(tensor.shape)}, "
                             f"config.json expects {list(wanted[key].shape)}.")
    model.load_state_dict({k: v.to(device, dtype) for k, v in tensors.items()}, assign=True)
    return model.requires_grad_(True)


def save_model(model: Decoder, folder: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors; `transformers` reads the result."""
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it private
    written = model.config.written() | {"torch_dtype": str(next(iter(tensors.values())).dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(written, indent=1))
