"""What tools/recordings.py, record_reasoning.py, record_threads.py and workshop.py wrote down of real models,
for the instruments and the book."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from postgrad.studio.json_types import JsonDict

FOLDER = Path(__file__).parent.parent / "models" / "embedded" / "recordings"


@cache
def recording(name: str) -> JsonDict:
    """pipeline, group, pairs; choosing, languages, ledger, samplers, tries; threads; workshop; episodes. Read
    once; not to be changed."""
    found: JsonDict = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found
