"""A trainer and a sampler on one GPU, measured: weights handed over in its memory, sampling beside training.

Parts of proofs/scale_gpu.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gsm8k import shared_gpu
from ranks_launch import free_port
from results import bar

HERE = Path(__file__).resolve().parent.parent
ENV = os.environ | {"OMP_NUM_THREADS": "4", "POSTGRAD_TIMEOUT": "80",
                    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
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


def command(part: str) -> str:
    return f"python proofs/scale_gpu.py FOLDER {part}"


def last_words(said: str) -> str:
    """The sentence of a failure, out of what its ranks wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    errors += [line for line in lines if "postgrad:" in line]
    return (errors or lines[-1:] or ["no word"])[0][:400]


def rows_of(run: Path) -> list[dict]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Sampler:
    """`postgrad serve` over a folder of weights, as soon as there are some."""

    def __init__(self, s: Setting, weights: Path, rows: int = 64, more: dict[str, str] | None = None):
        self.s, self.weights, self.rows, self.more = s, weights, rows, more or {}
        self.port, self.process = free_port(), None
        self.log = s.folder / "serve.log"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "postgrad", "serve", str(self.weights), "--port", str(self.port),
                 "--rows", str(self.rows), "--queue", "2048", "--context", "256", "--device", self.s.device],
                env=ENV | self.more, stdout=log, stderr=log)

    def end(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        print(self.log.read_text()[-2000:] if self.log.exists() else "", file=sys.stderr, flush=True)


@contextmanager
def training(s: Setting, run: Path, words: list[str], more: dict[str, str] | None = None,
             sampler: Sampler | None = None) -> Iterator[subprocess.Popen]:
    """`postgrad train` in a process of its own, with its sampler beside it; both end with the block."""
    log = run.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "postgrad", "train", *words, "--run", str(run)],
                                   env=ENV | (more or {}), stdout=file, stderr=file)
    try:
        if sampler:
            while not (sampler.weights / "newest.json").exists() and process.poll() is None:
                time.sleep(0.05)
            sampler.start()
        yield process
    finally:
        process.kill()
        process.wait()
        if sampler:
            sampler.end()
        print(log.read_text()[-2000:], file=sys.stderr, flush=True)


def until_made(process: subprocess.Popen, run: Path, steps: int, seconds: float = 120) -> list[dict]:
    """The metrics of a training after so many steps."""
    ends = time.monotonic() + seconds
    while len(rows_of(run)) < steps and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    made = rows_of(run)
    assert len(made) >= steps, f"{len(made)} of {steps} steps: " + last_words(
        run.with_suffix(".log").read_text())
    return made


def ipc(s: Setting) -> list[dict]:
    """A training whose sampler takes the weights from the GPU's memory, and how long that takes."""
    spec, *words = TRAININGS["grpo"]
    run, weights = s.folder / "run", s.folder / "weights"
    sampler = Sampler(s, weights)
    with training(s, run, [spec, *words, f"steps={STEPS}", f"device={s.device}", "compile=false",
                           f"sampler={sampler.address}", f"weights={weights}", f"remote.weight_sync={s.way}"],
                  sampler=sampler) as process:
        made = until_made(process, run, STEPS)
    gap = max(row["mismatch"] for row in made)
    taken = handover(s)
    folder, shared = (taken[way]["whole"] for way in ("folder", s.way))

    def told(way: str) -> str:
        return f"{taken[way]['whole']:.3f} s ({taken[way]['write']:.3f} s of it by the trainer)"
    return [bar(f"grpo of tiny-chat, {STEPS} steps, trainer and `postgrad serve` on one H200, "
                "remote.weight_sync=ipc", "every row by the weights that it names; log-probs off by less "
                "than 0.02, mean of |difference|",
                f"{len(made)} steps, {gap:.1e}", gap < 0.02, command("ipc")),
            bar(f"a handover of the {s.shape} shape on one H200, from the trainer's weights to the sampler's",
                "ipc takes less time than a folder", f"ipc {told(s.way)}, folder {told('folder')}; the "
                "sampler looks every 0.05 s", shared < folder or s.small, command("ipc"))]


