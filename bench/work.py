"""What the benchmarks ask for and how they ask: a piece of work, the gate where a side stands between two
steps, and a side's process as the benchmark sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Work:
    """One thing to train. kind: grpo, dpo, reward or sft.

    how: what the side may do about precision and packing.

    ours: how = overrides of the recipe ("optim.x=y"); TRL: how = "defaults", "tuned" (float32, no
    checkpointing), "bf16" (bfloat16 weights, no checkpointing), with "packed" or "wrapped" behind it for SFT.
    """

    kind: str
    model: str
    data: str
    steps: int
    how: tuple[str, ...] = ()
    beta: float = 0.0
    prompts: int = 8
    group: int = 8
    new_tokens: int = 48
    passes: int = 1                 # in how many parts the rollouts of a step go through the network
    device: str = "cpu"
    # ours writes its rollouts there, TRL trains on them: for the check that both do the same
    replay: str = ""

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def method(self) -> str:
        """Both sides divide by the std of a group, but not by the same one:
        where they are compared, neither does."""
        return "dr_grpo" if self.replay else "grpo"

    @property
    def lr(self) -> float:
        """Large where both sides are to stay together for several steps, next to none where lengths are to
        stay as they are."""
        return 1e-4 if self.replay or self.kind != "grpo" else 1e-7


@dataclass
class Gate:
    """Where a side stands between two steps. `sample` draws once and says how many tokens."""

    say: Callable[[dict], None]
    hear: Callable[[], str | None]
    sample: Callable[[], int] | None = None
    began: tuple[float, float] = field(default_factory=lambda: clock())

    def loaded(self) -> None:
        """Everything is loaded: from here on memory counts."""
        self.before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        if gpu():
            gpu().reset_peak_memory_stats()
        self.began = clock()

    def stepped(self, facts: dict) -> None:
        self.say(self.passed() | facts | {"memory": memory("VmHWM") - self.before,
                                          "gpu": gpu().max_memory_allocated() if gpu() else 0})
        while (asked := self.hear()) == "sample":
            self.began = clock()
            tokens = self.sample()
            self.say(self.passed() | {"tokens": tokens})
        assert asked == "step", asked
        self.began = clock()

    def passed(self) -> dict:
        return {name: now - then
                for name, now, then in zip(("seconds", "cpu"), clock(), self.began, strict=True)}


def clock() -> tuple[float, float]:
    if gpu():
        gpu().synchronize()
    return time.perf_counter(), time.process_time()


def gpu():
    """torch.cuda, where this process is using it."""
    torch = sys.modules.get("torch")
    return (torch.cuda if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
            else None)


def memory(name: str) -> int:
    """Bytes, from /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


class Side:
    """A side's process, as the benchmark sees it."""

    def __init__(self, name: str, how: tuple[str, ...], *, threads: int, log):
        self.how, self.name = how, name
        env = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                            "TOKENIZERS_PARALLELISM": "false"}
        self.began = time.perf_counter()
        command = [sys.executable, str(Path(__file__).with_name("sides.py")), name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                        text=True, env=env)

    def ask(self, what: str) -> dict:
        print(what, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side {self.name} {' '.join(self.how)} ended with "
                               f"{self.process.wait()}: see its log.")
        return json.loads(line)

    def start(self, work: Work) -> dict:
        """The first step of a work. What work.how says is for TRL's side alone."""
        how = self.how if self.name == "ours" else (*self.how, *work.how)
        return self.ask(json.dumps(asdict(replace(work, how=how))))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
