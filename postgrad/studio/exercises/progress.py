"""What a reader has solved and written: one JSON file in the user's state folder, $XDG_STATE_HOME/postgrad/
exercises.json (~/.local/state where that is not set). The command and the studio share it; nothing leaves the
machine.

    {"solved": {"dpo": {"when": 1790000000.0, "tries": 3, "answer": "def dpo..."}},
     "tries": {"gae": 2}, "written": {"why-a-group": "Because..."}}
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from postgrad.studio.json_types import JsonDict
from postgrad.system.files import error_text, load_json, write_text


@dataclass(kw_only=True)
class Progress:
    """solved: when, after how many tries and by which answer; tries: of what is not solved yet; written: the
    reader's own answers to questions."""

    solved: dict[str, JsonDict] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def tried(self, name: str, answer: str, passed: bool, now: float | None = None) -> None:
        """An answer was checked. The first one that passes is kept."""
        if name in self.solved:
            return
        self.tries[name] = self.tries.get(name, 0) + 1
        if passed:
            self.solved[name] = {"when": time.time() if now is None else now, "tries": self.tries.pop(name),
                                 "answer": answer}

    def record(self) -> JsonDict:
        return {"solved": self.solved, "tries": self.tries, "written": self.written}


def progress_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "postgrad" / "exercises.json"


def load_progress(path: Path | None = None) -> Progress:
    """What is kept, or nothing yet. A file that is no such record is a ValueError: it is not overwritten."""
    path = path or progress_file()
    try:
        kept = load_json(path)
        if not (isinstance(kept, dict) and kept.keys() <= {"solved", "tries", "written"}
                and all(isinstance(part, dict) for part in kept.values())
                and all(isinstance(one, dict) for one in kept.get("solved", {}).values())):
            raise ValueError("it is no record of exercises")
    except FileNotFoundError:
        return Progress()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error_text(error)}): move it away to start "
                         "over.") from error
    return Progress(**kept)


def save_progress(progress: Progress, path: Path | None = None) -> None:
    path = path or progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(progress.record(), indent=1) + "\n")
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error_text(error)}): move away what is "
                         "there.") from error
