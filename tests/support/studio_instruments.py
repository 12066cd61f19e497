"""What the tests of the instruments share."""

import torch

D = torch.float64


def ones(n):
    return torch.ones(n, 1, dtype=torch.bool)
