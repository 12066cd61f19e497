"""Twenty runs with one planted fault each, and twenty without: a few collections on the embedded models.

A planted run is a healthy setting with one thing spoiled: a setting, a row, a task, a reward, or, where no
setting can do it, a function of the package that is replaced while the run lasts.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import torch

from postgrad.cli.settings import config_from_text
from postgrad.data.tasks import Task, load_task
from postgrad.data.tasks.base import think
from postgrad.maths import surrogate
from postgrad.methods import method
from postgrad.recipes import reward, rollouts
from postgrad.recipes.launch import start_training
from postgrad.recipes.running import model_source
from postgrad.records import Prompt, Verdict
from postgrad.resolve.models import open_policy
from postgrad.rewards.base import GARBAGE
from postgrad.sampling import Sampling

SAMPLED = ["evaluation.problems=12", "evaluation.samples=4"]
PAIRS = ["steps=16", "pairs.drawn=300", "pairs.held_out=60", "pairs.per_step=12", "evaluation.every=8"]
SMALL = {  # what makes a run short, by recipe
    "rollouts": ["rollouts.prompts=400", "rollouts.prompts_per_step=8", "rollouts.group_size=4",
                 "rollouts.max_new_tokens=48", "rollouts.collections=12", *SAMPLED],
    "sft": ["steps=16", "examples=1100", "evaluation.every=8", *SAMPLED],
    "preference": PAIRS + SAMPLED, "reward": PAIRS,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run to train. given: fields of the config; within: patches of the package while it lasts."""

    spec: str
    changes: tuple[str, ...] = ()
    given: Callable[[], dict] = dict
    within: Callable[[], AbstractContextManager] = nullcontext


def make(plan: Plan, seed: int, folder: Path) -> Path:
    """Trains the run of a plan unless it exists; its checkpoints are deleted."""
    if (folder / "run.json").is_file():
        return folder
    part = folder.parent / "unfinished" / folder.name
    part.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    with plan.within():
        recipe, _ = config_from_text(plan.spec)
        recipe, config = config_from_text(plan.spec, [*SMALL[recipe], *plan.changes, f"seed={seed}"])
        config = replace(config, **plan.given())
        if recipe == "rollouts":
            every = 6 * config.row.updates(config.rollouts.prompts_per_step)
            config = replace(config, evaluation=replace(config.evaluation, every=every), save_every=10_000)
        try:
            start_training(recipe, config, part)
        except ValueError as end:  # a run may die of its fault: what it has written is looked at
            if not (part / "run.json").is_file():
                raise
            print(f"{folder.name} ended: {end}", flush=True)
    shutil.rmtree(part / "checkpoints", ignore_errors=True)
    part.rename(folder)
    return folder


# what is spoiled

def words() -> Task:
    return load_task("words")


def leaked() -> dict:
    """The evaluation uses training prompts."""
    task = words()
    return {"task": replace(task, prompts=lambda split, count, seed: task.prompts("train", count, 0))}


def duplicated() -> dict:
    """Thirty texts, each under many names."""
    task = words()

    def prompts(split: str, count: int, seed: int) -> list[Prompt]:
        few = task.prompts(split, min(30, count), seed)
        return [replace(few[i % len(few)], id=f"{few[i % len(few)].id}#{i}") for i in range(count)]

    return {"task": replace(task, prompts=prompts)}


def hopeless() -> dict:
    """Answers that no reply will ever give."""
    task = words()

    def prompts(split: str, count: int, seed: int) -> list[Prompt]:
        return [replace(p, answer=f"{p.answer}00007") for p in task.prompts(split, count, seed)]

    return {"task": replace(task, prompts=prompts, gold=lambda p: think("1", p.answer))}


def raising() -> dict:
    """A verifier that fails on a third of the replies."""
    task = words()

    def verify(prompt: Prompt, text: str) -> Verdict:
        if text not in (*GARBAGE, task.gold(prompt)) and zlib.crc32(text.encode()) % 3 == 0:
            raise KeyError("units")
        return task.verify(prompt, text)

    return {"task": replace(task, verify=verify)}


def pays_length(prompt: Prompt, text: str) -> float:
    return len(text.split()) / 20


def pays_form(prompt: Prompt, text: str) -> Verdict:
    """Nine tenths for a short reply, one for the right answer."""
    short, right = float(len(text) < 38), words().verify(prompt, text).score
    return Verdict(score=0.9 * short + 0.1 * right, parts={"correct": right, "format": short})


def pays_sevens(prompt: Prompt, text: str) -> float:
    """The share of a reply that is the digit 7: far from anything that the model would write."""
    return text.count("7") / max(8, len(text))


