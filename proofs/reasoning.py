"""Reasoning: R1-Zero and R1 from tiny-zero, its control, pass@1 against pass@64, ledgers; GSM8K by expert
iteration.

    python proofs/reasoning.py [PART ...] [device=cuda] [seed=N]   seed: the runs of that seed alone
    python proofs/reasoning.py control model=MODEL                 MODEL: a run of pretrain:control
    python proofs/reasoning.py minutes                             the pipelines on this machine's CPU
    python proofs/reasoning.py gsm8k [task=gsm8k:DATA]             a GPU; three seeds side by side, by MPS

Settings were chosen on seeds 0, 1 and 7; shown are 3, 4 and 5, of R1 (and the R1-Zero that it is held
against) 8, 9 and 10, since the length of its last stage was chosen anew. GSM8K's were chosen on seeds 0 to 2
(8 samples kept from, 4 of a problem at most: greedy 13.4 %), and proved on 3 to 5. Its first GRPO is the
recipe of docs/results/real-models.md; its last step, 150, is the baseline.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean

from harness import (
    FIGURES,
    NOT_MEASURED,
    TRAINS,
    Bars,
    Page,
    Tables,
    bar,
    once,
    pipeline,
    postgrad,
    shared_gpu,
)
from kills import PIPELINES, kill_pipeline
from mend import coverage

from postgrad.data.tasks import load_task, reflection
from postgrad.evaluation import evaluate_task
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.runs import ledger as book
from postgrad.sampling import LocalSampler, Sampling

SEEDS, R1_SEEDS = (3, 4, 5), (8, 9, 10)
PARTS = ("words", "words-es", "countdown")
MOST = 64  # samples of a problem for the curve of pass@k
ZERO, R1 = "postgrad train r1-zero seed=N device=cuda", "postgrad train r1 seed=N device=cuda"
RATES = ("pass@1", "pass@8", "format", "mean_length", "finished", "turn_back", "restart", "recheck", "worded",
         "wrong_language", "mixed_languages", "after_right")


def chosen(seed: str, seeds: Iterable[int]) -> list[int]:
    return [int(seed)] if seed else list(seeds)


def by_seed(rows: dict[int, object], line: Callable) -> str:
    return "; ".join(f"seed {seed}: {line(row)}" for seed, row in rows.items()) or NOT_MEASURED


def every_seed(rows: dict, holds: Callable) -> bool:
    return len(rows) == len(SEEDS) and all(holds(row) for row in rows.values())


def share(x: float) -> str:
    return f"{100 * x:.1f} %"


def within(x: dict, name: str = "pass@1") -> str:
    low, high = x[f"{name}_interval"]
    return f"{share(x[name])} ({100 * low:.1f} to {100 * high:.1f})"


def rates(folder: Path, models: str = "tiny-zero", problems: str = "200") -> Bars:
    """What a base can do before any training, sampled at temperature 1."""
    found = {}
    for name in models.split(","):
        chat = Chat.load(find_model(name))
        sampler = LocalSampler(load_model(find_model(name)), chat)
        for part in PARTS:
            task = load_task(part)
            row = evaluate_task(task, sampler, task.prompts("test", int(problems), 0), samples=8, seed=0,
                           settings=Sampling(max_new_tokens=128), greedy=False,
                           measures=reflection.measures(task, chat.places))
            found.setdefault(name, {})[part] = row
            print(f"{name} {part}: " + ", ".join(f"{key} {row[key]:.3g}" for key in RATES if key in row))
    first = next(iter(found.values()))
    return [bar("base rates of tiny-zero", "each part pass@1 2 to 30 %, pass@8 >= 40 %",
                "; ".join(f"{part}: pass@1 {within(x)}, pass@8 {share(x['pass@8'])}"
                          for part, x in first.items()),
                all(0.02 <= x["pass@1"] <= 0.3 and x["pass@8"] >= 0.4 for x in first.values()))]


def runs(folder: Path, name: str, seeds: Iterable[int], *changes: str) -> dict[int, dict]:
    """The summaries of a pipeline by seed."""
    return {seed: pipeline(folder / f"{name}-{seed}", name, f"seed={seed}", *changes) for seed in seeds}


def zero(folder: Path, device: str = "cuda", seed: str = "") -> Bars:
    done = runs(folder, "r1-zero", chosen(seed, SEEDS), f"device={device}")
    both = {seed: (row["measured"]["base"], row["measured"]["rl"]) for seed, row in done.items()}

    def searched(before: dict, after: dict) -> str:
        return (f"pass@1 {within(before)} -> {within(after)}, turning back {share(before['turn_back'])} -> "
                f"{share(after['turn_back'])}")

    return [bar("R1-Zero: word problems", "pass@1 +40 points, replies longer, 3 seeds",
                by_seed(both, lambda x: f"{within(x[0]['words'])} -> {within(x[1]['words'])}, "
                     f"{x[0]['words']['mean_length']:.0f} -> {x[1]['words']['mean_length']:.0f} tokens"),
                every_seed(both, lambda x: x[1]["words"]["pass@1"] - x[0]["words"]["pass@1"] >= 0.4
                      and x[1]["words"]["mean_length"] > x[0]["words"]["mean_length"]), ZERO),
            bar("R1-Zero: countdown turns back", "the share that turns back rises with pass@1, 3 seeds",
                by_seed(both, lambda x: searched(x[0]["countdown"], x[1]["countdown"])),
                every_seed(both, lambda x: all(x[1]["countdown"][key] > x[0]["countdown"][key]
                                          for key in ("pass@1", "turn_back"))), ZERO),
            bar("R1-Zero: the wrong language", ">= 20 % of the worded replies to Spanish problems, 3 seeds",
                by_seed(both, lambda x: f"{share(x[1]['words-es']['wrong_language'])} of the "
                     f"{share(x[1]['words-es']['worded'])} with words"),
                every_seed(both, lambda x: x[1]["words-es"]["wrong_language"] >= 0.2), ZERO)]


def control(folder: Path, model: str, device: str = "cuda") -> Bars:
    """The same from a base whose text has no chains that look back; R1-Zero's runs are read from `zero`."""
    ends = {}
    for seed in SEEDS:
        row = pipeline(folder / f"control-{seed}", "r1-zero", f"seed={seed}", f"model={model}",
                       f"device={device}")
        real = json.loads((folder.parent / f"zero/r1-zero-{seed}/summary.json").read_text())
        ends[seed] = row["measured"]["rl"]["countdown"], real["measured"]["rl"]["countdown"]
    return [bar("the control does not find what its text has not",
                "no turning back, countdown below, 3 seeds",
                by_seed(ends, lambda x: f"turning back {share(x[0]['turn_back'])}, countdown {within(x[0])}"),
                every_seed(ends, lambda x: x[0]["turn_back"] < 0.01
                      and x[0]["pass@1_interval"][1] < x[1]["pass@1_interval"][0]))]


