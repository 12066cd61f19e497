"""postgrad and TRL on the same work, interleaved in one run: `make bench`, about ten minutes on an idle core.

    python bench/speed.py [steps] [kills] [parity] [threads=1] [rounds=5] [sizes=1M,5M]
        [works=grpo,dpo,reward,sft,start] [bf16=no]

Same model folders (random weights), prompts, lengths and optimizer; each side in its own process (sides.py),
a round of ours, a round of theirs, and so on; medians with the smallest and the largest, after a step of
warming up. `TRL defaults` has bfloat16 autocast and activation checkpointing, `TRL tuned` neither. Before a
figure counts, losses and gradient norms of our fp32 side and `TRL tuned` have to agree step by step, and so
do the numbers of tokens. Our sampling includes the log-probs, theirs has none. Beside each figure stands the
floor (shapes.py). bf16=no: our fp32 side alone, as on a CPU without bfloat16 units.

kills: runs of 5M random weights, each killed at a random moment of a checkpoint that is being written while
the run goes on; half an hour. parity: proofs/parity.py.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import shapes
import kills
import parity
import torch
from shapes import (
    SHAPES,
    Rates,
    decode_floor,
    expected,
    train_floor,
    write_model,
    write_pairs,
    write_talks,
    write_task,
)
from sides import Side, Work

PROMPT, NEW, PROMPTS, GROUP = 16, 48, 8, 8
RAGGED = 0.047                      # the chance of stopping after each token: 19 of 48 tokens on average
PAIRS, TALKS, LONGEST = 32, 64, 112
FLOAT, HALF = ("optim.precision=fp32",), ("optim.precision=bf16",)
SAME = 1e-4  # largest relative difference of losses and gradient norms over the compared steps
DEFAULTS, TUNED, FP32 = "TRL defaults", "TRL tuned", "postgrad fp32"
bar, grid = shapes.harness.bar, shapes.harness.grid


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table: the work, its shape, the chance of a stop token."""

    name: str
    shape: str
    work: Work
    chance: float = 0.0
    tokens: tuple[float, float] = (0.0, 0.0)    # of a step: all, and those that are trained
    compare: bool = True                        # both sides compute the same numbers, step by step


def prepare(folder: Path, shape: str) -> dict[str, Path]:
    """The files of a shape: models that never stop, that stop early, that score; and the data."""
    c = SHAPES[shape]
    return {"full": write_model(folder / shape / "full", c),
            "ragged": write_model(folder / shape / "ragged", c, RAGGED),
            "scalar": write_model(folder / shape / "scalar", c, RAGGED, scalar=True),
            "task": write_task(folder / shape / "task", PROMPTS, PROMPT, c.vocab_size),
            # 3 are held out
            "pairs": write_pairs(folder / shape / "pairs.jsonl", PAIRS + 3, PROMPT, NEW, c.vocab_size),
            "talks": write_talks(folder / shape / "talks.jsonl", TALKS, PROMPT, LONGEST, c.vocab_size)}


def cases(files: dict[str, Path], shape: str, works: list[str], steps: int) -> list[Case]:
    def work(kind: str, model: str, data: str, **more) -> Work:
        return Work(kind=kind, model=str(files[model]), data=str(files[data]), steps=steps, **more)

    full, ragged = PROMPTS * GROUP * NEW, PROMPTS * GROUP * expected(RAGGED, NEW)
    rows = [
        Case(name="GRPO step, beta 0", shape=shape, work=work("grpo", "full", "task"),
             tokens=(full + PROMPTS * PROMPT, full)),
        Case(name="GRPO step, beta 0, ragged", shape=shape, work=work("grpo", "ragged", "task"),
             chance=RAGGED, tokens=(ragged + PROMPTS * PROMPT, ragged)),
        Case(name="GRPO step, beta 0.04", shape=shape, work=work("grpo", "full", "task", beta=0.04),
             tokens=(full + PROMPTS * PROMPT, full)),
        Case(name="DPO step", shape=shape, work=work("dpo", "ragged", "pairs", prompts=PAIRS)),
        Case(name="reward step", shape=shape, work=work("reward", "scalar", "pairs", prompts=PAIRS)),
        Case(name="SFT step, TRL pads", shape=shape, work=work("sft", "ragged", "talks", prompts=TALKS)),
        Case(name="SFT step, TRL packs (bfd)", shape=shape,
             work=work("sft", "ragged", "talks", prompts=TALKS, how=("packed",))),
        Case(name="SFT step, TRL packs (wrapped)", shape=shape, compare=False,  # its documents see each other
             work=work("sft", "ragged", "talks", prompts=TALKS, how=("wrapped",))),
    ]
    return [case for case in rows if case.work.kind in works]


