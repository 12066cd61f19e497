"""Default commands on small and real models, beside sweeps of what they chose (issue 36). Parts of
proofs/truth.py, on a GPU with SmolLM2-135M (`postgrad fetch smollm2`), reasoning-gym and GSM8K's rows:

    python proofs/truth.py defaults data=DATA [cases=words,arithmetic,sums,gsm8k] [seeds=51,52,53]
    python proofs/truth.py arms data=DATA [cases=sums,gsm8k]
"""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from harness import Bars, Tables, bar, once, train

from postgrad.cli.settings import config_from_text
from postgrad.data.environments import sampler_for
from postgrad.data.tasks import load_task
from postgrad.evaluation import draw_samples, mean_of, passed
from postgrad.maths.intervals import mean_interval
from postgrad.recipes.defaults import fill_defaults, reply_sampling
from postgrad.resolve.models import open_writer
from postgrad.sampling import LocalSampler

PROBLEMS, SAMPLES = 250, 4
RATES = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)  # times the rule's
SWEPT = 60  # the seed of the sweeps
# HALF, TWICE: of the limit of a reply's tokens
ARMS = {"default": "", "no KL": "kl=0", "KL 0.001": "kl=0.001", "groups of 4": "rollouts.group_size=4",
        "groups of 16": "rollouts.group_size=16", "32 prompts": "rollouts.prompts_per_step=32",
        "half the tokens": "HALF", "twice the tokens": "TWICE", "80 collections": "rollouts.collections=80",
        "constant rate": "optim.schedule=constant"}


def case(name: str, folder: Path, data: str, model: str, seed: int) -> tuple[str, list[str]]:
    """(task, the words of the default command). GSM8K begins after a default SFT."""
    if name in ("words", "arithmetic"):
        return name, ["grpo", f"task={name}"]
    task = "gym:chain_sum" if name == "sums" else f"gsm8k:{data}"
    if name == "gsm8k":
        model = str(train(folder / f"sft-{seed}", "sft:gsm8k", f"task={task}", f"model={model}",
                          f"seed={seed}", "device=cuda").folder)
    return task, ["grpo", f"task={task}", f"model={model}", "device=cuda"]


def filled(words: list[str]):
    return fill_defaults(config_from_text(words[0], words[1:])[1])[0]


def solved(model: str, task: str, device: str) -> list[float]:
    """pass@1 of every held-out problem."""
    net, chat = open_writer(model, device)
    opened = load_task(task).with_holdout(0.1)
    drawn = draw_samples(opened, sampler_for(opened, LocalSampler(net, chat)),
                         opened.prompts("test", PROBLEMS, 0), samples=SAMPLES, seed=0, greedy=False,
                         settings=reply_sampling(opened, net))
    del net
    gc.collect()
    torch.cuda.empty_cache() if torch.cuda.is_available() else None
    return [mean_of(passed(opened, s) for s in group) for group in drawn.groups]


def gain(folder: Path, task: str, words: list[str], *changes: str) -> dict:
    """What one training gains on held-out problems, paired."""
    config = filled([*words, *changes])
    run = train(folder, words[0], *words[1:], *changes)
    before, after = (solved(name, task, config.device) for name in (config.model, str(run.folder)))
    low, high = mean_interval([b - a for a, b in zip(before, after, strict=True)])[1:]
    return {"lr": config.optim.lr, "before": mean_of(before), "after": mean_of(after), "low": low,
            "high": high}


def defaults(folder: Path, data: str = "", model: str = "models/smollm2",
             cases: str = "words,arithmetic,sums,gsm8k", seeds: str = "51,52,53") -> tuple[Bars, Tables]:
    rows, swept, held, best_of = [], [], 0, []
    for name in cases.split(","):
        for seed in map(int, seeds.split(",")):
            task, words = case(name, folder, data, model, seed)
            found = once(folder / f"{name}-{seed}.json", gain, folder / f"{name}-{seed}", task, words,
                         f"seed={seed}")
            held += found["low"] > 0
            rows.append({"case": name, "seed": seed, **found})
        task, words = case(name, folder, data, model, SWEPT)
        config = filled(words)
        length = f"steps={config.last_step if name in ('words', 'arithmetic') else config.last_step // 4}"
        for times in RATES:
            found = once(folder / f"{name}-rate-{times:.2f}.json", gain, folder / f"{name}-rate-{times:.2f}",
                         task, words, length, f"lr={config.optim.lr * times:.2e}", f"seed={SWEPT}")
            swept.append({"case": name, "times the rule's rate": round(times, 2), **found})
        ours = next(r["after"] for r in swept if r["case"] == name and r["times the rule's rate"] == 1.0)
        best_of.append(ours / max(max(r["after"] for r in swept if r["case"] == name), 1e-9))
    return [bar("default commands: paired 95 % lower bound of the gain above 0, four cases on three seeds",
                "12 of 12", f"{held} of {len(rows)}", held == len(rows) >= 12),
            bar("default rate: held-out pass@1 against the best of five rates, each case (one seed)",
                ">= 90 % of the best", ", ".join(f"{share:.0%}" for share in best_of),
                min(best_of) >= 0.9)], {"Default commands": rows, "Five rates (one seed each)": swept}


def arms(folder: Path, data: str = "", model: str = "models/smollm2", cases: str = "sums,gsm8k",
         seeds: str = "61,62") -> tuple[Bars, Tables]:
    """One setting at a time against the default: figures without a target."""
    rows = []
    for name in cases.split(","):
        for seed in map(int, seeds.split(",")):
            task, words = case(name, folder, data, model, seed)
            limit = filled(words).rollouts.budget
            own = {"HALF": f"rollouts.max_new_tokens={limit // 2}",
                   "TWICE": f"rollouts.max_new_tokens={2 * limit}"}
            for arm, change in ARMS.items():
                place = folder / f"{name}-{arm.replace(' ', '-')}-{seed}"
                found = once(place.with_suffix(".json"), gain, place, task, words,
                             *filter(None, [own.get(change, change)]), f"seed={seed}")
                rows.append({"case": name, "arm": arm, "seed": seed, **found})
    return [], {"Defaults against other values": rows}
