"""The SDK's losses by hand: a sum over the tokens, with its thresholds as ratios."""

import math

import pytest
import torch

from postgrad.methods import METHODS
from postgrad.training.named_losses import loss_named

RATIO = torch.tensor([[2.0, 0.5]])
ADV = torch.tensor([[1.0, -1.0]])


@pytest.mark.parametrize("name, config, expected", [
    ("importance_sampling", {}, [-2.0, 0.5]),
    ("ppo", {}, [-1.2, 0.8]),  # held at 1.2, and at 0.8
    ("ppo", {"clip_low_threshold": 0.4, "clip_high_threshold": 3.0}, [-2.0, 0.5]),
    ("cispo", {}, [-1.2 * math.log(2.0), 0.8 * math.log(0.5)]),
    ("dro", {"beta": 0.5}, [-math.log(2.0) + 0.25 * math.log(2.0) ** 2,
                            math.log(0.5) + 0.25 * math.log(0.5) ** 2])])
def test_losses_by_hand(name, config, expected):
    row, mask = loss_named(name, config).row, torch.ones(1, 2, dtype=torch.bool)
    loss, _ = row.surrogate(RATIO.log(), torch.zeros(1, 2), ADV, mask)
    assert loss[0].tolist() == pytest.approx(expected) and row.weigh(mask, 9).tolist() == [[1.0, 1.0]]


def test_a_row_of_the_table_keeps_its_constants_and_takes_others_for_its_loss_alone():
    row = loss_named("postgrad/dapo", {"high": 0.3}).row
    assert row.surrogate.keywords == {"low": 0.2, "high": 0.3} and row.weigh is METHODS["dapo"].weigh
    assert loss_named("ppo", {"kl_in_loss": 0.1}).row.needs_reference
    for name, config, words in (("postgrad/dapo", {"overlong": 1.0}, "no constant of the loss of dapo"),
                                ("postgrad/dapo", {"high": -1.0}, "loss_fn_config"),
                                ("ppo", {"beta": 1.0}, "beta is not honoured with ppo"),
                                ("cross_entropy", {"a": "b"}, "has to be a number"),
                                ("postgrad/tests/x.py", {}, "there is no loss_fn"),
                                ("postgrad/scalerl", {}, "group_size")):
        with pytest.raises(ValueError, match=words):
            loss_named(name, config)
