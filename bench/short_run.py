"""How soon a short run on a GPU is through, 20 GRPO steps of the embedded model; what a checkpoint delays.

Each part prints one line of JSON; one that fails says so, and the next goes on.

    python bench/short_run.py [PART ...] [--device cuda] [--steps 20]

    cold      `postgrad train grpo:words steps=20 device=cuda` in a process of its own without any cache of
              compiled kernels: seconds until all is imported, until the first step begins, of the first step
              and of the others; whether torch's compiler was loaded, which takes seconds
    warm      the same with the cache that the one before left
    compiled  the same as cold with optim.compile=true
    saves     a 0.63B shape (24 layers of 896, Qwen2's vocabulary): what a checkpoint of it with Adam's state
              delays training, the call itself and the steps while it is being written

A package that pip installed has its bytecode, and a machine that unpacked an image may have none: 4.5 s of a
start were Python's compiler. So each kind of run is made once before it is measured, one step long and with a
cache of kernels of its own, and leaves the bytecode of all that it imports in a folder for the others.

--small (for trying the script on a CPU): few steps, a tiny model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]
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


def short(args, folder: Path, caches: str, *changes: str) -> dict:
    """A run in a process of its own; seconds of each part of it, and in all. folder: for bytecode, and, under
    the name `caches`, for compiled kernels."""
    if not (folder / caches).exists():  # the first of its kind
        with tempfile.TemporaryDirectory() as unused:
            timed(folder, Path(unused), f"device={args.device}", *changes, "steps=1")
    return timed(folder, folder / caches, f"device={args.device}", *changes, f"steps={args.steps}")


def timed(folder: Path, caches: Path, *changes: str) -> dict:
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "PYTHONPATH": str(HERE),
                        "TRITON_CACHE_DIR": str(caches / "triton"),
                        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    caches.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as run:
        words = ["grpo:words", *changes, "--run", f"{run}/run"]
        began = time.time()
        done = subprocess.run([sys.executable, __file__, "--child", str(began), *words], env=env,
                              capture_output=True, text=True)
        whole = time.time() - began
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    marks = json.loads(done.stderr.splitlines()[-1])
    return {"seconds": whole, "import": marks["import"], "start": marks["start"] - marks["import"],
            "first step": marks["first"] - marks["start"], "other steps": marks["last"] - marks["first"],
            "end": whole - marks["last"], "compiler loaded": marks["compiler"]}


def saves(args) -> dict:
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

    config = shape(1, 64, 1, 1, 64, 512) if args.small else shape(24, 896, 14, 2, 4864, 151_936, tied=False)
    rows, width = (4, 32) if args.small else (ROWS, TOKENS)
    with torch.device(args.device):
        policy = Decoder(config)
        for p in policy.parameters():
            p.data.normal_(0.0, 0.02) if p.dim() == 2 else p.data.fill_(1.0)
    chat = new_chat(512)
    models = Models(policy=policy)
    optim = Optim(models, OptimSettings(lr=1e-7, compile=False), steps=1000)
    tokens = torch.randint(5, config.vocab_size, (rows, width), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(width) > 0).expand(rows, width)
    batch = Batch(ids=tuple(map(str, range(rows))), tokens=tokens, mask=mask,
                  lengths=torch.full((rows,), width), weight=mask / mask.sum()).to(args.device)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["cold", "warm", "saves"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts: dict[str, Callable[[], dict]] = {
            "cold": lambda: short(args, Path(folder), "plain"),
            "warm": lambda: short(args, Path(folder), "plain"),
            "compiled": lambda: short(args, Path(folder), "compiled", "optim.compile=true"),
            "saves": lambda: saves(args)}
        for name in args.parts:
            began = time.perf_counter()
            try:
                found = parts[name]()
            except Exception as error:  # the next part goes on
                found = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"part": name, **found, "part seconds": time.perf_counter() - began}),
                  flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(float(sys.argv[2]), sys.argv[3:])
    else:
        main()
