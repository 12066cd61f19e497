"""The speed table of one NVIDIA H200: ours, and TRL with `generate`, on the same work.

Each part prints one line of JSON; one that fails says so, and the next goes on.

    PYTHONPATH=scratch_trl/site-packages python bench/h200.py PART ... [ours=KEY=VALUE,...] [dtype=bfloat16]
        [folder=FOLDER] [small=1]

    rates       matrix products and memory of this card: what the floors are made of
    sampling    135M shape, 64 prompts x 8 samples, 128 + 128 tokens, with log-probs; how far they are from
                the trainer's
    train       forward and backward alone, tokens/s (prompts counted, as for TRL)
    step        whole GRPO steps, beta 0 and 0.04, and their peak memory
    recompute   `step`, beta 0, with optim.recompute=true
    start       a fresh process's first step less a later one, with an empty compile cache and with a full one
    graphs      gradients through CUDA graphs against those without, and against float32
    ragged      samples that stop at random (geometric, mean 128, cap 1024) against 128 tokens each
    nudge       calls of the sampler with the kernel that does nothing before steps, and without, in turn
    big         a 1B shape (16 layers of 2048): GRPO steps
    by-rows, by-tokens      the cost of a token, sampling and training, from 64 to 4,096 rows or new tokens
    cold, warm  20 GRPO steps of the embedded model in a process of its own (short_run.py)
    saves       what a checkpoint of a 0.63B model with Adam's state delays (short_run.py)
    trl, trl-defaults, trl-big      TRL on `step` (bfloat16 weights without checkpointing; its defaults) and
                                    on `big`
    vllm        sampling with vLLM, where it is installed

    python bench/h200.py write COMMIT LINES.jsonl ...    docs/results/speed-h200.* from lines that these
                                                         parts, memory.py and foreign.py printed; a part that
                                                         was run twice counts as it was run last, one that
                                                         was not run as the page has it

TRL comes from scratch_trl/ (tools/models.py trl), with the real `datasets`. Nothing is downloaded; weights
are random, how long samples get is in the weights (shapes.py). ours= gives the recipe's overrides (`step`,
`big`, `start`), dtype= the precision of the other parts. small=1 is for trying the script on a CPU: tiny
shapes, meaningless figures.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import shapes
import memory
import short_run
import torch
from shapes import SHAPES, Rates, Setting, decode_floor, draw, harness, opened, rows, step, timed, train
from parity import mismatch
from sides import Side, drive

from postgrad.models.chat import Chat
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training.batches.rollouts import Rollouts


def rates(s: Setting) -> dict:
    figures = {}
    for name in ("bfloat16", "float32"):
        r = Rates.measure(SHAPES[s.shape], getattr(torch, name), s.device)
        figures |= {f"{name} TFLOP/s": r.flops / 1e12, f"{name} GB/s": r.bytes / 1e9}
    return figures


def sampling(s: Setting) -> dict:
    seconds, tokens, speed, model, rows = draw(s, 0.0, s.new, rounds=5)
    assert tokens == s.rows * s.new, f"{tokens} tokens instead of {s.rows * s.new}: the stop token was drawn"
    floor = decode_floor(SHAPES[s.shape], s.rates(s.shape), s.prompts, s.group, s.prompt, s.new)
    return {"tokens/s": speed, "seconds": seconds, "first call": seconds[0], "floor tokens/s": tokens / floor,
            "log-probs, largest difference from the trainer's": mismatch(model, rows[:64])}


def grpo_floor(s: Setting, shape: str, beta: float) -> float:
    c, r = SHAPES[shape], s.rates(shape)
    tokens = s.prompts * s.prompt + s.rows * s.new, s.rows * s.new
    return (decode_floor(c, r, s.prompts, s.group, s.prompt, s.new)
            + shapes.train_floor(c, r, *tokens, s.prompt + s.new, int(beta > 0)))


def steps(s: Setting, shape: str, side: str, how: tuple[str, ...], betas=(0.0, 0.04)) -> dict:
    figures = {}
    for beta in betas:
        shapes.clean()
        count = 8 if side == "ours" else 4  # the first ones compile and capture
        answers = drive(side, s.work(shape, how, count, beta))
        seconds = [x["seconds"] for x in answers]
        figures[f"beta {beta:g}"] = {
            "step": statistics.median(seconds[count // 2:]), "first": seconds[0], "seconds": seconds,
            "tokens": answers[-1]["tokens"], "peak GiB": answers[-1]["gpu"] / 2**30,
            "floor": grpo_floor(s, shape, beta)}
    return figures


def start(s: Setting) -> dict:
    """First step less a later one: compiling and capturing, without the cache of an earlier process and with
    it."""
    figures = {}
    with tempfile.TemporaryDirectory() as caches, open(os.devnull, "w") as log:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                       "TRITON_CACHE_DIR": f"{caches}/triton"}
        for name in ("cold", "warm"):
            side = Side("ours", s.recipe(), threads=os.cpu_count() or 1, log=log)
            first = side.start(s.work(s.shape, (), steps=3))["seconds"]
            total = time.perf_counter() - side.began
            later = min(side.ask("step")["seconds"], side.ask("step")["seconds"])
            side.ask("step")
            side.close()
            figures |= {f"{name}: first step less a later one": first - later,
                        f"{name}: process start to first step": total}
    return figures


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
    """Gradients of bfloat16 passes through CUDA graphs against the same without them, and both against
    float32, over ragged rows of a shallow model: the parameter that is farthest off."""
    folder = s.folder / "shallow"
    shapes.write_model(folder, replace(SHAPES[s.shape], num_hidden_layers=3), 1 / s.new)
    few = rows(replace(s, prompts=24), 24 * s.group, ragged=True)

    def slopes(dtype: torch.dtype, compiled: bool) -> list[torch.Tensor]:
        models, optim = opened(replace(s, dtype=dtype), folder)
        models.policy.compiled = compiled
        for _ in range(2):  # the second time, graphs are replayed
            models.policy.zero_grad()
            step(models, optim, few)
        return [(p.grad if p.grad is not None else 0 * p).float() for p in optim.stepped]

    def apart(a: list, b: list) -> float:
        return max(float((x - y).norm() / y.norm()) for x, y in zip(a, b, strict=True))

    exact, none = slopes(torch.float32, False), slopes(torch.bfloat16, False)
    replayed = slopes(torch.bfloat16, s.device == "cuda")
    return {"graphs against none": apart(replayed, none), "graphs against fp32": apart(replayed, exact),
            "none against fp32": apart(none, exact)}


def nudge(s: Setting) -> dict:
    """Median milliseconds of a call of the sampler."""
    from postgrad.models.kernels import gpu
    folder = s.model(s.shape)
    sampler = LocalSampler(opened(s, folder)[0].policy, Chat.load(folder))
    call = partial(sampler.sample, s.asked(), s.group, Sampling(max_new_tokens=s.new))
    usual, seconds = gpu.nudge, {}
    for turn in range(13):
        for name, kernel in (("with", usual), ("without", lambda x: None)):
            gpu.nudge = kernel
            seconds.setdefault(name, []).append(timed(partial(call, turn))[0])
    gpu.nudge = usual
    return {f"ms {name}": 1e3 * statistics.median(times[3:]) for name, times in seconds.items()}


def scaling(s: Setting, axis: str) -> dict:
    """Microseconds a token with their floors: 64 to 4,096 rows, or new tokens of 64 rows."""
    points, most = [], 256 if s.device == "cpu" else 4096
    for size in (64 * 2**i for i in range(7) if 64 * 2**i <= most and not (axis == "tokens" and i == 0)):
        at = (replace(s, prompts=size // s.group) if axis == "rows"
              else replace(s, prompts=64 // s.group, new=size))
        width = at.prompt + at.new
        at = replace(at, passes=max(1, at.rows * width // 32768))
        _, tokens, speed, *_ = draw(at, 0.0, at.new, rounds=1)
        floor = decode_floor(SHAPES[at.shape], at.rates(at.shape), at.prompts, at.group, at.prompt, at.new)
        learnt = train(at, rounds=2)
        points.append({axis: size, "sampling s": tokens / speed, "sampling us/token": 1e6 / speed,
                       "sampling floor us/token": 1e6 * floor / tokens,
                       "training s": at.rows * width / learnt["tokens/s"],
                       "training us/token": 1e6 / learnt["tokens/s"],
                       "training floor us/token": 1e6 / learnt["floor tokens/s"]})
    return {"points": points}


def vllm(s: Setting) -> dict:
    """As TRL asks: n samples a prompt, no stop token, the sampled token's log-prob; and without log-probs."""
    from vllm import LLM, SamplingParams

    folder = s.model(s.shape)
    engine = LLM(model=str(folder), dtype="bfloat16", max_model_len=s.prompt + s.new, max_num_seqs=s.rows)
    chat = Chat.load(folder)
    asked, figures = [{"prompt_token_ids": chat.render(prompt.messages)} for prompt in s.asked()], {}
    for name, logprobs in (("with log-probs", 0), ("without", None)):
        settings = SamplingParams(n=s.group, max_tokens=s.new, ignore_eos=True, temperature=1.0,
                                  logprobs=logprobs)
        seconds = [timed(partial(engine.generate, asked, settings, use_tqdm=False))[0] for _ in range(4)]
        figures[f"tokens/s {name}"] = s.rows * s.new / statistics.median(seconds[1:])
    return figures


