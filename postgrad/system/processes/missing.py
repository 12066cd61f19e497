"""Which ranks are dead, and which are late, by a key-value store that all of them reach."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

GRACE = 3.0  # seconds in which a missing rank may still report why it failed


class Lost(ValueError):
    """Another rank is dead, late, or has failed."""


class KeyStore(Protocol):
    """What is used of torch.distributed's stores."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def add(self, key: str, amount: int) -> int: ...


class Group:
    """The process group as this rank sees it: the store, and the collective that this rank is at."""

    def __init__(self, store: KeyStore, rank: int, world: int, nccl: bool = False):
        self.store, self.rank, self.world, self.nccl = store, rank, world, nccl
        self.waits, self.at = 0, "came together"  # collectives so far, and the last one's name
        self.tell("who", f"{socket.gethostname()} {os.getpid()}")

    def tell(self, key: str, text: str) -> None:
        """Sets a key of this rank."""
        self.store.set(f"{key}/{self.rank}", text)

    def read(self, key: str, rank: int) -> str | None:
        """The key of a rank; None where it is not set."""
        name = f"{key}/{rank}"
        return self.store.get(name).decode() if self.store.check([name]) else None

    @property
    def others(self) -> list[int]:
        return [r for r in range(self.world) if r != self.rank]


def dead(group: Group) -> list[int]:
    """The ranks on this machine whose process has ended without finishing."""
    return [r for r in group.others if not is_alive(group, r) and group.read("left", r) is None]


def who_is_gone(group: Group, what: str) -> str:
    """The error for a rank that is gone: its own, where it has reported one."""
    remedy = "go on with `postgrad resume`, with any number of processes"
    try:
        group.tell("missing", what)
        until = time.monotonic() + GRACE
        gone: list[int] = []
        while not gone and time.monotonic() < until:
            for r in group.others:
                if (error := group.read("failed", r)) is not None:
                    return error
            gone = dead(group)
            time.sleep(0.05)
        # a rank on another machine is gone where it misses nobody itself
        gone = gone or [r for r in group.others if group.read("missing", r) is None]
        return f"{rank_names(group, gone)} died while the ranks {what}: {remedy}."
    except RuntimeError:
        return f"the store of the ranks is gone with the process or machine that kept it: {remedy}."


def who_is_late(group: Group, what: str, limit: float) -> str:
    """The error for ranks that have not reached this rank's collective, or hang inside it."""
    group.tell("missing", what)
    at = {r: (group.read("at", r) or "0 had not begun").split(" ", 1) for r in group.others}
    late = [r for r, (count, _) in at.items() if int(count) < group.waits]
    if not late:  # all reached it; one that hangs misses nobody
        time.sleep(GRACE)
        late = [r for r in group.others if group.read("missing", r) is None]
    last = f"; last seen where the ranks {at[late[0]][1]}" if late else ""
    return (f"{rank_names(group, late)} did not come within {limit:g} s to where the ranks {what}{last}: "
            "look at that process, or allow more with POSTGRAD_TIMEOUT=SECONDS.")


def rank_names(group: Group, ranks: Sequence[int]) -> str:
    """"rank 1 (process 4711 on node-a)"."""
    if not ranks:
        return "a rank"
    who = [(r, *(group.read("who", r) or "? ?").split()) for r in ranks]
    return " and ".join(f"rank {r} (process {pid} on {host})" for r, host, pid in who)


def is_alive(group: Group, rank: int) -> bool:
    """Whether a rank's process runs; True for ranks on other machines, which cannot be seen."""
    host, pid = (group.read("who", rank) or "? 0").split()
    if host != socket.gethostname() or pid == "0":
        return True
    try:
        os.kill(int(pid), 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:  # the pid is reused by another user's process
        return False
