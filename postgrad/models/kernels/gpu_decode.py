"""A decode step through all layers on a GPU, six kernels a layer, and the choice of the next tokens.

    qkv = x W                     the norm's weight is folded into W
    y = attention(qkv)            decode_attention.py: scales by 1 / rms(x), rotates, stores k and v, attends
    x += y W
    ab = x W                      as above
    y = swiglu(ab)                _gate: scales by 1 / rms(x)
    x += y W

At a few hundred rows of a small model a kernel runs for some microseconds, about the time of its launch, so
the number of launches counts. The products are cuBLAS's. A row's 1 / rms commutes with the product, so no
kernel stands between two products for the norm alone. `supports` says which layers have such a step; others
go kernel by kernel (Engine.step).

Next tokens, where a small model has a large vocabulary, without writing the logits:
    _tops     tiles of logits; per PIECE logits of a row the maximum and the sum of e^(x - maximum)
    _choose   the piece in which u falls; its logits again; the token, and its record
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from postgrad.models.kernels.decode_attention import step_attention
from postgrad.models.kernels.vocab_softmax import _tile, tile_shape


@triton.jit
def _scale(x, row, width, eps, WIDE: tl.constexpr):
    """1 / rms of a row of x."""
    i = tl.arange(0, WIDE)
    value = tl.load(x + row * width + i, i < width, 0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(value * value) / width + eps)


@triton.jit
def _gate(ab, x, out, F, width, eps, WIDE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, scale = i < F, 1.0
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    # loaded before the sum of squares, for which a row's threads wait for one another
    a = tl.load(ab + row * 2 * F + i, inside, 0.0).to(tl.float32)
    b = tl.load(ab + row * 2 * F + F + i, inside, 0.0).to(tl.float32)
    if WIDE:
        scale = _scale(x, row, width, eps, WIDE)
    a, b = a * scale, b * scale
    tl.store(out + row * F + i, a * tl.sigmoid(a) * b, inside)


def swiglu_joined(ab: Tensor, x: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """As in plain.py. x: what ab is a product of, which has yet to be divided by its rms."""
    R, F = len(ab), ab.shape[1] // 2
    out, block = ab.new_empty(R, F), min(2048, triton.next_power_of_2(F))
    early, wide = starts_early(ab), 0 if x is None else x.shape[1]
    _gate[(R, triton.cdiv(F, block))](ab, ab if x is None else x, out, F, wide, eps, BLOCK=block, EARLY=early,
                                      WIDE=triton.next_power_of_2(wide) if wide else 0,
                                      **{"launch_pdl": True} if early else {})
    return out


def starts_early(x: Tensor) -> bool:
    """From Hopper on a kernel can start while the one before it ends: of these the gate, in which it pays."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9


@triton.jit
def _nothing(x):
    gdc_wait()
    gdc_launch_dependents()


def nudge(x: Tensor) -> None:
    """A kernel that does nothing and may start while the one before it ends. After it an H200 goes through
    the kernels of replayed graphs in less time, until other work comes between; what it changes in the driver
    or the card is not known. `python bench/h200.py nudge` measures calls with it and without."""
    if starts_early(x):
        _nothing[(1,)](x, num_warps=1, launch_pdl=True)


def fused_step(engine) -> Callable:
    """Engine.step by these kernels, where GPU_DECODE_STEP supports the layers. The weights of norms are
    multiplied into the matrices after them: those are copies, refreshed before this is called."""
    c, w = engine.c, engine.weights
    for i, _ in enumerate(engine.layers):
        for norm, product in (("before_attention", "qkv"), ("before_mlp", "gate_up")):
            w[f"{i}.{product}"].mul_(w[f"{i}.{norm}"])
    eps, add_norm, tables = c.rms_norm_eps, engine.ops.add_norm, engine.tables()
    kept = [*zip(engine.k_prompt, engine.v_prompt, engine.k, engine.v, strict=True)]
    layers, short = engine.layers, ("qkv", "o", "gate_up", "down")

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        x = engine.embed(token)
        for i, layer in enumerate(layers):
            qkv, o, gate_up, down = (w[f"{i}.{name}"].T for name in short)
            norms = (w[f"{i}.q_norm"], w[f"{i}.k_norm"]) if layer.attention.inner else None
            y = step_attention(x @ qkv, *tables[i], at, slot, prompt, prompt_length, *kept[i], layer.window,
                               norms, eps, x)
            x.addmm_(y, o)
            x.addmm_(swiglu_joined(x @ gate_up, x, eps), down)
        return add_norm(x, None, w["norm"], eps)

    return step


PIECE = 64  # logits whose sum is known when one is chosen
DEEP, WARPS = 64, 4  # numbers of a state at a time, and warps, where one of a piece is chosen
LARGE, NARROW = 16384, 1024  # the least vocabulary and the widest state for which it pays


