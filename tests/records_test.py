import torch

from postgrad.records import Batch


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
