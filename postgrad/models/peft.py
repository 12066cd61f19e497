"""Adapters in peft's layout, adapter_config.json and adapter_model.safetensors, without peft.

A folder with these two files is a model: base_model_name_or_path with the adapter merged in, and layers that
were trained in full (modules_to_save) in place of its own. Unsupported adapters (trained biases, other
kinds ...) are refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from postgrad.models.graph_capture import outside_capture
from postgrad.models.heads import ScalarModel
from postgrad.models.hf_model import INSIDE
from postgrad.models.lora import Adapted, Adapter, layer_path, parameter_key, tied_head
from postgrad.models.nf4 import is_conv1d
from postgrad.models.weights import read_tensors, weight_files
from postgrad.system.files import error_text, load_json

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
NORM = ".lora_magnitude_vector"  # DoRA's
AHEAD, HEAD = "base_model.model.", "base_model.model.score.weight"  # peft's prefix
OTHER = {"alpha_pattern": "an alpha for each layer", "layer_replication": "repeated layers",
         "use_qalora": "QALoRA"}
PLAIN_STARTS = (True, False, "gaussian", "eva")  # the other initialisations change the base weights


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no weights of a full model."""
    return (folder / ADAPTER_CONFIG).is_file() and not any(path.is_file() for path in weight_files(folder))


def adapter_tensors(model: Adapted | ScalarModel) -> dict[str, Tensor]:
    """The adapter's tensors by peft's names, with layers trained in full and the head of a reward model."""
    adapter, body = _adapter(model), (model.body if isinstance(model, ScalarModel) else model).body
    tensors: dict[str, Tensor] = {HEAD: model.score_head.weight} if isinstance(model, ScalarModel) else {}
    paths = [path.removeprefix(INSIDE) for path in adapter.paths]
    for path, a, b in zip(paths, adapter.A.values(), adapter.B.values(), strict=True):
        tensors |= {f"{AHEAD}{path}.lora_A.weight": a, f"{AHEAD}{path}.lora_B.weight": b}
    for key, norm in adapter.norms.items():
        tensors[f"{AHEAD}{layer_path(key).removeprefix(INSIDE)}{NORM}"] = norm
    for name, first in adapter.stand_ins.items():
        names = [name.removeprefix(INSIDE),
                 *(["lm_head.weight"] if tied_head(body) and "embed_tokens" in name else [])]
        tensors |= {AHEAD + each: adapter.whole[parameter_key(first)] for each in names
                    if not (isinstance(model, ScalarModel) and "lm_head" in each)}
    return tensors


def write_adapter(model: Adapted | ScalarModel, folder: Path, base: str,
                  tensors: Mapping[str, Tensor] | None = None) -> None:
    """Writes the adapter, with a reward model's head. base: name or folder of the base model. If trained on
    a 4-bit body it fits the full model only approximately; the merged folder is exact. tensors: an earlier
    snapshot (`adapter_tensors`) to write instead."""
    scalar = isinstance(model, ScalarModel)
    adapter, tensors = _adapter(model), tensors or adapter_tensors(model)
    whole = sorted({_module(name) for name in tensors if ".lora_" not in name})  # peft matches by the end
    _save(tensors, {
        "peft_type": "LORA", "task_type": "SEQ_CLS" if scalar else "CAUSAL_LM",
        "base_model_name_or_path": base, "r": adapter.rank,
        "lora_alpha": int(adapter.alpha) if float(adapter.alpha).is_integer() else adapter.alpha,
        "target_modules": sorted({path.split(".")[-1] for path in adapter.paths}),
        "lora_dropout": adapter.dropout, "bias": "none", "fan_in_fan_out": bool(adapter.transposed),
        "use_rslora": adapter.rslora, "use_dora": bool(adapter.norms),
        "modules_to_save": whole or None, "inference_mode": True}, folder)


def _adapter(model: Adapted | ScalarModel) -> Adapter:
    adapted = model.body if isinstance(model, ScalarModel) else model
    assert isinstance(adapted, Adapted) and adapted.adapter is not None
    return adapted.adapter


