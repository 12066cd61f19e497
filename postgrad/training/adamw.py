"""torch's fused AdamW without torch.optim.Optimizer, whose import of the compiler costs two seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.optim.adamw import adamw

EPS = 1e-8


class AdamW:
    """Moments by parameter index; created at a parameter's first gradient."""

    def __init__(self, params: Sequence[torch.Tensor], *, betas: tuple[float, float], weight_decay: float):
        self.params, self.betas, self.weight_decay = list(params), betas, weight_decay
        self.state: dict[int, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        grads = {i: p.grad for i, p in enumerate(self.params) if p.grad is not None}
        for i in grads:
            if i not in self.state:
                p = self.params[i]
                self.state[i] = {"step": torch.zeros((), dtype=torch.float32, device=p.device),
                                 "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        if grads:
            steps, means, squares = ([self.state[i][name] for i in grads]
                                     for name in ("step", "exp_avg", "exp_avg_sq"))
            adamw([self.params[i] for i in grads], list(grads.values()), means, squares, [], steps,
                  fused=True, amsgrad=False, beta1=self.betas[0], beta2=self.betas[1], lr=lr,
                  weight_decay=self.weight_decay, eps=EPS, maximize=False)

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def restore(self, state: dict[str, dict[str, torch.Tensor]],
                part: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """Loads moments. part(moment, parameter): this rank's shard of it."""
        def own(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
            return part(x, p).to(p.device, copy=True)

        self.state = {int(i): {name: own(x, self.params[int(i)]) for name, x in moments.items()}
                      for i, moments in state.items()}
