"""RLAIF on the embedded model: what a constitution changes, and what it cannot.

Under five CPU minutes for two seeds.

    python proofs/rlaif.py [SEED ...]      (default: 0 1)

The true quality is known in code and never shown to a judge. The rules are about manners: whether an answer
is right is not among them, so the share of right answers is measured beside.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from postgrad.data.tasks import load_task
from postgrad.data.tasks.questions import quality
from postgrad.evaluation import mean_of, score_samples
from postgrad.maths.intervals import mean_interval
from postgrad.recipes import preference, rlaif, running, sft
from postgrad.recipes.base import Evaluation
from postgrad.recipes.rlaif import RLAIFConfig
from postgrad.resolve.models import open_model
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.judges import RuleJudge
from postgrad.runs.display import table as show
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.optim import OptimSettings

START = "tiny-chat"
SAMPLES = 16  # for each of the validation prompts
SETTINGS = Sampling(max_new_tokens=64)
SFT = replace(sft.SFTConfig(data="-"), steps=40, rows_per_step=32, save_every=40,
              optim=OptimSettings(lr=3e-4, schedule="linear", warmup=5))
DPO = replace(preference.PreferenceConfig(data="-"), steps=120, pairs=preference.Pairs(per_step=16),
              save_every=120, optim=OptimSettings(lr=5e-5, schedule="linear", warmup=5),
              evaluation=Evaluation(every=0))
TASK = load_task("questions")


def measure(model: str | Path, seed: int) -> dict:
    """True quality on the validation prompts, its interval over prompts,
    and the shares of what it is made of."""
    policy, chat = open_model(model)
    prompts, rules = TASK.prompts("validation", 1000, seed), read_constitution()
    groups = score_samples(TASK, LocalSampler(policy, chat), prompts, SAMPLES, SETTINGS, seed)
    mean, low, high = mean_interval([mean_of(s.verdict.score for s in group) for group in groups])
    rows = [s for group in groups for s in group]
    return {"true quality": mean, "95 % interval": f"{low:.2f} to {high:.2f}",
            "right": mean_of(s.verdict.parts["correct"] > 0 for s in rows),
            **{name: mean_of(s.verdict.parts[name] != 0 for s in rows)
               for name in ("rude", "filler", "greets", "closes")},
            "keeps all rules": mean_of(not rules.broken(s.rollout.text) for s in rows)}


def stages(seed: int, home: Path) -> list[dict]:
    """tiny-chat; SFT on its revised replies; DPO from there on pairs of its own;
    and DPO straight from tiny-chat."""
    def label(model, name):
        return rlaif.run(RLAIFConfig(model=str(model), task="questions", samples=8, seed=seed),
                         home / name)["pairs"]

    def tune(model, data, name):
        config = replace(SFT, model=str(model), data=str(home / data / "revisions.jsonl"), seed=seed)
        running.start("sft", config, sft.build, home / name)
        return home / name

    def prefer(model, data, pairs, name):
        """One pass over the pairs at most: there are few once the model keeps the rules."""
        config = replace(DPO, model=str(model), data=str(home / data / "pairs.jsonl"), seed=seed,
                         steps=max(1, min(DPO.steps, pairs // DPO.pairs.per_step)))
        running.start("preference", config, preference.build, home / name)
        return home / name

    began, rows = time.process_time(), []

    def note(stage, model, pairs):
        rows.append({"seed": seed, "stage": stage, "pairs": pairs, **measure(model, seed),
                     "CPU minutes so far": (time.process_time() - began) / 60})

    note("tiny-chat", START, "")
    first = label(START, "first")
    tuned = tune(START, "first", "sft")
    note("SFT on its revisions", tuned, "")
    second = label(tuned, "second")
    note("then DPO on the judge's pairs", prefer(tuned, "second", second, "then-dpo"), second)
    note("DPO on the judge's pairs alone", prefer(START, "first", first, "dpo"), first)
    return rows


def table(seeds: list[int]) -> list[dict]:
    with tempfile.TemporaryDirectory() as home:
        return [row for seed in seeds for row in stages(seed, Path(home) / str(seed))]


def agreement(asks: list[str], gaps: list[float]) -> str:
    """The mean over prompts, with its interval, of the share of pairs whose gap has the judge's sign;
    no gap: left out."""
    hits: dict[str, list[bool]] = {}
    for ask, gap in zip(asks, gaps, strict=True):
        if abs(gap) > 1e-9:
            hits.setdefault(ask, []).append(gap > 0)
    mean, low, high = mean_interval([mean_of(found) for found in hits.values()], (0.0, 1.0))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def judges(seeds: list[int], prompts: int = 60) -> list[dict]:
    """How often a judge's label has the order of the true quality,
    and finds the right reply where only one is right."""
    rows = []
    asked, rules = {p.question: p for p in TASK.prompts("train", 1000, 0)}, RuleJudge(read_constitution())
    for seed in seeds:
        for judge in ("rules", START):
            with tempfile.TemporaryDirectory() as home:
                config = RLAIFConfig(model=START, task="questions", judge=judge, prompts=prompts, seed=seed)
                found = rlaif.run(config, Path(home) / "out")
                pairs = [json.loads(line)
                         for line in (Path(home) / "out/pairs.jsonl").read_text().splitlines()]
            ends = [(asked[p["prompt"]], p["chosen"], p["rejected"]) for p in pairs]
            true = [[quality(q, text) for text in sides] for q, *sides in ends]
            asks = [q.id for q, *_ in ends]
            rows.append(
                {"seed": seed, "judge": judge, "pairs": len(pairs), "ties": found["ties"],
                 "agrees with true quality": agreement(asks, [a.score - b.score for a, b in true]),
                 "agrees with the rules": agreement(asks, [o.first - 0.5 for o in rules.compare(ends, seed)]),
                 "chooses the right reply": agreement(asks, [a.parts["correct"] - b.parts["correct"]
                                                             for a, b in true]),
                 "reply shown first preferred": found["reply shown first preferred"]})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = [int(word) for word in sys.argv[1:]] or [0, 1]
    show(judges(given), title="labels on pairs of tiny-chat's replies to 60 training prompts")
    print()
    show(table(given), title=f"true quality on the validation prompts, {SAMPLES} samples each")
    print(f"\n{time.process_time() / 60:.1f} CPU minutes")
