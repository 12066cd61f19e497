"""Strict JSON, and the lines of the logs: a row is one line, complete or absent.

A non-finite float is written as "nan", "inf" or "-inf"; `number` converts it back.
Left out on purpose: which rows a log holds and in which order (`folder`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, SupportsFloat

from postgrad.system.files import error_text, load_json, open_regular

LOGS = ("metrics", "evals", "samples", "events")
SUMMED = LOGS[:3]       # whose rows have steps: a checkpoint holds their sums
LARGEST = 2**53 - 1     # a step that a browser can count
LONGEST = 2**24         # bytes of a row
TOGETHER = 500          # lines parsed at once
READ, LOG = 2**30, 2**35  # bytes of a log that are read at once, and of any log
JsonDict = dict[str, Any]  # a JSON object: a file of a run, a row of a log
JsonMapping = Mapping[str, Any]  # one that is only read

STEP = re.compile(rb'\{"step": (\d+)[,}]')


def json_value(x: Any) -> Any:
    """x as strict JSON: nan -> "nan", tensor([1., inf]) -> [1.0, "inf"], a dataclass -> a dict."""
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, float):
        return float(x) if math.isfinite(x) else str(float(x))
    if isinstance(x, Mapping):
        return {str(k): json_value(v) for k, v in x.items()}
    if isinstance(x, list) and is_column(x):
        return x
    if isinstance(x, list | tuple | set | frozenset):
        return [json_value(v) for v in x]
    if is_dataclass(x) and not isinstance(x, type):
        return json_value(asdict(x))
    if hasattr(x, "tolist"):  # arrays, tensors and their scalars
        return json_value(x.tolist())
    if isinstance(x, os.PathLike):
        return os.fspath(x)
    raise ValueError(f"{x!r:.80} ({type(x).__name__}) cannot be written as JSON: log numbers, text, "
                     "lists and dicts")


def is_column(x: list[Any]) -> bool:
    """Whether a flat list, such as a sample's tokens, is strict JSON already."""
    kinds = set(map(type, x))
    return kinds <= {str, int, bool} or (kinds == {float} and all(map(math.isfinite, x)))


