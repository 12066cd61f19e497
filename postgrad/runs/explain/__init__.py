"""What each number in the metrics means: one plain sentence, when to worry, the formula, where it comes from.

The command line and the studio show these same words. Names that carry a number or a part (pass@4,
reward/format) are explained by their family.

metric            one entry
usual, special    the entries: what nearly every run logs, and what only some do
reflection        what replies do while they think
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from postgrad.runs.explain.metric import EVAL, ROLLOUTS, Limit, Metric
from postgrad.runs.explain.reflection import REFLECTION
from postgrad.runs.explain.special import SPECIAL
from postgrad.runs.explain.usual import USUAL

__all__ = ["METRICS", "Metric", "Limit", "explain"]

_PARTS = {  # parts of verdicts that mean the same in every task that has them
    "correct": "The share of samples whose answer is right by the reading that is paid.",
    "lenient": "The share of samples whose answer is right by the lenient reading, which is "
               "watched and not paid.",
    "format": "The share of samples in the format that the task asks for, right or wrong.",
    "partial": "What reasoning-gym's own scorers give to the answers, from 0 to 1: watched, for only a "
               "full 1 is paid.",
    "instruction": "The share of the constraints that are kept: watched, for a reply is paid when it "
                   "keeps all of them.",
    "instruction_lenient": "The share of the constraints that are kept by the lenient reading, which is "
                           "watched and not paid.",
}
METRICS: dict[str, Metric] = {metric.name: metric for metric in (*USUAL, *SPECIAL, *REFLECTION)}


def explain(name: str) -> Metric:
    """The entry of a metric. explain("pass@4") and explain("reward/format") are made from their family."""
    if name in METRICS:
        return METRICS[name]
    if found := re.fullmatch(r"pass@([1-9]\d*)", name):
        k = found[1]
        return Metric(
            name=name, meaning=f"The share of held-out problems that at least one of {k} samples solves.",
            healthy=METRICS["pass@8"].healthy, formula=METRICS["pass@8"].formula.replace("k = 8", f"k = {k}"),
            source=EVAL)
    if found := re.fullmatch(r"reward/(.+)/correct", name):
        return Metric(
            name=name, meaning=f"pass@1 of the prompts of task {found[1]}, a part of the mixture.",
            healthy="Every part rises. One that falls while the whole rises pays for the others: give "
                    "it a run of its own, or see whether their replies can be told apart.",
            formula=f"right samples / samples, of the prompts of {found[1]}", source=EVAL)
    if found := re.fullmatch(r"reward/(.+)", name):
        return Metric(
            name=name, meaning=_PARTS.get(found[1], f"The mean of one part of the verdicts, {found[1]}."),
            healthy="The parts that are paid make the reward together: look here for the part that moves it. "
                    "One that is only watched often rises first.",
            formula=f"mean over samples of the verdict's part {found[1]!r}", source=ROLLOUTS)
    part, _, own = name.rpartition("/")
    if part and own in (*(metric.name for metric in REFLECTION), "length"):
        whole = METRICS["mean_length" if own == "length" else own]
        return replace(whole, name=name, formula=f"{whole.formula}, of the prompts of task {part} alone")
    near = difflib.get_close_matches(name.lower().replace("-", "_"), METRICS, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(METRICS)}"
    raise ValueError(f"no metric is called {name!r}; {hint}")
