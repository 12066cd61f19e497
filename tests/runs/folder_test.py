"""The run folder on a full disk, with a second writer, and as it is made, opened and listed."""

from __future__ import annotations

import os
import resource
import signal

import pytest
from run_small import in_child, logged, make, names, put

from postgrad.runs import DiskFull, Run, RunBusy, check_name, list_runs


def test_a_full_disk_at_twenty_points_is_one_sentence_and_loses_nothing(tmp_path):
    def full(folder, limit):
        run = Run.open(folder)
        run.resume()
        logged(run, 2)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(DiskFull,
                           match=r"000002: it needs at least 6\d,\d\d\d bytes, [\d,]+ are free") as caught:
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
            run.save(1, lambda folder:
                     safetensors.save_file({"w": numpy.zeros(10_000)}, folder / "w.safetensors"), size=80_000)
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
        for write in (run.resume, lambda: run.log(2, {}), lambda: run.save(1, put("x")),
                      lambda: run.status("done"), lambda: run.event("a", "b"), lambda: run.rewind(0)):
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
    for bad in ("", ".", "..", "../x", "a/b", "a\\b", ".hidden", "-rf", "a b", "a\n", "é", "a.", "x" * 101,
                "a\x00", None):
        with pytest.raises(ValueError, match="cannot name a run"):
            check_name(bad)
