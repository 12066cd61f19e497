"""RLAIF: what a constitution changes, and what it cannot.

    python examples/experiments/rlaif.py FOLDER     two seeds, half an hour on two cores; a line of JSON a row

tiny-chat; SFT on its revised replies; DPO from there on pairs of its own; DPO from tiny-chat. Then how the
labels of a judge agree with the true quality. The rules are about manners: whether an answer is right is not
among them, so that is measured beside. docs/preferences.md has the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

from postgrad.data.tasks import load_task, questions
from postgrad.evaluation import mean_of, score_samples
from postgrad.maths.intervals import mean_interval
from postgrad.recipes import rlaif
from postgrad.resolve.models import open_model
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.judges import RuleJudge
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling


def train(folder: Path, spec: str, *changes: str) -> Run:
    """The run of `postgrad train`; one that is there is opened."""
    if not folder.exists():
        words = ["-m", "postgrad", "train", spec, *changes, "--run", folder]
        subprocess.run([sys.executable, *words], check=True)
    return Run.open(folder)


def true_quality(model: str, seed: int, samples: int = 16) -> dict:
    """On the validation prompts, its interval over prompts, and the shares of what it is made of."""
    task = load_task("questions")
    groups = score_samples(task, LocalSampler(*open_model(model)), task.prompts("validation", 1000, seed),
                           samples, Sampling(max_new_tokens=64), seed)
    mean, low, high = mean_interval([mean_of(s.verdict.score for s in group) for group in groups])
    rows = [s for group in groups for s in group]
    return {"true quality": mean, "95 % interval": f"{low:.2f} to {high:.2f}",
            "right": mean_of(s.verdict.parts["correct"] > 0 for s in rows),
            **{name: mean_of(s.verdict.parts[name] != 0 for s in rows)
               for name in ("rude", "filler", "greets", "closes")},
            "keeps all rules": mean_of(not read_constitution().broken(s.rollout.text) for s in rows)}


def stages(seed: int, home: Path) -> list[dict]:
    optim = ("optim.schedule=linear", "optim.warmup=5", f"seed={seed}", "evaluation.every=0")
    began, rows = time.process_time(), []

    def label_pairs(model: str, name: str) -> int:
        config = rlaif.RLAIFConfig(model=model, task="questions", samples=8, seed=seed)
        return rlaif.run_rlaif(config, home / name)["pairs"]

    def prefer(model: str, data: str, pairs: int, name: str) -> str:
        """One pass over the pairs at most: there are few once the model keeps the rules."""
        return str(train(home / name, "dpo", f"model={model}", f"data={home / data / 'pairs.jsonl'}",
                         "pairs.per_step=16", f"steps={max(1, min(120, pairs // 16))}", "save_every=120",
                         "optim.lr=5e-5", *optim).folder)

    def note(stage: str, model: str, pairs: object) -> None:
        rows.append({"seed": seed, "stage": stage, "pairs": pairs, **true_quality(model, seed),
                     "CPU minutes so far": (time.process_time() - began) / 60})

    note("tiny-chat", "tiny-chat", "")
    first = label_pairs("tiny-chat", "first")
    tuned = str(train(home / "sft", "sft", "model=tiny-chat", f"data={home / 'first' / 'revisions.jsonl'}",
                      "steps=40", "rows_per_step=32", "save_every=40", "optim.lr=3e-4", *optim).folder)
    note("SFT on its revisions", tuned, "")
    second = label_pairs(tuned, "second")
    note("then DPO on the judge's pairs", prefer(tuned, "second", second, "then-dpo"), second)
    note("DPO on the judge's pairs alone", prefer("tiny-chat", "first", first, "dpo"), first)
    return rows


def labelled(seed: int, judge: str, folder: Path) -> dict:
    """How often a judge's label has the order of the true quality, and finds the right reply where only one
    is: the mean over prompts with its interval; pairs without a gap are left out."""
    asked = {p.question: p for p in load_task("questions").prompts("train", 1000, 0)}
    place = folder / f"labels-{seed}-{judge}"
    labels = rlaif.run_rlaif(rlaif.RLAIFConfig(model="tiny-chat", task="questions", judge=judge, prompts=60,
                                               seed=seed), place)
    ends = [(asked[p["prompt"]], p["chosen"], p["rejected"])
            for p in map(json.loads, (place / "pairs.jsonl").read_text().splitlines())]
    true = [[questions.reply_quality(q, text) for text in sides] for q, *sides in ends]

    def agreement(gaps: list[float]) -> str:
        hits: dict[str, list[bool]] = {}
        for (ask, *_), gap in zip(ends, gaps, strict=True):
            if abs(gap) > 1e-9:
                hits.setdefault(ask.id, []).append(gap > 0)
        mean, low, high = mean_interval([fmean(x) for x in hits.values()], (0.0, 1.0))
        return f"{mean:.2f} ({low:.2f} to {high:.2f})"

    rules = RuleJudge(read_constitution()).compare(ends, seed)
    return {"seed": seed, "judge": judge, "pairs": len(ends), "ties": labels["ties"],
            "agrees with true quality": agreement([a.score - b.score for a, b in true]),
            "agrees with the rules": agreement([o.first - 0.5 for o in rules]),
            "chooses the right reply": agreement([a.parts["correct"] - b.parts["correct"] for a, b in true]),
            "reply shown first preferred": labels["reply shown first preferred"]}


def main(folder: Path) -> None:
    for seed in (0, 1):
        for row in stages(seed, folder / str(seed)):
            print(json.dumps(row), flush=True)
        for judge in ("rules", "tiny-chat"):
            print(json.dumps(labelled(seed, judge, folder)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
