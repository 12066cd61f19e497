"""Reads and writes model folders in Hugging Face's layout: safetensors alone; a folder's code never runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from postgrad.models.decoder import Decoder
from postgrad.models.engine import Merged
from postgrad.models.experts import NO_SHARDS, ExpertFiles, expert_files, stack_experts
from postgrad.models.families import Config, find_family, read_config_json
from postgrad.models.heads import ScalarModel
from postgrad.models.hf_model import HFModel, load_hf_model
from postgrad.models.layer import stored_tensors
from postgrad.models.lora import Adapted, Network
from postgrad.models.peft import (
    ADAPTER,
    ADAPTER_CONFIG,
    base_model_name,
    is_adapter,
    is_reward_adapter,
    merge_adapter,
)
from postgrad.models.weights import (
    INDEX,
    LARGEST,
    StoredTensor,
    list_weights,
    read_parts,
    read_weights,
    weight_files,
    write_weights,
)
from postgrad.system import hub

EMBEDDED = {folder.name: folder for folder in sorted((Path(__file__).parent / "embedded").iterdir())
            if (folder / "model.safetensors").is_file()}  # tiny, tiny-chat and what else is packed there

# What is fetched of a hub id: never a pickle, never a program.
FILES = ("config.json", ADAPTER_CONFIG, "*.safetensors", INDEX, "tokenizer.json", "tokenizer_config.json",
         "special_tokens_map.json", "chat_template.jinja", "generation_config.json")
SCORE = "score.weight"  # the head of a reward model, by Hugging Face's name
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
ShardDecoder = Callable[[Decoder], None]
DERIVED = "rotary_emb.inv_freq"  # older folders store it; it follows from config.json


def find_model(name: str | Path, files: Sequence[str] = FILES) -> Path:
    """The folder of a model: an embedded model's name, a path, or a hub id; an adapter in peft's layout is a
    model too. files: what is fetched of a hub id."""
    folder = EMBEDDED.get(str(name), Path(name))
    choices = f"{', '.join(EMBEDDED)}, a run, or a folder with config.json and "
    if folder.suffix == ".gguf":
        raise ValueError(f"{name} is a GGUF file: convert it once, `postgrad fetch {name} --out FOLDER`, and "
                         "name the folder.")
    if on_hub(name):
        return hub.download(str(name), files, instead=f"name {choices}model.safetensors on this machine")
    if not ((folder / "config.json").is_file() or is_adapter(folder)):
        raise ValueError(f"no model at {name}: expected {choices}model.safetensors, or a hub "
                         "id (owner/name).")
    return folder


def on_hub(name: str | Path) -> bool:
    """Whether a name can only be a hub id: no such path exists, and it is not in a folder of runs."""
    path = Path(name)
    return (isinstance(name, str) and hub.is_id(name) and not path.exists()
            and not any(path.parent.glob("*/run.json")))


def model_chain(folder: Path, files: Sequence[str] = FILES) -> Iterator[Path]:
    """A model's folder and, for an adapter, that of its base model, which may be an adapter too."""
    seen = {folder.resolve()}
    yield folder
    while is_adapter(folder):
        try:
            folder, above = find_model(base_model_name(folder), files), folder
        except ValueError as error:
            raise ValueError(f"{folder} is an adapter, and its base cannot be opened: {error}") from None
        if folder.resolve() in seen:
            raise ValueError(f"{above / ADAPTER_CONFIG} names {folder}, which stands on this adapter itself: "
                             "put the name of the model under it there.")
        seen.add(folder.resolve())
        yield folder


def folder_with_file(folder: Path, file: str, files: Sequence[str] = FILES) -> Path:
    """The first folder of `model_chain` with such a file; the last where none has it."""
    for place in model_chain(folder, files):
        if (place / file).is_file():
            break
    return place


def model_files(folder: Path) -> list[Path]:
    """The files of a model's weights; for an adapter, those of its base model too."""
    return [path for place in model_chain(folder)
            for path in ((place / ADAPTER, place / ADAPTER_CONFIG) if is_adapter(place)
                         else weight_files(place))]


