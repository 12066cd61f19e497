"""The kernels on a GPU, interpreted on the CPU: against plain torch, in float32."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from postgrad.maths import logprob
from postgrad.maths.logprob import PLAIN, Softmax, chosen_logp
from postgrad.maths.packing import pack
from postgrad.models import Config, Decoder, decoder
from postgrad.models.cuda_graphs import PassGraphs, PrefillGraphs, Trunk
from postgrad.models.engine import Engine
from postgrad.models.families import Architecture
from postgrad.models.kernels import plain

INSIDE = "TRITON_INTERPRET"  # has to be set before the kernels are read


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=3e-5)


def interpreted(file):
    """In a process of its own: the interpreter is chosen when triton is imported."""
    env = os.environ | {INSIDE: "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, file], env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_interpreted():
    interpreted(__file__)


def inside():
    from postgrad.models.kernels import gpu
    x, delta, weight = torch.randn(3, 48), torch.randn(3, 48), torch.randn(48)
    mine, right = x.clone(), x.clone()
    close(gpu.add_norm(mine, delta, weight, 1e-5), plain.add_norm(right, delta, weight, 1e-5))
    close(mine, right)
    close(gpu.swiglu_joined(x), plain.swiglu_joined(x))
    noted(gpu)
    shared_keys()
    vocabulary()
    tiles()
    gathered()
    padded_pass(gpu)
    readings(gpu)


def vocabulary():
    """The softmax over the vocabulary against plain torch in float64: of blocks that do and do not end with
    the vocabulary, with logits that are -inf, large, or far below the largest."""
    from postgrad.models.kernels import vocab_softmax as kernels
    make = torch.Generator().manual_seed(0)
    for kernels.READ_BLOCK, kernels.SLOPE_BLOCK, V, N in ((64, 32, 64, 5), (64, 128, 200, 5), (64, 64, 37, 1),
                                                          (16, 16, 130, 3), (32, 32, 50, 0)):
        logits = torch.randn(N, V, generator=make) * 3
        logits[1:2] += 1e4
        logits[2:3, 3:] -= 300
        logits[3:4, 1::2] = -torch.inf  # also the first and the last blocks of a row
        logits[4:5, : V // 2 + 1] = -torch.inf
        tokens = torch.randint(V // 2 + 2, V, (N,), generator=make) // 2 * 2  # one that is not -inf
        found = kernels.read_logits(logits, tokens)
        right = logprob.logits_forward(logits.double().clamp_min(-1e9), tokens)
        for mine, theirs in zip(found, right, strict=True):
            close(mine, theirs.float())
        total, _, entropy = right
        by_logp, by_entropy = torch.randn(2, N, generator=make)
        for by_both, by in ((None, by_logp), (by_entropy, by_logp), (by_entropy, torch.ones(()).expand(N))):
            mine = kernels.slope_logits(logits, tokens, total.float(), by, entropy.float(), by_both,
                                        torch.float32)
            theirs = logprob.logits_backward(logits.double().clamp_min(-1e9), tokens, total.float().double(),
                                   by.double(), entropy, None if by_both is None else by_both.double(),
                                   torch.float32)
            close(mine, theirs)
    bad = torch.tensor([[1.0, torch.nan, 2.0], [torch.inf, 0.0, 1.0], [-torch.inf] * 3, [1.0, 2.0, 3.0]])
    logp = kernels.read_logits(bad, torch.tensor([0, 0, 0, 0]))[1]
    assert logp.isfinite().tolist() == [False, False, False, True]  # a step that is not finite is noticed
    chosen(kernels.SOFTMAX)


def tiles():
    """The head tile by tile, against plain torch in float64: rows, logits and states that do and do not end
    with a tile, logits that are large or far below the largest."""
    from postgrad.models.kernels import vocab_softmax as kernels
    make = torch.Generator().manual_seed(0)
    kernels.JOIN_ROWS, kernels.JOIN_TILES = 4, 2
    for kernels.TILE, N, V, K in (((16, 16, 16, 4, 2), 16, 48, 32), ((16, 32, 16, 4, 2), 21, 200, 40),
                                  ((32, 16, 32, 4, 2), 5, 37, 8), ((16, 16, 16, 4, 2), 0, 50, 16)):
        states, head = (torch.randn(n, K, generator=make) for n in (N, V))
        states[1:2] *= 300
        states[2:3] *= 60
        tokens = torch.randint(V, (N,), generator=make)
        right = PLAIN.forward(states.double(), head.double(), tokens)
        for mine, theirs in zip(kernels.read_tiles(states, head, tokens), right, strict=True):
            torch.testing.assert_close(mine, theirs.float(), rtol=1e-4, atol=1e-3)
        total, _, entropy = right
        by_logp, by_entropy = torch.randn(2, N, generator=make)
        for by_both in (None, by_entropy):
            mine = kernels.slope_tiles(states, head, tokens, total.float(), by_logp, entropy.float(), by_both)
            theirs = PLAIN.backward(states.double(), head.double(), tokens, total, by_logp.double(), entropy,
                                 None if by_both is None else by_both.double())
            torch.testing.assert_close(mine, theirs.float(), rtol=1e-3, atol=1e-3)
    bad = torch.tensor([[1.0, torch.nan], [torch.inf, 0.0], [1.0, 2.0]])
    logp = kernels.read_tiles(bad, torch.randn(20, 2, generator=make), torch.tensor([0, 0, 0]))[1]
    assert logp.isfinite().tolist() == [False, False, True]  # a step that is not finite is noticed
    chosen(Softmax(kernels.read_tiles, kernels.slope_tiles))


def chosen(kernels):
    """chosen_logp by the kernels against plain torch, chunk by chunk, gradients included."""
    make = torch.Generator().manual_seed(0)
    tokens = torch.randint(50, (7,), generator=make)
    found = []
    for softmax in (PLAIN, kernels):
        make.manual_seed(1)
        states, head = (torch.randn(n, 8, generator=make).requires_grad_() for n in (7, 50))
        logp, entropy = chosen_logp(states, head, tokens, 0.7, chunk=3, softmax=softmax)
        found.append([logp, entropy, *torch.autograd.grad((logp.sin() + entropy**2).sum(), (states, head)),
                      *torch.autograd.grad(chosen_logp(states, head, tokens, softmax=softmax)[0].sum(),
                                           (states, head))])
    for mine, right in zip(*found, strict=True):
        close(mine, right)


def gathered():
    """Sums of all gradients at once: of sizes that are no multiple of a piece, of other tensors at the next
    call, and of some that the kernel does not take."""
    from postgrad.models.kernels import gradient_sums
    make, gradient_sums.PIECE = torch.Generator().manual_seed(0), 16
    sizes = [(3, 16), (16,), (1,), (0,), (5, 7), (31,), (4, 6), (8,), (9,)]
    for turn in range(3):
        sums, parts = ([torch.randn(size, generator=make) for size in sizes] for _ in range(2))
        parts = [part.bfloat16() for part in parts]
        parts[-3], sums[-3] = parts[-3].view(6, 4).T, sums[-3].clone()  # not contiguous
        parts[-2] = parts[-2].float()
        parts[-1] = torch.cat([parts[-1], parts[-1]])[9:]  # not aligned
        if turn == 2:
            sums, parts = sums[-3:], parts[-3:]
        right = [a + 2 * b for a, b in zip(sums, parts, strict=True)]
        for _ in range(2):
            gradient_sums.add_by_kernel(sums, parts)
        for mine, theirs in zip(sums, right, strict=True):
            close(mine, theirs)


def noted(gpu):
    """Rows that go on, stop at either of two tokens, reach their length, or were done before."""
    found = []
    for ops in (plain, gpu):
        state = {"at": torch.tensor([0, 3, 2, 4, 5, 1]), "slot": torch.tensor([2, 0, 4, 1, 3, 6]),
                 "shown": torch.tensor([0, 7, 0, 1, 0, 0]), "count": torch.tensor([0, 3, 2, 4, 5, 1]),
                 "done": torch.tensor([False, False, False, False, True, True])}
        out, logps = torch.zeros(7, 6, dtype=torch.int64), torch.zeros(7, 6)
        where = ops.record_tokens(torch.tensor([9, 1, 2, 8, 7, 6]), torch.arange(6.0) - 9, state["at"],
                                  state["slot"], state["shown"], state["done"], state["count"], out, logps,
                                  torch.tensor([1, 2]), 5)
        found.append([where, out, logps, *state.values()])
    for mine, right in zip(*found, strict=True):
        assert torch.equal(mine, right)
    assert found[0][-1].tolist() == [False, True, True, True, True, True]
    assert found[0][3].tolist() == [1, 4, 3, 5, 5, 2]


def shared_keys():
    """What shared prompts take and give back."""
    from postgrad.models.kernels import gpu_training
    make = torch.Generator().manual_seed(0)
    # groups of five and of two, one row alone; the first prompt has six places, more than are read at once
    lengths, read = torch.tensor([5, 9, 6, 5, 12, 7, 6, 3]), torch.tensor([4, 4, 4, 4, 4, 2, 2, 1])
    tokens = torch.arange(12) + (read == 2)[:, None] * 20 + (read == 1)[:, None] * 40
    columns = torch.arange(12)
    packed = pack(lengths, tokens, (columns >= read[:, None]) & (columns < lengths[:, None]))
    assert packed.spans.places[1].diff().tolist() == [6] * 4 + [1] * 17 + [3] * 2 + [1] * 12
    laid, N = packed.spans.layout("cpu"), len(packed.cells)
    for heads, head_dim, times in ((3, 8, 1), (3, 64, 3), (1, 5, 2), (2, 200, 1)):
        x = torch.randn(N, 3, heads, head_dim, generator=make).requires_grad_()  # k and v stand side by side
        right = [y[laid.keys].repeat_interleave(times, 1) for y in (x[:, 1], x[:, 2])]
        close(gpu_training.gather_keys(x[:, 1].detach(), x[:, 2].detach(), laid.keys, times),
              [y.detach() for y in right])
        dk, dv = torch.randn(2, len(laid.keys), heads * times, head_dim, generator=make)
        slope, = torch.autograd.grad((right[0] * dk).sum() + (right[1] * dv).sum(), x)
        close(gpu_training.sum_key_gradients(dk, dv, laid, N, times), [slope[:, 1], slope[:, 2]])


def sequences(q, k, v, queries_to, keys_to, *_, **__):
    """In the place of flash attention, which is a GPU's alone."""
    parts = []
    for a, b, c, d in zip(queries_to, queries_to[1:], keys_to, keys_to[1:], strict=False):
        seen = torch.ones(b - a, d - c).tril(d - c - (b - a)).bool()
        parts.append(torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(0, 1) for x in (q[a:b], k[c:d], v[c:d])), seen, enable_gqa=True))
    return torch.cat(parts, 1).transpose(0, 1)


