"""The weights that a client has saved of one model: which there are, their names, who may read them."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from postgrad.serving.request_body import Refusal
from postgrad.system.files import load_json, write_text
from postgrad.system.json_text import shorten_value

KINDS = {"weights": "training", "sampler_weights": "sampler"}
NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
EPHEMERAL = 8  # saves without a name that stay: the newest
SHORTEST, LONGEST = 3600, 10 * 365 * 86400  # seconds that weights may be given to live
LARGEST = 2**26


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """id: "weights/0001". seq: the operation that saved it. expires: a time, 0 for never."""

    id: str
    seq: int
    made: float
    size: int = 0
    public: bool = False
    expires: float = 0.0
    deleted: bool = False
    user_metadata: dict[str, str] | None = None

    @property
    def has_name(self) -> bool:
        return "/~" not in self.id

    @property
    def exists(self) -> bool:
        return not self.deleted and not 0 < self.expires <= time.time()

    def record(self, model_id: str) -> dict[str, object]:
        """As clients are sent it."""
        return {"checkpoint_id": self.id, "checkpoint_type": KINDS[self.id.partition("/")[0]],
                "time": iso_time(self.made), "tinker_path": tinker_path(model_id, self.id),
                "size_bytes": self.size, "public": self.public, "user_metadata": self.user_metadata,
                "expires_at": iso_time(self.expires) if self.expires else None}


def iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def tinker_path(model_id: str, checkpoint: str) -> str:
    return f"tinker://{model_id}/{checkpoint}"


def split_path(path: str) -> tuple[str, str]:
    """tinker://MODEL/weights/NAME -> its model and its checkpoint's id."""
    model, _, checkpoint = path.removeprefix("tinker://").partition("/")
    kind, _, name = checkpoint.partition("/")
    if not path.startswith("tinker://") or kind not in KINDS or not name or "/" in name:
        raise Refusal(f"{shorten_value(path)} names no saved weights: they are called "
                      "tinker://MODEL/weights/NAME or tinker://MODEL/sampler_weights/NAME.", param="path")
    return model, checkpoint


def checkpoint_name(name: str) -> str:
    """The name, if it is one; else a Refusal."""
    if not 0 < len(name) <= 100 or not NAME_LETTERS.issuperset(name) or name[0] in ".-":
        raise Refusal(f"{shorten_value(name)} cannot name saved weights: use 1 to 100 letters, digits, '.', "
                      "'-' or '_', starting with a letter, a digit or '_'.", param="path")
    return name


def expiry(ttl: int | None) -> float:
    if ttl is None:
        return 0.0
    if not SHORTEST <= ttl <= LONGEST:
        raise Refusal(f"ttl_seconds is {ttl}, and has to be from {SHORTEST} (an hour) to {LONGEST} (ten "
                      "years).", param="ttl_seconds")
    return time.time() + ttl


class Catalogue:
    """The saved weights of a model, in a folder. Read from any thread: a change replaces the whole."""

    def __init__(self, folder: Path):
        self.folder, self.file = folder, folder / "checkpoints.json"
        self.lock = threading.Lock()
        stored = load_json(self.file, LARGEST) if self.file.exists() else []
        assert isinstance(stored, list), f"{self.file} is a list"
        self.entries = {entry["id"]: SavedCheckpoint(**entry) for entry in stored}

    def path(self, checkpoint: str) -> Path:
        return self.folder / checkpoint

    def available(self) -> list[SavedCheckpoint]:
        """Those with a name that a client may load, newest first."""
        listed = [entry for entry in self.entries.values() if entry.exists and entry.has_name]
        return sorted(listed, key=lambda entry: -entry.seq)

    def put(self, entry: SavedCheckpoint) -> None:
        with self.lock:
            self.entries = {**{k: v for k, v in self.entries.items() if k != entry.id}, entry.id: entry}
            self.write()

    def change(self, checkpoint: str, **values: object) -> None:
        with self.lock:
            changed = replace(self.entries[checkpoint], **values)  # type: ignore[arg-type]
            self.entries = {**self.entries, checkpoint: changed}
            self.write()

    def write(self) -> None:
        write_text(self.file, json.dumps([asdict(entry) for entry in self.entries.values()]))

    def save(self, entry: SavedCheckpoint, write: Callable[[Path], None], overwrite: bool) -> None:
        """Saves weights under a name. An operation that is done again has been done."""
        before = self.entries.get(entry.id)
        if before and before.seq == entry.seq:
            return
        if before and before.exists and not overwrite:
            raise Refusal(f"there are weights called {entry.id} already: take another name, or "
                          "overwrite=True where the call has it.", param="path")
        folder = self.path(entry.id)
        shutil.rmtree(folder, ignore_errors=True)
        write(folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        self.put(replace(entry, size=size))
        self.thin_out()

    def delete(self, checkpoint: str) -> None:
        self.change(checkpoint, deleted=True)
        shutil.rmtree(self.path(checkpoint), ignore_errors=True)

    def thin_out(self) -> None:
        """Removes the oldest saves without a name, and the files of what has expired."""
        loose = sorted((e for e in self.entries.values() if not e.has_name), key=lambda e: e.seq)[:-EPHEMERAL]
        gone = {entry.id for entry in loose}
        late = [e.id for e in self.entries.values() if e.id not in gone and not e.exists and not e.deleted]
        for checkpoint in (*gone, *late):
            shutil.rmtree(self.path(checkpoint), ignore_errors=True)
        if gone or late:
            with self.lock:
                self.entries = {k: replace(v, deleted=True) if k in late else v
                                for k, v in self.entries.items() if k not in gone}
                self.write()
