"""The process model against the outcome model: picking the best of n answers, and as the reward of a policy.

python proofs/process.py [FOLDER]     prints three tables; 10 minutes on one core; the runs are kept in FOLDER

The generator is `tiny-chat` after one step of GRPO: right in about half of its answers, with steps and
without. Both models learn from the same labelled replies of it, on training problems;
all figures are on test problems.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from postgrad.data.tasks import load_task
from postgrad.evaluation import passed, score_samples
from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.passk import best_of_n
from postgrad.models import load_scalar
from postgrad.recipes import process, rollouts, running
from postgrad.recipes.base import Evaluation
from postgrad.resolve import models as opening
from postgrad.rewards.format import find_answer
from postgrad.rewards.model import SO_FAR, ModelReward, ProcessReward
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import replace_settings

N, SIZES, PROBLEMS, SUBSETS = 16, (1, 2, 4, 8, 16), 150, 200
SEEDS, COLLECTIONS, METHOD = (0, 1), 20, "ppo"
TASK, SETTINGS = load_task("words"), Sampling(max_new_tokens=64)


def run(recipe, name: str, config, folder: Path) -> Path:
    """Trains, unless the folder has the run already."""
    where = folder / name
    if not where.exists():
        running.start(recipe.__name__.rsplit(".", 1)[-1], config, recipe.build, where)
    return where


def generator(folder: Path) -> Path:
    changes = {"steps": 1, "save_every": 1, "evaluation.every": 0, "optim.schedule": "constant"}
    return run(rollouts, "generator", replace_settings(rollouts.words(), changes), folder)


def checker(method: str, folder: Path) -> Path:
    changes = {"method": method, "model": str(generator(folder)), "save_every": 100, "evaluation.every": 100,
               "evaluation.split": "test"}
    return run(process, method, replace_settings(process.words(), changes), folder)


def percent(values: list[float], over: list[float] | None = None) -> str:
    """The mean share with its interval; over: how much more than the mean of these, of the same problems."""
    mean, low, high = (gain_interval(over, values, (0.0, 1.0)) if over
                       else mean_interval(values, (0.0, 1.0)))
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def checkers(folder: Path) -> list[dict]:
    """How well each model tells right from wrong on held-out replies."""
    rows = []
    for method in ("process", "outcome"):
        last = Run.open(checker(method, folder)).rows("evals")[0][-1]
        low, high = last["balanced_accuracy_interval"]
        rows.append({"model": method,
                     "balanced accuracy": f"{last['balanced_accuracy']:.1%} ({low:.1%} to {high:.1%})",
                     "accuracy": f"{last['accuracy']:.1%}", "on right": f"{last['accuracy_right']:.1%}",
                     "on wrong": f"{last['accuracy_wrong']:.1%}",
                     "labels that say right": f"{last['right_steps']:.1%}"})
    return rows


def judges(folder: Path, chat) -> dict:
    def ends(rollout):
        return [step.end for step in TASK.steps(rollout.prompt, rollout.text)]

    model = load_scalar(opening.open_folder(checker("process", folder)))
    out = {"outcome model": ModelReward([load_scalar(opening.open_folder(checker("outcome", folder)))])}
    return out | {f"process model, {how}": ProcessReward(model, chat, ends, how=how) for how in SO_FAR}


def vote(group, right: list[float], n: int, rng: random.Random) -> float:
    """How often the commonest answer of n is right, ties shared: every subset for n = 1 and N,
    else the mean of SUBSETS."""
    said = [find_answer(s.rollout.text) for s in group]
    draws = ([[i] for i in range(N)] if n == 1 else [range(N)] if n == N
             else [rng.sample(range(N), n) for _ in range(SUBSETS)])
    hits = []
    for draw in draws:
        count = Counter(said[i] for i in draw)
        top = {answer for answer, many in count.items() if many == max(count.values())}
        hits.append(fmean(fmean(right[i] for i in draw if said[i] == answer) for answer in top))
    return fmean(hits)


def reranking(folder: Path) -> list[dict]:
    """The accuracy of the answer picked from n, over all subsets of n of the N samples of
    each test problem."""
    model, chat = opening.open_model(generator(folder))
    groups = score_samples(TASK, LocalSampler(model, chat), TASK.prompts("test", PROBLEMS, 0), N, SETTINGS, 0)
    right = [[float(passed(TASK, s)) for s in group] for group in groups]
    rng = random.Random(0)
    picks = {"chance (pass@1)": [[fmean(r)] * len(SIZES) for r in right],
             "majority vote": [[vote(g, r, n, rng) for n in SIZES]
                               for g, r in zip(groups, right, strict=True)]}
    for name, judge in judges(folder, chat).items():
        scores = [[v.score for v in judge([s.rollout for s in group])] for group in groups]
        picks[name] = [[best_of_n(s, r, n) for n in SIZES] for s, r in zip(scores, right, strict=True)]
    picks["the truth (pass@n)"] = [[best_of_n(r, r, n) for n in SIZES] for r in right]
    rows = [{"picked by": name} | {f"n = {n}": percent([p[i] for p in found]) for i, n in enumerate(SIZES)}
            for name, found in picks.items()]
    ours, theirs = picks["process model, min"], picks["outcome model"]
    gap = {f"n = {n}": percent([p[i] for p in ours], [p[i] for p in theirs]) for i, n in enumerate(SIZES)}
    return [*rows, {"picked by": "process (min) less outcome", **gap}]


def each_problem(name: Path) -> list[float]:
    """pass@1 of every test problem."""
    model, chat = opening.open_model(name)
    groups = score_samples(TASK, LocalSampler(model, chat), TASK.prompts("test", PROBLEMS, 1), 4, SETTINGS, 0)
    return [fmean(passed(TASK, s) for s in group) for group in groups]


def rewards(folder: Path) -> list[dict]:
    """METHOD on so many collections, from the generator against each reward;
    what counts is the true pass@1 afterwards."""
    before, rows = each_problem(generator(folder)), []
    small = replace(rollouts.words().rollouts, prompts_per_step=8, collections=COLLECTIONS)
    for name, reward in (("the verifier", None), ("outcome model", "outcome"),
                         ("process model, dense", "process")):
        after, said = [], []
        for seed in SEEDS:
            config = rollouts.RolloutConfig(task="words", model=str(generator(folder)), method=METHOD,
                                     seed=seed, reward=str(checker(reward, folder)) if reward else None,
                                     rollouts=small, evaluation=Evaluation(every=0))
            where = run(rollouts, f"{METHOD}-{reward or 'verifier'}-{seed}", config, folder)
            after.append(each_problem(where))
            said.append(Run.open(where).rows("metrics")[0])
        rows.append({"reward": name, "pass@1 before": percent(before),
                     "after": percent([fmean(x) for x in zip(*after, strict=True)]),
                     "after, by seed": ", ".join(f"{fmean(x):.1%}" for x in after),
                     "reward, first and last step": f"{fmean(x[0]['reward'] for x in said):.2f} to "
                                                    f"{fmean(x[-1]['reward'] for x in said):.2f}",
                     "length": f"{fmean(x[0]['length'] for x in said):.1f} to "
                               f"{fmean(x[-1]['length'] for x in said):.1f}"})
    return rows


def table(folder: Path | None = None) -> dict[str, list[dict]]:
    """Heading -> rows."""
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(folder or scratch)
        return {"Process and outcome model on held-out replies": checkers(at),
                f"Picking one of n answers: {PROBLEMS} test problems, {N} samples each": reranking(at),
                f"As the reward of {COLLECTIONS} collections of {METHOD}, {len(SEEDS)} seeds": rewards(at)}


def main() -> None:
    torch.set_num_threads(1)
    began, clock = time.perf_counter(), time.process_time()
    for heading, rows in table(Path(sys.argv[1]) if len(sys.argv) > 1 else None).items():
        print(f"\n{heading}\n")
        for row in rows:
            print("  ".join(f"{name}: {value}" for name, value in row.items()))
    print(f"\n{time.perf_counter() - began:.0f} seconds, {time.process_time() - clock:.0f} of them computing")


if __name__ == "__main__":
    main()
