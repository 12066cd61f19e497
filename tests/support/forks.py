"""Processes that are forked, not started: a server has imported once what they need.

    code, said = run("kills:child", 0, 9, ["train", "sft:words"])   # function of a module, its arguments
    child = Child("postgrad.__main__:main", argv=["postgrad", "eval"], cwd=folder)

For what does not depend on a fresh interpreter. The server has one thread and has computed nothing, so a fork
of it is as good as new; each of its children has a process of its own, with streams, folder, arguments and
signals as if it had been started. One child of a server at a time.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback

MODULES = ("kills", "postgrad.cli", "postgrad.recipes.base")  # with torch: two seconds of every start
MOST = 1 << 16  # bytes of an order


class Server:
    """The process that forks; it ends when this one does."""

    def __init__(self, modules: tuple[str, ...]):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, __file__, str(theirs.fileno()), *modules]
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            pass_fds=[theirs.fileno()])


server = functools.cache(Server)


class Child:
    """A forked process; `stdout` is what it says, both streams as one."""

    def __init__(self, call: str, *args, argv=("postgrad",), cwd=".", modules=MODULES):
        self.control = server(modules).control
        read, write = os.pipe()
        order = {"call": call, "args": args, "argv": argv, "cwd": str(cwd)}
        socket.send_fds(self.control, [json.dumps(order).encode()], [write])
        os.close(write)
        self.stdout = open(read, encoding="utf-8", errors="replace")
        self.pid = json.loads(self.control.recv(MOST))

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit status; negative: the signal that ended it."""
        return json.loads(self.control.recv(MOST))


def run(call: str, *args, **more) -> tuple[int, str]:
    """A forked process to its end: its exit status, and what it said."""
    child = Child(call, *args, **more)
    with child.stdout:
        said = child.stdout.read()
    return child.wait(), said


# the server

def carry_out(order: dict, stream: int) -> int:
    """What a forked process does; -> its exit status."""
    for place in (1, 2):
        os.dup2(stream, place)
    os.close(stream)
    sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8")
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8", errors="backslashreplace")
    sys.argv = order["argv"]
    os.chdir(order["cwd"])
    module, _, name = order["call"].partition(":")
    try:
        code = getattr(importlib.import_module(module), name)(*order["args"])
    except SystemExit as left:
        code = left.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return code or 0


def serve(control: socket.socket) -> None:
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, MOST, 1)
        if not order:
            return
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                control.close()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                code = carry_out(json.loads(order), *descriptors)
            finally:
                os._exit(code)
        os.close(*descriptors)
        control.send(json.dumps(pid).encode())
        control.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


if __name__ == "__main__":
    for imported in sys.argv[2:]:
        importlib.import_module(imported)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for who runs the tests
    serve(socket.socket(fileno=int(sys.argv[1])))
