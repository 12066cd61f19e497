"""The rows: their tests, a bake-off, distillation, and the doctor on planted faults.

    python proofs/rows.py [PART ...] [device=cuda] [at_once=16]   tests: a few minutes; bakeoff: seven on one
                                                                  H200; distil, doctor: ten on one core

Bake-off: every policy row on word problems of four to six operations, 40 collections of 16 x 8 samples and
nothing more, four updates of each collection for rows with a ratio. Rates are chosen on the validation split
with seeds 10 and 11, reported on the test split with seeds 0 to 2. What is measured is not measured again.

Distillation: the teacher is a GRPO run from tiny-chat, the student tiny-chat by opd. A level is reached at
the first evaluation whose pass@1 is not below the interval of GRPO's last one. Of several rates the one with
the highest curve is taken, on a seed that is not reported. Self-distillation: chosen on seed 0, shown on 1
to 3.

Doctor: proofs/planted.py has twenty runs with one fault each and twenty without; the limits were chosen on
seed 0 (`doctor seed=0`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import harness
import against
import bias
from harness import TESTS, Bars, Tables, bar, percent, read_lines, run_tests, test_bar, train
from copyist import copyist
from planted import HEALTHY, PLANTED, make

import postgrad as pg
from postgrad import methods
from postgrad.methods import METHODS
from postgrad.records import Prompt
from postgrad.resolve.tasks import make_task
from postgrad.runs import Run
from postgrad.runs.doctor import diagnose

TASK, RATES, LOWER = "words-hard", ("1e-4", "3e-4", "1e-3"), "3e-5"  # LOWER: where the lowest was the best
CHOOSING, REPORTED = (10, 11), (0, 1, 2)
UPDATES, COLLECTIONS = 4, 40
LEARNS = "tests/training/learning_test.py::test_a_row_makes_the_good_likelier"
ONE_A_ROW = {  # bars that a test for every row holds: what -> the test, and the kind of rows
    "every row: what is rewarded, chosen or shown becomes likelier": (LEARNS, ""),
    "every policy row: as biased as it says, by enumeration":
        ("tests/training/oracle_test.py::test_a_row_is_as_biased_as_it_says", "policy"),
    "every row: any split of a step into passes is the whole, bit for bit":
        ("tests/training/batches/microbatch_test.py::test_any_split_is_the_whole_bit_for_bit", ""),
}
EXACT = {"TRL": ("tests/training/trl_objectives_test.py", "tests/training/trl_rollouts_test.py",
                 "tests/training/trl_distillation_test.py"),
         "verl": ("tests/training/verl_test.py",)}


def tested(folder: Path, report: str = "") -> tuple[Bars, Tables]:
    listed = TESTS["rows"]["bars"]
    words = [*(test for test, _ in ONE_A_ROW.values()), *sum(map(list, EXACT.values()), []),
             *sum(listed.values(), [])]
    counts = run_tests(folder, sorted(set(words)), report)
    bars = [*by_row(counts), *(by_library(name, counts) for name in EXACT),
            *(test_bar(what, "all pass", tests, counts) for what, tests in listed.items())]
    return bars, {"The exact bias of every policy row": [
        {"row": name, "claims to have none": "yes" if METHODS[name].unbiased else "",
         "relative bias": bias.said(x["bias"]), "times the exact gradient": x["scale"],
         "noise of a group": x["noise"],
         "of its own objective": bias.said(x["own"]["bias"]) if "own" in x else ""}
        for name, x in bias.kept(METHODS).items()]}


def by_row(counts: Mapping[str, tuple[int, int, int]]) -> Bars:
    out = []
    for what, (test, kind) in ONE_A_ROW.items():
        rows = sum(kind in ("", row.kind) for row in METHODS.values())
        ran, wrong, skipped = counts.get(test, (0, 0, 0))
        out.append(bar(what, "all rows", f"{ran - wrong} of {rows} pass, {skipped} skipped",
                       ran == rows and not wrong, f"pytest {test}"))
    return out


def by_library(library: str, counts: Mapping[str, tuple[int, int, int]]) -> dict:
    """The rows that a test holds against a library's code or formula, value and gradient."""
    held = [h for h in against.found() if h.library == library and h.file in EXACT[library]]
    passed = {test for test, (ran, wrong, _) in counts.items() if ran and not wrong}
    rows = list(dict.fromkeys(h.row for h in held if f"{h.file}::{h.test}" in passed))
    tests = test_bar("", "all", list(EXACT[library]), counts)
    return bar(f"rows against {library}, to 1e-6, differences as exact factors", ">= 3 rows",
               f"{len(rows)}: {', '.join(rows)}", len(rows) >= 3 and tests["holds"], tests["command"])


