"""Checkpoints: the state of a run as safetensors and JSON; no pickle, no torch.load.

Each part of a run gives its state as nested dictionaries of tensors and plain values. The weights are written
as a model folder, so that a checkpoint is also a model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from postgrad.models.chat import Chat
from postgrad.models.graph_capture import outside_capture
from postgrad.models.load import model_weights, save_model
from postgrad.models.lora import is_adapted
from postgrad.models.peft import adapter_tensors, write_adapter
from postgrad.models.protocols import Trainable
from postgrad.models.weights import read_tensors, send_tensor_shards, tensor_templates, write_tensors
from postgrad.system.files import error_text, load_json

SLOT = "__tensor__"
LARGEST = 2**30  # bytes of state.json
# safetensors under another ending: vLLM would load *.safetensors as weights
TENSORS = "state.tensors"


def copy_state(state: dict[str, Any], *, policy: Any, chat: Chat, base: str = "") -> Callable[[Path], None]:
    """Snapshots a run's state -> a function that writes it into a folder (`state_writer`), with asynchronous
    GPU-to-host copies."""
    write = state_writer(state, policy=policy, chat=chat, base=base, keep=_copies)
    if not next(policy.parameters()).is_cuda:
        return write
    copied, aside = torch.cuda.current_stream().record_event(), torch.cuda.Stream()

    def fetch_and_write(folder: Path) -> None:
        with torch.cuda.stream(aside):
            with outside_capture():
                aside.wait_event(copied)
            write(folder)

    return fetch_and_write


def state_writer(state: dict[str, Any], *, policy: Any, chat: Chat, base: str = "",
                 keep: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda x: x
                 ) -> Callable[[Path], None]:
    """A function that writes a run's state into a folder, state.json and state.tensors unless it is empty,
    beside the model's files; an adapter on the model `base` also by itself. keep: copies the tensors until
    then; without it the function has to be called before they change, while the other ranks call
    `send_shards`."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_take_out(state, "", tensors))
    kept, weights = keep(tensors), keep(model_weights(policy))
    adapter = keep(adapter_tensors(policy)) if is_adapted(policy) else None

    def write(folder: Path) -> None:
        save_model(policy, folder, weights=weights)
        if adapter is not None:
            write_adapter(policy, folder / "adapter", base, adapter)
        chat.save(folder)
        if state:
            write_tensors(kept, folder / TENSORS)
            (folder / "state.json").write_text(plain)

    return write


def send_shards(state: dict[str, Any], policy: Any) -> None:
    """The other ranks' side of `state_writer`, where models are sharded."""
    tensors: dict[str, Tensor] = {}
    _take_out(state, "", tensors)
    send_tensor_shards(model_weights(policy))
    send_tensor_shards(tensors)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the GPU if it has room, fetched as they are written; else in main memory."""
    like = tensor_templates(tensors).values()
    stay = gpu_has_room(sum(x.numel() * x.itemsize for x in like), {x.device for x in like})
    return {name: tensors[name].detach().clone(memory_format=torch.contiguous_format) if stay
            else tensors[name].detach().to("cpu", copy=True).contiguous() for name in tensors}


def gpu_has_room(size: int, devices: set[torch.device]) -> bool:
    """Whether the GPU has room for twice `size` bytes, so that a growing step still fits."""
    gpu = next((device for device in devices if device.type == "cuda"), None)
    if gpu is None:
        return False
    unused = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
    return 2 * size <= torch.cuda.mem_get_info(gpu)[0] + unused


def write_state(state: dict[str, Any], folder: Path) -> None:
    """A state by itself, as `read_state` takes it."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_take_out(state, "", tensors))
    write_tensors(tensors, folder / TENSORS)
    (folder / "state.json").write_text(plain)


def read_state(folder: Path) -> dict[str, Any]:
    path = folder / TENSORS
    stored = read_tensors(path if path.exists() else folder / "state.safetensors")  # the name in older runs
    try:
        return cast(dict[str, Any], _put_back(load_json(folder / "state.json", LARGEST), stored))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder / 'state.json'} is no state of a training ({error_text(error)}): go back "
                         "to another checkpoint, or start a new run.") from error


def checkpoint_bytes(state: dict[str, Any], policy: Trainable) -> int:
    """Bytes of the tensors that `copy_state` writes: weights, optimizer state, and the rest of the state."""
    tensors: dict[str, Tensor] = {}
    _take_out(state, "", tensors)
    return sum(x.numel() * x.itemsize for x in (*tensors.values(), *policy.parameters()))


def _take_out(x: object, path: str, tensors: dict[str, Tensor]) -> object:
    if isinstance(x, Tensor):
        tensors[path] = x
        return {SLOT: path}
    if isinstance(x, dict):
        return {str(k): _take_out(v, f"{path}/{k}", tensors) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_take_out(v, f"{path}/{i}", tensors) for i, v in enumerate(x)]
    plain = x is None or isinstance(x, (bool, int, float, str))
    assert plain, f"{path} is a {type(x).__name__}, which a checkpoint cannot hold"
    return x


def _put_back(x: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(x, dict):
        return tensors[x[SLOT]] if SLOT in x else {k: _put_back(v, tensors) for k, v in x.items()}
    return [_put_back(v, tensors) for v in x] if isinstance(x, list) else x


def seed_everything(seed: int) -> None:
    """Seeds the global generators, for users' verifiers: postgrad itself draws from (seed, name, step)."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_state() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    numpy: Any = np.random.get_state(legacy=True)
    kind, keys, *rest = numpy
    return {"torch": torch.get_rng_state(), "python": [version, list(words), gauss],
            "numpy": [kind, keys.tolist(), *rest]}


def restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(state["numpy"]))