def measure(sides: dict[str, Side], case: Case, rounds: int) -> dict[str, dict[str, list[dict]]]:
    """side -> {"step": answers, "sample": answers}: the first of each warms up."""
    seen = {}
    for name, side in sides.items():
        seen[name] = {"step": [side.start(case.work)], "sample": []}
    for _ in range(rounds):
        for name, side in sides.items():
            if case.work.kind == "grpo":
                seen[name]["sample"].append(side.ask("sample"))
            seen[name]["step"].append(side.ask("step"))
    for name, side in sides.items():
        if case.work.kind == "grpo":
            seen[name]["sample"].append(side.ask("sample"))
        assert side.ask("step") == {"done": True}
    return seen


def same_rollouts(ours: Side, theirs: Side, work: Work, shape: str, folder: Path) -> dict:
    """Three steps of GRPO without its division by the std (TRL's is another) on the rollouts
    that our side drew."""
    work = replace(work, steps=4, replay=str(folder / "replay.json"))
    seen = []
    for side in (ours, theirs):
        seen.append([side.start(work), *(side.ask("step") for _ in range(3))])
        assert side.ask("step") == {"done": True}
    return agreement(f"GRPO on the same rollouts, beta {work.beta}", shape, *seen)


def floors(case: Case, rates: dict[str, Rates], tokens: float) -> tuple[dict, dict]:
    """(of the step, of the sampling alone), by precision."""
    c, kind = SHAPES[case.shape], case.work.kind
    draw = {k: decode_floor(c, r, PROMPTS, GROUP, PROMPT, NEW, case.chance) for k, r in rates.items()}
    if kind == "grpo":
        step = {k: draw[k] + train_floor(c, r, *case.tokens, PROMPT + NEW, looks=int(case.work.beta > 0))
                for k, r in rates.items()}
        return step, draw
    headed = {"dpo": tokens - 2 * PAIRS * PROMPT, "sft": tokens - TALKS * PROMPT, "reward": 0}[kind]
    return ({k: train_floor(c, r, tokens, headed, 64, looks=int(kind == "dpo")) for k, r in rates.items()},
            draw)


def starts(new_sides, work: Work, rounds: int) -> dict[str, dict]:
    """Fresh processes: seconds from their start to the end of the first step,
    and the peak memory of three steps."""
    seen: dict[str, dict] = {}
    for _ in range(rounds):
        for name, make in new_sides.items():
            side = make()
            side.start(replace(work, steps=3))
            first = time.perf_counter() - side.began
            side.ask("step")
            peak = side.ask("step")["memory"]
            side.ask("step")
            side.close()
            found = seen.setdefault(name, {"first": [], "peak": []})
            found["first"].append(first)
            found["peak"].append(peak)
    return seen


def share_by_turns(new_side, works: list[Work], rounds: int) -> float:
    """Sampled tokens per CPU second of the second work over those of the first, calls in turn: the median."""
    sides = [new_side() for _ in works]
    for side, work in zip(sides, works, strict=True):
        side.start(replace(work, steps=1))
    found = []
    for _ in range(rounds + 1):
        equal, ragged = (row["tokens"] / row["cpu"] for row in [side.ask("sample") for side in sides])
        found.append(ragged / equal)
    for side in sides:
        assert side.ask("step") == {"done": True}
        side.close()
    return statistics.median(found[1:])  # the first warms up


# tables and bars


