"""The kernels in plain torch: reference and fallback.

Training: N packed tokens (maths/packing.py), with gradients. Decoding: one new token for each of R rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from postgrad.maths.noise import widest
from postgrad.maths.packing import Spans
from postgrad.models.layer import NormSpec

FUSED_STEP = None  # the FusedKernel of `fused_step`, where a module has one


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """In the dtype of x; the weights may be wider."""
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def half_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product alone in bfloat16, for CPUs that multiply it faster."""
    y = F.linear(x.bfloat16(), weight.bfloat16()).to(x.dtype)
    return y if bias is None else y + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:  # [..., D]
    """x / rms(x) * weight, in float32 at least."""
    return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:  # [..., D]
    """(x - mean(x)) / std(x) * weight + bias, in float32 at least."""
    weight, bias = (None if w is None else w.to(x.dtype) for w in (weight, bias))
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def norm_by_kind(x: Tensor, norm: NormSpec, weight: Tensor | None, bias: Tensor | None,
                 eps: float) -> Tensor:  # [..., D]
    """Any norm that a NormSpec describes; weight: with its offset."""
    if norm.kind == "layer":
        return layer_norm(x, weight, bias, eps)
    y = F.rms_norm(x, (x.shape[-1],), None if weight is None else weight.to(x.dtype), eps)
    return y if bias is None else y + bias.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [N, H, head_dim], [N, head_dim / 2] twice
    """Rotary positions, half-split: (a, b) -> (a cos - b sin, b cos + a sin); where the tables are narrower,
    of the first numbers of a head."""
    half, cos, sin = cos.shape[-1], cos[:, None], sin[:, None]
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


def cap_scores(x: Tensor, cap: float | None) -> Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, cap: float | None) -> Tensor:
    """Softmax attention [B, H, T, head_dim] under a mask, for fewer heads of keys too; cap: of scores."""
    grouped = k.shape[1] != q.shape[1]
    if cap is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=grouped)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = cap_scores(q @ k.mT * q.shape[-1] ** -0.5, cap).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(v.dtype) @ v


def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu, "gelu": F.gelu, "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"), "relu": F.relu}


def gated(activation: str, a: Tensor, b: Tensor) -> Tensor:
    """The gated activation by its name in config.json; kernels compute SwiGLU alone."""
    return ACTIVATIONS[activation](a) * b


def attention_layout(spans: Spans, x: Tensor) -> Spans:
    """The sequences as this module's attention takes them, for tokens like x; once for all layers."""
    return spans


def attention(q: Tensor, k: Tensor, v: Tensor, spans: Spans, window: int | None = None,
              cap: float | None = None) -> Tensor:
    """q [N, H, head_dim], k and v [N, kv, head_dim] -> [N, H, head_dim]: causal attention in each sequence
    and over its prefix; with a window, over the last `window` tokens of these; cap: scores s are
    cap tanh(s / cap)."""
    M, keep, here = len(spans.start), spans.own, torch.arange
    prefix, longest, seen = spans.prefix, int(keep.max()), int((keep + spans.prefix).max())
    queries = (spans.start[:, None] + here(longest)).clamp_max(len(q) - 1)  # [M, longest]
    at = here(seen)
    keys = torch.where(at < prefix[:, None], spans.prefix_start[:, None] + at,
                       spans.start[:, None] + at - prefix[:, None])
    # of each query, in its row; those that fill a sequence up stand where its last one does
    position = prefix[:, None] + torch.minimum(here(longest), (keep[:, None] - 1).clamp_min(0))
    allowed = at <= position[..., None]  # [M, longest, seen]
    if window is not None:
        allowed &= at > position[..., None] - window
    queries, keys, allowed = (x.to(q.device) for x in (queries, keys.clamp_max(len(k) - 1), allowed))
    q = q.index_select(0, queries.flatten()).view(M, longest, *q.shape[1:]).transpose(1, 2)
    k, v = (x.index_select(0, keys.flatten()).view(M, seen, *x.shape[1:]).transpose(1, 2) for x in (k, v))
    if q.is_cuda:  # with as many heads each, no attention matrix is made
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    y = attend(q, k, v, allowed[:, None], cap)
    real = (here(longest) < keep[:, None]).flatten().nonzero().squeeze(1)
    # sequences need not stand in order
    order = (spans.start[:, None] + here(longest)).flatten()[real].argsort()
    return y.transpose(1, 2).flatten(0, 1).index_select(0, real[order].to(y.device))


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:  # [R, D]
    """x += delta in place, and its norm."""
    if delta is not None:
        x += delta
    return rms_norm(x, weight, eps)


