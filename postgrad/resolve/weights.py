"""Weights on their way from a training to its samplers: folders side by side, and a marker file that names
the one to use.

    FOLDER/12-3fa9c0d1e2b4/     a model's folder, whole or not there at all
    FOLDER/newest.json          {"step": 12, "name": "12-3fa9c0d1e2b4"}, replaced at one stroke

The name says the optimizer steps behind the weights and a sum over their bits, so that every process of a
training gives the same weights the same name, and other weights of the same step another. Where trainer and
samplers share a GPU the weights stand in its memory, and a file of that name says where (handles.py).
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

from postgrad.models import save_model
from postgrad.models.chat import Chat
from postgrad.resolve.models import Network, Trained, open_writer
from postgrad.sampling import WeightVersion
from postgrad.system.files import atomic_folder, load_json, write_text

MARKER = "newest.json"
NAME = re.compile(r"\d{1,15}-[0-9a-f]{12}")
PIECE = 1 << 24  # numbers that are summed at once
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class WeightsFolder:
    """Where a training leaves its weights. keep: how many of those that it wrote stay, `recent` by name.
    begins: the name of weights that stay to the end, "" where none have to."""

    def __init__(self, folder: str | Path, chat: Chat, keep: int = 2):
        self.folder, self.chat, self.keep, self.begins = Path(folder), chat, keep, ""
        self.recent: tuple[str, ...] = ()

    def remember(self, model: torch.nn.Module, step: int) -> WeightVersion:
        """What the model's weights are called; they stay for a while."""
        weights = name_weights(model, step)
        if weights.name not in self.recent:
            self.recent = (*self.recent, weights.name)[-self.keep:]
        return weights

    def write(self, model: Trained, step: int) -> WeightVersion:
        """The model as it is now, under its name; nobody takes it yet."""
        weights = self.remember(model, step)
        if not (self.folder / weights.name).is_dir():
            with atomic_folder(self.folder / weights.name) as made:
                save_model(model, made)
                self.chat.save(made)
        return weights

    def open(self, name: str, device: str) -> Network:
        """The model with weights that are still there."""
        return open_writer(self.folder / name, device)[0].requires_grad_(False)

    def show(self, weights: WeightVersion) -> None:
        """From here on these are the weights to use; earlier ones than the last few are removed."""
        write_text(self.folder / MARKER, f'{{"step": {weights.step}, "name": "{weights.name}"}}\n')
        stay = {weights.name, self.begins, *self.recent}
        for path in [*self.folder.iterdir()]:
            if is_ours(path) and path.stem not in stay and int(path.stem.split("-")[0]) <= weights.step:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_ours(path: Path) -> bool:
    """Whether a training wrote this: by its name, and no link to anywhere else."""
    there = path.is_dir() if path.suffix == "" else path.suffix == ".json" and path.is_file()
    return there and not path.is_symlink() and bool(NAME.fullmatch(path.stem))


def weights_folder(folder: Path, name: object) -> Path:
    """The folder of these weights, none of whose files is a link out of it."""
    path = folder / str(name)
    if path.name != name or path.suffix or not is_ours(path):
        raise ValueError(f"{folder} names {name!r:.80}, which is no folder of weights in it: let a training "
                         "write it.")
    if link := next((inside for inside in path.rglob("*") if inside.is_symlink()), None):
        raise ValueError(f"{link} is a link, and weights that a training writes have none: let a training "
                         "write them.")
    return path


def is_weights_folder(folder: str | Path) -> bool:
    return (Path(folder) / MARKER).is_file()


def current_weights(folder: str | Path) -> tuple[Path, WeightVersion]:
    """The folder of the weights to use, or the file that says where they are; and what they are."""
    said = load_json(Path(folder) / MARKER)
    if not (isinstance(said, dict) and type(said.get("step")) is int and isinstance(said.get("name"), str)):
        raise ValueError(f"{Path(folder) / MARKER} names no weights: let a training write it.")
    path = Path(folder) / f"{said['name']}.json"
    if path.parent != Path(folder) or not is_ours(path):
        path = weights_folder(Path(folder), said["name"])
    return path, WeightVersion(said["step"], said["name"])


def name_weights(model: torch.nn.Module, step: int) -> WeightVersion:
    return WeightVersion(step, f"{step}-{weights_checksum(p for _, p in sorted(model.named_parameters()))}")


@torch.no_grad()
def weights_checksum(tensors: Iterable[torch.Tensor]) -> str:
    """Twelve digits by the bits of these tensors, wherever they are."""
    digest = hashlib.sha256()
    for x in tensors:
        bits, sums = x.detach().contiguous().view(INTEGERS[x.element_size()]).flatten(), [0, 0]
        for start in range(0, len(bits), PIECE):
            piece = bits[start: start + PIECE].to(torch.int64)
            places = torch.arange(start, start + len(piece), device=piece.device)
            sums = [sums[0] + int(piece.sum()), sums[1] + int((piece * places).sum())]
        digest.update(f"{tuple(x.shape)} {sums}\n".encode())
    return digest.hexdigest()[:12]
