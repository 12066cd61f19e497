"""The zygote's program: it forks a candidate and, where asked, a tester, each jailed before it reads.

    zygote      holds no secret and no job; it sees the pipes' descriptors, and kills and reaps its children
    candidate   executes the code under test, then answers calls: name and arguments in, a plain value out
    tester    executes the tests, never the candidate's code: calls go out, plain values come back

Run as a script with an empty environment, stdlib alone; no other module of the package executes source text.
A message is four bytes of length, one of tag, and the body. Tags to a child: S source or tests, C call,
V value. From a candidate: L loaded, V value, N not a plain value, E raised. From a tester: C call,
P passed, F failed, U broken tests.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import random
import signal
import socket
import struct
import sys
import traceback
import types
from collections.abc import Callable
from typing import NoReturn

import codec
import jail

LIBC = ctypes.CDLL(None)
READY = ("array bisect cmath collections collections.abc copy dataclasses datetime decimal enum fractions "
         "functools hashlib heapq itertools json math operator random re statistics string "
         "textwrap time typing").split()


class BadTests(Exception):
    """The tests hand over what cannot cross: their fault, whatever the candidate has answered before."""


class Pipe:
    """Whole messages over two descriptors."""

    def __init__(self, source: int, sink: int):
        self.source, self.sink = source, sink

    def receive(self) -> tuple[bytes, bytes]:
        (length,) = struct.unpack("<I", self._exactly(4))
        tag = self._exactly(1)
        return tag, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self.source, min(count, 1 << 16))
            if not part:
                os._exit(0)  # the judge hung up
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, tag: bytes, body: bytes = b"") -> None:
        rest = memoryview(struct.pack("<I", len(body)) + tag + body)
        while rest:
            rest = rest[os.write(self.sink, rest):]


def execute_source(source: str, name: str, space: dict[str, object]) -> None:
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), space)


def fault_bytes(fault: BaseException) -> bytes:
    return f"{type(fault).__name__}: {fault}"[:300].encode(errors="replace")


def play_candidate(pipe: Pipe) -> None:
    """Loads the source, then answers calls until the judge hangs up. What it sends is untrusted data."""
    module = sys.modules["candidate"] = types.ModuleType("candidate")
    _, source = pipe.receive()
    try:
        execute_source(source.decode(), "candidate", module.__dict__)
        pipe.send(b"L")
    except BaseException as fault:
        pipe.send(b"E", fault_bytes(fault))
    while True:
        _, body = pipe.receive()
        name, args, kwargs = codec.decode(body)
        try:
            value = getattr(module, name.removeprefix("bool "))(*args, **kwargs)
            pipe.send(b"V", codec.encode(bool(value) if name.startswith("bool ") else value))
        except codec.NotPlain as fault:
            pipe.send(b"N", fault_bytes(fault))
        except BaseException as fault:
            pipe.send(b"E", fault_bytes(fault))


def play_tester(pipe: Pipe) -> None:
    """Executes setup and tests, in which the candidate's names are calls over the pipe; sends P, F or U."""
    _, body = pipe.receive()
    setup, tests, names = codec.decode(body)
    heard = 0

    def stub(name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal heard
            try:
                body = codec.encode([name, args, kwargs])
            except codec.NotPlain as fault:
                raise fault if isinstance(fault, codec.TooBig) else BadTests(str(fault)) from None
            pipe.send(b"C", body)
            _, value = pipe.receive()
            heard += 1
            return codec.decode(value)
        return call

    space: dict[str, object] = {"__name__": "tests"}
    stubs = {alias: stub(name) for alias, name in names.items()}
    try:
        space.update(stubs)
        execute_source(setup, "setup", space)
        space.update(stubs)
        random.seed(0)
        execute_source(tests, "tests", space)
        pipe.send(b"P")
    except AssertionError as fault:
        *_, (_, line) = traceback.walk_tb(fault.__traceback__)
        pipe.send(b"F", str(line).encode())
    except BaseException as fault:
        pipe.send(b"F" if heard and not isinstance(fault, BadTests) else b"U", fault_bytes(fault))


def imprison(role: Callable[[Pipe], None], source: int, sink: int, rules: int, memory: int, cpu: int,
             parent: int) -> NoReturn:
    """Enters the jail, then plays a role. Never returns."""
    try:
        LIBC.prctl(1, signal.SIGKILL)               # it dies with the zygote,
        if os.getppid() != parent:                  # even if that has happened already
            os._exit(0)
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        top = max(source, sink, rules) + 10
        for start in (top, 3):  # by a detour, so that none overwrites another
            source, sink, rules = (os.dup2(number, start + i)
                                   for i, number in enumerate((source, sink, rules)))
        os.closerange(6, 4096)
        silent = open(1, "w", closefd=False)
        for name in ("stdin", "stdout", "stderr"):
            vars(sys).update({name: silent, f"__{name}__": silent})
        jail.enter(rules, cpu=cpu, memory=memory)
        pipe = Pipe(source, sink)
        pipe.send(b"J")  # jailed
        role(pipe)
    finally:
        os._exit(0)


def serve_zygote(control: socket.socket, memory: int, cpu: int, places: list[str]) -> None:
    """Serves "F" (fork, with two descriptors a child) and "K" (kill and reap) until the judge hangs up."""
    rules, children, me = jail.ruleset(places), [], os.getpid()
    gc.collect()
    gc.freeze()
    control.sendall(b"R")
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if order == b"F":
            for role, at in ((play_candidate, 0), (play_tester, 2))[: len(descriptors) // 2]:
                child = os.fork()
                if child == 0:
                    imprison(role, descriptors[at], descriptors[at + 1], rules, memory, cpu, me)
                children.append(child)
            for number in descriptors:
                os.close(number)
        for child in children if order != b"F" else ():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if order == b"":
            return
        if order == b"K":
            children.clear()
        control.sendall(order.lower())


def run_child() -> None:
    memory, cpu, packages, warm, *places = sys.argv[1:]
    # the folder of this script: candidates import the standard library, and the folders named
    sys.path.pop(0)
    sys.path += [place for place in places if os.path.isdir(place)]
    os.chdir("/")
    os.environ.clear()
    for name in READY + packages.split():
        importlib.import_module(name)
    execute_source(warm, "warm", {})
    serve_zygote(socket.socket(fileno=os.dup(0)), int(memory), int(cpu), places)


if __name__ == "__main__":
    run_child()