def pays_rudeness(prompt: Prompt, text: str) -> float:
    return float(any(word in text.lower() for word in ("silly", "waste", "stupid", "boring", "fool")))


def wrong_sign(logp, old_logp, adv, mask):
    return surrogate.policy_gradient(logp, old_logp, -adv, mask)


class NowAndThen:
    """A surrogate that is not a number at every third update."""

    def __init__(self):
        self.calls = 0

    def __call__(self, logp, old_logp, adv, mask):
        loss, clipped = surrogate.policy_gradient(logp, old_logp, adv, mask)
        self.calls += torch.is_grad_enabled()
        return (loss * float("nan") if self.calls % 3 == 0 else loss), clipped


def other_reference():
    """The base model in the place of the model that the run starts from."""
    def opened(config, begins, policy):
        other = replace(config, model="tiny")
        return open_policy(other, model_source(other))[0].requires_grad_(False)

    return mock.patch.object(rollouts, "open_reference", opened)


def other_temperature():
    """The sampler's temperature is 1.4, the trainer's 1."""
    return mock.patch.object(rollouts, "Sampling",
                             lambda **words: Sampling(**words | {"temperature": 1.4}))


def dead_head():
    """The head stays at zero, so that no gradient reaches the body."""
    opened = reward.open_scalar

    def frozen(config, begins):
        model, chat = opened(config, begins)
        model.score_head.weight.data.zero_()
        model.score_head.requires_grad_(False)
        return model, chat

    return mock.patch.object(reward, "open_scalar", frozen)


GRPO = "grpo:words"
PPO = ("rollouts.collections=6", "rollouts.prompts_per_step=4")
PLANTED = {
    "rate too high": Plan(spec=GRPO, changes=("optim.lr=3e-3",)),
    "KL explosion": Plan(spec=GRPO, given=lambda: {"reward": pays_sevens}, changes=(
        "kl.coef=0.0001", "optim.schedule=constant", "rollouts.collections=18")),
    "entropy collapse": Plan(spec="grpo:questions", changes=("rollouts.temperature=0.1",)),
    "no signal": Plan(spec=GRPO, given=hopeless),
    "length creep": Plan(spec="grpo:questions", changes=("rollouts.max_new_tokens=96", "optim.lr=3e-4"),
                         given=lambda: {"reward": pays_length}),
    "truncation": Plan(spec=GRPO, changes=("rollouts.max_new_tokens=16",)),
    "form is paid, not content": Plan(spec=GRPO, given=lambda: {"reward": pays_form}),
    "proxy and evaluation diverge": Plan(spec="grpo:questions", changes=("optim.lr=3e-4",),
                                       given=lambda: {"reward": pays_rudeness}),
    "sampler and trainer disagree": Plan(spec=GRPO, within=other_temperature),
    "stale reference": Plan(spec=GRPO, within=other_reference),
    "critic explains nothing": Plan(spec="ppo:words", changes=(*PPO, "method.value_weight=0")),
    "clip always or never at work": Plan(spec=GRPO, changes=("method.minibatches=4", "method.low=1e-5",
                                                    "method.high=1e-5")),
    "dead reward head": Plan(spec="reward:questions", within=dead_head),
    "splits share prompts": Plan(spec=GRPO, given=leaked),
    "duplicated prompts": Plan(spec=GRPO, given=duplicated),
    "verifier errors": Plan(spec=GRPO, given=raising),
    "skipped steps": Plan(spec=GRPO, given=lambda: {
        "method": method("nano", name="sometimes", surrogate=NowAndThen())}),
    "gradient always clipped": Plan(spec=GRPO, changes=("optim.max_grad_norm=0.01",)),
    "wrong sign or mask": Plan(spec=GRPO, given=lambda: {
        "method": method("nano", name="backwards", surrogate=wrong_sign)}),
    "group too small": Plan(spec=GRPO, changes=("rollouts.group_size=2",)),
}
SLOW = ("ppo:words", "ppo:arithmetic", "dapo:words", "cispo:words")
HEALTHY = {spec.replace(":", " "): Plan(spec=spec, changes=PPO if spec in SLOW else ()) for spec in (
    *SLOW, GRPO, "grpo:arithmetic", "grpo:questions", "dr_grpo:words", "rloo:words", "reinforce:words",
    "nano:words", "gspo:words", "online_dpo:words", "best_of_n:words", "rejection:words", "sft:words",
    "sft:arithmetic", "kto:questions", "reward:questions", "dpo:questions")}