@triton.jit
def _tops(states, head, tops, sums, N, V, K, pieces, heat, EVEN: tl.constexpr, ROWS: tl.constexpr,
          COLUMNS: tl.constexpr, DEEP: tl.constexpr, PIECE: tl.constexpr):
    MANY: tl.constexpr = COLUMNS // PIECE
    tiles = tl.cdiv(N, ROWS)
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(0) // tiles
    column = first * COLUMNS + tl.arange(0, COLUMNS)
    x = _tile(states, head, tl.minimum(row, N - 1), tl.minimum(column, V - 1), K, EVEN, ROWS, COLUMNS, DEEP)
    x = tl.reshape(tl.where((column < V)[None, :], x * heat, float("-inf")), (ROWS, MANY, PIECE))
    top = tl.maximum(tl.max(x, 2), -1e30)
    piece = first * MANY + tl.arange(0, MANY)[None, :]
    at, inside = row[:, None] * pieces + piece, (row < N)[:, None] & (piece < pieces)
    tl.store(tops + at, top, inside)
    tl.store(sums + at, tl.sum(tl.exp(x - top[:, :, None]), 2), inside)


@triton.jit
def _choose(states, head, tops, sums, u, at, slot, shown, done, count, out, logps, ends, token, where, V, K,
            pieces, heat, width, most, ENDS: tl.constexpr, PIECES: tl.constexpr, PIECE: tl.constexpr,
            DEEP: tl.constexpr):
    row, b = tl.program_id(0).to(tl.int64), tl.arange(0, PIECES)
    now, cell = tl.load(at + row), tl.load(slot + row) * width
    top = tl.load(tops + row * pieces + b, b < pieces, -1e30)
    most_likely = tl.max(top)
    share = (tl.load(sums + row * pieces + b, b < pieces, 0.0) * tl.exp(top - most_likely)).to(tl.float64)
    total = tl.sum(share)
    goal = tl.load(u + cell + now) * total
    piece = tl.sum((tl.cumsum(share, 0) <= goal).to(tl.int32))
    piece = tl.minimum(piece, tl.max(tl.where(share > 0, b, 0)))
    before = tl.sum(tl.where(b < piece, share, 0.0))
    i, k, x = tl.arange(0, PIECE), tl.arange(0, DEEP), tl.zeros((PIECE,), tl.float32)
    column = piece * PIECE + i
    for first in range(0, K, DEEP):
        inside = first + k < K
        state = tl.load(states + row * K + first + k, inside, 0.0).to(tl.float32)
        weight = tl.load(head + column.to(tl.int64)[:, None] * K + first + k[None, :],
                         (column < V)[:, None] & inside[None, :], 0.0)
        x += tl.sum(weight.to(tl.float32) * state[None, :], 1)
    x = tl.where(column < V, x * heat, float("-inf"))
    p = tl.exp(x - most_likely).to(tl.float64)
    found = tl.sum((before + tl.cumsum(p, 0) <= goal).to(tl.int32))
    found = tl.minimum(found, tl.max(tl.where(p > 0, i, 0)))
    chosen = (piece * PIECE + found).to(tl.int64)
    tl.store(token + row, chosen)
    tl.store(out + cell + now, chosen)
    tl.store(logps + cell + now,
             tl.sum(tl.where(i == found, x, 0.0)) - most_likely - tl.log(total).to(tl.float32))
    tl.store(where + row, tl.load(shown + row) + now)
    was = tl.load(done + row) != 0
    tl.store(count + row, tl.load(count + row) + tl.where(was, 0, 1))
    now += tl.where(now < most, 1, 0)
    tl.store(at + row, now)
    over = was | (now >= most)
    for e in tl.static_range(ENDS):
        over |= chosen == tl.load(ends + e)
    tl.store(done + row, over)


def fused_sampler(rows) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """(rows, n) -> the next tokens of the first n of these rows, the sampler's, and where they stand in their
    slots; None where the logits themselves are wanted, or nothing is won."""
    head, settings = rows.engine.weights.get("head"), rows.settings
    if (head is None or head.dtype == torch.float32 or rows.engine.reshapes_logits
            or not (settings.unfiltered and settings.temperature)):
        return None
    return sample_from_states if len(head) >= LARGE and head.shape[1] <= NARROW else None


def sample_from_states(rows, n: int) -> tuple[Tensor, Tensor]:
    head, heat = rows.engine.weights["head"], 1.0 / rows.settings.temperature
    (V, K), device = head.shape, head.device
    pieces, tile = triton.cdiv(V, PIECE), tile_shape(rows.hidden)
    tops, sums = torch.empty(2, n, pieces, device=device)
    token, where = torch.empty(2, n, dtype=torch.int64, device=device)
    _tops[(triton.cdiv(n, tile["ROWS"]) * triton.cdiv(V, tile["COLUMNS"]),)](
        rows.hidden, head, tops, sums, n, V, K, pieces, heat, PIECE=PIECE, **tile)
    _choose[(n,)](
        rows.hidden, head, tops, sums, rows.u, rows.at, rows.slot, rows.shown, rows.done, rows.count,
        rows.out, rows.logp, rows.ends, token, where, V, K, pieces, heat, rows.out.shape[1],
        rows.settings.max_new_tokens, ENDS=len(rows.ends), PIECES=triton.next_power_of_2(pieces), PIECE=PIECE,
        DEEP=DEEP, num_warps=WARPS)
    return token, where
