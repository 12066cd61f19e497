"""Strict JSON, and the lines of the logs: a row is one line, whole or absent.

A float that is not finite is written as "nan", "inf" or "-inf", and `number` turns it back.
Left out on purpose: which rows a log holds and in which order (`folder`).
"""

from __future__ import annotations

import errno
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
LARGEST = 2**53 - 1     # a step that a browser can count
LONGEST = 2**24         # bytes of a row
READ, LOG = 2**30, 2**35  # bytes of a log that are read at once, and of any log
JsonDict = dict[str, Any]  # a JSON object: a file of a run, a row of a log
JsonMapping = Mapping[str, Any]  # one that is only read

STEP = re.compile(rb'\{"step": (\d+)[,}]')


def json_value(x: Any) -> Any:
    """x as strict JSON can hold it: nan -> "nan", tensor([1., inf]) -> [1.0, "inf"], a
    dataclass -> a dict."""
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
    """Whether a list is strict JSON as it is, by one look at the types in it: the tokens of a sample, say."""
    kinds = set(map(type, x))
    return kinds <= {str, int, bool} or (kinds == {float} and all(map(math.isfinite, x)))


def number(x: object) -> float:
    """A logged value as a float: 3 -> 3.0, "nan" -> nan; what is no number -> nan."""
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
    """Why a file of a run was not opened."""
    return "it is a link" if error.errno == errno.ELOOP else error_text(error)


# lines

def parse_row(line: bytes) -> JsonDict | None:
    """A row, or None for a line that is none (a damaged disk)."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and "step" in row and is_step(row["step"]) else None


def is_step(x: object) -> bool:
    return x is None or (isinstance(x, int) and not isinstance(x, bool) and 0 <= x <= LARGEST)


def open_log(path: Path) -> int:
    """A descriptor to append rows; a line that a kill tore is cut off first."""
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
    """One write; when it fails, nothing of the line stays."""
    size = os.fstat(fd).st_size
    try:
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(fd, size)  # a row is whole or absent
        raise


def open_to_read(path: Path, most: int = LOG) -> BinaryIO:
    """A log as it lies in its run: a plain file, no link, of at most so many bytes."""
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
    """The whole rows behind byte `after` (in the next `most` bytes), and the byte behind them; from 0 where
    `after` is no line's start."""
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
    rows = [parse_row(line) for line in data[start:end].split(b"\n") if line]
    return [row for row in rows if row is not None], after - start + end


# one step of a long log: its lines are in the order of their steps, so a step is found by halving, and
# nothing else is read

def first_line(file: BinaryIO, start: int, end: int) -> tuple[int, bytes, int] | None:
    """The first whole row that begins in start .. end - 1: where, its line, its step."""
    file.seek(max(start - 1, 0))
    if start:
        file.readline(LONGEST)
    while (at := file.tell()) < end and (line := file.readline(LONGEST)).endswith(b"\n"):
        if found := STEP.match(line):
            return at, line, int(found[1])
    return None


def begin_of(file: BinaryIO, step: int) -> int:
    """The byte at which the rows of steps >= step begin."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while low < high:
        middle = (low + high) // 2
        found = first_line(file, middle, high)
        if found and found[2] < step:
            low = found[0] + len(found[1])
        else:
            high = middle
    return low


def last_logged_step(file: BinaryIO, before: int) -> int | None:
    """The step of the last row that ends at or before this byte."""
    back = 4096
    while before:
        start, found = max(0, before - back), None
        at = start
        while line := first_line(file, at, before):
            found, at = line[2], line[0] + len(line[1])
        if found is not None or not start:
            return found
        back *= 8
    return None


def read_step(path: Path, step: int) -> tuple[list[JsonDict], int | None, int | None]:
    """The rows of the newest logged step that is not after `step` (of the first one, if all are), and the
    logged steps before and after it."""
    try:
        with open_to_read(path) as file:
            whole = os.fstat(file.fileno()).st_size
            behind = begin_of(file, step + 1)
            found = last_logged_step(file, behind) if behind else None
            if found is None:
                opening = first_line(file, 0, whole)
                if opening is None:
                    return [], None, None
                found = opening[2]
            start, end = begin_of(file, found), begin_of(file, found + 1)
            file.seek(start)
            rows = [parse_row(line) for line in file.read(end - start).split(b"\n") if line]
            after = first_line(file, end, whole)
            return ([row for row in rows if row is not None], last_logged_step(file, start),
                    after[2] if after else None)
    except FileNotFoundError:
        return [], None, None


def cut_log(path: Path, step: int) -> int:
    """Keep the whole rows with step <= step (or none); -> how many lines were dropped."""
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
