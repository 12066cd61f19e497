"""Steps of an engine as CUDA graphs, one for each of a few numbers of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from postgrad.capturing import capturing


def bucket(n: int) -> int:
    """The size of the graph that n rows run in: 8, 16, 32, 64, 128, then by 128s."""
    return max(8, 1 << (n - 1).bit_length()) if n <= 128 else -(-n // 128) * 128


def captured(work: Callable[[], object], engine, pool: object = None) -> torch.cuda.CUDAGraph | None:
    """What work launches, as a graph; None where there can be none, and the engine has said so."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with capturing(), torch.cuda.graph(graph, pool=pool):
            work()
    except RuntimeError as error:
        torch.cuda.set_stream(stream)  # that of a capture which failed is left current
        engine.uncaptured(error)
        return None
    return graph


class Steps:
    """Tokens of rows through all layers, whichever rows they are. nobody: the columns of a row that fills up
    a size."""

    def __init__(self, engine, nobody: tuple[int, ...]):
        self.engine, self.on_gpu = engine, engine.device.type == "cuda"
        self.nobody = torch.tensor(nobody, device=engine.device)[:, None]
        self.made: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, columns: Tensor, longest: int) -> Tensor:  # [5, R] -> [R, D]
        """token, at, slot, prompt and prompt_length of each row, as Engine.step asks for them."""
        if not (self.on_gpu and self.engine.graphs):
            return self.engine.step(*columns.contiguous(), longest=longest)
        n = columns.shape[1]
        size = max(n, min(self.engine.rows, bucket(n)))
        columns = torch.cat([columns, self.nobody.expand(-1, size - n)], dim=1)
        if size in self.made:
            graph, held, states = self.made[size]
            held.copy_(columns)
            graph.replay()
            return states[:n]
        states = self.engine.step(*columns)  # the first one as it is, so that all kernels are loaded
        self.capture(size, columns)
        return states[:n]

    def capture(self, size: int, held: Tensor) -> None:
        states: list[Tensor] = []
        pool = next((graph.pool() for graph, *_ in self.made.values()), None)
        graph = captured(lambda: states.append(self.engine.step(*held)), self.engine, pool)
        if graph:
            self.made[size] = graph, held, states[-1]
