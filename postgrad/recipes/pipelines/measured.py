"""Figures that several pipelines share, on the same held-out problems for all models: the true quality of
policies, which none is trained on, and a mixture of tasks part by part, each with its own interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.recipes.defaults import model_size, reply_tokens
from postgrad.recipes.pipelines.stages import Done, Measurement, evaluate_named_model
from postgrad.recipes.preference import Pairs
from postgrad.resolve.models import open_model
from postgrad.resolve.tasks import open_task
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import COUNT, Settings

QUALITY_PARTS = ("correct", "greets", "closes", "filler", "rude")
REASONING = ("pass@1", "pass@1_interval", "format", "mean_length", "turn_back", "restart", "recheck",
             "worded", "wrong_language")
# what several pipelines say of a setting: about, when to change it, and its range
PROBLEMS = ("held-out problems, of each task, that every model is measured on", "more: narrower intervals",
            COUNT)
SAMPLES = ("samples of each problem, the k of pass@k",
           "more: narrower intervals, though more problems narrow them faster", COUNT)
PAIRS = ("labelled pairs that are learned from", "fewer where labels are scarce", COUNT)
COLLECTIONS = ("collections of rollouts", "more while pass@1 still rises", COUNT)
SFT_STEPS = ("optimizer steps of SFT on demonstrations", "fewer where the model memorises them", COUNT)
REWARD_STEPS = ("optimizer steps of the reward model", "fewer where its ece rises towards the end", COUNT)


class MeasuredConfig(Settings):
    """The settings of a measurement. (No dataclass of its own: the fields are the pipelines'.)"""

    task: str
    model: str
    template: str | None
    problems: int
    samples: int
    seed: int
    device: str


def pairs_with_holdout(count: int) -> Pairs:
    """As many pairs to learn from, and a fifth as many to evaluate."""
    return Pairs(drawn=count, held_out=max(1, count // 5))


# true quality

def true_quality(config: MeasuredConfig, model: str, track: Progress) -> JsonDict:
    task, size = load_task(config.task), model_size(config.model)
    settings = Sampling(max_new_tokens=reply_tokens(task.tokens, size.parameters, size.positions))
    prompts = [prompt for split in ("validation", "test")
               for prompt in task.prompts(split, config.problems, config.seed)]
    policy, chat = open_model(model, config.device)
    return evaluate_task(task, LocalSampler(policy, chat), prompts[: config.problems], samples=config.samples,
                         greedy=False, settings=settings, seed=seed_of(config.seed, "align"), track=track)


def quality_measurement(config: MeasuredConfig, name: str, model: str) -> Measurement:
    return Measurement(name=name, model=model, figures=partial(true_quality, config))


def quality_summary(config: MeasuredConfig, done: Done) -> JsonDict:
    """The reward model at its last evaluation and every policy, as figures and as tables."""
    *_, last = done.runs["reward"].rows("evals")[0]
    judge = {key: last[key] for key in ("accuracy", "accuracy_interval", "ece")}
    judge["minutes"] = done.run_minutes("reward")
    rows = [{"name": name, "true": figures["reward"], "interval": figures["reward_interval"],
             "parts": {key.removeprefix("reward/"): value for key, value in figures.items()
                       if key.startswith("reward/")},
             "length": figures["mean_length"], "minutes": done.run_minutes(name)}
            for name, figures in done.measured.items()]
    about = {"held-out accuracy": judge["accuracy"], "95 % interval": judge["accuracy_interval"],
             "calibration error": judge["ece"], "minutes": judge["minutes"]}
    compared = [{"policy": row["name"], "true quality": row["true"], "95 % interval": row["interval"],
                 **{key: value for key, value in row["parts"].items() if key in QUALITY_PARTS},
                 "length": row["length"], "minutes": row["minutes"]} for row in rows]
    problems = next(iter(done.measured.values()))["problems"]
    return {"task": config.task, "seed": config.seed, "prompts": problems, "samples": config.samples,
            "reward_model": judge, "policies": rows,
            "tables": {"Reward model": [about], f"True quality on {problems} held-out prompts": compared}}


# a mixture, part by part

def check_labelled(task: str) -> None:
    """Refuses a task without labelled pairs before the first stage, and not after the second."""
    if open_task(task).preferences is None:
        raise ValueError(f"task {task} has no labelled pairs, which the reward model learns from: "
                         "the task questions has.")


def figures_on(task: str, config: MeasuredConfig, model: str, track: Progress) -> JsonDict:
    return evaluate_named_model(task, model, track, problems=config.problems, samples=config.samples,
                                seed=config.seed, device=config.device)


def figures_by_part(config: MeasuredConfig, model: str, track: Progress) -> dict[str, JsonDict]:
    """Figures on as many problems of each part; a task that is no mixture is its own only part."""
    parts = cast(Sequence[str], open_task(config.task).meta.get("parts", (config.task,)))
    return {part: figures_on(part, config, model, track) for part in parts}


def part_rows(by_part: Mapping[str, JsonDict], more: tuple[str, ...] = ()) -> list[JsonDict]:
    """A row for each part, with the figures of REASONING and of `more` that it has."""
    return [{"task": part, **{key: figures[key] for key in (*REASONING, *more) if key in figures}}
            for part, figures in by_part.items()]


def solved_row(by_part: Mapping[str, JsonDict]) -> JsonDict:
    """pass@1 of every part in one row, and the share of all replies that are in form."""
    row = {name: value for part, figures in by_part.items()
           for name, value in ((part, figures["pass@1"]), (f"{part}_interval", figures["pass@1_interval"]))}
    shares = [figures["format"] for figures in by_part.values() if "format" in figures]
    return row | ({"format": sum(shares) / len(shares)} if shares else {})
