"""The self-test of a device: two steps of SFT and of GRPO on the embedded model, and replies, held against
the same on the CPU."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from postgrad.recipes.launch import start_training
from postgrad.recipes.registry import config_for
from postgrad.records import Sampling
from postgrad.resolve.models import check_device, open_writer
from postgrad.resolve.tasks import open_task
from postgrad.runs import Run
from postgrad.sampling import LocalSampler
from postgrad.system.files import error_text
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.shuffled import model_logp

SFT = {"rows_per_step": 8, "examples": 64}
GRPO = {"rollouts.prompts": 8, "rollouts.prompts_per_step": 4, "rollouts.group_size": 4,
        "rollouts.max_new_tokens": 16, "on_look": "off"}
STEPS = {"steps": 2, "save_every": 2, "evaluation.every": 0}
MOST = 1e-3  # how far losses and gradient norms may be off, as a share, and log-probs, in nats


def two_steps(spec: str, changes: dict[str, Any], device: str, folder: Path) -> list[dict[str, float]]:
    """Loss and gradient norm of each step."""
    start_training(*config_for(spec, changes | STEPS | {"device": device}), folder)
    rows, _ = Run.open(folder).rows("metrics")
    return [{name: row[name] for name in ("loss", "grad_norm")} for row in rows]


def sampled_gap(device: str) -> float:
    """The farthest log-prob of replies that the device sampled from the CPU's."""
    model, chat = open_writer("tiny-chat", device)
    groups = LocalSampler(model, chat).sample(open_task("words").prompts("test", 4, 0), 4,
                                              Sampling(max_new_tokens=16), 0)
    rows = [rollout for group in groups for rollout in group]
    batch = rollout_batch(rows)
    again, _ = model_logp(open_writer("tiny-chat")[0], batch, 4096)
    return max(abs(float(x - y)) for row, logp, mask in zip(rows, again, batch.mask, strict=True)
               for x, y in zip(row.logp, logp[mask].tolist(), strict=True))


def check_device_numbers(device: str) -> dict[str, Any]:
    """{"device", "agrees", "training", "sampling", "grpo", "seconds"}: the farthest figure of SFT from the
    CPU's, as a share; of a log-prob; the steps of GRPO there. `fault`: what the device could not do."""
    check_device(device)
    began = time.perf_counter()
    report: dict[str, Any] = {"device": device, "agrees": False}
    try:
        with tempfile.TemporaryDirectory() as place:
            here, there = (two_steps("sft:words", SFT, name, Path(place, f"sft-{number}"))
                           for number, name in enumerate(("cpu", device)))
            report["training"] = max(abs(b[name] / a[name] - 1)
                                     for a, b in zip(here, there, strict=True) for name in a)
            report["sampling"] = sampled_gap(device)
            report["grpo"] = two_steps("grpo:words", GRPO, device, Path(place, "grpo"))
        report["agrees"] = report["training"] <= MOST and report["sampling"] <= MOST
    except (RuntimeError, TypeError, ValueError) as fault:  # an operation that the device does not have
        report["fault"] = f"{type(fault).__name__}: {error_text(fault)}"
    return report | {"seconds": round(time.perf_counter() - began, 1)}
