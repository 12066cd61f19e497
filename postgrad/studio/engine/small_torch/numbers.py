"""What stands below a tensor: dtypes, places in shapes, and functions of single numbers with their slopes.
None of them raises where torch does not."""

from __future__ import annotations

import math
import sys
from array import array
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import index as as_index
from typing import Any

inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
HERE = "this page's small torch has no {}: run it in `postgrad studio`, which has the whole one"
Numbers = list[Any]


class dtype:  # noqa: N801  torch's own name
    """kind: 0 bool, 1 whole numbers, 2 floats; promotion takes the larger (kind, bits)."""

    def __init__(self, name: str, kind: int, bits: int):
        self.name, self.kind, self.bits = name, kind, bits
        self.is_floating_point = kind == 2

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def rounded(self, values: Numbers) -> Numbers:
        if self.kind == 2:
            if self.bits < 32:
                raise AttributeError(HERE.format(self.name))
            return values if self.bits == 64 else array("f", values).tolist()
        return list(map(int if self.kind else bool, values))


bool_, int32, int64 = dtype("bool", 0, 1), dtype("int32", 1, 32), dtype("int64", 1, 64)
float16, bfloat16, float32, float64 = (dtype(name, 2, bits) for name, bits in (
    ("float16", 16), ("bfloat16", 16), ("float32", 32), ("float64", 64)))
Finfo = namedtuple("Finfo", "eps max min tiny")


def finfo(kind: dtype) -> Finfo:
    if kind is float64:
        return Finfo(2.0**-52, sys.float_info.max, -sys.float_info.max, sys.float_info.min)
    return Finfo(2.0**-23, (2 - 2.0**-23) * 2.0**127, -(2 - 2.0**-23) * 2.0**127, 2.0**-126)


class Size(tuple[int, ...]):
    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def numel(self) -> int:
        return math.prod(self)


class device:  # noqa: N801
    type = "cpu"

    def __init__(self, name: object = "cpu"):
        if str(name) != "cpu":
            raise RuntimeError(HERE.format(f"device {name}"))

    def __str__(self) -> str:
        return "cpu"


# shapes

@lru_cache(maxsize=512)
def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(accumulate(shape[:0:-1], int.__mul__, initial=1))[::-1] if shape else ()


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    width = max(map(len, shapes))
    found = []
    for sizes in zip(*((1,) * (width - len(s)) + s for s in shapes), strict=True):
        large = {n for n in sizes if n != 1}
        if len(large) > 1:
            raise RuntimeError(f"The shapes {' and '.join(str(list(s)) for s in shapes)} do not fit together")
        found.append(large.pop() if large else 1)
    return tuple(found)


@lru_cache(maxsize=512)
def spread_places(shape: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    """For each place of `out` the place in a value of `shape` that is spread over it."""
    shape = (1,) * (len(out) - len(shape)) + shape
    steps = [0 if n == 1 else s for n, s in zip(shape, strides_of(shape), strict=True)]
    return grid_places(tuple(tuple(k * s for k in range(n)) for n, s in zip(out, steps, strict=True)))


def grid_places(axes: Sequence[Sequence[int]], start: int = 0) -> tuple[int, ...]:
    found = [start]
    for axis in axes:
        found = [a + b for a in found for b in axis]
    return tuple(found)


def axis_of(dim: int, count: int) -> int:
    if not -max(count, 1) <= dim < max(count, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], "
                         f"but got {dim})")
    return dim % max(count, 1)


