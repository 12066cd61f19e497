"""Bounded reads of files that may be anybody's, and atomic writes.

Only regular files of a bounded size are read: a pipe would block, a device would never end. What is written
gets its name when it is complete.
Left out on purpose: what is in the files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_BYTES = 2**26  # of a file of settings
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFull(ValueError):
    """No room to write; what was there before is intact."""


# reading

def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; OSError for anything else. flags: of os.open."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_bytes(path: Path | str, most: int = MAX_BYTES, flags: int = os.O_RDONLY) -> bytes:
    with open(open_regular(path, flags), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes, and {most:,} are read")
        return file.read(most)


def read_text(path: Path | str, most: int = MAX_BYTES) -> str:
    """UTF-8 text; ValueError with the file's name where it cannot be read."""
    try:
        return read_bytes(path, most).decode()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as text ({error_text(error)}).") from error


def load_json(path: Path | str, most: int = MAX_BYTES, flags: int = os.O_RDONLY) -> object:
    """The value in a JSON file. OSError where it cannot be read, ValueError where it is no JSON."""
    try:
        return json.loads(read_bytes(path, most, flags).decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as fault:
        if "set_int_max_str_digits" not in str(fault):  # Python's sentence about its own setting
            raise
        raise ValueError("it has a number of too many digits") from None


def file_hash(path: Path | str, flags: int = os.O_RDONLY) -> str:
    with open(open_regular(path, flags), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def error_text(error: BaseException) -> str:
    """The message of an error in one line; of the system's errors without the file's name."""
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


def is_fault(error: BaseException) -> bool:
    """An Exception, or the panic of a Rust library, which is a BaseException."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


# writing

def is_full(error: BaseException) -> bool:
    """Rust libraries (safetensors, tokenizers) give the errno only in their text."""
    code = re.search(r"\(os error (\d+)\)", str(error))
    return getattr(error, "errno", None) in FULL or code is not None and int(code[1]) in FULL


def disk_full_error(place: Path, error: BaseException, needed: int = 0,
         then: str = "try again; nothing of it was left behind") -> DiskFull:
    """The error for a full disk. needed: bytes, where known; where as many are free, a quota is meant. then:
    what to do when there is room."""
    free = shutil.disk_usage(next(p for p in (place, *place.absolute().parents) if p.is_dir())).free
    need = f"it needs at least {needed:,} bytes, {free:,} are free" if needed else f"{free:,} bytes are free"
    why = error_text(error) if isinstance(error, OSError) else os.strerror(errno.ENOSPC)
    other = ", so a quota or a limit on the size of files stands in the way" if 0 < needed <= free else ""
    return DiskFull(f"no room to write {place}: {need} ({why}){other}. Make room and {then}.")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when the block ends. Where the block fails, it is removed, with
    the parents that were made for it."""
    above = [place for place in folder.parents if not place.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
            made = Path(aside) / "made"
            made.mkdir()
            yield made
            made.rename(folder)
    except BaseException as error:
        for place in above:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
        if is_full(error):
            raise disk_full_error(folder, error) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Atomic: the file is the old or the new one. A symbolic link in its place is replaced, not followed."""
    temp = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    temp.unlink(missing_ok=True)
    try:
        with open(temp, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temp, path)
    except OSError as error:
        temp.unlink(missing_ok=True)
        if is_full(error):
            raise disk_full_error(path, error, len(text)) from error
        raise
