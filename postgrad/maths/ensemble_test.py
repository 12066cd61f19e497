import torch

from postgrad.maths.ensemble import RULES, mean, minimum, penalised

SCORES = torch.tensor([[1.0, 3.0], [2.0, 2.0], [-4.0, 8.0]])


def test_by_hand():
    assert mean(SCORES).tolist() == [2, 2, 2]
    assert minimum(SCORES).tolist() == [1, 2, -4]
    assert penalised(SCORES, weight=0.5).tolist() == [1.5, 2, -16]  # variances 1, 0, 36


def test_members_that_agree_are_one():
    same = torch.tensor([[0.3] * 4, [-1.0] * 4])
    for rule in RULES.values():
        torch.testing.assert_close(rule(same), same[:, 0])


def test_doubt_never_pays():
    for rule in (minimum, penalised):
        assert (rule(SCORES) <= mean(SCORES)).all()
