"""An agent as an environment: its program calls the policy; the score that it writes to a file of its own, or
the task's verifier, is the reward. What it prints is no score: it may print what the policy said."""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import glob
from pathlib import Path
from typing import IO, Any, ClassVar

from postgrad.data.environments import Asks
from postgrad.data.tasks import Task
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Prompt, Verdict
from postgrad.sampling.sampler import DecodableModel
from postgrad.system.files import error_text, read_bytes
from postgrad.system.json_text import strict_json
from postgrad.system.settings import Settings, setting

SCORE = "POSTGRAD_SCORE"  # names the file that a program writes its score to
LOOKS = 5     # for processes that are left
TAIL = 2**16  # last bytes of a program's output that are read
# the variables of this process that a program is given; others may be keys to what is not its business
GIVEN = frozenset("""HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR PWD HOSTNAME VIRTUAL_ENV
LD_LIBRARY_PATH DYLD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CUDA_VISIBLE_DEVICES
OMP_NUM_THREADS""".split())
GIVEN_BEGIN = ("LC_", "XDG_", "PYTHON")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def split_command(command: str) -> list[str]:
    """The command line in words; its program has to be there."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the agent {command!r:.80} is no command line: {error}.") from None
    if not words or shutil.which(words[0], path=search_path()) is None:
        raise ValueError(f"the agent {command!r:.80} can't be started: there is no program "
                         f"{words[0] if words else ''!r}; give a command line, as in --agent "
                         "'python agent.py'.")
    return words


def search_path() -> str:
    """Where programs are looked for: first beside this Python, so that `python` is the one that trains."""
    return os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))


def given_environment(also: Sequence[str] = ()) -> dict[str, str]:
    """The variables that a program is given: those that programs need, and the named ones. A proxy's address
    may have a password in it, and goes where it is named."""
    return {name: value for name, value in os.environ.items()
            if name in GIVEN or name.startswith(GIVEN_BEGIN) or name in also
            or name.upper() in PROXIES and "@" not in value}


def end_processes(mark: str) -> None:
    """Kills the processes whose environment has this text: what left its session or its parent has it too."""
    sought, own = mark.encode(), f"/proc/{os.getpid()}"
    for _ in range(LOOKS):  # one may start another meanwhile
        found = False
        for folder in glob("/proc/[0-9]*"):
            with suppress(OSError), open(f"{folder}/environ", "rb", buffering=0) as environment:
                if folder != own and sought in environment.read():
                    os.kill(int(folder.removeprefix("/proc/")), signal.SIGKILL)
                    found = True
        if not found:
            return


class AgentProgram:
    """The command of one episode. It reads one JSON object from its standard input, calls the endpoint of
    OPENAI_BASE_URL and OPENAI_API_KEY, which OpenAI's clients read by themselves, and may write
    {"score": 0.5} to the file that POSTGRAD_SCORE names. ended: called in a thread when it has ended."""

    def __init__(self, words: list[str], given: dict[str, Any], environment: dict[str, str],
                 ended: Callable[[], None], also: Sequence[str] = ()):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory(prefix="postgrad-agent-", ignore_cleanup_errors=True)
        self.score = Path(self.folder.name) / "score.json"
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(given, default=str).encode())
            stdin.seek(0)
            local = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1")))
            self.process = subprocess.Popen(
                words, stdin=stdin, stdout=self.out, stderr=self.err, start_new_session=True,
                env=given_environment(also) | {"PATH": search_path(), "NO_PROXY": local, "no_proxy": local,
                                  SCORE: str(self.score)} | environment)

        def wait() -> None:
            self.process.wait()
            ended()

        threading.Thread(target=wait, daemon=True, name="postgrad-agent").start()

    def stop(self) -> None:
        """Kills it and all that it started, but for what has both a session and an environment of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end_processes(f"{SCORE}={self.score}")
        self.out.close()
        self.err.close()
        self.folder.cleanup()

    def verdict(self, highest: float) -> Verdict | None:
        """Its score, or its failure; None where it ended well and wrote no score."""
        code = self.process.wait()
        if code:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            why = last_line(self.err) or last_line(self.out) or "it said nothing"
            return Verdict.failed(f"the agent {how}: {why}")
        if not self.score.exists():
            return None
        try:
            return parse_score(read_bytes(self.score, TAIL).decode(), highest)
        except (OSError, ValueError) as error:
            return Verdict.failed(f"what the agent wrote to {SCORE} can't be read: {error_text(error)}")