def flash(q, k, v, laid, window):
    """In the place of training's."""
    return sequences(q, k, v, laid.queries_to, laid.keys_to), torch.zeros(())


class Here(Decoder):
    ops = None


@torch.no_grad()
def readings(gpu):
    """Prompts read by what a graph would hold, again with others, and in more sizes than are kept, against
    the plain kernels; by layers as they are, and by those of compiled runs."""
    class Again:
        def __init__(self, work, out):
            self.work, self.out = work, out

        def replay(self):
            self.out.copy_(self.work())

    class Eager(PrefillGraphs):
        def capture(self, inputs, longest):
            out = self.read(*inputs, longest)
            return Again(lambda: self.read(*inputs, longest), out), inputs, out, None

    gpu.gpu_training.flash = flash
    body = Here(small_config()).start(torch.Generator().manual_seed(0))
    Here.ops = plain
    right, mine = (Engine(body, rows=6, prompts=40, read=8, new=8) for _ in range(2))
    mine.readings = Eager(body, mine.keep, 8, 40)
    usual = decoder.layer_functions
    decoder.layer_functions = lambda compiled: decoder.LayerFunctions(fused=compiled)
    for turn, prompts in enumerate((3, 5, 30, 40, 20, 28)):
        lengths = torch.randint(1, 9, (prompts,), generator=torch.Generator().manual_seed(turn))
        tokens = torch.randint(64, (prompts, 8), generator=torch.Generator().manual_seed(turn + 9))
        found = []
        for engine, Here.ops in ((right, plain), (mine, gpu)):
            body.compiled = engine is mine and turn % 2 == 1
            found.append(engine.prefill(tokens, lengths, list(range(prompts))))
        close(*found)
        for i, length in enumerate(lengths.tolist()):
            close(mine.k_prompt[:, i, :, :length], right.k_prompt[:, i, :, :length])
            close(mine.v_prompt[:, i, :, :length], right.v_prompt[:, i, :, :length])
    assert 1 < len(mine.readings.made) <= 4
    decoder.layer_functions = usual


