"""Seconds of a short run on a GPU (20 GRPO steps of the embedded model), and the delay of a checkpoint: parts
of h200.py.

    cold   `postgrad train grpo:words steps=20 device=cuda` in a process of its own without any cache of
           compiled kernels: seconds until all is imported, until the first step begins, of the first step and
           of the others; whether torch's compiler was loaded, which takes seconds
    warm   the same with the cache that the one before left
    saves  a 0.63B shape (24 layers of 896, Qwen2's vocabulary): what a checkpoint of it with Adam's state
           delays training, the call itself and the steps while it is being written

A package installed by pip has its bytecode; a machine that unpacked an image may have none, which costs 4.5
s. So one step is trained first, with a kernel cache of its own, and leaves bytecode in a folder for the
others.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROWS, TOKENS, BEFORE = 64, 512, 8  # of a step, and steps before the checkpoint


def child(began: float, args: list[str]) -> None:
    """The command, with the moments at which its parts begin. began: time.time() before this process."""
    marks: dict[str, float] = {"import": 0.0}
    from postgrad.__main__ import main
    from postgrad.recipes import running
    marks["import"] = time.time() - began
    train = running.train

    def watched(models, batches, objective, optim, run, hooks=(), **how):
        marks["start"] = time.time() - began
        ends: list[float] = []
        hooks = [*hooks, lambda now: ends.append(time.time() - began)]
        train(models, batches, objective, optim, run, hooks, **how)
        marks["first"], marks["last"] = ends[0], ends[-1]

    running.train = watched
    sys.argv = ["postgrad", "train", *args, "--json"]
    code = main()
    marks["compiler"] = "torch._dynamo" in sys.modules
    print(json.dumps(marks), file=sys.stderr)
    sys.exit(code)


def short(s, caches: str) -> dict:
    """A run in a process of its own; seconds of each part of it, and in all. The folder is for bytecode, and,
    under the name `caches`, for compiled kernels."""
    if not (s.folder / caches).exists():  # the first of its kind
        with tempfile.TemporaryDirectory() as unused:
            timed(s.folder, Path(unused), f"device={s.device}", "steps=1")
    return timed(s.folder, s.folder / caches, f"device={s.device}", f"steps={3 if s.device == 'cpu' else 20}")


def timed(folder: Path, caches: Path, *changes: str) -> dict:
    home = str(Path(__file__).resolve().parent.parent)
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "PYTHONPATH": home,
                        "TRITON_CACHE_DIR": str(caches / "triton"),
                        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    caches.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as run:
        words = ["grpo:words", *changes, "--run", f"{run}/run"]
        began = time.time()
        done = subprocess.run([sys.executable, __file__, "--child", str(began), *words], env=env,
                              capture_output=True, text=True)
        total = time.time() - began
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    marks = json.loads(done.stderr.splitlines()[-1])
    return {"seconds": total, "import": marks["import"], "start": marks["start"] - marks["import"],
            "first step": marks["first"] - marks["start"], "other steps": marks["last"] - marks["first"],
            "end": total - marks["last"], "compiler loaded": marks["compiler"]}


def saves(s) -> dict:
    """Step times around a checkpoint against the median of those before it."""
    import torch
    from shapes import new_chat, shape

    from postgrad import methods
    from postgrad.models import Decoder, Models
    from postgrad.models.checkpoint import checkpoint_bytes, copy_state
    from postgrad.records import Batch
    from postgrad.runs import Run, Saves
    from postgrad.training import objectives
    from postgrad.training.loop import state_of, train
    from postgrad.training.optim import Optim, OptimSettings

    config = (shape(1, 64, 1, 1, 64, 512) if s.device == "cpu"
              else replace(shape(24, 896, 14, 2, 4864, 151_936), tie_word_embeddings=False))
    rows, width = (4, 32) if s.device == "cpu" else (ROWS, TOKENS)
    with torch.device(s.device):
        policy = Decoder(config)
        for p in policy.parameters():
            p.data.normal_(0.0, 0.02) if p.dim() == 2 else p.data.fill_(1.0)
    chat = new_chat(512)
    models = Models(policy=policy)
    optim = Optim(models, OptimSettings(lr=1e-7, compile=False), steps=1000)
    tokens = torch.randint(5, config.vocab_size, (rows, width), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(width) > 0).expand(rows, width)
    batch = Batch(ids=tuple(map(str, range(rows))), tokens=tokens, mask=mask,
                  lengths=torch.full((rows,), width), weight=mask / mask.sum()).to(s.device)
    ends, facts = [], {}

    class Nothing:
        def state(self) -> dict:
            return {}

    class Enough(Exception):
        pass

    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", recipe="saves", config={}, steps=1000)

        def hook(now) -> None:
            ends.append(time.perf_counter())
            if now.step == BEFORE:
                state = state_of(models, optim, Nothing())
                facts["GB"] = checkpoint_bytes(state, policy) / 1e9
                checkpoints.start(now.step, copy_state(state, policy=policy, chat=chat), 0)
                facts["the call"] = time.perf_counter() - ends[-1]
            elif now.step > BEFORE and "written after" not in facts and not checkpoints.thread.is_alive():
                facts["written after"] = ends[-1] - ends[BEFORE - 1]
                facts["steps meanwhile"] = now.step - BEFORE
            elif "written after" in facts and now.step > facts["steps meanwhile"] + BEFORE + 3:
                raise Enough

        with run.locked():
            try:
                with Saves(run) as checkpoints:
                    train(models, (batch for _ in range(1000)),
                          objectives.build_objective(methods.get_method("sft")), optim,
                          run, [hook])
            except Enough:
                pass
    steps = [b - a for a, b in zip(ends, ends[1:], strict=False)]
    usual = statistics.median(steps[2: BEFORE - 1])
    meanwhile = steps[BEFORE - 1: BEFORE - 1 + facts["steps meanwhile"]]
    return facts | {"usual step": usual, "longest step meanwhile": max(meanwhile),
                    "delay seconds": sum(meanwhile) - usual * len(meanwhile)}


if __name__ == "__main__":
    child(float(sys.argv[2]), sys.argv[3:])