def base_model_name(folder: Path) -> str:
    """The name or folder of the model under an adapter."""
    return str(_config(folder)["base_model_name_or_path"])


def merge_adapter(body: nn.Module, folder: Path) -> Tensor | None:
    """Adds scale * B A to a model's weights, and sets DoRA's norms -> a reward model's head, if any. scale:
    alpha / rank, or alpha / sqrt(rank) with use_rslora."""
    config, tensors = _config(folder), _tensors(folder)
    head, modules = tensors.pop(HEAD, None), _more(config)
    whole = {name: tensors.pop(name) for name in list(tensors) if _module(name).endswith(tuple(modules))}
    replace_modules(body, whole, folder, modules, head is not None)
    norms = {name: tensors.pop(name) for name in list(tensors) if name.endswith(NORM)}
    layers = {path.removeprefix(INSIDE): m for path, m in body.named_modules()
              if isinstance(m, nn.Linear) or is_conv1d(m)}
    ends = (".lora_A.weight", ".lora_B.weight")
    for name in tensors:
        if not (name.startswith(AHEAD) and name.endswith(ends)
                and name.removeprefix(AHEAD)[:-len(ends[0])] in layers):
            raise ValueError(f"{folder / ADAPTER}: {name} is no LoRA matrix of a linear layer that the model "
                             f"{config['base_model_name_or_path']} has: name the right base model, or "
                             "merge it with peft.")
    for path in sorted({name.removeprefix(AHEAD)[:-len(ends[0])] for name in tensors}):
        a, b = (tensors.get(f"{AHEAD}{path}{end}") for end in ends)
        weight = layers[path].weight
        stored = weight.data.T if is_conv1d(layers[path]) else weight.data  # [out, in]
        if (a is None or b is None or a.dim() != 2 or b.dim() != 2 or not len(a)
                or (b.shape[0], a.shape[1]) != tuple(stored.shape)
                or a.shape[0] != b.shape[1]):
            shapes = [None if x is None else list(x.shape) for x in (a, b)]
            raise ValueError(f"{folder / ADAPTER}: lora_A and lora_B of {path} are {shapes[0]} and "
                             f"{shapes[1]}, which do not fit its weight {list(weight.shape)}: name the right "
                             f"base model in {ADAPTER_CONFIG}.")
        scale = config["lora_alpha"] / (math.sqrt(len(a)) if config.get("use_rslora") else len(a))
        wide = torch.promote_types(weight.dtype, torch.float32)
        update = scale * (b.to(weight.device, wide) @ a.to(weight.device, wide))
        moved = stored + update
        if config.get("use_dora"):
            norm = norms.get(f"{AHEAD}{path}{NORM}")
            if norm is None or norm.shape != stored.shape[:1]:
                raise ValueError(f"{folder / ADAPTER}: {path}{NORM} is "
                                 f"{None if norm is None else list(norm.shape)}, and DoRA has {len(stored)} "
                                 "norms there: get the file again.")
            moved *= (norm.to(moved) / moved.norm(dim=1))[:, None]
        stored.copy_(moved)
    return head


def replace_modules(body: nn.Module, tensors: Mapping[str, Tensor], folder: Path, modules: list[str],
                    scalar: bool) -> None:
    """Puts the layers that were trained in full in place of a model's own. scalar: without a head."""
    if missing := [name for name in modules if not any(_module(x).endswith(name) for x in tensors)]:
        raise ValueError(f"{folder / ADAPTER} lacks {' and '.join(missing)}, which {ADAPTER_CONFIG} has "
                         "under modules_to_save: get the file again.")
    named = {name.removeprefix(INSIDE): p for name, p in body.named_parameters(remove_duplicate=False)}
    if tied_head(body):
        named["lm_head.weight"] = named["model.embed_tokens.weight"]
    for name, x in tensors.items():
        p = named.get(name.removeprefix(AHEAD))
        if p is None or p.shape != x.shape:
            raise ValueError(f"{folder / ADAPTER}: {name} is {list(x.shape)}, and the base model has "
                             f"{'no such weight' if p is None else list(p.shape)}: name the right base "
                             f"model in {ADAPTER_CONFIG}.")
        tied = [tensors.get(AHEAD + other) for other, q in named.items()
                if q is p and not (scalar and other == "lm_head.weight")]
        if any(y is None or not torch.equal(x, y) for y in tied):
            raise ValueError(f"{folder / ADAPTER}: {name} was trained apart from the weight that it is tied "
                             "to in the base model: merge it with peft (merge_and_unload) and name the "
                             "merged folder.")
        p.data.copy_(x)


