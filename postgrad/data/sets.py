"""Rows of published data sets, from local files or the hub. Errors name file and line; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from postgrad.data.rows import SUFFIXES, BadRows, Rows, read_rows_file
from postgrad.system.hub import download


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


def dataset_rows(name: str, source: str = "", bad: BadRows | None = None) -> dict[str, Rows]:
    """The rows of a data set by split; under "" if they are in one file. bad: collects the bad rows.

    dataset_rows("gsm8k", "data/gsm8k") reads train.jsonl and test.jsonl there (or .jsonl.gz, .json,
    .parquet); dataset_rows("mbpp", "mbpp.jsonl") that file; dataset_rows("gsm8k") the hub's.
    """
    published = SETS[name]
    if not source:
        return {split: _from_hub(name, *place, bad) for split, place in published.hub.items()}
    path = Path(source).expanduser()
    if path.is_file():
        return {"": read_rows_file(path, bad)}
    if not path.exists():
        raise ValueError(f"there is nothing at {source}: write {published.local}.")
    for named in published.files:
        if (path / named).is_file():
            return {"": read_rows_file(path / named, bad)}
    files = {split: file for split in published.hub if (file := split_file(path, split))}
    if missing := [split for split in published.hub if split not in files]:
        raise ValueError(f"{source} has no file of the split {missing[0]!r}: write {published.local}.")
    return {split: read_rows_file(file, bad) for split, file in files.items()}


def split_file(folder: Path, split: str) -> Path | None:
    """train.jsonl, train.parquet, train-00000-of-00001.parquet, ... in a folder."""
    named = ([folder / f"{split}{suffix}" for suffix in SUFFIXES]
             + sorted(folder.glob(f"{split}-00000-of-00001.parquet")))
    return next((path for path in named if path.is_file()), None)


def _from_hub(name: str, id: str, pattern: str, bad: BadRows | None) -> Rows:
    folder = download(id, [pattern], kind="dataset", instead=f"write {SETS[name].local}")
    return [row for path in sorted(folder.glob(pattern)) for row in read_rows_file(path, bad)]
