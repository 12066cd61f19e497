"""A process model against an outcome model: picking the best of n answers, and as the reward of a policy.

    python examples/experiments/process_models.py FOLDER      half an hour on two cores; a line of JSON a row

The generator is `tiny-chat` after one step of GRPO, right in about half of its answers. A reward is judged by
the true pass@1 after PPO. docs/process-models.md has the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from postgrad.data.tasks import load_task
from postgrad.evaluation import passed, score_samples
from postgrad.evaluation.compute import compute_curve, ranker_scores
from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.passk import best_of_n
from postgrad.models import load_scalar
from postgrad.records import Scored
from postgrad.resolve.models import open_folder, open_model
from postgrad.rewards.model import SO_FAR, ModelReward, ProcessReward
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling

N, PROBLEMS, COLLECTIONS, METHOD = 16, 150, 20, "ppo"
SHARE = (0.0, 1.0)
TASK = load_task("words")


def train(folder: Path, spec: str, *changes: str) -> Run:
    """The run of `postgrad train`; one that is there is opened."""
    if not folder.exists():
        words = ["-m", "postgrad", "train", spec, *changes, "--run", folder]
        subprocess.run([sys.executable, *words], check=True)
    return Run.open(folder)


def percent(mean: float, low: float, high: float) -> str:
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def samples(model: str, count: int, seed: int) -> list[list[Scored]]:
    return score_samples(TASK, LocalSampler(*open_model(model)), TASK.prompts("test", PROBLEMS, seed), count,
                         Sampling(max_new_tokens=64), 0)


def right_shares(model: str) -> list[float]:
    """The share of right samples of each problem."""
    return [fmean(passed(TASK, s) for s in group) for group in samples(model, 4, 1)]


def accuracy(runs: dict[str, Run]) -> list[dict]:
    """How well each model tells right from wrong on held-out replies."""
    last = {name: run.evaluations()[-1] for name, run in runs.items()}
    return [{"model": name,
             "balanced accuracy": percent(x["balanced_accuracy"], *x["balanced_accuracy_interval"]),
             "accuracy": x["accuracy"], "on right": x["accuracy_right"], "on wrong": x["accuracy_wrong"],
             "labels that say right": x["right_steps"]} for name, x in last.items()]


def picked(generator: str, runs: dict[str, Run]) -> list[dict]:
    """The accuracy of the answer picked from n, over all subsets of n of the N samples of each problem."""
    process, outcome = (load_scalar(open_folder(runs[name].folder)) for name in ("process", "outcome"))
    chat, groups = open_model(generator)[1], samples(generator, N, 0)
    rankers = {"outcome model": ModelReward([outcome])} | {
        f"process model, {how}": ProcessReward(
            process, chat, lambda r: [step.end for step in TASK.steps(r.prompt, r.text)], how=how)
        for how in SO_FAR}
    curve, _ = compute_curve(TASK, groups, rankers)
    columns = {"majority vote": "maj@k", **{name: f"best@k/{name}" for name in rankers},
               "the truth (pass@n)": "pass@k"}
    rows = [{"picked by": name, **{f"n = {row['k']}": percent(row[key], *row[f"{key}_interval"])
                                   for row in curve}} for name, key in columns.items()]
    right = [[float(passed(TASK, s)) for s in group] for group in groups]
    best = [[[best_of_n(s, r, row["k"]) for s, r in zip(ranker_scores(rankers[name], groups), right,
                                                        strict=True)] for row in curve]
            for name in ("outcome model", "process model, min")]
    gaps = {f"n = {row['k']}": percent(*gain_interval(first, second, SHARE))
            for row, first, second in zip(curve, *best, strict=True)}
    return [*rows, {"picked by": "process (min) less outcome", **gaps}]


def as_rewards(folder: Path, generator: str, runs: dict[str, Run]) -> list[dict]:
    rows, before = [], percent(*mean_interval(right_shares(generator), SHARE))
    for name in ("verifier", "outcome", "process"):
        trained = [train(folder / f"{METHOD}-{name}-{seed}", f"{METHOD}:words", f"model={generator}",
                         f"seed={seed}", "rollouts.prompts_per_step=8", f"rollouts.collections={COLLECTIONS}",
                         "evaluation.every=0", *([f"reward={runs[name].folder}"] if name in runs else []))
                   for seed in (0, 1)]
        after = [right_shares(str(run.folder)) for run in trained]
        mean = lambda key, at: fmean(run.metrics()[at][key] for run in trained)  # noqa: B023, E731
        rows.append({"reward": name, "pass@1 before": before,
                     "after": percent(*mean_interval([fmean(x) for x in zip(*after, strict=True)], SHARE)),
                     "after, by seed": [fmean(x) for x in after],
                     "reward, first and last step": [mean("reward", at) for at in (0, -1)],
                     "length": [mean("length", at) for at in (0, -1)]})
    return rows


def main(folder: Path) -> None:
    generator = str(train(folder / "generator", "grpo:words", "steps=1", "save_every=1", "evaluation.every=0",
                          "optim.schedule=constant").folder)
    runs = {name: train(folder / name, f"{name}:words", f"model={generator}", "save_every=100",
                        "evaluation.every=100", "evaluation.split=test") for name in ("process", "outcome")}
    for row in (*accuracy(runs), *picked(generator, runs), *as_rewards(folder, generator, runs)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
