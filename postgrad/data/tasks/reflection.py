"""Metrics of reasoning: how often replies look back at their steps, in which language they are, how many
tokens follow the solution.

Looking back is labelled by the task's `steps`, which follow the computation, not words alone. Language is
measured for prompts with a language of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from postgrad.data.tasks.base import Task
from postgrad.data.tasks.chain import KINDS, thought_span
from postgrad.data.tasks.mixed import part_of
from postgrad.records import Prompt, Rollout, Step
from postgrad.rewards.text import function_words

Measure = Callable[[Sequence[Rollout]], list[float]]
Places = Callable[[Sequence[int], Sequence[int]], Sequence[int]]  # (tokens, ends in the text) -> tokens


def measures(task: Task, places: Places) -> dict[str, Measure]:
    """The measures of a task's replies by name; of a mixture also of each part, as part/name.

    places: Chat.places. A measure skips replies that it does not apply to (no words, no solution).
    """
    own, parts = of_replies(task, places), cast(Sequence[str], task.meta.get("parts", ()))
    return own | {f"{part}/{name}": only(part, measure) for part in parts
                  for name, measure in (own | {"length": reply_lengths}).items()}


def of_replies(task: Task, places: Places) -> dict[str, Measure]:
    language: dict[str, Measure] = {"worded": worded, "wrong_language": wrong_language,
                                    "mixed_languages": mixed_languages}
    if task.steps is None:
        return language
    label = Labels(task.steps)

    def looks_back(kind: str) -> Measure:
        return lambda rollouts: [float(any(step.kind == kind for step in steps)) for steps in label(rollouts)]

    def after_right(rollouts: Sequence[Rollout]) -> list[float]:
        counts = []
        for r, steps in zip(rollouts, label(rollouts), strict=True):
            end = next((step.end for step in steps if step.solves), None)
            if end is not None:
                counts.append(float(len(r.tokens[r.reply]) - 1 - places(r.tokens[r.reply], [end])[0]))
        return counts

    return {**{kind: looks_back(kind) for kind in KINDS}, "after_right": after_right, **language}


class Labels:
    """The labelled steps of each reply, cached for the last rollouts: several measures use them."""

    def __init__(self, label: Callable[[Prompt, str], list[Step]]):
        self.label = label
        self.rollouts: Sequence[Rollout] | None = None
        self.steps: list[list[Step]] = []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[list[Step]]:
        if rollouts is not self.rollouts:
            self.rollouts, self.steps = rollouts, [self.label(r.prompt, r.text) for r in rollouts]
        return self.steps


def only(part: str, measure: Measure) -> Measure:
    return lambda rollouts: measure([r for r in rollouts if part_of(r.prompt) == part])


def reply_lengths(rollouts: Sequence[Rollout]) -> list[float]:
    return [float(len(r.sampled)) for r in rollouts]


def count_languages(prompt: Prompt, text: str) -> tuple[int, int] | None:
    """Function words in the thoughts of a reply: of the prompt's language, and of others; None without a
    language."""
    own = prompt.meta.get("language")
    if not isinstance(own, str):
        return None
    words = function_words(text[slice(*thought_span(text))])
    mine = words.pop(own, 0)
    return mine, sum(words.values())


def _counted(rollouts: Sequence[Rollout]) -> list[tuple[int, int]]:
    return [counts for r in rollouts if (counts := count_languages(r.prompt, r.text)) is not None]


def worded(rollouts: Sequence[Rollout]) -> list[float]:
    """1 if the thoughts have function words."""
    return [float(mine + others > 0) for mine, others in _counted(rollouts)]


def wrong_language(rollouts: Sequence[Rollout]) -> list[float]:
    """Of the replies with words, 1 if most are not in the prompt's language."""
    return [float(others > mine) for mine, others in _counted(rollouts) if mine + others]


def mixed_languages(rollouts: Sequence[Rollout]) -> list[float]:
    """Of the replies with words, 1 if they are of several languages."""
    return [float(mine > 0 and others > 0) for mine, others in _counted(rollouts) if mine + others]
