"""Locks, run folders and checkpoint folders that survive kills, full disks, flipped bits and links.

A folder is built under a hidden name, synced, and renamed into place: it is visible complete or not at all.
Nothing is written or deleted through a link inside a run, since a run may have been copied from anywhere.
Left out on purpose: steps and their order, and which checkpoints are kept (`folder`).
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from postgrad.runs.rows import JsonMapping, dumps, unreadable
from postgrad.system.files import disk_full_error, file_hash, is_full, open_regular, read_bytes

UNREADABLE = {errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO,
              errno.ENAMETOOLONG}


class DamagedCheckpoint(ValueError):
    """A checkpoint with files other than those saved; the message names the file."""


class RunBusy(ValueError):
    """Another process holds the run's lock."""


class RunGone(ValueError):
    """The folder was removed or replaced while this process wrote in it."""


# files

def fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:  # some network file systems sync no folders
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(fd)


def folder_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def raise_disk_error(folder: Path, error: BaseException, what: str, needed: int) -> NoReturn:
    """Raises DiskFull for a full disk, any other error as it is."""
    if not is_full(error):
        raise error
    raise disk_full_error(folder / what, error, needed,
                          "resume the run; what was saved before is intact") from error


def refuse_links(folder: Path) -> None:
    """Raises where a run holds anything but regular files and folders."""
    for home, folders, files in os.walk(folder):
        for path in (Path(home, name) for name in (*folders, *files)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                raise ValueError(f"{path} is {what}, and nothing is written or deleted through one in a run: "
                                 "put what it stands for in its place, or remove it")


# locks

def take_lock(path: Path) -> int:
    fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    for last in [False] * 9 + [True]:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if last:
                os.close(fd)
                raise
            time.sleep(0.01)  # a reader in `is_held` holds the lock for a moment
    raise AssertionError


def file_id(file: Path | int) -> tuple[int, int, int] | None:
    """Device, inode and mtime of a file that is never written to; None where it is missing. The mtime is
    needed because inodes are reused."""
    try:
        stats = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stats.st_dev, stats.st_ino, stats.st_mtime_ns


def is_held(path: Path | str) -> bool:
    try:
        fd = open_regular(path, os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def holder(path: Path) -> int | None:
    """The id of the process that holds a lock, by Linux's /proc/locks; None where unknown or not held."""
    try:
        inode, lines = path.stat().st_ino, Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    locks = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    return next((int(f[4]) for f in locks if f[5].rsplit(":", 1)[-1] == str(inode) and int(f[4]) > 0), None)


# run folders

def check_name(name: str) -> str:
    """The name, if it is valid for a run; else ValueError."""
    if (not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)
            or name.endswith(".")):
        raise ValueError(f"{name!r} cannot name a run: use 1 to 100 letters, digits, '.', '-' or '_', "
                         "starting with a letter or digit and not ending in '.', e.g. grpo-arithmetic-1")
    return name


def refuse_if_taken(folder: Path) -> None:
    if (folder / "run.json").exists():
        raise ValueError(f"{folder} already holds a run: resume it, or name another folder with --run "
                         "(in Python run=).")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder: name another folder with --run (in "
                         "Python run=), or move that away first.")


def refuse_if_unwritable(path: Path) -> None:
    """Raises, before any work, where a file could not be written."""
    there = next(p for p in Path(os.path.abspath(path)).parents if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"cannot write {path}: {there} is no folder that can be written in; choose a place "
                         "you can write to")


def refuse_if_none(folder: Path) -> None:
    if not folder.is_dir():
        names = [p.parent.name for p in folder.parent.glob("*/run.json")]
        near = difflib.get_close_matches(folder.name, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"runs there: {', '.join(sorted(names)[:8]) or 'none'}"
        raise ValueError(f"no run in {folder}; {hint}")
    if not (folder / "run.json").exists():
        raise ValueError(f"{folder} is not a run: it has no run.json. Name the folder that holds one")


def build_run_folder(folder: Path, texts: Mapping[str, str], logs: Iterable[str],
                     bring: Mapping[str, Path]) -> int:
    """Builds a run's folder beside its place and renames it; -> its lock, held. bring: folders that move
    into it."""
    temp, lock = folder.with_name(f".{folder.name}.tmp-{os.getpid()}"), None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(f".{folder.name}.tmp-*"):
            if not is_held(left / "lock"):
                shutil.rmtree(left, ignore_errors=True)
        (temp / "checkpoints").mkdir(parents=True)
        lock = take_lock(temp / "lock")
        for name, text in texts.items():
            (temp / name).write_text(text + "\n")
            fsync(temp / name)
        for name in logs:
            (temp / f"{name}.jsonl").touch()
        for name, path in bring.items():
            shutil.move(path, temp / name)
        fsync(temp)
        os.rename(temp, folder)  # over an empty folder it succeeds; over anything else it fails
        fsync(folder.parent)
        return lock
    except OSError as error:
        shutil.rmtree(temp, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # somebody else was faster
            refuse_if_taken(folder)
        raise ValueError(f"cannot make a run in {folder} ({error.strerror}): choose a place "
                         "you can write to") from error


# checkpoint folders

def checkpoint_folders(home: Path) -> dict[int, Path]:
    """step -> checkpoint folder, oldest first, not verified."""
    folders: dict[int, Path] = {}
    # '.old-000020' comes after '000020'
    for path in sorted(home.iterdir(), reverse=True) if home.is_dir() else ():
        name = path.name.removeprefix(".old-")
        if name.isdecimal():
            folders.setdefault(int(name), path)
    return dict(sorted(folders.items()))


def manifest(body: JsonMapping) -> bytes:
    """The canonical bytes of a manifest, with its own sha256."""
    return json.dumps({**body, "sha256": hashlib.sha256(dumps(body, sort_keys=True).encode()).hexdigest()},
                      sort_keys=True, indent=1).encode() + b"\n"


def seal(folder: Path, step: int, logs: JsonMapping) -> None:
    """Syncs every file of a checkpoint, then writes and syncs its manifest. logs: the sums of the run's
    logs."""
    paths = sorted(folder.rglob("*"))
    files = [p for p in paths if p.is_file()]
    assert files and not any(p.is_symlink()
                             for p in paths), f"a checkpoint is made of plain files; {folder} holds {paths}"
    for path in paths:
        fsync(path)
    sums = {p.relative_to(folder).as_posix(): {"bytes": p.stat().st_size,
                                               "sha256": file_hash(p, os.O_NOFOLLOW)} for p in files}
    with open(folder / "manifest.json", "wb") as file:
        file.write(manifest({"step": step, "files": sums, "logs": logs}))
        file.flush()
        os.fsync(file.fileno())
    fsync(folder)


def check_checkpoint(folder: Path, step: int) -> None:
    """Compares a checkpoint with its manifest; DamagedCheckpoint names the first file that differs."""
    def damaged(name: str, what: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(f"checkpoint of step {step} is damaged: {folder / name} {what}")

    try:
        raw = read_bytes(folder / "manifest.json", flags=os.O_NOFOLLOW)
        body = json.loads(raw)
        body.pop("sha256")
        intact = raw == manifest(body) and body["step"] == step and is_list_of_files(body["files"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno not in UNREADABLE:
            raise
        intact = False
    if not intact:
        raise damaged("manifest.json", "is missing or was changed")
    for name, want in body["files"].items():
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise damaged("manifest.json", f"names a file outside the checkpoint ({name!r:.100})")
        try:
            size = (folder / name).lstat().st_size
            if size != want["bytes"]:
                raise damaged(name, f"has {size:,} bytes, not {want['bytes']:,}")
            if file_hash(folder / name, os.O_NOFOLLOW) != want["sha256"]:
                raise damaged(name, "has other contents than were saved (sha256)")
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise damaged(name, f"cannot be read ({unreadable(error)})") from error


def is_list_of_files(files: object) -> bool:
    return isinstance(files, dict) and bool(files) and all(
        isinstance(want, dict) and isinstance(want.get("bytes"), int) and isinstance(want.get("sha256"), str)
        for want in files.values())


def publish(temp: Path, target: Path) -> None:
    """Renames a checkpoint into place, after one of the same step is renamed: one of the two always has a
    known name."""
    old = target.with_name(f".old-{target.name}")
    if target.exists():
        discard(old)
        os.rename(target, old)
    os.rename(temp, target)
    fsync(target.parent)
    discard(old)


def put_back(home: Path) -> None:
    """After a kill inside `publish`: restores the old folder of a step, or removes it where the new one is in
    place."""
    for old in home.glob(".old-*"):
        target = home / old.name.removeprefix(".old-")
        discard(old) if target.exists() else os.rename(old, target)


def discard(folder: Path) -> None:
    """Removes a folder; renamed first, so that a kill on the way leaves no damaged checkpoint."""
    if folder.exists():
        gone = folder.with_name(f".tmp-gone-{folder.name.removeprefix('.old-')}-{os.getpid()}")
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(folder, gone)
        shutil.rmtree(gone, ignore_errors=True)
