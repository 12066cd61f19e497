"""The matrix products of a step of sampling in Triton, with what stands around them: the norm before, the
gate behind, the sum with the residual stream. A step has few rows, and each of these alone would be a launch
that takes longer than its work."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# rows, columns and depth of a tile, and how a program is run: rows up to -> sizes
NORM = {32: {"BM": 32, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 4},
        1 << 40: {"BM": 64, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 4}}
GATE = NORM
ADD = {32: {"BM": 32, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 4},
       1 << 40: {"BM": 64, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 4}}


def sizes(table: dict[int, dict], rows: int) -> dict:
    return next(found for most, found in table.items() if rows <= most)


@triton.jit
def _norm_linear(x, norm, w, bias, out, R, K, N, eps, HAS_BIAS: tl.constexpr, GATED: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """[R, K] -> [R, N]; the norm's own scale of a row is one factor of all that comes out. GATED: w is
    [2N, K], the first half through silu times the second."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    m = tl.program_id(1).to(tl.int64) * BM + tl.arange(0, BM)
    row, column = (m < R)[:, None], (n < N)[:, None]
    acc, up = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    square = tl.zeros((BM,), tl.float32)
    for start in range(0, K, BK):
        real = (start + k < K)[None, :]
        a = tl.load(x + m[:, None] * K + start + k[None, :], row & real, 0.0).to(tl.float32)
        square += tl.sum(a * a, 1)
        a = (a * tl.load(norm + start + k, start + k < K, 0.0).to(tl.float32)[None, :]).to(x.dtype.element_ty)
        b = tl.load(w + n[:, None] * K + start + k[None, :], column & real, 0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
        if GATED:
            b = tl.load(w + (N + n)[:, None] * K + start + k[None, :], column & real, 0.0)
            up = tl.dot(a, tl.trans(b), up, input_precision="ieee")
    scale = tl.rsqrt(square / K + eps)[:, None]
    acc, up = acc * scale, up * scale
    if HAS_BIAS:
        acc += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
        if GATED:
            up += tl.load(bias + N + n, n < N, 0.0).to(tl.float32)[None, :]
    if GATED:
        acc = acc * tl.sigmoid(acc) * up
    tl.store(out + m[:, None] * N + n[None, :], acc, row & (n < N)[None, :])


@triton.jit
def _linear_add(y, w, bias, x, R, K, N, HAS_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr):
    """x [R, N] += [R, K] through w [N, K]."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    m = tl.program_id(1).to(tl.int64) * BM + tl.arange(0, BM)
    row, column = (m < R)[:, None], (n < N)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        real = (start + k < K)[None, :]
        a = tl.load(y + m[:, None] * K + start + k[None, :], row & real, 0.0)
        b = tl.load(w + n[:, None] * K + start + k[None, :], column & real, 0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
    cell, inside = x + m[:, None] * N + n[None, :], row & (n < N)[None, :]
    tl.store(cell, tl.load(cell, inside, 0.0).to(tl.float32) + acc, inside)


def norm_linear(x: Tensor, norm: Tensor, w: Tensor, bias: Tensor | None, eps: float,
                gated: bool = False) -> Tensor:
    (R, K), N = x.shape, len(w) // (2 if gated else 1)
    how, out = sizes(GATE if gated else NORM, R), x.new_empty(R, N)
    _norm_linear[(triton.cdiv(N, how["BN"]), triton.cdiv(R, how["BM"]))](
        x, norm, w, w if bias is None else bias, out, R, K, N, eps, HAS_BIAS=bias is not None, GATED=gated,
        **how)
    return out


def linear_add(x: Tensor, y: Tensor, w: Tensor, bias: Tensor | None) -> None:
    (R, K), N = y.shape, len(w)
    how = sizes(ADD, R)
    _linear_add[(triton.cdiv(N, how["BN"]), triton.cdiv(R, how["BM"]))](
        y, w, w if bias is None else bias, x, R, K, N, HAS_BIAS=bias is not None, **how)