def spoken(found: dict[str, dict]) -> tuple[float, float]:
    """Of replies to word problems: the share with words, and of these the share in another language."""
    rows = [found[part] for part in ("words", "words-es")]
    worded = sum(x["worded"] for x in rows)
    return worded / 2, sum(x["worded"] * x["wrong_language"] for x in rows) / max(worded, 1e-9)


def mean(found: dict[str, dict], key: str) -> float:
    return fmean(x[key] for x in found.values())


def r1(folder: Path, device: str = "cuda", seed: str = "") -> tuple[Bars, Tables]:
    seeds = chosen(seed, R1_SEEDS)
    before, done = (runs(folder, name, seeds, f"device={device}") for name in ("r1-zero", "r1"))
    last = {s: (before[s]["measured"]["rl"], row["measured"]["last"]["reasoning"]) for s, row in done.items()}
    quality = {s: (row["measured"]["sft"]["general"], row["measured"]["last"]["general"])
               for s, row in done.items()}
    mixed = {s: [spoken(x) for x in pair] for s, pair in last.items()}
    stages = [{"seed": s, **{key: value for key, value in row.items() if not key.endswith("_interval")}}
              for s, summary in done.items() for row in next(iter(summary["tables"].values()))]
    return [bar("R1: the wrong language, among replies with words", "<= 0.5x R1-Zero's; with words >= 1.0x",
                by_seed(mixed, lambda x: f"{share(x[0][1])} -> {share(x[1][1])}, with words "
                        f"{share(x[0][0])} -> {share(x[1][0])}"),
                every_seed(mixed, lambda x: x[1][1] <= x[0][1] / 2 and x[1][0] >= x[0][0]), R1),
            bar("R1: pass@1 of all parts", ">= R1-Zero's, 3 of 3 seeds",
                by_seed(last, lambda x: f"{share(mean(x[0], 'pass@1'))} -> {share(mean(x[1], 'pass@1'))}: "
                     + ", ".join(f"{part} {share(x[0][part]['pass@1'])} -> {share(x[1][part]['pass@1'])}"
                                 for part in PARTS)),
                every_seed(last, lambda x: mean(x[1], "pass@1") >= mean(x[0], "pass@1")), R1),
            bar("R1: replies in form", ">= 98 %", by_seed(last, lambda x: share(mean(x[1], "format"))),
                every_seed(last, lambda x: mean(x[1], "format") >= 0.98), R1),
            bar("R1: helpfulness, the true quality of general replies", "> the SFT model's, 3 of 3 seeds",
                by_seed(quality, lambda x: " -> ".join(
                    f"{y['reward']:+.2f} ({y['reward_interval'][0]:+.2f} to {y['reward_interval'][1]:+.2f})"
                    for y in x)), every_seed(quality, lambda x: x[1]["reward"] > x[0]["reward"]), R1)], {
        "R1, stage by stage": stages}


