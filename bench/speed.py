"""postgrad and TRL on the same work, interleaved in one run: `make bench`, about ten minutes on an idle core.

    python bench/speed.py [--threads 1] [--rounds 5] [--shapes 1M,5M]
        [--works grpo,dpo,reward,sft,start,parity] [--write]

Same model folders (random weights), prompts, lengths and optimizer; each side in its own process (sides.py),
a round of ours, a round of theirs, and so on; medians with the smallest and the largest, after a step of
warming up. `TRL defaults` has bfloat16 autocast and activation checkpointing, `TRL tuned` neither. Before a
figure counts, losses and gradient norms of our fp32 side and `TRL tuned` have to agree step by step, and so
do the numbers of tokens. Our sampling includes the log-probs, theirs has none. Beside each figure stands the
floor (floors.py). --write puts docs/results/speed-cpu.json and its page in place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("bench", "proofs", "tools"))]

import torch  # noqa: E402
from floors import Rates, decode_floor, expected, train_floor  # noqa: E402
from results import grid, write  # noqa: E402
from shapes import SHAPES, write_model, write_pairs, write_talks, write_task  # noqa: E402
from tables import DEFAULTS, FP32, TUNED, agreement, bars, row, start_row  # noqa: E402
from work import Side, Work  # noqa: E402

PROMPT, NEW, PROMPTS, GROUP = 16, 48, 8, 8
RAGGED = 0.047                      # the chance of stopping after each token: 19 of 48 tokens on average
PAIRS, TALKS, LONGEST = 32, 64, 112
FLOAT, HALF = ("optim.precision=fp32",), ("optim.precision=bf16",)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table: what is done, on which shape, how samples end."""

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


def kept_by_turns(new_side, works: list[Work], rounds: int) -> float:
    """Sampled tokens a CPU second of the second work as a share of those of the first, a call of each by
    turns: the median of the rounds."""
    sides = [new_side() for _ in works]
    for side, work in zip(sides, works, strict=True):
        side.start(replace(work, steps=1))
    found = []
    for _ in range(rounds + 1):
        equal, ragged = (said["tokens"] / said["cpu"] for said in [side.ask("sample") for side in sides])
        found.append(ragged / equal)
    for side in sides:
        assert side.ask("step") == {"done": True}
        side.close()
    return statistics.median(found[1:])  # the first warms up


def show(heading: str, rows: list[dict]) -> None:
    print(f"\n## {heading}\n\n" + "\n".join(grid(rows)), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default="1M,5M")
    parser.add_argument("--works", default="grpo,dpo,reward,sft,start,parity")
    parser.add_argument("--no-bf16", action="store_true",
                        help="our fp32 side alone, as on a CPU without bfloat16 units")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def run(args: argparse.Namespace, folder: Path, log) -> tuple[list[dict], dict[str, list[dict]]]:
    works, shapes = args.works.split(","), args.shapes.split(",")
    kinds = {FP32: ("ours", FLOAT), **({} if args.no_bf16 else {"postgrad bf16": ("ours", HALF)}),
             DEFAULTS: ("trl", ("defaults",)), TUNED: ("trl", ("tuned",))}
    make = {name: partial(Side, *what, threads=args.threads, log=log) for name, what in kinds.items()}
    table, samples, checks, begun, memory, kept = [], [], [], [], {}, None
    sides = {name: new() for name, new in make.items()}
    for shape in shapes:
        files = prepare(folder, shape)
        rates = {k: Rates.measure(SHAPES[shape], t)
                 for k, t in (("fp32", torch.float32), ("bf16", torch.bfloat16))}
        for case in cases(files, shape, works, args.rounds + 1):
            seen = measure(sides, case, args.rounds)
            step, draw = floors(case, rates, seen[FP32]["step"][-1]["tokens"])
            table.append(row(case.name, shape, {k: v["step"] for k, v in seen.items()}, step))
            show("", table[-1:])
            if case.work.kind == "grpo" and not case.work.beta:
                samples.append(row("sampling, ragged" if case.chance else "sampling", shape,
                                   {k: v["sample"] for k, v in seen.items()}, draw))
                show("", samples[-1:])
            if case.work.kind == "grpo" and not case.chance:
                checks.append(same_rollouts(sides[FP32], sides[TUNED], case.work, shape, folder))
            elif case.compare and case.work.kind != "grpo":
                checks.append(agreement(case.name, shape, seen[FP32]["step"], seen[TUNED]["step"]))
        if "grpo" in works and shape == "1M":
            both = [Work(kind="grpo", model=str(files[name]), data=str(files["task"]), steps=1)
                    for name in ("full", "ragged")]
            kept = kept_by_turns(make[FP32], both, 4 * args.rounds)
        if "start" in works:
            work = Work(kind="grpo", model=str(files["full"]), data=str(files["task"]), steps=3)
            memory[shape] = starts(make, work, rounds=2 if shape == shapes[0] else 1)
            begun.append(start_row(shape, memory[shape]))
    for side in sides.values():
        side.close()
    found = bars(table, samples, memory, checks, kept,
                 [n.removeprefix("postgrad ") for n in kinds if n.startswith("postgrad")])
    found.append(kills_bar())
    if "parity" in works:
        import parity
        found += parity.bars()
    return found, {"Steps": table, "Sampling": samples,
                   "Time to the first step, and peak memory of a GRPO step": begun,
                   "The same work: losses and gradients of both sides, fp32": checks}


def kills_bar() -> dict:
    """What `python proofs/kills.py saves bench` left: it takes minutes, so it is not run here."""
    seen = json.loads((HERE / "bench" / "kills-saves.json").read_text())
    return {"name": "killed while a checkpoint was being written beside the run, 5M weights, then resumed",
            "target": "20 of 20 to the same bits",
            "measured": f"{seen['same_bits']} of {seen['inside_save']}",
            "holds": seen["same_bits"] == seen["inside_save"] >= 20, "command": "proofs/kills.py saves bench"}


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w") as log:
        try:
            found, tables = run(args, Path(folder), log)
        except RuntimeError:
            print((Path(folder) / "log").read_text()[-3000:], file=sys.stderr)
            raise
    tables = {heading: rows for heading, rows in tables.items() if rows}
    for heading, rows in tables.items():
        show(heading, rows)
    show(f"What was to be shown ({args.threads} thread(s), {args.rounds} rounds, "
         f"{time.perf_counter() - began:.0f} s)",
         found)
    if args.write:
        title = f"Speed on a CPU, {args.threads} thread(s): what was to be shown, and what was measured"
        print(write("speed-cpu", title, found, seeds=[0], tables=tables))
    sys.exit(not all(b["holds"] for b in found))


if __name__ == "__main__":
    main()
