import torch

from postgrad.maths.choice import top_covariance, top_entropy

MASK = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 0]]).bool()
ADV = torch.tensor([[9.0, 1.0, 1.0, 1.0], [9.0, -1.0, -1.0, 9.0]])
LOGP = torch.tensor([[5.0, -0.1, -2.0, -1.0], [5.0, -3.0, -0.2, 5.0]])


def test_the_tokens_with_the_largest_covariance():
    """mean A 0.2, mean logp -1.26. A - 0.2 is 0.8 or -1.2; logp + 1.26 is 1.16, -0.74, 0.26 | -1.74, 1.06:
    products 0.928, -0.592, 0.208 | 2.088, -1.272. A sure token that is praised, a rare one that is blamed."""
    two = top_covariance(MASK, ADV, old_logp=LOGP, share=0.4)
    assert two.tolist() == [[False, True, False, False], [False, True, False, False]]
    assert top_covariance(MASK, ADV, old_logp=LOGP, share=0.6).sum() == 3


def test_the_tokens_with_the_largest_entropy():
    entropy = torch.tensor([[9.0, 0.1, 0.7, 0.3], [9.0, 0.9, 0.0, 9.0]])
    assert top_entropy(MASK, ADV, entropy=entropy, share=0.4).nonzero().tolist() == [[0, 2], [1, 1]]
    assert top_entropy(MASK, ADV, entropy=entropy, share=0.2).nonzero().tolist() == [[1, 1]]


def test_at_least_one_token_and_of_nothing_none():
    one = top_covariance(MASK, ADV, old_logp=LOGP, share=2e-4)
    assert one.nonzero().tolist() == [[1, 1]]
    assert not top_covariance(torch.zeros_like(MASK), ADV, old_logp=LOGP, share=0.5).any()
    assert top_covariance(MASK, ADV, old_logp=LOGP, share=1.0).equal(MASK)


def test_of_equal_tokens_the_first():
    level = torch.zeros_like(ADV)
    assert top_covariance(MASK, level, old_logp=LOGP, share=0.4).nonzero().tolist() == [[0, 1], [0, 2]]
