"""Invariants of what is read off tokens, rows and samples: log-probabilities, weights, pass@k."""

import math

import torch

from postgrad.studio.cells.checks.base import D, Function, assert_close, invariant_of, vector

LOGITS = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]]], dtype=D)
TOKENS = torch.tensor([[0, 2, 1]])


@invariant_of("logp")
def read_one_place_earlier(f: Function) -> None:
    """The log-probability of token t is read at token t - 1."""
    assert_close(f(LOGITS, TOKENS)[0], vector(0, 3 - vector(1, 2, 3).logsumexp(0).item(), -math.log(3)))


@invariant_of("logp")
def nothing_predicts_the_first(f: Function) -> None:
    """Column 0 is zero: nothing predicts the first token."""
    assert_close(f(LOGITS, TOKENS)[0][0], 0.0)


@invariant_of("logp")
def a_distribution(f: Function) -> None:
    """Over all values of a token, the probabilities sum to 1."""
    assert_close(sum(f(LOGITS, torch.tensor([[0, v, 0]]))[0][1].exp() for v in range(3)), 1.0)


MASK = torch.tensor([[False, True, True, True], [False, True, False, False]])


@invariant_of("sequence-mean")
def sequence_weights_sum_to_one(f: Function) -> None:
    """All weights sum to 1."""
    assert_close(f(MASK, 8).sum(), 1.0)


@invariant_of("sequence-mean")
def every_row_counts_the_same(f: Function) -> None:
    """A row of three tokens and a row of one count the same: 1/2 each."""
    assert_close(f(MASK, 8).sum(1), vector(0.5, 0.5))


@invariant_of("sequence-mean")
def an_empty_row_is_not_there(f: Function) -> None:
    """A row without sampled tokens changes nothing for the others."""
    more = torch.cat([MASK, torch.zeros(1, 4, dtype=torch.bool)])
    assert_close(f(more, 8)[:2], f(MASK, 8))


@invariant_of("pass-at-k")
def one_sample_is_the_share(f: Function) -> None:
    """k = 1 gives c / n."""
    assert_close([f(8, c, 1) for c in range(9)], [c / 8 for c in range(9)])


@invariant_of("pass-at-k")
def counted_by_hand(f: Function) -> None:
    """4 samples, 1 right, k = 2: half of the pairs hold the right one."""
    assert_close(f(4, 1, 2), 0.5)


@invariant_of("pass-at-k")
def certain_when_wrong_ones_run_out(f: Function) -> None:
    """Fewer than k wrong samples: certain."""
    assert_close(f(8, 5, 4), 1.0)
