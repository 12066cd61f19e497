"""Slower ways, and the host beside a GPU: models through transformers, bodies in 4 bits, the host's work.

    python bench/foreign.py ratio [model=tiny-chat]   our decoder and transformers on the same Llama weights
    python bench/foreign.py steps [device=cuda]       a GRPO step of 128 samples of 62 tokens through
                                                      transformers: rows in slots, with and without a CUDA
                                                      graph, against rows laid out anew at every token
    python bench/foreign.py qlora                     4 bits on a CPU: bytes, unpacking, sampling, training
    python bench/foreign.py host                      the host's work in a GRPO step, 64 x 8 samples of 128 +
                                                      128 tokens: what a GPU would wait for

Times are the best of several and meant as ratios. host: a tiny model is trained on a CPU; the CPU time of the
main thread without the functions that a GPU would run, in seconds a step, and two gaps in which a GPU would
be idle: from the last step of sampling to the first training pass, and from the update to the sampler's
refresh.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import shapes
import torch
from shapes import SHAPES, harness, synchronize, write_model, write_task
from sides import Work, drive
from torch import nn

from postgrad.data.tasks import load_task
from postgrad.models import Adapted, Adapter, Decoder, find_model, load_model, quantise
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.models.hf_engine import HFEngine, SlotCache
from postgrad.models.hf_model import HFModel
from postgrad.models.nf4 import BLOCK, Linear4, held_bytes
from postgrad.records import Prompt, pad_rows
from postgrad.resolve.models import open_model
from postgrad.sampling import LocalSampler, RequestBatch, Sampling
from postgrad.training.adamw import AdamW

ROUNDS, GROUP = 5, 8


def training(model, rows: list[tuple[list[int], list[int]]], device: str = "cpu") -> Callable[[], None]:
    """Forward and backward of rows of prompt and reply, as a GRPO step has them."""
    tokens = pad_rows([[*prompt, *reply] for prompt, reply in rows]).to(device)
    first = torch.tensor([len(prompt) for prompt, _ in rows], device=device)[:, None]
    last = first + torch.tensor([len(reply) for _, reply in rows], device=device)[:, None]
    column = torch.arange(tokens.shape[1], device=device)[None]
    mask = (column >= first) & (column < last)
    model.requires_grad_(True)

    def step() -> None:
        model.zero_grad()
        (-model.logp(tokens, mask)[0].sum() / mask.sum()).backward()

    return step


def ratio(model: str = "tiny-chat") -> None:
    from transformers import LlamaForCausalLM

    folder = find_model(model)
    asked = [Prompt.ask(f"Tom has {n} apples and buys {n + 3} more. How many has he now?") for n in range(8)]
    chat, how = Chat.load(folder), Sampling(max_new_tokens=48)
    models = load_model(folder), HFModel(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32))
    samplers = [LocalSampler(net.requires_grad_(False), chat) for net in models]
    works = {"sampling": [lambda s=s: s.sample(asked, GROUP, how, seed=0) for s in samplers]}
    drawn = [(r.prompt_tokens, r.tokens) for g in samplers[0].sample(asked, GROUP, how, seed=0) for r in g]
    works["training"] = [training(net, drawn) for net in models]
    for what, both in works.items():
        ours, theirs = harness.best(*both, wait=synchronize)
        print(f"{what}: decoder {1e3 * ours:.0f} ms, transformers {1e3 * theirs:.0f} ms, "
              f"{theirs / ours:.1f}x")


# a step through transformers

SIZES = dict(vocab_size=1024, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=352, max_position_embeddings=2048)
KINDS = {
    "llama": lambda t: t.LlamaConfig(**SIZES),
    "gpt2": lambda t: t.GPT2Config(vocab_size=1024, n_positions=2048, n_embd=128, n_layer=4, n_head=4,
                                   bos_token_id=1, eos_token_id=2),
    "gemma2": lambda t: t.Gemma2Config(**SIZES, head_dim=32, sliding_window=32),
}


def hf_network(kind: str, device: str):
    """A network of about a million parameters, its weights random and far from uniform."""
    import transformers

    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(
        KINDS[kind](transformers), attn_implementation="eager" if kind == "gemma2" else "sdpa")
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(3.0 if p.dim() > 1 else 1.0)
    return HFModel(network.to(device))


def steps(device: str = "cuda", kinds: str = "llama,gpt2,gemma2", rows: str = "128", new: str = "62",
          rounds: str = "3") -> None:
    """A line of JSON a network; llama's is the part `foreign` of docs/results/speed-h200.json."""
    tiny = Chat.load(find_model("tiny-chat"))
    chat = Chat(tiny.tokenizer, tiny.template, bos=tiny.bos, eos=tiny.eos, pad=tiny.pad,
                ends=range(0, 1024, 256))
    clock = time.perf_counter if device == "cuda" else time.process_time  # whoever else works there
    right, rehearse = SlotCache.is_right, HFEngine.rehearse

    def no_graphs(engine) -> None:
        engine.graphs = False

    for kind in kinds.split(","):
        model, count, draw = hf_network(kind, device), int(rows) // GROUP, torch.Generator().manual_seed(1)
        prompts = [torch.randint(6, 1024, (50 - i % 25,), generator=draw).tolist() for i in range(count)]
        seeds, how, written, seconds = list(range(count * GROUP)), Sampling(max_new_tokens=int(new)), {}, {}
        ways = {"slots": (right, rehearse), "without graphs": (right, no_graphs),
                "laid out anew": (lambda *_: False, rehearse)}
        for name, (SlotCache.is_right, HFEngine.rehearse) in ways.items():
            sampler, found = LocalSampler(model, chat), {}

            def work(sampler=sampler, found=found) -> None:
                for together in sampler.write(prompts, GROUP, seeds, how):  # noqa: B023
                    found.update((row.request, row.tokens) for row in together)

            seconds[name], = harness.best(work, rounds=int(rounds), clock=clock, wait=synchronize)
            written[name] = [found[i] for i in seeds]
        SlotCache.is_right, HFEngine.rehearse = right, rehearse
        mine = written["slots"]
        step = training(model, [(prompts[i // GROUP], reply) for i, reply in enumerate(mine)], device)
        (learn,) = harness.best(step, rounds=int(rounds), clock=clock, wait=synchronize)
        same = {name: sum(a == b for a, b in zip(mine, other, strict=True))
                for name, other in written.items()}
        print(json.dumps({"part": "foreign" if kind == "llama" else f"foreign {kind}",
                          "now": seconds["slots"] + learn, "before": seconds["laid out anew"] + learn,
                          "sampling": seconds, "training": learn, "same rows": same, "of": len(mine)}),
              flush=True)


# 4 bits

def qlora() -> None:
    """Needs postgrad[qlora]; OMP_NUM_THREADS=1."""
    out, into = 1536, 576
    layer, levels = Linear4(nn.Linear(into, out, bias=False), "cpu"), torch.linspace(-1, 1, 16)
    codes = layer.codes.flatten()
    pairs = torch.stack([levels.repeat_interleave(16), levels.repeat(16)], 1)  # the two numbers of each byte
    scale, floats = torch.rand(out * into // BLOCK, 1), torch.rand(out, into)
    theirs, ours, copied = harness.best(
        lambda: layer.weight,
        lambda: (pairs.index_select(0, codes.int()).view(-1, BLOCK) * scale).view(out, into),
        lambda: torch.empty(out, into).copy_(floats), rounds=15)
    print(f"unpack {out} x {into}: bitsandbytes {1e3 * theirs:.2f} ms, a look-up in torch {1e3 * ours:.2f} "
          f"ms, a copy of as many numbers {1e3 * copied:.2f} ms")
    model = Decoder(SHAPES["135M"])
    full, packed = held_bytes(model), held_bytes(quantise(model))
    layers = [m for m in model.modules() if isinstance(m, Linear4)]
    each = 8 * sum(m.nbytes for m in layers) / sum(m.in_features * m.out_features for m in layers)
    print(f"SmolLM2-135M's shape: {full / 1e6:.0f} MB in float32, {packed / 1e6:.0f} MB with its matrices in "
          f"4 bits, {each:.3f} bits a weight")
    prompts, how, works = load_task("words").prompts("test", 8, 0), Sampling(max_new_tokens=32), []
    tokens = torch.randint(0, 1024, (16, 64), generator=torch.Generator().manual_seed(0)).tolist()
    for bits in (16, 4):
        body, chat = open_model("tiny-chat", bits=bits)
        net = Adapted(body, Adapter(body, rank=8, generator=torch.Generator().manual_seed(0)))
        sampler = LocalSampler(net, chat)
        works += [lambda s=sampler: s.sample(prompts, 4, how, 0),
                  lambda net=net: training(net, [([row[0]], row[1:]) for row in tokens])()]
    drawn, learnt, drawn4, learnt4 = harness.best(*works)
    print(f"tiny-chat with an adapter: sampling 32 rows takes {drawn4 / drawn:.1f} times as long in 4 bits, "
          f"a pass of training {learnt4 / learnt:.2f} times")


# the host's work

IDLE = {("RequestBatch.advance_collection", "Decoder.logp"): "after sampling",
        ("AdamW.step", "Engine.refresh"): "after update"}


def host(steps_made: int = 4) -> None:
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

    for home, name in ((RequestBatch, "advance_collection"), (Engine, "prefill"), (Engine, "refresh"),
                       (Decoder, "logp"), (torch.Tensor, "backward"), (AdamW, "step")):
        taken_off(home, name)
    seen: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = shapes.shape(1, 8, 1, 1, 8, 64)
        model = write_model(Path(folder) / "model", config)
        task = write_task(Path(folder) / "task", 64, 128, config.vocab_size)
        drive("ours", Work(kind="grpo", model=str(model), data=str(task), steps=steps_made, prompts=64,
                           group=GROUP, new_tokens=128, how=("optim.tokens_per_pass=16384",)),
              lambda done: seen.append((time.thread_time(), device[0])))
    steps = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(seen[:-2], seen[1:-1], strict=True)]
    print(json.dumps({"part": "host work", "host seconds": statistics.median(a - off for a, off in steps),
                      **{name: statistics.median(seconds[1:-1]) for name, seconds in idle.items()}}))


if __name__ == "__main__":
    (what,), how = harness.arguments()
    {"ratio": ratio, "steps": steps, "qlora": qlora, "host": host}[what](**how)
