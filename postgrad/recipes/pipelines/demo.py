"""The demo: a base model, supervised fine-tuning, then GRPO, on word problems;
measured before and after each stage."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from postgrad.evaluation import evaluate, score_samples
from postgrad.opening.models import open_model
from postgrad.recipes import rollouts, sft
from postgrad.recipes.base import SEED, Evaluation
from postgrad.recipes.pipelines.stages import Stage, begin, carry_out, conclude, minutes
from postgrad.report import write_report
from postgrad.run import Run
from postgrad.sampler import LocalSampler, Sampling
from postgrad.settings import Settings, setting
from postgrad.tasks import load_task

TASK = "words"
NEXT = ("postgrad chat runs/demo",
        "postgrad train dapo:words model=runs/demo/sft",
        "postgrad train grpo:arithmetic")
CURVES = (("reward", "Reward", ""), ("length", "Reply length", "tokens"),
          ("kl", "KL to the SFT model", "nats per token"), ("entropy", "Entropy", "nats per token"),
          ("flat_groups", "Groups without signal", ""), ("grad_norm", "Gradient norm", ""))


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Settings):
    """How long each stage is, and how it is measured: problems of the test split, samples for each."""

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
    evaluate_every: int = setting(4, "steps between two examinations of the second stage",
                                  "more often: a finer curve")


def full(seed: int) -> DemoConfig:
    return DemoConfig(seed=seed)


def quick(seed: int) -> DemoConfig:
    """About a quarter of the work, whatever the machine."""
    return DemoConfig(seed=seed, sft_steps=14, sft_examples=900, rl_steps=8, problems=40)


def stages(config: DemoConfig, folder: Path) -> list[Stage]:
    """The two training stages."""
    first = replace(sft.words(), steps=config.sft_steps, save_every=config.sft_steps,
                    examples=config.sft_examples, seed=config.seed)
    examination = Evaluation(every=config.evaluate_every, problems=min(64, config.problems))
    second = replace(rollouts.words(), model=str(folder / "sft"), steps=config.rl_steps,
                     save_every=config.rl_steps, evaluation=examination, seed=config.seed)
    return [Stage(name="sft", config=first), Stage(name="rl", config=second)]


def run(config: DemoConfig, folder: Path, *, watch, command: str = "postgrad demo") -> dict:
    """Runs the demo in the folder, or what is left of it, and returns the summary. watch.stage(name, steps)
    gives a stage's watcher, watch.track(label) a way to show how far a measurement is."""
    began = time.perf_counter()
    begin("demo", config, folder, command)
    task = load_task(TASK)
    prompts = task.prompts("test", config.problems, config.seed)
    settings = Sampling(max_new_tokens=64)
    rows, answers = [], []

    def measure(name: str, model, seconds: float) -> None:
        policy, chat = open_model(model)
        sampler = LocalSampler(policy, chat)
        figures = evaluate(task, sampler, prompts, samples=config.samples, settings=settings,
                           seed=config.seed, track=watch.track(f"measuring {name}"))
        figures["seconds_evaluating"] = figures.pop("seconds")
        rows.append({"name": name, **figures, "seconds": seconds})
        plain = score_samples(task, sampler, prompts[:3], 1, replace(settings, temperature=0.0), config.seed)
        answers.append([{"name": name, "text": s.rollout.text, "correct": s.verdict.score >= task.best}
                        for (s,) in plain])

    measure("base", "tiny", 0.0)
    for stage in stages(config, folder):
        made = carry_out(stage, folder, watch=watch, command=command)
        measure(stage.name, made.folder, 60 * minutes(made))
    summary = {"recipe": "demo", "stages": rows, "seconds_total": time.perf_counter() - began,
               "seed": config.seed, "task": TASK, "problems": config.problems, "samples": config.samples,
               "command": command, "machine": {"cores": os.cpu_count(), "torch": torch.__version__}}
    shown = [{"question": p.question, "gold": str(p.answer), "stages": [stage[i] for stage in answers]}
             for i, p in enumerate(prompts[:3])]
    report(folder, summary, shown)
    return conclude(folder, summary | {"answers": shown})


def report(folder: Path, summary: dict, shown: list[dict]) -> None:
    trained = Run.open(folder / "rl")
    evals, _ = trained.rows("evals")
    curves = [{"name": name, "label": label, "unit": unit,
               "points": [list(p) for p in zip(*trained.curve(name), strict=True)]}
              for name, label, unit in CURVES]
    curves.insert(1, {"name": "pass@1", "label": "pass@1 on held-out problems", "unit": "",
                      "points": [[e["step"], e["pass@1"]] for e in evals],
                      "interval": [[e["step"], *e["pass@1_interval"]] for e in evals]})
    write_report(folder / "report.html", title="A small model learns to reason", summary=summary,
                 curves=curves, answers=shown, over_time=over_time(trained), commands=list(NEXT))


def over_time(trained) -> list[dict]:
    """One sample each from a few steps of the run, first to last."""
    rows, _ = trained.rows("samples")
    steps = sorted({r["step"] for r in rows})
    picked = [steps[round(i * (len(steps) - 1) / 4)] for i in range(5)]
    first = {step: next(r for r in rows if r["step"] == step) for step in dict.fromkeys(picked)}
    return [{"step": step, "question": r["prompt"], "text": r["text"], "correct": r["score"] >= 1.0}
            for step, r in first.items()]
