"""Blocks of queries and keys of packed sequences."""

import pytest
import torch

from postgrad.maths.packing import Spans, pack
from postgrad.models.blocks import Blocks, cut_blocks, sequence_table

TOKENS = torch.tensor([[1, 2, 3, 7, 8], [1, 2, 3, 9, 0], [4, 2, 3, 5, 0]])
MASK = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0]]).bool()
LENGTHS = torch.tensor([5, 4, 4])


def test_blocks_by_hand():
    """The first prompt's block is seen by the two sequences behind it, up to token 6; the last row is of two
    blocks. Those with the most work come first: of queries by what they look at, of keys by who looks."""
    packed = pack(LENGTHS, TOKENS, MASK)
    assert cut_blocks(sequence_table(packed.spans), 3).tolist() == [
        [0, 0, 3, 0, 0, 6], [3, 3, 5, 0, 3, 5], [5, 5, 6, 0, 3, 6], [6, 6, 10, 6, 6, 10],
        [9, 6, 10, 6, 6, 10]]
    laid = Blocks.of(packed, (3, 2), sequences=6)
    assert laid.queries.shape == (10 // 3 + 6, 6) and laid.keys.shape == (10 // 2 + 6, 6)
    assert laid.queries[:, 0].tolist() == [3, 5, 9, 0, 6, 0, 0, 0, 0] and not laid.queries[5:].any()
    assert laid.keys[:, 0].tolist() == [0, 2, 6, 3, 8, 5] + [0] * 5 and not laid.keys[6:].any()
    assert laid.queries.dtype == torch.int32 and laid.positions.equal(packed.positions)
    several = pack(torch.tensor([4, 3, 5, 4]), torch.arange(5) + torch.tensor([[0], [0], [9], [9]]),
                   torch.tensor([[0, 0, 0, 1, 0], [0] * 5, [0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]).bool())
    assert sequence_table(several.spans)[:, [0, 4]].tolist() == [[0, 4], [4, 7], [7, 14], [9, 12], [12, 14]]
    shuffled = Spans(*(torch.tensor(x) for x in ([0, 2, 3, 5], [2, 3, 5, 6], [0, 0, 0, 0], [0, 2, 0, 2])))
    with pytest.raises(AssertionError, match="prefixes stand before"):  # another one stands between
        sequence_table(shuffled)
