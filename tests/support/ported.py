"""Ten scripts of TRL and their ports (examples/from_trl): what both train on, and what comes of it.

    python tests/support/ported.py      records TRL's side in tests/assets/ported.json

Both sides are the scripts themselves, run in a folder of their own. Of each optimizer step: the rows with the
tokens that are trained, the loss, and the gradient of every weight as AdamW gets it, after the cut to a norm
of 1. GRPO's completions are those that TRL's script samples. LoRA adapters begin with the same numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from both_sides import folder_of, scorer_of
from safetensors.torch import load_file
from torch import Tensor

import postgrad as pg
from postgrad.models.lora import Adapter
from postgrad.records import Rollout
from postgrad.training import objectives
from postgrad.training.adamw import AdamW

HOME = Path(__file__).resolve().parents[2]
SCRIPTS, RECORDED = HOME / "examples" / "from_trl", HOME / "tests" / "assets" / "ported.json"
NAMES = ("grpo_columns", "grpo_async", "dpo_ultrafeedback", "sft_packed", "sft_tools", "sft_weights",
         "reward", "kto", "sft_lora", "sft_eval")
LOSS, GRADIENT = 1e-5, 1e-4  # how far the two may be apart; gradients relative to the norm of the weight's
SPEEDS = (0.7, 1.1, 1.9, 2.3, 2.9, 3.7)

Row = tuple[list[int], list[int]]  # tokens, and where one is trained


@dataclass
class Step:
    """One optimizer step of a side."""

    rows: list[Row]
    loss: float
    norm: float  # of the whole gradient, before the cut
    gradients: dict[str, Tensor]


@dataclass
class Side:
    """What a script did. completions: of each call of GRPO's generation, by prompt. losses: of evaluations;
    best: the step of the best."""

    steps: list[Step] = field(default_factory=list)
    completions: list[list[tuple[str, list[int]]]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: int = 0


def make_place(folder: Path) -> Path:
    """The models that the scripts open."""
    for name in ("tiny-chat", "tiny-tools"):
        folder_of(name, folder / "models" / name)
    scorer_of("tiny-chat", folder / "models" / "scorer")
    return folder


class Watched:
    """Notes the losses, rows and gradients of all steps while a script runs."""

    def __init__(self, model: Path):
        self.begins = load_file(model / "model.safetensors")
        self.side, self.loss, self.norm = Side(), 0.0, 0.0
        self.rows: list[Row] = []
        self.names: dict[int, str] = {}
        self.adapters: dict[int, str] = {}

    def name(self, p: Tensor) -> str:
        if p.data_ptr() in self.adapters:
            return self.adapters[p.data_ptr()]
        if id(p) not in self.names:
            self.names[id(p)] = next(n for n, x in self.begins.items()
                                     if x.shape == p.shape and torch.equal(x, p.detach()))
        return self.names[id(p)]

    def adapter(self, name: str, a: Tensor, b: Tensor) -> None:
        """Gives a layer's adapter the numbers that both sides begin with."""
        draw = torch.Generator().manual_seed(sum(name.encode()))
        with torch.no_grad():
            a.copy_(torch.randn(a.shape, generator=draw) / 10)
            b.copy_(torch.randn(b.shape, generator=draw) / 10)
        self.adapters |= {a.data_ptr(): f"{name}.A", b.data_ptr(): f"{name}.B"}

    @contextlib.contextmanager
    def patched(self):
        plain_backward, plain_clip = torch.Tensor.backward, torch.nn.utils.clip_grad_norm_

        def backward(tensor, *args, **more):
            self.loss += float(tensor.detach())
            return plain_backward(tensor, *args, **more)

        def clip(*args, **more):
            norm = plain_clip(*args, **more)
            self.norm = float(norm)
            return norm

        def stepping(plain, params):
            def step(optim, *args, **more):
                found = {self.name(p): p.grad.clone() for p in params(optim) if p.grad is not None}
                self.side.steps.append(Step(sorted(self.rows), self.loss, self.norm, found))
                self.loss, self.rows = 0.0, []
                return plain(optim, *args, **more)
            return step

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "backward", backward)
            patch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
            patch.setattr(AdamW, "step", stepping(AdamW.step, lambda optim: optim.params))
            patch.setattr(torch.optim.AdamW, "step", stepping(
                torch.optim.AdamW.step, lambda optim: [p for g in optim.param_groups for p in g["params"]]))
            yield patch