def is_scalar_model(folder: Path) -> bool:
    """Whether a folder holds a reward, outcome or process model."""
    return is_reward_adapter(folder) if is_adapter(folder) else SCORE in list_weights(folder)


def load_model(name: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = torch.float32,
               divide: ShardDecoder | None = None) -> Network:
    """load_model("tiny"): the decoder with its weights. dtype None: as stored. divide: shards it over the
    ranks (`shard_decoder`), so that each reads its part; adapters and HFModels are read in full."""
    body, head, _ = _opened(find_model(name), device, dtype, divide)
    if head is not None:
        raise ValueError(f"{name} is a reward model, which scores text and writes none: name a "
                         "language model.")
    return body


def load_scalar(name: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = torch.float32,
                heads: int = 1, divide: ShardDecoder | None = None) -> ScalarModel:
    """A reward, outcome or process model with its heads; from a language model, a new reward model with so
    many heads. divide: as in `load_model`."""
    body, head, path = _opened(find_model(name), device, dtype, divide)
    model = ScalarModel(body, heads if head is None else head.shape[0])
    if head is not None:
        if head.shape != model.score_head.weight.shape:
            raise ValueError(f"{path}: {SCORE} is {list(head.shape)}, expected "
                             f"{list(model.score_head.weight.shape)}.")
        model.score_head.weight.data.copy_(head)
        if (path.parent / "config.json").is_file():
            ours = read_config_json(path.parent / "config.json").get("postgrad")
            model.head = str(ours.get("head", model.head)) if isinstance(ours, dict) else model.head
    return model


def _opened(folder: Path, device: str, dtype: torch.dtype | None,
            divide: ShardDecoder | None) -> tuple[Network, Tensor | None, Path]:
    """A model's body, and a reward model's head with its file."""
    *adapters, whole = model_chain(folder)
    listed = list_weights(whole)
    head = listed.pop(SCORE, None)
    body = _filled(whole, listed, device, dtype, None if adapters else divide)
    score, path = (None, whole) if head is None else (read_weights({SCORE: head})[SCORE], head.path)
    for place in reversed(adapters):
        if score is not None:
            raise ValueError(f"{path.parent} is a reward model, which scores text and writes none: name a "
                             f"language model in {place / ADAPTER_CONFIG}.")
        score, path = merge_adapter(body, place), place / ADAPTER
    return body, score, path


def _filled(folder: Path, listed: dict[str, StoredTensor], device: str, dtype: torch.dtype | None,
            divide: ShardDecoder | None) -> Network:
    """The network that config.json describes, with the weights of these files; a misfit is named."""
    raw = read_config_json(folder / "config.json")
    if find_family(raw.get("model_type")) is None:
        return load_hf_model(folder, raw, device, dtype, beside=(SCORE,))
    config = Config.read(folder / "config.json")
    wanted = {tensor.name: tensor.shape for tensor in stored_tensors(config)}
    parts = expert_files(config)
    for name, (whole, _, rows) in parts.items():
        wanted[name] = (rows.stop - rows.start, wanted[whole][2])
    wanted = {name: shape for name, shape in wanted.items() if len(shape) < 3}
    listed = {k: v for k, v in listed.items() if not k.endswith(DERIVED)}
    if config.tie_word_embeddings and HEAD in listed:
        _same_head(listed)
        del listed[HEAD]
    missing, unknown = sorted(wanted.keys() - listed.keys()), sorted(listed.keys() - wanted.keys())
    if missing or unknown:
        file = "" if len(weight_files(folder)) > 1 else "/model.safetensors"
        raise ValueError(f"{folder}{file} does not fit config.json: missing {missing[:3]}, unknown "
                         f"{[name[:100] for name in unknown[:3]]}.")
    for key, stored in listed.items():
        if stored.shape != wanted[key]:
            raise ValueError(f"{stored.path}: {key} is {list(stored.shape)!s:.60}, config.json expects "
                             f"{list(wanted[key])}.")
    with torch.device("meta"):
        model = Decoder(config)
    if parts and divide is not None:
        raise ValueError(NO_SHARDS)
    if divide is None:
        read = read_weights(listed, device, dtype)
        model.load_state_dict(stack_experts(read, config) if parts else read, assign=True)
    else:
        divide(model.to(dtype))
        read_parts(listed, dict(model.to_empty(device=device).named_parameters()))
    return model.requires_grad_(True)


