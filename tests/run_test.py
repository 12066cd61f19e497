"""The run folder under kills, full disks, flipped bits and second writers. Kills happen in forked children; nobody sleeps."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import traceback

import pytest

from postgrad.run import LOGS, DamagedCheckpoint, DiskFull, Run, RunBusy, check_name, dumps, list_runs, number, plain, rows
from postgrad.run.disk import manifest

STEPS, EVERY = 6, 2


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
    return Run.create(folder, recipe="grpo", config={"lr": 1e-3}, steps=steps, method="grpo", model="embedded", **facts)


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


def live(folder):
    """A whole training, from the start or from wherever a kill left it: each step's rows follow from the checkpointed state."""
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
    newest = [p for path in list(Run.open(folder).checkpoints().values())[-2:] for p in sorted(path.rglob("*"))]
    files = {str(p.relative_to(folder)): p.read_bytes() for p in newest if p.is_file()}
    return {"rows": rows, "files": files}


class Killer:
    """Wraps the calls that change the disk: the n-th one ends the process before, after or in the middle of it."""

    CALLS = ("write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")

    def __init__(self, at=None, when="before"):
        self.at, self.when, self.count, self.real = at, when, 0, {name: getattr(os, name) for name in self.CALLS}
        for name in self.CALLS:
            setattr(os, name, self.wrapped(name))

    def wrapped(self, name):
        def call(*args, **kwargs):
            self.count += 1
            here = self.count == self.at
            if here and (self.when == "before" or self.when == "torn" and name != "write"):
                os._exit(9)
            if here and self.when == "torn":
                self.real["write"](args[0], args[1][: len(args[1]) // 2])
                os._exit(9)
            try:
                return None if name == "fsync" else self.real[name](*args, **kwargs)  # only a power cut needs the sync
            finally:
                if here:
                    os._exit(9)
        return call


def calls_of(work, folder) -> int:
    read, write = os.pipe()

    def count():
        killer = Killer()
        work(folder)
        killer.real["write"](write, str(killer.count).encode())

    assert in_child(count) == 0
    os.close(write)
    with open(read, "rb") as pipe:
        return int(pipe.read())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    calls = calls_of(live, folder)
    assert calls > 80
    return calls, trace_of(folder)


@pytest.mark.parametrize("when", ["before", "after", "torn"])
def test_a_kill_at_any_call_leaves_a_run_that_ends_the_same(tmp_path, whole, when):
    calls, want = whole
    for at in range(1, calls + 1):
        folder = tmp_path / f"run{at}"

        def killed(folder=folder, at=at):
            Killer(at, when)
            live(folder)

        def finish(folder=folder):
            Killer()
            live(folder)

        assert in_child(killed) == 9
        if folder.exists():
            run = Run.open(folder)
            for step in run.checkpoints():
                run.verify(step)  # what has a checkpoint's name is whole, at each moment
        assert in_child(finish) == 0, f"kill {when} call {at}"
        assert trace_of(folder) == want, f"kill {when} call {at}"
        left = names(folder / "checkpoints")  # a kill between the last save and its clearing of old ones may leave one more
        assert left in (["000004", "000006"], ["000002", "000004", "000006"])
        assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]
        assert not [row for row in Run.open(folder).rows("events")[0] if row["kind"] == "damaged"], "a kill is no damage"
        shutil.rmtree(folder)
    assert not list(tmp_path.glob(".run*")), "what a kill inside `create` left was cleared by the next one"


def test_a_second_kill_while_resuming(tmp_path, whole):
    calls, want = whole
    for at in range(calls // 3, calls, 7):
        for then in range(2, 60, 9):
            folder = tmp_path / f"run{at}-{then}"

            def killed(folder=folder, at=at):
                Killer(at, "torn")
                live(folder)

            assert in_child(killed) == 9
            assert in_child(lambda killed=killed, then=then: killed(at=then)) in (0, 9)
            assert in_child(lambda folder=folder: live_quick(folder)) == 0
            assert trace_of(folder) == want


def live_quick(folder):
    Killer()
    live(folder)


def test_saving_a_step_again_is_safe_at_every_call(tmp_path):
    def again(folder):
        run = Run.open(folder)
        run.save(2, put("new"))

    def prepared(name):
        with logged(make(tmp_path / name), 2).locked() as run:
            run.save(2, put("old"))
        return tmp_path / name

    calls = calls_of(again, prepared("count"))
    assert calls > 10
    seen = set()
    for at in range(1, calls + 1):
        folder = prepared(f"run{at}")

        def killed(folder=folder, at=at):
            Killer(at, "before")
            again(folder)

        assert in_child(killed) == 9
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


def test_everything_is_on_the_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    """The order that protects against a power cut: files, manifest, rows, rename, then the folder of checkpoints."""
    run = logged(make(tmp_path / "run"), 1)
    trace, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (trace.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (trace.append(f"rename to {os.path.basename(b)}"), rename(a, b)))
    run.save(1, put("x"))
    at = {name: trace.index(name) for name in trace}
    assert {"state.json", "weights.bin", "model", "manifest.json", "checkpoints", *(f"{n}.jsonl" for n in LOGS)} <= set(at)
    assert max(at["state.json"], at["weights.bin"], at["model"]) < at["manifest.json"]
    assert max(at["manifest.json"], at["metrics.jsonl"], at["samples.jsonl"], at["events.jsonl"]) < at["rename to 000001"]
    assert at["rename to 000001"] < at["checkpoints"]


def test_a_writer_that_raises_leaves_nothing(tmp_path):
    run = logged(make(tmp_path / "run"), 1)
    run.save(1, put("one"))
    logged(run, 2)

    def broken(folder):
        put("two")(folder)
        raise RuntimeError("out of ideas")

    with pytest.raises(RuntimeError, match="out of ideas"):
        run.save(2, broken)
    with pytest.raises(KeyboardInterrupt):
        run.save(2, lambda folder: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert names(run.folder / "checkpoints") == ["000001"] and run.latest().name == "000001"


def test_a_rename_that_fails_leaves_the_old_checkpoint_of_the_step(tmp_path, monkeypatch):
    run = logged(make(tmp_path / "run"), 1)
    run.save(1, put("old"))
    rename = os.rename

    def refuse(a, b):
        if os.path.basename(a).startswith(".tmp-000001"):
            raise PermissionError(13, "no")
        rename(a, b)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(PermissionError):
        run.save(1, put("new"))
    assert names(run.folder / "checkpoints") == ["000001"] and "old" in (run.latest() / "state.json").read_text()


def test_old_checkpoints_go_but_not_those_to_keep(tmp_path):
    run = make(tmp_path / "run")
    for step in range(1, 8):
        logged(run, step).save(step, put(str(step)), keep=2, keep_steps=(2, 4))
    assert list(run.checkpoints()) == [2, 4, 6, 7]
    logged(run, 8).save(8, put("8"), keep=7)
    assert list(run.checkpoints()) == [2, 4, 6, 7, 8], "fewer than keep: all stay"
    logged(run, 9).save(9, put("9"), keep=1)
    assert list(run.checkpoints()) == [9]


def test_every_flipped_bit_is_found_in_every_file(tmp_path):
    run = logged(make(tmp_path / "run"), 2)
    run.save(1 + 1, put("ab"))
    folder = run.checkpoints()[2]
    flips = 0
    for path in [p for p in sorted(folder.rglob("*")) if p.is_file()]:
        raw = path.read_bytes()
        for bit in range(len(raw) * 8):
            bad = bytearray(raw)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            with pytest.raises(DamagedCheckpoint, match=path.name):
                run.verify(2)
            flips += 1
        path.write_bytes(raw)
    assert flips > 3000
    assert run.verify(2) == folder


@pytest.mark.parametrize("harm", ["cut", "grown", "missing", "folder", "no manifest", "other step", "empty"])
def test_other_damage_is_found_and_the_previous_checkpoint_offered(tmp_path, harm):
    run = logged(make(tmp_path / "run"), 2)
    run.save(2, put("two"))
    logged(run, 4).save(4, put("four"))
    folder = run.checkpoints()[4]
    victim = folder / "model" / "weights.bin"
    if harm == "cut":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif harm == "grown":
        victim.write_bytes(victim.read_bytes() + b"x")
    elif harm == "missing":
        victim.unlink()
    elif harm == "folder":
        victim.unlink()
        victim.mkdir()
    elif harm == "no manifest":
        (folder / "manifest.json").unlink()
    elif harm == "other step":
        shutil.copy(run.checkpoints()[2] / "manifest.json", folder / "manifest.json")
    elif harm == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    file = "weights.bin" if harm in ("cut", "grown", "missing", "folder") else "manifest.json"
    with pytest.raises(DamagedCheckpoint, match=file):
        run.verify(4)
    run.close()
    assert Run.open(run.folder).latest().name == "000002", "a reader skips it and writes nothing"
    assert Run.open(run.folder).rows("events")[0] == []
    again = Run.open(run.folder)
    assert again.resume().name == "000002" and again.next_step == 3
    damaged, resumed = again.rows("events")[0]
    assert damaged["kind"] == "damaged" and damaged["data"] == {"checkpoint": 4} and file in damaged["text"]
    assert resumed["kind"] == "resumed" and resumed["data"] == {"checkpoint": 2, "dropped": {
        "metrics": 2, "evals": 0, "samples": 0, "events": 0}}
    logged(again, 4).save(4, put("four"))
    assert again.latest().name == "000004"


def test_when_all_checkpoints_are_damaged_nothing_is_thrown_away(tmp_path):
    run = logged(make(tmp_path / "run"), 2)
    run.save(2, put("two"))
    (run.checkpoints()[2] / "state.json").write_text("{}")
    with pytest.raises(DamagedCheckpoint, match="every checkpoint"):
        run.resume()
    assert run.curve("loss")[0] == [1, 2] and list(run.checkpoints()) == [2]


def test_a_manifest_cannot_point_outside(tmp_path):
    run = logged(make(tmp_path / "run"), 1)
    folder = run.save(1, put("x"))
    body = {"step": 1, "files": {"../../../secret": {"bytes": 1, "sha256": "0"}}}
    (folder / "manifest.json").write_bytes(manifest(body))
    with pytest.raises(DamagedCheckpoint, match="outside"):
        run.verify(1)


def test_a_rewind_keeps_exactly_the_rows_up_to_the_step(tmp_path):
    run = make(tmp_path / "run")
    run.event("process", "no step: stays")
    run.log_eval(0, {"pass@1": 0.1})
    for step in range(1, 6):
        run.log(step, {"loss": 0.1 * step})
        run.log_samples(step, [{"id": "a", "text": "x\u2028é"}, {"id": "b", "text": "nan"}])
        run.log_eval(step, {"pass@1": 0.2})
        run.event("skipped", "s", step=step)
        run.save(step, put("x"), keep=9)
    before = {name: (run.folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True) for name in LOGS}
    for name in LOGS:  # a kill tore the next row
        with open(run.folder / f"{name}.jsonl", "ab") as file:
            file.write(b'{"step": 2, "lo')
    lost = run.rewind(3)
    assert lost == {"metrics": 3, "evals": 3, "samples": 5, "events": 3}
    after = {name: (run.folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True) for name in LOGS}
    assert after == {"metrics": before["metrics"][:3], "evals": before["evals"][:4], "samples": before["samples"][:6],
                     "events": before["events"][:4]}
    assert run.next_step == 4 and list(run.checkpoints()) == [1, 2, 3]
    run.log(4, {"loss": 9.0})
    assert run.curve("loss") == ([1, 2, 3, 4], [0.1, 0.2, 0.1 * 3, 9.0])
    assert run.rewind(-1)["evals"] == 4 and run.rows("evals")[0] == [] and run.next_step == 1
    assert [row["text"] for row in run.rows("events")[0]] == ["no step: stays"]


@pytest.mark.parametrize("rows", [[1, 2, 2, 3], [1, 3], [2, 3], [1, 2], [1, 3, 2]])
def test_a_rewind_refuses_metrics_with_holes_or_repeats(tmp_path, rows):
    run = make(tmp_path / "run")
    text = "".join(f'{{"step": {s}}}\n' for s in rows)
    (run.folder / "metrics.jsonl").write_text(text)
    with pytest.raises(ValueError, match="each step from 1 to 3 once"):
        run.rewind(3)
    assert (run.folder / "metrics.jsonl").read_text() == text


@pytest.mark.parametrize("tail", [b"{", b'{"step": 3, "loss": 0.', b'{"step": 3, "loss": 0.5}', b"\x00" * 70000, b"\xff\xfe{"])
def test_a_torn_tail_is_not_read_and_not_written_onto(tmp_path, tail):
    run = logged(make(tmp_path / "run"), 2)
    run.close()
    with open(run.folder / "metrics.jsonl", "ab") as file:
        file.write(tail)
    run = Run.open(run.folder)
    rows, cursor = run.rows("metrics")
    assert [row["step"] for row in rows] == [1, 2] and run.next_step == 3
    assert cursor == (run.folder / "metrics.jsonl").stat().st_size - len(tail)
    run.log(3, {"loss": 7.0})
    assert run.rows("metrics", after=cursor)[0] == [{"step": 3, "loss": 7.0}]


def test_rows_come_by_cursor_each_once(tmp_path):
    run, reader = make(tmp_path / "run"), Run.open(tmp_path / "run")
    seen, cursor = [], 0
    for step in range(1, 8):
        run.log(step, {"loss": step})
        if step % 3 == 0:
            rows, cursor = reader.rows("metrics", after=cursor)
            seen += [row["step"] for row in rows]
    assert seen == [1, 2, 3, 4, 5, 6]
    assert reader.rows("metrics", after=cursor)[0] == [{"step": 7, "loss": 7}]
    end = reader.rows("metrics")[1]
    assert reader.rows("metrics", after=end) == ([], end)
    run.rewind(2)
    rows, cursor = reader.rows("metrics", after=end)
    assert [row["step"] for row in rows] == [1, 2], "behind a rewind the reader begins again"
    assert reader.rows("metrics", after=cursor + 1000)[1] == cursor


def test_one_step_of_a_log_is_what_reading_all_of_it_finds(tmp_path):
    run, rng = make(tmp_path / "run"), random.Random(0)
    assert run.at("samples", 3) == ([], None, None)
    texts = [{"text": "x" * rng.choice([0, 3, 70, 9000]), "n": n} for n in range(120)]
    steps = sorted(rng.randrange(5, 90) for _ in texts)
    for step, row in zip(steps, texts, strict=True):
        run.log_samples(step, [row])
    with open(run.folder / "samples.jsonl", "ab") as file:
        file.write(b'{"step": 99, "te')  # a torn line is not there yet
    every, _ = run.rows("samples")
    known = sorted(set(steps))
    for step in range(95):
        found = max((s for s in known if s <= step), default=known[0])
        before, after = [s for s in known if s < found], [s for s in known if s > found]
        wanted = ([r for r in every if r["step"] == found], max(before, default=None), min(after, default=None))
        assert run.at("samples", step) == wanted


def test_one_step_of_a_long_log_is_found_without_reading_it(tmp_path, monkeypatch):
    run = make(tmp_path / "run")
    run.log_samples(1, [{"text": "a" * 500}])
    path = run.folder / "samples.jsonl"
    line = path.read_bytes()
    path.write_bytes(b"".join(line.replace(b'"step": 1', b'"step": %d' % s) for s in range(1, 20_001)))
    seen = []
    monkeypatch.setattr("postgrad.run.rows.first_line", lambda *a, real=rows.first_line: seen.append(a) or real(*a))
    (row,), before, after = run.at("samples", 12_345)
    assert (row["step"], before, after) == (12_345, 12_344, 12_346)
    assert len(seen) < 150  # three searches by halving ten megabytes, and a few lines each


def test_not_finite_numbers_stay_strict_json_and_readable(tmp_path):
    run = make(tmp_path / "run")
    values = [math.nan, math.inf, -math.inf, 0.1 + 0.2, -0.0]
    for step, value in enumerate(values, 1):
        run.log(step, {"loss": value})
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()

    def never(name):
        raise AssertionError(name)

    assert [json.loads(line, parse_constant=never)["loss"] for line in lines] == ["nan", "inf", "-inf", 0.1 + 0.2, -0.0]
    got = run.curve("loss")[1]
    assert math.isnan(got[0]) and got[1:] == values[1:]
    assert run.summary()["series"] == [0.1 + 0.2, -0.0]
    assert math.isnan(number(None)) and math.isnan(number("word"))


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path):
    run = make(tmp_path / "run")
    with pytest.raises(ValueError, match="function"):
        run.log(1, {"loss": lambda: 0})
    with pytest.raises(AssertionError, match="step 2 came where step 1"):
        run.log(2, {})
    with pytest.raises(AssertionError, match="logged as step 1"):
        run.log(1, {"step": 5})
    with pytest.raises(AssertionError, match="where step 1 is next"):
        run.save(4, put("x"))
    assert run.rows("metrics") == ([], 0)
    numpy = pytest.importorskip("numpy")
    assert plain({"a": numpy.float32(0.5), 3: (numpy.array([1.0, math.inf]), {2})}) == {"a": 0.5, "3": [[1.0, "inf"], [2]]}
    assert dumps({"text": "\ud800\n"}) == '{"text": "\\ud800\\n"}', "a lone surrogate from a model can be written"


def test_a_full_disk_at_twenty_points_is_one_sentence_and_loses_nothing(tmp_path):
    def full(folder, limit):
        run = Run.open(folder)
        run.resume()
        logged(run, 2)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(DiskFull, match=r"000002: it needs at least 6\d,\d\d\d bytes, [\d,]+ are free") as caught:
            run.save(2, put("two " * 800))
        assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
        assert names(folder / "checkpoints") == ["000001"] and run.latest().name == "000001"
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        run.save(2, put("two " * 800))
        assert run.resume().name == "000002"

    for limit in range(1000, 61000, 3000):
        folder = tmp_path / f"run{limit}"
        with logged(make(folder), 1).locked() as run:
            run.save(1, put("one " * 750))  # a little over 60,000 bytes
        assert in_child(lambda folder=folder, limit=limit: full(folder, limit)) == 0


def test_a_row_that_does_not_fit_is_absent(tmp_path):
    def full():
        run = logged(make(tmp_path / "run"), 3)
        path = run.folder / "metrics.jsonl"
        whole = path.read_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for room in range(0, 20, 4):
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + room, hard))
            with pytest.raises(DiskFull, match="metrics.jsonl"):
                run.log(4, {"loss": 0.123456789})
            assert path.read_bytes() == whole and run.next_step == 4
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        logged(run, 4)
        assert run.curve("loss")[0] == [1, 2, 3, 4]

    assert in_child(full) == 0


