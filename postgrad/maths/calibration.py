"""Is a stated probability a frequency? The reliability curve, and the expected calibration error.

Predictions are sorted into bins by the probability that was stated; in each bin the mean stated probability
is held against how often the predicted thing came about. Both are equal in every bin when the
predictor is calibrated.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reliability(probability: Tensor, outcome: Tensor, bins: int,
                low: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """The curve: mean probability, frequency and count of each bin. [N], [N] -> three of [bins];
    nan where a bin is empty.

    Bin b is (low + b w, low + (b + 1) w] with w = (1 - low) / bins, the first one closed below; every
    probability must be in [low, 1]. outcome is 0 or 1 (0.5: half came about).  Guo et al. 2017 (1706.04599).
    """
    probability, outcome = probability.double(), outcome.double()
    assert ((low <= probability) & (probability <= 1)).all(), f"probabilities must be in [{low}, 1]"
    place = (((probability - low) / (1 - low) * bins).ceil().long() - 1).clamp(min=0)
    stated, came, count = (probability.new_zeros(bins).index_add_(0, place, x)
                           for x in (probability, outcome, torch.ones_like(probability)))
    return stated / count, came / count, count


def expected_calibration_error(probability: Tensor, outcome: Tensor, bins: int,
                               low: float = 0.0) -> Tensor:  # [N], [N] -> []
    """sum over bins of n_b / N |frequency_b - probability_b| (Guo et al. 2017, 1706.04599).

    With one bin: |mean - mean|.

    Counts differ from their chances by luck, so a calibrated predictor too gets up to about 0.4 sqrt(bins /
    N).
    """
    stated, came, count = reliability(probability, outcome, bins, low)
    return torch.where(count > 0, count * (came - stated).abs(), 0.0).sum() / count.sum()


# [N] -> {"ece": float, "curve": [{"confidence", "accuracy", "count"}]}
def calibration(gap: Tensor, bins: int = 10) -> dict[str, object]:
    """Calibration of a model of preferences, from gap = score(chosen) - score(rejected) of held-out pairs.

    The model states P(chosen > rejected) = sigmoid(gap). The chosen answer always stands first, so the
    outcome of that prediction would be 1 in every pair, and nothing could be held against it. So each pair is
    read as a prediction of the better side: the side with the higher score is predicted, with confidence
    max(p, 1 - p) = sigmoid(|gap|) in [1/2, 1], and the outcome is whether that side is the chosen one: gap >
    0. A gap of 0 predicts no side, and is half right. The bins divide [1/2, 1]; the curve leaves out those
    that are empty.
    """
    if gap.numel() == 0:
        raise ValueError("the calibration of no pairs was asked for: give at least one held-out pair.")
    gap = gap.detach().cpu().double()
    confidence, right = torch.sigmoid(gap.abs()), (gap.sign() + 1) / 2
    rows = zip(*(x.tolist() for x in reliability(confidence, right, bins, low=0.5)), strict=True)
    curve = [{"confidence": c, "accuracy": a, "count": int(n)} for c, a, n in rows if n]
    return {"ece": float(expected_calibration_error(confidence, right, bins, low=0.5)), "curve": curve}
