"""Everyday requests with constraints on the form of the reply, in the manner of IFEval (Zhou et al.
2023, arXiv:2311.07911).

`constraints` asks for one, `constraints-hard` for two or three that can be kept together. A reply is paid
when it keeps all, as it stands (IFEval's prompt-level strict accuracy); the loose reading and the shares of
constraints kept are parts. The splits are disjoint in the requests. What a reply says is not judged: this
trains and measures the form alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from postgrad.data.tasks.base import SPLITS, Task, distinct_prompts, generator, split_of
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.constraints import KINDS, Rule, gold_for, is_kept, is_kept_loosely

NAMES = ("constraints", "constraints-hard")

COUNTS = {"constraints": (1,), "constraints-hard": (2, 3)}
FORMS = ("Write a short text about {}.", "Explain {} to a child.", "Write a letter to a friend about {}.",
         "Give advice on {}.", "Tell a story about {}.", "Write an announcement about {}.",
         "Describe {} to somebody who has never heard of it.", "Write a page of a diary about {}.",
         "Say what people like about {}.", "Write a speech about {}.")
SUBJECTS = ("a walk in the rain", "baking bread", "the first day at school", "a lost key", "growing tomatoes",
            "a train journey", "learning to swim", "noisy neighbours", "the night sky", "mending a bicycle",
            "making tea", "an old clock", "moving house", "a summer festival", "keeping bees", "a power cut",
            "walking to work", "a family dinner", "borrowing books", "snow in the city", "painting a room",
            "a football match", "waiting for a bus", "telling the truth", "a trip to the sea",
            "sleeping well", "saving money", "a birthday party", "a broken window", "singing in a choir")
REQUESTS = {split: [request for form in FORMS for subject in SUBJECTS
                    if split_of(request := form.format(subject)) == split] for split in SPLITS}


def prompts(split: str, count: int, seed: int, *, name: str) -> list[Prompt]:
    rng = generator(name, split, seed)

    def make() -> Prompt:
        gold = None
        while gold is None:
            kinds = rng.sample(list(KINDS), rng.choice(COUNTS[name]))
            rules: tuple[Rule, ...] = tuple((kind, rng.choice(KINDS[kind].values)) for kind in kinds)
            gold = gold_for(rules)
        asked = " ".join([rng.choice(REQUESTS[split]), *(KINDS[kind].ask(value) for kind, value in rules)])
        return Prompt.ask(asked, id=f"{name}/{Prompt.ask(asked).id}", rules=rules, gold=gold)

    return distinct_prompts(make, count)


def verify(prompt: Prompt, text: str) -> Verdict:
    """1 when every constraint is kept.

    Shares: `instruction` of the constraints, strictly; `instruction_lenient`, loosely.
    """
    rules = cast(Sequence[Rule], prompt.meta["rules"])
    strict = [is_kept(text, rule) for rule in rules]
    loose = [now or is_kept_loosely(text, rule) for now, rule in zip(strict, rules, strict=True)]
    broken = [KINDS[kind].ask(value) for (kind, value), now in zip(rules, strict, strict=True) if not now]
    score = float(all(strict))
    return Verdict(
        score=score, reason=f"not kept: {shorten(broken[0], 100)}" if broken else "every constraint is kept",
        parts={"correct": score, "lenient": float(all(loose)), "instruction": sum(strict) / len(rules),
               "instruction_lenient": sum(loose) / len(rules)})


def gold(prompt: Prompt) -> str:
    return str(prompt.meta["gold"])


def load(name: str) -> Task:
    several = " or ".join(map(str, COUNTS[name]))
    return Task(name=name, about=f"everyday requests with {several} constraints on the form of the reply",
                prompts=partial(prompts, name=name), verify=verify, gold=gold)
