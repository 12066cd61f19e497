"""Runs as processes of their own: started, they owe the server nothing,
and only the run folder says how they are.

A process is niced, in a session of its own, and writes what it has to say to RUNS/.output/ID.log. It holds a
lock on that file for as long as it lives (the lock goes with its standard output), so that a restarted
server knows who is still there.
Left out on purpose: a table of processes in memory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from postgrad.runs.disk import is_held
from postgrad.studio.json_types import JsonDict, JsonMapping
from postgrad.studio.runs.traces import run_folder, run_id_parts

OUTPUT = ".output"
NICE = 10


def output_file(root: Path, name: str) -> Path:
    """The file with what the processes of a run said."""
    run_folder(root, name)
    parts = run_id_parts(name)
    return root.joinpath(OUTPUT, *parts[:-1], f"{parts[-1]}.log")


def start_process(root: Path, name: str, words: Sequence[str], *, fresh: bool, patience: float = 0.0,
                  note: JsonMapping = MappingProxyType({})) -> int:
    """Starts `python -m postgrad WORDS`; -> its process id.

    fresh: the output of an earlier one is cleared away. patience: seconds that are given to an earlier one to
    leave. note: stored beside the process id.
    """
    path = output_file(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        lock_output(file, time.monotonic() + patience)
        if fresh:
            os.ftruncate(file, 0)
        os.write(file, f"$ {shlex.join(['postgrad', *words])}\n".encode(errors="replace"))
        process = subprocess.Popen([sys.executable, "-m", "postgrad", *words], stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=file, start_new_session=True,
                                   env={**os.environ, "PYTHONUNBUFFERED": "1"})
    except BlockingIOError:
        raise ValueError(f"a process for {name} is already at work: wait for it, or stop it first.") from None
    finally:
        os.close(file)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    path.with_suffix(".json").write_text(json.dumps({**note, "pid": process.pid}))
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays while the server lives
    return process.pid


def lock_output(file: int, until: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.05)


def process_alive(root: Path, name: str) -> bool:
    """Is a process that was started here for this run alive, whichever server started it?"""
    return is_held(output_file(root, name))


def process_note(root: Path, name: str) -> JsonDict:
    """What was kept of the process that was started here last for a run; {}: none was."""
    path = output_file(root, name).with_suffix(".json")
    return json.loads(path.read_text()) if path.is_file() else {}


def last_pid(root: Path, name: str) -> int | None:
    """The id of the process that was started here last for a run."""
    return process_note(root, name).get("pid")


def end_process(root: Path, name: str) -> int:
    """Ends a process that has not made its run folder yet; -> its id."""
    if not process_alive(root, name):
        raise ValueError(f"no process is starting {name}: there is nothing to stop.")
    pid = int(process_note(root, name)["pid"])
    # its session has this number, which nobody else can get while one of its processes lives
    os.killpg(pid, signal.SIGTERM)
    return pid


def last_output(root: Path, name: str, most: int = 20_000) -> str | None:
    """The end of what the processes of a run said; None: it was not started from here."""
    try:
        file = os.open(output_file(root, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(file, "rb") as log:
        start = max(0, os.fstat(file).st_size - most)
        log.seek(start)
        text = log.read().decode(errors="replace")
    return text.partition("\n")[2] if start else text


def without_run_folder(root: Path, taken: set[str]) -> list[str]:
    """The ids of what was started here and has no run folder: still starting, or never come to be."""
    home = root / OUTPUT
    names = (path.relative_to(home).with_suffix("").as_posix() for path in sorted(home.rglob("*.log")))
    return [name for name in names if name not in taken and not any(t.startswith(f"{name}/") for t in taken)]


def forget_process(root: Path, name: str) -> None:
    """Removes what a process said that is over and left no run."""
    if process_alive(root, name):
        raise ValueError(f"a process for {name} is still at work: stop it first.")
    output_file(root, name).unlink(missing_ok=True)
    output_file(root, name).with_suffix(".json").unlink(missing_ok=True)
