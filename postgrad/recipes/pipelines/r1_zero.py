"""R1-Zero: GRPO on a base model against rules alone, which pay for the answer and for the form; no SFT
(DeepSeek-AI 2025, arXiv:2501.12948, section 2.2).

    postgrad train r1-zero
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.pipelines import measured
from postgrad.recipes.pipelines.stages import Done, Measurement, Pipeline, Stage
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.runs.rows import JsonDict
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import setting
from postgrad.training.batches import Rollouts

MODEL, MIXTURE = "tiny-zero", "words+words-es+countdown"
ABOUT_TASK = "problems with answers that can be checked; several tasks with + between"
RULES = ("the rules: a sum of verifiers by name",
         "to pay for something else as well; number reads a number, think is the form")


@dataclass(frozen=True, kw_only=True)
class R1ZeroConfig(measured.MeasuredConfig):
    """GRPO on a base model, by rules alone; minutes on two cores."""

    recipe: ClassVar[str] = "r1-zero"
    task: str = setting(MIXTURE, ABOUT_TASK, "to see what else a base model finds by itself")
    model: str = setting(MODEL, "a base model, without SFT", "to start from a base of your own")
    template: str | None = setting(None, *TEMPLATE)
    reward: str = setting("correct+0.2*think", *RULES)
    collections: int = setting(120, *measured.COLLECTIONS)
    problems: int = setting(100, *measured.PROBLEMS)
    samples: int = setting(8, *measured.SAMPLES)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)


def r1_zero_quick() -> R1ZeroConfig:
    """A few steps, to see that it works."""
    return R1ZeroConfig(collections=2, problems=4, samples=2)


SETTINGS = {"full": R1ZeroConfig, "quick": r1_zero_quick}


def reasoning(config: measured.MeasuredConfig, model: str, collections: int, reward: str,
              task: str = "") -> RolloutConfig:
    """GRPO from a model by a reward, evaluated by the task's own verifier."""
    return RolloutConfig(model=model, task=task or config.task, reward=reward, seed=config.seed,
                         device=config.device, rollouts=Rollouts(collections=collections),
                         evaluation=Evaluation(every=None, problems=min(32, config.problems), samples=4))


def pipeline(config: R1ZeroConfig) -> Pipeline:
    figures = partial(measured.figures_by_part, config)
    stage = reasoning(config, config.model, config.collections, config.reward)
    return Pipeline(name="r1-zero", summarise=partial(r1_zero_summary, config), steps=[
        Measurement(name="base", model=config.model, figures=figures),
        Stage(name="rl", config=stage, about="GRPO on the base: keep what the rules pay for"),
        Measurement(name="rl", model="{rl}", figures=figures)])


def r1_zero_summary(config: R1ZeroConfig, done: Done) -> JsonDict:
    passed = f"pass@{config.samples}"
    rows = [{"model": name, **row} for name, by_part in done.measured.items()
            for row in measured.part_rows(by_part, (passed, f"{passed}_interval"))]
    return {"task": config.task, "seed": config.seed, "measured": done.measured,
            "tables": {f"{config.problems} held-out problems of each task": rows}}
