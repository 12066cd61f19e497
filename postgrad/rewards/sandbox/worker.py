"""A worker: one zygote, and the channels to the jailed children it forks for a job. Waits have deadlines."""

from __future__ import annotations

import functools
import os
import select
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from postgrad.rewards.sandbox.codec import LONGEST

START = 90.0  # seconds a zygote or a fork may take: sympy needs 20 where eight trainings share a core


class Broken(RuntimeError):
    """The worker itself failed (not the code it ran); the message says how."""


class ChildGone(Exception):
    """The child closed its end, or sent what is no message."""


class Channel:
    """Messages to and from one jailed child, over two non-blocking pipes."""

    def __init__(self) -> None:
        self.theirs_in, self._out = os.pipe2(os.O_CLOEXEC)
        self._in, self.theirs_out = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def close_theirs(self) -> None:
        os.close(self.theirs_in)
        os.close(self.theirs_out)

    def close(self) -> None:
        os.close(self._in)
        os.close(self._out)

    def send(self, tag: bytes, body: bytes, deadline: float) -> None:
        rest = memoryview(struct.pack("<I", len(body)) + tag + body)
        while rest:
            _wait(self._out, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._out, rest):]
            except BrokenPipeError:
                raise ChildGone("the process ended") from None

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        head = self._exactly(5, deadline)
        (length,) = struct.unpack("<I", head[:4])
        if length > LONGEST:
            raise ChildGone(f"a message of {length} bytes, of at most {LONGEST}")
        return head[4:], self._exactly(length, deadline)

    def _exactly(self, count: int, deadline: float) -> bytes:
        parts = []
        while count:
            _wait(self._in, select.POLLIN, deadline)
            part = os.read(self._in, min(count, 1 << 16))
            if not part:
                raise ChildGone("the process ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise TimeoutError


_LOOK = """
import importlib, os, sysconfig
home = os.path.realpath(sysconfig.get_path("platstdlib"))
here = os.path.join(home, "lib-dynload")
for entry in sorted(os.listdir(here)) if os.path.isdir(here) else ():
    try:
        if not entry.startswith(("_test", "xx")):
            importlib.import_module(entry.partition(".")[0])
    except Exception:
        continue  # built for a library that is not here: it imports nowhere
for line in open("/proc/self/maps"):
    path = "/" + line.rstrip("\\n").partition("/")[2]
    if ".so" in os.path.basename(path) and not path.startswith(home):
        print(path)
"""


@functools.cache
def libraries() -> tuple[str, ...]:
    """Shared libraries of the standard library's extensions (base64 needs libz.so.1), which depend on how
    this Python was built: a new process loads all extensions once."""
    command, plain = [_python(), "-s", "-S", "-B", "-c", _LOOK], {"LC_ALL": "C.UTF-8"}
    try:
        found = subprocess.run(command, capture_output=True, text=True, env=plain, cwd="/", timeout=START)
    except subprocess.TimeoutExpired:
        raise Broken("a Python that lists its libraries does not answer") from None
    return tuple(sorted({path for path in found.stdout.splitlines() if os.path.isfile(path)}))


def _python() -> str:
    return getattr(sys, "_base_executable", sys.executable)  # not a virtual environment's, with its packages


class JailWorker:
    """One zygote process. `fork` starts a candidate, and a tester for tests, in jails; `clear` ends them.

    packages: installed packages that the zygote imports before it forks; package folders are then readable.
    warm: trusted source that the zygote executes after that.
    """

    def __init__(self, *, memory: int, cpu: int, packages: tuple[str, ...] = (), warm: str = ""):
        folders = sorted({sysconfig.get_path(name) for name in ("purelib", "platlib")}) if packages else []
        homes = sorted({os.path.dirname(path) for path in libraries()})  # the linker's list is not readable
        ours, theirs = socket.socketpair()
        with theirs:
            child = str(Path(__file__).parent / "child.py")
            command = [_python(), "-s", "-S", "-B", child, str(memory), str(cpu)]
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*command, " ".join(packages), warm, *folders, *libraries()],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": ":".join(homes)}, cwd="/",
                start_new_session=True,
            )
        self._control, self._stderr = ours, self._process.stderr
        self._channels: tuple[Channel, ...] = ()
        ours.settimeout(START)
        self._hear(b"R")

    def _hear(self, wanted: bytes) -> None:
        try:
            got = self._control.recv(1)
        except OSError as fault:
            self._process.kill()
            self.close()
            raise Broken(f"the zygote does not answer: {fault}") from None
        if got != wanted:
            told = self.close().strip().splitlines()
            raise Broken(f"the zygote ended: {told[-1] if told else 'it gave no reason'}")

    def fork(self, count: int) -> tuple[Channel, ...]:
        """Channels to a new candidate and, of two, a tester, which have reported that they are jailed."""
        self._channels = channels = tuple(Channel() for _ in range(count))
        ends = [end for channel in channels for end in (channel.theirs_in, channel.theirs_out)]
        try:
            socket.send_fds(self._control, [b"F"], ends)
        except OSError as fault:
            raise Broken(f"the zygote is gone: {fault}") from None
        finally:
            for channel in channels:
                channel.close_theirs()
        self._hear(b"f")
        for channel in channels:
            try:
                if channel.receive(time.monotonic() + START)[0] != b"J":
                    raise Broken("a child did not say that it is locked up")
            except (ChildGone, TimeoutError):
                raise Broken("a child could not lock itself up") from None
        return channels

    def clear(self) -> None:
        """Kills the children; they cannot fork, so there is nobody else to kill."""
        for channel in self._channels:
            channel.close()
        self._channels = ()
        try:
            self._control.sendall(b"K")
        except OSError as fault:
            raise Broken(f"the zygote is gone: {fault}") from None
        self._hear(b"k")

    def close(self) -> str:
        """Hangs up: the zygote kills its children and ends. Returns its standard error."""
        self._control.close()
        for channel in self._channels:
            channel.close()
        self._channels = ()
        try:
            self._process.wait(START)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._stderr is None or self._stderr.closed:
            return ""
        with self._stderr as last:
            return last.read().decode(errors="replace")