def model_of(name: str, place: Path) -> Path:
    return place / "models" / {"sft_tools": "tiny-tools", "reward": "scorer"}.get(name, "tiny-chat")


def run_trl(name: str, place: Path) -> Side:
    """TRL's script."""
    trl, transformers = importlib.import_module("trl"), importlib.import_module("transformers")
    watched = Watched(model_of(name, place))
    with watched.patched() as patch, contextlib.chdir(place):
        patch.setenv("HF_HUB_OFFLINE", "1")
        plain_step, plain_train = transformers.Trainer.training_step, transformers.Trainer.train
        plain_score = trl.GRPOTrainer._generate_and_score_completions

        def training_step(trainer, model, inputs, *args, **more):
            if "completion_ids" not in inputs and not isinstance(inputs, list):
                watched.rows += rows_of(inputs)
            return plain_step(trainer, model, inputs, *args, **more)

        def score(trainer, inputs):
            out = plain_score(trainer, inputs)
            ids = [[t for t, on in zip(row, mask, strict=True) if on] for row, mask in zip(
                out["completion_ids"].tolist(), out["completion_mask"].tolist(), strict=True)]
            shown = [[t for t, on in zip(row, mask, strict=True) if on] for row, mask in zip(
                out["prompt_ids"].tolist(), out["prompt_mask"].tolist(), strict=True)]
            watched.side.completions.append([(row["prompt"][-1]["content"], tokens)
                                             for row, tokens in zip(inputs, ids, strict=True)])
            watched.rows += [([*a, *b], [0] * len(a) + [1] * len(b)) for a, b in zip(shown, ids, strict=True)]
            return out

        def begin(trainer, *args, **more):
            for path, layer in trainer.model.named_modules():
                if hasattr(layer, "lora_A") and "default" in layer.lora_A:
                    watched.adapter(path.removeprefix("base_model.model."), layer.lora_A["default"].weight,
                                    layer.lora_B["default"].weight)
            return plain_train(trainer, *args, **more)

        patch.setattr(transformers.Trainer, "training_step", training_step)
        patch.setattr(transformers.Trainer, "train", begin)
        patch.setattr(trl.GRPOTrainer, "_generate_and_score_completions", score)
        made = runpy.run_path(str(SCRIPTS / f"{name}_trl.py"))["trainer"]
    watched.side.losses = [row["eval_loss"] for row in made.state.log_history if "eval_loss" in row]
    watched.side.best = int((made.state.best_model_checkpoint or "0").rpartition("-")[2])
    return watched.side


