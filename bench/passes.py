"""A setting of the GPU tables, and its two passes: sampling, and forward and backward of training."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
from floors import Rates, train_floor  # noqa: E402
from shapes import SHAPES, questions, write_model, write_task  # noqa: E402
from work import Work  # noqa: E402

from postgrad import methods  # noqa: E402
from postgrad.maths.weights import sequence_mean  # noqa: E402
from postgrad.models import Models, load_model  # noqa: E402
from postgrad.models.chat import Chat  # noqa: E402
from postgrad.records import Batch, Prompt  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.system.gc_tuning import seldom_collected  # noqa: E402
from postgrad.training import objectives  # noqa: E402
from postgrad.training.optim import Optim, OptimSettings  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes of the table, and where its files lie."""

    folder: Path
    ours: tuple[str, ...]
    dtype: torch.dtype
    device: str = "cuda"
    shape: str = "135M"
    big: str = "1B"
    prompts: int = 64
    group: int = 8
    prompt: int = 128
    new: int = 128
    cap: int = 1024
    passes: int = 8                 # 64 rows of 256 tokens at a time, for both sides

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    def model(self, shape: str, chance: float = 0.0) -> Path:
        """The folder of a shape, written when first asked for."""
        folder = self.folder / f"{shape}-{chance:.4f}"
        return folder if folder.exists() else write_model(folder, SHAPES[shape], chance, dtype=torch.bfloat16)

    def work(self, shape: str, how: tuple[str, ...], steps: int = 4, beta: float = 0.0) -> Work:
        task = self.folder / f"task-{shape}" / "task.py"
        if not task.exists():
            write_task(task.parent, self.prompts, self.prompt, SHAPES[shape].vocab_size)
        return Work(kind="grpo", model=str(self.model(shape)), data=str(task), steps=steps, how=how,
                    beta=beta, prompts=self.prompts, group=self.group, new_tokens=self.new,
                    passes=self.passes, device=self.device)

    def recipe(self) -> tuple[str, ...]:
        """The overrides of our side: the same number of tokens at once, all weights (of a large model an
        adapter would be trained, on the other side all of them), and what --ours says."""
        at_once = self.rows * (self.prompt + self.new) // self.passes
        return (f"optim.tokens_per_pass={at_once}", "optim.compile=true", "optim.adapter.lora=0", *self.ours)

    def rates(self, shape: str) -> Rates:
        return Rates.measure(SHAPES[shape], self.dtype, self.device)


def timed(work) -> tuple[float, object]:
    sync = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    sync()
    began = time.perf_counter()
    found = work()
    sync()
    return time.perf_counter() - began, found


def opened(s: Setting, folder: Path) -> tuple[Models, Optim]:
    """A policy ready to train, in the precision that was asked for."""
    models = Models(policy=load_model(folder, device=s.device))
    precision = {torch.bfloat16: "bf16", torch.float32: "fp32"}[s.dtype]
    at_once = s.rows * (s.prompt + s.new) // s.passes
    return models, Optim(models, OptimSettings(lr=1e-6, precision=precision, tokens_per_pass=at_once),
                         steps=1)


def draw(s: Setting, chance: float, new: int, rounds: int = 3,
         **slots: int) -> tuple[list[float], int, float, object, list]:
    """(seconds of each call, tokens of the last, its tokens/s as the median of the warm ones, the model,
    the rollouts). slots: max_concurrent, where they are not as many as a sampler has by itself."""
    folder = s.model(s.shape, chance)
    model, chat = opened(s, folder)[0].policy, Chat.load(folder)
    asked = [Prompt.ask(q, id=str(i))
             for i, q in enumerate(questions(s.prompts, s.prompt, SHAPES[s.shape].vocab_size))]
    sampler, seconds, speeds, rows = LocalSampler(model, chat, **slots), [], [], []
    with seldom_collected():  # as in a run
        for turn in range(rounds + 1):
            passed, groups = timed(partial(sampler.sample, asked, s.group, Sampling(max_new_tokens=new),
                                           turn))
            rows = [r for g in groups for r in g]
            seconds.append(passed)
            speeds.append(sum(len(r.tokens) for r in rows) / passed)
    return seconds, sum(len(r.tokens) for r in rows), statistics.median(speeds[1:]), model, rows


def rows(s: Setting, count: int, ragged: bool = False) -> Batch:
    """Groups that share their prompt, with random advantages; ragged: each answer of another length."""
    width, make = s.prompt + s.new, torch.Generator().manual_seed(0)
    tokens = torch.randint(5, SHAPES[s.shape].vocab_size, (count, width), generator=make)
    tokens[:, : s.prompt] = tokens[:: s.group, : s.prompt].repeat_interleave(s.group, 0)
    lengths = torch.full((count,), width)
    if ragged:
        lengths = torch.randint(s.prompt + 1, width + 1, (count,), generator=make)
    column = torch.arange(width)
    mask = (column >= s.prompt) & (column < lengths[:, None])
    ids = tuple(f"{i // s.group}/{i % s.group}" for i in range(count))
    return Batch(ids=ids, tokens=tokens, mask=mask, lengths=lengths, weight=sequence_mean(mask, s.new),
                 adv=torch.randn(mask.shape, generator=make)).to(s.device)


def step(models: Models, optim: Optim, batch: Batch) -> None:
    """The policy's objective and its backward pass over the rows of a step; no optimizer."""
    objective = objectives.build_objective(replace(methods.get_method("grpo"), kl_in_loss=0.0))
    for micro in batch.split(optim.tokens_per_pass):
        (objective(models, micro)[0] * micro.weight).sum().backward()
        optim.gather()


def train_seconds(models: Models, optim: Optim, batch: Batch, rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        seconds.append(timed(partial(step, models, optim, batch))[0])
        optim.adam.zero_grad()
    return seconds


def train(s: Setting, rounds: int = 5) -> dict:
    seconds, width = train_seconds(*opened(s, s.model(s.shape)), rows(s, s.rows), rounds), s.prompt + s.new
    floor = train_floor(SHAPES[s.shape], s.rates(s.shape), s.prompts * s.prompt + s.rows * s.new,
                        s.rows * s.new, width)
    return {"tokens/s": s.rows * width / statistics.median(seconds[rounds // 2:]), "seconds": seconds,
            "floor tokens/s": s.rows * width / floor, **peak()}


def peak() -> dict:
    return {"peak GiB": torch.cuda.max_memory_allocated() / 2**30} if torch.cuda.is_available() else {}
