"""What instruments 9, 10 and 13 to 15 show of real models, recorded: a short R1-Zero with its examinations,
the same with the language paid for, pass@k of the first and of its base, its ledger, samplers that are not
the trainer, and samples to choose from.

    python tools/record_reasoning.py FOLDER                  trains what is not in FOLDER yet and writes
                                                             models/embedded/recordings/*.json; about ten
                                                             minutes on one core
    python tools/record_reasoning.py FOLDER languages tries  these alone

FOLDER/zero is the RL stage of `postgrad train r1-zero` with fewer collections and more examinations. A longer
run is recorded in its place by putting its folder there; another such run in FOLDER is recorded beside it, as
FOLDER/r1 is: the second stage of `postgrad train r1 seed=3 device=cuda`, its folder put there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
OUT = HERE / "postgrad" / "models" / "embedded" / "recordings"
BASE, PARTS = "tiny-zero", ("words", "words-es", "countdown")
ZERO = ("postgrad train grpo task=words+words-es+countdown model=tiny-zero reward=correct+0.2*think seed=0 "
        "rollouts.collections=20 evaluation.every=2 evaluation.problems=48 evaluation.samples=4 save_every=2")
PAID = ZERO.replace("0.2*think", "0.2*think+0.2*language")  # R1's remedy, and nothing else changed
OUTCOME = "postgrad train outcome:words seed=0 replies.problems=400 steps=60 evaluation.every=0"
LOOKED_AT = ("pass@1", "pass@1_interval", "mean_length", "problems", "samples",
             *(f"{part}{name}" for part in ("", *(f"{part}/" for part in PARTS))
               for name in ("worded", "mixed_languages", "wrong_language", "turn_back", "recheck")))
TRIED, TRIES = 40, 64               # problems of each part, samples of each, for pass@k
CHOSEN, SPENT = 60, 32              # the same, to choose from
PANEL, PANEL_PROBLEMS = "standard", 40
REPLIES, EACH = 12, 2               # prompts and samples of each for the samplers
UNIT, FINE = 1e-4, 1e-6             # of a log-probability, and of a difference of two: kept as whole numbers


def trained(folder: Path, name: str, command: str) -> Path:
    where = folder / name
    if not where.exists():
        subprocess.run([sys.executable, "-m", *command.split(), "--run", str(where)], check=True, cwd=HERE)
    return where


def command_of(run: Path) -> str:
    """How a run was started, without the folder it was put in."""
    said = json.loads((run / "run.json").read_text())["command"]
    return said.partition(" --run ")[0]


def reward_of(run: Path) -> str:
    """The rules that paid in a run."""
    return json.loads((run / "config.json").read_text())["reward"]


# 13: what a run's own examinations say

def languages(folder: Path) -> dict:
    for name, command in (("zero", ZERO), ("paid", PAID)):
        trained(folder, name, command)
    runs = sorted((p.parent for p in folder.glob("*/evals.jsonl")), key=lambda p: (p.name != "zero", p.name))
    rows = {run.name: examinations(run) for run in runs}
    return {"runs": [{"name": run.name, "command": command_of(run), "reward": reward_of(run),
                      "examinations": rows[run.name]}
                     for run in runs if any("words-es/worded" in row for row in rows[run.name])]}


def examinations(run: Path) -> list[dict]:
    rows = [json.loads(line) for line in (run / "evals.jsonl").read_text().splitlines()]
    return [{"step": row["step"], **{key: short(row[key]) for key in LOOKED_AT if key in row}}
            for row in rows]


def short(value):
    return [short(x) for x in value] if isinstance(value, list) else round(value, 5)


# 10: right samples of each problem, before and after

def tries(folder: Path) -> dict:
    run = trained(folder, "zero", ZERO)
    return {"problems": TRIED, "samples": TRIES, "seed": 0, "base": BASE, "command": command_of(run),
            "tasks": {part: {name: right(model, part) for name, model in (("base", BASE), ("rl", str(run)))}
                      for part in PARTS}}


def right(model: str, part: str) -> list[int]:
    from postgrad.evaluation import passed
    task, groups = sampled(model, part, TRIED, TRIES)
    return [sum(passed(task, s) for s in group) for group in groups]


def sampled(model: str, part: str, problems: int, samples: int):
    from postgrad.data.tasks import load_task
    from postgrad.evaluation import score_samples
    from postgrad.recipes.defaults import reply_tokens_for
    from postgrad.resolve.models import open_writer
    from postgrad.sampling import LocalSampler, Sampling
    task, (net, chat) = load_task(part), open_writer(model)
    settings = Sampling(max_new_tokens=reply_tokens_for(task, net))
    return task, score_samples(task, LocalSampler(net, chat), task.prompts("test", problems, 0), samples,
                               settings, 0)


# 9: samples, what each answers, whether that is right, and what a reward model thinks of it

def choosing(folder: Path) -> dict:
    from postgrad.evaluation import passed
    from postgrad.evaluation.compute import answers_in, ranker_scores
    from postgrad.resolve.models import open_reward
    from postgrad.rewards.model import ModelReward
    run = trained(folder, "outcome", OUTCOME)
    task, groups = sampled("tiny-chat", "words", CHOSEN, SPENT)
    scores = ranker_scores(ModelReward([open_reward(str(run))[0]]), groups)
    answers = answers_in(task, groups)
    assert answers is not None
    rows = [{"right": [int(passed(task, s)) for s in group], "answers": numbered(said),
             "scores": [round(100 * x) for x in judged]}
            for group, said, judged in zip(groups, answers, scores, strict=True)]
    length = sum(len(s.rollout.sampled) for group in groups for s in group) / (CHOSEN * SPENT)
    return {"model": "tiny-chat", "task": "words", "problems": CHOSEN, "samples": SPENT, "seed": 0,
            "judge": command_of(run), "length": round(length, 1), "rows": rows}


def numbered(answers: list) -> list[int]:
    """Equal answers have equal numbers, in the order in which they came; -1: no answer."""
    order = list(dict.fromkeys(a for a in answers if a is not None))
    return [-1 if a is None else order.index(a) for a in answers]


# 14: gains and losses

def ledger(folder: Path) -> dict:
    from postgrad.recipes.panel import measure_ledger
    run = trained(folder, "zero", ZERO)
    found = measure_ledger(str(run), panel=PANEL, problems=PANEL_PROBLEMS)
    for entry in found["entries"]:
        entry["figures"] = {task: {name: [None if x is None else round(x, 4) for x in values]
                                   for name, values in figures.items()}
                            for task, figures in entry["figures"].items()}
    return {"base": BASE, "command": command_of(run), "ledger": found}


# 15: what samplers report, and what the trainer makes of the same tokens

def samplers(folder: Path) -> dict:
    import torch

    from postgrad.models import load_model
    from postgrad.resolve.models import checkpoint_folder, open_model, run_named
    run = trained(folder, "zero", ZERO)
    steps = sorted(int(p.name) for p in (run / "checkpoints").iterdir())
    trainer, chat = open_model(str(run))
    last = checkpoint_folder(*run_named(str(run)))
    made = {"own": (lambda: open_model(str(run))[0], "the trainer’s own weights and arithmetic"),
            "bfloat16": (lambda: load_model(last, dtype=torch.bfloat16), "the same weights in bfloat16"),
            "nf4": (lambda: open_model(str(run), bits=4)[0], "the same weights in 4 bits (NF4)"),
            "late": (lambda: open_model(f"{run}@{steps[0]}")[0],
                     f"the weights of {steps[-1] - steps[0]} collections ago"),
            "start": (lambda: open_model(BASE)[0],
                      f"the weights before training, {steps[-1]} collections ago")}
    return {"model": "zero", "command": command_of(run), "prompts": REPLIES, "each": EACH, "seed": 0,
            "unit": UNIT, "fine": FINE, "step": steps[-1],
            "samplers": [{"name": name, "is": words, "replies": replies(build(), trainer, chat)}
                         for name, (build, words) in made.items()]}


def replies(sampler, trainer, chat) -> list[dict]:
    """Of each reply, the trainer's log-probabilities and how much more the sampler had said."""
    from postgrad.data.tasks import load_task
    from postgrad.sampling import LocalSampler, Sampling
    from postgrad.training.batches.columns import rollout_batch
    from postgrad.training.batches.shuffled import model_logp
    prompts = load_task("words").prompts("test", REPLIES, 0)
    groups = LocalSampler(sampler, chat).sample(prompts, EACH, Sampling(max_new_tokens=128), 0)
    batch = rollout_batch([r for group in groups for r in group])
    old, _ = model_logp(trainer, batch, 4096)
    return [{"logp": [round(x / UNIT) for x in row[mask].tolist()],
             "more": [round(x / FINE) for x in (said - row)[mask].tolist()]}
            for row, said, mask in zip(old.double(), batch.sampler_logp.double(), batch.mask, strict=True)]


MADE = {"languages": languages, "tries": tries, "choosing": choosing, "ledger": ledger, "samplers": samplers}


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names or MADE:
        made = {"made by": "python tools/record_reasoning.py FOLDER", **MADE[name](Path(folder))}
        (OUT / f"{name}.json").write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, (OUT / f"{name}.json").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
