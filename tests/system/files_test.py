"""A full disk is one sentence that adds up, and leaves nothing half-written behind."""

import errno
import os
from collections import namedtuple

import pytest

from postgrad.cli import main
from postgrad.models import checkpoint, find_model, weights
from postgrad.models.checkpoint import checkpoint_bytes
from postgrad.resolve.models import open_named_model
from postgrad.runs import Run
from postgrad.system import files
from postgrad.system.files import DiskFull, atomic_folder, write_text

Usage = namedtuple("Usage", "total used free")
SMALL = ["steps=1", "examples=4", "rows_per_step=2"]


def full_after(count):
    """A writer of tensors that meets a full disk half-way through its file, from call `count` on."""
    calls, write_all = [0], weights.write_tensors

    def write(tensors, path, *rest):
        calls[0] += 1
        if calls[0] >= count:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(tensors, path, *rest)
    return write


def free(monkeypatch, count):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: Usage(count, 0, count))


def test_export(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights, "write_tensors", full_after(1))
    assert main(["export", "tiny-chat", "--out", "there/mine"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("postgrad: no room to write there/mine: ") and said.count("\n") == 1
    assert "No space left on device" in said and not list(tmp_path.iterdir())


def test_a_model_that_is_saved(tmp_path, monkeypatch):
    model = open_named_model("tiny-chat")
    monkeypatch.setattr(weights, "write_tensors", full_after(1))
    with pytest.raises(DiskFull, match="no room to write"):
        model.save(tmp_path / "mine")
    assert not list(tmp_path.iterdir())


def test_a_gguf_file_that_is_converted(tmp_path, capsys, monkeypatch):
    gguf_test = pytest.importorskip("gguf_test")
    gguf_test.write(tmp_path / "x.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights, "write_tensors", full_after(1))
    assert main(["fetch", "x.gguf", "--out", "m"]) == 2
    assert "no room to write m" in capsys.readouterr().err and os.listdir(tmp_path) == ["x.gguf"]


@pytest.mark.parametrize(("keep", "count"), [("all", 8), ("4", 5), ("best", 2)])
def test_every_checkpoint_that_stays_is_counted_before_a_run(keep, count, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    free(monkeypatch, 1000)
    assert main(["train", "sft:words", "model=tiny", *SMALL, "steps=8", "save_every=1", f"keep={keep}",
                 "--run", "run"]) == 2
    assert f" MB for {count} checkpoints" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_training_counts_the_optimizer_in_what_a_checkpoint_needs(tmp_path, capsys, monkeypatch):
    """The sentence says more bytes than the weights alone have, and more than are free: before a run, and
    where the disk has become full since."""
    monkeypatch.chdir(tmp_path)
    model = 2 * (find_model("tiny") / "model.safetensors").stat().st_size  # it is stored in 16 bits
    train = ["train", "sft:words", "model=tiny", *SMALL, "--run", "run", "--json"]
    free(monkeypatch, 2 * model)  # room for the weights twice, which is not enough
    assert main(train) == 2 and not (tmp_path / "run").exists()
    said = capsys.readouterr().err
    asked = 1e6 * int(said.partition("run needs ")[2].partition(" MB for a checkpoint")[0])
    assert 2.5 * model < asked < 3.5 * model and f"{2 * model / 1e6:,.0f} MB are free" in said

    def fills(*rest):
        free(monkeypatch, 2 * model)
        full_after(1)(*rest)

    free(monkeypatch, 10 * model)
    monkeypatch.setattr(checkpoint, "write_tensors", fills)
    assert main(train) == 2
    said = capsys.readouterr().err
    needed = int(said.partition("at least ")[2].partition(" bytes")[0].replace(",", ""))
    assert 2.5 * model < needed < 3.5 * model and f"{2 * model:,} are free" in said and "quota" not in said
    run = Run.open("run")
    assert run.checkpoints() == {} and not list((run.folder / "checkpoints").iterdir())
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "run", "--json"]) == 0
    real = sum(p.stat().st_size for p in run.latest().iterdir() if p.suffix in (".safetensors", ".tensors"))
    assert abs(real - needed) < 0.05 * real, "what it said it needs is what it takes"


def test_where_there_is_room_the_disk_is_not_blamed(tmp_path, monkeypatch):
    free(monkeypatch, 10**9)
    error = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    assert "so a quota or a limit" in str(files.disk_full_error(tmp_path / "x", error, 10**6))
    assert "quota or a limit" not in str(files.disk_full_error(tmp_path / "x", error, 10**10))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_folder_and_a_file_are_whole_or_absent(tmp_path, monkeypatch, code):
    with pytest.raises(DiskFull, match="no room to write"), atomic_folder(tmp_path / "new") as made:
        (made / "half").write_text("x")
        raise OSError(code, os.strerror(code))
    write_text(tmp_path / "file", "old")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DiskFull):
        write_text(tmp_path / "file", "new")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def test_any_other_fault_of_the_system_is_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert main(["export", "tiny-chat", "--out", "file/mine"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("postgrad: ") and said.count("\n") == 1


def test_what_a_state_takes_is_counted_without_writing_it():
    model = open_named_model("tiny").net
    one = sum(p.numel() * 4 for p in model.parameters())
    moments = {"optim": {str(i): [p.detach(), p.detach()] for i, p in enumerate(model.parameters())}}
    assert checkpoint_bytes(moments, model) == 3 * one