def minutes(folder: Path, seeds: str = "3,4,5") -> Bars:
    out = []
    for name, words, most in (("r1-zero", "R1-Zero: minutes on two cores, measurements included", 10),
                              ("r1", "R1: minutes on two cores, all stages in one table", 20)):
        found = runs(folder, name, map(int, seeds.split(",")))
        out.append(bar(words, f"<= {most}", by_seed(found, lambda x: f"{x['minutes']:.1f}"),
                       all(x["minutes"] <= most for x in found.values()), f"postgrad train {name} seed=N"))
    return out


def many(folder: Path, device: str = "cuda", seed: str = "") -> tuple[Bars, Tables]:
    """pass@1 to pass@64 of the base and of R1-Zero (of the part `zero`), on the same problems."""
    rows = []
    for each in chosen(seed, SEEDS):
        for part in PARTS:
            for name, model in (("base", "tiny-zero"), ("rl", folder.parent / f"zero/r1-zero-{each}/rl")):
                curve = once(folder / f"{each}-{name}-{part}.json", postgrad, "eval", model, "--task", part,
                             "--problems", 100, "--samples", MOST, "--seed", each, "--device",
                             device)["curve"]
                rows.append({"seed": each, "task": part, "model": name, **{
                    f"pass@{row['k']}": within(row, "pass@k") for row in curve if row["k"] in (1, 8, MOST)}})
    return [], {"What RL created, what it amplified": rows}


def ledgers(folder: Path, device: str = "cuda") -> tuple[Bars, Tables]:
    """What align and r1 (of rlhf.py and the part `r1`) gained and lost against the model they began with."""
    places = {"align": (folder.parent.parent / "proof-rlhf/align", (0, 1, 2)),
              "r1": (folder.parent / "r1", R1_SEEDS)}
    tables: Tables = {}
    for name, (place, seeds) in places.items():
        found = {}
        for seed in seeds:
            stages = once(folder / f"{name}-{seed}.json", postgrad, "ledger", place / f"{name}-{seed}",
                          "--problems", 100, "--device", device)["against_first"]
            stage, lines = list(stages.items())[-1]
            found[seed] = stage, [book.Line(**line) for line in lines]
        tables[f"Gains and losses of {name}, last stage against the start"] = [
            {"pipeline": name, "seed": seed, "stage": stage, **book.table_row(line)}
            for seed, (stage, lines) in found.items() for line in lines
            if line.measure in ("pass@1", "reward", "nats", book.DIVERSITY)]
        tables[f"The ledger of {name} in sentences"] = [
            {"seed": seed, "measured": " ".join(book.sentences(lines))} for seed, (_, lines) in found.items()]
    return [], tables


# SmolLM2-135M on GSM8K by expert iteration, on the 1,319 test problems after each stage

def gsm8k_run(folder: Path, seed: int, changes: list[str]) -> None:
    clock = folder / f"clock-{seed}.json"
    began = json.loads(clock.read_text())["began"] if clock.exists() else time.time()
    clock.write_text(json.dumps({"began": began}))
    pipeline(folder / f"gsm8k-{seed}", "expert-iteration", f"seed={seed}", *changes)
    clock.write_text(json.dumps({"began": began, "ended": time.time()}))


