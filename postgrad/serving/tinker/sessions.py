"""Sessions of clients, a file each: who owns one, its samplers, how it ended."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from postgrad.serving.request_body import Refusal
from postgrad.system.files import load_json, write_text
from postgrad.system.json_text import shorten_value

LARGEST = 2**26
LETTERS = frozenset("0123456789abcdef")


def owner_of(key: str) -> str:
    """What is kept of a key: a hash."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


@dataclass(kw_only=True)
class Session:
    """samplers: by number, what each samples from: {} for the base model, {"path": ...} for saved weights,
    {"inflight": MODEL} for the newest that a model has published. clones: further clients of each."""

    id: str
    owner: str
    created: float
    user_metadata: dict[str, Any] = field(default_factory=dict)
    display_name: str | None = None
    project_id: str | None = None
    status: dict[str, Any] | None = None
    samplers: dict[str, dict[str, str]] = field(default_factory=dict)
    clones: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.status is None


class SessionBook:
    """The sessions in a folder, each read when it is first asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, Session] = {}

    def create(self, owner: str, **facts: Any) -> Session:
        session = Session(id=secrets.token_hex(8), owner=owner, created=time.time(), **facts)
        self.known[session.id] = session
        self.write(session)
        return session

    def write(self, session: Session) -> None:
        write_text(self.folder / f"{session.id}.json", json.dumps(asdict(session)))

    def get(self, id: str, owner: str) -> Session:
        """A session of this key; there is no other for it."""
        session = self.known.get(id) or self.read(id)
        if session is None or session.owner != owner:
            raise Refusal(f"there is no session {shorten_value(id)} of this API key.", 404)
        return session

    def read(self, id: str) -> Session | None:
        path = self.folder / f"{id}.json"
        if not LETTERS.issuperset(id) or not path.is_file():
            return None
        stored = load_json(path, LARGEST)
        assert isinstance(stored, Mapping), f"{path} is an object"
        session = self.known[id] = Session(**stored)
        return session

    def note_ask(self, session: str, request_id: str, fields: Mapping[str, Any]) -> None:
        """Keeps what was asked for, so that it can be sampled again after a restart: the newest asks."""
        path = self.folder / f"{session}.asks"
        if path.exists() and path.stat().st_size > LARGEST:
            path.replace(path.with_suffix(".asks-before"))
        with path.open("a") as file:
            file.write(json.dumps([request_id, dict(fields)]) + "\n")

    def sample_request(self, session: str, request_id: str) -> dict[str, Any] | None:
        """What was asked for under this name."""
        for suffix in (".asks", ".asks-before"):
            path = self.folder / f"{session}{suffix}"
            start = json.dumps([request_id])[:-1] + ","
            for line in path.open() if path.exists() else ():
                if line.startswith(start) and line.endswith("}]\n"):
                    fields: dict[str, Any] = json.loads(line)[1]
                    return fields
        return None

    def of(self, owner: str) -> list[Session]:
        """Those of a key, newest first."""
        for path in self.folder.glob("*.json"):
            if path.stem not in self.known:
                self.read(path.stem)
        return sorted((s for s in self.known.values() if s.owner == owner), key=lambda s: (-s.created, s.id))
