"""Functions that make tensors, put them together and draw them; torch.nn.functional and torch.optim."""

from __future__ import annotations

import math
import random as _random
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from postgrad.studio.engine.small_torch.numbers import (
    HERE,
    common_shape,
    dtype,
    float32,
    float64,
    int64,
    logsigmoid_of,
    pi,
    sigmoid_of,
    sizes_of,
)
from postgrad.studio.engine.small_torch.tensor import (
    Tensor,
    cat,
    float_kind,
    full,
    full_like,
    kind_of,
    no_grad,
    pointwise,
    tensor,
    where,
    zeros_like,
)

# made from numbers

def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return data.to(dtype) if isinstance(data, Tensor) else tensor(data, dtype=dtype)


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return full(sizes_of(size), 0, dtype=dtype or float32, requires_grad=requires_grad)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return full(sizes_of(size), 1, dtype=dtype or float32, requires_grad=requires_grad)


def ones_like(x: Tensor, dtype: Any = None, device: Any = None) -> Tensor:
    return full_like(x, 1, dtype)


empty, empty_like = zeros, zeros_like


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    start, end = (0, start) if end is None else (start, end)
    count = max(0, math.ceil((end - start) / step))
    return tensor([start + i * step for i in range(count)], dtype=dtype or kind_of([start, end, step]))


def linspace(start: float, end: float, steps: int, *, dtype: Any = None) -> Tensor:
    step = (end - start) / max(steps - 1, 1)
    return tensor([start + step * i for i in range(steps)], dtype=dtype or float32)


def eye(n: int, *, dtype: Any = None) -> Tensor:
    return tensor([[float(i == j) for j in range(n)] for i in range(n)], dtype=dtype or float32)


def is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


# several tensors

concat = concatenate = cat


def allclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    shape = common_shape(tuple(a.shape), tuple(b.shape))
    return all(x == y or abs(x - y) <= atol + rtol * abs(y) or equal_nan and x != x and y != y
               for x, y in zip(a.expand(shape)._values, b.expand(shape)._values, strict=True))


def outer(a: Tensor, b: Tensor) -> Tensor:
    return a[:, None] * b[None]


def diff(x: Tensor, dim: int = -1) -> Tensor:
    return x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1)


def vecdot(a: Tensor, b: Tensor, dim: int = -1) -> Tensor:
    return (a * b).sum(dim)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    kept = tensor([[j <= i + diagonal for j in range(x.shape[-1])] for i in range(x.shape[-2])])
    return where(kept, x, zeros_like(x))


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return x - tril(x, diagonal - 1)


# random numbers: the Mersenne twister, as torch reads it

class Generator:
    def __init__(self, device: Any = "cpu"):
        self._twister = _random.Random()
        self.manual_seed(5489)

    def manual_seed(self, seed: int) -> Generator:
        state = [seed & 0xFFFFFFFF]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
        self._twister.setstate((3, (*state, 624), None))
        self._spare: float | None = None
        return self

    def word(self) -> int:
        return self._twister.getrandbits(32)

    def uniform(self, kind: dtype) -> float:
        if kind is float64:
            return ((self.word() << 32 | self.word()) & (1 << 53) - 1) * 2.0**-53
        return (self.word() & (1 << 24) - 1) * 2.0**-24

    def normal(self) -> float:
        if self._spare is not None:
            found, self._spare = self._spare, None
            return found
        turn, size = self.uniform(float64), math.sqrt(-2 * math.log1p(-self.uniform(float64)))
        self._spare = size * math.sin(2 * pi * turn)
        return size * math.cos(2 * pi * turn)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    return default_generator.manual_seed(seed)