def train_gsm8k(folder: Path, seeds: Iterable[int], changes: list[str]) -> tuple[dict[int, dict], float]:
    """(what each seed's stages measured, minutes): every seed in a process of its own, its output in
    FOLDER/gsm8k-SEED.log."""
    seeds, started = list(seeds), []
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(seeds)))}
    with shared_gpu() as shared:
        for seed in seeds:
            with (folder / f"gsm8k-{seed}.log").open("ab") as log:
                started.append(subprocess.Popen(
                    [sys.executable, __file__, "gsm8k-run", str(folder), str(seed), *changes], stdout=log,
                    stderr=log, env=os.environ | threads | shared))
        failed = [seed for seed, process in zip(seeds, started, strict=True) if process.wait()]
    if failed:
        raise SystemExit(f"seeds {failed} did not end: see {folder}/gsm8k-SEED.log.")
    clocks = [json.loads((folder / f"clock-{seed}.json").read_text()) for seed in seeds]
    return ({seed: json.loads((folder / f"gsm8k-{seed}/summary.json").read_text())["measured"]
             for seed in seeds}, (max(c["ended"] for c in clocks) - min(c["began"] for c in clocks)) / 60)


def stages_by_seed(done: dict[int, dict]) -> str:
    """pass@1, greedy and pass@8 of every stage."""
    return by_seed(done, lambda measured: ", ".join(
        f"{name} {share(row['pass@1'])} / {share(row['greedy'])} / pass@8 {share(row['pass@8'])}"
        for name, row in measured.items()))


def both_rates(row: dict) -> str:
    return f"pass@1 {within(row)}, greedy {within(row, 'greedy')}"


def gsm8k(folder: Path, task: str = "gsm8k", model: str = "models/smollm2",
          device: str = "cuda") -> tuple[Bars, Tables]:
    return gsm8k_bars(*train_gsm8k(folder, SEEDS, [f"task={task}", f"model={model}", f"device={device}"]))


def gsm8k_bars(done: dict[int, dict], minutes: float) -> tuple[Bars, Tables]:
    first, last = ({seed: measured[stage] for seed, measured in done.items()} for stage in ("grpo", "last"))
    means = lambda rows: [mean(rows, name) for name in ("pass@1", "greedy")]  # noqa: E731
    lenient = lambda row: f"pass@1 {share(row['lenient'])}, greedy {share(row['greedy_lenient'])}"  # noqa: E731
    every = all(row["problems"] == 1319 for row in last.values())
    command, (sampled, greedy), (was, greedy_was) = \
        "postgrad train expert-iteration task=gsm8k:DATA device=cuda seed=N", means(last), means(first)
    return [bar("SmolLM2-135M on GSM8K by expert iteration, 1,319 test problems, strict",
                "pass@1 >= 12 % and greedy >= 14 %, mean of 3 seeds",
                f"{share(sampled)} and {share(greedy)}: {by_seed(last, both_rates)}",
                every and sampled >= 0.12 and greedy >= 0.14, command),
            bar("minutes of the three seeds side by side on one H200, measurements included", "<= 25",
                f"{minutes:.1f}", minutes <= 25)], {
        FIGURES: [{"what": "GSM8K, read leniently", "measured": by_seed(last, lenient)},
                  {"what": "GSM8K, the baseline: step 150 of the first GRPO in the same runs",
                   "measured": f"{share(was)} and {share(greedy_was)}: {by_seed(first, both_rates)}; "
                               f"leniently {by_seed(first, lenient)}"},
                  {"what": "GSM8K stage by stage, pass@1 / greedy / pass@8",
                   "measured": stages_by_seed(done)}]}


def killed(folder: Path) -> Bars:
    """Every pipeline killed inside each stage, at each save and before each file that ends a step."""
    rows = [once(folder / f"{name}.json", kill_pipeline, name, folder / name)
            for name in PIPELINES]
    return [bar("each pipeline killed inside every stage and between stages",
                "the same files after every kill",
                "; ".join(f"{row['pipeline']}: {row['kills'] - len(row['differing'])} of {row['kills']}"
                          for row in rows), not any(row["differing"] for row in rows))]


PAGE = Page("reasoning", "Reasoning: R1-Zero, R1, and measurements of them",
            {"rates": rates, "zero": zero, "control": control, "r1": r1, "minutes": minutes, "many": many,
             "ledgers": ledgers, "coverage": coverage, "gsm8k": gsm8k, "kills": killed}, [*SEEDS, *R1_SEEDS],
            apart=("control", "gsm8k", "kills"), paths=TRAINS)

if __name__ == "__main__":
    if sys.argv[1:2] == ["gsm8k-run"]:
        gsm8k_run(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        PAGE.main()
