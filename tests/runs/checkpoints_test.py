"""Checkpoints: whole or not there, found damaged by their hashes, kept and thrown away."""

from __future__ import annotations

import errno
import os
import shutil
import stat

import pytest
from run_small import logged, make, names, put

from postgrad.runs import LOGS, DamagedCheckpoint, Run, Saves
from postgrad.runs.disk import fsync, manifest


def test_everything_is_on_the_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    """The order that protects against a power cut: files, manifest, rows, rename,
    then the folder of checkpoints."""
    run = logged(make(tmp_path / "run"), 1)
    trace, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd:
                        (trace.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd)))
    monkeypatch.setattr(os, "rename",
                        lambda a, b: (trace.append(f"rename to {os.path.basename(b)}"), rename(a, b)))
    run.save(1, put("x"))
    at = {name: trace.index(name) for name in trace}
    assert {"state.json", "weights.bin", "model", "manifest.json", "checkpoints",
            *(f"{n}.jsonl" for n in LOGS)} <= set(at)
    assert max(at["state.json"], at["weights.bin"], at["model"]) < at["manifest.json"]
    assert (max(at["manifest.json"], at["metrics.jsonl"], at["samples.jsonl"], at["events.jsonl"])
            < at["rename to 000001"])
    assert at["rename to 000001"] < at["checkpoints"]


def test_a_file_system_may_sync_no_folders(tmp_path, monkeypatch):
    def refuse(file):
        raise OSError(errno.EINVAL if stat.S_ISDIR(os.fstat(file).st_mode) else errno.EIO, "")

    monkeypatch.setattr(os, "fsync", refuse)
    fsync(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        fsync(tmp_path / "file")


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
    assert (names(run.folder / "checkpoints") == ["000001"]
            and "old" in (run.latest() / "state.json").read_text())


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
        with path.open("r+b", buffering=0) as file:  # in place: a file written anew waits for the disk
            for bit in range(len(raw) * 8):
                for byte in (raw[bit // 8] ^ 1 << bit % 8, raw[bit // 8]):
                    file.seek(bit // 8)
                    file.write(bytes([byte]))
                    if byte != raw[bit // 8]:
                        with pytest.raises(DamagedCheckpoint, match=path.name):
                            run.verify(2)
                flips += 1
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


@pytest.mark.parametrize(("figure", "values", "best"), [
    ("pass@1", [0.2, 0.6, 0.4, 0.6, 0.5], 4),  # the later of equals
    ("accuracy", [0.2, 0.9, 0.4, 0.6, 0.5], 2),
    ("loss", [2.0, 1.0, 0.5, 0.7, float("nan")], 3)])
def test_the_best_checkpoint_stays(tmp_path, figure, values, best):
    run = make(tmp_path / "run")
    with Saves(run) as saves:
        for step, value in enumerate(values, start=1):
            run.log(step, {"loss": 0.0})
            run.log_eval(step, {figure: value, "loss": value if figure == "loss" else step})
            saves.start(step, put(str(step)), 10)
    assert run.best()[:2] == (best, figure)
    assert set(run.checkpoints()) == {best, 4, 5}
    assert f"@best (step {best}, {figure} " in run.checkpoint_sentence()