def without_units() -> str:
    """A note on TRL's defaults where the CPU emulates bfloat16."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    units = any(name in flags for name in ("amx_bf16", "avx512_bf16", " bf16"))
    return "" if units else "; a CPU without bfloat16 units, on which TRL's defaults are slow"


def agreement(case: str, shape: str, ours: list[dict], theirs: list[dict]) -> dict:
    """Losses and gradient norms of the same steps: TRL says those of a step with the next one."""
    pairs = [(a, b["before"]) for a, b in zip(ours, theirs[1:], strict=False)]
    off = {key: max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-3) for a, b in pairs)
           for key in ("loss", "grad_norm")}
    return {"work": case, "model": shape, "steps": len(pairs),
            "loss, largest relative difference": off["loss"], "gradient norm, the same": off["grad_norm"],
            "tokens of a step": int(ours[0]["tokens"]), "TRL's": int(theirs[0]["tokens"]),
            "same": max(off.values()) < SAME and ours[0]["tokens"] == theirs[0]["tokens"]}


def cell(answers: list[dict]) -> str:
    ms = [1e3 * a["seconds"] for a in answers[1:]]
    return f"{statistics.median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})"


def rate(answers: list[dict], key: str = "seconds") -> float:
    """Tokens a second, the median of the rounds."""
    return statistics.median(a["tokens"] / a[key] for a in answers[1:])


def row(name: str, shape: str, seen: dict[str, list[dict]], floors: dict[str, float]) -> dict:
    """A line of the table. Ratios are of tokens a second, so that they hold where lengths differ."""
    line = {"work": name, "model": shape, **{side: cell(answers) for side, answers in seen.items()}}
    for side in seen:
        if side.startswith("postgrad"):
            short = side.removeprefix("postgrad ")
            line |= {f"{short} x {other}": round(rate(seen[side]) / rate(seen[other]), 2)
                     for other in (DEFAULTS, TUNED)}
            line[f"{short} x {DEFAULTS}, CPU time"] = round(
                rate(seen[side], "cpu") / rate(seen[DEFAULTS], "cpu"), 2)
    tokens = statistics.median(a["tokens"] for a in seen[FP32][1:])
    return line | {"tokens": int(tokens), "tokens/s": int(rate(seen[FP32])),
                   "tokens/CPU s": int(rate(seen[FP32], "cpu")),
                   **{f"floor {name}": f"{1e3 * seconds:.0f} ms" for name, seconds in floors.items()}}


def start_row(shape: str, seen: dict[str, dict]) -> dict:
    line = {"model": shape}
    for name, found in seen.items():
        line |= {f"{name}: first step": f"{statistics.median(found['first']):.1f} s",
                 f"{name}: peak": f"{statistics.median(found['peak']) / 2**20:.0f} MiB"}
    return line


def bars(table: list[dict], samples: list[dict], memory: dict[str, dict], checks: list[dict],
         ragged: float | None, ours: list[str]) -> list[dict]:
    """The bars, for the smallest shape and the better of our precisions. ragged: share of tokens per CPU
    second with ragged lengths."""
    found: list[dict] = []

    def best(rows: list[dict], name: str) -> tuple[dict, str]:
        line = next((r for r in rows if r["work"] == name and r["model"] == "1M"), None)
        return line, max(ours, key=lambda k: line[f"{k} x {DEFAULTS}"]) if line else ""

    for rows, name, target in ((table, "GRPO step, beta 0", 3.8), (samples, "sampling", 4.0)):
        line, how = best(rows, name)
        if line:
            ratio, cpu = line[f"{how} x {DEFAULTS}"], line[f"{how} x {DEFAULTS}, CPU time"]
            # by either clock: a busy machine favours whom it likes
            found.append(bar(f"{name}, 1M, 8 x 8 samples of 16 + 48 tokens, against TRL's defaults",
                             f">= {target:g}x", f"{ratio:.2f}x ({how}; {cpu:.2f}x by CPU time); "
                             f"{line[f'{how} x {TUNED}']:.2f}x TRL tuned{without_units()}",
                             min(ratio, cpu) >= target))
    if ragged is not None:
        found.append(bar("ragged lengths: sampled tokens kept per CPU second against equal lengths, 1M, "
                         "fp32, a call of each by turns, rollouts.async_depth=0",
                         ">= 65 %", f"{100 * ragged:.0f} %", ragged >= 0.65))
    for shape, seen in memory.items():
        peak = {name: statistics.median(x["peak"]) for name, x in seen.items()}
        ratio, other = peak[FP32] / peak[TUNED], peak[FP32] / peak[DEFAULTS]
        found.append(bar(f"peak memory of a GRPO step over what is loaded, {shape}, equal settings (fp32, no "
                         "checkpointing)",
                         "<= 0.5x TRL", f"{ratio:.2f}x; {other:.2f}x TRL's defaults", ratio <= 0.5))
    if checks:
        found.append(bar("both sides do the same work: losses, gradient norms, tokens, fp32",
                         f"every work, {SAME:g} relative",
                         f"{sum(c['same'] for c in checks)} of {len(checks)}",
                         all(c["same"] for c in checks)))
    return found


def show(heading: str, rows: list[dict]) -> None:
    print(f"\n## {heading}\n\n" + "\n".join(grid(rows)), flush=True)


def steps(folder: Path, threads: str = "1", rounds: str = "5", sizes: str = "1M,5M",
          works: str = "grpo,dpo,reward,sft,start", bf16: str = "yes") -> tuple[list[dict], dict]:
    torch.set_num_threads(int(threads))
    kinds = {FP32: ("ours", FLOAT), **({} if bf16 == "no" else {"postgrad bf16": ("ours", HALF)}),
             DEFAULTS: ("trl", ("defaults",)), TUNED: ("trl", ("tuned",))}
    table, samples, checks, begun, memory, ragged, count = [], [], [], [], {}, None, int(rounds)
    with (folder / "log").open("w") as log:
        make = {name: partial(Side, *what, threads=int(threads), log=log) for name, what in kinds.items()}
        sides = {name: new() for name, new in make.items()}
        for shape in sizes.split(","):
            files = prepare(folder, shape)
            rates = {k: Rates.measure(SHAPES[shape], t)
                     for k, t in (("fp32", torch.float32), ("bf16", torch.bfloat16))}
            for case in cases(files, shape, works.split(","), count + 1):
                seen = measure(sides, case, count)
                step, draw = floors(case, rates, seen[FP32]["step"][-1]["tokens"])
                table.append(row(case.name, shape, {k: v["step"] for k, v in seen.items()}, step))
                show("", table[-1:])
                if case.work.kind == "grpo" and not case.work.beta:
                    samples.append(row("sampling, ragged" if case.chance else "sampling", shape,
                                       {k: v["sample"] for k, v in seen.items()}, draw))
                if case.work.kind == "grpo" and not case.chance:
                    checks.append(same_rollouts(sides[FP32], sides[TUNED], case.work, shape, folder))
                elif case.compare and case.work.kind != "grpo":
                    checks.append(agreement(case.name, shape, seen[FP32]["step"], seen[TUNED]["step"]))
            both = [Work(kind="grpo", model=str(files[name]), data=str(files["task"]), steps=3)
                    for name in ("full", "ragged")]
            if "grpo" in works and shape == "1M":
                ragged = share_by_turns(make[FP32], both, 4 * count)
            if "start" in works:
                memory[shape] = starts(make, both[0], rounds=2 if shape == sizes.split(",")[0] else 1)
                begun.append(start_row(shape, memory[shape]))
        for side in sides.values():
            side.close()
    ours = [name.removeprefix("postgrad ") for name in kinds if name.startswith("postgrad")]
    return bars(table, samples, memory, checks, ragged, ours), {
        "Steps": table, "Sampling": samples, "Time to the first step, and peak memory of a GRPO step": begun,
        "The same work: losses and gradients of both sides, fp32": checks}


def killed(folder: Path, count: str = "20") -> list[dict]:
    seen = kills.kill_saves(folder, int(count))
    return [bar("killed while a checkpoint was being written beside the run, 5M weights, then resumed",
                "20 of 20 to the same bits", f"{seen['same_bits']} of {seen['inside_save']}",
                seen["same_bits"] == seen["inside_save"] >= 20)]


PAGE = shapes.harness.Page(
    "speed-cpu", "Speed on a CPU, 1 thread(s): what was to be shown, and what was measured",
    {"steps": steps, "kills": killed, "parity": parity.bars, "tests": shapes.harness.tests("speed-cpu")}, [0],
    apart=("kills",), paths=shapes.harness.COMPUTES)

if __name__ == "__main__":
    PAGE.main()
