"""Model folders in Hugging Face's layout: reading and writing. safetensors only; nothing in a folder is ever executed."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from postgrad.models.decoder import Config, Decoder
from postgrad.models.heads import ScalarModel
from postgrad.models.lora import Adapted

EMBEDDED = {"tiny": Path(__file__).parent.parent / "embedded" / "tiny",
            "tiny-chat": Path(__file__).parent.parent / "embedded" / "tiny-chat"}

SCORE = "score.weight"  # the head of a reward model, by Hugging Face's name


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
    tensors = read_tensors(folder / "model.safetensors")
    if SCORE in tensors:
        raise ValueError(f"{name} is a reward model, which scores text and writes none: name a language model.")
    return _filled(folder, tensors, device, dtype)


def load_scalar(name: str | Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32, heads: int = 1) -> ScalarModel:
    """A reward, outcome or process model with its heads (config.json says which); from a language model, a new reward model
    with as many heads as asked for."""
    folder = find_model(name)
    tensors = read_tensors(folder / "model.safetensors")
    head = tensors.pop(SCORE, None)
    model = ScalarModel(_filled(folder, tensors, device, dtype), heads if head is None else len(head))
    if head is not None:
        if head.shape != model.score_head.weight.shape:
            raise ValueError(f"{folder}/model.safetensors: {SCORE} is {list(head.shape)}, expected "
                             f"{list(model.score_head.weight.shape)}.")
        model.score_head.weight.data.copy_(head)
        model.head = json.loads((folder / "config.json").read_text()).get("postgrad", {}).get("head", model.head)
    return model


def _filled(folder: Path, tensors: dict[str, torch.Tensor], device: str, dtype: torch.dtype) -> Decoder:
    """The decoder that config.json describes, with these weights; what does not fit is named."""
    with torch.device("meta"):
        model = Decoder(Config.read(folder / "config.json"))
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


def save_model(model: Decoder | Adapted | ScalarModel, folder: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors; `transformers` reads the result, a reward model as a sequence classifier.

    An adapter is written merged into its body, so that the folder is a model like any other.
    """
    scalar = isinstance(model, ScalarModel)
    body = model.body if scalar else model
    tensors = body.merged() if isinstance(body, Adapted) else body.state_dict()
    if scalar:
        tensors = {**tensors, SCORE: model.score_head.weight}
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it private
    written = model.config.written() | {"torch_dtype": str(next(iter(tensors.values())).dtype).removeprefix("torch.")}
    if scalar:
        written |= {"architectures": ["LlamaForSequenceClassification"], "num_labels": model.heads,
                    "postgrad": {"head": model.head}}
    (folder / "config.json").write_text(json.dumps(written, indent=1))
