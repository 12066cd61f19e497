"""Environments: what answers a policy over several turns, and the player of many of them side by side.

An environment is a generator, `play(prompt, rng)`: it yields messages to add, is sent the model's Reply, and
returns a Verdict.

rows      the tokens of conversations row by row, as they were sampled and shown
episode   one game: its conversation, the rollout that it becomes
player    many games at once, as a sampler of rollouts that have been judged
"""

from postgrad.data.environments.episode import Asks, Episode
from postgrad.data.environments.player import Player, max_turns, play_with_tools, sampler_for
from postgrad.data.environments.rows import EpisodeRows, escape_message, rollout_of

__all__ = ["Asks", "Episode", "Player", "EpisodeRows", "escape_message", "rollout_of", "sampler_for",
           "max_turns",
           "play_with_tools"]
