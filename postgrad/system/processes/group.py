"""The process group: joining it, and collectives over Python objects. torch is imported where there is more
than one rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from postgrad.system.processes.missing import Group, Lost, dead, who_is_gone, who_is_late

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

TIMEOUT = 1800.0  # seconds of a collective: rank 0 evaluates while the others wait

_group: Group | None = None


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
    if _group is not None and dead(_group):
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
    """All-gather of a Python object: x of every rank, by rank. what: names the collective in errors."""
    if _group is None:
        return [x]
    import torch.distributed as dist
    out: list[Any] = [None] * _group.world
    with waiting(what):
        dist.all_gather_object(out, portable(x))
    return out


def agreed(make: Callable[[], T], what: str) -> T:
    """Broadcast: what rank 0 makes, on every rank."""
    return gather(make() if leads() else None, what)[0]  # type: ignore[return-value]


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A block with a collective; where a rank is dead or late, it raises `Lost` with the ranks' names."""
    assert _group is not None
    _group.waits, _group.at = _group.waits + 1, what
    _group.tell("at", f"{_group.waits} {what}")
    try:
        yield
    except RuntimeError as error:
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        raise Lost(who_is_late(_group, what, timeout()) if late else who_is_gone(_group, what)) from error


def portable(x: Any) -> Any:
    """Copies of tensors in main memory, each with its own storage."""
    if isinstance(x, dict) and type(x) is dict:
        return {key: portable(value) for key, value in x.items()}
    if type(x) in (tuple, list):
        return type(x)(map(portable, x))
    return x.detach().cpu().clone() if hasattr(x, "is_cuda") else x