# the bake-off

def one(job: tuple[str, str, int, str, str]) -> dict:
    """A run: held-out pass@1 before and after, and how far the updates went."""
    row, rate, seed, split, device = job
    updates = UPDATES if methods.get_method(row).ratio else 1
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder) / "run", f"{row}:words", f"task={TASK}", f"seed={seed}", f"optim.lr={rate}",
                    f"device={device}", "optim.compile=false", "evaluation.problems=192",
                    "evaluation.samples=8", f"evaluation.split={split}", "rollouts.resample_limit=0",
                    "method.epochs=1", f"method.minibatches={updates}", f"rollouts.collections={COLLECTIONS}",
                    f"evaluation.every={COLLECTIONS * updates}")
        first, *_, last = run.evaluations()
        seen = {name: run.curve(name)[1] for name in ("clip_fraction", "ratio_max", "entropy")}
        config = run.config
    drawn = COLLECTIONS * config["rollouts"]["prompts_per_step"] * config["rollouts"]["group_size"]
    return {"row": row, "rate": float(rate), "seed": seed, "split": split, "updates": config["steps"],
            "first": first["pass@1"], "pass@1": last["pass@1"], "interval": last["pass@1_interval"],
            "pass@8": last["pass@8"], "length": last["mean_length"], "samples": drawn,
            "clipped": mean(seen["clip_fraction"]), "ratio_max": max(seen["ratio_max"]),
            "entropy": seen["entropy"][-1]}


def measured(jobs: list[tuple], file: Path, at_once: int) -> list[dict]:
    """The figures of all jobs, read from the file or measured and appended to it."""
    key = lambda row: (row["row"], row["rate"], row["seed"], row["split"])  # noqa: E731
    known = {key(row): row for row in read_lines(file)}
    left = [job for job in jobs if (job[0], float(job[1]), *job[2:4]) not in known]
    if left:
        with multiprocessing.get_context("spawn").Pool(at_once) as pool, file.open("a") as out:
            for row in pool.imap_unordered(one, left):
                out.write(json.dumps(row) + "\n")
                out.flush()
                known[key(row)] = row
    return [known[job[0], float(job[1]), *job[2:4]] for job in jobs]


def best_rate(found: list[dict], row: str) -> str:
    """The rate with the highest mean pass@1 over the seeds it was tried on; the lower one of two equals."""
    tried: dict[float, list[float]] = {}
    for r in found:
        if r["row"] == row:
            tried.setdefault(r["rate"], []).append(r["pass@1"])
    return f"{max(sorted(tried), key=lambda rate: mean(tried[rate])):g}"


def table(runs: list[dict]) -> list[dict]:
    """A line a row, the best mean first."""
    lines = []
    for row in dict.fromkeys(r["row"] for r in runs):
        mine = [r for r in runs if r["row"] == row]
        lines.append({"row": row, "mean pass@1": mean(r["pass@1"] for r in mine), "rate": mine[0]["rate"],
                      "updates": mine[0]["updates"],
                      **{f"seed {r['seed']}": f"{r['pass@1']:.3f} ({r['interval'][0]:.3f} to "
                                              f"{r['interval'][1]:.3f})" for r in mine},
                      "pass@8": mean(r["pass@8"] for r in mine), "length": mean(r["length"] for r in mine),
                      "clipped": mean(r["clipped"] for r in mine),
                      "largest ratio": max(r["ratio_max"] for r in mine),
                      "entropy": mean(r["entropy"] for r in mine)})
    return sorted(lines, key=lambda line: -line["mean pass@1"])


