"""Past one process on one GPU: two ranks that share it, weights handed over in its memory,
sampling beside training. Parts of proofs/scale.py, a minute and a half each.

    python proofs/scale.py gpu-ranks gpu-ipc gpu-ahead [small=1]

Without a network: embedded models, and random weights of a 135M shape. small=1 is for trying the script on a
CPU: tiny shapes, weights through a folder, meaningless figures.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import Bars, bar, environment, read_lines
from ranks_launch import free_port

ENV = environment(OMP_NUM_THREADS="4", POSTGRAD_TIMEOUT="80")
STEPS = 4
TRAININGS = {
    "sft": ("sft:words", "rows_per_step=24", "examples=128", "tokens_per_pass=400"),
    "grpo": ("grpo:words", "rollouts.prompts=32", "rollouts.prompts_per_step=8", "rollouts.group_size=4",
             "rollouts.max_new_tokens=24", "tokens_per_pass=400", "evaluation.every=0"),
}
AHEAD_STEPS, SKIPPED = 10, 4  # the first ones compile, capture and fill


@dataclass(frozen=True)
class Setting:
    """Where a part works, on what device, and how large."""

    folder: Path
    small: bool

    @property
    def device(self) -> str:
        return "cpu" if self.small else "cuda"

    @property
    def way(self) -> str:
        return "folder" if self.small else "ipc"

    @property
    def shape(self) -> str:
        return "tiny" if self.small else "135M"


def last_words(said: str) -> str:
    """The sentence of a failure, out of what its ranks wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    errors += [line for line in lines if "postgrad:" in line]
    return (errors or lines[-1:] or ["no word"])[0][:400]


@contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """What processes need to compute on the GPU at once rather than in turns: NVIDIA's MPS, where it is and
    was not begun by whoever called."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory() as pipes:
        given = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": pipes}
        subprocess.run([control, "-d"], check=True, env=os.environ | given)
        try:
            yield given
        finally:
            subprocess.run([control], input="quit\n", text=True, check=True, env=os.environ | given)


# several ranks

def trained(s: Setting, jobs: list[dict], world: int) -> str:
    """The jobs one after another in so many ranks, or in one process; what went wrong, "" where nothing
    did."""
    path = s.folder / f"jobs-{len(list(s.folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port",
                str(free_port())] if world > 1 else []
    script = Path(__file__).with_name("scale.py")
    done = subprocess.run([sys.executable, *launcher, script, "work", str(path)], env=ENV, timeout=240,
                          capture_output=True, text=True)
    print(done.stderr[-3000:], file=sys.stderr, flush=True)
    return "" if done.returncode == 0 else last_words(done.stderr)


def job(s: Setting, name: str, run: str, *changes: str) -> dict:
    spec, *words = TRAININGS[name]
    return {"train": spec, "run": str(s.folder / run), "changes": [
        *words, f"steps={STEPS}", "save_every=4", f"device={s.device}", "compile=false", *changes]}


def weights(run: Path) -> dict:
    """Of a run's last checkpoint, or of a model's folder."""
    from safetensors.torch import load_file
    return load_file((max((run / "checkpoints").iterdir()) if (run / "checkpoints").exists() else run)
                     / "model.safetensors")


def apart(first: Path, second: Path) -> tuple[str, float]:
    """How far the weights of two runs of tiny-chat are from one another, in words and relative to their
    length; both in bfloat16 where one was saved so."""
    import torch

    from postgrad.models.load import EMBEDDED
    a, b, began = weights(first), weights(second), weights(EMBEDDED["tiny-chat"])
    if any(a[name].dtype != b[name].dtype for name in a):
        a, b = ({name: x.bfloat16() for name, x in found.items()} for found in (a, b))
    if all(torch.equal(a[name], b[name]) for name in a):
        return "equal bit for bit", 0.0

    def norm(x: dict, y: dict) -> float:
        return float(sum((x[n].double() - y[n].double()).square().sum() for n in x)) ** 0.5
    whole = float(sum(x.double().square().sum() for x in a.values())) ** 0.5
    return (f"relative difference {norm(a, b) / whole:.1e}, of what {STEPS} steps changed "
            f"{norm(a, b) / norm(a, began):.1e}"), norm(a, b) / whole


def is_done(run: Path) -> bool:
    """Whether a training came to its end, so that its checkpoint is whole."""
    path = run / "status.json"
    return path.exists() and json.loads(path.read_text())["state"] == "done"


def ranks(folder: Path, small: str = "") -> Bars:
    """Two ranks on one GPU against one process with two lanes, and that against itself."""
    s = Setting(folder, bool(small))
    one = trained(s, [job(s, n, f"{n}-{k}", "virtual_ranks=2") for n in TRAININGS for k in ("1", "again")], 1)
    two = trained(s, [job(s, n, f"{n}-2") for n in TRAININGS], 2)
    assert not (one or two), one or two
    out = []
    for name in TRAININGS:
        first, again, second = (s.folder / f"{name}-{kind}" for kind in ("1", "again", "2"))
        (found, far), (itself, usual) = apart(first, second), apart(first, again)
        out.append(bar("two ranks of torchrun on one H200 (gloo) against one process with two lanes: "
                       f"{name}, {STEPS} steps, bf16",
                       "equal bits, or no further apart than two runs of one process",
                       found + f"; one process against itself: {itself}" * bool(far),
                       far <= max(1e-6, 2 * usual)))
    return out


# a trainer and a sampler on one GPU

@contextmanager
def serving(s: Setting, weights: Path, rows: int = 64, **more: str) -> Iterator[tuple[str, Callable]]:
    """The address of `postgrad serve` over a folder of weights, and what starts it."""
    port, processes = free_port(), []

    def start() -> None:
        with (s.folder / "serve.log").open("ab") as log:
            processes.append(subprocess.Popen(
                [sys.executable, "-m", "postgrad", "serve", str(weights), "--port", str(port), "--rows",
                 str(rows), "--queue", "2048", "--context", "256", "--device", s.device],
                env=ENV | more, stdout=log, stderr=log))
    try:
        yield f"http://127.0.0.1:{port}", start
    finally:
        for process in processes:
            process.kill()
            process.wait()


def steps_of(s: Setting, run: Path, words: list[str], steps: int, weights: Path | None = None,
             start: Callable = lambda: None, **more: str) -> list[dict]:
    """The metrics of `postgrad train` after so many steps, its sampler started beside it once there are
    weights; it ends then."""
    log = run.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "postgrad", "train", *words, "--run", str(run)],
                                   env=ENV | more, stdout=file, stderr=file)
    try:
        while weights and not (weights / "newest.json").exists() and process.poll() is None:
            time.sleep(0.05)
        start()
        ends = time.monotonic() + 120
        while len(read_lines(run / "metrics.jsonl")) < steps and process.poll() is None \
                and time.monotonic() < ends:
            time.sleep(0.1)
        made = read_lines(run / "metrics.jsonl")
        assert len(made) >= steps, f"{len(made)} of {steps} steps: {last_words(log.read_text())}"
        return made
    finally:
        process.kill()
        process.wait()


def ipc(folder: Path, small: str = "") -> Bars:
    """A training whose sampler takes the weights from the GPU's memory, and how long that takes."""
    s = Setting(folder, bool(small))
    (spec, *words), weights = TRAININGS["grpo"], s.folder / "weights"
    with serving(s, weights) as (address, start):
        made = steps_of(s, s.folder / "run", [
            spec, *words, f"steps={STEPS}", f"device={s.device}", "compile=false", f"sampler={address}",
            f"weights={weights}", f"remote.weight_sync={s.way}"], STEPS, weights, start)
    gap, taken = max(row["mismatch"] for row in made), handover(s)
    told = {way: f"{x['whole']:.3f} s ({x['write']:.3f} s of it by the trainer)" for way, x in taken.items()}
    return [bar(f"grpo of tiny-chat, {STEPS} steps, trainer and `postgrad serve` on one H200, "
                "remote.weight_sync=ipc", "every row by the weights that it names; log-probs off by less "
                "than 0.02, mean of |difference|", f"{len(made)} steps, {gap:.1e}", gap < 0.02),
            bar(f"a handover of the {s.shape} shape on one H200, from the trainer's weights to the sampler's",
                "ipc takes less time than a folder", f"ipc {told[s.way]}, folder {told['folder']}; the "
                "sampler looks every 0.05 s", taken[s.way]["whole"] < taken["folder"]["whole"] or s.small)]


