"""Hostile files through the real command, each in a child of its own with little processor time and memory.

A case makes files in `inside`, where the command runs; nothing may change in `outside`, to which its links
lead. The child is forked from a process that has imported everything, so its time is the command's own.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from postgrad.cli import main

ROOT = Path(__file__).resolve().parents[3]
BUDGET = 2.0                       # seconds of processor time
PATIENCE = 120.0                   # seconds of any time: a busy machine gives few of the processor
MEMORY = 3 * 2**30                 # bytes of addresses beyond those of this process
SECRET = b'{"step": 1, "secret": "kept"}\n'
LINE = r"\S.{,1500}\n"
SENTENCE = re.compile(rf"postgrad: {LINE}|postgrad: .{{,500}} rows are bad.*:\n(  {LINE}){{1,20}}({LINE})?")
SMALL_RUN = ["train", "sft:words", "steps=2", "save_every=1", "examples=4", "rows_per_step=2", "--json"]


@dataclass(frozen=True)
class Place:
    """Where a case lies: `inside` the command runs, `outside` is somebody else's; a sound run to spoil."""

    inside: Path
    outside: Path
    run: Path


@dataclass(frozen=True)
class Case:
    """words: of the command; ("GET", address) asks the studio for a page about the runs inside."""

    name: str
    make: Callable[[Place], object]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """code: None where it was killed for its time. said: what came on stderr, or the page's error: one line,
    or a list of bad rows, one a line."""

    code: int | None
    said: str
    seconds: float
    strayed: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        """What was wrong, in a word; "" where nothing was."""
        if self.strayed:
            return "outside"
        if self.code is None or self.seconds > BUDGET:
            return "over"
        if "Traceback (most recent call last)" in self.said or self.code not in (0, 2):
            return "traceback"
        return "" if self.code == 0 or SENTENCE.fullmatch(self.said) else "no sentence"


def small_run(folder: Path) -> Path:
    """A run of two steps, done, with a checkpoint of each."""
    if main([*SMALL_RUN, "--run", str(folder)]):
        raise RuntimeError("the sound run could not be made")
    return folder


def place(home: Path, run: Path) -> Place:
    found = Place(home / "inside", home / "outside", run)
    found.inside.mkdir(parents=True)
    (found.outside / "folder").mkdir(parents=True)
    for path in (found.outside / "file", found.outside / "folder" / "file"):
        path.write_bytes(SECRET)
    return found


def picture(folder: Path) -> dict[str, str]:
    """Every path with a hash of what it holds."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file()
            else "folder" for path in folder.rglob("*")}


def drive(case: Case, run: Path, fresh: bool = False) -> Outcome:
    """fresh: as `python -m postgrad` in a process of its own, whose imports are part of its time."""
    home = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        found = place(home, run)
        case.make(found)
        before = picture(found.outside)
        code, seconds = (command if fresh else child)(case.words, found.inside, home / "said")
        after = picture(found.outside)
        strayed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        said = (home / "said").read_bytes()[-20_000:].decode(errors="replace")
        return Outcome(code, said, seconds, tuple(strayed))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def child(words: tuple[str, ...], inside: Path, said: Path) -> tuple[int | None, float]:
    pid = os.fork()
    if not pid:
        code = 70
        try:
            enter(inside, said)
            code = answer(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 (a child must never return into its parent's work)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return waited(pid)


def enter(inside: Path, said: Path) -> None:
    os.chdir(inside)
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, os.devnull, os.O_WRONLY),
                            (2, said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        os.dup2(os.open(path, flags, 0o644), fd)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    limits()


def limits() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * BUDGET),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(words: tuple[str, ...]) -> int:
    if words[0] != "GET":
        return main(list(words))
    from studio_small import client
    found = client(Path("runs")).get(words[1])
    return 0 if found.status_code < 500 else 70


def command(words: tuple[str, ...], inside: Path, said: Path) -> tuple[int | None, float]:
    more = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open(said, "wb") as err:
        begun = subprocess.Popen([sys.executable, "-m", "postgrad", *words], cwd=inside, stderr=err,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | more,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)))
        code, seconds = waited(begun.pid, 2 * PATIENCE)
        begun.returncode = 0 if code is None else code  # it has been waited for
    return code, seconds


def waited(pid: int, patience: float = PATIENCE) -> tuple[int | None, float]:
    """(exit status, or None where it was killed for its time; the processor time it took)"""
    end, ended = time.monotonic() + patience, 0
    while not ended and time.monotonic() < end:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if not ended:
            time.sleep(0.002)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if not ended or code == -signal.SIGXCPU else code, used.ru_utime + used.ru_stime


def warm() -> None:
    """Imports what the commands import. One thread: a fork would wait for ever for its parent's others."""
    import gguf
    import pyarrow.parquet
    import torch
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401
    assert gguf and pyarrow.parquet
    torch.set_num_threads(1)
    from postgrad.cli import chat  # noqa: F401
    from postgrad.recipes import audit, chat_session, pick, rlaif  # noqa: F401
    from postgrad.recipes.registry import RECIPES, recipe_module
    from postgrad.studio import app  # noqa: F401
    for name in RECIPES:
        recipe_module(name)