def number(x: object) -> float:
    """A logged value as a float: 3 -> 3.0, "inf" -> inf; anything else -> nan."""
    if type(x) is float:
        return x
    try:
        return float(x) if isinstance(x, str | int | float | SupportsFloat) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def dumps(x: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(json_value(x), allow_nan=False, indent=indent, sort_keys=sort_keys)


def read_json(path: Path) -> JsonDict:
    """The object in a file of a run or a pipeline."""
    try:
        value = load_json(path, flags=os.O_NOFOLLOW)
        if isinstance(value, dict):
            return value
        fault = f"it holds a {type(value).__name__}"
    except OSError as error:
        raise ValueError(f"cannot read {path} ({unreadable(error)}): the run is broken or "
                         "not yours to read") from error
    except ValueError as error:
        fault = error_text(error)
    raise ValueError(f"{path} is not a JSON object ({fault}): the run is broken; restore the "
                     "file from a copy")


def unreadable(error: OSError) -> str:
    """Why a file of a run cannot be opened."""
    return "it is a link" if error.errno == errno.ELOOP else error_text(error)


# lines

def parse_row(line: bytes) -> JsonDict | None:
    """The row of a line; None for a damaged line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if is_row(row) else None


def parse_rows(lines: list[bytes]) -> list[JsonDict]:
    """The rows of lines without the damaged ones; hundreds are parsed at once, unless one is damaged."""
    found: list[JsonDict | None] = []
    for start in range(0, len(lines), TOGETHER):
        some = lines[start:start + TOGETHER]
        try:
            values = json.loads(b"[%s]" % b",0,".join(some))  # 0: in an object that goes on, it is no JSON
        except (ValueError, RecursionError):
            values = []
        rows = values[::2]
        whole = len(rows) == len(some) and values[1::2] == [0] * (len(some) - 1) and all(map(is_row, rows))
        found += rows if whole else map(parse_row, some)
    return [row for row in found if row is not None]


def is_row(x: object) -> bool:
    return isinstance(x, dict) and "step" in x and is_step(x["step"])


def is_step(x: object) -> bool:
    return x is None or (isinstance(x, int) and not isinstance(x, bool) and 0 <= x <= LARGEST)


def open_log(path: Path) -> int:
    """A descriptor to append rows; a line torn by a kill is cut off first."""
    fd = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    size = end = os.fstat(fd).st_size
    while end:
        start = max(0, end - 65536)
        whole = os.pread(fd, end - start, start).rfind(b"\n") + 1
        end = start + whole
        if whole:
            break
    if end < size:
        os.ftruncate(fd, end)
    return fd


def append(fd: int, line: bytes) -> None:
    """Appends a line with one write; where that fails, nothing of it stays."""
    size = os.fstat(fd).st_size
    try:
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(fd, size)
        raise


def open_to_read(path: Path, most: int = LOG) -> BinaryIO:
    """A log, opened: a regular file, no link, of at most `most` bytes."""
    try:
        file = open(open_regular(path, os.O_NOFOLLOW), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"cannot read {path} ({unreadable(error)}): the run is broken or "
                         "not yours to read") from error
    if (size := os.fstat(file.fileno()).st_size) > most:
        file.close()
        raise ValueError(f"{path} has {size:,} bytes, and no log has over {most:,}: the run is broken")
    return file


def read_log(path: Path, after: int, most: int = -1) -> tuple[list[JsonDict], int]:
    """The complete rows behind byte `after` (in the next `most` bytes), and the byte behind them; from 0
    where `after` is not the start of a line."""
    try:
        with open_to_read(path, READ if most < 0 else LOG) as file:
            file.seek(max(after - 1, 0))
            data = file.read(most if most < 0 else most + 1)
            if after and data[:1] != b"\n":
                file.seek(0)
                after, data = 0, file.read(most)
    except FileNotFoundError:
        return [], 0
    start, end = (1 if after else 0), data.rfind(b"\n") + 1
    return parse_rows([line for line in data[start:end].split(b"\n") if line]), after - start + end


# one step of a long log, by bisection: its lines are in the order of their steps

def first_line(file: BinaryIO, start: int, end: int) -> tuple[int, bytes, int] | None:
    """(offset, line, step) of the first complete row that begins in start .. end - 1."""
    file.seek(max(start - 1, 0))
    if start:
        file.readline(LONGEST)
    while (at := file.tell()) < end and (line := file.readline(LONGEST)).endswith(b"\n"):
        if step := STEP.match(line):
            return at, line, int(step[1])
    return None


def begin_of(file: BinaryIO, step: int) -> int:
    """The byte at which the rows of steps >= step begin."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while low < high:
        middle = (low + high) // 2
        row = first_line(file, middle, high)
        if row and row[2] < step:
            low = row[0] + len(row[1])
        else:
            high = middle
    return low


def last_logged_step(file: BinaryIO, before: int) -> int | None:
    """The step of the last row that ends at or before this byte."""
    back = 4096
    while before:
        start, step = max(0, before - back), None
        at = start
        while row := first_line(file, at, before):
            step, at = row[2], row[0] + len(row[1])
        if step is not None or not start:
            return step
        back *= 8
    return None


def read_step(path: Path, step: int) -> tuple[list[JsonDict], int | None, int | None]:
    """The rows of the newest logged step up to `step` (else of the first), and the logged steps before and
    after it."""
    try:
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            behind = begin_of(file, step + 1)
            logged = last_logged_step(file, behind) if behind else None
            if logged is None:
                opening = first_line(file, 0, size)
                if opening is None:
                    return [], None, None
                logged = opening[2]
            start, end = begin_of(file, logged), begin_of(file, logged + 1)
            file.seek(start)
            rows = parse_rows([line for line in file.read(end - start).split(b"\n") if line])
            after = first_line(file, end, size)
            return rows, last_logged_step(file, start), after[2] if after else None
    except FileNotFoundError:
        return [], None, None


def log_sums(folder: Path, step: int) -> dict[str, JsonDict]:
    """Of each log with steps: how many bytes the rows up to a step have, and their sha256."""
    sums: dict[str, JsonDict] = {}
    for name in SUMMED:
        path = folder / f"{name}.jsonl"
        with open_to_read(path) as file:
            end = begin_of(file, step + 1)
        sums[name] = {"bytes": end, "sha256": prefix_hash(path, end)}
    return sums


def prefix_hash(path: Path, length: int) -> str:
    """The sha256 of a log's first bytes."""
    digest = hashlib.sha256()
    with open_to_read(path) as file:
        while length > 0 and (piece := file.read(min(length, 2**20))):
            digest.update(piece)
            length -= len(piece)
    return digest.hexdigest()


def changed_logs(folder: Path, sums: object) -> list[str]:
    """Of the logs of a run, those that no longer begin with the bytes that `log_sums` saw, as sentences."""
    found = []
    for name in SUMMED:
        want = sums.get(name) if isinstance(sums, dict) else None
        if not isinstance(want, dict) or not isinstance(want.get("bytes"), int):
            continue  # of an older version
        path = folder / f"{name}.jsonl"
        try:
            if prefix_hash(path, want["bytes"]) == want.get("sha256"):
                continue
            what = "has other contents than were written (sha256)"
        except FileNotFoundError:
            what = "is missing"
        found.append(f"{path} {what}: its rows up to the checkpoint cannot be relied on; the training, which "
                     "does not read them, goes on; restore the file from a copy")
    return found


def cut_log(path: Path, step: int) -> int:
    """Keeps the complete rows up to a step, and those without one; -> lines dropped."""
    temp, lost = path.with_name(f".{path.name}.tmp"), 0
    os.close(open_regular(path, os.O_CREAT | os.O_NOFOLLOW))
    temp.unlink(missing_ok=True)
    try:
        with open_to_read(path) as old, open(temp, "xb") as new:
            while line := old.readline(LONGEST):
                row = parse_row(line) if line.endswith(b"\n") else None
                if row is not None and (row["step"] is None or row["step"] <= step):
                    new.write(line)
                else:
                    lost += 1
            if lost:
                new.flush()
                os.fsync(new.fileno())
        if lost:
            os.replace(temp, path)
        return lost
    finally:
        temp.unlink(missing_ok=True)
