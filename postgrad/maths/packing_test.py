"""Rows laid end to end: what is computed once, where everything is, and the way back."""

import numpy as np
import pytest
import torch

from postgrad.maths.packing import (
    AttentionLayout,
    Spans,
    common_prompts,
    last_masked,
    pack,
    pack_after,
    pad_packed,
)

TOKENS = torch.tensor([[1, 2, 3, 7, 8], [1, 2, 3, 9, 0], [4, 2, 3, 5, 0]])
MASK = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0]]).bool()
LENGTHS = torch.tensor([5, 4, 4])


def test_what_comes_after_prefixes_by_hand():
    """Rows of 5 and 3 tokens, of which 3 and 0 stand elsewhere: five are packed, keys 5, 6, 7 are theirs."""
    packed = pack_after(torch.tensor([5, 3]), torch.tensor([3, 0]), 6)
    assert packed.cells.tolist() == [3, 4, 6, 7, 8] and packed.positions.tolist() == [3, 4, 0, 1, 2]
    spans = packed.spans
    assert list(zip(*(x.tolist() for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop)),
                    strict=True)) == [(0, 2, 5, 8), (2, 5, 8, 8)]
    assert spans.keys.tolist() == [5, 6, 7, 0, 1, 2, 3, 4]


def test_two_rows_share_a_prompt_by_hand():
    packed = pack(LENGTHS, TOKENS, MASK)
    assert TOKENS.flatten()[packed.cells].tolist() == [1, 2, 3, 7, 8, 9, 4, 2, 3, 5]
    assert packed.positions.tolist() == [0, 1, 2, 3, 4, 3, 0, 1, 2, 3]
    spans = packed.spans
    assert list(zip(*(x.tolist() for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop)),
                    strict=True)) == [
                        (0, 3, 0, 0), (3, 5, 0, 3), (5, 6, 0, 3), (6, 10, 6, 6)]
    assert packed.home.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 5, 0], [6, 7, 8, 9, 0]]
    assert packed.chosen.tolist() == [3, 4, 8, 13]  # 7, 8, 9 and the last 5, in the rows laid flat
    assert packed.before.tolist() == [2, 3, 2, 8]  # each is predicted by the token before it in its row
    assert spans.keys.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7, 8, 9]
    places, ends = spans.places
    assert places.tolist() == [0, 3, 8, 1, 4, 9, 2, 5, 10, 6, 7, 11, 12, 13, 14, 15]
    assert ends.tolist() == [0, 3, 6, 9, 10, 11, 12, 13, 14, 15, 16]
    laid = AttentionLayout.of(spans, "cpu")
    assert laid.queries_to.tolist() == [0, 3, 5, 6, 10] and laid.keys_to.tolist() == [0, 3, 8, 12, 16]
    assert (laid.longest, laid.seen) == (4, 5)


def test_what_is_shared_and_what_is_not():
    def shared(mask):
        return list(zip(*(x.tolist() for x in common_prompts(TOKENS.numpy(), mask)), strict=True))

    assert shared(MASK.numpy()) == [(3, False), (3, True), (0, False)]
    # rows without a mask: a verdict failed
    assert shared(np.zeros_like(MASK.numpy())) == [(0, False)] * 3
    uneven = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0]], bool)  # prompts of another length
    assert shared(uneven) == [(0, False)] * 3
    alone = pack(LENGTHS)
    assert alone.cells.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13] and alone.spans.keys is None
    # rows wider than long
    assert pack(torch.tensor([2, 1]), torch.zeros(2, 9, dtype=torch.long)).cells.tolist() == [0, 1, 9]
    assert last_masked(MASK).tolist() == [4, 3, 3] and last_masked(torch.zeros(1, 3).bool()).tolist() == [0]
    with pytest.raises(AssertionError, match="column 0"):
        pack(LENGTHS, TOKENS, torch.ones_like(MASK))


def test_padding_stands_in_sequences_of_its_own():
    packed = pack(LENGTHS, TOKENS, MASK)
    wide = pad_packed(packed, 15, piece=2)
    assert (len(wide.cells) == 15 and wide.cells[:10].equal(packed.cells)
            and wide.positions[10:].tolist() == [0, 1, 0, 1, 0])
    assert wide.spans.start[4:].tolist() == [10, 12, 14] and wide.spans.stop[4:].tolist() == [12, 14, 15]
    assert not wide.spans.prefix[4:].any() and pad_packed(packed, 10) is packed
    assert Spans.of([3, 2]).start.tolist() == [0, 3] and Spans.of([3, 2]).stop.tolist() == [3, 5]
