"""What a model does while it thinks, measured on its replies: whether it looks back at its steps, in which
language it writes, how long it goes on after the answer is worked out.

Whether a reply turns back, starts again or checks is said by the task's own checker of steps, which follows
what is done, and not by words alone. Language is judged where a prompt says which one is its own.
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
Places = Callable[[Sequence[int], Sequence[int]], Sequence[int]]  # tokens, ends in the text -> their tokens


def measures(task: Task, places: Places) -> dict[str, Measure]:
    """The numbers of a task's replies by name; of a mixture those of each part as well, part/name.

    places: which tokens of a reply stand at the ends of its steps (Chat.places). A reply of which a measure
    says nothing (no words to have a language, no answer worked out) has no number there.
    """
    own, parts = of_replies(task, places), cast(Sequence[str], task.meta.get("parts", ()))
    return own | {f"{part}/{name}": only(part, measure) for part in parts
                  for name, measure in (own | {"length": reply_lengths}).items()}


def of_replies(task: Task, places: Places) -> dict[str, Measure]:
    found: dict[str, Measure] = {"worded": worded, "wrong_language": wrong_language,
                                 "mixed_languages": mixed_languages}
    if task.steps is None:
        return found
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

    return {**{kind: looks_back(kind) for kind in KINDS}, "after_right": after_right, **found}


class Labels:
    """The steps of each reply; of the replies that were asked for last they are kept, as several measures ask
    for the same."""

    def __init__(self, label: Callable[[Prompt, str], list[Step]]):
        self.label = label
        self.asked: Sequence[Rollout] | None = None
        self.found: list[list[Step]] = []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[list[Step]]:
        if rollouts is not self.asked:
            self.found = [self.label(r.prompt, r.text) for r in rollouts]
            self.asked = rollouts
        return self.found


def only(part: str, measure: Measure) -> Measure:
    return lambda rollouts: measure([r for r in rollouts if part_of(r.prompt) == part])


def reply_lengths(rollouts: Sequence[Rollout]) -> list[float]:
    return [float(len(r.sampled)) for r in rollouts]


def count_languages(prompt: Prompt, text: str) -> tuple[int, int] | None:
    """Words of the prompt's own language and of others in the thoughts of a reply; None where the prompt
    says no language. Function words are counted, which are of one language alone."""
    own = prompt.meta.get("language")
    if not isinstance(own, str):
        return None
    said = function_words(text[slice(*thought_span(text))])
    mine = said.pop(own, 0)
    return mine, sum(said.values())


def _counted(rollouts: Sequence[Rollout]) -> list[tuple[int, int]]:
    return [said for r in rollouts if (said := count_languages(r.prompt, r.text)) is not None]


def worded(rollouts: Sequence[Rollout]) -> list[float]:
    """1 where the thoughts have words to tell a language by."""
    return [float(mine + others > 0) for mine, others in _counted(rollouts)]


def wrong_language(rollouts: Sequence[Rollout]) -> list[float]:
    """Of the replies with words, 1 where most of them are not in the prompt's language."""
    return [float(others > mine) for mine, others in _counted(rollouts) if mine + others]


def mixed_languages(rollouts: Sequence[Rollout]) -> list[float]:
    """Of the replies with words, 1 where they are of more than one language."""
    return [float(mine > 0 and others > 0) for mine, others in _counted(rollouts) if mine + others]