PARTS: dict[str, Callable[[Setting], dict]] = {
    "rates": rates, "sampling": sampling, "train": train, "start": start, "ragged": ragged, "vllm": vllm,
    "graphs": graphs, "nudge": nudge,
    "by-rows": partial(scaling, axis="rows"), "by-tokens": partial(scaling, axis="tokens"),
    "cold": partial(short_run.short, caches="plain"), "warm": partial(short_run.short, caches="plain"),
    "saves": short_run.saves,
    "step": lambda s: steps(s, s.shape, "ours", s.recipe()),
    "recompute": lambda s: steps(s, s.shape, "ours", (*s.recipe(), "optim.recompute=true"), betas=(0.0,)),
    "big": lambda s: steps(s, s.big, "ours", s.recipe(), betas=(0.0,)),
    "trl": lambda s: steps(s, s.shape, "trl", ("bf16",)),
    "trl-defaults": lambda s: steps(s, s.shape, "trl", ("defaults",), betas=(0.04,)),
    "trl-big": lambda s: steps(s, s.big, "trl", ("bf16",), betas=(0.0,)),
}


# the page

H200 = {"cpu": "one NVIDIA H200, 16 cores of its host", "cores": 16, "python": "3.12.3",
        "torch": "2.11.0+cu130"}
