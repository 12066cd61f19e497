"""The plan against what was measured on one H200: tests/support/plan_points.py has the points.

A part of proofs/scale.py; takes a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

from plan_points import points  # noqa: E402
from results import bar  # noqa: E402


def planned(folder: Path) -> list[dict]:
    found = points()
    near, worst = [p for p in found if abs(p.off) <= 0.15], max(found, key=lambda p: abs(p.off))
    return [bar("postgrad plan against the points of docs/scale.md, measured on one H200 at the commit of "
                "docs/results/speed-h200.md", "within 15 %",
                f"{len(near)} of {len(found)}; furthest {worst.off:+.0%} ({worst.what})",
                len(near) == len(found), "python proofs/scale.py FOLDER plan")]


PARTS = {"plan": planned}
