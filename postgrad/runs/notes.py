"""What people write on a run: a name, tags, a note, whether it is archived. notes.json in its folder, so that
it goes where the run goes; nobody's lock is needed to write it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from postgrad.runs.rows import dumps, read_json
from postgrad.system.files import write_text

NOTES = "notes.json"
TAG = re.compile(r"[^\s,<>\"']{1,40}")
LONGEST = {"name": 100, "note": 10_000}
MOST_TAGS = 20


@dataclass(frozen=True, kw_only=True)
class RunNote:
    """RunNote(name="baseline, longer", tags=("paper",), note="seed 3 diverged at step 40")"""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False

    def __post_init__(self) -> None:
        for part, most in LONGEST.items():
            if len(text := getattr(self, part)) > most:
                raise ValueError(f"the {part} of a run has at most {most:,} characters; this has "
                                 f"{len(text):,}.")
        if "\n" in self.name:
            raise ValueError("the name of a run is one line.")
        if bad := [tag for tag in self.tags if not TAG.fullmatch(tag)]:
            raise ValueError(f"{bad[0]!r:.60} is no tag: 1 to 40 characters without spaces, commas and "
                             "quotes, e.g. paper.")
        if len(self.tags) > MOST_TAGS:
            raise ValueError(f"a run has at most {MOST_TAGS} tags; these are {len(self.tags)}.")


def split_tags(text: str) -> tuple[str, ...]:
    """"paper, best paper" -> ("paper", "best")"""
    return tuple(dict.fromkeys(filter(None, re.split(r"[\s,]+", text))))


def read_note(folder: Path | str) -> RunNote:
    """The note of a run; an empty one where there is none, or none that can be read."""
    path = Path(folder, NOTES)
    if not os.path.lexists(path):
        return RunNote()
    try:
        found = read_json(path)
        tags = found.get("tags")
        return RunNote(name=str(found.get("name") or ""), note=str(found.get("note") or ""),
                       tags=tuple(map(str, tags)) if isinstance(tags, Sequence) else (),
                       archived=found.get("archived") is True)
    except ValueError:  # somebody else wrote it
        return RunNote()


def write_note(folder: Path | str, note: RunNote) -> None:
    """Puts a note on a run; an empty one takes it away."""
    path = Path(folder, NOTES)
    if path.is_symlink():
        raise ValueError(f"{path} is a link, and nothing is written through one in a run: remove it first.")
    if note == RunNote():
        path.unlink(missing_ok=True)
    else:
        write_text(path, dumps(asdict(note), indent=1) + "\n")