def handover(s: Setting, turns: int = 7) -> dict[str, dict[str, float]]:
    """Seconds of a handover by either way, to one server that follows one folder."""
    import torch
    from shapes import SHAPES, write_model

    from postgrad.resolve.handles import SharedWeights
    from postgrad.resolve.models import open_writer
    from postgrad.resolve.weights import WeightsFolder
    from postgrad.sampling import ServedSampler
    made = write_model(s.folder / "model", SHAPES[s.shape], dtype=torch.bfloat16)
    model, chat = open_writer(made, s.device)
    place = s.folder / "handed"
    first = WeightsFolder(place, chat)
    first.show(first.write(model, 0))
    sampler = Sampler(s, place)
    sampler.start()
    there = ServedSampler([sampler.address], chat, positions=256, vocabulary=SHAPES[s.shape].vocab_size)
    found: dict[str, dict[str, float]] = {}
    try:
        step = 0
        for way, folder in (("folder", first), (s.way, first if s.small else SharedWeights(place, chat))):
            spent = []
            for _ in range(turns):
                step += 1
                with torch.no_grad():
                    model.head[0, 0] += 1
                began = time.perf_counter()
                weights = folder.write(model, step)
                written = time.perf_counter()
                folder.show(weights)
                there.await_weights(weights)
                spent.append((written - began, time.perf_counter() - began))
            writes, wholes = zip(*spent[2:], strict=True)  # the first of ipc is a folder, the next a new copy
            found[way] = {"write": statistics.median(writes), "whole": statistics.median(wholes)}
    finally:
        sampler.end()
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


def timed(rows: list[dict]) -> dict[str, float]:
    """The usual seconds of a step and of its parts, the first steps left out."""
    names = ("time/step", "time/sample", "time/wait", "time/score", "time/train")
    return {name.removeprefix("time/"): statistics.median(row.get(name, 0.0) for row in rows[SKIPPED:])
            for name in names}


def said(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items() if name != "step")


def in_process(s: Setting, words: list[str]) -> dict[str, float]:
    run = s.folder / "alone"
    with training(s, run, words) as process:
        return timed(until_made(process, run, AHEAD_STEPS))


def beside(s: Setting, words: list[str], ahead: int, name: str, mps: bool) -> dict[str, float]:
    """The same with a sampler beside it on the GPU."""
    run, weights = s.folder / name, s.folder / f"{name}-weights"
    with shared_gpu() if mps else no_mps() as more:
        sampler = Sampler(s, weights, rows=16 if s.small else 512, more=more)
        how = [f"sampler={sampler.address}", f"weights={weights}", f"remote.weight_sync={s.way}",
               f"rollouts.async_depth={ahead}"]
        with training(s, run, [*words, *how], more, sampler) as process:
            return timed(until_made(process, run, AHEAD_STEPS))


@contextmanager
def no_mps() -> Iterator[dict[str, str]]:
    yield {}


def at_once(s: Setting, words: list[str], ahead: int) -> tuple[dict[str, float], str]:
    """Under MPS where it works, else in turns."""
    why = "no nvidia-cuda-mps-control there"
    if shutil.which("nvidia-cuda-mps-control"):
        try:
            return beside(s, words, ahead, f"mps-{ahead}", True), "under MPS"
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            why = f"MPS did not work: {str(error)[:200]}"
            print(why, file=sys.stderr, flush=True)
    return beside(s, words, ahead, f"turns-{ahead}", False), f"without MPS ({why})"


def ahead(s: Setting) -> list[dict]:
    """rollouts.async_depth=1 with a sampler on the same GPU against synchronous training in one process."""
    words = step_words(s)
    alone = in_process(s, words)
    two, how = at_once(s, words, 1)
    return [ahead_bar(s.shape, alone, two, how)]


def ahead_bar(shape: str, alone: dict[str, float], two: dict[str, float], how: str) -> dict:
    """Where sampling beside training takes longer by itself than the step is to take, that is the reason."""
    times, most = alone["step"] / two["step"], alone["step"] / 1.2
    slow = two["sample"] > most
    reason = (f"; the reason: a collection through the endpoint takes {two['sample']:.2f} s, in process "
              f"{alone['sample']:.2f} s, and the step would have to take {most:.2f} s: the server's host "
              "looks at every token" if slow else "")
    return bar(f"{shape} shape, 64 x 8 samples, 128 + 128 tokens on one H200: rollouts.async_depth=1 with a "
               f"sampler beside it (ipc, {how.partition(' (')[0]}) against one process, in step",
               "at least 1.2x, or the reason",
               f"{times:.2f}x: {two['step']:.2f} s a step ({said(two)}) against {alone['step']:.2f} s "
               f"({said(alone)}); {how}{reason}", times >= 1.2 or slow, command("ahead"))


def instep(s: Setting) -> list[dict]:
    """The same sampler without sampling ahead: what the endpoint itself costs."""
    made, how = at_once(s, step_words(s), 0)
    return [bar(f"{s.shape} shape, the same step in step with a sampler beside it (ipc)",
                "the time of its parts",
                f"{made['step']:.2f} s a step ({said(made)}); {how}", True, command("instep"))]


PARTS: dict[str, Callable[[Setting], list[dict]]] = {"ipc": ipc, "ahead": ahead, "instep": instep}
