"""The reading path of one GRPO step: it does not grow, and it holds what docs/architecture.md names."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

CEILING = {"algorithm": 1504, "wiring": 1074}  # lines; lower them when the path gets shorter


@pytest.fixture(scope="module")
def listing():
    """In a process of its own: caches of other tests would hide what runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "proofs/reading_path.py"], cwd=ROOT, env=environment, check=True,
                          capture_output=True, text=True).stdout.splitlines()


def test_the_path_does_not_grow(listing):
    lines = dict.fromkeys(CEILING, 0)
    for line in listing[:-1]:
        kind, place, _ = line.split()
        first, last = map(int, place.rpartition(":")[2].split("-"))
        lines[kind] += last - first + 1
    assert listing[-1] == "{algorithm:,} lines of algorithm, {wiring:,} of wiring".format(**lines)
    assert all(lines[kind] <= most for kind, most in CEILING.items()), lines


def test_it_runs_through_the_modules_that_the_page_names(listing):
    page = (ROOT / "docs" / "architecture.md").read_text()
    order = page[page.index("To read the project"):page.index("## Rooms")]
    named = re.findall(r"\(\.\./postgrad/([^)]+)\)", order)
    ran = "\n".join(line.split()[1] for line in listing[:-1])
    assert len(named) >= 6 and all(f"{place}:" in ran or f"{place}/" in ran for place in named)
