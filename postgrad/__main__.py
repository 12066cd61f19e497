"""python -m postgrad: the command, and how Ctrl-C ends it, also while it is being loaded."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from contextlib import suppress

# what is imported stays: looking in it for circles, again and again, takes time
gc.set_threshold(50_000, *gc.get_threshold()[1:])

STOPPED = "\npostgrad: stopped by Ctrl-C.\n"
CODE = 128 + signal.SIGINT


def main() -> int:
    """The command. Ctrl-C ends it with a sentence; once it is leaving, another one ends it at once."""
    sys.unraisablehook = unraisable
    try:
        from postgrad.cli import main as command
        return command()
    except SystemExit:
        raise
    except BaseException as error:
        if not interrupted(error):
            raise
        sys.stderr.write(STOPPED)
        if threading.active_count() > 1:
            leave()
        return CODE
    finally:
        gc.freeze()  # nor is it looked through when the process ends
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def leave() -> None:
    """Ends the process without Python's finalization, in which a thread that still runs can abort it."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its reader has left
            stream.flush()
    os._exit(CODE)


def interrupted(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or what a library made of it while it was being imported."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def unraisable(fault: sys.UnraisableHookArgs) -> None:
    """A Ctrl-C that fell where Python cannot raise it (a callback of the import system, say) still ends the
    process."""
    if not isinstance(fault.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(fault)
        return
    os.write(2, STOPPED.encode())
    os._exit(CODE)


if __name__ == "__main__":
    sys.exit(main())
