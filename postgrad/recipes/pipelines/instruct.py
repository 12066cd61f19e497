"""InstructGPT's three stages from a base model: SFT, a reward model, and PPO against it with pretraining text
mixed in (PPO-ptx; Ouyang et al. 2022, arXiv:2203.02155).

    postgrad train instruct

The base, the SFT model and the policy are measured by the task's true quality, which the reward model
estimates from labelled pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad.methods import get_method
from postgrad.recipes import rollouts
from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.pipelines import measured
from postgrad.recipes.pipelines.stages import Pipeline, Stage
from postgrad.recipes.reward import RewardConfig
from postgrad.recipes.sft import SFTConfig
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import COUNT, NOT_NEGATIVE, setting
from postgrad.training.batches import Rollouts


@dataclass(frozen=True, kw_only=True)
class InstructConfig(measured.MeasuredConfig):
    """SFT, a reward model, PPO-ptx."""

    recipe: ClassVar[str] = "instruct"
    task: str = setting("questions", "a task with demonstrations, labelled pairs and a known true quality; "
                        "the annotators of questions err and like long replies",
                        "another task's verifier is its true quality")
    model: str = setting("tiny", "the base model to start from", "to instruct a model of your own")
    template: str | None = setting(None, *TEMPLATE)
    sft_steps: int = setting(60, *measured.SFT_STEPS)
    pairs: int = setting(2000, *measured.PAIRS)
    reward_steps: int = setting(120, *measured.REWARD_STEPS)
    collections: int = setting(60, "collections of rollouts of the policy",
                               "more shows whether it over-optimises the reward model", COUNT)
    ptx: float = setting(0.1, "the weight of the pretraining text beside the rollouts; 0: plain PPO",
                         "more where the policy forgets what the base could do", NOT_NEGATIVE)
    problems: int = setting(56, *measured.PROBLEMS)
    samples: int = setting(16, *measured.SAMPLES)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)


SETTINGS = {"questions": InstructConfig}


def pipeline(config: InstructConfig) -> Pipeline:
    task, seed, device = config.task, config.seed, config.device
    measured.check_labelled(task)
    demonstrated = SFTConfig(task=task, model=config.model, steps=config.sft_steps, seed=seed, device=device)
    judge = RewardConfig(task=task, model="{sft}", steps=config.reward_steps, seed=seed, device=device,
                         pairs=measured.pairs_with_holdout(config.pairs))
    policy = replace(rollouts.rollouts_on_questions(), task=task, model="{sft}", seed=seed, device=device,
                     method=get_method("ppo"), reward="{reward}", ptx=rollouts.Ptx(coef=config.ptx),
                     rollouts=Rollouts(collections=config.collections),
                     evaluation=Evaluation(every=None, problems=min(32, config.problems), samples=4))
    return Pipeline(name="instruct", summarise=partial(measured.quality_summary, config), steps=[
        measured.quality_measurement(config, "base", config.model),
        Stage(name="sft", config=demonstrated, about="SFT: imitate demonstrations"),
        measured.quality_measurement(config, "sft", "{sft}"),
        Stage(name="reward", config=judge, about="reward model: which of two replies is preferred"),
        Stage(name="ppo", config=policy, about="PPO-ptx: push the reward model, keep the text"),
        measured.quality_measurement(config, "ppo", "{ppo}")])
