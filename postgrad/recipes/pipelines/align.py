"""InstructGPT's last two stages on one task, and the roads around them: pairs -> reward model -> PPO;
pairs -> DPO; GRPO.

    postgrad train align:questions

The start is a model after SFT. Each policy is measured by the task's true quality, which no policy was
trained on: all of them saw labelled pairs, or a reward model made from those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad.methods import change, get_method
from postgrad.recipes import preference, reward, rollouts
from postgrad.recipes.base import DEVICE, SEED, Evaluation, ModelDefaults
from postgrad.recipes.pipelines import quality
from postgrad.recipes.pipelines.stages import Pipeline, Stage, Step
from postgrad.recipes.registry import recipe_for
from postgrad.system.settings import POSITIVE, setting
from postgrad.training.batches import Rollouts
from postgrad.training.optim import OptimSettings

# the recipes whose rows can be set side by side here
LEARNERS = {"preference": preference, "rollouts": rollouts}


@dataclass(frozen=True, kw_only=True)
class AlignConfig(ModelDefaults):
    """Reward model, then policies from pairs and against it."""

    recipe: ClassVar[str] = "align"
    task: str = setting(about="a task with labelled pairs and a known true quality",
                        when="to compare the roads on another task; its verifier is the measure")
    model: str = setting("tiny-chat", "the model to start from, after SFT", "to align a model of your own")
    methods: str = setting("dpo,ppo,grpo", "the policies to train, with commas between",
                           "to set other rows side by side: all that learn from pairs or against a reward "
                           "model")
    beta: float = setting(0.5, "DPO's: with the row's 0.1 it moves so far that it invents words",
                          "lower lets DPO go further from the start, higher holds it", within=POSITIVE)
    pairs: int = setting(2000, "pairs that the reward model and DPO learn from",
                         "fewer to see what the roads do with scarce labels")
    reward_steps: int = setting(120, "optimizer steps of the reward model",
                                "fewer where its ece rises towards the end")
    collections: int = setting(60, "collections of rollouts of each policy; DPO, which samples nothing, "
                               "makes twice as many optimizer steps",
                               "more shows who over-optimises the reward model")
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear"))
    problems: int = setting(56, "held-out prompts that every policy is measured on",
                            "more: narrower intervals")
    samples: int = setting(16, "samples of each prompt",
                           "more: narrower intervals, less than more prompts do")
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)

    def __post_init__(self):
        super().__post_init__()
        if min(self.pairs, self.reward_steps, self.collections, self.problems, self.samples) < 1:
            raise ValueError("pairs, reward_steps, collections, problems and samples must be at least 1.")
        for name in self.methods.split(","):
            if recipe_for(get_method(name)) not in LEARNERS:
                raise ValueError(f"methods names {name!r}, which learns neither from pairs nor from a reward "
                                 "model: take dpo, ppo or grpo, say.")


def align_questions() -> AlignConfig:
    """Questions with a known true quality, and annotators who err and like long replies."""
    return AlignConfig(task="questions")


SETTINGS = {"questions": align_questions}


def pair_settings(config: AlignConfig) -> preference.Pairs:
    return preference.Pairs(drawn=config.pairs, held_out=max(1, config.pairs // 5))


def policy_stage(config: AlignConfig, name: str) -> Stage:
    """From pairs, or against the reward model; what differs is the recipe's own."""
    evaluated = min(32, config.problems)
    method = change(get_method(name), beta=config.beta) if name == "dpo" else get_method(name)
    shared = {"model": config.model, "task": config.task, "method": method, "seed": config.seed,
              "device": config.device, "optim": config.optim}
    if recipe_for(method) == "preference":
        made = preference.PreferenceConfig(**shared, pairs=pair_settings(config),
                                           steps=2 * config.collections,
                                           evaluation=Evaluation(every=config.collections, problems=evaluated,
                                                                 samples=4))
    else:
        made = replace(rollouts.rollouts_on_questions(), **shared, reward="{reward}",
                       rollouts=Rollouts(collections=config.collections),
                       evaluation=Evaluation(every=None, problems=evaluated, samples=4))
    return Stage(name=name, config=made)


def pipeline(config: AlignConfig) -> Pipeline:
    """The start, a reward model, and each policy, measured on the same held-out prompts."""
    first = reward.RewardConfig(model=config.model, task=config.task, steps=config.reward_steps,
                                seed=config.seed, pairs=pair_settings(config), device=config.device)
    steps: list[Step] = [quality.quality_measurement(config, "start", config.model), Stage(name="reward",
                                                                                           config=first)]
    for name in config.methods.split(","):
        steps += [policy_stage(config, name), quality.quality_measurement(config, name, f"{{{name}}}")]
    return Pipeline(name="align", steps=steps, summarise=partial(quality.quality_summary, config))
