"""Makes the embedded base model: the recipe `pretrain:tiny` on one GPU, about five minutes.

    python tools/make_tiny.py train OUT     train, and leave the weights (float32) and the log under OUT
    python tools/make_tiny.py pack OUT      write models/embedded/tiny from OUT: bfloat16 weights, and
                                            origin.json with seed,
                                            config, loss curve and hash
    python tools/make_tiny.py chat OUT      fine-tune it on the average writer's demonstrations of all tasks,
                                            on a CPU in about
                                            two minutes, and write postgrad/models/embedded/tiny-chat
"""

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import torch

from postgrad.data.tasks import load_task
from postgrad.models import load_model, save_model
from postgrad.models.chat import Chat
from postgrad.models.load import EMBEDDED
from postgrad.recipes import pretrain
from postgrad.recipes.pretrain import PretrainConfig
from postgrad.recipes.running import start_run
from postgrad.recipes.sft import SFTConfig
from postgrad.training.optim import OptimSettings

FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
CHAT = {"words": 5000, "words-easy": 1000, "words-hard": 1500, "words-es": 1500, "arithmetic": 2500,
        "arithmetic-hard": 1500, "countdown": 2500, "questions": 3000}


def train(out: Path) -> None:
    made(replace(pretrain.tiny(), device="cuda"), out, out.parent / "tiny-run",
         "python tools/make_tiny.py train OUT")


def made(config: PretrainConfig, out: Path, folder: Path, command: str) -> None:
    """A run of pretraining in a folder, and its last weights and its log under `out`."""
    out.mkdir(parents=True, exist_ok=True)
    run = start_run(config, folder, command=command)
    for name in FILES:
        shutil.copy(run.latest() / name, out / name)
    for name in ("metrics.jsonl", "config.json", "run.json"):
        shutil.copy(run.folder / name, out / f"run-{name}")


def pack(out: Path) -> None:
    write(out, out, EMBEDDED["tiny"], "python tools/make_tiny.py train OUT, then pack OUT", "one NVIDIA H200")


def write(weights: Path, log: Path, target: Path, made_by: str, machine: str) -> None:
    """The folder that the package ships."""
    target.mkdir(parents=True, exist_ok=True)
    model = load_model(weights)
    save_model(model, target, torch.bfloat16)
    Chat.load(weights).save(target)
    rows = [json.loads(line) for line in (log / "run-metrics.jsonl").read_text().splitlines()]
    shown = [r for r in rows if r["step"] in (1, 10) or r["step"] % (len(rows) // 50 + 1) == 0]
    origin = {"made_by": made_by, "machine": machine,
              "config": json.loads((log / "run-config.json").read_text()),
              "parameters": sum(p.numel() for p in model.parameters()),
              "tokens": sum(r["tokens"] for r in rows),
              "training_seconds": round(sum(r["time/step"] for r in rows)),
              "loss_curve": [[r["step"], round(r["loss"], 4)] for r in shown],
              "sha256": hashlib.sha256((target / "model.safetensors").read_bytes()).hexdigest()}
    (target / "origin.json").write_text(json.dumps(origin) + "\n")


def chat(out: Path) -> None:
    data, folder = out / "demonstrations.jsonl", out / "tiny-chat-run"
    data.write_text("".join(json.dumps({"id": c.id, "messages": c.messages}) + "\n"
                            for name, count in CHAT.items()
                            for c in load_task(name).demonstrations("train", count, 0)))
    config = replace(SFTConfig(data=str(data)), steps=240, save_every=240,
                     optim=OptimSettings(lr=1e-3, schedule="linear", warmup=10))
    run = start_run(config, folder, command="python tools/make_tiny.py chat OUT")
    shutil.copy(run.folder / "metrics.jsonl", out / "run-metrics.jsonl")
    shutil.copy(run.folder / "config.json", out / "run-config.json")
    write(run.latest(), out, EMBEDDED["tiny-chat"], "python tools/make_tiny.py chat OUT", "2 CPU cores")


if __name__ == "__main__":
    {"train": train, "pack": pack, "chat": chat}[sys.argv[1]](Path(sys.argv[2]))
