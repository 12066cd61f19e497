"""Agents: programs with an OpenAI client that play episodes, asking the policy that is trained.

desk      the endpoint that they ask: each request waits there until its episode is sampled
program   the command that is started for an episode: what it is told, what it says in the end
play      both as an environment, so that training, examination and resuming are those of every other
"""

from postgrad.serving.agents.play import Agent, played_by

__all__ = ["Agent", "played_by"]
