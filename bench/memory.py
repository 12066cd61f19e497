"""The memory estimate held against a GPU: random weights in real shapes, sampling, two passes a step, AdamW.

    python bench/memory.py        a JSON line a case; needs a GPU with 140 GB and two minutes

A phase's peak is the allocator's plus the pools of captured graphs. The steps are those of the loop: its
optimizer, master weights, layers compiled and captured as in a run; the sampler keeps its memory unless the
case releases it. Beside each peak stand the parts of the estimate, in GB.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import shapes
import torch

from postgrad import methods
from postgrad.models import Adapted, Adapter, Decoder, Models, ScalarModel
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training import memory
from postgrad.training.memory import GB, SIZES, Memory, Setup, estimate, held, samples
from postgrad.training.memory.setup import llama
from postgrad.training.optim import Optim, OptimSettings

SHAPES = SIZES | {"135M": llama(30, 576, 1536, 9, 3, 49152, tied=True)}
SECONDS = 110  # after which no further case is begun


@dataclass(frozen=True, kw_only=True)
class Case:
    """setup: of a pass. written: what differs of it in sampling."""

    size: str
    method: str
    setup: Setup
    written: dict = field(default_factory=dict)

    @property
    def words(self) -> str:
        s = self.setup
        how = [f"{s.bits} bits", *([f"LoRA {s.lora}"] if s.lora else []), f"{s.rows} x {s.tokens}",
               *(["recompute"] if s.recompute else []), *([] if s.compiled else ["not compiled"]),
               *(["sampler given back" if s.release else "sampler beside"] if self.written else [])]
        return f"{self.size} {self.method}: {', '.join(how)}"


GROUPS = dict(tokens=256, prompt=128, group=8)
FEW = dict(tokens=160, prompt=128, group=8, samples=64)
MANY, KEPT = dict(samples=512), dict(release=False)
CASES = [
    Case(size="135M", method="grpo", setup=Setup(rows=64, **GROUPS, **KEPT), written=MANY),
    Case(size="135M", method="grpo", setup=Setup(rows=64, **GROUPS, recompute=True, **KEPT), written=MANY),
    Case(size="135M", method="grpo", setup=Setup(rows=64, **GROUPS), written=MANY),
    Case(size="135M", method="sft", setup=Setup(rows=8, bits=32)),
    Case(size="1B", method="sft", setup=Setup(bits=32)),
    Case(size="1B", method="sft", setup=Setup(bits=32, rows=4)),
    Case(size="1B", method="sft", setup=Setup(bits=32, rows=4, recompute=True)),
    Case(size="1B", method="sft", setup=Setup(rows=8)),
    Case(size="1B", method="sft", setup=Setup(rows=8, recompute=True)),
    Case(size="1B", method="sft", setup=Setup(rows=8, compiled=False)),
    Case(size="1B", method="ppo", setup=Setup(bits=32, rows=4, reward_model=True)),
    Case(size="1B", method="ppo", setup=Setup(bits=32, rows=4, lora=16, reward_model=True)),
    Case(size="1B", method="grpo", setup=Setup(rows=8, lora=16, **KEPT), written=FEW),
    Case(size="7B", method="grpo", setup=Setup(rows=2, lora=16, **KEPT), written=FEW),
    Case(size="7B", method="grpo", setup=Setup(rows=8, lora=16, recompute=True), written=FEW),
]
NO_TEXT = types.SimpleNamespace(stop=(-1,), decode=lambda tokens: "")  # a chat whose replies never stop


def decoder(size: str) -> Decoder:
    with torch.device("cuda"):
        model = Decoder(SHAPES[size])
    for p in model.parameters():
        p.data.uniform_(-0.02, 0.02)
    return model


def build(case: Case) -> Models:
    setup, method = case.setup, methods.get_method(case.method)
    body, out = decoder(case.size), {}
    for role in held(method, setup.reward_model):
        if setup.lora:
            adapter = Adapter(body, rank=setup.lora, generator=torch.Generator())
            inner = Adapted(body, None if role == "reference" else adapter)
        else:
            inner = body if role == "policy" else decoder(case.size)
        out[role] = ScalarModel(inner) if role in ("reward", "critic") else inner
        if role in ("reference", "reward"):
            out[role].requires_grad_(False)
    return Models(**out)


def pools(less: str = "allocated_size") -> float:
    """Bytes that captured graphs keep to themselves, less those that a tensor stands in."""
    return float(sum(segment["total_size"] - segment.get(less, 0) for segment in torch.cuda.memory_snapshot()
                     if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)))


def peak_of(work: Callable[[], object]) -> float:
    shapes.clean()
    work()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated())


def a_batch(setup: Setup, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of random tokens, with prompts that groups share."""
    tokens = torch.randint(0, vocabulary, (setup.rows, setup.tokens), device="cuda")
    for start in range(0, setup.rows, setup.group):
        tokens[start: start + setup.group, : setup.prompt] = tokens[start, : setup.prompt]
    mask = torch.arange(setup.tokens, device="cuda").expand_as(tokens) >= max(1, setup.prompt)
    return tokens, mask


