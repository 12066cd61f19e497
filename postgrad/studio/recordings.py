"""What tools/recordings.py wrote down of real models, for the instruments:
answers, groups of samples, pairs to label."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "embedded" / "recordings"


@cache
def recorded(name: str) -> dict:
    """pipeline, group or pairs. Read once; not to be changed."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
