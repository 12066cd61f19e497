"""Environments: what answers a policy over several turns, and the player of many of them side by side.

An environment is a generator, `play(prompt, rng)`: it yields messages to add, is sent the model's Reply, and
returns a Verdict.

rows      the tokens of conversations row by row, as they were sampled and shown
episode   one game: its conversation, the rollout that it becomes
player    many games at once, as a sampler of rollouts that have been judged
"""

from postgrad.data.environments.episode import Asks, Episode
from postgrad.data.environments.player import Player, sampler_for, turns_of, using_tools
from postgrad.data.environments.rows import Rows, escaped, rollout_of

__all__ = ["Asks", "Episode", "Player", "Rows", "escaped", "rollout_of", "sampler_for", "turns_of",
           "using_tools"]
