"""The ranks that torchrun starts: the process group, collectives over plain values and records, and which
ranks are dead or late. torch is imported where there is more than one rank.

Every collective is named and has a timeout (POSTGRAD_TIMEOUT, in seconds). On a timeout the error names the
ranks that are dead or late, by a key-value store that all of them reach.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from postgrad.system.rank_messages import decode_message, encode_message

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

TIMEOUT = 1800.0  # seconds of a collective: rank 0 evaluates while the others wait
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
    """A process group as this rank sees it: the store, and the collective that this rank is at. name: of a
    thread's group beside the first, and handle: torch's. leader: host and process of rank 0, which keeps the
    store where no torchrun does."""

    def __init__(self, store: KeyStore, rank: int, world: int, nccl: bool = False, name: str = "",
                 handle: Any = None, leader: str = "? 0"):
        self.store, self.rank, self.world, self.nccl = store, rank, world, nccl
        self.name, self.handle, self.leader = name, handle, leader
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
        host, pid = group.leader.split()
        until = time.monotonic() + GRACE
        while group.rank and time.monotonic() < until:
            if not is_running(host, pid):
                return (f"rank 0 (process {pid} on {host}) died while the ranks {what}, and with it their "
                        f"store: {remedy}.")
            time.sleep(0.05)
        return f"the store of the ranks is gone with the process or machine that kept it: {remedy}."


def who_is_late(group: Group, what: str, limit: float) -> str:
    """The error for ranks that have not reached this rank's collective, or hang inside it."""
    group.tell("missing", what)
    at = {r: (group.read(f"at{group.name}", r) or "0 had not begun").split(" ", 1) for r in group.others}
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
    return is_running(*(group.read("who", rank) or "? 0").split())


def is_running(host: str, pid: str) -> bool:
    """Whether a process runs; True on other machines."""
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


_group: Group | None = None
_own = threading.local()  # group: of a thread that has one of its own


def new_group(name: str) -> Group | None:
    """A group for the collectives of another thread, whose order is not that of this one's; None in one
    process. Collective. Its collectives carry plain values, and so go over gloo."""
    if _group is None:
        return None
    import torch.distributed as dist
    handle = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout()))
    return Group(_group.store, _group.rank, _group.world, name=f"/{name}", handle=handle,
                 leader=_group.leader)


def use_group(group: Group | None) -> None:
    """From here on this thread's collectives are those of the group."""
    _own.group = group


def current_group() -> Group | None:
    """The group of this thread."""
    return getattr(_own, "group", None) or _group


def join_ranks() -> None:
    """Joins the process group where torchrun has started several ranks; once per process."""
    global _group
    if _group is not None or started() == 1:
        return
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous
    backend = "gloo"
    if torch.cuda.is_available():
        local_rank, few = int(os.environ.get("LOCAL_RANK", "0")), too_few_gpus()
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
        backend = "gloo" if few else "cpu:gloo,cuda:nccl"
        if few and local_rank == 0:
            print(f"postgrad: {few}: collectives go through main memory (gloo), since NCCL needs a GPU for "
                  "each.", file=sys.stderr)
    limit = timedelta(seconds=timeout())
    store, number, count = next(iter(rendezvous("env://", timeout=limit)))
    dist.init_process_group(backend, store=PrefixStore("work", store), rank=number, world_size=count,
                            timeout=limit)
    _group = Group(PrefixStore("postgrad", store), number, count, nccl="nccl" in backend)
    _group.leader = _group.store.get("who/0").decode()  # waits for it


def too_few_gpus() -> str:
    """How many ranks share how many GPUs of this machine; "" where each has its own, or there is no GPU."""
    import torch
    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    return f"{ranks} ranks and {gpus} GPU{'s' if gpus > 1 else ''} here" if 0 < gpus < ranks else ""


def started() -> int:
    """The world size that torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def leave() -> None:
    """Destroys the process group, after the work is done."""
    global _group
    if _group is not None:
        import torch.distributed as dist
        dist.destroy_process_group()
        _group = None


def timeout() -> float:
    text = os.environ.get("POSTGRAD_TIMEOUT", "")
    try:
        return float(text or TIMEOUT)
    except ValueError:
        raise ValueError(f"POSTGRAD_TIMEOUT is {text!r}: expected seconds, such as 1800.") from None


def rank() -> int:
    return _group.rank if _group else 0


def world() -> int:
    return _group.world if _group else 1


def carries(x: torch.Tensor) -> bool:
    """Whether collectives can send a tensor from its device."""
    return not x.is_cuda or (_group is not None and _group.nccl)


def leads() -> bool:
    """Whether this is rank 0, which writes, prints and evaluates."""
    return rank() == 0


def check_others() -> None:
    """Raises `Lost` where another rank has died: the signal that torchrun then sends does not mean to stop
    and save."""
    if _group is None:
        return
    try:
        gone = bool(dead(_group))
    except RuntimeError:  # the store
        gone = True
    if gone:
        raise Lost(who_is_gone(_group, _group.at))


def tell_left() -> None:
    """Records in the store that this rank has finished."""
    if _group is not None:
        _group.tell("left", "")


def tell_end(sentence: str) -> None:
    """Records in the store why this rank fails, for the ranks that wait for it."""
    if _group is not None:
        with suppress(RuntimeError):  # the store is gone with the process that hosted it
            _group.tell("failed", sentence)


def says_first(sentence: str) -> bool:
    """Whether this rank is the first to print this sentence: an error of all ranks is printed once."""
    try:
        return _group is None or _group.store.add(f"said/{sentence}", 1) == 1
    except RuntimeError:  # the store is gone with the process that hosted it
        return True


def gather(x: T, what: str) -> list[T]:
    """All-gather of plain values, records and tensors: x of every rank, by rank. what: names the collective
    in errors."""
    group = current_group()
    if group is None:
        return [x]
    import torch
    import torch.distributed as dist
    sent = torch.frombuffer(bytearray(encode_message(x)), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(group.world)]
    with waiting(what):
        dist.all_gather(sizes, torch.tensor([len(sent)]), group=group.handle)
        longest = max(int(size) for size in sizes)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        dist.all_gather(parts, torch.nn.functional.pad(sent, (0, longest - len(sent))), group=group.handle)
    return [decode_message(part[:int(size)].numpy().tobytes())
            for part, size in zip(parts, sizes, strict=True)]


def agreed(make: Callable[[], T], what: str) -> T:
    """Broadcast: what rank 0 makes, on every rank."""
    return gather(make() if leads() else None, what)[0]  # type: ignore[return-value]


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A block with a collective; where a rank is dead or late, it raises `Lost` with the ranks' names."""
    group = current_group()
    assert group is not None
    group.waits, group.at = group.waits + 1, what
    try:
        group.tell(f"at{group.name}", f"{group.waits} {what}")
        yield
    except RuntimeError as error:
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        try:
            sentence = who_is_late(group, what, timeout()) if late else who_is_gone(group, what)
        except RuntimeError:  # the store
            sentence = who_is_gone(group, what)
        raise Lost(sentence) from error
