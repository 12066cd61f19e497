"""The weights of a model folder: model.safetensors, or several files with an index. Never a pickle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from postgrad.models.graph_capture import outside_capture
from postgrad.system.files import error_text, load_json

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
STORED_AS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
             torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
             torch.bool: "BOOL"}
LARGEST = 5 * 10**9  # bytes in a file
PIECE = 1 << 25  # bytes that are fetched from a GPU at once
MOST_TENSORS = 2**16  # in a file


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor in a file, as its header describes it."""

    path: Path
    shape: tuple[int, ...]


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, MemoryError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error_text(error)}): get the file "
                         "again.") from error


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights; the single file wins, as in `transformers`."""
    if (folder / SINGLE).is_file() or not (folder / INDEX).is_file():
        return [folder / SINGLE]
    return [folder / name for name in sorted(set(_index(folder).values()))]


def list_weights(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a folder by name. Files, index and dtypes are checked before anything large is read."""
    if not (folder / SINGLE).is_file() and not (folder / INDEX).is_file():
        pickles = sorted(folder.glob("pytorch_model*.bin"))
        raise ValueError(f"{folder} has its weights in {pickles[0].name}, a pickle, which is never opened "
                         "here: save the model as safetensors with `transformers`." if pickles
                         else f"{folder} has no {SINGLE} and no {INDEX}: a model's weights are read "
                         "as safetensors.")
    files = weight_files(folder)
    parts = [_header(path) for path in files]
    if files != [folder / SINGLE]:
        placed = _index(folder)
        for path, part in zip(files, parts, strict=True):
            wanted = {name for name, file in placed.items() if file == path.name}
            if wanted != part.keys():
                raise ValueError(f"{path} does not hold what {INDEX} says: missing "
                                 f"{sorted(wanted - part.keys())[:3]}, unknown "
                                 f"{sorted(part.keys() - wanted)[:3]}.")
    return {name: stored for part in parts for name, stored in part.items()}


def read_weights(listed: dict[str, StoredTensor], device: str = "cpu",
                 dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The tensors themselves, one at a time from the file to the device."""
    out = {}
    for path in {stored.path: None for stored in listed.values()}:
        with safe_open(path, framework="pt") as file:
            for name in (n for n, stored in listed.items() if stored.path == path):
                out[name] = file.get_tensor(name).to(device, dtype)
    return out


@torch.no_grad()
def read_parts(listed: dict[str, StoredTensor], sharded: Mapping[str, Tensor]) -> None:
    """Fills sharded tensors: this rank reads its own rows of each."""
    for path in {stored.path: None for stored in listed.values()}:
        with safe_open(path, framework="pt") as file:
            for name in (n for n, stored in listed.items() if stored.path == path):
                part, rows = local_rows(sharded[name])
                if len(part):
                    part.copy_(file.get_slice(name)[rows])


def tensor_templates(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the same shapes and dtypes, without merging; wider dtypes first, as in safetensors."""
    like = getattr(tensors, "like", tensors.__getitem__)
    return dict(sorted(((name, like(name)) for name in tensors), key=lambda pair: -pair[1].itemsize))


def write_tensors(tensors: Mapping[str, Tensor], path: Path, names: Iterable[str] | None = None,
                  dtype: torch.dtype | None = None) -> None:
    """Writes a safetensors file, gathering sharded tensors one at a time; the other ranks call
    `send_tensor_shards`."""
    like, end = tensor_templates(tensors), 0
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    like = {name: like[name] for name in names or like}
    for name, x in like.items():
        start, end = end, end + x.numel() * (dtype or x.dtype).itemsize
        header[name] = {"dtype": STORED_AS[dtype or x.dtype], "shape": [*x.shape],
                        "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in like:
            with outside_capture():
                x = full_tensor(tensors[name].detach()).to(dtype or like[name].dtype).contiguous()
            for piece in _pieces(x):
                file.write(piece)


def _pieces(x: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor; from a GPU through pinned memory, which is faster and blocks no launches."""
    bits = x.flatten().view(torch.uint8)
    if not x.is_cuda:
        yield bits.cpu().numpy().data
        return
    buffer = torch.empty(min(PIECE, len(bits)), dtype=torch.uint8, pin_memory=True)
    for part in bits.split(PIECE):
        pinned = buffer[: len(part)]
        with outside_capture():
            pinned.copy_(part, non_blocking=True)
            torch.cuda.current_stream().synchronize()
        yield pinned.numpy().data


def send_tensor_shards(tensors: Mapping[str, Tensor]) -> None:
    """The other ranks' side of `write_tensors`: gathers each tensor in the same order."""
    for name in tensor_templates(tensors):
        full_tensor(tensors[name].detach())


def write_weights(tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype | None = None,
                  largest: int = LARGEST) -> None:
    """Writes one file, or several of at most `largest` bytes, and removes those of an earlier save."""
    parts: list[list[str]] = [[]]
    size = total = 0
    for name, tensor in tensor_templates(tensors).items():
        bytes_ = tensor.numel() * (dtype or tensor.dtype).itemsize
        if parts[-1] and size + bytes_ > largest:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size, total = size + bytes_, total + bytes_
    names = ([f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))] if len(parts) > 1
             else [SINGLE])
    for name, part in zip(names, parts, strict=True):
        write_tensors(tensors, folder / name, part, dtype)
    if len(parts) > 1:
        placed = {k: name for name, part in zip(names, parts, strict=True) for k in part}
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": placed},
                                               indent=1))
        names.append(INDEX)
    for old in ({folder / SINGLE, folder / INDEX, *folder.glob("model-*-of-*.safetensors")}
                - {folder / n for n in names}):
        old.unlink(missing_ok=True)


