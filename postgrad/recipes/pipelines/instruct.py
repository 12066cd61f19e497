"""InstructGPT's three stages from a base model: SFT, a reward model, and PPO against it with pretraining text
mixed in (PPO-ptx; Ouyang et al. 2022, arXiv:2203.02155).

    postgrad train instruct

The base, the SFT model and the policy are measured by the task's true quality, which the reward model only
guesses from labelled pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad.methods import get_method
from postgrad.recipes import reward, rollouts, sft
from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.pipelines import quality
from postgrad.recipes.pipelines.stages import Pipeline, Stage
from postgrad.recipes.preference import Pairs
from postgrad.system.settings import COUNT, NOT_NEGATIVE, Settings, setting
from postgrad.training.batches import Rollouts


@dataclass(frozen=True, kw_only=True)
class InstructConfig(Settings):
    """SFT, a reward model, PPO-ptx."""

    recipe: ClassVar[str] = "instruct"
    task: str = setting(about="a task with demonstrations, labelled pairs and a known true quality",
                        when="to instruct on another task; its verifier is the measure")
    model: str = setting("tiny", "the base model to start from", "to instruct a model of your own")
    sft_steps: int = setting(60, "optimizer steps of the first stage",
                             "fewer for a quicker look with a worse start", COUNT)
    pairs: int = setting(2000, "pairs that the reward model learns from", "fewer where labels are scarce",
                         COUNT)
    reward_steps: int = setting(120, "optimizer steps of the reward model",
                                "fewer where its ece rises towards the end", COUNT)
    collections: int = setting(60, "collections of rollouts of the policy",
                               "more shows whether it over-optimises the reward model", COUNT)
    ptx: float = setting(0.1, "the weight of the pretraining text beside the rollouts; 0 is plain PPO",
                         "more where the policy forgets what the base could do", NOT_NEGATIVE)
    problems: int = setting(56, "held-out prompts that every model is measured on",
                            "more: narrower intervals", COUNT)
    samples: int = setting(16, "samples of each prompt",
                           "more: narrower intervals, less than more prompts do", COUNT)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)


def instruct_questions() -> InstructConfig:
    """Questions with a known true quality, and annotators who err and like long replies."""
    return InstructConfig(task="questions")


SETTINGS = {"questions": instruct_questions}


def pipeline(config: InstructConfig) -> Pipeline:
    shared = {"task": config.task, "seed": config.seed, "device": config.device}
    pairs = Pairs(drawn=config.pairs, held_out=max(1, config.pairs // 5))
    imitation = sft.SFTConfig(**shared, model=config.model, steps=config.sft_steps)
    judge = reward.RewardConfig(**shared, model="{sft}", steps=config.reward_steps, pairs=pairs)
    policy = replace(rollouts.rollouts_on_questions(), **shared, model="{sft}", method=get_method("ppo"),
                     reward="{reward}",
                     ptx=rollouts.Ptx(coef=config.ptx),
                     rollouts=Rollouts(collections=config.collections),
                     evaluation=Evaluation(every=None, problems=min(32, config.problems), samples=4))
    return Pipeline(name="instruct", summarise=partial(quality.quality_summary, config), steps=[
        quality.quality_measurement(config, "base", config.model),
        Stage(name="sft", config=imitation, about="SFT: imitate demonstrations"),
        quality.quality_measurement(config, "sft", "{sft}"),
        Stage(name="reward", config=judge, about="reward model: which of two replies is preferred"),
        Stage(name="ppo", config=policy, about="PPO-ptx: push the reward model, keep the text"),
        quality.quality_measurement(config, "ppo", "{ppo}")])
