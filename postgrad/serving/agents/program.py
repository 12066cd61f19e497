"""The program of one episode.

It reads one JSON object from its standard input, calls the endpoint of OPENAI_BASE_URL and OPENAI_API_KEY,
which OpenAI's clients read by themselves, and may print {"score": 0.5} as its last line.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO, Any

from postgrad.records import Prompt, Verdict

TAIL = 2**16  # last bytes of a program's output that are read


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


class AgentProgram:
    """A running command. given: the JSON object on its standard input."""

    def __init__(self, words: list[str], given: dict[str, Any], environment: dict[str, str]):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(given, default=str).encode())
            stdin.seek(0)
            local = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1")))
            self.process = subprocess.Popen(
                words, stdin=stdin, stdout=self.out, stderr=self.err, start_new_session=True,
                env=os.environ | {"PATH": search_path(), "NO_PROXY": local, "no_proxy": local} | environment)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """Kills it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.out.close()
        self.err.close()

    def verdict(self) -> Verdict | None:
        """Its score, or its failure; None where it ended well and printed no score."""
        code = self.process.wait()
        if code:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            why = last_line(self.err) or last_line(self.out) or "it said nothing"
            return Verdict.failed(f"the agent {how}: {why}")
        return parse_score(last_line(self.out))


def parse_score(line: str) -> Verdict | None:
    """{"score": 0.5, "reason": "close"} -> its verdict; None of a line that is no object with a score."""
    try:
        printed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(printed, dict) or "score" not in printed:
        return None
    score = printed["score"]
    if not isinstance(score, bool | int | float) or not math.isfinite(score):
        return Verdict.failed(f"the agent's score is {score!r:.60}: it has to be a number")
    return Verdict(score=float(score), reason=str(printed.get("reason", ""))[:500])


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