def bakeoff(folder: Path, device: str = "cpu", at_once: str = "", rows: str = "") -> tuple[Bars, Tables]:
    names = rows.split(",") if rows else [name for name, row in METHODS.items() if row.kind == "policy"
                                          and "teacher_logp" not in row.wanted]

    def at(rates: dict[str, list[str]], seeds: tuple[int, ...], split: str) -> list[dict]:
        jobs = [(row, rate, seed, split, device) for seed in seeds for row in rates for rate in rates[row]]
        return measured(jobs, folder / "bakeoff.jsonl", int(at_once or os.cpu_count() or 1))

    tried = at({row: list(RATES) for row in names}, CHOOSING, "validation")
    low = [row for row in names if float(best_rate(tried, row)) == float(RATES[0])]
    tried += at({row: [LOWER] for row in low}, CHOOSING, "validation")
    found = at({row: [best_rate(tried, row)] for row in names}, REPORTED, "test")
    return [], {"Bake-off: pass@1 after equal samples": table(found)}


# distillation

SIZES = {"grpo": (16, 8, 40, 2), "opd": (32, 1, 16, 4)}  # prompts, samples, collections, evaluated every
EXAM = {"problems": 128, "samples": 4}


def taught(folder: Path, name: str, row: str, device: str, *changes: str):
    prompts, group, collections, every = SIZES[row]
    return train(folder / name, f"{row}:words", "model=tiny-chat", f"device={device}", "compile=false",
                 *(f"evaluation.{k}={v}" for k, v in {**EXAM, "every": every}.items()),
                 f"rollouts.prompts_per_step={prompts}", f"rollouts.group_size={group}",
                 f"rollouts.collections={collections}", *changes)


def reached(run, level: float) -> int | None:
    """Rollouts until the first evaluation that is not below the level; None where none is."""
    found = next((row["step"] for row in run.evaluations() if row["pass@1"] >= level), None)
    prompts, group, *_ = SIZES[run.info["method"]]
    return None if found is None else found * prompts * group


def opd(folder: Path, seed: int, rate: str, device: str) -> dict:
    teacher = taught(folder, f"grpo-{seed}", "grpo", device, f"seed={seed}")
    student = taught(folder, f"opd-{seed}-{rate}", "opd", device, f"seed={seed}", f"lr={rate}",
                     f"teacher={teacher.folder}")
    last, end = teacher.evaluations()[-1], student.evaluations()[-1]
    low, high = last["pass@1_interval"]
    by_grpo, by_opd = reached(teacher, low), reached(student, low)
    curve = lambda run: [round(e["pass@1"], 3) for e in run.evaluations()]  # noqa: E731
    return {"seed": seed, "rate": float(rate), "start": student.evaluations()[0]["pass@1"],
            "grpo": last["pass@1"], "low": low, "high": high, "grpo rollouts": by_grpo, "opd": end["pass@1"],
            "opd rollouts": by_opd, "share": by_opd / by_grpo if by_opd is not None and by_grpo else None,
            "teacher_kl": [round(m["teacher_kl"], 3) for m in student.metrics()],
            "opd by evaluation": curve(student), "grpo by evaluation": curve(teacher)}


ANSWERS = {"letters": lambda n: "c", "parity": lambda n: "ce"[n % 2]}  # of sdft's two tasks


def sdft(folder: Path, device: str) -> tuple[Bars, list[dict]]:
    """Refused where a demonstration does not help; trained where the model can copy from one."""
    refused = ""
    try:
        pg.fit("tiny-chat", "sdft", task="words", run=folder / "refused", device=device,
               evaluation={**EXAM, "every": 0}, display=False)
    except ValueError as fault:
        refused = str(fault)
    learned = [self_distilled(folder, name, seed, device) for name in ANSWERS for seed in (1, 2, 3)]
    gained = [row["after"] > row["before_interval"][1] for row in learned]
    least = min(row["held out"] for row in learned)
    return [bar("sdft where a demonstration does not help", "1 of 1 refused, with its pass@1", refused,
                "pass@1" in refused),
            bar("sdft where a demonstration helps: held-out pass@1 above its first interval",
                "two tasks of >= 100 held-out problems, three seeds each: 6 of 6",
                f"{sum(gained)} of {len(gained)}, {least} problems at least; " + "; ".join(
                    f"{name} {min(ends):.1%} to {max(ends):.1%} after {max(begins):.1%} at most"
                    for name in ANSWERS
                    for begins, ends in [zip(*((row["before"], row["after"]) for row in learned
                                               if row["task"] == name), strict=True)]),
                sum(gained) == 6 and least >= 100)], learned


