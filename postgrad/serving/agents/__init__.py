"""Agents: programs with an OpenAI client that play episodes, asking the policy that is trained.

episode_server  the endpoint that they call: each request waits there until its episode is sampled
agent           the command that is started for an episode, and both as an environment
"""

from postgrad.serving.agents.agent import Agent, played_by

__all__ = ["Agent", "played_by"]
