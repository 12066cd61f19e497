"""The kernels in C against loops and autograd in plain torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from postgrad.models.kernels import cpu

pytestmark = pytest.mark.skipif(cpu.library() is None, reason="no C compiler on this machine")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


@pytest.fixture
def threads():
    """A function that sets the number of threads; the old number comes back at the end."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def turned(x, cos, sin):  # [..., head_dim], [..., head_dim / 2]
    """Rotary positions as complex numbers: half-split, (a + ib) e^(i angle)."""
    a, b = x.chunk(2, dim=-1)
    z = torch.complex(a, b) * torch.complex(cos, sin)
    return torch.cat([z.real, z.imag], dim=-1)


def softmaxed(q, k, v):  # [G, head_dim], [n, head_dim] twice
    return (q @ k.T / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("D", [7, 64, 192])
def test_add_norm_adds_in_place_then_norms(D):
    x, delta, weight = draw(5, D), draw(5, D, seed=1), draw(D)
    mine = x.clone()
    torch.testing.assert_close(cpu.add_norm(mine, delta, weight, 1e-5), F.rms_norm(x + delta, (D,), weight, 1e-5), **CLOSE)
    assert torch.equal(mine, x + delta)
    torch.testing.assert_close(cpu.add_norm(mine, None, weight, 1e-5), F.rms_norm(mine, (D,), weight, 1e-5), **CLOSE)


def decoding(R=6, H=4, kv=2, head_dim=24, S=9, room=7):
    """Rows in the middle of a sampling run: two share a prompt, slots are out of order, one row has an empty prompt."""
    angles = torch.outer(torch.arange(S + room).float(), torch.arange(1, head_dim // 2 + 1).float().reciprocal())
    return {"qkv": draw(R, (H + 2 * kv) * head_dim), "cos": angles.cos(), "sin": angles.sin(),
            "k_prompt": draw(4, kv, S, head_dim), "v_prompt": draw(4, kv, S, head_dim, seed=1),
            "k_cache": draw(8, kv, room, head_dim, seed=2), "v_cache": draw(8, kv, room, head_dim, seed=3),
            "prompt": torch.tensor([3, 3, 0, 1, 2, 1]), "prompt_length": torch.tensor([9, 9, 0, 1, 5, 1]),
            "slot": torch.tensor([5, 0, 7, 2, 1, 3]), "length": torch.tensor([1, 7, 3, 2, 7, 1])}


def test_place_rotates_and_stores():
    d = decoding()
    position, at = d["prompt_length"] + d["length"] - 1, d["length"] - 1
    k_cache, v_cache = d["k_cache"].clone(), d["v_cache"].clone()
    q = cpu.place(d["qkv"], d["cos"], d["sin"], position, d["slot"], at, k_cache, v_cache)
    parts = d["qkv"].view(6, 8, 24)
    cos, sin = d["cos"][position][:, None], d["sin"][position][:, None]
    torch.testing.assert_close(q, turned(parts[:, :4], cos, sin), **CLOSE)
    d["k_cache"][d["slot"], :, at] = turned(parts[:, 4:6], cos, sin)
    d["v_cache"][d["slot"], :, at] = parts[:, 6:]
    torch.testing.assert_close(k_cache, d["k_cache"], **CLOSE)
    assert torch.equal(v_cache, d["v_cache"])


NAMES = ("k_prompt", "v_prompt", "prompt", "prompt_length", "k_cache", "v_cache", "slot", "length")


@pytest.mark.parametrize("window", [None, 1, 3, 8, 100])
@pytest.mark.parametrize("kv, head_dim", [(1, 16), (2, 24), (4, 32), (4, 64), (2, 6)])
def test_attend_looks_at_prompt_then_slot(kv, head_dim, window):
    d = decoding(kv=kv, head_dim=head_dim)
    q = draw(6, 4, head_dim)
    got = cpu.attend(q, *(d[n] for n in NAMES), window)
    for r in range(6):
        P, n, p, s = (int(d[x][r]) for x in ("prompt_length", "length", "prompt", "slot"))
        k, v = (torch.cat([d[f"{x}_prompt"][p][:, :P], d[f"{x}_cache"][s][:, :n]], dim=1) for x in "kv")
        near = slice(max(0, P + n - (window or P + n)), None)
        want = [softmaxed(q[r, h: h + 1], k[h * kv // 4, near], v[h * kv // 4, near]) for h in range(4)]
        torch.testing.assert_close(got[r], torch.cat(want).flatten(), **CLOSE)


def test_gate_halves_also_far_from_zero():
    ab = torch.cat([torch.tensor([[-200.0, -88.5, -20.0, -1e-3, 0.0, 1.0, 50.0, 200.0]]), draw(1, 8)], dim=1)
    torch.testing.assert_close(cpu.gate_halves(ab), F.silu(ab[:, :8]) * ab[:, 8:], **CLOSE)


def test_pick_takes_the_token_whose_share_holds_u():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(6, 4).contiguous()
    u = torch.tensor([0.0, 0.0999, 0.1001, 0.2999, 0.6001, 1 - 2**-53], dtype=torch.float64)
    token, logp = cpu.pick(logits, u, 1.0)
    assert token.tolist() == [0, 0, 1, 1, 3, 3]
    torch.testing.assert_close(logp, logits[0][token], **CLOSE)


@pytest.mark.parametrize("V", [5, 64, 300, 5000])
def test_pick_never_takes_a_forbidden_token(V):
    """-inf first, last and over whole blocks: u = 0 takes the first that may be taken, u just below 1 the last."""
    logits = torch.full((2, V), -float("inf"))
    allowed = [V // 2, V // 2 + 1]
    logits[:, allowed] = torch.tensor([0.0, 1.0])
    token, logp = cpu.pick(logits, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64), 1.0)
    assert token.tolist() == allowed
    torch.testing.assert_close(logp, torch.tensor([0.0, 1.0]).log_softmax(0), **CLOSE)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_pick_draws_each_token_as_often_as_its_probability(temperature):
    """u on a grid of 100,000: a token's share is its probability to one step of the grid, and logp is that of log_softmax."""
    V, n = 300, 100_000
    logits, u = 4 * draw(1, V), (torch.arange(n, dtype=torch.float64) + 0.5) / n
    token, logp = cpu.pick(logits.expand(n, V).contiguous(), u, temperature)
    want = (logits[0].double() / temperature).log_softmax(0)
    assert (token.diff() >= 0).all()
    torch.testing.assert_close(torch.bincount(token, minlength=V) / n, want.exp().float(), rtol=0, atol=1.1 / n + 1e-6)
    torch.testing.assert_close(logp, want[token].float(), **CLOSE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_pick_refuses_logits_without_a_distribution(bad):
    logits = draw(3, 70)
    logits[1] = -float("inf") if bad is None else torch.where(torch.arange(70) == 66, bad, logits[1])
    with pytest.raises(ValueError, match="row 1 of the logits"):
        cpu.pick(logits, torch.zeros(3, dtype=torch.float64), 1.0)


def test_sampling_does_not_depend_on_neighbours_or_threads(threads):
    """A row alone gives the same bits as among others, on one thread as on three."""
    d = decoding(head_dim=20)
    q, x, delta, weight, u = draw(6, 4, 20), draw(6, 52), draw(6, 52, seed=1), draw(52), torch.rand(6, dtype=torch.float64)

    def results(rows):
        whole = [d[n][rows] if n in ("prompt", "prompt_length", "slot", "length") else d[n] for n in NAMES]
        return (cpu.add_norm(x[rows].clone(), delta[rows], weight, 1e-6), cpu.attend(q[rows], *whole), cpu.gate_halves(x[rows]),
                *cpu.pick(3 * x[rows], u[rows], 0.7))

    threads(1)
    together = results(torch.arange(6))
    alone = [torch.cat(parts) for parts in zip(*(results(torch.tensor([r])) for r in range(6)), strict=True)]
    threads(3)
    for a, b, c in zip(together, alone, results(torch.arange(6)), strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_without_a_compiler_there_is_one_warning_and_no_library():
    code = ("import warnings; from postgrad.models.kernels import cpu\n"
            "with warnings.catch_warnings(record=True) as seen:\n"
            "    warnings.simplefilter('always')\n"
            "    assert cpu.library() is None and cpu.library() is None\n"
            "print(*(w.message for w in seen), sep='\\n')")
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "POSTGRAD_KERNELS")} | {"PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env,
                          cwd=Path(__file__).parent.parent, check=True)
    assert done.stdout.startswith("no compiled kernels, so plain torch is used") and done.stdout.count("\n") == 1
