"""How a signal ends a training: after the step, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager

from postgrad.system.processes import Lost, check_others


class Stopped(Exception):
    """A signal asked the run to stop; its checkpoint has been written."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def stop_on_signal(told: Callable[[], None] | None = None):
    """Within the block the first Ctrl-C or SIGTERM is only noted (the function given says which); a second
    one ends at once. Where another rank has died, it ends the block with a sentence on that, and SIGTERM,
    which torchrun sends the rest at that moment, is not heard any more: it would end this process before it
    has said the sentence. In a thread other than the main one, where Python takes no signals, nothing is
    noted.

    told: called at the first one, inside the signal handler.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def note(number, frame):
        check_others()
        caught.append(number)
        for s, old in before.items():
            signal.signal(s, old)
        if told:
            told()

    # a handler that is not Python's reads as None, and could not be put back
    ours = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not None]
    before = {s: signal.signal(s, note) for s in ours}
    after = dict(before)
    try:
        yield lambda: caught[0] if caught else None
    except Lost:
        after |= {signal.SIGTERM: signal.SIG_IGN}
        raise
    finally:
        for s, then in after.items():
            signal.signal(s, then)
