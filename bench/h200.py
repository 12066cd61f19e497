"""The speed table of one NVIDIA H200: ours, and TRL with `generate`, on the same work.

Each part prints one line of JSON.

    PYTHONPATH=scratch_trl/site-packages python bench/h200.py PART ... [--ours KEY=VALUE ...]
        [--dtype bfloat16] [--small]

    rates       matrix products and memory of this card: what the floors are made of
    sampling    135M shape, 64 prompts x 8 samples, 128 + 128 tokens, with log-probs; how far they are from
                the trainer's
    train       forward and backward alone, tokens/s (prompts counted, as for TRL)
    step        whole GRPO steps, beta 0 and 0.04, and their peak memory
    recompute   `step`, beta 0, with optim.recompute=true
    start       a fresh process's first step less a later one, with an empty compile cache and with a full one
    graphs      gradients through CUDA graphs against those without, and against float32
    ragged      samples that stop at random (geometric, mean 128, cap 1024) against 128 tokens each
    big         a 1B shape (16 layers of 2048): GRPO steps
    trl, trl-defaults, trl-big      TRL on `step` (bfloat16 weights without checkpointing; its defaults) and
                                    on `big`
    vllm        sampling with vLLM, where it is installed

TRL comes from scratch_trl/ (tools/carry_trl.py), with the real `datasets`. Nothing is downloaded; weights are
random, how long samples get is in the weights (shapes.py). --ours gives the recipe's overrides (`step`,
`big`, `start`), --dtype the precision of the other parts. --small is for trying the script on a CPU: tiny
shapes, meaningless figures.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("bench", "proofs", "tools"))]

import torch  # noqa: E402
from floors import Rates, decode_floor, train_floor  # noqa: E402
from parity import mismatch  # noqa: E402
from passes import Setting, draw, opened, timed, train  # noqa: E402
from shapes import SHAPES, questions, write_model  # noqa: E402
from work import Gate, Side, Work  # noqa: E402

from postgrad import methods  # noqa: E402
from postgrad.models import Models  # noqa: E402
from postgrad.models.chat import Chat  # noqa: E402
from postgrad.records import Prompt  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.training import objectives  # noqa: E402
from postgrad.training.batches.rollouts import Rollouts, rollout_batch  # noqa: E402


def rates(s: Setting) -> dict:
    found = {}
    for name in ("bfloat16", "float32"):
        r = Rates.measure(SHAPES[s.shape], getattr(torch, name), s.device)
        found |= {f"{name} TFLOP/s": r.flops / 1e12, f"{name} GB/s": r.bytes / 1e9}
    return found


def sampling(s: Setting) -> dict:
    seconds, tokens, speed, model, rows = draw(s, 0.0, s.new, rounds=5)
    assert tokens == s.rows * s.new, f"{tokens} tokens instead of {s.rows * s.new}: the stop token was drawn"
    floor = decode_floor(SHAPES[s.shape], s.rates(s.shape), s.prompts, s.group, s.prompt, s.new)
    return {"tokens/s": speed, "seconds": seconds, "first call": seconds[0], "floor tokens/s": tokens / floor,
            "log-probs, largest difference from the trainer's": mismatch(model, rows[:64])}


def drive(side: str, work: Work) -> dict:
    """Steps in this process, one after the other; what a side would do after its last (save the
    model) is left out."""
    import sides

    class Enough(Exception):
        pass

    def hear() -> str:
        if len(seen) == work.steps:
            raise Enough
        return "step"

    seen: list[dict] = []
    with suppress(Enough):
        getattr(sides, side)(work, Gate(seen.append, hear))
    seconds = [x["seconds"] for x in seen]
    return {"step": statistics.median(seconds[len(seconds) // 2:]), "first": seconds[0], "seconds": seconds,
            "tokens": seen[-1]["tokens"], "peak GiB": seen[-1]["gpu"] / 2**30}


def grpo_floor(s: Setting, shape: str, beta: float) -> float:
    c, r = SHAPES[shape], s.rates(shape)
    tokens = s.prompts * s.prompt + s.rows * s.new, s.rows * s.new
    return (decode_floor(c, r, s.prompts, s.group, s.prompt, s.new)
            + train_floor(c, r, *tokens, s.prompt + s.new, int(beta > 0)))


def steps(s: Setting, shape: str, side: str, how: tuple[str, ...], betas=(0.0, 0.04)) -> dict:
    found = {}
    for beta in betas:
        count = 8 if side == "ours" else 4  # the first ones compile and capture
        clean()
        found[f"beta {beta:g}"] = (drive(side, s.work(shape, how, count, beta))
                                   | {"floor": grpo_floor(s, shape, beta)})
    return found


def clean() -> None:
    """Before a peak is measured: what was trained before is gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def start(s: Setting) -> dict:
    """First step less a later one: what compiling and capturing cost,
    without a cache of an earlier process and with it."""
    found = {}
    with tempfile.TemporaryDirectory() as caches, open(os.devnull, "w") as log:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                       "TRITON_CACHE_DIR": f"{caches}/triton"}
        for name in ("cold", "warm"):
            side = Side("ours", s.recipe(), threads=os.cpu_count() or 1, log=log)
            first = side.start(s.work(s.shape, (), steps=3))["seconds"]
            whole = time.perf_counter() - side.began
            later = min(side.ask("step")["seconds"], side.ask("step")["seconds"])
            side.ask("step")
            side.close()
            found |= {f"{name}: first step less a later one": first - later,
                      f"{name}: process start to first step": whole}
    return found