def train(case: Case, models: Models, optim: Optim) -> float:
    """Peak of the second step."""
    tokens, mask = a_batch(case.setup, SHAPES[case.size].vocab_size)

    def step(number: int) -> None:
        for _ in range(2):
            loss = models.policy.logp(tokens, mask)[0].sum()
            if models.critic is not None:
                loss = loss + models.critic.value(tokens).sum()
            loss.backward()
            optim.gather()
        optim.step(number, float(loss.detach()))

    step(1)
    return peak_of(lambda: step(2)) + pools()


def sample(case: Case, sampler: LocalSampler) -> float:
    """Peak of the second call."""
    how = replace(case.setup, **case.written)
    prompts = -(-how.samples // how.group)
    contexts = torch.randint(0, SHAPES[case.size].vocab_size, (prompts, how.prompt)).tolist()

    def write() -> None:
        for _ in sampler.write(contexts, how.group, list(range(how.samples)),
                               Sampling(max_new_tokens=how.tokens - how.prompt)):
            pass

    write()
    return peak_of(write) + pools()


def measure(case: Case) -> dict:
    setup, method = case.setup, methods.get_method(case.method)
    models = build(case)
    settings = OptimSettings(lr=1e-5, precision="fp32" if setup.bits == 32 else "bf16",
                             compile=setup.compiled, recompute=setup.recompute)
    optim = Optim(models, settings, steps=4)
    sampler = LocalSampler(models.policy, NO_TEXT) if samples(method) and case.written else None
    train(case, models, optim)  # moments and graphs are there, as from the second step on
    peaks = {"sampling": sample(case, sampler)} if sampler else {}
    if sampler and setup.release:
        sampler.release()
        shapes.clean()
    peaks["training"] = train(case, models, optim)
    graphs = max(len(d._replays[True].made) if True in d._replays else 0 for d in models.decoders())
    now = estimated(case, graphs)
    estimates = {"training": now.updating, "sampling": now.sampling}
    return {"graphs": graphs,
            "peaks": {name: {"said": round(estimates[name] / GB, 3), "measured": round(peak / GB, 3),
                             "ratio": round(estimates[name] / peak, 3)} for name, peak in peaks.items()},
            "said": {name: round(getattr(now, name) / GB, 3) for name in memory.PARTS},
            "stays": {name: round(size / GB, 3) for name, size in now.stays.items()}}


def estimated(case: Case, graphs: int) -> Memory:
    setup, c = replace(case.setup, graphs=graphs), SHAPES[case.size]
    training, drawing = estimate(c, methods.get_method(case.method), setup), replace(setup, **case.written)
    sizes = (memory.cache(c, drawing), memory.sampler_bytes(c, drawing)) if case.written else (0.0, 0.0)
    return replace(training, cache=sizes[0], sampler=sizes[1])


def estimate_errors(parts: dict[str, dict]) -> dict[str, float]:
    """Case -> how far the larger of its peaks, as the estimate says it now, is off the measured one."""
    apart = {}
    for case in CASES:
        row = parts.get(f"memory: {case.words}", {})
        if "peaks" in row:
            now = estimated(case, row["graphs"])
            most = max(now.updating, now.sampling if "sampling" in row["peaks"] else 0.0) / GB
            apart[case.words] = most / max(peak["measured"] for peak in row["peaks"].values()) - 1
    return apart


if __name__ == "__main__":
    shapes.print_each("case", {case.words: partial(measure, case) for case in CASES}, SECONDS)
