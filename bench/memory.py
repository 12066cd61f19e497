"""The memory estimate held against a GPU, part by part: random weights in real shapes, sampling, two passes a
step, AdamW.

    python bench/memory.py [OUT.json]        a JSON line a case; needs a GPU with 140 GB and two minutes

A phase's peak is the allocator's, and what captured graphs hold beside it. The steps are those of the loop:
its optimizer, its masters, layers compiled and captured where a run would do so; the sampler stands beside
training unless the case gives it back. Under "parts" stand terms of the estimate (postgrad/memory has a
function or a part of each name) beside what was measured of each alone, all in GB. After a case that fails
the next is taken.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

try:
    import safetensors.torch  # noqa: F401
except ImportError:  # files of weights are neither read nor written here
    for name in ("safetensors", "safetensors.torch"):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(("SafetensorError", "safe_open", "load_file"), OSError))

from postgrad import methods  # noqa: E402
from postgrad.maths.logprob import chosen_logp  # noqa: E402
from postgrad.maths.packing import last_masked, pack  # noqa: E402
from postgrad.models import Adapted, Adapter, Decoder, Models, ScalarModel  # noqa: E402
from postgrad.models.kernels import softmax_for  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.training import memory  # noqa: E402
from postgrad.training.memory import GB, SIZES, Memory, Setup, estimate, held, samples  # noqa: E402
from postgrad.training.memory.setup import llama  # noqa: E402
from postgrad.training.optim import Optim, OptimSettings  # noqa: E402

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
        made = Decoder(SHAPES[size])
    for p in made.parameters():
        p.data.uniform_(-0.02, 0.02)
    return made


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


def clean() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def pools(less: str = "allocated_size") -> float:
    """Bytes that captured graphs keep to themselves, less those that a tensor stands in."""
    return float(sum(segment["total_size"] - segment.get(less, 0) for segment in torch.cuda.memory_snapshot()
                     if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)))


def peak_of(work: Callable[[], object]) -> float:
    clean()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated())


def stored(tensors) -> float:
    """Bytes of tensors, each storage once."""
    return float(sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
                      for x in tensors if x is not None}.values()))


def a_batch(setup: Setup, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of random tokens, with prompts that groups share."""
    tokens = torch.randint(0, vocabulary, (setup.rows, setup.tokens), device="cuda")
    for start in range(0, setup.rows, setup.group):
        tokens[start: start + setup.group, : setup.prompt] = tokens[start, : setup.prompt]
    mask = torch.arange(setup.tokens, device="cuda").expand_as(tokens) >= max(1, setup.prompt)
    return tokens, mask


def parts_of(case: Case, models: Models) -> dict[str, list[float]]:
    """Terms of the policy's pass, each [said, measured] alone: what the layers keep, their backward pass
    above that, the head's backward pass."""
    setup, c, policy = case.setup, SHAPES[case.size], models.policy
    tokens, mask = a_batch(setup, c.vocab_size)
    network = getattr(policy, "body", policy)
    packed = pack(last_masked(mask) + 1, tokens, mask).to("cuda")

    def forward() -> torch.Tensor:
        made = (network.ops.block_layout(packed, c.head_dim) if network.compiled and not setup.lora
                else network.ops.attention_layout(packed.spans, network.head))
        network.angles(tokens.shape[1])
        with policy.active() if setup.lora else torch.enable_grad():
            return network.run(tokens.flatten()[packed.cells], packed.positions, made)

    forward().sum().backward()  # compiled, and gradients are there
    clean()
    before = torch.cuda.memory_allocated()
    states = [forward()]
    stands = torch.cuda.memory_allocated()
    leaf = states[0].detach()[packed.before].requires_grad_()
    targets, softmax = tokens.flatten()[packed.chosen], softmax_for(network.head)
    walked = peak_of(lambda: states.pop().sum().backward()) - torch.cuda.memory_allocated() + before - stands

    def read() -> None:
        chosen_logp(leaf, network.head, targets, softmax=softmax)[0].sum().backward()

    read()
    head = peak_of(read) - torch.cuda.memory_allocated()
    for p in models.policy.parameters():
        p.grad = None
    seen = {"layers": stands - before, "walked": walked, "head": head}
    return {name: [getattr(memory, name)(c, setup), size] for name, size in seen.items()}


def train(case: Case, models: Models, optim: Optim) -> dict[str, float]:
    """Peak of the second step, and what stands at its end."""
    tokens, mask = a_batch(case.setup, SHAPES[case.size].vocab_size)

    def step(number: int) -> None:
        for _ in range(2):
            loss = models.policy.logp(tokens, mask)[0].sum()
            if models.critic is not None:
                loss = loss + models.critic.value(tokens).sum()
            loss.backward()
            passing = stored([p.grad for p in optim.rounded])
            optim.gather()
        gradients.append(passing + stored([p.grad for p in optim.stepped]))
        optim.step(number, float(loss.detach()))

    gradients: list[float] = []
    step(1)
    peak = peak_of(lambda: step(2)) + pools()
    moments = [x for state in optim.adam.state.values() for x in state.values()]
    return {"peak": peak, "gradients": gradients[-1], "optimizer": stored([*optim.masters, *moments])}