def ragged(s: Setting) -> dict:
    """New tokens a second against those of equal lengths with the same mean,
    both with many more rows than slots.

    A call of as many rows as slots ends with its longest row: that figure stands beside it, and that of
    half as many slots, which were the default before.
    """
    many = replace(s, prompts=32 * s.prompts)
    equal, uneven = draw(many, 0.0, s.new, rounds=1), draw(many, 1 / s.new, s.cap, rounds=1)
    few = draw(s, 1 / s.new, s.cap, rounds=5)  # in the first ones graphs are captured
    half = draw(many, 1 / s.new, s.cap, rounds=1, max_concurrent=s.rows)
    lengths = sorted(len(r.tokens) for r in uneven[4])
    return {"kept": uneven[2] / equal[2], "equal tokens/s": equal[2], "ragged tokens/s": uneven[2],
            "tokens": uneven[1], "rows": many.rows, "slots": Rollouts().max_concurrent,
            "mean length": statistics.fmean(lengths), "median": statistics.median(lengths),
            "longest": lengths[-1], f"ragged tokens/s of {s.rows} rows alone": few[2],
            f"ragged tokens/s over {s.rows} slots": half[2]}


def graphs(s: Setting) -> dict:
    """Gradients of bfloat16 passes through CUDA graphs against the same without them,
    and both against float32."""
    folder = s.folder / "shallow"
    write_model(folder, replace(SHAPES[s.shape], num_hidden_layers=3), 1 / s.new)
    (half, _), (exact, _) = opened(s, folder), opened(replace(s, dtype=torch.float32), folder)
    asked = [Prompt.ask(q, id=str(i))
             for i, q in enumerate(questions(24, s.prompt, SHAPES[s.shape].vocab_size))]
    sampler = LocalSampler(half.policy, Chat.load(folder))
    rows = [r for g in sampler.sample(asked, s.group, Sampling(max_new_tokens=s.new), 0) for r in g]
    batch = rollout_batch(rows)
    batch = replace(batch, adv=torch.randn(batch.mask.shape, generator=torch.Generator().manual_seed(0))).to(
        s.device)
    objective = objectives.build_objective(replace(methods.get_method("grpo"), kl_in_loss=0.0))

    def slopes(models: Models, compiled: bool) -> list[torch.Tensor]:
        models.policy.compiled = compiled
        models.policy.zero_grad()
        for micro in batch.split(4096):
            (objective(models, micro)[0] * micro.weight).sum().backward()
        return [p.grad.float() for p in models.policy.parameters()]

    def apart(a: list, b: list) -> float:
        return max(float((x - y).norm() / y.norm()) for x, y in zip(a, b, strict=True))

    plain, true = slopes(half, False), slopes(exact, False)
    slopes(half, s.device == "cuda")
    replayed = slopes(half, s.device == "cuda")
    return {"graphs against none": apart(replayed, plain), "graphs against fp32": apart(replayed, true),
            "none against fp32": apart(plain, true)}


def vllm(s: Setting) -> dict:
    """As TRL asks: n samples a prompt, no stop token, the sampled token's log-prob; and without log-probs."""
    from vllm import LLM, SamplingParams

    folder = s.model(s.shape)
    engine = LLM(model=str(folder), dtype="bfloat16", max_model_len=s.prompt + s.new, max_num_seqs=s.rows)
    chat = Chat.load(folder)
    asked = [{"prompt_token_ids": chat.render(Prompt.ask(q).messages)}
             for q in questions(s.prompts, s.prompt, SHAPES[s.shape].vocab_size)]
    found = {}
    for name, logprobs in (("with log-probs", 0), ("without", None)):
        settings = SamplingParams(n=s.group, max_tokens=s.new, ignore_eos=True, temperature=1.0,
                                  logprobs=logprobs)
        seconds = [timed(partial(engine.generate, asked, settings, use_tqdm=False))[0] for _ in range(4)]
        found[f"tokens/s {name}"] = s.rows * s.new / statistics.median(seconds[1:])
    return found


PARTS = {
    "rates": rates, "sampling": sampling, "train": train, "start": start, "ragged": ragged, "vllm": vllm,
    "graphs": graphs,
    "step": lambda s: steps(s, s.shape, "ours", s.recipe()),
    "recompute": lambda s: steps(s, s.shape, "ours", (*s.recipe(), "optim.recompute=true"), betas=(0.0,)),
    "big": lambda s: steps(s, s.big, "ours", s.recipe(), betas=(0.0,)),
    "trl": lambda s: steps(s, s.shape, "trl", ("bf16",)),
    "trl-defaults": lambda s: steps(s, s.shape, "trl", ("defaults",), betas=(0.04,)),
    "trl-big": lambda s: steps(s, s.big, "trl", ("bf16",), betas=(0.0,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--ours", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", help="where the models are written, and found again by the next call")
    args = parser.parse_args()
    with nullcontext(args.folder) if args.folder else tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=tuple(args.ours), dtype=getattr(torch, args.dtype))
        if args.small:
            s = replace(s, device="cpu", shape="tiny", big="1M", prompts=4, group=4, prompt=16, new=16,
                        cap=64, passes=2)
        for name in args.parts:
            clean()
            began = time.perf_counter()
            found = PARTS[name](s)
            print(json.dumps({"part": name, **found, "part seconds": time.perf_counter() - began}),
                  flush=True)


if __name__ == "__main__":
    main()
