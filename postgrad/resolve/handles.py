"""Weights on their way through the memory of one GPU: a training keeps copies of them there, and a file says
where another process of the same machine finds one (CUDA IPC).

    FOLDER/0-90ab12cd34ef/       the first weights, a model's folder, from which a sampler opens its model
    FOLDER/12-3fa9c0d1e2b4.json  {"gpu": "...", "begins": "0-90ab12cd34ef", "place": {...}, "tensors": {...}}

A copy is one piece of memory, shared once and refilled for later weights. As many copies are there as
collections can be under way at once: the oldest is that of one which has been sampled to its end, so nobody
has to read it any more. Left out on purpose: pickles, events of CUDA (the training waits until its copy is
complete before it shows it), other GPUs and other machines.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from postgrad.models.chat import Chat
from postgrad.models.load import model_weights
from postgrad.models.weights import STORED_AS, tensor_templates
from postgrad.resolve.models import Network, Trained
from postgrad.resolve.weights import WeightsFolder, weights_folder
from postgrad.sampling import WeightVersion
from postgrad.system.files import error_text, load_json, write_text

ALIGNED = 256  # bytes: where a tensor may begin
DTYPES = {name: dtype for dtype, name in STORED_AS.items()}


class TensorPlace(TypedDict):
    dtype: str
    shape: list[int]
    start: int  # bytes


class SharedWeights(WeightsFolder):
    """Where a training says which copies of its weights stand in its GPU's memory. copies: how many, one more
    than collections are sampled ahead."""

    def __init__(self, folder: str | Path, chat: Chat, copies: int = 1):
        super().__init__(folder, chat, keep=copies + 1)
        self.copies = copies
        self.held: dict[str, GPUCopy] = {}  # by the name of their weights, the oldest first

    def write(self, model: Trained, step: int) -> WeightVersion:
        """The first weights as a folder, later ones in the GPU's memory."""
        weights = self.remember(model, step)
        if not self.begins:
            self.begins = weights.name
        if weights.name == self.begins:
            return super().write(model, step)
        if weights.name not in self.held:
            now = model_weights(model)
            full = len(self.held) == self.copies
            copy = self.held.pop(next(iter(self.held))) if full else GPUCopy(now)
            copy.fill(now)
            self.held[weights.name] = copy
            text = {"gpu": gpu_of(copy.memory.device), "begins": self.begins, "place": copy.place,
                    "tensors": copy.tensors}
            write_text(self.folder / f"{weights.name}.json", json.dumps(text))
        return weights

    def open(self, name: str, device: str) -> Network:
        copy = self.held.get(name)
        model = super().open(self.begins if copy else name, device)
        if copy:
            model.load_state_dict(tensor_views(copy.memory, copy.tensors))
        return model


class GPUCopy:
    """A model's weights in one piece of memory. place: where another process finds it. tensors: where each
    begins in it."""

    def __init__(self, weights: Mapping[str, Tensor]):
        self.tensors: dict[str, TensorPlace] = {}
        end, device = 0, torch.device("cpu")
        for name, x in tensor_templates(weights).items():
            self.tensors[name] = {"dtype": STORED_AS[x.dtype], "shape": [*x.shape], "start": end}
            end, device = end + -(-x.numel() * x.itemsize // ALIGNED) * ALIGNED, x.device
        self.memory = torch.empty(end, dtype=torch.uint8, device=device)
        self.place = share_memory(self.memory)

    @torch.no_grad()
    def fill(self, weights: Mapping[str, Tensor]) -> None:
        """Complete when this returns."""
        for name, mine in tensor_views(self.memory, self.tensors).items():
            mine.copy_(weights[name])
        await_copies(self.memory.device)


def tensor_views(memory: Tensor, tensors: Mapping[str, TensorPlace]) -> dict[str, Tensor]:
    out = {}
    for name, told in tensors.items():
        dtype, shape, start = DTYPES[told["dtype"]], told["shape"], told["start"]
        size = prod(shape) * dtype.itemsize
        if not 0 <= start <= start + size <= len(memory):
            raise ValueError(f"{name} lies outside the {len(memory)} bytes that are shared")
        out[name] = memory[start: start + size].view(dtype).view(shape)
    return out


def start_folder(path: Path) -> Path:
    """The model's folder with which the training began whose copies a file tells of."""
    told = load_json(path)
    if not (isinstance(told, dict) and isinstance(told.get("begins"), str)):
        raise ValueError(f"{path} does not say where shared weights are: let a training write it.")
    return weights_folder(path.parent, told["begins"])


def take_weights(path: Path, device: str) -> dict[str, Tensor]:
    """The weights of which a file says where they are, copied; nothing of the training's memory is held."""
    told: Any = load_json(path)
    mine, theirs = gpu_of(device), told.get("gpu") if isinstance(told, dict) else None
    if theirs != mine:
        raise ValueError(f"the training hands its weights over on GPU {theirs}, and this server is on "
                         f"{mine or 'a CPU'}: start it with --device cuda on that GPU, or train with "
                         "remote.weight_sync=folder.")
    try:
        memory = open_memory(told["place"], device)
        out = {name: x.clone() for name, x in tensor_views(memory, told["tensors"]).items()}
        await_copies(memory.device)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(f"the weights of {path} cannot be taken over ({error_text(error)}): the training "
                         "that holds them has ended or is in another container; go on with it by `postgrad "
                         "resume`.") from error
    return out


# what torch and CUDA do

def share_memory(memory: Tensor) -> dict[str, str | int]:
    """Where another process finds a piece of a GPU's memory, for as long as this one keeps it."""
    try:
        _, handle, size, offset, counter, number, _, _ = memory.untyped_storage()._share_cuda_()
    except RuntimeError as error:
        raise ValueError(f"this GPU's memory cannot be shared with another process ({error_text(error)}): "
                         "leave remote.weight_sync=ipc out.") from error
    return {"handle": b64encode(handle).decode(), "size": size, "offset": offset,
            "counter": b64encode(counter).decode(), "number": number}


def open_memory(place: Mapping[str, Any], device: str) -> Tensor:
    """The memory of another process; it is given back when the tensor is gone."""
    storage = torch.UntypedStorage._new_shared_cuda(
        index_of(device), b64decode(place["handle"]), place["size"], place["offset"],
        b64decode(place["counter"]), place["number"], b"", False)
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def await_copies(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def index_of(device: str | torch.device) -> int:
    index = torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def gpu_of(device: str | torch.device) -> str:
    """What the GPU is called by every process that sees it; "" of a CPU."""
    if torch.device(device).type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(index_of(device)).uuid)
