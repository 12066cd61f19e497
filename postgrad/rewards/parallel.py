"""Verdicts of a batch: in the caller's thread while a verifier computes, in many threads when it waits.

A monitor reads the CPU time and the state of the thread that calls the verifier. One that computes stays
there, one call after another: threads would share one interpreter lock. One that sleeps, or waits for a
socket or a coroutine, is called for the remaining replies at once. Verdicts come in the order of the replies.

In the main thread a timer ends a call that is overdue; a call in any other thread is left behind, for Python
cannot end a thread. After one overdue call the others of the batch have little time, so that a verifier that
hangs costs its limit once and not once a reply.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from postgrad.system.limit import TimeLimit, shared_timer

CONCURRENCY = 128   # calls at once; a function's attribute `concurrency` says otherwise
TICK = 0.05         # seconds between two looks of the monitor, at least
RARER = 0.25        # of the time that calls have computed for: until the next look at them
WAITING = 0.25      # of the time on the CPU: below it a call waits
LOOKS = 5           # at the state of a thread
SLOW = 10.0         # seconds after which a batch is reported
OBSERVED = 32       # calls in threads that are watched for a use of `signal`
LEAST = 0.05        # seconds that a call has at least

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_SETS_HANDLER = signal.signal.__code__


class MainThreadOnly(BaseException):
    """The call sets a signal handler, which only the main thread may do."""


class BatchCall(Protocol[T_co]):
    """One call of a batch, by number; raises TimeLimit when it has taken `seconds`."""

    def __call__(self, number: int, seconds: float) -> T_co: ...


class BatchCaller(Generic[T]):
    """Calls a verifier for each reply of a batch, and remembers what it is like.

    overdue(error, seconds): the verdict of a call that has taken longer. limit: seconds of a call.
    concurrency: calls at once. waits: known to wait.
    """

    def __init__(self, name: str, limit: float, overdue: Callable[[TimeLimit, float], T], *,
                 concurrency: int = CONCURRENCY, waits: bool = False):
        self.name, self.limit, self.overdue = name, limit, overdue
        self.concurrency, self.waits = concurrency, waits
        self.main_only = False   # it sets signal handlers
        self.reported = False
        self.observed = 0        # calls in threads that used no `signal`
        self.slowest = 0.0       # seconds of a call that came back

    def run(self, call: BatchCall[T], count: int) -> list[T]:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and (count == 1 or self.concurrency == 1):
            with shared_timer():
                return [self.call_once(call, number) for number in range(count)]
        batch = _Batch(self, call, count, in_main)
        return batch.in_main_thread() if in_main else batch.in_threads()

    def call_once(self, call: BatchCall[T], number: int) -> T:
        try:
            return call(number, self.limit)
        except TimeLimit as error:
            return self.overdue(error, self.limit)

    def report(self, done: int, count: int) -> None:
        """One line about a slow batch, once."""
        if not self.reported:
            self.reported = True
            limit = f" (limit of a verdict: {self.limit:g} s)" if math.isfinite(self.limit) else ""
            print(f"postgrad: the reward {self.name} is slow: {done} of {count} replies judged in {SLOW:g} s"
                  f"{limit}", file=sys.stderr)


class _Call:
    """A call that is running in a thread."""

    def __init__(self, number: int, limit: float):
        self.number, self.limit, self.began = number, limit, time.monotonic()


class _Batch(Generic[T]):
    def __init__(self, caller: BatchCaller[T], call: BatchCall[T], count: int, in_main: bool):
        self.caller, self.call, self.count, self.in_main = caller, call, count, in_main
        self.todo = deque(range(count))
        self.done: dict[int, T] = {}
        self.running: set[_Call] = set()
        self.changed = threading.Condition()
        self.over = False
        self.spread = False  # many threads call
        self.allowance = caller.limit / 4  # of all calls after one that was overdue, together
        self.hung = False
        self.began, self.owner = time.monotonic(), threading.current_thread()
        self.cpu_began = _cpu_seconds(self.owner)

    def next_limit(self) -> float:
        """The limit of the next call: short once one was overdue."""
        if not self.hung:
            return self.caller.limit
        return min(self.caller.limit, max(self.allowance / 8, 3 * self.caller.slowest, LEAST))

    def in_main_thread(self) -> list[T]:
        if self.caller.waits and not self.caller.main_only:
            self.start_threads()
        monitor = threading.Thread(target=self.monitor, name="verify-monitor", daemon=True)
        monitor.start()
        try:
            with shared_timer():
                while len(self.done) < self.count:
                    number = self.take() if not self.running or self.caller.main_only else None
                    if number is None:
                        with self.changed:
                            if len(self.done) < self.count and (self.running or not self.todo):
                                self.changed.wait(TICK)
                        continue
                    self.call_here(number)
        finally:
            with self.changed:
                self.over = True
                self.changed.notify_all()
        return [self.done[number] for number in range(self.count)]

    def in_threads(self) -> list[T]:
        """Of a caller in another thread: one thread that calls, or many, and the caller is the monitor."""
        try:
            self.start_threads(None if self.caller.waits else 1)
            self.monitor()
        finally:
            self.over = True
        return [self.done[number] for number in range(self.count)]

    def call_here(self, number: int) -> None:
        limit, began = self.next_limit(), time.monotonic()
        try:
            verdict = self.call(number, limit)
        except TimeLimit as error:
            verdict = self.caller.overdue(error, limit)
            self.spend(limit)
        else:
            self.caller.slowest = max(self.caller.slowest, time.monotonic() - began)
        with self.changed:
            self.done[number] = verdict

    def spend(self, limit: float) -> None:
        if self.hung:
            self.allowance = max(0.0, self.allowance - limit)
        self.hung = True

    def take(self) -> int | None:
        with self.changed:
            return self.todo.popleft() if self.todo and not self.over else None

    def monitor(self) -> None:
        """Starts threads where calls wait, gives up calls that are overdue, reports a slow batch."""
        with self.changed:
            while len(self.done) < self.count:
                self.changed.wait(TICK if self.running else pause(time.monotonic() - self.began))
                if self.over:
                    return
                now = time.monotonic()
                for late in [c for c in self.running if now - c.began > c.limit]:
                    self.running.discard(late)
                    self.done[late.number] = self.caller.overdue(TimeLimit(), late.limit)
                    self.spend(late.limit)
                    self.start_threads(1)
                if now - self.began > SLOW:
                    self.caller.report(len(self.done), self.count)
                if self.todo and not self.spread and not self.caller.main_only and self.waiting(now):
                    self.start_threads()
                self.changed.notify_all()

    def waiting(self, now: float) -> bool:
        """Whether the thread that calls is idle. It lives while there are calls to do."""
        seconds = now - self.began
        return (seconds >= TICK and _cpu_seconds(self.owner) - self.cpu_began < WAITING * seconds
                and _is_blocked(self.owner))

    def start_threads(self, count: int | None = None) -> None:
        with self.changed:
            self.spread |= count is None
            free = self.caller.concurrency - len(self.running)
            for _ in range(min(len(self.todo), free, count or free)):
                call = _Call(self.todo.popleft(), self.next_limit())
                self.running.add(call)
                thread = threading.Thread(target=self.work, args=(call,), name="verify", daemon=True)
                if not self.in_main and not self.spread:
                    self.owner, self.cpu_began, self.began = thread, 0.0, time.monotonic()
                thread.start()

    def work(self, call: _Call) -> None:
        """A thread: this call, then others while there are any."""
        while True:
            try:
                verdict = self.observed(call)
            except MainThreadOnly:
                with self.changed:
                    self.caller.main_only = True
                    if call in self.running:
                        self.running.discard(call)
                        self.todo.append(call.number)
                    self.changed.notify_all()
                return
            except TimeLimit as error:  # of a limit inside the call
                verdict = self.caller.overdue(error, call.limit)
            with self.changed:
                if call not in self.running:
                    return  # it was given up
                self.running.discard(call)
                self.caller.slowest = max(self.caller.slowest, time.monotonic() - call.began)
                self.done[call.number] = verdict
                self.changed.notify_all()
                if self.over or not self.todo or self.caller.main_only:
                    return
                call = _Call(self.todo.popleft(), self.next_limit())
                self.running.add(call)

    def observed(self, call: _Call) -> T:
        """The verdict of a call in this thread; the first ones are watched for a use of `signal`."""
        if not self.in_main or self.caller.observed >= OBSERVED:
            return self.call(call.number, math.inf)
        sys.setprofile(_refuse_handlers)
        try:
            verdict = self.call(call.number, math.inf)
        finally:
            sys.setprofile(None)
        self.caller.observed += 1
        return verdict


def pause(seconds: float) -> float:
    """Seconds until the next look at calls that compute since `seconds`. Each look takes the interpreter lock
    from them, and on a busy machine it is not given back at once."""
    return max(TICK, RARER * seconds)


def _refuse_handlers(frame: FrameType, event: str, argument: Any) -> None:
    if event == "call" and frame.f_code is _SETS_HANDLER:
        sys.setprofile(None)
        raise MainThreadOnly


def _cpu_seconds(thread: threading.Thread) -> float:
    """CPU time of a thread; of the whole process where the system does not tell."""
    read = getattr(time, "pthread_getcpuclockid", None)
    if read is None or thread.ident is None:
        return time.process_time()
    return time.clock_gettime(read(thread.ident))


def _is_blocked(thread: threading.Thread) -> bool:
    """Whether a thread sleeps, by every one of a few looks: on a busy machine one that computes has little
    CPU time too, but is runnable. True where the system does not tell."""
    try:
        for _ in range(LOOKS):  # each lets go of the interpreter lock, for which it may wait
            with open(f"/proc/self/task/{thread.native_id}/stat", "rb", buffering=0) as file:
                if file.read().rpartition(b") ")[2][:1] not in (b"S", b"D"):
                    return False
    except OSError:
        return True
    return True


# coroutines

_loop: asyncio.AbstractEventLoop | None = None
_starting = threading.Lock()


def run_coroutine(awaitable: Awaitable[T]) -> T:
    """The result of a coroutine, from any thread: all run in one event loop in a thread of its own, which
    lives as long as the process, so that clients bound to a loop can be used again."""
    global _loop
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="verify-loop", daemon=True).start()
        loop = _loop

    async def wait() -> T:
        return await awaitable

    future = asyncio.run_coroutine_threadsafe(wait(), loop)
    try:
        return future.result()
    except TimeLimit:
        future.cancel()
        with _starting:  # one that blocks its loop would block the next as well
            _loop = None if _loop is loop else _loop
        raise
    except BaseException:
        future.cancel()
        raise

