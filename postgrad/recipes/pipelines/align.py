"""InstructGPT's last two stages on one task, beside DPO and GRPO: pairs -> reward model -> PPO; pairs -> DPO;
reward model -> GRPO.

    postgrad train align:questions

All policies start from one model after SFT, and learn from labelled pairs or from a reward model of them.
They are measured by the task's true quality, which none is trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad.methods import change, get_method
from postgrad.recipes import preference, reward, rollouts
from postgrad.recipes.base import DEVICE, SEED, Evaluation, ModelDefaults, RunConfig
from postgrad.recipes.pipelines import measured
from postgrad.recipes.pipelines.stages import Pipeline, Stage, Step
from postgrad.recipes.registry import recipe_for
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import COUNT, POSITIVE, setting
from postgrad.training.batches import Rollouts
from postgrad.training.optim import OptimSettings


@dataclass(frozen=True, kw_only=True)
class AlignConfig(ModelDefaults, measured.MeasuredConfig):
    """A reward model, and policies that learn from pairs or from it."""

    recipe: ClassVar[str] = "align"
    task: str = setting("questions", "a task with labelled pairs and a known true quality; the annotators of "
                        "questions err and like long replies", "another task's verifier is its true quality")
    model: str = setting("tiny-chat", "the model to start from, after SFT", "to align a model of your own")
    template: str | None = setting(None, *TEMPLATE)
    methods: str = setting("dpo,ppo,grpo", "the policies to train, with commas between",
                           "to compare other rows that learn from pairs or from a reward model")
    beta: float = setting(0.5, "DPO's: with the row's 0.1 it moves so far that it invents words",
                          "lower lets DPO go further from the start, higher holds it", within=POSITIVE)
    pairs: int = setting(2000, *measured.PAIRS)
    reward_steps: int = setting(120, *measured.REWARD_STEPS)
    collections: int = setting(60, "collections of rollouts of each policy; DPO, which samples nothing, "
                               "makes twice as many optimizer steps",
                               "more shows which policy over-optimises the reward model", COUNT)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear"))
    problems: int = setting(56, *measured.PROBLEMS)
    samples: int = setting(16, *measured.SAMPLES)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.methods.split(","):
            if recipe_for(get_method(name)) not in ("preference", "rollouts"):
                raise ValueError(f"methods names {name!r}, which learns neither from pairs nor from a reward "
                                 "model: take dpo, ppo or grpo, say.")


SETTINGS = {"questions": AlignConfig}


def policy_config(config: AlignConfig, name: str) -> RunConfig:
    """A policy from pairs, or against the reward model."""
    method, problems = get_method(name), min(32, config.problems)
    if recipe_for(method) == "preference":
        return preference.PreferenceConfig(
            model=config.model, task=config.task, seed=config.seed, device=config.device, optim=config.optim,
            method=change(method, beta=config.beta) if name == "dpo" else method,
            steps=2 * config.collections, pairs=measured.pairs_with_holdout(config.pairs),
            evaluation=Evaluation(every=config.collections, problems=problems, samples=4))
    return replace(rollouts.rollouts_on_questions(), model=config.model, task=config.task, seed=config.seed,
                   device=config.device, optim=config.optim, method=method, reward="{reward}",
                   rollouts=Rollouts(collections=config.collections),
                   evaluation=Evaluation(every=None, problems=problems, samples=4))


def pipeline(config: AlignConfig) -> Pipeline:
    measured.check_labelled(config.task)
    judge = reward.RewardConfig(model=config.model, task=config.task, steps=config.reward_steps,
                                seed=config.seed, pairs=measured.pairs_with_holdout(config.pairs),
                                device=config.device)
    steps: list[Step] = [measured.quality_measurement(config, "start", config.model),
                         Stage(name="reward", config=judge)]
    for name in config.methods.split(","):
        steps += [Stage(name=name, config=policy_config(config, name)),
                  measured.quality_measurement(config, name, f"{{{name}}}")]
    return Pipeline(name="align", steps=steps, summarise=partial(measured.quality_summary, config))
