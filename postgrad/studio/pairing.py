"""Prompts that several runs have samples of, and the steps at which each has them: for samples side by side.

The log of samples is read once by cursor, up to a limit: what lies behind it is not paired,
and the page says so.
"""

from __future__ import annotations

import threading

from postgrad.runs import Run
from postgrad.studio.samples import clean

MOST = 16 << 20  # bytes of a log that are looked through


class Prompts:
    """prompt -> the steps at which a run sampled it."""

    def __init__(self, run: Run):
        self.run, self.at, self.steps, self.lock = run, 0, {}, threading.Lock()

    def refresh(self) -> dict[str, list[int]]:
        with self.lock:
            if self.at < MOST:
                rows, at = self.run.rows("samples", self.at, MOST - self.at)
                if at < self.at:
                    self.steps = {}
                self.at = at
                for row in rows:
                    steps = self.steps.setdefault(clean(row.get("prompt", "")), [])
                    if row["step"] not in steps[-1:] and isinstance(row["step"], int):
                        steps.append(row["step"])
            return self.steps

    @property
    def cut(self) -> int | None:
        """The step up to which the log was looked through, where it goes on behind."""
        rows, _ = self.run.rows("samples", self.at, MOST)
        return max((s for steps in self.steps.values() for s in steps), default=0) if rows else None


def shared(prompts: dict[str, dict[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """The prompts that every run has, by step; for each the steps of the runs that lie
    nearest to the first run's.

    shared({"a": {"2+2": [1, 9]}, "b": {"2+2": [8]}}) -> [("2+2", [1, 8]), ("2+2", [9, 8])]
    """
    first, *others = prompts.values()
    found = []
    for prompt, steps in first.items():
        if all(other.get(prompt) for other in others):
            found += [(prompt, [step, *(min(o[prompt], key=lambda s: (abs(s - step), s)) for o in others)])
                      for step in steps]
    return sorted(found, key=lambda row: (row[1][0], row[0]))