def _index(folder: Path) -> dict[str, str]:
    """Tensor -> file. Only bare file names: an index cannot reach out of its folder."""
    path = folder / INDEX
    try:
        placed = cast(dict[str, dict[str, str]], load_json(path))["weight_map"]
        sound = all(isinstance(name, str) and isinstance(file, str) for name, file in placed.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as an index of weights ({error_text(error)}): get the file "
                         "again.") from error
    if not sound or not placed:
        raise ValueError(f"{path}: weight_map must give a file for each tensor.")
    for file in sorted(set(placed.values())):
        if any(sign in file for sign in "/\\\0") or not file.endswith(".safetensors"):
            raise ValueError(f"{path} names {file!r}; only safetensors files in the same folder are read.")
        if not (folder / file).is_file():
            raise ValueError(f"{path} names {file}, which is not in the folder: get the missing file.")
    return placed


def _header(path: Path) -> dict[str, StoredTensor]:
    try:
        with safe_open(path, framework="pt") as file:
            if len(names := file.keys()) > MOST_TENSORS:
                raise ValueError(f"{path} holds {len(names):,} tensors; no model has over {MOST_TENSORS:,} "
                                 "in a file: get the file again.")
            found = {name: file.get_slice(name) for name in names}
            for name, part in found.items():
                if part.get_dtype() not in DTYPES:
                    raise ValueError(f"{path}: {name} is {part.get_dtype()}; weights are read as "
                                     f"{', '.join(DTYPES.values())} (a quantised model must be "
                                     "dequantised first).")
            return {name: StoredTensor(path=path, shape=tuple(part.get_shape())) for name,
                    part in found.items()}
    except (SafetensorError, OSError, MemoryError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error_text(error)}): get the file "
                         "again.") from error


def is_sharded(x: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is split over the ranks by its rows (FSDP2)."""
    return hasattr(x, "full_tensor")


def full_tensor(x: Tensor) -> Tensor:
    """A sharded tensor gathered, a collective operation; any other tensor as it is."""
    return x.full_tensor() if is_sharded(x) else x


def shard_like(x: Tensor, like: Tensor) -> Tensor:
    """A full tensor, sharded like another one."""
    if not is_sharded(like) or x.shape != like.shape:
        return x
    from torch.distributed.tensor import distribute_tensor
    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local_rows(x: Tensor) -> tuple[Tensor, slice]:
    """This rank's shard of a tensor, and its rows in the full one: 5 rows on 2 ranks are 3 and 2."""
    assert is_sharded(x)
    part, mesh = x.to_local(), x.device_mesh
    first = min(mesh.get_local_rank() * -(-len(x) // mesh.size()), len(x))
    return part, slice(first, first + len(part))
