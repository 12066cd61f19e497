"""Whether this machine's jail holds, proved by attacks at start-up. The one tier is Landlock + seccomp +
rlimits; there is no weaker one to fall back to."""

from __future__ import annotations

import functools
import os
import re
import secrets
import tempfile
import time

from postgrad.rewards.sandbox import codec, jail
from postgrad.rewards.sandbox.worker import Broken, ChildGone, JailWorker

# Each defines attack(secret, judge), of a file's path and the judge's pid: True where it worked; False or an
# OSError where it was refused. A process that ends or hangs has not been refused.
ATTACKS = {
    "read a file outside": "def attack(secret, judge): return len(open(secret).read()) > 0",
    "read the environment of process 1": "def attack(secret, judge): return open('/proc/1/environ', "
                                         "'rb') is not None",
    "write a file": """
import os
def attack(secret, judge):
    for place in (secret, '/tmp/x', '/dev/shm/x', '/x', './x', os.path.dirname(os.__file__) + '/x',
                  '/proc/self/oom_score_adj'):
        try:
            open(place, 'a')
            return True
        except OSError:
            continue
    return False""",
    "open a socket": "import socket\ndef attack(secret, judge): return socket.socket() is not None",
    "make a socket pair": "import socket\ndef attack(secret, judge): return socket.socketpair() is not None",
    "fork": "import os\ndef attack(secret, judge): return os.fork() >= 0",
    "start a thread": "import _thread\n"
                      "def attack(secret, judge): return _thread.start_new_thread(int, ()) > 0",
    "execute a program": "import os, sys\n"
                         "def attack(secret, judge): os.execv(sys.executable, ['python', '-c', ''])",
    "signal the judge": "import os\ndef attack(secret, judge): return os.kill(judge, 0) is None",
    "limit the judge": "import resource as r\n"
                       "def attack(secret, judge): return r.prlimit(judge, r.RLIMIT_CORE) is not None",
    "raise its own limit": """
import resource as r
def attack(secret, judge):
    r.setrlimit(r.RLIMIT_AS, (-1, -1))
    return True""",
    "trace the judge": """
import ctypes
def attack(secret, judge): return ctypes.CDLL(None).ptrace(0x4206, judge, 0, 0) == 0""",
    "take more memory than allowed": "def attack(secret, judge): return len(bytearray(8 << 30)) > 0",
}
HONEST = ("def attack(secret, judge): return [secret, {1: (2.5, None)}, {judge}] and "
          "sorted('ba') == ['a', 'b']")
_REFUSED = re.compile(
    rb"(PermissionError|OSError|MemoryError|ValueError|RuntimeError|BlockingIOError|error):")


def trial(worker: JailWorker, source: str, secret: str) -> str:
    """"refused", "worked", or what else happened, when one attack is tried in a fresh jail."""
    (candidate,) = worker.fork(1)
    deadline = time.monotonic() + 2.0
    try:
        candidate.send(b"S", source.encode(), deadline)
        tag, said = candidate.receive(deadline)
        if tag == b"L":
            candidate.send(b"C", codec.encode(["attack", [secret, os.getpid()], {}]), deadline)
            tag, said = candidate.receive(deadline)
    except (ChildGone, TimeoutError) as fault:
        return f"not refused ({str(fault) or 'no answer in time'})"
    finally:
        worker.clear()
    if (tag == b"V" and said == b"false") or (tag == b"E" and _REFUSED.match(said)):
        return "refused"
    return "worked" if tag == b"V" and said == b"true" else f"unclear ({said[:80].decode(errors='replace')})"


@functools.cache
def _proof() -> tuple[str | None, str | None]:
    """(the tier, None), or (None, why there is none)."""
    worker = None
    try:
        name = f"Landlock {jail.landlock_abi()} + seccomp + rlimits"
        worker = JailWorker(memory=256 << 20, cpu=5)
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write(secrets.token_hex())
            secret.flush()
            honest = trial(worker, HONEST, secret.name)
            if honest != "worked":
                return None, f"honest code does not run in the jail: {honest}"
            for attack, source in ATTACKS.items():
                result = trial(worker, source, secret.name)
                if result != "refused":
                    return None, f"the self-test could {attack}: {result}"
    except (jail.NoJail, Broken, OSError) as fault:
        return None, str(fault)
    finally:
        if worker is not None:
            worker.close()
    return name, None


def tier() -> str | None:
    """The tier in use, e.g. "Landlock 7 + seccomp + rlimits"; None where no untrusted code is run."""
    return _proof()[0]


def missing_sandbox() -> str | None:
    """Why there is no tier; None where there is one."""
    return _proof()[1]


def require() -> str:
    """The tier in use; raises ValueError where there is none."""
    name, why = _proof()
    if name is None:
        raise ValueError(f"code tasks are refused because this machine has no sandbox that holds ({why}): "
                         "use Linux 5.13 or newer with Landlock and seccomp on, or choose a "
                         "task without code.")
    return name
