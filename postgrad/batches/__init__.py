"""Four assembly lines: conversations, pairs, rollouts and labelled steps become batches.

An algorithm is one of these and an objective.

A line is an iterator of `Batch`, one for each optimizer step, with `state()` and `restore()`. Its order and its random numbers
are functions of (seed, name, step), so its state is a few numbers, and the rollouts it still holds.
"""

from postgrad.batches.chosen import ChosenPairs, ChosenTexts
from postgrad.batches.collect import Rollouts
from postgrad.batches.conversations import ConversationBatches
from postgrad.batches.deck import Deck
from postgrad.batches.mix import Mix
from postgrad.batches.pairs import PairBatches
from postgrad.batches.rollouts import RolloutBatches
from postgrad.batches.singles import SingleBatches
from postgrad.batches.steps import Marked, StepBatches

__all__ = ["ChosenPairs", "ChosenTexts", "ConversationBatches", "Deck", "Marked", "Mix", "PairBatches", "RolloutBatches",
           "Rollouts", "SingleBatches", "StepBatches"]
