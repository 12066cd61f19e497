"""Rows of published data sets, from local files or the hub. Errors name file and line; nothing is executed.

.jsonl and .jsonl.gz (an object a line), .json (a list of objects), .csv (a header line),
.parquet (with pyarrow: pip install 'postgrad[data]').
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from postgrad.data.rows import BadRows, DataRow, json_lines, parse_json_bytes
from postgrad.system.files import error_text
from postgrad.system.hub import download

LONGEST_LINE = 1_000_000     # bytes
LONGEST_LIST = 256_000_000   # bytes of a .json file
SMALL, PACKED = 2**24, 50    # limit of an unpacked file: SMALL bytes + PACKED times its packed size
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv")

Rows = list[tuple[str, DataRow]]  # (where, row): ("train.jsonl, line 3", {...})


@dataclass(frozen=True, kw_only=True)
class Published:
    """hub: split -> (dataset, file pattern). local: how to name a copy, for messages. files: names of one
    file with all rows."""

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
    """The rows of a data set by split; under "" if they are in one file.

    dataset_rows("gsm8k", "data/gsm8k") reads train.jsonl and test.jsonl there (or .jsonl.gz, .json,
    .parquet); dataset_rows("mbpp", "mbpp.jsonl") that file; dataset_rows("gsm8k") the hub's.
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
    """train.jsonl, train.parquet, train-00000-of-00001.parquet, ... in a folder."""
    named = ([folder / f"{split}{suffix}" for suffix in SUFFIXES]
             + sorted(folder.glob(f"{split}-00000-of-00001.parquet")))
    return next((path for path in named if path.is_file()), None)


def _from_hub(name: str, id: str, pattern: str) -> Rows:
    folder = download(id, [pattern], kind="dataset", instead=f"write {SETS[name].local}")
    return [row for path in sorted(folder.glob(pattern)) for row in read_rows_file(path)]


def read_rows_file(path: Path) -> Rows:
    """The rows of one file; the suffix is its format."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    if path.name.endswith(".parquet"):
        return _parquet(path)
    if path.name.endswith(".json"):
        return _list(path)
    if path.name.endswith(".csv"):
        return _csv(path)
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise ValueError(f"{path.name} is no file of rows: expected {', '.join(SUFFIXES)}.")
    if not path.name.endswith(".gz"):
        with path.open("rb") as file:
            return read_lines(file, path.name)
    try:
        with gzip.open(path) as file:
            left = room_for(path)
            while block := file.read(2**20):  # measures the unpacked size first
                left -= len(block)
                if left < 0:
                    raise too_large(path.name, room_for(path))
            file.seek(0)
            return read_lines(file, path.name)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"{path.name} is not a sound gzip file ({fault}): fetch it again.") from None


def room_for(path: Path) -> int:
    """The most bytes that a packed file may unpack to; text packs a few times, a bomb a thousand times."""
    return SMALL + PACKED * path.stat().st_size


def too_large(name: str, room: int) -> ValueError:
    return ValueError(f"{name} unpacks to over {room:,} bytes, far more than text does: unpack it, and see "
                      "what is in it.")


def read_lines(file: IO[bytes] | gzip.GzipFile, name: str) -> Rows:
    rows = Rows()
    bad = BadRows(hint='Expected one JSON object a line, like {"question": "What is 2+3?", "answer": "5"}.')
    for _, where, parse in json_lines(file, f"{name}, line", LONGEST_LINE):
        with bad.row():
            rows.append((where, parse()))
    bad.settle(name)
    return _some(rows, name, "write one JSON object a line, with a question and an answer")


def _list(path: Path) -> Rows:
    if path.stat().st_size > LONGEST_LIST:
        raise ValueError(f"{path.name} is over {LONGEST_LIST:,} bytes: write it as .jsonl, which is "
                         "read line by line.")
    try:
        rows = parse_json_bytes(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON in UTF-8: {error_text(error)}; expected a list of "
                         "objects.") from None
    if not isinstance(rows, list):
        raise ValueError(f"{path.name}: a {type(rows).__name__} where a JSON list of objects should stand.")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(f"{path.name}, entry {number} is a {type(row).__name__}; each entry must be an "
                             "object in braces.")
    return _numbered(rows, path.name, "entry")


def _csv(path: Path) -> Rows:
    """Rows of texts; the first line names the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not CSV in UTF-8: {error_text(error)}.") from None
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise ValueError(f"{path.name}, row {number} has another number of fields than the first line "
                             "has columns: quote texts that hold commas or line breaks.")
    return _numbered([dict(row) for row in rows], path.name, "row")


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
        text = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise ValueError(f"{path.name} is not a sound parquet file ({text:.120}): fetch it again.") from None
    return _numbered(rows, path.name, "row")


def _numbered(rows: list[DataRow], name: str, unit: str) -> Rows:
    return _some([(f"{name}, {unit} {number}", row) for number, row in enumerate(rows, start=1)], name,
                 "give it some")


def _some(rows: Rows, name: str, remedy: str) -> Rows:
    if not rows:
        raise ValueError(f"{name} holds no rows: {remedy}.")
    return rows

