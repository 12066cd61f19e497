"""Assembly lines: conversations, pairs, labelled singles, labelled steps and rollouts become batches.

An algorithm is one of these and an objective.

A line is an iterator of `Batch`, one for each optimizer step, with `state()` and `restore()`. Its order and
its random numbers are functions of (seed, name, step), so its state is a few numbers,
and the rollouts that it still holds.

collect     prompts -> judged rollouts               columns     judged rollouts -> credit -> weights ->
                                                                 minibatches
rollouts, chosen, conversations, pairs, singles, steps   the lines        mix    texts imitated beside
                                                                                 rollouts
"""

from postgrad.training.batches.chosen import ChosenPairs, ChosenTexts
from postgrad.training.batches.collect import Rollouts, RolloutSource
from postgrad.training.batches.conversations import ConversationBatches
from postgrad.training.batches.mix import PtxMix
from postgrad.training.batches.pairs import PairBatches
from postgrad.training.batches.rollouts import RolloutBatches
from postgrad.training.batches.shuffled import Shuffled, ShuffledBatches
from postgrad.training.batches.singles import SingleBatches
from postgrad.training.batches.steps import Marked, StepBatches

__all__ = ["ChosenPairs", "ChosenTexts", "ConversationBatches", "Marked", "PtxMix", "PairBatches",
           "RolloutBatches", "RolloutSource", "Rollouts", "Shuffled", "ShuffledBatches", "SingleBatches",
           "StepBatches"]
