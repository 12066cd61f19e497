import pytest
import torch

from postgrad.maths.correction import banded, geometric_banded, masked, sequence_banded, truncated

SAMPLER = torch.tensor([[1.0, 0.5, 0.2], [1.0, 0.4, 0.9]]).log()
OLD = torch.tensor([[0.3, 0.6, 0.6], [1.0, 0.1, 0.9]]).log()  # w: 1.2, 3 | 0.25, 1
MASK = torch.tensor([[False, True, True], [False, True, True]])


def sampled(weight):
    return pytest.approx(weight[MASK].tolist(), abs=1e-6)


def test_by_hand():
    assert [1.2, 2.0, 0.25, 1.0] == sampled(truncated(SAMPLER, OLD, MASK))
    assert [1.2, 3.0, 0.0, 1.0] == sampled(banded(SAMPLER, OLD, MASK))
    assert [1.2, 0.0, 0.25, 1.0] == sampled(banded(SAMPLER, OLD, MASK, least=0.2, most=2.0))
    assert [1.2, 0.0, 0.25, 1.0] == sampled(masked(SAMPLER, OLD, MASK))
    # sqrt(3.6) = 1.897 and sqrt(0.25) = 1/2: inside 1/2 to 2 both, inside 1/1.9 to 1.9 the first
    assert [1.0, 1.0, 1.0, 1.0] == sampled(geometric_banded(SAMPLER, OLD, MASK, apart=1.0 + 1e-6))
    assert [1.0, 1.0, 0.0, 0.0] == sampled(geometric_banded(SAMPLER, OLD, MASK, apart=0.9))
    assert [0.0, 0.0, 0.0, 0.0] == sampled(geometric_banded(SAMPLER, OLD, MASK))
    assert [0.0, 0.0, 0.25, 0.25] == sampled(sequence_banded(SAMPLER, OLD, MASK))  # 3.6 and 0.25
    assert [3.6, 3.6, 0.25, 0.25] == sampled(sequence_banded(SAMPLER, OLD, MASK, widest=4.0))


@pytest.mark.parametrize("function", [truncated, banded, sequence_banded, masked, geometric_banded])
def test_where_the_engines_agree_nothing_is_corrected(function):
    assert function(OLD, OLD, MASK)[MASK].tolist() == [1.0] * 4
    outside = torch.where(MASK, OLD, 50.0)  # what stands where nothing was sampled has no say
    assert torch.equal(function(SAMPLER, outside, MASK)[MASK], function(SAMPLER, OLD, MASK)[MASK])
