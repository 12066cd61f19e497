"""Small runs for the tests of the run folder, and work in forked children."""

from __future__ import annotations

import json
import os
import traceback

from postgrad.runs import Run

STEPS = 6


def in_child(work) -> int:
    """Run `work` in a forked child and return its exit status (negative: a signal)."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 (the child must never return into pytest)
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def make(folder, steps=STEPS, **facts):
    return Run.create(folder, recipe="grpo", config={"lr": 1e-3}, steps=steps, method="grpo",
                      model="embedded", **facts)


def put(text):
    """A writer of a checkpoint with two files, one of them in a folder."""
    def write(folder):
        (folder / "state.json").write_text(json.dumps({"text": text}))
        (folder / "model").mkdir()
        (folder / "model" / "weights.bin").write_bytes(text.encode() * 20)
    return write


def logged(run, upto, rows=1):
    for step in range(run.next_step, upto + 1):
        run.log(step, {"loss": 1 / step, "reward": step / 10})
    return run


def names(folder):
    return sorted(p.name for p in folder.iterdir())