def is_reward_adapter(folder: Path) -> bool:
    """Whether an adapter comes with the head of a reward model."""
    return "score" in (_config(folder).get("modules_to_save") or [])


def copy_adapter(folder: Path, out: Path, dtype: torch.dtype | None = None) -> None:
    """Copies an adapter's two files, in another dtype if given."""
    config, tensors = _config(folder), _tensors(folder)
    _save({k: v.to(dtype or v.dtype) for k, v in tensors.items()}, config, out)


def _save(tensors: Mapping[str, Tensor], config: dict[str, Any], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with outside_capture():
        fetched = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        first = {v.data_ptr(): k for k, v in reversed(fetched.items())}
        fetched = {k: v if first[v.data_ptr()] == k else v.clone() for k, v in fetched.items()}  # tied ones
    save_file(fetched, folder / ADAPTER, metadata={"format": "pt"})
    (folder / ADAPTER).chmod(0o644)  # safetensors makes it private
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1))


def _tensors(folder: Path) -> dict[str, Tensor]:
    if not (folder / ADAPTER).is_file():
        raise ValueError(f"{folder} has {ADAPTER_CONFIG} but no {ADAPTER}: get that file too (a .bin is a "
                         "pickle, which is never opened here: save it again with peft).")
    return read_tensors(folder / ADAPTER)


def _config(folder: Path) -> dict[str, Any]:
    """adapter_config.json, where all it asks for is supported."""
    path = folder / ADAPTER_CONFIG
    try:
        config = cast(dict[str, Any], load_json(path))
        kind, base = config["peft_type"], config["base_model_name_or_path"]
        sound = (isinstance(base, str) and 0 < len(base) < 4096 and "\0" not in base
                 and (kind != "LORA" or 0 < config["lora_alpha"] < 1e30))
        faults = [what for key, what in OTHER.items() if config.get(key)]
        if not all(isinstance(name, str) and name for name in _more(config)):
            raise TypeError(f"modules_to_save is {config['modules_to_save']!r:.60}, and no list of names")
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error_text(error)}"
        raise ValueError(f"{path} cannot be read as peft's settings ({why}): get the file again.") from error
    if not sound:
        raise ValueError(f"{path}: base_model_name_or_path is {base!r:.100}, lora_alpha "
                         f"{config.get('lora_alpha')!r:.60}: expected a model's name or folder, and a "
                         "positive number.")
    faults += [f"a {kind!s:.60} adapter"] if kind != "LORA" else []
    faults += [f"trained biases ({config['bias']!s:.60})"] if config.get("bias", "none") != "none" else []
    start = config.get("init_lora_weights", True)
    faults += [f"a start by {start!s:.60}"] if start not in PLAIN_STARTS else []
    if faults:
        raise ValueError(f"{path} asks for {' and '.join(faults)}; read are plain LoRA adapters: merge this "
                         "one with peft (merge_and_unload) and name the merged folder.")
    return config


def _module(name: str) -> str:
    """The module of a tensor in peft's file: base_model.model.lm_head.weight -> lm_head"""
    return name.removeprefix(AHEAD).rpartition(".")[0]


def _more(config: dict[str, Any]) -> list[str]:
    """Layers trained in full, a reward model's head apart."""
    return [name for name in config.get("modules_to_save") or [] if name not in ("score", "classifier")]
