"""What a client was promised, on disk before it is answered: the operations on a model that no checkpoint
holds.

An entry is a header in JSON (what, which number, the seal of the body) and the body as it came. A kill leaves
at most a torn last entry, of which nobody was told; it is cut off. Damage anywhere else is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FRAME = struct.Struct("<4sII")  # a mark, bytes of the header and of the body
MARK = b"pgtj"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """kind: "forward_backward", "optim_step" and so on. refusal: the sentence with which it was refused; its
    number is used up even so."""

    kind: str
    seq: int
    body: bytes
    refusal: str = ""

    @property
    def seal(self) -> str:
        return hashlib.sha256(f"{self.kind} {self.seq} ".encode() + self.body).hexdigest()[:32]

    def entry(self) -> bytes:
        header = json.dumps({"kind": self.kind, "seq": self.seq, "seal": self.seal,
                             "refusal": self.refusal}).encode()
        return FRAME.pack(MARK, len(header), len(self.body)) + header + self.body


class Journal:
    """Operations in a file, in the order in which they came."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.operations, sound = read_entries(path)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self.file, sound)
        self.size = sound

    def append(self, operation: Operation) -> None:
        """Whole, or not at all: a full disk raises, and leaves the file as it was."""
        entry = operation.entry()
        try:
            if os.write(self.file, entry) != len(entry):
                raise OSError("the disk took a part of an entry")
        except OSError:
            os.ftruncate(self.file, self.size)
            raise
        self.size += len(entry)
        self.operations.append(operation)

    def drop_until(self, seq: int) -> None:
        """Forgets the operations up to this one, which a checkpoint holds."""
        self.operations = [operation for operation in self.operations if operation.seq > seq]
        write_entries(self.path, self.operations)
        os.close(self.file)
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self.size = self.path.stat().st_size

    def close(self) -> None:
        os.close(self.file)


def write_entries(path: Path, operations: Iterable[Operation]) -> None:
    temp = path.with_name(f".{path.name}.tmp")
    temp.write_bytes(b"".join(operation.entry() for operation in operations))
    os.replace(temp, path)


def read_entries(path: Path) -> tuple[list[Operation], int]:
    """The operations of a file, and the bytes up to the end of the last one.

    A torn last entry is left out. An unsound one before a sound one was damaged later: it raises.
    """
    data = path.read_bytes() if path.exists() else b""
    operations: list[Operation] = []
    at = 0
    while entry := entry_at(data, at):
        operation, at = entry
        operations.append(operation)
    after = data.find(MARK, at + 1)
    while after >= 0:
        if entry := entry_at(data, after):
            raise ValueError(f"entry {len(operations) + 1} of {path} is damaged, and operation "
                             f"{entry[0].seq} after it is not: put back a copy of the file, or delete it to "
                             "go on from the last checkpoint.")
        after = data.find(MARK, after + 1)
    return operations, at


def entry_at(data: bytes, at: int) -> tuple[Operation, int] | None:
    """The operation whose entry begins there, and where the entry ends; None if it is not sound."""
    if at + FRAME.size > len(data):
        return None
    mark, header, body = FRAME.unpack_from(data, at)
    start = at + FRAME.size
    end = start + header + body
    if mark != MARK or end > len(data):
        return None
    try:
        named = json.loads(data[start: start + header])
        operation = Operation(kind=named["kind"], seq=named["seq"], refusal=named["refusal"],
                              body=data[start + header: end])
        return (operation, end) if operation.seal == named["seal"] else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
