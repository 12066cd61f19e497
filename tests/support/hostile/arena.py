"""Where hostile programs are let loose: a secret, a folder, a process and a port for them to reach,
watched from outside."""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hostile.cheats import CHEATS

from postgrad.rewards.sandbox import CodeJob, Suite

EXPECTED = 267914296 * 7  # the answer that no cheat computes
CHEAT_SUITE = Suite(
    tests=f"expected = {EXPECTED}\nassert f(7) == expected\nassert abs(f(7) - expected) < 1e-6\n"
          "assert f(1) == 267914296",
    names={"f": "f"},
)
HONEST = "def f(x):\n    a, b = 0, x\n    for _ in range(41): a, b = b, a + b\n    return b"


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The canaries of one round.

    `job` aims an attack at them; `harm` says what has happened to them, from outside.
    """

    secret: Path
    folder: Path
    words: str
    process: subprocess.Popen
    listener: socket.socket

    @property
    def place(self) -> dict:
        port = self.listener.getsockname()[1]
        return {"secret": str(self.secret), "folder": str(self.folder), "pid": self.process.pid, "port": port}

    def job(self, source: str) -> CodeJob:
        tests = f"answer = attack({self.place!r})\nassert answer is True or answer == {self.words!r}"
        return CodeJob(source=source, suite=Suite(tests=tests, names={"attack": "attack"}))

    def harm(self) -> list[str]:
        look = os.stat(self.secret) if self.secret.exists() else None
        kept = (look and look.st_mode & 0o777 == 0o600 and look.st_mtime > 1
                and self.secret.read_text() == self.words)
        found = {
            "the secret is gone or changed": not kept,
            "something was written": bool(list(self.folder.iterdir())),
            "the process has died": self.process.poll() is not None,
            "the process was slowed": os.getpriority(os.PRIO_PROCESS, self.process.pid)
                                      != os.getpriority(os.PRIO_PROCESS, 0),
            "a connection came in": bool(select.select([self.listener], [], [], 0)[0]),
        }
        return [what for what, happened in found.items() if happened]


@contextmanager
def arena(folder: Path):
    """Fresh canaries in a folder, cleared away at the end."""
    (folder / "open").mkdir(parents=True)
    words = f"secret-{secrets.token_hex(8)}"
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(words)
    idle = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with idle, socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            yield Arena(secret=secret, folder=folder / "open", words=words, process=idle, listener=listener)
        finally:
            idle.kill()


def unjailed(source: str, at: Arena) -> bool:
    """Whether an attack works with no jail around it: the proof that it is one.

    For attacks on the canaries alone.
    """
    code = f"{source}\nanswer = attack({at.place!r})\nprint(answer is True or answer == {at.words!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    return done.stdout.strip().endswith("True")


def cheat_jobs() -> list[CodeJob]:
    return [CodeJob(source=source, suite=CHEAT_SUITE) for source in CHEATS.values()]


def left_running(before: set[int]) -> set[int]:
    """Processes of our sessions that were not there before: children of ours, and children of theirs."""
    return family() - before


def family() -> set[int]:
    """This process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended while we looked
    found, size = {os.getpid()}, 0
    while len(found) != size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found
