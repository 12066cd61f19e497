"""Expert iteration: SFT of the base on replies of the policy that pass, then GRPO again.

    postgrad train expert-iteration task=gsm8k:data/gsm8k device=cuda

1  sft     SFT of the base on the task's worked solutions
2  grpo    GRPO by the task's verifier
3  again   SFT of the base on the solutions, on passing replies of `grpo` to the training problems (a few of
           each problem at most, no two with the same numbers in order), and on calculations to practise
4  last    GRPO on the problems that were solved in some of those samples and not in all

The base is trained again, as in STaR (Zelikman et al. 2022, arXiv:2203.14465), rejection sampling fine-tuning
(Yuan et al. 2023, arXiv:2308.01825) and R1 (DeepSeek-AI 2025, arXiv:2501.12948): a model that has read the
solutions several times has memorised some of them. Distinct calculations and temperature 0.7 are from the
second of them, which tells calculations apart by their equations; here all their numbers count.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from postgrad.data.tasks.calculations import practice
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.defaults import SMOLLM2, model_size
from postgrad.recipes.difficulty import Difficulty
from postgrad.recipes.pick import write_rows
from postgrad.recipes.pipelines import measured, stages
from postgrad.recipes.pipelines.stages import Data, Done, Measurement, Pipeline, Stage
from postgrad.recipes.rollouts import KL, RolloutConfig
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.sft import SFTConfig
from postgrad.resolve.tasks import open_task
from postgrad.runs.rows import JsonDict
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import COUNT, NOT_NEGATIVE, POSITIVE, Settings, setting
from postgrad.training.batches import Rollouts
from postgrad.training.optim import OptimSettings

COMPARED = ("pass@1", "lenient", "greedy", "greedy_lenient", "format", "mean_length")


@dataclass(frozen=True, kw_only=True)
class StageLengths(Settings):
    """The length of each stage."""

    sft: int = setting(420, *measured.SFT_STEPS)
    grpo: int = setting(60, *measured.COLLECTIONS)
    again: int = setting(900, "optimizer steps", "two or three epochs of all its data", COUNT)
    last: int = setting(300, *measured.COLLECTIONS)


@dataclass(frozen=True, kw_only=True)
class KeptReplies(Settings):
    """The data of the third stage besides the worked solutions."""

    samples: int = setting(20, "replies to each training problem",
                           "more where hard problems have none that is right", COUNT)
    temperature: float = setting(0.7, "of these samples",
                                 "1 for more different ones, of which fewer are right", POSITIVE)
    most: int = setting(6, "right replies of one problem at most, no two with the same numbers in order",
                        "fewer where easy problems make up most of the rows", COUNT)
    practice: int = setting(4000, "rows of calculations with other numbers, of the kinds that the solutions "
                            "note as <<48/2=24>>; 0: none", "more where replies miscalculate; 0 where "
                            "solutions have no such notes", NOT_NEGATIVE)


@dataclass(frozen=True, kw_only=True)
class StageRates(Settings):
    """The learning rates; none: what a sweep found for SmolLM2-135M, by the size for any other model."""

    imitation: float | None = setting(None, "of both SFT stages; none: 5e-4 for SmolLM2-135M, else by the "
                                      "model's size", "lower where the loss jumps", POSITIVE)
    grpo: float | None = setting(None, "of `grpo`, constant; none: by the model's size",
                                 "lower where replies fall apart", POSITIVE)
    last: float | None = setting(None, "of `last`, falling to 0; none: 1.2e-4 for SmolLM2-135M, else by the "
                                 "model's size", "lower where replies fall apart", POSITIVE)


@dataclass(frozen=True, kw_only=True)
class Groups(Settings):
    """A collection of rollouts, in both stages of GRPO."""

    count: int = setting(32, "prompts of a collection of rollouts", "more: a steadier gradient", COUNT)
    size: int = setting(16, "samples of each of them",
                        "more where pass@1 is low and samples of a prompt score the same", COUNT)


@dataclass(frozen=True, kw_only=True)
class ExpertIterationConfig(measured.MeasuredConfig):
    """SFT, GRPO, SFT on passing replies, GRPO on problems of middling difficulty: GSM8K for SmolLM2-135M, on
    a GPU."""

    recipe: ClassVar[str] = "expert-iteration"
    task: str = setting("gsm8k", "a task with demonstrations and answers that can be checked",
                        "to teach another task")
    model: str = setting("models/smollm2", "the model that both SFT stages start from",
                         "to teach a model of your own")
    template: str | None = setting(None, *TEMPLATE)
    prompts: int = setting(10_000, "training problems: their solutions are imitated, the policy answers them "
                           "and is trained on them; a task with fewer gives all it has",
                           "fewer for a quicker look", COUNT)
    lengths: StageLengths = setting(group=StageLengths)
    kept: KeptReplies = setting(group=KeptReplies)
    rates: StageRates = setting(group=StageRates)
    groups: Groups = setting(group=Groups)
    problems: int = setting(1319, *measured.PROBLEMS)
    samples: int = setting(8, *measured.SAMPLES)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)


def expert_iteration_quick() -> ExpertIterationConfig:
    """A few steps of each stage on word problems, to see that it works."""
    return ExpertIterationConfig(
        task="words", model="tiny", prompts=24, lengths=StageLengths(sft=2, grpo=1, again=2, last=1),
        kept=KeptReplies(samples=4, practice=0), groups=Groups(count=8, size=4), problems=4, samples=2)


SETTINGS = {"gsm8k": ExpertIterationConfig, "quick": expert_iteration_quick}


def stage_rates(config: ExpertIterationConfig) -> StageRates:
    """The rates with what is open filled in where they were found: for SmolLM2-135M."""
    named = config.rates
    if model_size(config.model).parameters != SMOLLM2:
        return named
    return replace(named, imitation=named.imitation or 5e-4, last=named.last or 1.2e-4)


def base_sft(config: ExpertIterationConfig, steps: int, task: str | None = None,
             data: str | None = None) -> SFTConfig:
    return SFTConfig(task=task, data=data, model=config.model, examples=config.prompts, steps=steps,
                     save_every=steps, seed=config.seed, device=config.device, rows=RowSettings(holdout=0.0),
                     optim=OptimSettings(lr=stage_rates(config).imitation, schedule="linear", warmup=10))


def grpo_config(config: ExpertIterationConfig, model: str, collections: int, optim: OptimSettings,
                difficulty: Difficulty) -> RolloutConfig:
    """GRPO without a KL, by the task's verifier; saved twice, evaluated three times."""
    return RolloutConfig(
        task=config.task, model=model, kl=KL(coef=0.0), optim=optim, difficulty=difficulty,
        seed=config.seed, device=config.device, save_every=-(-collections // 2),
        rollouts=Rollouts(prompts=config.prompts, prompts_per_step=config.groups.count,
                          group_size=config.groups.size, collections=collections),
        evaluation=Evaluation(every=-(-collections // 3), problems=min(128, config.problems), samples=4))


def write_practice(config: ExpertIterationConfig, out: Path, track: Progress) -> JsonDict:
    """Calculations of the kinds in the notes of the training solutions."""
    task = open_task(config.task)
    if task.gold is None:
        raise ValueError(f"task {task.name} has no solutions to take calculations from: set kept.practice=0.")
    solutions = map(task.gold, task.prompts("train", config.prompts, config.seed))
    rows = practice(solutions, config.kept.practice, random.Random(seed_of(config.seed, "practice")))
    write_rows(out, [{"id": row.id, "messages": [*map(dict, row.messages)]} for row in rows])
    return {"rows": len(rows)}


def test_measurement(name: str, config: ExpertIterationConfig) -> Measurement:
    """Samples and greedy replies on the same test problems for every seed."""
    return stages.measure(name, f"{{{name}}}", config.task, problems=config.problems, samples=config.samples,
                          greedy=True, device=config.device)


def pipeline(config: ExpertIterationConfig) -> Pipeline:
    lengths, kept, rates = config.lengths, config.kept, stage_rates(config)
    practised = [Data(name="practice", given=config, write=write_practice)] if kept.practice else []
    files = [f"{{{name}}}/{stages.CONVERSATIONS}" for name in ("kept", *(step.name for step in practised))]
    first = grpo_config(config, "{sft}", lengths.grpo, OptimSettings(lr=rates.grpo, warmup=5), Difficulty())
    last = grpo_config(config, "{again}", lengths.last,
                       OptimSettings(lr=rates.last, warmup=5, schedule="linear"),
                       Difficulty(rates=f"{{kept}}/{stages.RATES}"))
    return Pipeline(name="expert-iteration", summarise=partial(expert_iteration_summary, config), steps=[
        Stage(name="sft", config=base_sft(config, lengths.sft, task=config.task),
              about="1 SFT on worked solutions"),
        test_measurement("sft", config),
        Stage(name="grpo", config=first, about="2 GRPO by the verifier"),
        test_measurement("grpo", config),
        stages.keep("kept", model="{grpo}", task=config.task, keep="passing", distinct="numbers",
                    most=kept.most, prompts=config.prompts, samples=kept.samples,
                    temperature=kept.temperature, seed=config.seed, device=config.device),
        *practised,
        Stage(name="again", config=base_sft(config, lengths.again, data=",".join([config.task, *files])),
              about="3 SFT of the base on solutions and passing replies"),
        test_measurement("again", config),
        Stage(name="last", config=last, about="4 GRPO on problems of middling difficulty"),
        test_measurement("last", config)])


def expert_iteration_summary(config: ExpertIterationConfig, done: Done) -> JsonDict:
    """All stages in one table, by the strict verifier (the reward) and the lenient one."""
    rows = [{"stage": name, **stages.with_intervals(figures, (*COMPARED, f"pass@{config.samples}")),
             "minutes": done.run_minutes(name)} for name, figures in done.measured.items()]
    return {"task": config.task, "seed": config.seed, "data": done.data, "measured": done.measured,
            "tables": {f"{config.problems} test problems, {config.samples} samples and greedy": rows}}
