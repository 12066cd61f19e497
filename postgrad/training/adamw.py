"""torch's fused AdamW without torch.optim.Optimizer, whose import of the compiler costs two seconds; and with
its moments in 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.optim.adamw import adamw

EPS = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")
Betas = tuple[float, float]


class AdamW:
    """Moments by parameter index; created at a parameter's first gradient."""

    def __init__(self, params: Sequence[Tensor], *, betas: Betas, weight_decay: float, eps: float = EPS):
        self.params, self.betas, self.weight_decay, self.eps = list(params), betas, weight_decay, eps
        self.state: dict[int, dict[str, Tensor]] = {}

    def start(self, p: Tensor) -> dict[str, Tensor]:
        return {"step": torch.zeros((), dtype=torch.float32, device=p.device),
                **{name: torch.zeros_like(p) for name in MOMENTS}}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        grads = {i: p.grad for i, p in enumerate(self.params) if p.grad is not None}
        for i in grads:
            if i not in self.state:
                self.state[i] = self.start(self.params[i])
        if grads:
            self.update(grads, lr)

    def update(self, grads: dict[int, Tensor], lr: float) -> None:
        self.adamw(grads, [[self.state[i][name] for i in grads] for name in MOMENTS], lr)

    def adamw(self, grads: dict[int, Tensor], moments: Iterable[list[Tensor]], lr: float) -> None:
        """A fused step of these parameters and moments."""
        means, squares = moments
        adamw([self.params[i] for i in grads], list(grads.values()), means, squares, [],
              [self.state[i]["step"] for i in grads],
              fused=True, amsgrad=False, beta1=self.betas[0], beta2=self.betas[1], lr=lr,
              weight_decay=self.weight_decay, eps=self.eps, maximize=False)

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def restore(self, state: dict[str, dict[str, Tensor]],
                part: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Loads moments. part(moment, parameter): this rank's shard of it."""
        def own(x: Tensor, p: Tensor) -> Tensor:
            return part(x, p).to(p.device, copy=True)

        self.state = {int(i): {name: own(x, self.params[int(i)]) for name, x in moments.items()}
                      for i, moments in state.items()}


class AdamW8bit(AdamW):
    """AdamW whose moments lie in 8 bits between steps (Dettmers et al. 2021, arXiv:2110.02861): in blocks of
    256, a code of DYNAMIC for each number and the largest magnitude of the block, 2.03 bytes a parameter in
    place of 8. A step is computed in float32. Parameters of fewer than 4,096 numbers keep float32 moments, as
    in bitsandbytes. A second moment above 0 never becomes 0: a step divides by its root."""

    BLOCK, SMALLEST = 256, 4096

    def start(self, p: Tensor) -> dict[str, Tensor]:
        state = super().start(p)
        return state if p.numel() < self.SMALLEST else state | {
            key: x for name in MOMENTS for key, x in self.packed(name, state[name]).items()}

    def packed(self, name: str, moment: Tensor) -> dict[str, Tensor]:
        codes, largest = quantize_blocks(moment, dynamic_map(name == "exp_avg", moment.device), self.BLOCK)
        if name == "exp_avg_sq":
            codes = torch.maximum(codes, (moment.flatten() > 0).to(torch.uint8))
        return {name: codes, f"{name}_largest": largest}

    def unpacked(self, name: str, i: int) -> Tensor:
        state = self.state[i]
        if f"{name}_largest" not in state:
            return state[name]
        values = dynamic_map(name == "exp_avg", state[name].device)
        return dequantize_blocks(state[name], state[f"{name}_largest"], values,
                                 self.BLOCK).view_as(self.params[i])

    def update(self, grads: dict[int, Tensor], lr: float) -> None:
        for i, grad in grads.items():  # one by one: one parameter's moments are unpacked at a time
            moments = {name: self.unpacked(name, i) for name in MOMENTS}
            self.adamw({i: grad}, [[x] for x in moments.values()], lr)
            for name, moment in moments.items():
                if f"{name}_largest" in self.state[i]:
                    self.state[i] |= self.packed(name, moment)


def dynamic_map(signed: bool, device: torch.device) -> Tensor:  # [256], ascending
    """The 256 numbers of an 8-bit dynamic data type in [-1, 1], or [0, 1]: 0, 1, and in each of seven decades
    up to 1 the centres of equal parts, twice as many as in the decade below."""
    values = [0.0, 1.0]
    for decade in range(7):
        parts = 2**decade if signed else 2 ** (decade + 1)
        centres = [10.0 ** (decade - 6) * (0.1 + 0.9 * (i + 0.5) / parts) for i in range(parts)]
        values += [*centres, *(-x for x in centres if signed)]
    return torch.tensor(sorted(values), device=device)


def quantize_blocks(x: Tensor, values: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The nearest of `values` to each number over the largest magnitude of its block -> codes [N], uint8; and
    these magnitudes."""
    flat = x.flatten().float()
    blocks = pad(flat, (0, -len(flat) % block)).view(-1, block)
    largest = blocks.abs().amax(1)
    scaled = blocks / torch.where(largest > 0, largest, 1.0)[:, None]
    codes = torch.bucketize(scaled, (values[1:] + values[:-1]) / 2, out_int32=True).to(torch.uint8)
    return codes.flatten()[: len(flat)].clone(), largest


def dequantize_blocks(codes: Tensor, largest: Tensor, values: Tensor, block: int) -> Tensor:  # -> [N]
    return values[codes.int()] * largest.repeat_interleave(block)[: len(codes)]
