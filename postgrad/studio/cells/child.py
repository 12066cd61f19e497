"""The program that cells run in: a zygote with torch imported that forks, on request,
one process per run of a cell.

Run as a script (`python -I`) with an empty environment, in a session of its own; nothing of the package may
import it. A forked process has a session of its own too, no network, and limits of memory, processor time and
files; where the kernel can build it, it is also in the jail of `rewards/sandbox`: it can neither fork nor
write nor open anything but the libraries, for reading.

The control socket carries "F" (fork: three descriptors come along: job, output, answers), "W" (import what
answers to exercises may use) and "K" (kill and reap; the answer is "k" and the exit status). A job is one
JSON object; the answers are JSON lines, in the order in which things are found out.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys

MEMORY, CPU, FILES = 1 << 30, 10, 64  # bytes beyond what torch itself maps, seconds, descriptors
NEWNET, NEWUSER = 0x40000000, 0x10000000


def cut_network() -> bool:
    """A network namespace of its own, with nothing in it; False where the kernel allows none."""
    if sys.platform != "linux":
        return False
    unshare = ctypes.CDLL(None).unshare
    return not unshare(NEWNET) or not unshare(NEWNET | NEWUSER)


def import_libraries() -> None:
    """What a run needs is imported, and one small backward pass taken, before any fork:
    no run pays for it."""
    import torch
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(torch.log_softmax(x * 2, -1).sum(), x)
    for name in ("preference", "credit", "surrogate", "kl", "logprob", "weights", "passk", "schedule"):
        importlib.import_module(f"postgrad.maths.{name}")
    importlib.import_module("postgrad.studio.book.worked")
    importlib.import_module("postgrad.studio.cells.checks")
    importlib.import_module("postgrad.studio.cells.jobs")
    # their computations import what they call when they call it
    importlib.import_module("postgrad.studio.instruments")


def import_for_exercises() -> None:
    """What answers may use and cells do not: an optimizer's first step imports more than a jail lets in."""
    import torch
    importlib.import_module("postgrad.methods")
    importlib.import_module("postgrad.studio.exercises.grading")
    x = torch.ones(2, requires_grad=True)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        optimizer = kind([x], lr=0.0)
        (x.grad,) = torch.autograd.grad(x.sum(), x)
        optimizer.step()


def jail_rules(folders: list[str]) -> tuple[int | None, str]:
    """The jail's rules and its name; without a jail None and why."""
    from postgrad.rewards.sandbox import jail
    try:
        return jail.ruleset(folders), f"Landlock {jail.landlock_abi()} + seccomp + rlimits"
    except OSError as fault:
        return None, str(fault)


def enter_limits(rules: int | None) -> None:
    """Limits for good, and the jail where there is one. Addresses are counted from what is mapped already."""
    with open("/proc/self/statm") if sys.platform == "linux" else open(os.devnull) as file:
        mapped = int((file.read().split() or ["0"])[0]) * resource.getpagesize()
    if rules is not None:
        from postgrad.rewards.sandbox import jail
        return jail.enter(rules, cpu=CPU, memory=mapped + MEMORY)
    for name, most in {"CPU": CPU, "AS": mapped + MEMORY, "FSIZE": 0, "NOFILE": FILES, "CORE": 0,
                       "NPROC": 0}.items():
        if name != "AS" or mapped:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def serve_job(job: int, output: int, answers: int, rules: int | None, parent: int) -> None:
    """What a forked process does: keep its three descriptors, lock itself up, run the job.

    It never returns.
    """
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it dies with the zygote,
        if os.getppid() != parent:                      # even if that has happened already
            return
        os.setsid()
        ends = ([os.open(os.devnull, os.O_RDONLY), output, output, job, answers]
                + ([] if rules is None else [rules]))
        high = [os.dup2(end, 200 + place) for place, end in enumerate(ends)]
        for place, end in enumerate(high):
            os.dup2(end, place)
        os.closerange(len(ends), 4096)
        sys.stdin = open(0, closefd=False)
        sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False, encoding="utf-8", errors="replace")
        os.environ.clear()
        enter_limits(None if rules is None else 5)
        with open(3, "rb") as file:
            wanted = json.loads(file.read())
        from postgrad.studio.cells.jobs import run_job
        run_job(wanted, lambda row: os.write(4, json.dumps(row).encode() + b"\n"))
        sys.stdout.flush()
    finally:
        os._exit(0)


def run_zygote(control: socket.socket, rules: int | None) -> None:
    me, child = os.getpid(), None
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        status = 0
        if child is not None:
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:
                os.kill(child, signal.SIGKILL)  # not yet in its own session, or ended and not yet reaped
            status = os.waitpid(child, 0)[1]
            child = None
        if order == b"":
            return
        if order == b"W":
            import_for_exercises()
        if order == b"F":
            child = os.fork()
            if child == 0:
                job, output, answers = descriptors
                serve_job(job, output, answers, rules, me)
            for number in descriptors:
                os.close(number)
        control.sendall(order.lower() + struct.pack("<i", status))


def start_zygote() -> None:
    home, *folders = sys.argv[1:]
    sys.path.insert(0, home)
    control = socket.socket(fileno=os.dup(0))
    cut = cut_network()
    import_libraries()
    rules, tier = jail_rules([os.path.join(home, "postgrad"), *folders])
    os.environ.clear()
    control.sendall(json.dumps({"jailed": rules is not None, "tier": tier, "network":
                                "cut" if cut else "open", "root": os.getuid() == 0}).encode() + b"\n")
    run_zygote(control, rules)


if __name__ == "__main__":
    start_zygote()
