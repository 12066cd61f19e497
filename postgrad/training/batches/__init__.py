"""Batch sources: conversations, pairs, labelled singles, labelled steps and rollouts become batches.

An algorithm is one of these and an objective. A source is an iterator of `Batch`, one for each optimizer
step, with `state()` and `restore()`. Order and random numbers are functions of (seed, name, step), so the
state is a few numbers and the rollouts that are still to be trained on.

rollouts          prompts -> scored rollouts -> batches
columns           rewards -> advantages -> weights -> minibatches
selected          rollouts -> pairs (online DPO), or texts to imitate
offline           data sets -> batches
ptx               texts imitated beside rollouts (PPO-ptx)
async_collector   sampling while training
"""

from postgrad.training.batches.offline import (
    ConversationBatches,
    LabelledReply,
    PairBatches,
    SingleBatches,
    StepBatches,
)
from postgrad.training.batches.ptx import PtxMix
from postgrad.training.batches.rollouts import RolloutBatches, Rollouts, RolloutSource
from postgrad.training.batches.selected import SelectedPairs, SelectedTexts
from postgrad.training.batches.shuffled import Shuffled, ShuffledBatches

__all__ = ["ConversationBatches", "LabelledReply", "PairBatches", "PtxMix", "RolloutBatches", "RolloutSource",
           "Rollouts", "SelectedPairs", "SelectedTexts", "Shuffled", "ShuffledBatches", "SingleBatches",
           "StepBatches"]
