"""Rows of published data sets, from files on this machine or from the hub.

Every fault is named by file and line.

.jsonl and .jsonl.gz (an object a line), .json (a list of objects), .parquet (with pyarrow: pip install
'postgrad[data]'). Nothing that is read here is executed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from postgrad.data.rows import BadRows, DataRow, parse_json_bytes
from postgrad.system.hub import download

LONGEST_LINE = 1_000_000     # bytes
LONGEST_LIST = 256_000_000   # bytes of a .json file, which is read whole
SMALL, PACKED = 2**24, 50    # a packed file may unpack to so many bytes, and so many times its own size
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")

Rows = list[tuple[str, DataRow]]  # (where it stands, the row): ("train.jsonl, line 3", {...})


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where a data set lies on the hub (for each split its dataset and the files there),
    and how it is named on a machine.

    Published(local="humaneval:FILE (HumanEval.jsonl.gz)", files=("HumanEval.jsonl.gz",),
              hub={"test": ("openai/openai_humaneval", "openai_humaneval/test-*.parquet")})
    files: the names that its authors gave to one file with all its rows.
    """

    hub: Mapping[str, tuple[str, str]]
    local: str
    files: tuple[str, ...] = ()


_MBPP, _PARTS = "google-research-datasets/mbpp", ("prompt", "train", "validation", "test")
SETS = {
    "gsm8k": Published(
        hub={split: ("openai/gsm8k", f"main/{split}-*.parquet") for split in ("train", "test")},
        local="gsm8k:FOLDER (with train.jsonl and test.jsonl)"),
    "mbpp": Published(
        hub={split: (_MBPP, f"full/{split}-*.parquet") for split in _PARTS},
        local="mbpp:FILE (mbpp.jsonl)", files=("mbpp.jsonl",)),
    "mbpp-sanitized": Published(
        hub={split: (_MBPP, f"sanitized/{split}-*.parquet") for split in _PARTS},
        local="mbpp-sanitized:FILE (sanitized-mbpp.json)", files=("sanitized-mbpp.json",)),
    "humaneval": Published(
        hub={"test": ("openai/openai_humaneval", "openai_humaneval/test-*.parquet")},
        local="humaneval:FILE (HumanEval.jsonl.gz)", files=("HumanEval.jsonl.gz", "HumanEval.jsonl")),
    "math": Published(
        hub={"train": ("EleutherAI/hendrycks_math", "*/train-*.parquet"),
             "test": ("HuggingFaceH4/MATH-500", "test.jsonl")},
        local="math:FILE (rows with problem and solution), or math:FOLDER (with train.jsonl and test.jsonl)"),
}


def dataset_rows(name: str, source: str = "") -> dict[str, Rows]:
    """The rows of a data set by split; all under "" where they lie in one file.

    rows_of("gsm8k", "data/gsm8k") reads train.jsonl and test.jsonl there (or .jsonl.gz, .json, .parquet);
    rows_of("mbpp", "mbpp.jsonl") that file; rows_of("gsm8k") what the hub has.
    """
    published = SETS[name]
    if not source:
        return {split: _from_hub(name, *place) for split, place in published.hub.items()}
    path = Path(source).expanduser()
    if path.is_file():
        return {"": read_rows_file(path)}
    if not path.exists():
        raise ValueError(f"there is nothing at {source}: write {published.local}.")
    for named in published.files:
        if (path / named).is_file():
            return {"": read_rows_file(path / named)}
    files = {split: file for split in published.hub if (file := split_file(path, split))}
    if missing := [split for split in published.hub if split not in files]:
        raise ValueError(f"{source} has no file of the split {missing[0]!r}: write {published.local}.")
    return {split: read_rows_file(file) for split, file in files.items()}


def split_file(folder: Path, split: str) -> Path | None:
    """The file of a split in a folder: train.jsonl, train.parquet, train-00000-of-00001.parquet,
    ..., or None."""
    named = ([folder / f"{split}{suffix}" for suffix in SUFFIXES]
             + sorted(folder.glob(f"{split}-00000-of-00001.parquet")))
    return next((path for path in named if path.is_file()), None)


def _from_hub(name: str, id: str, pattern: str) -> Rows:
    folder = download(id, [pattern], kind="dataset", instead=f"write {SETS[name].local}")
    return [row for path in sorted(folder.glob(pattern)) for row in read_rows_file(path)]