@lru_cache(maxsize=512)
def lines_along(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """For each place of the axes other than `dims`, the places that are reduced to it."""
    axes = [tuple(k * s for k in range(n)) for n, s in zip(shape, strides_of(shape), strict=True)]
    inner = grid_places([axes[d] for d in dims])
    return tuple(tuple(start + i for i in inner)
                 for start in grid_places([axis for d, axis in enumerate(axes) if d not in dims]))


def shape_without(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims)


def sizes_of(size: Sequence[Any]) -> tuple[int, ...]:
    """view(2, 3), view((2, 3)) -> (2, 3)"""
    if len(size) == 1 and isinstance(size[0], tuple | list):
        size = size[0]
    return tuple(map(as_index, size))


# numbers

def log_of(x: float) -> float:
    return math.log(x) if x > 0 else -inf if x == 0 else nan


def exp_of(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return inf


def expm1_of(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return inf


def quotient(a: float, b: float) -> float:
    if b:
        return a / b
    return nan if not a or a != a or b != b else math.copysign(inf, a) * math.copysign(1.0, b)


def power(a: float, b: float) -> float:
    try:
        found = a ** b
        return nan if isinstance(found, complex) else found
    except ZeroDivisionError:
        return inf
    except OverflowError:
        return inf


def sigmoid_of(x: float) -> float:
    return 1 / (1 + exp_of(-x)) if x >= 0 else exp_of(x) / (1 + exp_of(x))


def logsigmoid_of(x: float) -> float:
    return min(x, 0.0) - math.log1p(exp_of(-abs(x)))


def bounded(x: float, low: float, high: float) -> float:
    return x if x != x else min(max(x, low), high)


def logsumexp_of(values: Numbers) -> float:
    top = max(values, default=-inf)
    return top if not math.isfinite(top) else top + math.log(sum(exp_of(v - top) for v in values))


def sorting_key(x: float) -> tuple[bool, float]:
    return x != x, x  # nan is the largest


def promote_types(a: dtype, b: dtype) -> dtype:
    if {a, b} == {float16, bfloat16}:
        return float32
    return max(a, b, key=lambda d: (d.kind, d.bits))


Slope = Callable[..., float]
UNARY: dict[str, tuple[Callable[[Any], Any], Slope]] = {  # of floats: the function, its slope at (x, f(x))
    "exp": (exp_of, lambda x, y: y), "log": (log_of, lambda x, y: quotient(1.0, x)),
    "sqrt": (lambda x: math.sqrt(x) if x >= 0 else nan, lambda x, y: quotient(0.5, y)),
    "rsqrt": (lambda x: power(x, -0.5), lambda x, y: -0.5 * power(x, -1.5)),
    "log1p": (lambda x: log_of(1 + x) if x <= -1 else math.log1p(x), lambda x, y: quotient(1.0, 1 + x)),
    "expm1": (expm1_of, lambda x, y: y + 1),
    "log2": (lambda x: log_of(x) / math.log(2), lambda x, y: quotient(1.0, x * math.log(2))),
    "log10": (lambda x: math.log10(x) if x > 0 else log_of(x), lambda x, y: quotient(1.0, x * math.log(10))),
    "sigmoid": (sigmoid_of, lambda x, y: y * (1 - y)), "tanh": (math.tanh, lambda x, y: 1 - y * y),
    "sin": (math.sin, lambda x, y: math.cos(x)), "cos": (math.cos, lambda x, y: -math.sin(x)),
    "reciprocal": (lambda x: quotient(1.0, x), lambda x, y: -y * y),
    "erf": (math.erf, lambda x, y: 2 / math.sqrt(pi) * exp_of(-x * x)),
}
SAME: dict[str, tuple[Callable[[Any], Any], Slope]] = {  # in the dtype that comes
    "abs": (abs, lambda x, y: (x > 0) - (x < 0)), "neg": (lambda x: -x, lambda x, y: -1.0),
    "relu": (lambda x: max(x, 0), lambda x, y: float(x > 0)), "square": (lambda x: x * x, lambda x, y: 2 * x),
    "sign": (lambda x: (x > 0) - (x < 0), lambda x, y: 0.0),
    "floor": (lambda x: math.floor(x) if math.isfinite(x) else x, lambda x, y: 0.0),
    "ceil": (lambda x: math.ceil(x) if math.isfinite(x) else x, lambda x, y: 0.0),
    "trunc": (lambda x: math.trunc(x) if math.isfinite(x) else x, lambda x, y: 0.0),
}
TESTS: dict[str, Callable[..., bool]] = {
    "isfinite": math.isfinite, "isnan": lambda x: x != x, "isinf": math.isinf,
    "logical_not": lambda x: not x, "signbit": lambda x: math.copysign(1, x) < 0,
}
BINARY: dict[str, tuple[Callable[[Any, Any], Any], Slope, Slope]] = {
    "add": (lambda a, b: a + b, lambda a, b, y: 1.0, lambda a, b, y: 1.0),
    "sub": (lambda a, b: a - b, lambda a, b, y: 1.0, lambda a, b, y: -1.0),
    "mul": (lambda a, b: a * b, lambda a, b, y: b, lambda a, b, y: a),
    "maximum": (lambda a, b: a if a != a or a >= b else b, lambda a, b, y: (a > b) + (a == b) / 2,
                lambda a, b, y: (b > a) + (a == b) / 2),
    "minimum": (lambda a, b: a if a != a or a <= b else b, lambda a, b, y: (a < b) + (a == b) / 2,
                lambda a, b, y: (b < a) + (a == b) / 2),
    "remainder": (lambda a, b: a % b if b else nan, lambda a, b, y: 1.0, lambda a, b, y: -float(a // b)),
    "floor_divide": (lambda a, b: a // b if b else nan, lambda a, b, y: 0.0, lambda a, b, y: 0.0),
    "pow": (power, lambda a, b, y: b * power(a, b - 1) if b else 0.0,
            lambda a, b, y: y * log_of(a) if a > 0 else 0.0 if a == 0 and b > 0 else nan),
}
FLOATS: dict[str, tuple[Callable[[Any, Any], Any], Slope, Slope]] = {
    "div": (quotient, lambda a, b, y: quotient(1.0, b), lambda a, b, y: -quotient(y, b)),
    "xlogy": (lambda a, b: 0.0 if a == 0 and b == b else a * log_of(b),
              lambda a, b, y: 0.0 if a == 0 and b <= 0 else log_of(b), lambda a, b, y: quotient(a, b)),
    "logaddexp": (lambda a, b: logsumexp_of([a, b]), lambda a, b, y: exp_of(a - y),
                  lambda a, b, y: exp_of(b - y)),
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b), "logical_xor": lambda a, b: bool(a) != bool(b),
}
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b}