def rand(*size: Any, generator: Generator | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    draw, kind = generator or default_generator, dtype or float32
    shape = sizes_of(size)
    return Tensor([draw.uniform(kind) for _ in range(math.prod(shape))], shape, kind)


def randn(*size: Any, generator: Generator | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    draw, kind = generator or default_generator, dtype or float32
    shape = sizes_of(size)
    count = math.prod(shape)
    if count < 16:
        return Tensor(kind.rounded([draw.normal() for _ in range(count)]), shape, kind)
    values = [draw.uniform(kind) for _ in range(count)]
    for start in (*range(0, count - 15, 16), *([-16] if count % 16 else [])):
        if start < 0:
            start = count - 16
            values[start:] = [draw.uniform(kind) for _ in range(16)]
        for i in range(start, start + 8):
            size_, turn = math.sqrt(-2 * math.log(1 - values[i])), 2 * pi * values[i + 8]
            values[i], values[i + 8] = size_ * math.cos(turn), size_ * math.sin(turn)
    return Tensor(kind.rounded(values), shape, kind)


def randint(low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            dtype: Any = None, device: Any = None) -> Tensor:
    if not isinstance(high, int):
        low, high, size = 0, low, high if size is None else size
    draw, shape = generator or default_generator, sizes_of(size)
    return Tensor([low + draw.word() % (high - low) for _ in range(math.prod(shape))], shape, dtype or int64)


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    draw, found = generator or default_generator, list(range(n))
    for i in range(n - 1):
        j = i + draw.word() % (n - i)
        found[i], found[j] = found[j], found[i]
    return Tensor(found, (n,), int64)


def multinomial(chances: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Generator | None = None) -> Tensor:
    if not replacement and num_samples > 1:
        raise AttributeError(HERE.format("multinomial without replacement"))
    draw, rows = generator or default_generator, chances.reshape(-1, chances.shape[-1]).tolist()
    found = []
    for row in rows:
        ends = list(accumulate(row))
        for _ in range(num_samples):
            at = draw.uniform(float64) * ends[-1]
            found.append(next((i for i, end in enumerate(ends) if end >= at), len(row) - 1))
    return Tensor(found, (*chances.shape[:-1], num_samples), int64)


# torch.nn.functional, torch.optim and the rest

def logsigmoid(x: Tensor) -> Tensor:
    return pointwise(logsigmoid_of, (x,), (lambda v, _: sigmoid_of(-v),), float_kind((x,)))


def softplus(x: Tensor) -> Tensor:
    return -logsigmoid(-x)


def pad(x: Tensor, padding: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    for back, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        dim = x.ndim - 1 - back
        parts = [x.new_full([n if d == dim else s for d, s in enumerate(x.shape)], value)
                 for n in (before, after)]
        x = cat([parts[0], x, parts[1]], dim)
        for n, side in ((before, True), (after, False)):
            if n < 0:
                x = x.narrow(dim, -n if side else 0, x.shape[dim] + n)
    return x


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    count = num_classes if num_classes > 0 else int(x.max()) + 1
    return x.unsqueeze(-1).eq(arange(count)).to(int64)


def _mean_of(x: Tensor, reduction: str) -> Tensor:
    return x.mean() if reduction == "mean" else x.sum() if reduction == "sum" else x


def nll_loss(logp: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return _mean_of(-logp.gather(1, target.unsqueeze(1)).squeeze(1), reduction)


def cross_entropy(logits: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    if logits.ndim == 1:
        return -logits.log_softmax(0)[target]
    return nll_loss(logits.log_softmax(1), target, reduction)


def mse_loss(a: Tensor, b: Tensor, reduction: str = "mean") -> Tensor:
    return _mean_of((a - b) ** 2, reduction)


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return _mean_of(softplus(x) - x * target, reduction)


def kl_div(logq: Tensor, p: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    found = p.exp() * (p - logq) if log_target else p.xlogy(p) - p * logq
    return found.sum() / found.shape[0] if reduction == "batchmean" else _mean_of(found, reduction)


class Optimizer:
    def __init__(self, params: Iterable[Tensor], lr: float, **constants: Any):
        self.params, self.lr, self.constants = list(params), lr, constants
        self.state: dict[int, list[Any]] = {}
        self.count = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        self.count += 1
        with no_grad():
            for i, p in enumerate(self.params):
                if p.grad is not None:
                    p._write(p.sub(self.change(i, p) * self.lr)._values)

    def change(self, i: int, p: Tensor) -> Tensor:
        raise NotImplementedError


class SGD(Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, momentum: float = 0.0,
                 weight_decay: float = 0.0):
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay)

    def change(self, i: int, p: Tensor) -> Tensor:
        assert p.grad is not None
        g = p.grad + self.constants["weight_decay"] * p.detach()
        if self.constants["momentum"]:
            old = self.state.get(i)
            g = g if old is None else self.constants["momentum"] * old[0] + g
            self.state[i] = [g]
        return g


class Adam(Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def change(self, i: int, p: Tensor) -> Tensor:
        assert p.grad is not None
        (a, b), g = self.constants["betas"], p.grad + self.constants["weight_decay"] * p.detach()
        m, v = self.state.get(i, [zeros_like(g), zeros_like(g)])
        m, v = a * m + (1 - a) * g, b * v + (1 - b) * g * g
        self.state[i] = [m, v]
        found: Tensor = (m / (1 - a**self.count)) / ((v / (1 - b**self.count)).sqrt() + self.constants["eps"])
        return found
