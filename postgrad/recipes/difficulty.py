"""Prompts by difficulty: those with a pass rate, recorded by `postgrad pick`, between two bounds.

    postgrad pick runs/rl --task words --keep passing --out kept.jsonl --rates rates.jsonl
    postgrad train grpo:words model=runs/rl difficulty.rates=rates.jsonl

A prompt that is always solved, or never, gives a group of equal scores, and so no gradient. DAPO resamples
such groups during training (rollouts.resample_limit); here they are left out beforehand.
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
    """Which prompts are trained on, by their pass rate."""

    rates: str | None = setting(None, "a file of pass rates, as `postgrad pick` writes it with --rates; "
                                "only prompts in it are trained on; none: all prompts",
                                "where most groups score the same (flat_groups): prompts of middling "
                                "difficulty teach more")
    above: float = setting(0.0, "the pass rate has to be above this",
                           "0.1 or so to leave out prompts that are solved by luck", within=FRACTION)
    below: float = setting(1.0, "and below this", "less to leave out prompts that are nearly always solved",
                           within=FRACTION)

    prefix: ClassVar[str] = "difficulty."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.above >= self.below:
            raise ValueError(f"difficulty.above is {self.above:g} and difficulty.below {self.below:g}: no "
                             "rate lies between them.")

    def select(self, prompts: Sequence[Prompt]) -> tuple[list[Prompt], str]:
        """The prompts whose recorded pass rate lies strictly between the two, and a note on them."""
        assert self.rates is not None
        rates, between = read_rates(self.rates), f"above {self.above:g} and below {self.below:g}"
        selected = [p for p in prompts if self.above < rates.get(p.id, -1.0) < self.below]
        if not selected:
            raise ValueError(f"none of {len(prompts):,} prompts has a pass rate {between} in {self.rates}: "
                             "widen difficulty.above and difficulty.below, or record more samples of each "
                             "prompt.")
        return selected, (f"{len(selected):,} of {len(prompts):,} prompts have a pass rate {between}, and "
                          "are trained on")


def read_rates(path: str) -> dict[str, float]:
    """{"prompt": ID, "rate": 0.25} a line -> rate by prompt."""
    rates: dict[str, float] = {}
    for _, where, row in read_data_rows(path):
        name, rate = row.get("prompt"), row.get("rate")
        if (not isinstance(name, str) or not isinstance(rate, int | float) or isinstance(rate, bool)
                or not 0 <= rate <= 1):
            raise ValueError(f'{where}: expected {{"prompt": ID, "rate": a share from 0 to 1}}, found '
                             f"{row!r:.80}.")
        rates[name] = float(rate)
    return rates
