"""The host's work in a GRPO step, 64 prompts x 8 samples of 128 + 128 tokens: what a GPU would wait for.

    python bench/host_work.py [--against FOLDER] [--rounds 3]

A model of next to no size is trained on a CPU; what a GPU would compute (steps of sampling, prefills, forward
and backward passes, updates) is taken off the CPU time of the main thread, and what is left is printed as
seconds a step, beside how often a single number is read from a tensor. Two parts of it by themselves, in
which a GPU has nothing to do: from the last step of sampling to the first pass of training, and from the
update to the sampler's taking of its weights. --against: the code in another folder, by turns with this one,
and the ratio.
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
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROMPTS, GROUP, PROMPT, NEW, STEPS = 64, 8, 128, 128, 4
IDLE = {("BatchDecoder.step", "Decoder.logp"): "after sampling",
        ("AdamW.step", "Engine.refresh"): "after update"}


def measure() -> dict:
    """In this process, with the postgrad that PYTHONPATH leads to."""
    import torch
    from shapes import shape, write_model, write_task
    from sides import ours
    from torch.utils._python_dispatch import TorchDispatchMode
    from work import Gate, Work

    from postgrad.models import Decoder
    from postgrad.models.engine import Engine
    from postgrad.sampling.batch_decoder import BatchDecoder
    from postgrad.training.adamw import AdamW

    class Reads(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    device = [0.0]
    last = ["", 0.0]  # what of it was done last, and the host's seconds then
    idle: dict[str, list[float]] = {name: [] for name in IDLE.values()}

    def taken_off(home, name: str) -> None:
        call, label = getattr(home, name), f"{home.__name__}.{name}"

        @wraps(call)
        def timed(*args, **options):
            began = time.thread_time()
            if (last[0], label) in IDLE:
                idle[IDLE[last[0], label]].append(began - device[0] - last[1])
            try:
                return call(*args, **options)
            finally:
                ended = time.thread_time()
                device[0] += ended - began
                last[:] = label, ended - device[0]

        setattr(home, name, timed)

    for home, name in ((BatchDecoder, "step"), (Engine, "prefill"), (Engine, "refresh"), (Decoder, "logp"),
                       (torch.Tensor, "backward"), (AdamW, "step")):
        taken_off(home, name)
    seen: list[tuple[float, float]] = []

    class Enough(Exception):
        pass

    def hear() -> str:
        seen.append((time.thread_time(), device[0]))
        if len(seen) == STEPS:
            raise Enough
        if len(seen) == STEPS - 1:  # counting takes time: the last step is counted, those before are timed
            counting.enter_context(reads)
        return "step"

    reads = Reads()
    with ExitStack() as counting, tempfile.TemporaryDirectory() as folder, suppress(Enough):
        config = shape(1, 8, 1, 1, 8, 64)
        model = write_model(Path(folder) / "model", config)
        task = write_task(Path(folder) / "task", PROMPTS, PROMPT, config.vocab_size)
        ours(Work(kind="grpo", model=str(model), data=str(task), steps=STEPS, prompts=PROMPTS, group=GROUP,
                  new_tokens=NEW, how=("optim.tokens_per_pass=16384",)), Gate(lambda said: None, hear))
    steps = [[b - a for a, b in zip(before, after, strict=True)]
             for before, after in zip(seen[:-1], seen[1:-1], strict=False)]
    return {"host seconds": statistics.median(total - off for total, off in steps),
            **{name: statistics.median(seconds[1:-1]) for name, seconds in idle.items()},
            "numbers read": reads.count}


def asked(root: Path) -> dict:
    env = os.environ | {"PYTHONPATH": f"{root}:{HERE}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, "--here"], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--here", action="store_true", help="measure in this process, which is asked for it")
    args = parser.parse_args()
    if args.here:
        return print(json.dumps(measure()))
    roots = {"now": HERE.parent, **({"before": args.against.resolve()} if args.against else {})}
    rounds = [{name: asked(root) for name, root in roots.items()} for _ in range(args.rounds)]
    found = {name: {key: statistics.median(r[name][key] for r in rounds) for key in rounds[0][name]}
             for name in roots}
    if args.against:
        for key in ("host seconds", *IDLE.values()):
            ratios = [r["now"][key] / r["before"][key] for r in rounds]
            found[f"{key}, now / before"] = statistics.median(ratios)
    print(json.dumps({"part": "host work", **found}))


if __name__ == "__main__":
    main()
