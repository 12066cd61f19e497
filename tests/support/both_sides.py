"""TRL's trainers and ours on the same rows, from the same folder: what both sides' AdamW is given and leaves.

TRL's side is its own trainer from beginning to end; only what GRPO generates is handed to it (its
`rollout_func`): the rollouts that our run drew.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import postgrad as pg
from postgrad.models import load_scalar, save_model
from postgrad.runs.tracker import Tracker
from postgrad.training.adamw import AdamW

STEPS, LR = 2, 1e-5
FLOAT = {"bf16": False, "gradient_checkpointing": False, "use_cpu": True}
QUIET = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
OURS = {"display": False, "steps": STEPS, "lr": LR, "beta2": 0.999, "schedule": "linear", "warmup": 0,
        "save_every": STEPS,
        "evaluation": {"every": 0}}  # AdamW's beta2 is 0.999 in TRL


def folder_of(name: str, folder: Path) -> Path:
    """An embedded model in Hugging Face's layout."""
    return pg.load_model(name).save(folder)


def scorer_of(name: str, folder: Path, seed: int = 0) -> Path:
    """A reward model with a random head: both libraries would start a new one, each in its own way."""
    model = load_scalar(name)
    draw = torch.Generator().manual_seed(seed)
    model.score_head.weight.data.normal_(0.0, 0.1, generator=draw)
    pg.load_model(name).save(folder)
    (folder / "model.safetensors").unlink()
    save_model(model, folder)
    return folder


class Seen:
    """The gradients of each optimizer step by the names of the weights, as AdamW gets them: after the cut to
    a norm of 1."""

    def __init__(self, folder: Path):
        self.begins = load_file(folder / "model.safetensors")
        self.names: dict[int, str] = {}
        self.steps: list[dict[str, torch.Tensor]] = []

    def name(self, p: torch.Tensor) -> str:
        if id(p) not in self.names:
            same = (n for n, x in self.begins.items() if x.shape == p.shape and torch.equal(x, p.detach()))
            self.names[id(p)] = next(same)
        return self.names[id(p)]

    @contextmanager
    def watched(self):
        def seen(plain, params):
            def step(optim, *args, **more):
                self.steps.append({self.name(p): p.grad.clone() for p in params(optim) if p.grad is not None})
                return plain(optim, *args, **more)
            return step

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AdamW, "step", seen(AdamW.step, lambda optim: optim.params))
            patch.setattr(torch.optim.AdamW, "step", seen(
                torch.optim.AdamW.step, lambda optim: [p for g in optim.param_groups for p in g["params"]]))
            yield self


def ours(model: Path, method, folder: Path, **given) -> tuple[Seen, dict]:
    """(gradients, weights) of two steps of `fit`."""
    with Seen(model).watched() as seen:
        run = pg.fit(str(model), method, run=folder / "run", **OURS | given)
    return seen, load_file(run.latest() / "model.safetensors")


def trl(kind: str, model: Path, folder: Path, rows: list[dict], settings: dict, **more) -> tuple[Seen, dict]:
    """The same of TRL's trainer: kind "SFT", "DPO", "Reward" or "GRPO"."""
    library = importlib.import_module("trl")
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast
    args = {"output_dir": str(folder / "trl"), "max_steps": STEPS, "learning_rate": LR,
            "per_device_train_batch_size": len(rows), **FLOAT, **QUIET, **settings}
    trainer = getattr(library, f"{kind}Trainer")(
        model=str(model), args=getattr(library,
                                       f"{kind}Config")(**args), train_dataset=Dataset.from_list(rows),
        processing_class=PreTrainedTokenizerFast.from_pretrained(model), **more)
    with Seen(model).watched() as seen:
        trainer.train()
    return seen, {k: x.detach().clone() for k, x in trainer.model.state_dict().items() if k in seen.begins}


class Kept(Tracker):
    """Looks on at our run and keeps its rollouts; then it is what TRL generates: each step gets those of
    ours."""

    def __init__(self):
        self.steps: list[list] = []

    def on_samples(self, step: int, rows: list[dict]) -> None:
        self.steps.append(rows)

    def on_eval(self, step: int, figures: dict) -> None:
        raise AssertionError("nothing is evaluated here")

    def __call__(self, prompts: list, trainer) -> dict:
        waiting: dict[str, list] = {}
        for row in self.steps.pop(0):
            waiting.setdefault(row["prompt"], []).append(row)
        rows = [waiting[p[-1]["content"]].pop(0) for p in prompts]
        return {"prompt_ids": [list(row["prompt_token_ids"]) for row in rows],
                "completion_ids": [list(row["token_ids"]) for row in rows],
                "logprobs": [[0.0] * len(row["token_ids"]) for row in rows]}  # read with vLLM alone


def furthest(a: dict, b: dict) -> float:
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def moved(begins: dict, ends: dict) -> float:
    return furthest({k: begins[k] for k in ends}, ends)