BY_ROWS = "How cost grows with rows (fewer than 512 leave the GPU half idle)"
BY_TOKENS = "How cost grows with tokens, 64 rows"
ALL = "Everything that was measured"
FIRST = "d51ac1b"  # the commit of the page that had no column for it
BEFORE = 189_569  # tokens/s of the ragged rows there: what is to be half as fast again


def read(paths: list[str], commit: str) -> dict[str, dict]:
    """The parts by their names, each with its commit."""
    page = json.loads((harness.RESULTS / "speed-h200.json").read_text())["tables"]
    parts = {row["part"]: json.loads(row["line"]) | {"commit": row.get("commit", FIRST)} for row in page[ALL]}
    parts |= {"by-rows": {"points": page[BY_ROWS], "commit": FIRST},
              "by-tokens": {"points": page[BY_TOKENS], "commit": FIRST}}
    for row in (row for path in paths for row in harness.read_lines(Path(path))):
        name = row.pop("part", None) or f"memory: {row.pop('case')}"
        if "error" not in row:
            parts[name] = row | {"commit": commit}
    return parts


def lines(p: dict[str, dict]) -> list[tuple]:
    """The bars: (name, target, measured, holds, parts)."""
    shape = "135M shape, 64 x 8 samples, 128 + 128 tokens"
    ours, recomputed, big, trl, trl_big = (
        p[x]["beta 0"] for x in ("step", "recompute", "big", "trl", "trl-big"))
    kl, trl_kl = (p[x]["beta 0.04"] for x in ("step", "trl"))
    draws, learn, uneven = (p[x] for x in ("sampling", "train", "ragged"))
    graph, foreign, saved = (p[x] for x in ("graphs", "foreign", "saves"))
    far = draws["log-probs, largest difference from the trainer's"]
    cold, warm = (p["start"][f"{x}: first step less a later one"] for x in ("cold", "warm"))
    many = [r for r in p["by-rows"]["points"] if r["rows"] >= 512]
    spread = [max(r[key] for r in many) / min(r[key] for r in many)
              for key in ("sampling us/token", "training us/token")]
    apart = memory.estimate_errors(p)
    near, worst = [x for x in apart.values() if abs(x) <= 0.1], max(apart, key=lambda name: abs(apart[name]))

    def against(mine: dict, theirs: dict) -> str:
        return f"{mine['step']:.2f} s, {theirs['step'] / mine['step']:.1f}x; floor {mine['floor']:.2f} s"

    def short(name: str) -> str:
        parts = ("import", "start", "first step", "other steps", "end")
        each = ", ".join(f"{part} {p[name][part]:.1f}" for part in parts if part in p[name])
        return f"{p[name]['seconds']:.1f} s" + f" ({each})" * bool(each)

    return [
        (f"{shape}: whole GRPO step, beta 0 (TRL: {trl['step']:.2f} s)", "<= 0.42 s", against(ours, trl),
         ours["step"] <= 0.42, "step trl"),
        (f"the same with beta 0.04 (TRL: {trl_kl['step']:.2f} s)", "<= 0.75 s", against(kl, trl_kl),
         kl["step"] <= 0.75, "step trl"),
        (f"{shape}: sampling with log-probs", ">= 380k tokens/s",
         f"{draws['tokens/s'] / 1e3:.0f}k; floor {draws['floor tokens/s'] / 1e3:.0f}k",
         draws["tokens/s"] >= 380e3, "sampling"),
        (f"{shape}: forward and backward, prompts counted for each sample as TRL computes them",
         ">= 620k tokens/s", f"{learn['tokens/s'] / 1e3:.0f}k; floor {learn['floor tokens/s'] / 1e3:.0f}k",
         learn["tokens/s"] >= 620e3, "train"),
        (f"1B shape, the same work: whole GRPO step (TRL: {trl_big['step']:.2f} s)", "<= 1.25 s",
         against(big, trl_big), big["step"] <= 1.25, "big trl-big"),
        (f"ragged lengths (geometric, mean 128, cap 1024), {uneven['rows']} rows over {uneven['slots']} "
         f"slots, against commit {FIRST} with its 512", ">= 1.5x its tokens/s",
         f"{uneven['ragged tokens/s'] / BEFORE:.2f}x ({uneven['ragged tokens/s'] / 1e3:.0f}k, "
         f"{BEFORE / 1e3:.0f}k); over 512 slots {uneven['ragged tokens/s over 512 slots'] / 1e3:.0f}k; "
         f"{100 * uneven['kept']:.0f} % of what equal lengths reach; 512 rows alone, which wait for their "
         f"longest: {uneven['ragged tokens/s of 512 rows alone'] / 1e3:.0f}k",
         uneven["ragged tokens/s"] >= 1.5 * BEFORE, "ragged"),
        ("peak memory of a GRPO step, 16,384 tokens a pass on both sides (ours has prompts shared in them)",
         "<= 0.8x TRL", f"{ours['peak GiB'] / trl['peak GiB']:.2f}x ({ours['peak GiB']:.1f} GiB at "
         f"{ours['step']:.2f} s, {trl['peak GiB']:.1f} GiB at {trl['step']:.2f} s)",
         ours["peak GiB"] <= 0.8 * trl["peak GiB"], "step trl"),
        ("the same with optim.recompute=true", "<= 0.5x TRL",
         f"{recomputed['peak GiB'] / trl['peak GiB']:.2f}x ({recomputed['peak GiB']:.1f} GiB at "
         f"{recomputed['step']:.2f} s)", recomputed["peak GiB"] <= 0.5 * trl["peak GiB"], "recompute trl"),
        ("compile and capture before the first step, cold", "<= 60 s", f"{cold:.0f} s", cold <= 60, "start"),
        ("the same with a warm cache", "<= 15 s", f"{warm:.0f} s", warm <= 15, "start"),
        *((f"20 GRPO steps of the embedded model, from start to end, {what}", "<= 15 s", short(name),
           p[name]["seconds"] <= 15, name) for name, what in (
               ("cold", "nothing compiled before"), ("warm", "with the kernels of an earlier run"))),
        ("a checkpoint of a 0.63B model with Adam's state, while training goes on: delay", "<= 1.5 s",
         f"{saved['delay seconds']:.1f} s for {saved['GB']:.1f} GB ({saved['the call']:.2f} s in the call, "
         f"written {saved['written after']:.0f} s later)", saved["delay seconds"] <= 1.5, "saves"),
        ("peak memory as `postgrad memory` says it, on a GPU", "within 10 % on 8 cases or more",
         f"{len(near)} of {len(apart)} within 10 %; furthest off by {100 * apart[worst]:+.0f} % ({worst})",
         len(near) == len(apart) >= 8, "python bench/memory.py"),
        ("a step of 128 samples of 62 tokens through transformers, llama of 1M parameters, against rows laid "
         "out anew at every token", ">= 4x",
         f"{foreign['before'] / foreign['now']:.1f}x ({foreign['before']:.3f} s, {foreign['now']:.3f} s)",
         foreign["before"] >= 4 * foreign["now"], "python bench/foreign.py steps"),
        ("sampled tokens' log-probs, sampler against trainer, bf16", "<= 0.1", f"{far:.3f}",
         far <= 0.1, "sampling"),
        ("gradients through CUDA graphs are as far from fp32 as without them, bf16", "<= 1.1x",
         f"{graph['graphs against fp32']:.3f} and {graph['none against fp32']:.3f} relative",
         graph["graphs against fp32"] <= 1.1 * graph["none against fp32"], "graphs"),
        ("cost of a token stands still from 512 to 4,096 rows: dearest over cheapest", "<= 1.25",
         f"sampling {spread[0]:.2f}, training {spread[1]:.2f}", max(spread) <= 1.25, "by-rows")]