def parse_score(text: str, highest: float) -> Verdict:
    """{"score": 0.5, "reason": "close"} -> its verdict, an error verdict where the score is none or outside
    the range that is stated."""
    try:
        written = strict_json(text)
    except ValueError:
        written = None
    if not isinstance(written, dict) or "score" not in written:
        return Verdict.failed(f'the agent wrote {text!r:.60} to {SCORE}: expected {{"score": 0.5}}')
    score = written["score"]
    if not isinstance(score, bool | int | float) or score != score:
        return Verdict.failed(f"the agent's score is {score!r:.60}: it has to be a number")
    if not -highest <= score <= highest:
        return Verdict.failed(f"the agent's score is {score!r:.60}, and agent.highest allows {-highest:g} to "
                              f"{highest:g}")
    return Verdict(score=float(score), reason=str(written.get("reason", ""))[:500])


def last_line(file: IO[bytes]) -> str:
    """The last line that is not blank."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - TAIL, 0))
    lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def episode_input(prompt: Prompt, seed: int, model: str) -> dict[str, Any]:
    """The standard input of a program. seed: the same for all episodes of a group."""
    return {"id": prompt.id, "question": prompt.question, "messages": [dict(m) for m in prompt.messages],
            "answer": prompt.answer, "meta": dict(prompt.meta), "seed": seed, "model": model}


@dataclass(frozen=True, kw_only=True)
class Agent(Settings):
    """A program of yours that plays the episodes."""

    command: str | None = setting(None, "started for each episode; it asks the policy as an OpenAI endpoint "
                                  "and writes {\"score\": x} to the file of POSTGRAD_SCORE; none: the task "
                                  "is "
                                  "asked or played as it is",
                                  "where an agent with tools, prompts or turns of its own exists already")
    seconds: float = setting(60.0, "the longest that it may take from one reply to its next question or its "
                             "end", "more where its tools are slow")
    at_once: int = setting(8, "episodes that are played side by side", "fewer where the programs need much "
                           "memory; more where they wait for others most of the time")

    highest: float = setting(1.0, "the highest score that it may write; the lowest is the same below 0",
                             "where its scores are points")

    env: str = setting("", "names of variables of the environment, with commas, that it is handed besides "
                       "those of the shell and of Python", "where its tools need a key")

    prefix: ClassVar[str] = "agent."

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < math.inf or self.at_once < 1:
            raise ValueError(f"agent.seconds {self.seconds} and agent.at_once {self.at_once}: the time must "
                             "be above 0 seconds, the number at least 1.")
        if missing := [name for name in self.variables if name not in os.environ]:
            raise ValueError(f"agent.env names {missing[0]!r}, and the environment has no such variable: set "
                             "it, or leave it out.")
        if not 0 < self.highest < math.inf:
            raise ValueError(f"agent.highest {self.highest}: the highest score must be a number above 0.")

    @property
    def variables(self) -> list[str]:
        return [name.strip() for name in self.env.split(",") if name.strip()]

    @property
    def words(self) -> list[str]:
        """The command line in words; its program has to be there."""
        return split_command(self.command) if self.command else []


class AgentPlay:
    """play(prompt, rng) of an agent; its endpoint is open within the `with` block."""

    seconds = math.inf  # the program's time is limited here

    def __init__(self, agent: Agent, task: Task, chat: Chat, model: DecodableModel):
        self.words, self.limit, self.at_once = agent.words, agent.seconds, agent.at_once
        self.highest, self.variables = agent.highest, agent.variables
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
        asks = {"OPENAI_BASE_URL": self.server.url, "OPENAI_API_KEY": session.key}
        program = AgentProgram(self.words, stdin, asks, partial(session.waiting.put, None), self.variables)
        reply = None
        try:
            while asked := session.next(self.limit):
                reply = yield asked
            return self.verdict(prompt, program, reply)
        except TimeoutError:
            return Verdict.failed(f"the agent neither asked nor ended for {self.limit:g} s; agent.seconds "
                                  "allows more")
        finally:
            self.server.close(session)
            program.stop()

    def verdict(self, prompt: Prompt, program: AgentProgram, reply: ModelReply | None) -> Verdict:
        written = program.verdict(self.highest)
        if written and written.error:
            return written
        if reply is None:
            return Verdict.failed("the agent ended without asking the model: it has to ask at "
                                  "OPENAI_BASE_URL")
        if written:
            return written
        if self.verify is None:
            return Verdict.failed(f'the agent wrote no {{"score": x}} to the file of {SCORE}, and the task '
                                  f'has '
                                  'no verifier')
        return self.verify(prompt, reply.text)


def played_by(agent: Agent, task: Task, chat: Chat, model: DecodableModel) -> Task:
    """The task as an agent plays it, with the agent's own tools; as it is where no agent is named."""
    if agent.command is None:
        return task
    if task.play is not None:
        raise ValueError(f"task {task.name} plays by itself, and so does an agent: take a task with prompts "
                         "and a verifier, or leave the agent out.")
    return replace(task, play=AgentPlay(agent, task, chat, model), tools=(), gold=None, waits=True)
