import math

import pytest
import torch

from postgrad.maths.calibration import calibration, expected_calibration_error, reliability


def test_reliability_by_hand():
    p = torch.tensor([0.1, 0.2, 0.9, 0.8, 1.0, 0.5])
    y = torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    stated, came, count = (x.tolist() for x in reliability(p, y, 4))
    # (0, 1/4]: 0.1 0.2;  (1/4, 1/2]: 0.5, for the upper end belongs to the bin;  above 3/4: three
    assert count == [2, 1, 0, 3]
    assert (stated[0] == pytest.approx(0.15) and stated[1] == pytest.approx(0.5)
            and stated[3] == pytest.approx(0.9))
    assert came[0] == 0.5 and came[1] == 1.0 and came[3] == pytest.approx(2 / 3) and math.isnan(came[2])
    # 2/6 * 0.35 + 1/6 * 0.5 + 3/6 * (0.9 - 2/3)
    assert float(expected_calibration_error(p, y, 4)) == pytest.approx(0.7 / 6 + 0.5 / 6 + 0.7 / 6)


def test_the_ends_fall_into_the_end_bins():
    assert reliability(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), 3)[2].tolist() == [1, 0, 1]
    assert (reliability(torch.tensor([0.5, 1.0]), torch.tensor([0.0, 1.0]), 5, low=0.5)[2].tolist()
            == [1, 0, 0, 0, 1])


def test_one_bin_is_the_gap_between_the_means():
    p, y = torch.tensor([0.2, 0.9, 0.7]), torch.tensor([1.0, 1.0, 0.0])
    assert float(expected_calibration_error(p, y, 1)) == pytest.approx(abs(p.mean() - y.mean()).item())


def test_a_reward_model_by_hand():
    gap = torch.tensor([1.0, 1.0, -1.0, 1.0], dtype=torch.float64) * math.log(3)
    # sigmoid(log 3) = 3/4, and 3 of 4 are right: calibrated
    assert calibration(gap) == {"ece": pytest.approx(0.0, abs=1e-12),
                                "curve": [{"confidence": pytest.approx(0.75), "accuracy": 0.75, "count": 4}]}
    sure = calibration(torch.tensor([50.0, -50.0]))  # certain, and right half of the time
    assert sure["ece"] == pytest.approx(0.5) and sure["curve"][0]["accuracy"] == 0.5
    assert calibration(torch.zeros(3)) == {"ece": 0.0,
                                           "curve": [{"confidence": 0.5, "accuracy": 0.5, "count": 3}]}
    with pytest.raises(ValueError, match="no pairs"):
        calibration(torch.tensor([]))


def test_labels_drawn_by_bradley_terry_are_calibrated_and_sharpened_scores_are_not():
    draw = torch.Generator().manual_seed(0)
    true = torch.randn(40_000, generator=draw, dtype=torch.float64) * 2
    label = torch.where(torch.rand(len(true), generator=draw) < torch.sigmoid(true), 1.0, -1.0)
    honest, sharp, flat = (calibration(true * label * c)["ece"] for c in (1.0, 3.0, 0.3))
    assert honest < 0.01 and sharp > 0.08 and flat > 0.08
    curve = calibration(true * label * 3.0)["curve"]
    assert (all(bin["accuracy"] < bin["confidence"] for bin in curve)
            and sum(bin["count"] for bin in curve) == len(true))
