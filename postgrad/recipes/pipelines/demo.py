"""The demo: a base model, SFT, then GRPO on word problems, measured before and after each stage."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task, score_samples
from postgrad.evaluation.progress import Progress
from postgrad.recipes import rollouts, sft
from postgrad.recipes.base import SEED, Evaluation
from postgrad.recipes.pipelines.stages import Done, Measurement, Pipeline, Stage, with_intervals
from postgrad.records import Prompt
from postgrad.resolve.models import open_model
from postgrad.runs import Run
from postgrad.runs.report import write_report
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import Settings, setting

TASK = "words"
NEXT = ("postgrad chat runs/demo",
        "postgrad train dapo:words model=runs/demo/sft",
        "postgrad train grpo:arithmetic")
CURVES = (("reward", "Reward", ""), ("length", "Reply length", "tokens"),
          ("kl", "KL to the SFT model", "nats per token"), ("entropy", "Entropy", "nats per token"),
          ("flat_groups", "Groups without signal", ""), ("grad_norm", "Gradient norm", ""))


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Settings):
    """The length of each stage, and the problems and samples of its measurement."""

    seed: int = setting(0, *SEED)
    sft_steps: int = setting(50, "optimizer steps of the first stage",
                             "fewer for a quicker demo with a worse start")
    sft_examples: int = setting(4000, "demonstrations that it draws from",
                                "with sft_steps: 64 of them go into a step")
    rl_steps: int = setting(40, "optimizer steps of the second stage",
                            "fewer for a quicker demo that learns less")
    problems: int = setting(200, "held-out problems that every stage is measured on",
                            "more: narrower intervals")
    samples: int = setting(8, "samples of each problem", "the k of pass@k")
    evaluate_every: int = setting(4, "steps between two evaluations of the second stage",
                                  "more often: a finer curve")


def quick_demo(seed: int) -> DemoConfig:
    """About a quarter of the work."""
    return DemoConfig(seed=seed, sft_steps=14, sft_examples=900, rl_steps=8, problems=40)


def demo_prompts(config: DemoConfig) -> list[Prompt]:
    return load_task(TASK).prompts("test", config.problems, config.seed)


def measure_demo(config: DemoConfig, model: str, track: Progress) -> JsonDict:
    """Figures on the held-out problems, and greedy answers to the first three."""
    task, prompts, settings = load_task(TASK), demo_prompts(config), Sampling(max_new_tokens=64)
    policy, chat = open_model(model)
    sampler = LocalSampler(policy, chat)
    figures = evaluate_task(task, sampler, prompts, samples=config.samples, settings=settings,
                            seed=config.seed, track=track)
    greedy = score_samples(task, sampler, prompts[:3], 1, replace(settings, temperature=0.0), config.seed)
    return {"figures": figures, "answers": [{"text": s.rollout.text, "correct": s.verdict.score >= task.best}
                                            for (s,) in greedy]}


def pipeline(config: DemoConfig) -> Pipeline:
    """A base model, SFT and GRPO, each measured on the same held-out problems."""
    figures = partial(measure_demo, config)
    first = replace(sft.sft_on_words(), steps=config.sft_steps, save_every=config.sft_steps,
                    examples=config.sft_examples, seed=config.seed)
    evaluation = Evaluation(every=config.evaluate_every, problems=min(64, config.problems))
    second = replace(rollouts.rollouts_on_words(), model="{sft}", steps=config.rl_steps,
                     save_every=config.rl_steps, evaluation=evaluation, seed=config.seed)
    return Pipeline(name="demo", summarise=partial(demo_summary, config), steps=[
        Measurement(name="base", model="tiny", figures=figures),
        Stage(name="sft", config=first, about="SFT: imitate an average writer"),
        Measurement(name="sft", model="{sft}", figures=figures),
        Stage(name="rl", config=second, about="GRPO: keep what earns reward"),
        Measurement(name="rl", model="{rl}", figures=figures)])


def demo_summary(config: DemoConfig, done: Done) -> JsonDict:
    rows = [{"name": name, **{"seconds_evaluating" if key == "seconds" else key: value
                              for key, value in measured["figures"].items()},
             "seconds": 60 * done.run_minutes(name)} for name, measured in done.measured.items()]
    answers = [{"question": prompt.question, "gold": str(prompt.answer),
                "stages": [{"name": name, **measured["answers"][i]}
                           for name, measured in done.measured.items()]}
               for i, prompt in enumerate(demo_prompts(config)[:3])]
    summary = {"recipe": "demo", "stages": rows, "seconds_total": 60 * done.minutes, "seed": config.seed,
               "task": TASK, "problems": config.problems, "samples": config.samples,
               "command": done.command,
               "machine": {"cores": os.cpu_count(), "torch": torch.__version__}}
    demo_report(done.folder, summary, answers)
    columns = ("pass@1", "greedy", "format", "mean_length")
    table = [{"name": row["name"], **with_intervals(row, columns), "minutes": row["seconds"] / 60}
             for row in rows]
    return summary | {"answers": answers, "tables": {"Word problems": table}}


def demo_report(folder: Path, summary: JsonDict, answers: list[JsonDict]) -> None:
    run = Run.open(folder / "rl")
    evals, _ = run.rows("evals")
    curves: list[JsonDict] = [{"name": name, "label": label, "unit": unit,
                               "points": [list(p) for p in zip(*run.curve(name), strict=True)]}
                              for name, label, unit in CURVES]
    curves.insert(1, {"name": "pass@1", "label": "pass@1 on held-out problems", "unit": "",
                      "points": [[e["step"], e["pass@1"]] for e in evals],
                      "interval": [[e["step"], *e["pass@1_interval"]] for e in evals]})
    write_report(folder / "report.html", title="A small model learns to reason", summary=summary,
                 curves=curves, answers=answers, over_time=samples_over_time(run), commands=list(NEXT))


def samples_over_time(run: Run) -> list[JsonDict]:
    """The first sample of five steps, spread evenly from first to last."""
    first: dict[int, JsonDict] = {}
    for row in run.rows("samples")[0]:
        first.setdefault(row["step"], row)
    steps = sorted(first)
    spread = dict.fromkeys(steps[round(i * (len(steps) - 1) / 4)] for i in range(5))
    return [{"step": step, "question": first[step]["prompt"], "text": first[step]["text"],
             "correct": first[step]["score"] >= 1.0} for step in spread]
