"""A tensor that is divided among the ranks by its rows (FSDP2), and what it is a part of."""

from __future__ import annotations

from torch import Tensor


def is_sharded(x: Tensor) -> bool:
    return hasattr(x, "full_tensor")


def full_tensor(x: Tensor) -> Tensor:
    """All of a tensor that is divided, which every rank has to ask for; another as it is."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def shard_like(x: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, divided as another one is."""
    if not is_sharded(like) or x.shape != like.shape:
        return x
    from torch.distributed.tensor import distribute_tensor
    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local_rows(x: Tensor) -> tuple[Tensor, slice]:
    """This rank's part of a divided tensor, and which rows of the whole it is: 5 rows among 2 ranks are 3
    and 2."""
    part, mesh = x.to_local(), x.device_mesh  # type: ignore[attr-defined]
    first = min(mesh.get_local_rank() * -(-len(x) // mesh.size()), len(x))
    return part, slice(first, first + len(part))
