"""The jail that a process enters before it reads untrusted code. Linux, stdlib alone.

Landlock      reads the standard library and the shared libraries of its extensions; writes nothing
seccomp       an allow-list of system calls; all others answer EPERM (clone3: ENOSYS, as libc expects)
capabilities  none: RLIMIT_NPROC does not bind root, denying clone does
rlimits       CPU seconds, memory, files, no core, no file size

Left out on purpose: user namespaces and cgroups, which containers and stock Ubuntu deny. The kernel is
trusted, side channels are open, and Landlock does not cover stat: whether a path exists can be seen.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import resource
import sys
import sysconfig

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# name: (x86_64, aarch64), None where a machine has no such call; Landlock's have one number everywhere
_CALLS: dict[str, tuple[int, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None),
    "fstat": (5, 80), "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "select": (23, None),
    "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233), "dup": (32, 23),
    "nanosleep": (35, 101), "getitimer": (36, 102), "setitimer": (38, 103), "getpid": (39, 172),
    "exit": (60, 93), "uname": (63, 160), "getcwd": (79, 17), "readlink": (89, None),
    "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179),
    "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175),
    "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132), "gettid": (186, 178),
    "time": (201, None), "futex": (202, 98), "sched_getaffinity": (204, 123), "getdents64": (217, 61),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "openat": (257, 56), "newfstatat": (262, 79),
    "readlinkat": (267, 78), "faccessat": (269, 48), "pselect6": (270, 72), "ppoll": (271, 73),
    "getrandom": (318, 278), "statx": (332, 291), "rseq": (334, 293), "faccessat2": (439, 439),
}
_GUARDED = {"fcntl": (72, 25), "prlimit64": (302, 261), "clone3": (435, 435), "capset": (126, 91),
            "seccomp": (317, 277)}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the table, AUDIT_ARCH
# DUPFD, GETFD, SETFD, GETFL, DUPFD_CLOEXEC: not SETOWN or SETSIG, which send signals to others
_FCNTL = (0, 1, 2, 3, 1030)
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# by ABI: all there are
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_CAPABILITIES, _NONE = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


class NoJail(OSError):
    """This machine cannot build the jail; the message says what is missing."""


def _syscall(name: str, number: int, *args: object) -> int:
    done = int(_libc.syscall(ctypes.c_long(number), *args))
    if done < 0:
        code = ctypes.get_errno()
        raise NoJail(code, f"{name}: {os.strerror(code)}")
    return done


def _machine() -> tuple[int, int]:
    name = os.uname().machine if sys.platform == "linux" else sys.platform
    if name not in _MACHINES:
        raise NoJail(errno.ENOSYS, f"the jail knows Linux on {' and '.join(_MACHINES)}, not {name}")
    return _MACHINES[name]


def landlock_abi() -> int:
    """The kernel's Landlock version; raises NoJail where it has none."""
    _machine()
    return _syscall("Landlock", _CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))


class _Under(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def ruleset(places: list[str] | tuple[str, ...] = ()) -> int:
    """A descriptor of the Landlock rules: read the standard library (no packages) and `places`."""
    abi = landlock_abi()
    _program()  # made once, before any fork
    rights = _RIGHTS[min(abi, 5)]
    # file rights; TCP bind and connect; abstract sockets and signals
    words = [rights] + [0b11] * (abi >= 4) + [0b11] * (abi >= 6)
    attr = (ctypes.c_uint64 * len(words))(*words)
    rules = _syscall("Landlock", _CREATE, attr, ctypes.c_size_t(ctypes.sizeof(attr)), ctypes.c_uint32(0))
    for home in {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}:
        _grant(rules, home, _READ_DIR)
        for entry in os.scandir(home):
            if entry.name not in ("site-packages", "dist-packages") and not entry.is_symlink():
                _grant(rules, entry.path, _READ_FILE | _READ_DIR * entry.is_dir())
    for place in places:
        _grant(rules, place, _READ_FILE | _READ_DIR * os.path.isdir(place))
    return rules


def _grant(rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    _syscall("Landlock", _ADD, ctypes.c_int(rules), ctypes.c_int(1), ctypes.byref(_Under(rights, place)),
             ctypes.c_uint32(0))
    os.close(place)


_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


class _Op(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8),
                ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("ops", ctypes.POINTER(_Op))]


def _filter() -> list[_Instruction]:
    """The seccomp program. Offsets in seccomp_data: nr 0, arch 4, arguments from 16."""
    def load(place: int) -> _Instruction:
        return 0x20, 0, 0, place

    def answer(action: int) -> _Instruction:
        return 0x06, 0, 0, action

    def equal(value: int, yes: int, no: int) -> _Instruction:
        return 0x15, yes, no, value

    column, arch = _machine()
    deny = answer(_ERRNO | errno.EPERM)
    number = {name: pair[column] for name, pair in _GUARDED.items()}
    ops = [load(4), equal(arch, 1, 0), answer(_KILL), load(0)]
    for pair in _CALLS.values():
        if (allowed := pair[column]) is not None:
            ops += [equal(allowed, 0, 1), answer(_ALLOW)]
    ops += [equal(number["clone3"], 0, 1), answer(_ERRNO | errno.ENOSYS)]
    commands = [op for command in _FCNTL for op in (equal(command, 0, 1), answer(_ALLOW))]
    ops += [equal(number["fcntl"], 0, len(commands) + 2), load(24), *commands, deny]
    # pid 0 (oneself), and no new limit: a look
    own = [equal(0, 0, 5), load(32), equal(0, 0, 3), load(36), equal(0, 0, 1)]
    ops += [equal(number["prlimit64"], 0, 8), load(16), *own, answer(_ALLOW), deny]
    return [*ops, deny]


@functools.cache
def _program() -> _Program:
    ops = _filter()
    return _Program(len(ops), (_Op * len(ops))(*(_Op(*op) for op in ops)))


def enter(rules: int, *, cpu: int, memory: int) -> None:
    """Locks this process up for good: cpu seconds, memory bytes. After NoJail the caller must not go on."""
    column, _ = _machine()
    limits = {"CPU": cpu, "AS": memory, "FSIZE": 0, "NOFILE": 64, "CORE": 0, "NPROC": 0, "MEMLOCK": 0,
              "MSGQUEUE": 0}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most, most) if hard == resource.RLIM_INFINITY else (min(most, hard),) * 2)
    prctl = _libc.prctl
    for what, value in ((38, 1), (4, 0)):  # no new privileges; not dumpable
        if prctl(what, value, 0, 0, 0):
            raise NoJail(ctypes.get_errno(), f"prctl {what} was refused")
    _syscall("Landlock", _RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)
    _syscall("capset", _GUARDED["capset"][column], _CAPABILITIES, _NONE)
    _syscall("seccomp", _GUARDED["seccomp"][column], ctypes.c_uint(1), ctypes.c_uint(0),
             ctypes.byref(_program()))