def self_distilled(folder: Path, name: str, seed: int, device: str) -> dict:
    """The copyist learns the one letter of each question, a number, from demonstrations that it is shown."""
    rows = [Prompt.ask(f"{n}", id=f"{name}/{n}", answer=ANSWERS[name](n)) for n in range(100, 1000)]
    task = make_task(rows, lambda prompt, text: text == prompt.answer, gold=lambda prompt: prompt.answer,
                     name=name)
    place = folder / f"sdft-{name}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    run = pg.fit(copyist(), "sdft", task=task, run=place, steps=12, lr=5e-3, seed=seed, device=device,
                 rollouts={"prompts_per_step": 16, "group_size": 8, "max_new_tokens": 3},
                 evaluation={"every": 12, "problems": 900, "samples": 8, "holdout_prompts": 0.3},
                 display=False)
    first, last = run.evaluations()
    shown = next(event["text"] for event in run.rows("events")[0] if "demonstration" in event["text"])
    return {"task": name, "seed": seed, "held out": first["problems"], "before": first["pass@1"],
            "before_interval": first["pass@1_interval"], "after": last["pass@1"],
            "after_interval": last["pass@1_interval"], "shown": shown}


def distil(folder: Path, device: str = "cpu", seeds: str = "0,1,2", choose: str = "10",
           rates: str = "1e-4,2e-4,4e-4") -> tuple[Bars, Tables]:
    shown, learned = sdft(folder, device)
    height = {rate: sum(sum(opd(folder, int(seed), rate, device)["opd by evaluation"])
                        for seed in choose.split(",")) for rate in rates.split(",")}
    rows = [opd(folder, int(seed), max(height, key=height.get), device) for seed in seeds.split(",")]
    text = "; ".join(f"seed {r['seed']}: {r['opd rollouts'] or 'not reached, where GRPO took'} "
                     f"{'of ' * bool(r['opd rollouts'])}{r['grpo rollouts']} rollouts, pass@1 {r['opd']:.1%} "
                     f"where GRPO has {percent(r['grpo'], [r['low'], r['high']])}" for r in rows)
    return [bar("opd reaches the teacher's pass@1 within its interval",
                "with at most a third of the rollouts that GRPO needed, on every seed", text,
                all(r["share"] is not None and r["share"] <= 1 / 3 for r in rows)),
            *shown], {"Distillation on policy": rows, "Self-distillation": learned}


# the doctor

def doctor(folder: Path, seed: str = "7") -> tuple[Bars, Tables]:
    """Does the doctor name a planted fault first, and stay silent where nothing is wrong?"""
    tables: Tables = {}
    for what, plans in (("planted", PLANTED), ("healthy", HEALTHY)):
        tables[f"Doctor: {what}"] = rows = []
        for name, plan in plans.items():
            place = folder / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
            found = diagnose(Run.open(make(plan, int(seed), place)))
            rows.append({"run": name, "setting": plan.spec, "steps": found.steps,
                         "named, worst first": ", ".join(x.symptom for x in found.findings) or "nothing",
                         "evidence of the first": "".join(x.finding.evidence for x in found.findings[:1])})
            print(f"{name:<34} {rows[-1]['named, worst first']}", flush=True)
    planted, healthy = tables.values()
    first = sum(row["named, worst first"].startswith(row["run"]) for row in planted)
    alarms = sum(row["named, worst first"] != "nothing" for row in healthy)
    return [bar("planted faults named first (limits chosen on seed 0)", f">= 18 of {len(planted)}",
                f"{first} of {len(planted)}", first >= 18),
            bar("false alarms in healthy runs", f"<= 1 of {len(healthy)}", f"{alarms} of {len(healthy)}",
                alarms <= 1)], tables


def suite(folder: Path, minutes: str) -> Bars:
    """make test: minutes=13.5, as it was timed."""
    return [bar("make test", "<= 15 minutes", f"{minutes} minutes", float(minutes) <= 15, "make test")]


PAGE = harness.Page("rows", "Rows, corrections, a bake-off and a doctor: what was measured",
            {"tests": tested, "bakeoff": bakeoff, "distil": distil, "doctor": doctor, "suite": suite}, [0],
            apart=("bakeoff", "distil", "suite"), paths=(*harness.TRAINS, *harness.rooms("runs")))

if __name__ == "__main__":
    PAGE.main()
