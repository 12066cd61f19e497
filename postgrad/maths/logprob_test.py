import math

import pytest
import torch

from postgrad.maths.logprob import align, logp_of_logits, row_sum, select_logp


def test_align_moves_one_column_to_the_right():
    assert align(torch.tensor([[1, 2, 3], [4, 5, 6]])).tolist() == [[0, 1, 2], [0, 4, 5]]
    assert align(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist() == [[[0.0, 0.0], [1.0, 2.0]]]


def test_by_hand_two_words():
    # the state at token 0 says logits (0, log 3): p = (1/4, 3/4)
    hidden, head = torch.tensor([[[1.0], [0.0]]]), torch.tensor([[0.0], [math.log(3)]])
    tokens, mask = torch.tensor([[0, 1]]), torch.tensor([[False, True]])
    logp, entropy = select_logp(hidden, head, tokens, mask)
    assert logp.tolist() == [[0.0, pytest.approx(-0.287682)]]  # log 0.75
    assert entropy.tolist() == [[0.0, pytest.approx(0.562335)]]  # -(0.25 log 0.25 + 0.75 log 0.75)
    cold, _ = select_logp(hidden, head, tokens, mask, temperature=0.5)
    assert cold[0, 1].item() == pytest.approx(math.log(0.9))  # p squared and renormalised: 9/10


def case(dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(3, 7, 5, generator=draw, dtype=torch.float64).to(dtype)
    head = torch.randn(11, 5, generator=draw, dtype=torch.float64).to(dtype)
    tokens, mask = torch.randint(0, 11, (3, 7), generator=draw), torch.rand(3, 7, generator=draw) > 0.4
    mask[:, 0] = False
    return hidden, head, tokens, mask


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_selected_and_chunked_equals_the_whole_logits_tensor(chunk):
    hidden, head, tokens, mask = case()
    hidden.requires_grad_(), head.requires_grad_()
    logp, entropy = select_logp(hidden, head, tokens, mask, temperature=0.7, chunk=chunk)
    every = torch.log_softmax(hidden @ head.T / 0.7, -1)
    whole = logp_of_logits(hidden @ head.T / 0.7, tokens) * mask
    whole_entropy = align(-(every.exp() * every).sum(-1)) * mask
    torch.testing.assert_close(logp, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(entropy, whole_entropy, rtol=0, atol=1e-12)
    mine = torch.autograd.grad((logp.sin() + entropy**2).sum(), (hidden, head))
    theirs = torch.autograd.grad((whole.sin() + whole_entropy**2).sum(), (hidden, head))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_bfloat16_states_get_a_float32_softmax():
    hidden, head, tokens, mask = case(torch.bfloat16)
    logp, entropy = select_logp(hidden, head, tokens, mask)
    assert logp.dtype == entropy.dtype == torch.float32
    exact = torch.log_softmax((hidden @ head.T).double(), -1)
    torch.testing.assert_close(logp.double(), align(exact).gather(-1, tokens[..., None]).squeeze(-1) * mask, rtol=0, atol=1e-6)


def test_an_empty_mask_gives_zeros_and_column_0_is_refused():
    hidden, head, tokens, mask = case()
    logp, entropy = select_logp(hidden, head, tokens, torch.zeros_like(mask))
    assert not logp.any() and not entropy.any()
    mask[1, 0] = True
    with pytest.raises(AssertionError, match="column 0"):
        select_logp(hidden, head, tokens, mask)


def test_row_sum_is_bitwise_blind_to_padding():
    draw = torch.Generator().manual_seed(1)
    for width in (1, 2, 3, 8, 37):
        x = torch.randn(4, width, generator=draw, dtype=torch.float64)
        for extra in (1, 5, 27, 100):
            padded = torch.cat([x, torch.zeros(4, extra, dtype=torch.float64)], 1)
            assert torch.equal(row_sum(x), row_sum(padded))
        assert row_sum(x).tolist() == pytest.approx([math.fsum(row) for row in x.tolist()], abs=1e-14)
    assert row_sum(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [6.0]
