"""The invariants of the functions that can be edited in a cell: a worked number, an identity, a limit.

Each takes the (edited) function and raises AssertionError with what it saw.
Its docstring is one sentence, which
is shown beneath the cell.

base         which cell an invariant belongs to, and how two numbers are held against each other
preference   Bradley-Terry, DPO, IPO
credit       advantages: group z-score, leave-one-out, GAE
policy       PPO's clip, the k3 estimator
tokens       log-probabilities, the mean of sequence means, pass@k
book         the small experiments of the chapters
"""

from postgrad.studio.cells.checks import book, credit, policy, preference, tokens
from postgrad.studio.cells.checks.base import CHECKS

__all__ = ["CHECKS", "book", "credit", "policy", "preference", "tokens"]
