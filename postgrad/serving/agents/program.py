"""The program of one episode: a command that is told what to play and where to ask, and says a score.

It reads one JSON object from its standard input, asks as OPENAI_BASE_URL and OPENAI_API_KEY say, which
OpenAI's clients take up by themselves, and may print {"score": 0.5} as its last line.
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
from typing import IO

from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import fault

TAIL = 2**16  # bytes of what a program printed that are looked at


def words_of(command: str) -> list[str]:
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


class Program:
    """A command under way."""

    def __init__(self, words: list[str], given: dict, environment: dict[str, str]):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(given, default=str).encode())
            told.seek(0)
            local = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1")))
            self.process = subprocess.Popen(
                words, stdin=told, stdout=self.out, stderr=self.err, start_new_session=True,
                env=os.environ | {"PATH": search_path(), "NO_PROXY": local, "no_proxy": local} | environment)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """It and all that it started end."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.out.close()
        self.err.close()

    def verdict(self) -> Verdict | None:
        """What it said in the end; None where it ended well and named no score."""
        code = self.process.wait()
        if code:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            said = last_line(self.err) or last_line(self.out) or "it said nothing"
            return fault(f"the agent {how}: {said}")
        return score_in(last_line(self.out))


def score_in(line: str) -> Verdict | None:
    """{"score": 0.5, "reason": "close"} -> its verdict; None of a line that is no object with a score."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or "score" not in said:
        return None
    score = said["score"]
    if not isinstance(score, bool | int | float) or not math.isfinite(score):
        return fault(f"the agent's score is {score!r:.60}: it has to be a number")
    return Verdict(score=float(score), reason=str(said.get("reason", ""))[:500])


def last_line(file: IO[bytes]) -> str:
    """The last line of what was printed that is not blank."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - TAIL, 0))
    lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def given(prompt: Prompt, seed: int, model: str) -> dict:
    """What a program is told of its episode. seed: the same for all episodes of a group."""
    return {"id": prompt.id, "question": prompt.question, "messages": [dict(m) for m in prompt.messages],
            "answer": prompt.answer, "meta": dict(prompt.meta), "seed": seed, "model": model}