def sample(case: Case, models: Models, sampler: LocalSampler) -> dict[str, float]:
    """Peak of the second call; of the sampler: keys and values, matrices of its own."""
    how = replace(case.setup, **case.written)
    prompts = -(-how.samples // how.group)
    contexts = torch.randint(0, SHAPES[case.size].vocab_size, (prompts, how.prompt)).tolist()
    settings = Sampling(max_new_tokens=how.tokens - how.prompt)

    def write() -> None:
        for _ in sampler.generate(contexts, how.group, list(range(how.samples)), settings):
            pass

    write()
    peak = peak_of(write) + pools()
    engine = sampler._decoder.engine
    theirs = {p.untyped_storage().data_ptr() for m in models.decoders() for p in m.parameters()}
    own = [x for x in engine.weights.values() if x.untyped_storage().data_ptr() not in theirs]
    own += [panels.values for panels in engine.panels.values()]
    return {"peak": peak, "cache": stored([engine.k, engine.v, engine.k_prompt, engine.v_prompt]),
            "copies": stored(own)}


def measure(case: Case) -> dict:
    setup, method, c = case.setup, methods.get_method(case.method), SHAPES[case.size]
    models = build(case)
    settings = OptimSettings(lr=1e-5, precision="fp32" if setup.bits == 32 else "bf16",
                             compile=setup.compiled, recompute=setup.recompute)
    optim = Optim(models, settings, steps=4)
    parts = parts_of(case, models)
    sampler = LocalSampler(models.policy, NO_TEXT) if samples(method) and case.written else None
    train(case, models, optim)  # moments and graphs are there, as from the second step on
    captured = pools(less="nothing")
    sampled = sample(case, models, sampler) if sampler else {}
    if sampler and setup.release:
        sampler.release()
        clean()
    trained = train(case, models, optim)
    graphs = max(len(d._replays[True].made) if True in d._replays else 0 for d in models.decoders())
    said, plain = said_of(case, graphs), said_of(case, 0)
    every = filter(None, (models.policy, models.reference, models.critic, models.reward, *models.decoders()))
    weights = stored(p for m in every for p in m.parameters())
    writing = replace(setup, **case.written)
    parts |= {"weights": [said.weights, weights], "optimizer": [said.optimizer, trained["optimizer"]],
              "gradients": [plain.gradients, trained["gradients"]],
              "graphs": [sum(said.stays.values()) - sum(plain.stays.values()), captured]}
    if sampler:
        logits = 4 * writing.samples * c.vocab_size  # not seen by themselves
        parts |= {"cache": [memory.cache(c, writing), sampled["cache"]],
                  "beside": [memory.beside(c, writing), sampled["copies"] + logits]}
    peaks = {"training": [said.updating, trained["peak"]]} | (
        {"sampling": [said.sampling, sampled["peak"]]} if sampler else {})
    return {"graphs": graphs, "peaks": told(peaks), "parts": told(parts),
            "said": {name: round(getattr(said, name) / GB, 3) for name in memory.PARTS},
            "stays": {name: round(size / GB, 3) for name, size in said.stays.items()},
            "no_attention_matrix": attention()}


def said_of(case: Case, graphs: int) -> Memory:
    setup, c = replace(case.setup, graphs=graphs), SHAPES[case.size]
    made = estimate(c, methods.get_method(case.method), setup)
    writing = replace(setup, **case.written)
    return replace(made, cache=memory.cache(c, writing) + memory.beside(c, writing) if case.written else 0.0)


def told(pairs: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {name: {"said": round(said / GB, 3), "measured": round(seen / GB, 3),
                   "ratio": round(said / seen, 3) if seen else 0.0} for name, (said, seen) in pairs.items()}


def attention() -> bool:
    """Whether float32 attention with a mask and equal heads makes no attention matrix here."""
    from torch.backends.cuda import SDPAParams, can_use_efficient_attention
    x = torch.zeros(1, 4, 64, 64, device="cuda")
    mask = torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.bool)
    return can_use_efficient_attention(SDPAParams(x, x, x, mask, 0.0, False, False))


def main(out: str | None = None) -> None:
    began, rows = time.perf_counter(), []
    for case in CASES:
        row: dict = {"case": case.words}
        start = time.perf_counter()
        try:
            if start - began > SECONDS:
                raise TimeoutError(f"not begun: {SECONDS} s are over")
            row |= measure(case)
        except Exception as error:  # the other cases are worth having
            row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        row["seconds"] = round(time.perf_counter() - start, 1)
        clean()
        rows.append(row)
        print(json.dumps(row), flush=True)
        if out:
            Path(out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:2])
