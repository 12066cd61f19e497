"""Runs killed at any call: they are resumed, and end as if nothing had been.

Kills happen in forked children, of a process that is small: of one that has torch a fork costs ten times
as much. Nobody sleeps.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import forks
import pytest
from run_small import STEPS, logged, make, names, put

from postgrad.runs import LOGS, Run

EVERY = 2  # steps from one checkpoint to the next


def live(folder):
    """A whole training, from the start or from wherever a kill left it: each step's rows follow from the
    checkpointed state."""
    started = (folder / "run.json").exists()
    run = Run.open(folder) if started else make(folder)
    checkpoint = run.resume() if started else None
    state = json.loads((checkpoint / "state.json").read_text())["text"] if checkpoint else "seed"
    if run.next_step == 1:
        run.log_eval(0, {"pass@1": 0.25})
    for step in range(run.next_step, STEPS + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        run.log(step, {"loss": int(state[:8], 16) / 2**32})
        run.log_samples(step, [{"id": str(i), "text": state[i:]} for i in range(2)])
        run.event("note", state[:4], step=step)
        if step % EVERY == 0:
            run.log_eval(step, {"pass@1": int(state[8:12], 16) / 2**16})
            run.save(step, put(state), keep=2)
    run.status("done")


def trace_of(folder):
    """What an uninterrupted run and a killed and resumed one must share."""
    rows = {name: [row for row in Run.open(folder).rows(name)[0] if row["step"] is not None] for name in LOGS}
    for row in rows["events"]:
        del row["time"]
    newest = [p for path in list(Run.open(folder).checkpoints().values())[-2:]
              for p in sorted(path.rglob("*"))]
    files = {str(p.relative_to(folder)): p.read_bytes() for p in newest if p.is_file()}
    return {"rows": rows, "files": files}


class Killer:
    """Wraps the calls that change the disk: the n-th one ends the process before,
    after or in the middle of it."""

    CALLS = ("write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")

    def __init__(self, at=None, when="before"):
        self.at = at
        self.when = when
        self.count, self.writes = 0, []
        self.real = {name: getattr(os, name) for name in self.CALLS}
        for name in self.CALLS:
            setattr(os, name, self.wrapped(name))

    def wrapped(self, name):
        def call(*args, **kwargs):
            self.count += 1
            self.writes += [self.count] * (name == "write")
            here = self.count == self.at
            if here and (self.when == "before" or self.when == "torn" and name != "write"):
                os._exit(9)
            if here and self.when == "torn":
                self.real["write"](args[0], args[1][: len(args[1]) // 2])
                os._exit(9)
            try:
                # only a power cut needs the sync
                return None if name == "fsync" else self.real[name](*args, **kwargs)
            finally:
                if here:
                    os._exit(9)
        return call


def carry_out(work, folder, at=None, when="before"):
    """What a child does: a function of this module, killed or left alone; it says how many calls it made, and
    which of them wrote."""
    killer = Killer(at, when)
    globals()[work](Path(folder))
    print(json.dumps([killer.count, killer.writes]))


def in_child(work, folder, *kill) -> tuple[int, str]:
    return forks.run("tests.runs.kills_test:carry_out", work, str(folder), *kill,
                     modules=("tests.runs.kills_test",))


def calls_of(work, folder) -> tuple[int, list[int]]:
    code, said = in_child(work, folder)
    assert code == 0, said
    return tuple(json.loads(said))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    calls, writes = calls_of("live", folder)
    assert calls > 80 and len(writes) > 20
    return calls, writes, trace_of(folder)


@pytest.mark.parametrize("when", ["before", "torn"])  # after a call is before the next one; writes are torn
def test_a_kill_at_any_call_leaves_a_run_that_ends_the_same(tmp_path, whole, when):
    calls, writes, want = whole
    for at in range(1, calls + 1) if when == "before" else writes:
        folder = tmp_path / f"run{at}"
        assert in_child("live", folder, at, when)[0] == 9
        if folder.exists():
            run = Run.open(folder)
            for step in run.checkpoints():
                run.verify(step)  # what has a checkpoint's name is whole, at each moment
        code, said = in_child("live", folder)
        assert code == 0, f"kill {when} call {at}: {said}"
        assert trace_of(folder) == want, f"kill {when} call {at}"
        # a kill between the last save and its clearing of old ones may leave one more
        left = names(folder / "checkpoints")
        assert left in (["000004", "000006"], ["000002", "000004", "000006"])
        assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]
        assert not [row for row in Run.open(folder).rows("events")[0]
                    if row["kind"] == "damaged"], "a kill is no damage"
        shutil.rmtree(folder)
    assert not list(tmp_path.glob(".run*")), "what a kill inside `create` left was cleared by the next one"


def test_a_second_kill_while_resuming(tmp_path, whole):
    calls, _, want = whole
    for at in range(calls // 3, calls, 9):
        for then in range(2, 60, 11):
            folder = tmp_path / f"run{at}-{then}"
            assert in_child("live", folder, at, "torn")[0] == 9
            assert in_child("live", folder, then, "torn")[0] in (0, 9)
            code, said = in_child("live", folder)
            assert code == 0, said
            assert trace_of(folder) == want


def again(folder):
    Run.open(folder).save(2, put("new"))


def test_saving_a_step_again_is_safe_at_every_call(tmp_path):
    def prepared(name):
        with logged(make(tmp_path / name), 2).locked() as run:
            run.save(2, put("old"))
        return tmp_path / name

    calls, _ = calls_of("again", prepared("count"))
    assert calls > 10
    seen = set()
    for at in range(1, calls + 1):
        folder = prepared(f"run{at}")
        assert in_child("again", folder, at)[0] == 9
        reader = Run.open(folder).latest()
        assert reader is not None, "even before any clean-up there is a usable checkpoint"
        run = Run.open(folder)
        path = run.resume()
        text = json.loads((path / "state.json").read_text())["text"]
        assert path.name == "000002" and text in ("old", "new")
        assert (path / "model" / "weights.bin").read_bytes() == text.encode() * 20
        assert names(folder / "checkpoints") == ["000002"]
        seen.add(text)
    assert seen == {"old", "new"}
