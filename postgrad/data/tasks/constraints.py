"""Everyday requests with constraints on the form of the reply (after IFEval: Zhou et al. 2023,
arXiv:2311.07911).

`constraints` asks for one, `constraints-hard` for two or three that are compatible. The reward is IFEval's
prompt-level strict accuracy; the loose reading and the instruction-level accuracies are parts. The splits are
disjoint in the requests. The content of a reply is not judged.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import cast

from postgrad.data.tasks.base import SPLITS, Task, draw_prompts, split_of, task_texts
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.constraints import KINDS, Rule, gold_for, is_kept, is_kept_loosely

NAMES = ("constraints", "constraints-hard")

COUNTS = {"constraints": (1,), "constraints-hard": (2, 3)}
TEXTS = task_texts("constraints")
REQUESTS = {split: [request for form in TEXTS["forms"] for subject in TEXTS["subjects"]
                    if split_of(request := form.format(subject)) == split] for split in SPLITS}


def draw_constraints(rng: random.Random, split: str, *, name: str) -> Prompt:
    gold = None
    while gold is None:
        kinds = rng.sample(list(KINDS), rng.choice(COUNTS[name]))
        rules: tuple[Rule, ...] = tuple((kind, rng.choice(KINDS[kind].values)) for kind in kinds)
        gold = gold_for(rules)
    asked = " ".join([rng.choice(REQUESTS[split]), *(KINDS[kind].ask(value) for kind, value in rules)])
    return Prompt.ask(asked, id=f"{name}/{Prompt.ask(asked).id}", rules=rules, gold=gold)


def verify(prompt: Prompt, text: str) -> Verdict:
    """1 if every constraint is kept. Parts `instruction` and `instruction_lenient`: the shares kept, strictly
    and loosely."""
    rules = cast(Sequence[Rule], prompt.meta["rules"])
    strict = [is_kept(text, rule) for rule in rules]
    loose = [now or is_kept_loosely(text, rule) for now, rule in zip(strict, rules, strict=True)]
    broken = [KINDS[kind].ask(value) for (kind, value), now in zip(rules, strict, strict=True) if not now]
    score = float(all(strict))
    return Verdict(
        score=score, reason=f"not kept: {shorten(broken[0], 100)}" if broken else "every constraint is kept",
        parts={"correct": score, "lenient": float(all(loose)), "instruction": sum(strict) / len(rules),
               "instruction_lenient": sum(loose) / len(rules)})


def load(name: str) -> Task:
    several = " or ".join(map(str, COUNTS[name]))
    return Task(name=name, about=f"everyday requests with {several} constraints on the form of the reply",
                prompts=partial(draw_prompts, name=name, make=partial(draw_constraints, name=name)),
                verify=verify, gold=lambda prompt: str(prompt.meta["gold"]))
