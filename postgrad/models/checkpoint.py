"""What decides the future of a run, as safetensors and JSON: no pickle, no torch.load.

Each part of a run that changes while it trains gives its state as a dictionary of tensors and plain values,
nested as it likes; here it becomes files. The weights are written as a model folder,
so a checkpoint is also a model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from postgrad.models.graph_capture import outside_capture
from postgrad.models.load import model_weights, save_model
from postgrad.models.lora import is_adapted
from postgrad.models.peft import adapter_tensors, write_adapter
from postgrad.models.weights import read_tensors, send_tensor_shards, tensor_templates, write_tensors
from postgrad.system.files import error_text, load_json

SLOT = "__tensor__"
LARGEST = 2**30  # bytes of state.json
# in safetensors' format; by that ending vLLM would take it for weights of the model
TENSORS = "state.tensors"


def copy_state(state: dict, *, policy, chat, base: str = "") -> Callable[[Path], None]:
    """A run's state as it is now, copied, and a function that writes it into a folder later: see
    `state_writer`. What is on a GPU is fetched beside what that computes meanwhile."""
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


def state_writer(state: dict, *, policy, chat, base: str = "",
                 keep: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda x: x
                 ) -> Callable[[Path], None]:
    """A function that writes a run's state into a folder: state.json and state.tensors beside the model's own
    files; an adapter on the model `base` also by itself. keep: what becomes of the tensors until then; as
    they are, it has to be called before they change, and while the other ranks `give_parts` of those that
    are divided."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_take_out(state, "", tensors))
    kept, weights = keep(tensors), keep(model_weights(policy))
    adapter = keep(adapter_tensors(policy)) if is_adapted(policy) else None

    def write(folder: Path) -> None:
        save_model(policy, folder, weights=weights)
        if adapter is not None:
            write_adapter(policy, folder / "adapter", base, adapter)
        chat.save(folder)
        write_tensors(kept, folder / TENSORS)
        (folder / "state.json").write_text(plain)

    return write


def send_shards(state: dict, policy) -> None:
    """What `state_writer` asks of the other ranks where the models are divided."""
    tensors: dict[str, Tensor] = {}
    _take_out(state, "", tensors)
    send_tensor_shards(model_weights(policy))
    send_tensor_shards(tensors)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor by itself: training goes on with the originals. Where a GPU has room for them they stay
    there, which takes milliseconds, and are fetched as they are written; else they are in main memory."""
    like = tensor_templates(tensors).values()
    stay = gpu_has_room(sum(x.numel() * x.itemsize for x in like), {x.device for x in like})
    return {name: tensors[name].detach().clone(memory_format=torch.contiguous_format) if stay
            else tensors[name].detach().to("cpu", copy=True).contiguous() for name in tensors}


def gpu_has_room(size: int, devices: set[torch.device]) -> bool:
    """Whether a GPU that holds some of this many bytes has room for twice as many, so that a step which grows
    still finds some."""
    gpu = next((device for device in devices if device.type == "cuda"), None)
    if gpu is None:
        return False
    unused = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
    return 2 * size <= torch.cuda.mem_get_info(gpu)[0] + unused


def read_state(folder: Path) -> dict:
    path = folder / TENSORS
    stored = read_tensors(path if path.exists() else folder / "state.safetensors")  # the name in older runs
    try:
        return _put_back(load_json(folder / "state.json", LARGEST), stored)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder / 'state.json'} is no state of a training ({error_text(error)}): go back "
                         "to another checkpoint, or start a new run.") from error


def checkpoint_bytes(state: dict, policy) -> int:
    """The bytes of tensors that `copy_state` keeps and writes: the weights, the optimizer's two moments of
    each, and whatever else a run keeps."""
    tensors: dict[str, Tensor] = {}
    _take_out(state, "", tensors)
    return sum(x.numel() * x.itemsize for x in (*tensors.values(), *policy.parameters()))


def _take_out(x, path: str, tensors: dict[str, Tensor]):
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


def _put_back(x, tensors: dict[str, Tensor]):
    if isinstance(x, dict):
        return tensors[x[SLOT]] if SLOT in x else {k: _put_back(v, tensors) for k, v in x.items()}
    return [_put_back(v, tensors) for v in x] if isinstance(x, list) else x


def seed_everything(seed: int) -> None:
    """The global generators.

    postgrad itself draws from (seed, name, step) alone; a user's verifier may not.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_state() -> dict:
    version, words, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    return {"torch": torch.get_rng_state(), "python": [version, list(words), gauss],
            "numpy": [kind, keys.tolist(), *rest]}


def restore_random(state: dict) -> None:
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(state["numpy"]))