def grow_vocabulary(model: Network, size: int) -> Network:
    """The model with `size` tokens: the embedding of a new one, and its row of the head, is the mean of all
    others."""
    def grown(weight: Tensor) -> Tensor:
        more = weight.detach().float().mean(0, keepdim=True).to(weight.dtype)
        return torch.cat([weight.detach(), more.expand(size - len(weight), *weight.shape[1:])])

    if isinstance(model, HFModel):
        network = model.network
        ends = [(end, name) for end in ("get_input_embeddings", "get_output_embeddings")
                for name in ("weight", "bias") if getattr(getattr(network, end)(), name, None) is not None]
        weights = [grown(getattr(getattr(network, end)(), name)) for end, name in ends]
        network.resize_token_embeddings(size, mean_resizing=False)
        for (end, name), weight in zip(ends, weights, strict=True):
            getattr(getattr(network, end)(), name).data.copy_(weight)
        return HFModel(network).requires_grad_(True)
    state = {name: grown(x) if name in (HEAD, EMBEDDING) else x for name, x in model.state_dict().items()}
    with torch.device("meta"):
        wider = Decoder(replace(model.config, vocab_size=size))
    wider.load_state_dict(state, assign=True)
    return wider.requires_grad_(True)


def _same_head(listed: dict[str, StoredTensor]) -> None:
    """Refuses a tied head that is stored again with other values."""
    pair = read_weights({k: listed[k] for k in (HEAD, EMBEDDING) if k in listed})
    if EMBEDDING in pair and not torch.equal(pair[HEAD], pair[EMBEDDING]):
        raise ValueError(f"{listed[HEAD].path}: {HEAD} differs from {EMBEDDING}, but config.json ties them: "
                         "set tie_word_embeddings to false.")


def model_weights(model: Network | Adapted | ScalarModel) -> Mapping[str, Tensor]:
    """The tensors of a model's folder: an adapter merged into its body, with the head of a reward model."""
    if not isinstance(model, ScalarModel):
        weights: Mapping[str, Tensor] = model.merged()
        return weights
    body, head = model.body.merged(), {SCORE: model.score_head.weight.detach()}
    if not isinstance(body, Merged):  # through transformers
        return {**head, **body}
    body.plain = head | dict(body.plain)
    return body


def save_model(model: Network | Adapted | ScalarModel, folder: Path,
               dtype: torch.dtype | None = None, largest: int = LARGEST,
               weights: Mapping[str, Tensor] | None = None) -> None:
    """Writes config.json and model.safetensors (several, above `largest` bytes) for `transformers`, a reward
    model as a sequence classifier. An adapter is merged into its body.

    weights: an earlier snapshot (`model_weights`) to write instead.
    """
    body = model.body if isinstance(model, ScalarModel) else model
    tensors = weights or model_weights(model)
    network: Network = body.body if isinstance(body, Adapted) else body
    named = network if isinstance(network, HFModel) else network.config
    facts: dict[str, Any] = {}
    if isinstance(model, ScalarModel):
        facts = {"architectures": [named.hf_class("SequenceClassification")], "num_labels": model.heads,
                 "postgrad": {"head": model.head}}
    if isinstance(network, HFModel):
        return network.save(tensors, folder, dtype, largest, facts)
    written_as = ExpertFiles(tensors, network.config) if network.config.architecture.experts else tensors
    write_weights(written_as, folder, dtype, largest)
    written = (network.config.to_hf()
               | {"torch_dtype": str(dtype or next(iter(tensors.values())).dtype).removeprefix("torch.")})
    if HEAD in tensors:  # also of an adapter on a head that was tied
        written["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(written | facts, indent=1))
