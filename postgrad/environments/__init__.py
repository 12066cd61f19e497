"""Environments: what answers a policy over several turns, and the player of many of them side by side.

An environment is a generator, `play(prompt, rng)`: it yields messages to add, is sent the model's Reply, and
returns a Verdict.

episode   one game: its conversation, its tokens row by row, the rollout that it becomes
player    many games at once, as a sampler of rollouts that have been judged
"""

from postgrad.environments.player import Player, sampler_for, turns_of

__all__ = ["Player", "sampler_for", "turns_of"]
