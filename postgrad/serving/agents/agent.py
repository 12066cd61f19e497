"""An agent as an environment: its program calls the policy; its last line or the task's verifier is the
reward."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import ClassVar

from postgrad.data.environments import Asks
from postgrad.data.tasks import Task
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Prompt, Verdict
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.agents.program import AgentProgram, episode_input, split_command
from postgrad.system.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Agent(Settings):
    """A program of yours that plays the episodes."""

    command: str | None = setting(None, "started for each episode; it asks the policy as an OpenAI endpoint "
                                  "and prints {\"score\": x}; none: the task is asked or played as it is",
                                  "where an agent with tools, prompts or turns of its own exists already")
    seconds: float = setting(60.0, "the longest that it may take from one reply to its next question or its "
                             "end", "more where its tools are slow")
    at_once: int = setting(8, "episodes that are played side by side", "fewer where the programs need much "
                           "memory; more where they wait for others most of the time")

    prefix: ClassVar[str] = "agent."

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < math.inf or self.at_once < 1:
            raise ValueError(f"agent.seconds {self.seconds} and agent.at_once {self.at_once}: the time must "
                             "be above 0 seconds, the number at least 1.")

    @property
    def words(self) -> list[str]:
        """The command line in words; its program has to be there."""
        return split_command(self.command) if self.command else []


class AgentPlay:
    """play(prompt, rng) of an agent; its endpoint is open within the `with` block."""

    seconds = math.inf  # the program's time is limited here

    def __init__(self, agent: Agent, task: Task, chat: Chat, model: DecodableModel):
        self.words, self.limit, self.at_once = agent.words, agent.seconds, agent.at_once
        self.verify = task.guarded_verify
        self.chat, self.config = chat, model.config

    def __enter__(self) -> None:
        from postgrad.serving.agents.episode_server import EpisodeServer  # loads a web server
        self.server = EpisodeServer(self.chat, self.config.vocab_size, self.config.max_position_embeddings)
        self.server.__enter__()

    def __exit__(self, *fault: object) -> None:
        self.server.__exit__(*fault)

    def __call__(self, prompt: Prompt, rng: random.Random) -> Generator[Asks, ModelReply, Verdict]:
        session = self.server.open()
        stdin = episode_input(prompt, rng.getrandbits(31), self.server.served.name)
        program = AgentProgram(self.words, stdin,
                               {"OPENAI_BASE_URL": self.server.url, "OPENAI_API_KEY": session.key})
        reply = None
        try:
            while asked := session.next(self.limit, program.ended):
                reply = yield asked
            return self.verdict(prompt, program, reply)
        except TimeoutError:
            return Verdict.failed(f"the agent neither asked nor ended for {self.limit:g} s; agent.seconds "
                                  "allows more")
        finally:
            self.server.close(session)
            program.stop()

    def verdict(self, prompt: Prompt, program: AgentProgram, reply: ModelReply | None) -> Verdict:
        printed = program.verdict()
        if printed and printed.error:
            return printed
        if reply is None:
            return Verdict.failed("the agent ended without asking the model: it has to ask at "
                                  "OPENAI_BASE_URL")
        if printed:
            return printed
        if self.verify is None:
            return Verdict.failed('the agent printed no {"score": x} as its last line, and the task has no '
                                  'verifier')
        return self.verify(prompt, reply.text)


def played_by(agent: Agent, task: Task, chat: Chat, model: DecodableModel) -> Task:
    """The task as an agent plays it, with the agent's own tools; as it is where no agent is named."""
    if agent.command is None:
        return task
    if task.play is not None:
        raise ValueError(f"task {task.name} plays by itself, and so does an agent: take a task with prompts "
                         "and a verifier, or leave the agent out.")
    return replace(task, play=AgentPlay(agent, task, chat, model), tools=(), gold=None, waits=True)
