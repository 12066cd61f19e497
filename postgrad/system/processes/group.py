"""Joining the ranks, and telling them things. torch is loaded where there is more than one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from postgrad.system.processes.missing import Group, Lost, dead, who_is_gone, who_is_late

T = TypeVar("T")

TIMEOUT = 1800.0  # seconds that a rank waits for the others: an examination by the first one lies in it

_group: Group | None = None


def join_ranks() -> None:
    """Meets the other ranks, where torchrun has started several; once a process."""
    global _group
    if _group is not None or started() == 1:
        return
    import torch
    import torch.distributed as dist
    backend = "gloo"
    if torch.cuda.is_available():
        here, few = int(os.environ.get("LOCAL_RANK", "0")), too_few_gpus()
        torch.cuda.set_device(here % torch.cuda.device_count())
        backend = "gloo" if few else "cpu:gloo,cuda:nccl"
        if few and here == 0:
            print(f"postgrad: {few}: what they exchange goes through main memory (gloo), for NCCL wants a "
                  "GPU for each.", file=sys.stderr)
    limit = timedelta(seconds=timeout())
    store, number, count = next(iter(dist.rendezvous("env://", timeout=limit)))
    dist.init_process_group(backend, store=dist.PrefixStore("work", store), rank=number, world_size=count,
                            timeout=limit)
    _group = Group(dist.PrefixStore("postgrad", store), number, count, nccl="nccl" in backend)


def too_few_gpus() -> str:
    """How many ranks share how many GPUs of this machine; "" where each has its own, or there is none."""
    import torch
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    return f"{here} ranks and {gpus} GPU{'s' if gpus > 1 else ''} here" if 0 < gpus < here else ""


def started() -> int:
    """How many ranks torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def leave() -> None:
    """Parts from the other ranks, after the work is done."""
    global _group
    if _group is not None:
        import torch.distributed as dist
        dist.destroy_process_group()
        _group = None


def timeout() -> float:
    said = os.environ.get("POSTGRAD_TIMEOUT", "")
    try:
        return float(said or TIMEOUT)
    except ValueError:
        raise ValueError(f"POSTGRAD_TIMEOUT is {said!r}: expected seconds, such as 1800.") from None


def rank() -> int:
    return _group.rank if _group else 0


def world() -> int:
    return _group.world if _group else 1


def carries(x) -> bool:
    """Whether a tensor can be sent from where it is."""
    return not x.is_cuda or (_group is not None and _group.nccl)


def leads() -> bool:
    """Whether this process is the one that writes, prints and examines."""
    return rank() == 0


def check_others() -> None:
    """Raises where another rank has died. torchrun then sends the rest a signal: it does not mean to stop
    and save."""
    if _group is not None and dead(_group):
        raise Lost(who_is_gone(_group, _group.at))


def tell_left() -> None:
    """Leaves word that this rank has come to its end as it should."""
    if _group is not None:
        _group.tell("left", "")


def tell_end(sentence: str) -> None:
    """Leaves word of why this rank ends, for those that will miss it."""
    if _group is not None:
        with suppress(RuntimeError):  # whoever kept the store is gone, and so is who would read it
            _group.tell("failed", sentence)


def says_first(sentence: str) -> bool:
    """Whether no other rank has said this sentence aloud: what ends all of them is said once."""
    try:
        return _group is None or _group.store.add(f"said/{sentence}", 1) == 1
    except RuntimeError:  # whoever kept the store is gone: nobody else can have been heard
        return True


def gather(x: T, what: str) -> list[T]:
    """x of every rank, by rank. what: the name of this wait."""
    if _group is None:
        return [x]
    import torch.distributed as dist
    out: list[Any] = [None] * _group.world
    with waiting(what):
        dist.all_gather_object(out, portable(x))
    return out


def agreed(make: Callable[[], T], what: str) -> T:
    """What the first rank makes, on every rank."""
    return gather(make() if leads() else None, what)[0]  # type: ignore[return-value]


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A block in which this rank waits for the others; one that is gone or late ends it with a sentence."""
    assert _group is not None
    _group.waits, _group.at = _group.waits + 1, what
    _group.tell("at", f"{_group.waits} {what}")
    try:
        yield
    except RuntimeError as error:
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        raise Lost(who_is_late(_group, what, timeout()) if late else who_is_gone(_group, what)) from error


def portable(x: Any) -> Any:
    """Tensors in main memory, each by itself."""
    if isinstance(x, dict) and type(x) is dict:
        return {key: portable(value) for key, value in x.items()}
    if type(x) in (tuple, list):
        return type(x)(map(portable, x))
    return x.detach().cpu().clone() if hasattr(x, "is_cuda") else x
