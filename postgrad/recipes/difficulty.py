"""Prompts by how hard they were found: pass rates that `postgrad pick` recorded, and the prompts between two
of them.

    postgrad pick runs/rl --task words --keep passing --out kept.jsonl --rates rates.jsonl
    postgrad train grpo:words model=runs/rl difficulty.rates=rates.jsonl

A prompt that was always solved, or never, gives a group of samples that all score the same, and so no
gradient. DAPO finds that out as it trains and draws others (rollouts.resample_limit); here they are left out
beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from postgrad.data.rows import read_data_rows
from postgrad.records import Prompt
from postgrad.system.settings import FRACTION, Settings, setting


@dataclass(frozen=True, kw_only=True)
class Difficulty(Settings):
    """Which prompts are trained on, by how often they were answered well before."""

    rates: str | None = setting(None, "a file of pass rates, as `postgrad pick` writes it with --rates; "
                                "only prompts in it are trained on; none: all prompts",
                                "where most groups score the same (flat_groups): prompts of middling "
                                "difficulty teach more")
    above: float = setting(0.0, "the pass rate has to be above this",
                           "0.1 or so to leave out prompts that are solved by luck", within=FRACTION)
    below: float = setting(1.0, "and below this", "less to leave out prompts that are nearly always solved",
                           within=FRACTION)

    prefix: ClassVar[str] = "difficulty."

    def __post_init__(self):
        super().__post_init__()
        if self.above >= self.below:
            raise ValueError(f"difficulty.above is {self.above:g} and difficulty.below {self.below:g}: no "
                             "rate lies between them.")

    def chosen(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts whose recorded rate lies strictly between the two; all of them without a record."""
        if self.rates is None:
            return list(prompts)
        known = read_rates(self.rates)
        kept = [p for p in prompts if p.id in known and self.above < known[p.id] < self.below]
        if not kept:
            raise ValueError(f"none of {len(prompts):,} prompts has a pass rate above {self.above:g} and "
                             f"below {self.below:g} in {self.rates}: widen difficulty.above and "
                             "difficulty.below, or record more samples of each prompt.")
        return kept

    def note(self, drawn: int, kept: int) -> tuple[str, ...]:
        if self.rates is None:
            return ()
        return (f"{kept:,} of {drawn:,} prompts have a pass rate above {self.above:g} and below "
                f"{self.below:g}, and are trained on",)


def read_rates(path: str) -> dict[str, float]:
    """{"prompt": ID, "rate": 0.25} a line -> rate by prompt."""
    found: dict[str, float] = {}
    for _, where, row in read_data_rows(path):
        name, rate = row.get("prompt"), row.get("rate")
        if not isinstance(name, str) or type(rate) not in (int, float) or not 0 <= rate <= 1:
            raise ValueError(f'{where}: expected {{"prompt": ID, "rate": a share from 0 to 1}}, found '
                             f"{row!r:.80}.")
        found[name] = float(rate)
    return found