def padded_pass(gpu):
    """Gradients of rows that share prompts, and of rows that share none, padded as for a graph, against those
    of the plain kernels."""
    class Eager(PassGraphs):
        def capture(self, inputs):
            return Trunk(self.decoder)

    mask = torch.arange(9).expand(5, 9) >= 4
    mask &= torch.arange(9) < torch.tensor([9, 6, 8, 7, 9])[:, None]
    prompts = [0, 0, 0, 9, 9], [0, 1, 2, 3, 4]  # of the rows
    for name, group, joined in (("llama", prompts[0], False), ("llama", prompts[1], True),
                                ("llama", prompts[0], True), ("qwen3", prompts[0], True),
                                ("qwen2", prompts[0], True), ("olmo2", prompts[1], True)):
        parts = Architecture(model_type=name, qkv_bias=name == "qwen2")
        body = Here(replace(small_config(), architecture=parts)).start(torch.Generator().manual_seed(0))
        decoder.layer_functions = lambda compiled, joined=joined: decoder.LayerFunctions(fused=compiled
                                                                                         and joined)
        tokens = torch.arange(9).repeat(5, 1) + torch.tensor(group)[:, None]
        tokens[:, 4:] = torch.randint(64, (5, 5), generator=torch.Generator().manual_seed(0))
        found = []
        for body.compiled, Here.ops in ((False, plain), (True, gpu)):
            body.angles(9)
            body._replays = {True: Eager(body)}
            body.zero_grad()
            logp, _ = body.logp(tokens, mask)
            (logp * torch.linspace(-1, 1, logp.numel()).view_as(logp)).sum().backward()
            found.append([logp.detach(), *(p.grad for p in body.parameters())])
        assert len(body._replays[True].made) == 1
        for mine, right in zip(*found, strict=True):
            close(mine, right)


def small_config():
    return Config(vocab_size=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                  num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=64)


if __name__ == "__main__":
    inside()