def test_safetensors_own_words_for_a_full_disk_are_understood(tmp_path):
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")

    def full():
        run = logged(make(tmp_path / "run"), 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(DiskFull, match="at least 80,000 bytes"):
            run.save(1, lambda folder: safetensors.save_file({"w": numpy.zeros(10_000)}, folder / "w.safetensors"), size=80_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert names(run.folder / "checkpoints") == []

    assert in_child(full) == 0


def holder(folder):
    """A child that trains in the folder until killed; returns its pid once it holds the lock."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        run = logged(make(folder), 1)
        run.status("running")
        os.write(write, b"1")
        signal.pause()
        os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.close(read)
    return pid


def test_two_processes_cannot_train_in_one_folder_and_a_kill_frees_it(tmp_path):
    folder = tmp_path / "run"
    pid = holder(folder)
    try:
        run = Run.open(folder)
        for write in (run.resume, lambda: run.log(2, {}), lambda: run.save(1, put("x")), lambda: run.status("done"),
                      lambda: run.event("a", "b"), lambda: run.rewind(0)):
            with pytest.raises(RunBusy, match=f"process {pid} is training"):
                write()
        assert run.state()["state"] == "running" and run.alive() and run.summary()["step"] == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert run.state()["state"] == "interrupted" and list_runs(tmp_path)[0]["state"] == "interrupted"
    assert run.resume() is None and run.next_step == 1, "no checkpoint: from the first step"
    assert run.state()["state"] == "running"


def test_one_process_cannot_write_twice_and_an_end_frees_the_lock(tmp_path):
    run = logged(make(tmp_path / "run"), 1)
    other = Run.open(run.folder)
    with pytest.raises(RunBusy):
        other.log(2, {})
    run.status("stopped", error="stopped by SIGTERM")
    assert not other.alive() and other.state()["error"] == "stopped by SIGTERM"
    other.log(2, {})
    with pytest.raises(RunBusy):
        run.log(2, {})
    other.close()
    run.log(3, {})  # what the other wrote is seen
    assert run.next_step == 4


def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path):
    keep_read, keep_write = os.pipe()

    def parent():
        run = logged(make(tmp_path / "run"), 1)
        if os.fork() == 0:
            os.close(keep_write)
            try:
                run.log(2, {})
                os.write(told_write, b"wrote")
            except RunBusy:
                os.write(told_write, b"busy")
            os.read(keep_read, 1)  # lives on until the test lets go
            os._exit(0)
        assert os.read(told_read, 9) == b"busy"
        os.kill(os.getpid(), signal.SIGKILL)

    told_read, told_write = os.pipe()
    assert in_child(parent) == -signal.SIGKILL
    assert not Run.open(tmp_path / "run").alive(), "the worker lives, the trainer does not"
    for fd in (keep_read, keep_write, told_read, told_write):
        os.close(fd)


def test_create_refuses_what_is_taken_and_leaves_nothing_behind(tmp_path):
    make(tmp_path / "run").close()
    with pytest.raises(ValueError, match="already holds a run: resume it, or"):
        make(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    with pytest.raises(ValueError, match="not an empty folder"):
        make(tmp_path / "mine")
    with pytest.raises(ValueError, match="choose a place you can write to"):
        make(tmp_path / "mine" / "notes.txt" / "run")
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        Run.create(tmp_path / "bad", recipe="r", config={"f": print}, steps=1)
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty").close()
    assert names(tmp_path) == ["empty", "mine", "run"] and names(tmp_path / "mine") == ["notes.txt"]


def test_open_says_what_is_wrong(tmp_path):
    make(tmp_path / "grpo-one").close()
    with pytest.raises(ValueError, match="did you mean grpo-one"):
        Run.open(tmp_path / "grpo-on")
    with pytest.raises(ValueError, match="runs there: none"):
        Run.open(tmp_path / "nowhere" / "at-all")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="has no run.json"):
        Run.open(tmp_path / "other")
    (tmp_path / "grpo-one" / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"config.json is not a JSON object \(it holds a list\)"):
        Run.open(tmp_path / "grpo-one")
    (tmp_path / "grpo-one" / "run.json").write_text('{"recipe": ')
    with pytest.raises(ValueError, match="run.json is not a JSON object"):
        Run.open(tmp_path / "grpo-one")
    assert [(run["name"], run["state"]) for run in list_runs(tmp_path)] == [("grpo-one", "broken")]


def test_the_list_of_runs(tmp_path):
    first = make(tmp_path / "first", created=1.0, task="arithmetic")
    for step in range(1, 101):
        first.log(step, {"loss": 1.0, "reward": step / 100, "time/step": 0.5})
    first.log_eval(50, {"pass@1": 0.3})
    first.log_eval(100, {"pass@1": 0.4})
    first.status("done")
    second = make(tmp_path / "second", created=2.0)
    second.log(1, {"loss": 2.0})
    second.status("failed", error="ValueError: no")
    (tmp_path / "not-a-run").mkdir()
    b, a = list_runs(tmp_path)
    assert (a["name"], a["state"], a["task"], a["step"], a["reward"], a["pass@1"], a["seconds"]) == (
        "first", "done", "arithmetic", 100, 1.0, 0.4, 50.0)
    assert a["series_name"] == "reward" and 20 <= len(a["series"]) <= 32 and a["series"][-1] == 1.0
    assert (b["name"], b["state"], b["error"]) == ("second", "failed", "ValueError: no")
    assert b["reward"] is None and b["series_name"] == "loss"
    assert first.curve("pass@1") == ([50, 100], [0.3, 0.4]) and first.curve("nothing") == ([], [])
    (tmp_path / "second" / "status.json").write_text("")
    assert Run.open(tmp_path / "second").state()["state"] == "unknown"


def test_names():
    for good in ("a", "grpo-arithmetic_1.2", "0" * 100):
        assert check_name(good) == good
    for bad in ("", ".", "..", "../x", "a/b", "a\\b", ".hidden", "-rf", "a b", "a\n", "é", "a.", "x" * 101, "a\x00", None):
        with pytest.raises(ValueError, match="cannot name a run"):
            check_name(bad)