def rows_of(inputs: dict[str, Any]) -> list[Row]:
    """The rows of a batch as TRL's collators make it, padded or packed."""
    ids = inputs["input_ids"]
    there = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    if "completion_mask" in inputs:
        trained = inputs["completion_mask"]
    else:
        trained = (inputs["labels"] != -100).long() if "labels" in inputs else torch.ones_like(ids)
    rows = [(t[on].tolist(), m[on].tolist()) for t, m, on in zip(ids, trained, there, strict=True)]
    if "position_ids" not in inputs:
        return rows
    (row,), starts = rows, (inputs["position_ids"][0] == 0).nonzero()[:, 0].tolist()
    return [(row[0][a:b], row[1][a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]


class Replay:
    """A sampler that says what TRL's script sampled."""

    def __init__(self, completions: list[list[tuple[str, list[int]]]], model: Path):
        self.calls, self.chat = [list(call) for call in completions], pg.load_model(str(model)).chat

    def sample(self, prompts, n, sampling, seed):
        call = self.calls.pop(0)
        return [[self.rollout(prompt, tokens) for question, tokens in call if question == prompt.question]
                for prompt in prompts]

    def rollout(self, prompt, tokens):
        return Rollout(prompt=prompt, prompt_tokens=tuple(self.chat.render(prompt.messages)),
                       tokens=tuple(tokens), logp=(), text=self.chat.decode(tokens),
                       finished=tokens[-1] in self.chat.stop, seed=0)


def run_port(name: str, place: Path, completions: list[list[tuple[str, list[int]]]]) -> Side:
    """Our script. completions: what TRL's sampled, for GRPO."""
    model = model_of(name, place)
    watched = Watched(model)
    more: dict[str, Any] = {"sampler": Replay(completions, model)} if completions else {}
    with watched.patched() as patch, contextlib.chdir(place):
        plain_adapter = Adapter.__init__

        def noting(plain):
            def objective(*given):
                batch = given[-1]
                if torch.is_grad_enabled():  # a reward model scores whole rows
                    trained = torch.ones_like(batch.mask) if name == "reward" else batch.mask
                    watched.rows += [(t[:n].tolist(), m[:n].long().tolist()) for t, m, n in zip(
                        batch.tokens, trained, batch.lengths.tolist(), strict=True)]
                return plain(*given)
            return objective

        def adapter(self, *args, **kw):
            plain_adapter(self, *args, **kw)
            for key, a in self.A.items():
                watched.adapter(key.replace("/", "."), a, self.B[key])

        for kind in ("supervised_objective", "preference_objective", "policy_objective"):
            patch.setattr(objectives, kind, noting(getattr(objectives, kind)))
        patch.setattr(Adapter, "__init__", adapter)
        patch.setattr(pg, "fit", partial(pg.fit, display=False, **more), raising=False)
        made = runpy.run_path(str(SCRIPTS / f"{name}.py"))["run"]
    watched.side.losses = [row["loss"] for row in made.evaluations() if row["step"] and "loss" in row]
    watched.side.best = made.best()[0] if watched.side.losses else 0
    return watched.side


def sketch(gradient: Tensor) -> list[float]:
    """The norm of a gradient, and its products with SPEEDS fixed directions of norm 1."""
    flat = gradient.double().flatten()
    turns = torch.arange(1, len(flat) + 1, dtype=torch.float64)
    waves = [torch.cos(turns * turns * speed) for speed in SPEEDS]
    return [float(f"{x:.9g}") for x in (flat.norm(), *(flat @ wave / wave.norm() for wave in waves))]


def distance(a: list[float], b: list[float], size: int) -> float:
    """||a - b|| / ||b|| of two gradients of so many numbers, as their sketches estimate it."""
    mean = sum((x - y) ** 2 for x, y in zip(a[1:], b[1:], strict=True)) / len(SPEEDS)
    return max(abs(a[0] - b[0]), (mean * size) ** 0.5) / b[0] if b[0] else a[0]


def written(side: Side) -> dict[str, Any]:
    """A side as JSON."""
    steps = [{"rows": step.rows, "loss": step.loss, "norm": step.norm,
              "gradients": {name: sketch(g) for name, g in sorted(step.gradients.items())}}
             for step in side.steps]
    return {"steps": steps, "completions": side.completions, "losses": side.losses, "best": side.best}


def apart(mine: Side, theirs: Side) -> dict[str, float]:
    """How far two sides are apart at most: the loss, and relative to its norm the gradient of a weight and
    that of all before the cut; and how many rows differ."""
    far = {"rows": 0.0, "loss": 0.0, "gradient": 0.0, "norm": 0.0}
    assert len(mine.steps) == len(theirs.steps) > 0
    for a, b in zip(mine.steps, theirs.steps, strict=True):
        assert a.gradients.keys() == b.gradients.keys(), a.gradients.keys() ^ b.gradients.keys()
        gaps = [float((a.gradients[n] - g).norm() / g.norm()) for n, g in b.gradients.items() if g.any()]
        far = {"rows": far["rows"] + sum(x != y for x, y in zip(a.rows, b.rows, strict=True)),
               "loss": max(far["loss"], abs(a.loss - b.loss)), "gradient": max(far["gradient"], *gaps),
               "norm": max(far["norm"], abs(a.norm / b.norm - 1))}
    if theirs.losses:
        far["evaluation"] = max(abs(x - y) for x, y in zip(mine.losses, theirs.losses, strict=True))
        far["best"] = abs(mine.best - theirs.best)
    return far


def lines_of(path: Path) -> list[str]:
    """The lines of a script that are neither empty nor its docstring."""
    _, _, program = path.read_text().partition('"""')[2].partition('"""\n')
    return [line for line in program.splitlines() if line.strip()]


def ported_lines(name: str) -> tuple[int, int, int]:
    """Lines of TRL's script, of ours, and of ours those that do not stand in TRL's."""
    theirs, mine = (lines_of(SCRIPTS / f"{name}{end}.py") for end in ("_trl", ""))
    return len(theirs), len(mine), sum(line not in theirs for line in mine)


def record(folder: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    make_place(folder)
    RECORDED.write_text(json.dumps({name: written(run_trl(name, folder)) for name in NAMES}) + "\n")


if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as place:
        record(Path(place))
