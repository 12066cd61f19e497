"""The kernels in C against loops and autograd in plain torch."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from postgrad.models.kernels import cpu, plain
from postgrad.models.kernels.cpu import Panels

pytestmark = pytest.mark.skipif(cpu.c_library() is None, reason="no C compiler on this machine")
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
    torch.testing.assert_close(cpu.add_norm(mine, delta, weight, 1e-5),
                               F.rms_norm(x + delta, (D,), weight, 1e-5), **CLOSE)
    assert torch.equal(mine, x + delta)
    torch.testing.assert_close(cpu.add_norm(mine, None, weight, 1e-5), F.rms_norm(mine, (D,), weight, 1e-5),
                               **CLOSE)


def decoding(R=6, H=4, kv=2, head_dim=24, S=9, room=7):
    """Rows in the middle of a sampling run: two share a prompt, slots are out of order,
    one row has an empty prompt."""
    angles = torch.outer(torch.arange(S + room).float(),
                         torch.arange(1, head_dim // 2 + 1).float().reciprocal())
    return {"qkv": draw(R, (H + 2 * kv) * head_dim), "cos": angles.cos(), "sin": angles.sin(),
            "k_prompt": draw(4, kv, S, head_dim), "v_prompt": draw(4, kv, S, head_dim, seed=1),
            "k_cache": draw(8, kv, room, head_dim, seed=2), "v_cache": draw(8, kv, room, head_dim, seed=3),
            "prompt": torch.tensor([3, 3, 0, 1, 2, 1]), "prompt_length": torch.tensor([9, 9, 0, 1, 5, 1]),
            "slot": torch.tensor([5, 0, 7, 2, 1, 3]), "length": torch.tensor([1, 7, 3, 2, 7, 1])}


def test_place_rotates_and_stores():
    d = decoding()
    position, at = d["prompt_length"] + d["length"] - 1, d["length"] - 1
    k_cache, v_cache = d["k_cache"].clone(), d["v_cache"].clone()
    q = cpu.rotate_and_store(d["qkv"], d["cos"], d["sin"], position, d["slot"], at, k_cache, v_cache)
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
    got = cpu.attend_cached(q, *(d[n] for n in NAMES), window)
    for r in range(6):
        P, n, p, s = (int(d[x][r]) for x in ("prompt_length", "length", "prompt", "slot"))
        k, v = (torch.cat([d[f"{x}_prompt"][p][:, :P], d[f"{x}_cache"][s][:, :n]], dim=1) for x in "kv")
        near = slice(max(0, P + n - (window or P + n)), None)
        want = [softmaxed(q[r, h: h + 1], k[h * kv // 4, near], v[h * kv // 4, near]) for h in range(4)]
        torch.testing.assert_close(got[r], torch.cat(want).flatten(), **CLOSE)


SIZES = [(1, 1), (7, 5), (128, 96), (448, 70), (1000, 33)]  # inputs and outputs; 448 and 1000: sums in parts


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_product_with_panels_is_that_with_the_matrix(inputs, outputs):
    parts = [draw(n, inputs) for n in (outputs // 3, outputs - outputs // 3) if n]
    panels = Panels.like(parts)
    for sign in (1, -1):  # filled anew
        panels.fill([sign * part for part in parts])
        x = draw(29, inputs, seed=1)
        assert panels.product(x).shape == (29, outputs)
        exact = sign * x.double() @ torch.cat(parts).double().T
        torch.testing.assert_close(panels.product(x).double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_row_of_a_product_is_the_same_alone_and_among_others(inputs, outputs, threads):
    weight, x = draw(outputs, inputs), draw(64, inputs, seed=1)
    panels = Panels.like([weight])
    panels.fill([weight])
    threads(1)
    among = panels.product(x)
    assert all(torch.equal(panels.product(x[:n]), among[:n]) for n in range(1, 64))
    assert torch.equal(panels.product(x[40:41]), among[40:41])
    threads(2)
    assert torch.equal(panels.product(x), among)


@pytest.mark.parametrize("ends", [(), (3,), (1, 4)])
def test_what_is_noted_is_what_plain_torch_notes(ends):
    make = torch.Generator().manual_seed(len(ends))
    R, most = 40, 5
    token, at = (torch.randint(0, most + 1, (R,), generator=make) for _ in range(2))
    shown, slot = torch.arange(R), torch.randperm(R, generator=make)
    done, count = torch.rand(R, generator=make) < 0.3, torch.randint(0, most, (R,), generator=make)
    found = []
    for ops in (cpu, plain):
        changed = [x.clone() for x in (at, done, count)] + [torch.zeros(R, most + 1, dtype=torch.int64),
                                                            torch.zeros(R, most + 1)]
        now, over, written, out, logps = changed
        where = ops.record_tokens(token, draw(R), now, slot, shown, over, written, out, logps,
                         torch.tensor(ends, dtype=torch.int64), most)
        found.append([where, *changed])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("rows", [[], [0, 1, 2], [1, 4, 5, 8], [9], list(range(10))])
def test_rows_move_to_the_front_as_in_plain_torch(rows):
    nobody, found = torch.tensor([[0], [7], [1]]), []
    for ops in (cpu, plain):
        columns, hidden = torch.arange(36).view(3, 12).clone(), draw(12, 5)
        done = torch.arange(12) % 3 == 0
        ops.compact_rows(columns, done, hidden, torch.tensor(rows, dtype=torch.int64), 10, nobody)
        found.append((columns, done, hidden[: len(rows)]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert columns[:, 10:].tolist() == [[10, 11], [22, 23], [34, 35]], "those behind stay"


def test_gate_halves_also_far_from_zero():
    ab = torch.cat([torch.tensor([[-200.0, -88.5, -20.0, -1e-3, 0.0, 1.0, 50.0, 200.0]]), draw(1, 8)], dim=1)
    torch.testing.assert_close(cpu.swiglu_joined(ab), F.silu(ab[:, :8]) * ab[:, 8:], **CLOSE)


def test_sampling_does_not_depend_on_neighbours_or_threads(threads):
    """A row alone gives the same bits as among others, on one thread as on three."""
    d = decoding(head_dim=20)
    q = draw(6, 4, 20)
    x = draw(6, 52)
    delta = draw(6, 52, seed=1)
    weight = draw(52)
    u = torch.rand(6, dtype=torch.float64)

    def results(rows):
        whole = [d[n][rows] if n in ("prompt", "prompt_length", "slot", "length") else d[n] for n in NAMES]
        return (cpu.add_norm(x[rows].clone(), delta[rows], weight, 1e-6), cpu.attend_cached(q[rows], *whole),
                cpu.swiglu_joined(x[rows]), *cpu.sample_tokens(3 * x[rows], u[rows], 0.7))

    threads(1)
    together = results(torch.arange(6))
    alone = [torch.cat(parts) for parts in zip(*(results(torch.tensor([r])) for r in range(6)), strict=True)]
    threads(3)
    for a, b, c in zip(together, alone, results(torch.arange(6)), strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def agree(mine, theirs, *inputs):
    """Both functions give the same on these inputs, and so do the gradients of a random projection,
    in every input."""
    answers = []
    for function in (mine, theirs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        y = function(*leaves)
        answers.append([y, *torch.autograd.grad((y * draw(*y.shape, seed=9)).sum(), leaves)])
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("shape", [(1, 7), (5, 64), (130, 48), (9, 4, 16)])
def test_norm_and_its_gradients(shape):
    D = shape[-1]
    agree(lambda x, w: cpu.rms_norm(x, w, 1e-5), lambda x, w: F.rms_norm(x, (D,), w, 1e-5), draw(*shape),
          1 + draw(D))


@pytest.mark.parametrize("H, head_dim", [(1, 2), (3, 16), (4, 48)])
def test_rotate_and_its_gradients(H, head_dim):
    angle = 10 * draw(11, head_dim // 2)
    cos, sin = angle.cos(), angle.sin()
    agree(lambda x: cpu.rotate(x, cos, sin), lambda x: turned(x, cos[:, None], sin[:, None]),
          draw(11, H, head_dim))
    wide = draw(11, H + 2, head_dim)  # a slice of a wider tensor is read where it stands
    assert torch.equal(cpu.rotate(wide[:, 1:-1], cos, sin), cpu.rotate(wide[:, 1:-1].clone(), cos, sin))


def test_gate_and_its_gradients():
    a, b = 20 * draw(7, 37), draw(7, 37, seed=1)
    agree(cpu.swiglu, lambda a, b: F.silu(a) * b, a, b)
    agree(cpu.swiglu_joined, lambda ab: F.silu(ab[:, :37]) * ab[:, 37:], torch.cat([a, b], dim=1))
    agree(lambda ab: cpu.swiglu(*ab.chunk(2, dim=1)), cpu.swiglu_joined, torch.cat([a, b], dim=1))


FIELDS = ("start", "stop", "prefix_start", "prefix_stop")


def spans(*sequences):
    """(start, stop, prefix_start, prefix_stop) of each sequence."""
    return SimpleNamespace(**dict(zip(FIELDS, torch.tensor(sequences).T, strict=True)))


LAYOUTS = {
    "alone": spans((0, 40, 0, 0)),
    "one token each": spans((0, 1, 0, 0), (1, 2, 0, 0), (2, 3, 0, 1)),
    "no prefixes": spans((0, 3, 0, 0), (3, 20, 0, 0), (20, 53, 0, 0)),
    "two groups": spans((0, 5, 0, 0), (5, 24, 0, 5), (24, 25, 0, 5), (25, 58, 0, 5), (58, 61, 0, 0),
                        (61, 64, 58, 61)),
    "out of order": spans((9, 30, 2, 9), (2, 9, 0, 0), (0, 2, 2, 9)),
    "part of a sequence, and across two": spans((0, 6, 0, 0), (6, 12, 2, 5), (12, 40, 4, 9)),
    "a chain": spans((0, 4, 0, 0), (4, 9, 0, 4), (9, 12, 4, 9), (12, 20, 9, 12)),
}


def looped(q, k, v, layout, window=None):
    """Attention as it is told, sequence by sequence and head by head."""
    y, G = torch.zeros_like(q), q.shape[1] // k.shape[1]
    for start, stop, first, last in zip(*(getattr(layout, n).tolist() for n in FIELDS), strict=True):
        keys = torch.tensor([*range(first, last), *range(start, stop)])
        at = torch.arange(len(keys))
        position = at[last - first:, None]
        seen = (at <= position) & (at > position - (window or len(keys)))
        for h in range(q.shape[1]):
            p = (q[start:stop, h] @ k[keys, h // G].T / q.shape[2] ** 0.5).masked_fill(~seen, -1e30).softmax(
                -1)
            y = y.index_put((torch.arange(start, stop), torch.tensor(h)), p @ v[keys, h // G])
    return y


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("window", [None, 1, 7])
@pytest.mark.parametrize("H, kv, head_dim", [(2, 2, 16), (6, 2, 12), (3, 1, 32)])
def test_attention_and_its_gradients(layout, window, H, kv, head_dim):
    N = int(layout.stop.max())
    inputs = draw(N, H, head_dim), draw(N, kv, head_dim), draw(N, kv, head_dim, seed=1)
    agree(lambda *x: cpu.attention(*x, layout, window), lambda *x: looped(*x, layout, window), *inputs)


def test_attention_reads_slices_of_one_tensor():
    layout, qkv = LAYOUTS["two groups"], draw(64, 8, 16).requires_grad_()
    agree(lambda x: cpu.attention(*x.split([4, 2, 2], dim=1), layout),
          lambda x: cpu.attention(*(part.contiguous() for part in x.split([4, 2, 2], dim=1)), layout),
          qkv.detach())


def test_attention_of_large_scores_is_finite():
    q, v, layout = 100 * draw(40, 2, 16), draw(40, 2, 16, seed=1), LAYOUTS["alone"]
    agree(lambda v: cpu.attention(q, q, v, layout), lambda v: looped(q, q, v, layout), v)


def trained(N, layout):
    """Every training kernel and its gradients on the first N tokens:
    a list of [N, ...] tensors, and that of the weight [D]."""
    x, w = draw(200, 4, 24)[:N].requires_grad_(), draw(24).requires_grad_()
    a, b = (draw(200, 36, seed=s)[:N].requires_grad_() for s in (1, 2))
    cos, sin = (draw(200, 12, seed=s)[:N] for s in (3, 4))
    h = cpu.rotate(cpu.rms_norm(x, w, 1e-6), cos, sin)
    y, z = cpu.attention(h, h[:, :2], h[:, 2:], layout), cpu.swiglu(a, b)
    loss = (y * draw(200, 4, 24, seed=5)[:N]).sum() + (z * draw(200, 36, seed=6)[:N]).sum()
    dx, da, db, dw = torch.autograd.grad(loss, [x, a, b, w])
    return [h, y, z, dx, da, db], dw


GROUP = (0, 5, 0, 0), (5, 24, 0, 5), (24, 25, 0, 5), (25, 58, 0, 5)
MORE = *GROUP, (58, 61, 0, 0), (61, 64, 58, 61), (64, 200, 0, 0)


def test_training_does_not_depend_on_threads(threads):
    threads(1)
    one, dw = trained(200, spans(*MORE))
    threads(3)
    three, also = trained(200, spans(*MORE))
    assert all(torch.equal(a, b) for a, b in zip([*one, dw], [*three, also], strict=True))


def test_training_does_not_depend_on_neighbours():
    """A group of sequences gives the same bits whether or not others follow, and a token whether or not
    others come later."""
    among, alone = trained(200, spans(*MORE))[0], trained(58, spans(*GROUP))[0]
    cut = trained(10, spans(GROUP[0], (5, 10, 0, 5)))[0]
    assert all(torch.equal(a, b[:58]) for a, b in zip(alone, among, strict=True))
    assert all(torch.equal(a, b[:10]) for a, b in zip(cut[:3], among[:3], strict=True))


def test_other_types_are_refused_not_misread():
    with pytest.raises(AssertionError, match="bfloat16"):
        cpu.swiglu_joined(draw(2, 8).bfloat16())
    with pytest.raises(AssertionError, match="int32"):
        cpu.attention(*draw(3, 4, 2, 8), SimpleNamespace(**{n: torch.tensor([0]).int() for n in FIELDS}))
