"""Who is gone, and who is late: what the ranks know of one another through a store that all of them reach."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

GRACE = 3.0  # seconds in which a rank that others miss is looked for


class Lost(ValueError):
    """Another rank is gone or late, or has failed: its sentence."""


class Group:
    """The ranks that this process has joined: a store that all of them reach, and where each one is."""

    def __init__(self, store, rank: int, world: int, nccl: bool = False):
        self.store, self.rank, self.world, self.nccl = store, rank, world, nccl
        self.waits, self.at = 0, "came together"  # how often it has waited for the others, and where
        self.tell("who", f"{socket.gethostname()} {os.getpid()}")

    def tell(self, key: str, text: str) -> None:
        """Leaves a word for the others under this rank's number."""
        self.store.set(f"{key}/{self.rank}", text)

    def told(self, key: str, rank: int) -> str | None:
        """What a rank has left, if it has."""
        name = f"{key}/{rank}"
        return self.store.get(name).decode() if self.store.check([name]) else None

    @property
    def others(self) -> list[int]:
        return [r for r in range(self.world) if r != self.rank]


def dead(group: Group) -> list[int]:
    """The ranks on this machine whose process has ended, but for those that came to their end."""
    return [r for r in group.others if not is_alive(group, r) and group.told("left", r) is None]


def who_is_gone(group: Group, what: str) -> str:
    """The sentence on a rank that no longer answers: its own, where it has left one."""
    remedy = "go on with `postgrad resume`, with any number of processes"
    try:
        group.tell("missing", what)
        until = time.monotonic() + GRACE
        gone: list[int] = []
        while not gone and time.monotonic() < until:
            for r in group.others:
                if (said := group.told("failed", r)) is not None:
                    return said
            gone = dead(group)
            time.sleep(0.05)
        # those on other machines that miss nobody themselves
        gone = gone or [r for r in group.others if group.told("missing", r) is None]
        return f"{rank_names(group, gone)} died while the ranks {what}: {remedy}."
    except RuntimeError:
        return f"the store of the ranks is gone with the process or machine that kept it: {remedy}."


def who_is_late(group: Group, what: str, limit: float) -> str:
    """The sentence on ranks that have not come to where this one waits, or have stopped on the way out."""
    group.tell("missing", what)
    at = {r: (group.told("at", r) or "0 had not begun").split(" ", 1) for r in group.others}
    late = [r for r, (count, _) in at.items() if int(count) < group.waits]
    if not late:  # all came; one that hangs misses nobody
        time.sleep(GRACE)
        late = [r for r in group.others if group.told("missing", r) is None]
    last = f"; last seen where the ranks {at[late[0]][1]}" if late else ""
    return (f"{rank_names(group, late)} did not come within {limit:g} s to where the ranks {what}{last}: "
            "look at that process, or allow more with POSTGRAD_TIMEOUT=SECONDS.")


def rank_names(group: Group, ranks: Sequence[int]) -> str:
    """"rank 1 (process 4711 on node-a)"."""
    if not ranks:
        return "a rank"
    who = [(r, *(group.told("who", r) or "? ?").split()) for r in ranks]
    return " and ".join(f"rank {r} (process {pid} on {host})" for r, host, pid in who)


def is_alive(group: Group, rank: int) -> bool:
    """Whether a rank's process runs; of one on another machine nobody here knows."""
    host, pid = (group.told("who", rank) or "? 0").split()
    if host != socket.gethostname() or pid == "0":
        return True
    try:
        os.kill(int(pid), 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:  # somebody else's, and so not ours, which has ended
        return False
