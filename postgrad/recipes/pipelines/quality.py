"""The true quality of policies, which none of them was trained on: the same held-out prompts for all."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.recipes.defaults import model_size, reply_tokens
from postgrad.recipes.pipelines.stages import Done, Measurement, run_minutes
from postgrad.resolve.models import open_model
from postgrad.sampling import LocalSampler, Sampling

PARTS = ("correct", "greets", "closes", "filler", "rude")  # of the quality, shown at the end


class QualityEvaluation(Protocol):
    """What the config of a pipeline says of it."""

    task: str
    model: str
    problems: int
    samples: int
    seed: int
    device: str


def true_quality(config: QualityEvaluation, model: str, track: Progress) -> dict:
    task, size = load_task(config.task), model_size(config.model)
    settings = Sampling(max_new_tokens=reply_tokens(task.tokens, size.parameters, size.positions))
    prompts = [prompt for split in ("validation", "test")
               for prompt in task.prompts(split, config.problems, config.seed)]
    policy, chat = open_model(model, config.device)
    return evaluate_task(task, LocalSampler(policy, chat), prompts[: config.problems], samples=config.samples,
                    greedy=False, settings=settings, seed=seed_of(config.seed, "align"), track=track)


def quality_measurement(config: QualityEvaluation, name: str, model: str) -> Measurement:
    return Measurement(name=name, model=model, figures=partial(true_quality, config))


def judged_by(done: Done) -> dict:
    """The reward model as it was at its end."""
    *_, last = done.runs["reward"].rows("evals")[0]
    return {**{k: last[k] for k in ("accuracy", "accuracy_interval", "ece")},
            "minutes": run_minutes(done.runs["reward"])}


def quality_summary(config: QualityEvaluation, done: Done) -> dict:
    """The reward model and every policy, as figures and as tables."""
    judge, first = judged_by(done), next(iter(done.measured.values()))
    rows = [{"name": name, "true": found["reward"], "interval": found["reward_interval"],
             "parts": {k.removeprefix("reward/"): v for k, v in found.items() if k.startswith("reward/")},
             "length": found["mean_length"],
             "minutes": run_minutes(done.runs[name]) if name in done.runs else 0.0}
            for name, found in done.measured.items()]
    about = {"held-out accuracy": judge["accuracy"], "95 % interval": judge["accuracy_interval"],
             "calibration error": judge["ece"], "minutes": judge["minutes"]}
    compared = [{"policy": row["name"], "true quality": row["true"], "95 % interval": row["interval"],
                 **{k: v for k, v in row["parts"].items() if k in PARTS}, "length": row["length"],
                 "minutes": row["minutes"]} for row in rows]
    return {"task": config.task, "seed": config.seed, "prompts": first["problems"], "samples": config.samples,
            "reward_model": judge, "policies": rows,
            "tables": {"Reward model": [about],
                       f"True quality on {first['problems']} held-out prompts": compared}}
