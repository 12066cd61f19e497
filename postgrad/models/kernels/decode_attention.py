"""Attention of a decode step on a GPU: rotates, stores the new key and value, attends.

A program handles as many rows as fill a matrix product, and reads a prompt that they share once. A long row
is split over several programs (split-K), so that the step does not wait for it.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

# keys at a time, warps and stages of a program of one row, of several, and where heads are wider than WIDEST
# or few rows are looked at in parts
LOOK = (64, 2, 3), (64, 4, 3), (32, 1, 2)
QUERIES = 16  # of a program, at least; rows of one are as many as have so many queries
WIDEST = 128  # head of which a program has several rows
PROGRAMS = 256  # with fewer than that a program has fewer rows
WHOLE = 256  # tokens that are never parted: a short run has one kernel less to compile
# the least tokens of a part of a row: where rows alone are fewer programs than the third number, and where
# there are more; a part has as many as it takes to have no more programs than the last
SPLIT = 64, 512, 512, 8192
NEVER = tl.constexpr(-1e30)  # the log of a chance that counts for nothing


@triton.jit
def _turned(source, weight, cos, sin, i, inside, D: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr):
    """Heads [R, ROUND], rotated, and the mean of their squares, where they have a norm, whose weights are in
    them; i: the places in a head."""
    other, angle = tl.where(i < HALF, i + HALF, i - HALF), tl.where(i < HALF, i, i - HALF)
    mine, partner = (tl.load(source + i, inside, 0.0).to(tl.float32),
                     tl.load(source + other, inside, 0.0).to(tl.float32))
    c, s = tl.load(cos + angle, inside, 0.0).to(tl.float32), tl.load(sin + angle, inside, 0.0).to(tl.float32)
    square = tl.sum(mine * mine, 1) / D if INNER else 0.0
    if INNER:
        mine *= tl.load(weight + i, i < D, 0.0).to(tl.float32)
        partner *= tl.load(weight + other, i < D, 0.0).to(tl.float32)
    return mine * c + tl.where(i < HALF, -partner, partner) * s, square


@triton.jit
def _by(scale, square, eps, INNER: tl.constexpr):
    """What heads are multiplied by: by 1 / rms of what they are a product of, and then by 1 / rms of their
    own, where they have a norm."""
    return scale * tl.rsqrt(square * scale * scale + eps) if INNER else scale


@triton.jit
def _each(values, GROUP: tl.constexpr, TIMES: tl.constexpr):
    """[GROUP] -> [GROUP * TIMES], each so many times."""
    return tl.reshape(tl.broadcast_to(values[:, None], (GROUP, TIMES)), (GROUP * TIMES,))


@triton.jit
def _join(top, total, acc, there, inside, d, kept, count, pair, part, parts, D: tl.constexpr,
          ROUND: tl.constexpr, MANY: tl.constexpr):
    """Keeps what one part of a pair of rows and key head has seen. The one that is done last joins all parts,
    in their order, and leaves the count at zero for the next launch."""
    m, size = tl.arange(0, MANY), MANY * (ROUND + 2)
    first = kept + pair.to(tl.int64) * tl.num_programs(2) * size
    mine, cell = first + part * size, m[:, None] * ROUND + d
    tl.store(mine + cell, acc)
    tl.store(mine + MANY * ROUND + m, top)
    tl.store(mine + MANY * (ROUND + 1) + m, total)
    tl.debug_barrier()  # the stores of all threads come before the one that counts
    if tl.atomic_add(count + pair, 1, sem="acq_rel", scope="gpu") == parts - 1:
        tl.store(count + pair, 0)
        top = tl.full((MANY,), NEVER, tl.float32)
        total, acc = tl.zeros((MANY,), tl.float32), tl.zeros((MANY, ROUND), tl.float32)
        for other in range(0, parts):
            its = first + other * size
            its_top = tl.load(its + MANY * ROUND + m)
            higher = tl.maximum(top, its_top)
            fade, weight = tl.exp(top - higher), tl.exp(its_top - higher)
            total = total * fade + tl.load(its + MANY * (ROUND + 1) + m) * weight
            acc = acc * fade[:, None] + tl.load(its + cell) * weight[:, None]
            top = higher
        tl.store(there, acc / total[:, None], inside)


@triton.jit
def _decode_attention(qkv, x, q_norm, k_norm, cos, sin, at, slot, prompt, prompt_length, k_prompt, v_prompt,
                      k_cache, v_cache, out, kept, count, R, S, NEW, width, heat, window, eps,
                      KV: tl.constexpr, REP: tl.constexpr, D: tl.constexpr, ROUND: tl.constexpr,
                      WIDE: tl.constexpr, PIECES: tl.constexpr, INNER: tl.constexpr, GROUP: tl.constexpr,
                      TIMES: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The queries of GROUP rows that share a key, TIMES places for those of each: first the row's own new
    one, then the prompt, then what the row has written before. CHUNK: tokens of a part of each row, if there
    are several; the first one has the new tokens, too.

    A program takes microseconds, and what it waits for counts: all is loaded before anything is summed over
    several threads, and no number of two words is divided."""
    MANY: tl.constexpr = GROUP * TIMES
    EACH: tl.constexpr = BLOCK // GROUP  # keys of a row among those that are looked at together
    pair, kv, part, parts = tl.program_id(0), tl.program_id(1), 0, 1
    g, m, j, i = tl.arange(0, GROUP), tl.arange(0, MANY), tl.arange(0, BLOCK), tl.arange(0, ROUND)[None, :]
    row, of, head = pair * GROUP + g, pair * GROUP + m // TIMES, m % TIMES
    its = pair if GROUP == 1 else pair * GROUP + j // EACH  # the row of a key
    exists, its_exists = row < R, its < R
    new, read = (tl.load(at + row, exists, 0).to(tl.int32),
                 tl.load(prompt_length + row, exists, 0).to(tl.int32))
    end = read + new
    begin = tl.maximum(end + 1 - window, 0)  # within the window
    if CHUNK:
        part = tl.program_id(2)
        parts = tl.minimum(tl.maximum(tl.cdiv(tl.max(end - begin), CHUNK), 1), tl.num_programs(2))
        if part >= parts:
            return
    squares = tl.zeros((GROUP, max(WIDE, 1)), tl.float32)
    for piece in tl.static_range(PIECES):
        column = piece * WIDE + tl.arange(0, WIDE)[None, :]
        value = tl.load(x + row.to(tl.int64)[:, None] * width + column, exists[:, None] & (column < width),
                        0.0).to(tl.float32)
        squares += value * value
    mine, place = tl.load(slot + row, exists, 0), tl.load(prompt + row, exists, 0)
    lead, lead_read = tl.load(prompt + pair * GROUP), tl.load(prompt_length + pair * GROUP).to(tl.int32)
    its_new = tl.load(at + its, its_exists, 0).to(tl.int32)
    its_read = tl.load(prompt_length + its, its_exists, 0).to(tl.int32)
    its_slot, its_place = tl.load(slot + its, its_exists, 0), tl.load(prompt + its, its_exists, 0)
    of_new, of_read = tl.load(at + of, of < R, 0), tl.load(prompt_length + of, of < R, 0)
    # the new keys and values [GROUP, ROUND], the queries [MANY, ROUND]
    wide: tl.constexpr = (REP + 2) * KV * D
    inside, source = exists[:, None] & (i < D), qkv + (row.to(tl.int64) * wide + (REP * KV + kv) * D)[:, None]
    angle = (end * (D // 2))[:, None]
    key, key_square = _turned(source, k_norm, cos + angle, sin + angle, i, inside, D, D // 2, INNER)
    value = tl.load(source + KV * D + i, inside, 0.0).to(tl.float32)
    turns, asks = ((of_read + of_new) * (D // 2))[:, None], ((head < REP) & (of < R))[:, None] & (i < D)
    source = qkv + (of.to(tl.int64) * wide + (kv * REP + head) * D)[:, None]
    q, q_square = _turned(source, q_norm, cos + turns, sin + turns, i, asks, D, D // 2, INNER)
    scale = tl.full((GROUP,), 1.0, tl.float32)
    if WIDE:
        scale = tl.rsqrt(tl.sum(squares, 1) / width + eps)
    kind = qkv.dtype.element_ty
    key = (key * _by(scale, key_square, eps, INNER)[:, None]).to(kind)
    value = (value * scale[:, None]).to(kind)
    q = (q * _by(_each(scale, GROUP, TIMES), q_square, eps, INNER)[:, None]).to(kind)
    q = (q.to(tl.float32) * heat).to(kind)
    # rows that have the same prompt see it together, if they see all of it
    alike = (tl.max(((place != lead) & exists | (begin > 0)).to(tl.int32)) == 0) & (GROUP > 1)
    its_end = its_read + its_new
    its_begin = tl.maximum(its_end + 1 - window, 0)
    if CHUNK:
        begin, its_begin = begin + part * CHUNK, its_begin + part * CHUNK
        if part < tl.num_programs(2) - 1:
            end, its_end = tl.minimum(end, begin + CHUNK), tl.minimum(its_end, its_begin + CHUNK)
    cell = ((mine * KV + kv) * NEW + new)[:, None] * D + i
    tl.store(k_cache + cell, key, inside & (part == 0))
    tl.store(v_cache + cell, value, inside & (part == 0))
    keys = tl.reshape(tl.broadcast_to(key[:, None, :], (GROUP, TIMES, ROUND)), (MANY, ROUND))
    values = tl.reshape(tl.broadcast_to(value[:, None, :], (GROUP, TIMES, ROUND)), (MANY, ROUND))
    # in a later part the new token counts for nothing
    top = tl.where(part == 0, tl.sum(q.to(tl.float32) * keys.to(tl.float32), 1), NEVER)
    total = tl.where(part == 0, 1.0, 0.0) + tl.zeros((MANY,), tl.float32)
    acc = values.to(tl.float32) * tl.where(part == 0, 1.0, 0.0)
    # rounds of keys, those of the prompts and then the rows' own; of each row EACH, of a common prompt BLOCK
    prompts = tl.max(tl.cdiv(tl.maximum(tl.minimum(end, read) - begin, 0), EACH))
    if alike:
        prompts = tl.cdiv(lead_read, BLOCK)
    rounds = prompts + tl.max(tl.cdiv(tl.maximum(end - tl.maximum(begin, read), 0), EACH))
    first = tl.where(alike, j, its_begin + j % EACH)
    last = tl.where(alike, lead_read, tl.minimum(its_end, its_read))
    stride = tl.where(alike, BLOCK, EACH)
    own_first, own_last = tl.maximum(its_begin - its_read, 0) + j % EACH, its_end - its_read
    base, own_base = (tl.where(alike, lead, its_place) * KV + kv) * S * D, (its_slot * KV + kv) * NEW * D
    sees = True if GROUP == 1 else (m // TIMES)[:, None] == (j // EACH)[None, :]
    for n in range(0, rounds):
        common = n < prompts
        token = tl.where(common, first + n * stride, own_first + (n - prompts) * EACH)
        real = token < tl.where(common, last, own_last)
        there, within = token[:, None] * D + i, real[:, None] & (i < D)
        keys_at = tl.where(common, k_prompt + base, k_cache + own_base)
        values_at = tl.where(common, v_prompt + base, v_cache + own_base)
        if GROUP > 1:
            keys_at, values_at = keys_at[:, None], values_at[:, None]
        score = tl.dot(q, tl.trans(tl.load(keys_at + there, within, 0.0)), input_precision="ieee")
        if GROUP > 1:
            score = tl.where(sees | (common & alike), score, float("-inf"))
        score = tl.where(real[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        p, fade = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        said = tl.load(values_at + there, within, 0.0)
        acc = acc * fade[:, None] + tl.dot(p.to(said.dtype), said, input_precision="ieee")
        total, top = total * fade + tl.sum(p, 1), higher
    to = out + ((of.to(tl.int64) * KV + kv) * REP + head)[:, None] * D + i
    if CHUNK and parts > 1:
        _join(top, total, acc, to, asks, i, kept, count, pair * KV + kv, part, parts, D, ROUND, MANY)
    else:
        tl.store(to, acc / total[:, None], asks)


def step_attention(qkv: Tensor, cos: Tensor, sin: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
              prompt_length: Tensor, k_prompt: Tensor, v_prompt: Tensor, k_cache: Tensor, v_cache: Tensor,
              window: int | None = None, norms: tuple[Tensor, Tensor] | None = None,
              eps: float = 0.0, x: Tensor | None = None) -> Tensor:
    """As in plain.py, but no two rows may be of one slot. norms: of each head's queries and keys. x: what
    qkv is a product of, which has yet to be divided by its rms."""
    (_, KV, S, D), NEW, window = k_prompt.shape, k_cache.shape[2], window or 1 << 30
    R, REP = len(qkv), qkv.shape[1] // (KV * D) - 2
    tokens = min(S + NEW, len(cos), window) - 1  # that a row has before the new one, at most
    chunk = part_size(tokens, R * KV)
    parts = max(1, triton.cdiv(tokens, chunk))
    group = rows_of_program(R, KV, REP) if parts == 1 and D <= WIDEST else 1
    out = qkv.new_empty(R, KV * REP * D)
    keys, warps, stages = division(group, D, parts > 1 and R * KV < SPLIT[2])
    times, ROUND = max(triton.next_power_of_2(REP), 16 // group), triton.next_power_of_2(max(D, 16))
    pairs = triton.cdiv(R, group) * KV
    kept = count = out
    wide = 0 if x is None else squared_columns(x.shape[1], group)
    if parts > 1:
        kept = torch.empty(pairs * parts * group * times * (ROUND + 2), device=qkv.device)
        count = zero_counts(triton.next_power_of_2(pairs), qkv.device)
    _decode_attention[(triton.cdiv(R, group), KV, parts)](
        qkv, qkv if x is None else x, *norms or (qkv, qkv), cos, sin, at, slot, prompt, prompt_length,
        k_prompt, v_prompt, k_cache, v_cache, out, kept, count, R, S, NEW, 0 if x is None else x.shape[1],
        D**-0.5, window, eps, KV=KV, REP=REP, D=D, ROUND=ROUND, INNER=norms is not None, GROUP=group,
        TIMES=times, BLOCK=keys, CHUNK=chunk if parts > 1 else 0, num_warps=warps, num_stages=stages,
        WIDE=wide, PIECES=0 if x is None else triton.cdiv(x.shape[1], wide))
    return out


@triton.jit
def _keep(k, v, place, position, k_prompt, v_prompt, S, k_row, v_row, KV: tl.constexpr, D: tl.constexpr,
          WIDE: tl.constexpr):
    token, i = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    head, inside = i // D, i < KV * D
    cell = ((tl.load(place + token) * KV + head) * S + tl.load(position + token)) * D + i % D
    tl.store(k_prompt + cell, tl.load(k + token * k_row + i, inside), inside)
    tl.store(v_prompt + cell, tl.load(v + token * v_row + i, inside), inside)


def store_kv(k: Tensor, v: Tensor, place: Tensor, position: Tensor, k_prompt: Tensor,
             v_prompt: Tensor) -> None:
    """As in plain.py. A token's keys stand together, and so do its values."""
    (_, KV, S, D), (k, v) = k_prompt.shape, (x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()
                                             for x in (k, v))
    _keep[(len(k),)](k, v, place, position, k_prompt, v_prompt, S, k.stride(0), v.stride(0), KV=KV, D=D,
                     WIDE=triton.next_power_of_2(KV * D), num_warps=1)


def squared_columns(width: int, group: int) -> int:
    """Numbers of a state that are squared together: few, but no more than eight times."""
    whole = triton.next_power_of_2(width)
    return min(whole, max(1024 // group, whole // 8))


def division(group: int, head: int, few: bool = False) -> tuple[int, int, int]:
    return LOOK[2 if few or head > WIDEST else group > 1]


def rows_of_program(rows: int, kv: int, queries: int) -> int:
    """queries: of each row and key head."""
    most = max(1, QUERIES // triton.next_power_of_2(queries))
    while most > 1 and triton.cdiv(rows, most) * kv < PROGRAMS:
        most //= 2
    return most


def part_size(tokens: int, programs: int) -> int:
    """Few rows are looked at in small parts, so that the whole GPU has work; of many only long rows are."""
    if tokens <= WHOLE:
        return WHOLE
    few, many, filled, most = SPLIT
    fair = triton.next_power_of_2(triton.cdiv(tokens, max(1, most // programs)))
    return max(few if programs < filled else many, fair)


@cache
def zero_counts(many: int, device: torch.device) -> Tensor:
    """Counts that every launch leaves at zero. They are never freed, as captured graphs go on counting with
    them; the first call that asks for them is not one that is captured. One stream at a time has them."""
    return torch.zeros(many, dtype=torch.int32, device=device)
