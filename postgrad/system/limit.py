"""A wall limit for a call of a user's code in this process, a verifier, say, that may never come back.

In the main thread a timer interrupts the call wherever it is in Python, in a loop, a sleep, a socket or a
regular expression. In any other thread, and where there is no such timer, the call has a thread of its own,
which is left behind when its time is up: TimeLimit is raised in it, which ends a loop, but a sleep or a
socket only when it returns. Neither can interrupt one long call into a library that never looks up.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

SECONDS = 60.0  # one verdict of a verifier that says nothing else
AGAIN = 1.0     # seconds after which an interrupt that was swallowed comes again

T = TypeVar("T")


class TimeLimit(BaseException):
    """The time of a call is up. No Exception, so that `except Exception` inside it does not swallow it."""


class TimerHandler:
    """The handler of the timer's signal: ends the call that is running, if one is."""

    running = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.running:
            raise TimeLimit

    def during(self, call: Callable[[], T]) -> T:
        try:
            self.running = True
            return call()
        finally:
            self.running = False


_shared: TimerHandler | None = None  # of the main thread


@contextmanager
def shared_timer() -> Iterator[None]:
    """Calls of this block, each within a limit of its own, share a handler and a timer: to set and unset
    them for each takes longer than most verdicts. Not where a timer was set outside, which has to go on."""
    global _shared
    if not _rings() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    _shared, before = TimerHandler(), signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        _shared = None
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def within_limit(seconds: float, call: Callable[[], T]) -> T:
    """What the call returns, or TimeLimit when it takes longer; seconds inf: no limit."""
    if seconds == float("inf"):
        return call()
    if _shared and not _shared.running and threading.current_thread() is threading.main_thread():
        if not signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)[0]:
            # the first call, or the one before has used the timer itself
            signal.signal(signal.SIGALRM, _shared)
        return _shared.during(call)
    return _interrupted(seconds, call) if _rings() else _left_behind(seconds, call)


def _rings() -> bool:
    """Whether a timer can interrupt this thread. A handler that is not Python's reads as None, and could not
    be put back."""
    return (threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
            and signal.getsignal(signal.SIGALRM) is not None)


def _interrupted(seconds: float, call: Callable[[], T]) -> T:
    bell = TimerHandler()
    handler, began = signal.signal(signal.SIGALRM, bell), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        return bell.during(call)
    finally:
        signal.signal(signal.SIGALRM, handler)
        # a timer that was set outside goes on
        left = max(left - (time.monotonic() - began), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, left, interval)


def _left_behind(seconds: float, call: Callable[[], T]) -> T:
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it
            raised.append(error)

    thread = threading.Thread(target=run, name="verify", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        if thread.ident:  # a loop left running would slow all that this process computes
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident),
                                                       ctypes.py_object(TimeLimit))
        raise TimeLimit
    return returned[0]
