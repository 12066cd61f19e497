"""An agent as an environment: its program asks, and its last line or the task's verifier judges."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import ClassVar

from postgrad.data.environments import Asks
from postgrad.data.tasks import Task
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import fault, guarded
from postgrad.serving.agents.program import Program, given, words_of
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

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.seconds < math.inf or self.at_once < 1:
            raise ValueError(f"agent.seconds {self.seconds} and agent.at_once {self.at_once}: the time must "
                             "be above 0 seconds, the number at least 1.")

    @property
    def words(self) -> list[str]:
        """The command line in words; its program has to be there."""
        return words_of(self.command) if self.command else []


class AgentPlay:
    """play(prompt, rng) of an agent; the desk is open between `with` and its end."""

    seconds = math.inf  # the program's time is watched here

    def __init__(self, agent: Agent, task: Task, chat, model):
        self.words, self.limit, self.at_once = agent.words, agent.seconds, agent.at_once
        self.verify = guarded(task.verify) if task.verify else None
        self.chat, self.config = chat, model.config

    def __enter__(self) -> None:
        from postgrad.serving.agents.desk import Desk  # a web server, which no other training loads
        self.desk = Desk(self.chat, self.config.vocab_size, self.config.max_position_embeddings)
        self.desk.__enter__()

    def __exit__(self, *fault) -> None:
        self.desk.__exit__(*fault)

    def __call__(self, prompt: Prompt, rng: random.Random) -> Generator[Asks, ModelReply, Verdict]:
        session = self.desk.open()
        program = Program(self.words, given(prompt, rng.getrandbits(31), self.desk.served.name),
                          {"OPENAI_BASE_URL": self.desk.url, "OPENAI_API_KEY": session.key})
        reply = None
        try:
            while asked := session.next(self.limit, program.ended):
                reply = yield asked
            return self.verdict(prompt, program, reply)
        except TimeoutError:
            return fault(f"the agent neither asked nor ended for {self.limit:g} s; agent.seconds allows more")
        finally:
            self.desk.close(session)
            program.stop()

    def verdict(self, prompt: Prompt, program: Program, reply: ModelReply | None) -> Verdict:
        said = program.verdict()
        if said and said.error:
            return said
        if reply is None:
            return fault("the agent ended without asking the model: it has to ask at OPENAI_BASE_URL")
        if said is None and self.verify is None:
            return fault('the agent printed no {"score": x} as its last line, and the task has no verifier')
        return said or self.verify(prompt, reply.text)


def played_by(agent: Agent, task: Task, chat, model) -> Task:
    """The task as an agent plays it, which brings tools of its own; as it is where none is named."""
    if agent.command is None:
        return task
    if task.play is not None:
        raise ValueError(f"task {task.name} plays by itself, and so does an agent: take a task with prompts "
                         "and a verifier, or leave the agent out.")
    return replace(task, play=AgentPlay(agent, task, chat, model), tools=(), gold=None, waits=True)
