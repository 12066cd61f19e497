from functools import partial

import pytest
import torch

from postgrad.maths.weights import fixed_length, prompt_mean, sequence_mean, sequence_sum, token_mean

MASK = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 0]]).bool()  # three tokens and one
ALL = [token_mean, sequence_mean, fixed_length, sequence_sum, partial(prompt_mean, group_size=1)]


def test_by_hand():
    assert token_mean(MASK, 5).tolist() == [[0, 0.25, 0.25, 0.25], [0, 0.25, 0, 0]]
    assert sequence_mean(MASK, 5)[0].tolist() == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6])
    assert sequence_mean(MASK, 5)[1].tolist() == [0, 0.5, 0, 0]
    assert fixed_length(MASK, 5).tolist() == [[0, *[pytest.approx(0.1)] * 3], [0, pytest.approx(0.1), 0, 0]]
    assert sequence_sum(MASK, 5).tolist() == [[0, 0.5, 0.5, 0.5], [0, 0.5, 0, 0]]


def test_what_each_mean_is_a_mean_of():
    loss = torch.tensor([[9.0, 1.0, 2.0, 3.0], [9.0, 10.0, 9.0, 9.0]])
    assert (loss * token_mean(MASK, 5)).sum().item() == pytest.approx(4.0)  # 16 / 4
    assert (loss * sequence_mean(MASK, 5)).sum().item() == pytest.approx(6.0)  # (2 + 10) / 2
    assert (loss * fixed_length(MASK, 5)).sum().item() == pytest.approx(1.6)  # 16 / 10
    assert (loss * sequence_sum(MASK, 5)).sum().item() == pytest.approx(8.0)  # (6 + 10) / 2


def test_the_mean_by_prompt():
    """Prompts of 3 + 1 and 2 + 2 tokens: means 4 and 1 of the loss, whatever reply a token stands in."""
    mask = torch.cat([MASK, torch.tensor([[0, 1, 1, 0], [0, 1, 1, 0]]).bool()])
    loss = torch.tensor([[9.0, 1, 2, 3], [9, 10, 9, 9], [9, 0, 1, 9], [9, 1, 2, 9]])
    assert (loss * prompt_mean(mask, 5, group_size=2)).sum().item() == pytest.approx((4 + 1) / 2)
    torch.testing.assert_close(prompt_mean(mask, 5, group_size=4), token_mean(mask, 5))
    torch.testing.assert_close(prompt_mean(mask, 5, group_size=1), sequence_mean(mask, 5))
    mask[2:] = False  # a prompt of which nothing is left is not there
    torch.testing.assert_close(prompt_mean(mask, 5, group_size=2)[:2], token_mean(MASK, 5))


def test_reductions():
    torch.testing.assert_close(sequence_sum(MASK, 5), 5 * fixed_length(MASK, 5))
    even = torch.tensor([[0, 1, 1], [0, 1, 1]]).bool()
    torch.testing.assert_close(token_mean(even, 2), sequence_mean(even, 2))
    # rows as long as the budget: all three agree
    torch.testing.assert_close(token_mean(even, 2), fixed_length(even, 2))


@pytest.mark.parametrize("weigh", ALL)
def test_a_row_with_an_empty_mask_is_not_there(weigh):
    padded = torch.cat([MASK, torch.zeros(3, 4).bool()])
    assert torch.equal(weigh(padded, 5)[:2], weigh(MASK, 5))
    assert not weigh(padded, 5)[2:].any()
    assert not weigh(torch.zeros(2, 3).bool(), 5).any()  # and no NaN when nothing is left


@pytest.mark.parametrize("weigh", [token_mean, sequence_mean])
def test_means_have_total_weight_one(weigh):
    assert weigh(MASK, 5).sum().item() == pytest.approx(1.0)