def rotate_and_store(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor,
                     k_cache: Tensor, v_cache: Tensor) -> Tensor:
    """qkv [R, (H + 2 kv) head_dim] -> q [R, H, head_dim] rotated;
    keys and values go to (slot, at) of the cache.

    cos, sin [positions, head_dim / 2]; position, slot, at [R]; caches [slots, kv, new, head_dim].
    """
    kv, head_dim = k_cache.shape[1], k_cache.shape[3]
    q, k, v = qkv.view(len(qkv), -1, head_dim).split([qkv.shape[1] // head_dim - 2 * kv, kv, kv], dim=1)
    cos, sin = cos[position], sin[position]
    k_cache[slot, :, at], v_cache[slot, :, at] = rotate(k, cos, sin), v
    return rotate(q, cos, sin)


def attend_cached(q: Tensor, k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor,
           k_cache: Tensor, v_cache: Tensor, slot: Tensor, length: Tensor,
           window: int | None = None, cap: float | None = None) -> Tensor:
    """q [R, H, head_dim] -> [R, H head_dim]: row r sees prompt_length[r] tokens of prompt[r],
    then length[r] of its slot.

    k_prompt, v_prompt [prompts, kv, S, head_dim]; k_cache, v_cache [slots, kv, new, head_dim].
    """
    read, new = k_prompt.shape[2], k_cache.shape[2]
    if not q.is_cuda:  # no further than the longest row
        read, new = int(prompt_length.max()), int(length.max())
    k = torch.cat([k_prompt[prompt, :, :read], k_cache[slot, :, :new]], dim=2)
    v = torch.cat([v_prompt[prompt, :, :read], v_cache[slot, :, :new]], dim=2)
    column = torch.arange(read + new, device=q.device)
    own = column - read
    allowed = torch.where(own < 0, column < prompt_length[:, None], own < length[:, None])  # [R, read + new]
    if window is not None:
        position = torch.where(own < 0, column, own + prompt_length[:, None])
        allowed &= position >= (prompt_length + length - window)[:, None]
    return attend(q[:, :, None], k, v, allowed[:, None, None], cap).flatten(1)


def attention_after(place: Callable, attend: Callable) -> Callable:
    """`step_attention` from its two parts."""
    def look_back(qkv: Tensor, cos: Tensor, sin: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
                  prompt_length: Tensor, k_prompt: Tensor, v_prompt: Tensor, k_cache: Tensor, v_cache: Tensor,
                  window: int | None = None, cap: float | None = None) -> Tensor:
        """Row r's token number at[r]: stores its key and value, and attends to it and all before it."""
        q = place(qkv, cos, sin, prompt_length + at, slot, at, k_cache, v_cache)
        return attend(q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, at + 1, window,
                      cap)

    return look_back


step_attention = attention_after(rotate_and_store, attend_cached)


def store_kv(k: Tensor, v: Tensor, place: Tensor, position: Tensor, k_prompt: Tensor,
             v_prompt: Tensor) -> None:
    """Stores keys and values [N, kv, head_dim] of prompts in their places."""
    k_prompt[place, :, position], v_prompt[place, :, position] = k, v


def packed_names(engine) -> set[str]:
    """The weights that `fused_step` holds in its own layout, by their names in the engine."""
    return set()


def fused_step(engine) -> None:
    """Engine.step for all layers at once, if the module has one."""
    return None


def swiglu_joined(ab: Tensor) -> Tensor:  # [R, 2F] -> [R, F]
    return swiglu(*ab.chunk(2, dim=1))


def sample_tokens(logits: Tensor, u: Tensor,
         temperature: float) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """Inverse-CDF sampling at u, and the log-prob under the same distribution."""
    logp = (logits.float() / temperature).log_softmax(-1)
    cdf = widest(logp).exp().cumsum(-1)
    token = torch.searchsorted(cdf, (widest(u) * cdf[:, -1])[:, None], right=True).squeeze(1).clamp_max(
        logits.shape[1] - 1)
    return token, logp.gather(1, token[:, None]).squeeze(1)


def fused_sampler(rows) -> None:
    """`sample_tokens` and `record_tokens` in one call, if the module has one."""
    return None


def compact_rows(columns: Tensor, done: Tensor, hidden: Tensor, rows: Tensor, before: int,
                 nobody: Tensor) -> None:
    """Moves these of the first `before` rows (ascending) to the front of columns [kinds, R], done [R] and
    hidden [R, D]; the rest becomes dummy rows, `nobody` [kinds, 1]."""
    n = len(rows)
    columns[:, :n] = columns.index_select(1, rows)
    hidden[:n] = hidden.index_select(0, rows)
    done[:n] = done.index_select(0, rows)
    columns[:, n:before] = nobody
    done[n:before] = True


def nudge(x: Tensor) -> None:
    """Nothing here; on a GPU it speeds up the launches that follow."""


# [R] seven times -> [R]
def record_tokens(token: Tensor, logp: Tensor, at: Tensor, slot: Tensor, shown: Tensor, done: Tensor,
                  count: Tensor, out: Tensor, logps: Tensor, ends: Tensor, most: int) -> Tensor:
    """Writes row r's token and log-prob to (slot, at) of out and logps; a row that was not done counts one
    more token, and is done at one of `ends` or with `most` tokens; `at` advances. -> the token's index in its
    slot, tokens that were shown included."""
    out[slot, at], logps[slot, at] = token, logp
    where = shown + at
    count += ~done
    at += (at < most).to(at.dtype)  # a row that ended waits in the spare column until it is seen
    done |= (token[:, None] == ends).any(1) | (at >= most)
    return where