def read_rows_file(path: Path) -> Rows:
    """The rows of one file, each with the place where it stands; the suffix says how it is written."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    if path.name.endswith(".parquet"):
        return _parquet(path)
    if path.name.endswith(".json"):
        return _list(path)
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise ValueError(f"{path.name} is no file of rows: expected {', '.join(SUFFIXES)}.")
    if not path.name.endswith(".gz"):
        with path.open("rb") as file:
            return read_lines(file, path.name)
    try:
        with gzip.open(path) as file:
            left = room_for(path)
            while block := file.read(2**20):  # unpacked once for its size alone, which takes no time
                left -= len(block)
                if left < 0:
                    raise too_large(path.name, room_for(path))
            file.seek(0)
            return read_lines(file, path.name)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"{path.name} is not a sound gzip file ({fault}): fetch it again.") from None


def room_for(path: Path) -> int:
    """The bytes that a packed file may unpack to: text is packed a few times, a bomb a thousand times."""
    return SMALL + PACKED * path.stat().st_size


def too_large(name: str, room: int) -> ValueError:
    return ValueError(f"{name} unpacks to over {room:,} bytes, far more than text does: unpack it, and see "
                      "what is in it.")


def read_lines(file: IO[bytes] | gzip.GzipFile, name: str) -> Rows:
    """The rows of lines of JSON; a line that is no JSON object raises, named by its number."""
    rows, line, bad = [], 0, BadRows()
    while raw := file.readline(LONGEST_LINE + 1):
        line += 1
        where = f"{name}, line {line}"
        if len(raw) > LONGEST_LINE:
            raise ValueError(f"{where}: longer than {LONGEST_LINE:,} bytes, which no question is: is this "
                             "a .jsonl file?")
        if raw.strip():
            with bad.row():
                rows.append((where, _row(raw, where, first=line == 1)))
    bad.settle(name)
    return _some(rows, name, "write one JSON object a line, with a question and an answer")


def _row(raw: bytes, where: str, first: bool) -> DataRow:
    try:
        row = parse_json_bytes(raw, first=first)
    except (ValueError, RecursionError) as fault:  # not UTF-8, not JSON, a repeated key, NaN, too deep
        raise ValueError(f"{where}: {_say(fault)}; expected one JSON object like "
                         '{"question": "What is 2+3?", "answer": "5"}.') from None
    return _object(row, where)


def _list(path: Path) -> Rows:
    if path.stat().st_size > LONGEST_LIST:
        raise ValueError(f"{path.name} is over {LONGEST_LIST:,} bytes: write it as .jsonl, which is "
                         "read line by line.")
    try:
        rows = parse_json_bytes(path.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{path.name}: {_say(fault)}; expected a JSON list of objects.") from None
    if not isinstance(rows, list):
        raise ValueError(f"{path.name}: a {type(rows).__name__} where a JSON list of objects should stand.")
    places = [f"{path.name}, entry {number}" for number in range(1, len(rows) + 1)]
    return _some([(where, _object(row, where)) for where, row in zip(places, rows, strict=True)], path.name,
                 "give it some")


def _parquet(path: Path) -> Rows:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ValueError(f"{path.name} is a parquet file, which needs pyarrow: pip install 'postgrad[data]', "
                         "or give the rows as .jsonl.") from None
    try:
        file, rows, left = parquet.ParquetFile(path), [], room_for(path)
        if file.metadata.num_rows > path.stat().st_size:
            raise ValueError(f"{path.name} has {file.metadata.num_rows:,} rows in {path.stat().st_size:,} "
                             "bytes, so they can only be one row again and again: see what is in it.")
        for batch in file.iter_batches(batch_size=1024):
            left -= batch.nbytes
            if left < 0:
                raise too_large(path.name, room_for(path))
            rows += batch.to_pylist()
    except (ArrowException, OSError, MemoryError) as fault:
        said = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise ValueError(f"{path.name} is not a sound parquet file ({said:.120}): fetch it again.") from None
    return _some([(f"{path.name}, row {number}", row) for number, row in enumerate(rows, start=1)], path.name,
                 "give it some")


def _some(rows: Rows, name: str, remedy: str) -> Rows:
    if not rows:
        raise ValueError(f"{name} holds no rows: {remedy}.")
    return rows


def _object(row: object, where: str) -> DataRow:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a {type(row).__name__} where a JSON object should stand.")
    return row


def _say(fault: Exception) -> str:
    if isinstance(fault, UnicodeDecodeError):
        return f"not UTF-8 at byte {fault.start}"
    if isinstance(fault, UnicodeEncodeError):
        return f"half a character, {ascii(fault.object[fault.start])}"
    return f"not JSON ({fault})" if isinstance(fault, json.JSONDecodeError) else str(fault)