def handover(s: Setting, turns: int = 7) -> dict[str, dict[str, float]]:
    """Seconds of a handover by either way, to one server that follows one folder."""
    import torch
    from shapes import SHAPES, write_model

    from postgrad.resolve.handles import SharedWeights
    from postgrad.resolve.models import open_writer
    from postgrad.resolve.weights import WeightsFolder
    from postgrad.sampling import RemoteSampler
    made = write_model(s.folder / "model", SHAPES[s.shape], dtype=torch.bfloat16)
    model, chat = open_writer(made, s.device)
    place = s.folder / "handed"
    first = WeightsFolder(place, chat)
    first.show(first.write(model, 0))
    found: dict[str, dict[str, float]] = {}
    with serving(s, place) as (address, start):
        start()
        there = RemoteSampler([address], chat, positions=256, vocabulary=SHAPES[s.shape].vocab_size)
        step = 0
        for way, folder in (("folder", first), (s.way, first if s.small else SharedWeights(place, chat))):
            spent = []
            for _ in range(turns):
                step += 1
                with torch.no_grad():
                    model.head[0, 0] += 1
                began = time.perf_counter()
                handed = folder.write(model, step)
                written = time.perf_counter()
                folder.show(handed)
                there.await_weights(handed)
                spent.append((written - began, time.perf_counter() - began))
            writes, wholes = zip(*spent[2:], strict=True)  # the first of ipc is a folder, the next a new copy
            found[way] = {"write": statistics.median(writes), "whole": statistics.median(wholes)}
    return found


def step_words(s: Setting) -> list[str]:
    """The step of bench/h200.py: 64 prompts x 8 samples, 128 + 128 tokens."""
    import torch
    from shapes import SHAPES, write_model, write_task
    prompts, group, tokens = (4, 4, 16) if s.small else (64, 8, 128)
    model = write_model(s.folder / "model", SHAPES[s.shape], dtype=torch.bfloat16)
    task = write_task(s.folder / "task", prompts, tokens, SHAPES[s.shape].vocab_size)
    return ["grpo", f"task={task}", f"model={model}", f"device={s.device}", f"steps={10 * AHEAD_STEPS}",
            "save_every=1000000", "evaluation.every=0", "optim.lr=1e-7", "optim.schedule=constant",
            "optim.warmup=0", "kl.coef=0", f"rollouts.prompts={prompts}",
            f"rollouts.prompts_per_step={prompts}", f"rollouts.group_size={group}",
            f"rollouts.max_new_tokens={tokens}", f"optim.tokens_per_pass={prompts * group * tokens // 4}",
            f"optim.compile={'false' if s.small else 'true'}"]


def timed(rows: list[dict]) -> tuple[dict[str, float], str]:
    """The usual seconds of a step and of its parts, the first ones, which compile and fill, left out."""
    parts = {name: statistics.median(row.get(f"time/{name}", 0.0) for row in rows[SKIPPED:])
             for name in ("step", "sample", "wait", "score", "train")}
    return parts, ", ".join(f"{name} {parts[name]:.2f}" for name in ("sample", "wait", "score", "train"))


def ahead(folder: Path, small: str = "") -> Bars:
    """async_depth=1 with a sampler on the same GPU, under MPS where there is one, against synchronous
    training in one process. Where sampling beside training takes longer by itself than the step is to take,
    that is the reason."""
    s = Setting(folder, bool(small))
    words, weights = step_words(s), s.folder / "ahead-weights"
    alone, alone_parts = timed(steps_of(s, s.folder / "alone", words, AHEAD_STEPS))
    with shared_gpu() as mps, serving(s, weights, 16 if s.small else 512, **mps) as (address, start):
        how = [f"sampler={address}", f"weights={weights}", f"remote.weight_sync={s.way}",
               "rollouts.async_depth=1"]
        two, two_parts = timed(steps_of(s, s.folder / "ahead", [*words, *how], AHEAD_STEPS, weights, start,
                                        **mps))
    times, most = alone["step"] / two["step"], alone["step"] / 1.2
    slow, under = two["sample"] > most, "under MPS" if mps else "without MPS"
    reason = (f"; the reason: a collection through the endpoint takes {two['sample']:.2f} s, in process "
              f"{alone['sample']:.2f} s, and the step would have to take {most:.2f} s: the server's host "
              "looks at every token" if slow else "")
    return [bar(f"{s.shape} shape, 64 x 8 samples, 128 + 128 tokens on one H200: rollouts.async_depth=1 with "
                f"a sampler beside it (ipc, {under}) against one process, in step",
                "at least 1.2x, or the reason",
                f"{times:.2f}x: {two['step']:.2f} s a step ({two_parts}) against {alone['step']:.2f} s "
                f"({alone_parts}); {under}{reason}", times >= 1.2 or slow)]


PARTS: dict[str, Callable] = {"gpu-ranks": ranks, "gpu-ipc": ipc, "gpu-ahead": ahead}
