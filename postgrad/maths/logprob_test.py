import math

import pytest
import torch

from postgrad.maths.logprob import align, chosen_logp, row_sum


def test_align_moves_one_column_to_the_right():
    assert align(torch.tensor([[1, 2, 3], [4, 5, 6]])).tolist() == [[0, 1, 2], [0, 4, 5]]
    assert align(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist() == [[[0.0, 0.0], [1.0, 2.0]]]


def test_by_hand_two_words():
    # the state says logits (0, log 3): p = (1/4, 3/4)
    states, head, tokens = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([1])
    logp, entropy = chosen_logp(states, head, tokens)
    assert logp.tolist() == [pytest.approx(-0.287682)]  # log 0.75
    assert entropy.tolist() == [pytest.approx(0.562335)]  # -(0.25 log 0.25 + 0.75 log 0.75)
    cold, _ = chosen_logp(states, head, tokens, temperature=0.5)
    assert cold.item() == pytest.approx(math.log(0.9))  # p squared and renormalised: 9/10


def case(dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(9, 5, generator=draw, dtype=torch.float64).to(dtype)
    head = torch.randn(11, 5, generator=draw, dtype=torch.float64).to(dtype)
    return states, head, torch.randint(0, 11, (9,), generator=draw)


@pytest.mark.parametrize("chunk", [1, 4, 4096])
def test_chunked_equals_the_whole_logits_tensor_and_its_gradients(chunk):
    states, head, tokens = case()
    states.requires_grad_(), head.requires_grad_()
    logp, entropy = chosen_logp(states, head, tokens, temperature=0.7, chunk=chunk)
    every = torch.log_softmax(states @ head.T / 0.7, -1)
    whole, whole_entropy = every.gather(1, tokens[:, None]).squeeze(1), -(every.exp() * every).sum(-1)
    torch.testing.assert_close(logp, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(entropy, whole_entropy, rtol=0, atol=1e-12)
    mine = torch.autograd.grad((logp.sin() + entropy**2).sum(), (states, head))
    theirs = torch.autograd.grad((whole.sin() + whole_entropy**2).sum(), (states, head))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_bfloat16_states_get_a_float32_softmax():
    states, head, tokens = case(torch.bfloat16)
    logp, entropy = chosen_logp(states, head, tokens)
    assert logp.dtype == entropy.dtype == torch.float32
    exact = torch.log_softmax(states.double() @ head.double().T, -1)
    torch.testing.assert_close(logp.double(), exact.gather(1, tokens[:, None]).squeeze(1), rtol=0, atol=1e-6)


def test_no_states_no_numbers():
    states, head, tokens = case()
    states.requires_grad_()
    logp, entropy = chosen_logp(states[:0], head, tokens[:0])
    (logp.sum() + entropy.sum()).backward()
    assert logp.shape == entropy.shape == (0,) and not states.grad.any()


def test_row_sum_is_bitwise_blind_to_padding():
    draw = torch.Generator().manual_seed(1)
    for width in (1, 2, 3, 8, 37):
        x = torch.randn(4, width, generator=draw, dtype=torch.float64)
        for extra in (1, 5, 27, 100):
            padded = torch.cat([x, torch.zeros(4, extra, dtype=torch.float64)], 1)
            assert torch.equal(row_sum(x), row_sum(padded))
        assert row_sum(x).tolist() == pytest.approx([math.fsum(row) for row in x.tolist()], abs=1e-14)
    assert row_sum(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [6.0]
