"""SmolLM2-135M-Instruct on real tasks: arithmetic by GRPO, GSM8K by SFT and then GRPO,
DPO on right and wrong answers.

    python proofs/real.py rows FILE.jsonl                 problems of reasoning-gym's chain_sum (needs
                                                          postgrad[gym])
    python proofs/real.py sums SEED FOLDER FILE.jsonl     (a) before, GRPO, after
    python proofs/real.py gsm8k SEED FOLDER DATA          (b) before, SFT, GRPO, on the published test
                                                          problems
    python proofs/real.py dpo SEED FOLDER DATA            (c) from the SFT model of (b), on problems outside
                                                          the pairs

(a) to (c) want a GPU and models/smollm2 (`postgrad fetch smollm2`), take minutes, and leave their figures in
    FOLDER, for
tools/real_results.py; settings may follow them (lr=1e-5), as after `postgrad train`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

MODEL, DEVICE = "models/smollm2", "cuda"
SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}
GRPO = ("kl=0", "steps=110", "save_every=110", "rollouts.prompts=20000", "prompts_per_step=128",
        "group_size=16", "rollouts.max_new_tokens=64", "lr=1e-5", "schedule=constant", "warmup=5",
        "evaluation.every=25", "evaluation.problems=256")
TOKENS = {"sums": 64, "gsm8k": 256}  # of a reply
CURVE = ("step", "reward", "loss", "length", "entropy", "mismatch", "time/sample", "time/train", "time/step")
PROBLEMS = {"sums": 250, "gsm8k": 1319}


def rows(path: str) -> None:
    """Distinct problems of the generator, in the shape of a .jsonl task."""
    import reasoning_gym
    entries = reasoning_gym.create_dataset("chain_sum", size=20_000, seed=0, **SUMS)
    made = {entry["question"]: entry["answer"] for entry in entries}
    Path(path).write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in made.items()))
    print(f"{len(made)} problems")


def measured(name: str, task, kind: str, seed: int, prompts=None) -> dict:
    """pass@1 and pass@8 at temperature 1, and greedy, on test problems; in bfloat16, as it was trained."""
    import torch

    from postgrad.evaluation import evaluate_task
    from postgrad.models import load_model
    from postgrad.models.chat import Chat
    from postgrad.resolve.models import open_folder
    from postgrad.sampling import LocalSampler, Sampling
    folder = open_folder(name)
    sampler = LocalSampler(load_model(folder, device=DEVICE, dtype=torch.bfloat16), Chat.load(folder))
    prompts = prompts or task.prompts("test", PROBLEMS[kind], 0)
    return evaluate_task(task, sampler, prompts, samples=8, settings=Sampling(max_new_tokens=TOKENS[kind]),
                    seed=seed)


def run(recipe: str, folder: Path, *changes: str) -> dict:
    """One training run by its command line; how it went, with its curve."""
    from postgrad import recipes
    from postgrad.cli.settings import config_from_text
    from postgrad.runs import Run
    command = " ".join(["postgrad train", recipe, *changes])
    began = time.perf_counter()
    kind, config = config_from_text(recipe, changes)
    recipes.start(kind, config, folder, command=command)
    made = Run.open(folder)
    return {"command": command, "minutes": (time.perf_counter() - began) / 60, "config": made.config,
            "evals": made.rows("evals")[0],
            "curve": [{k: row.get(k) for k in CURVE} for row in made.rows("metrics")[0]]}


def save(folder: Path, name: str, found: dict) -> None:
    import torch
    found["machine"] = (f"{torch.cuda.get_device_name()}, torch {torch.__version__}" if DEVICE == "cuda"
                        else DEVICE)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found))
    print(name, {k: v if not isinstance(v, dict)
                 else {x: v[x] for x in ("pass@1", "pass@8", "greedy", "minutes") if x in v}
                 for k, v in found.items()}, flush=True)


def sums(seed: int, folder: Path, path: str, *changes: str) -> None:
    from postgrad.data.tasks import load_task
    task = load_task(path)  # the last number of a reply counts, in whatever form
    found = {"seed": seed, "before": measured(MODEL, task, "sums", seed)}
    found["grpo"] = run("grpo", folder / f"sums-{seed}", f"task={path}", f"model={MODEL}", f"seed={seed}",
                        f"device={DEVICE}", *GRPO, *changes)
    found["after"] = measured(folder / f"sums-{seed}", task, "sums", seed)
    save(folder, f"sums-{seed}", found)


def gsm8k(seed: int, folder: Path, data: str, *changes: str) -> None:
    from postgrad.data.tasks import load_task
    name = f"gsm8k:{data}"
    task, sft = load_task(name), folder / f"gsm8k-sft-{seed}"
    found = {"seed": seed, "before": measured(MODEL, task, "gsm8k", seed)}
    found["sft"] = run("sft:gsm8k", sft, f"task={name}", f"seed={seed}", f"device={DEVICE}")
    found["after sft"] = measured(sft, task, "gsm8k", seed)
    save(folder, f"gsm8k-{seed}", found)
    found["grpo"] = run("grpo:gsm8k", folder / f"gsm8k-{seed}", f"model={sft}", f"task={name}",
                        f"seed={seed}", f"device={DEVICE}", "kl=0", *changes)
    found["after grpo"] = measured(folder / f"gsm8k-{seed}", task, "gsm8k", seed)
    save(folder, f"gsm8k-{seed}", found)


def dpo(seed: int, folder: Path, data: str, *changes: str) -> None:
    from postgrad.data.tasks import load_task
    name = f"gsm8k:{data}"
    task, sft = load_task(name), folder / f"gsm8k-sft-{seed}"
    shown = {p.messages[-1]["content"] for p in task.preferences("train", 10_000, 0)}
    outside = [p for p in task.prompts("test", 10_000, 0) if p.question not in shown]
    found = {"seed": seed, "problems in the pairs": len(shown),
             "before": measured(sft, task, "gsm8k", seed, outside)}
    found["dpo"] = run("dpo:gsm8k", folder / f"dpo-{seed}", f"model={sft}", f"task={name}", f"seed={seed}",
                       f"device={DEVICE}", *changes)
    found["after"] = measured(folder / f"dpo-{seed}", task, "gsm8k", seed, outside)
    save(folder, f"dpo-{seed}", found)


if __name__ == "__main__":
    part, *rest = sys.argv[1:]
    if part == "rows":
        rows(*rest)
    else:
        seed, folder, data, *changes = rest
        {"sums": sums, "gsm8k": gsm8k, "dpo": dpo}[part](int(seed), Path(folder), data, *changes)