def write(commit: str, *paths: str) -> None:
    parts = read(list(paths), commit)
    bars = [harness.bar(*facts, part if part.startswith("python") else f"python bench/h200.py {part}")
            for *facts, part in lines(parts)]
    grown = {BY_ROWS: parts.pop("by-rows")["points"], BY_TOKENS: parts.pop("by-tokens")["points"]}
    every = [{"part": name, "commit": x.pop("commit"), "line": json.dumps(x)} for name, x in parts.items()]
    print(harness.write(
        "speed-h200", "Speed on one H200: what was to be shown, and what was measured", bars, seeds=[0],
        on=H200, at=commit, tables={**grown, ALL: every}, paths=harness.COMPUTES))


def main() -> None:
    words, how = harness.arguments()
    if words[:1] == ["write"]:
        return write(*words[1:])
    with nullcontext(how["folder"]) if "folder" in how else tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=tuple(filter(None, how.get("ours", "").split(","))),
                    dtype=getattr(torch, how.get("dtype", "bfloat16")))
        if "small" in how:
            s = replace(s, device="cpu", shape="tiny", big="1M", prompts=4, group=4, prompt=16, new=16,
                        cap=64, passes=2)
        shapes.print_each("part", {name: partial(PARTS[name], s) for name in words})


if __name__ == "__main__":
    main()
