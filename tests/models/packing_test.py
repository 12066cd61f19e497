"""Rows laid end to end: what is computed once, where everything is, and the way back."""

import gc
import weakref

import numpy as np
import pytest
import torch

from postgrad.maths.packing import Laid, Spans, common_prompts, last_of, pack, padded
from postgrad.models.blocks import Blocks, cut_blocks, sequence_table
from postgrad.models.graph_capture import capturing
from postgrad.records import Batch

TOKENS = torch.tensor([[1, 2, 3, 7, 8], [1, 2, 3, 9, 0], [4, 2, 3, 5, 0]])
MASK = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0]]).bool()
LENGTHS = torch.tensor([5, 4, 4])


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
    laid = Laid.of(spans, "cpu")
    assert laid.queries_to.tolist() == [0, 3, 5, 6, 10] and laid.keys_to.tolist() == [0, 3, 8, 12, 16]
    assert (laid.longest, laid.seen) == (4, 5)


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
    assert last_of(MASK).tolist() == [4, 3, 3] and last_of(torch.zeros(1, 3).bool()).tolist() == [0]
    with pytest.raises(AssertionError, match="column 0"):
        pack(LENGTHS, TOKENS, torch.ones_like(MASK))


def test_padding_stands_in_sequences_of_its_own():
    packed = pack(LENGTHS, TOKENS, MASK)
    wide = padded(packed, 15, piece=2)
    assert (len(wide.cells) == 15 and wide.cells[:10].equal(packed.cells)
            and wide.positions[10:].tolist() == [0, 1, 0, 1, 0])
    assert wide.spans.start[4:].tolist() == [10, 12, 14] and wide.spans.stop[4:].tolist() == [12, 14, 15]
    assert not wide.spans.prefix[4:].any() and padded(packed, 10) is packed
    assert Spans.of([3, 2]).start.tolist() == [0, 3] and Spans.of([3, 2]).stop.tolist() == [3, 5]


def test_a_split_counts_what_is_computed():
    """Twelve rows of 3 + 2 tokens in three groups: a group costs 3 + 4 * 2 = 11 tokens, not 20."""
    prompts = torch.arange(9).view(3, 3).repeat_interleave(4, 0)
    tokens = torch.cat([prompts, torch.arange(24).view(12, 2)], 1)
    mask = (torch.arange(5) >= 3).expand(12, 5)
    batch = Batch(ids=tuple(map(str, range(12))), tokens=tokens, mask=mask, lengths=torch.full((12,), 5),
                  weight=mask.float())
    assert [(len(m), len(m.packed.cells)) for m in batch.split(11)] == [(4, 11)] * 3
    assert [len(m.packed.cells) for m in batch.split(33)] == [33]
    assert [len(m) for m in batch.split(1)] == [1] * 12
    cut = list(batch.split(20))
    assert sum(len(m) for m in cut) == 12 and max(len(m.packed.cells) for m in cut) <= 20 and len(cut) == 2


def test_no_garbage_is_collected_while_a_graph_is_captured():
    class Cycle:
        def __init__(self):
            self.me = self

    seen = []
    before = Cycle()
    weakref.finalize(before, seen.append, "before")
    del before
    with capturing():
        assert seen == ["before"] and not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with capturing():
        pass
    was = gc.isenabled()
    gc.enable()
    assert not was  # as it was found
