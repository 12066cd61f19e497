"""How a signal ends a training: after the step, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from postgrad.system.processes import Lost, check_others


class Stopped(Exception):
    """A run ends before its last step; its checkpoint has been written.

    by: the number of a signal, or a sentence. final: nothing is left to resume.
    """

    def __init__(self, by: int | str, final: bool = False):
        super().__init__(by if isinstance(by, str) else f"stopped by {signal.Signals(by).name}")
        self.exit_code = 0 if isinstance(by, str) else 128 + by
        self.final = final


@contextmanager
def stop_on_signal(on_signal: Callable[[], None] | None = None) -> Iterator[Callable[[], int | None]]:
    """Within the block the first Ctrl-C, SIGTERM or SIGHUP is only recorded: the yielded function returns its
    number. A second one ends the process at once.

    Where another rank has died, the signal raises `Lost` instead, and the SIGTERM that torchrun then sends is
    ignored: it would end this process before the error is printed. Outside the main thread, where Python
    handles no signals, nothing is recorded.

    on_signal: called inside the signal handler, at the first one.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def record_signal(number: int, frame: FrameType | None) -> None:
        check_others()
        caught.append(number)
        for s, old in before.items():
            signal.signal(s, old)
        if on_signal:
            on_signal()

    # a handler that is not Python's reads as None, and could not be put back
    ours = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not None]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it: the run outlives its terminal
        ours.append(signal.SIGHUP)
    before = {s: signal.signal(s, record_signal) for s in ours}
    after = dict(before)
    try:
        yield lambda: caught[0] if caught else None
    except Lost:
        after |= {signal.SIGTERM: signal.SIG_IGN}
        raise
    finally:
        for s, handler in after.items():
            signal.signal(s, handler)
