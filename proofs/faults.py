"""Kills and faults of the machine, over everything that trains: parts of proofs/reliability.py.

Parts: kills, pipelines, full_disk, machine, flips, numbers. A case is recorded when it is done, and not tried
again. shard=2/3: the second third of the cases; only=NAME,NAME: these cases; folder=runs/proof-reliability.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import harness
import faults_small
import kills as strikes
from harness import Bars, Tables, bar, once, served

from postgrad.cli.settings import config_from_text
from postgrad.methods import METHODS
from postgrad.runs import Run
from postgrad.system.settings import flat_settings

SEED = 0
TEACHER = {"opd": "teacher=tiny-chat", "sdft": "teacher=tiny-chat"}
FEW = {  # settings that make any recipe small, where it has them
    "steps": 6, "save_every": 2, "rollouts.prompts": 16, "rollouts.prompts_per_step": 2,
    "rollouts.group_size": 4, "rollouts.max_new_tokens": 12, "examples": 24, "rows_per_step": 4,
    "pairs.drawn": 24, "pairs.held_out": 8, "pairs.per_step": 4, "head.heads": 2,
    "evaluation.every": 2, "evaluation.problems": 2, "evaluation.samples": 2, "workers": 1,
    "documents": 600, "replies.problems": 6, "replies.samples": 2, "replies.per_step": 4}
NAMED = {  # the families: named settings of their own
    "sft": "sft:words", "reward": "reward:questions", "process": "process:words", "dpo": "dpo:questions",
    "kto": "kto:questions", "online_dpo": "online_dpo:words", "ppo": "ppo:words", "grpo": "grpo:words",
    "games": "grpo:guess", "opd": "opd:words", "pretrain": "pretrain:smoke", "remote": "grpo:words"}
PAIRS = {name for name, row in METHODS.items() if row.kind == "preference"} - {"outcome"}
OTHERS = {name: f"{name}:{'guess' if name == 'turn_grpo' else 'questions' if name in PAIRS else 'words'}"
          for name in METHODS if name not in NAMED}


def small_args(name: str, spec: str) -> tuple[str, ...]:
    """A row's or recipe's training of six steps, as words of the command."""
    needed = [TEACHER[name]] if name in TEACHER else []
    known = flat_settings(config_from_text(spec, needed)[1])
    return (spec, *needed, *(f"{key}={value}" for key, value in FEW.items() if key in known))


def shard_of(cases: Mapping[str, object], shard: str, only: str) -> list[str]:
    """The cases of a shard "2/3", or those named."""
    part, of = map(int, shard.split("/"))
    if unknown := [name for name in only.split(",") if name and name not in cases]:
        sys.exit(f"{unknown[0]} is none of {', '.join(cases)}.")
    return only.split(",") if only else list(cases)[part - 1:: of]


def progress(row: dict) -> dict:
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


# kills

def moments_of(calls: dict, count: int, draw: random.Random, length: float) -> list[dict]:
    """When a run is killed: a quarter inside saves, of which the first is killed again in the save after its
    resume; one before an evaluation is written; the rest at any file call and at any time."""
    saves = max(1, count // 4)
    moments: list[dict] = [{"at": draw.choice(calls["inside_save"])} for _ in range(saves)]
    moments[0]["again"] = f"save:{draw.randint(1, 5)}"
    moments += [{"at": f"eval:{draw.randint(1, 2)}"}] if calls["evaluations"] else []
    rest = count - len(moments)
    moments += [{"at": draw.randint(1, calls["calls"])} for _ in range(rest - rest // 2)]
    return moments + [{"kill_after": draw.uniform(0.3, 0.95) * length} for _ in range(rest // 2)]


def strike(name: str, run: Path, alone: dict, moment: dict) -> dict:
    """One kill, a second one where the moment says so, and what differs after the resume."""
    again = moment.pop("again", None)
    code, _ = strikes.spawn(strikes.train_args(name, run), **moment)
    inside = bool([*(run / "checkpoints").glob(".tmp*")]) if run.exists() else False
    second = None
    if again and (run / "run.json").exists():
        second, _ = strikes.spawn(["resume", str(run), "--json"], at=again)
    strikes.finish(name, run)
    row = {"case": name, **moment, "killed": code == -signal.SIGKILL, "inside_save": inside,
           "killed_again": second == -signal.SIGKILL, "differences": strikes.differences(alone, run)}
    shutil.rmtree(run)
    return progress(row)


def kill_case(name: str, folder: Path, count: int) -> list[dict]:
    """A training that is left alone, and so many kills of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec = (NAMED | OTHERS)[name]
    strikes.SMALL[name] = small_args(name, spec)
    with ExitStack() as stack:
        if name == "remote":
            from remote_small import begin
            weights = begin(folder / "weights", "tiny")
            url = stack.enter_context(served("serve", weights, "--port", 0, "--every", 0.05))
            strikes.SMALL[name] += (f"remote.sampler={url.removesuffix('/v1')}", f"remote.weights={weights}")
        began = time.perf_counter()
        calls = strikes.left_alone(name, folder / "alone")
        length, alone = time.perf_counter() - began, strikes.facts(folder / "alone")
        moments = moments_of(calls, count, random.Random(f"{name}/{SEED}"), length)
        rows = [strike(name, folder / f"killed-{i}", alone, moment) for i, moment in enumerate(moments)]
    shutil.rmtree(folder)
    return rows


def kills(folder: Path, shard: str = "1/1", only: str = "", count: str = "50", others: str = "3"
          ) -> tuple[Bars, Tables]:
    """Every row of the table, every recipe, environments and a remote sampler: killed, resumed, compared."""
    cases = {name: int(count) for name in NAMED} | {name: int(others) for name in OTHERS}
    for name in shard_of(cases, shard, only):
        once(folder / f"{name}.json", kill_case, name, folder / name, cases[name])
    by_case = {name: json.loads(path.read_text()) for name in cases
               if (path := folder / f"{name}.json").exists()}
    rows = [row for listed in by_case.values() for row in listed]
    hit = [row for row in rows if row["killed"]]
    same = sum(not row["differences"] for row in hit)
    inside = {name: sum(row["inside_save"] for row in by_case.get(name, ())) for name in NAMED}
    again = sum(row["killed_again"] for row in rows)
    table = [{"case": name, "kills": sum(row["killed"] for row in listed),
              "inside a save": sum(row["inside_save"] for row in listed),
              "again in the save after": sum(row["killed_again"] for row in listed),
              "other bits": sum(bool(row["differences"]) for row in listed)}
             for name, listed in by_case.items()]
    return [bar("trainings killed at random moments and resumed, each step once, no temporary file left",
                f"all the same bits, in all {len(cases)} cases",
                f"{same} of {len(hit)} in {len(by_case)} cases, {len(rows) - len(hit)} kills came too late",
                same == len(hit) > 0 and by_case.keys() == cases.keys()),
            bar("kills inside a save", f">= {int(count) // 5} of each of {len(NAMED)} families",
                f"{min(inside.values())} to {max(inside.values())}", min(inside.values()) >= int(count) // 5),
            bar("second kills in the save after the resume", f">= {len(cases) // 2}, all the same bits",
                again, again >= len(cases) // 2 and same == len(hit))], {"Kills, case by case": table}


def pipelines(folder: Path, shard: str = "1/1", only: str = "") -> Bars:
    """Every pipeline, killed inside each stage, at saves, and between two stages."""
    for name in shard_of(strikes.PIPELINES, shard, only):
        once(folder / f"{name}.json", strikes.kill_pipeline, name, folder / name)
    rows = [json.loads(path.read_text()) for name in strikes.PIPELINES
            if (path := folder / f"{name}.json").exists()]
    kills, wrong = sum(row["killed"] for row in rows), sum(len(row["differing"]) for row in rows)
    return [bar("pipelines killed inside and between their stages and resumed",
                f"all the same files, in all {len(strikes.PIPELINES)} pipelines",
                f"{kills - wrong} of {kills} in {len(rows)} pipelines",
                not wrong and kills > 0 and len(rows) == len(strikes.PIPELINES))]


# the machine

def alone_run(folder: Path, name: str = "grpo") -> tuple[Path, dict]:
    """A training that is left alone, done once."""
    run = folder / "alone"
    if not harness.is_done(run):
        shutil.rmtree(run, ignore_errors=True)
        strikes.left_alone(name, run)
    return run, strikes.facts(run)


def full_disk(folder: Path, points: str = "20") -> Bars:
    """A limit on the size of files at many points of a training's largest file, and below its logs."""
    run, alone = alone_run(folder)
    largest = max(path.stat().st_size for path in run.rglob("*") if path.is_file())
    rows = []
    for i in range(int(points)):
        place = folder / f"full-{i}"
        shutil.rmtree(place, ignore_errors=True)
        limit = max(1, int(largest * (i + 0.5) / int(points)))
        code, said = faults_small.command(*strikes.train_args("grpo", place), file_bytes=limit)
        sound = not place.exists() or not (place / "run.json").exists() or all(
            Run.open(place).verify(step) for step in Run.open(place).checkpoints())
        strikes.finish("grpo", place)
        rows.append(progress({"limit": limit, "code": code, "sentence": "no room to write" in said
                              and "Traceback" not in said, "sound": bool(sound),
                              "differences": strikes.differences(alone, place)}))
        shutil.rmtree(place)
    good = sum(row["code"] != 0 and row["sentence"] and row["sound"] and not row["differences"]
               for row in rows)
    return [bar("a full disk: one sentence, what was saved is sound, the resumed run has the same bits",
                f"{points} of {points} points", f"{good} of {len(rows)}", good == len(rows))]


def machine(folder: Path) -> Bars:
    """Folders that cannot be written, clocks that jump, two processes, runs that are copied or moved."""
    run, alone = alone_run(folder, "sft")
    tried: dict[str, bool] = {}
    for name, words in {"a folder that cannot be written": ["--run", "/proc/postgrad-run"],
                        "a file in the place of the folder": ["--run", __file__ + "/run"]}.items():
        code, said = faults_small.command("train", *strikes.SMALL["sft"], *words)
        tried[name] = code == 2 and faults_small.is_sentence(said)
    for seconds in (1.0, 3600.0, 3e8):
        place = folder / f"clock-{seconds:.0f}"
        shutil.rmtree(place, ignore_errors=True)
        code, _ = faults_small.command(*strikes.train_args("sft", place), clock=seconds)
        tried[f"a clock that jumps by {seconds:g} s"] = code == 0 and not strikes.differences(alone, place)
    tried["two processes on one run"] = two_processes(folder / "two", alone)
    for name in ("copied", "moved", "copied while it is trained"):
        tried[f"a run that is {name}"] = carried(name, folder, run, alone)
    good = sum(tried.values())
    return [bar(f"{', '.join(tried)}", f"all {len(tried)}: one sentence, or the same bits",
                f"{good} of {len(tried)}" + "".join(f"; not {name}" for name, ok in tried.items() if not ok),
                good == len(tried))]


def two_processes(place: Path, alone: dict) -> bool:
    """A second process is refused with a sentence, and the first goes on to the same bits."""
    shutil.rmtree(place, ignore_errors=True)
    first = subprocess.Popen([sys.executable, "-m", "postgrad", *strikes.train_args("sft", place)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        while first.poll() is None and not (place / "run.json").exists():
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)  # it holds the lock, and cannot end meanwhile
        code, said = faults_small.command("resume", place)
        first.send_signal(signal.SIGCONT)
        first.wait(600)
    finally:
        first.kill()
    return (code == 2 and "is training in" in said and "Traceback" not in said and first.returncode == 0
            and not strikes.differences(alone, place))


def carried(how: str, folder: Path, run: Path, alone: dict) -> bool:
    """A run in the middle of its work, in another place."""
    begun, place = folder / "begun", folder / "elsewhere" / "run"
    for old in (begun, place):
        shutil.rmtree(old, ignore_errors=True)
    place.parent.mkdir(exist_ok=True)
    shutil.copytree(run, begun)
    opened = Run.open(begun)
    opened.go_back(next(iter(opened.checkpoints().values())))
    if how == "copied while it is trained":
        shutil.copytree(begun, place)  # this process still holds the lock of the first
    opened.close()
    if how == "copied":
        shutil.copytree(begun, place)
    if how == "moved":
        shutil.move(begun, place)
    strikes.finish("sft", place)
    return not strikes.differences(alone, place)


def flips(folder: Path, count: str = "1000") -> Bars:
    run, _ = alone_run(folder)
    silent = faults_small.flip_bits(run, int(count), random.Random(SEED))
    return [bar("single bits flipped over all files of a checkpoint",
                f"{count} of {count} detected, the checkpoint before it offered",
                f"{int(count) - len(silent)} of {count}", not silent)]


def numbers(folder: Path, count: str = "100") -> Bars:
    """Numbers that are none, or too large, at random steps and tokens of a training."""
    draw, rows = random.Random(SEED), []
    kinds = [(place, value) for place, values in faults_small.PLACES.items() for value in values]
    for i in range(int(count)):
        place, value = kinds[i % len(kinds)]
        rows.append(faults_small.numeric_fault(place, value, draw, folder / str(i)))
    good, models = sum(map(faults_small.is_caught, rows)), 0
    for i in range(10):
        model = folder / f"model-{i}"
        shutil.rmtree(model, ignore_errors=True)
        faults_small.damaged_model(model, ("nan", "inf", "-inf")[i % 3], draw)
        words = [w for w in strikes.SMALL["sft"] if not w.startswith("model=")]
        code, said = faults_small.command("train", *words, f"model={model}", "--run", folder / f"run-{i}")
        models += code == 2 and bool(re.search("no finite numbers|no distribution", said))
    return [bar("nan, inf and spikes of 1e30 in loss, gradient, log-prob, reward and advantage",
                f"{count} of {count} reported at their step with the ids, weights unchanged, the run goes on",
                f"{good} of {len(rows)}", good == len(rows)),
            bar("models opened with one weight that is no number", "10 of 10 refused with a sentence",
                f"{models} of 10", models == 10)]


PARTS: Mapping[str, Callable] = {"kills": kills, "pipelines": pipelines, "full_disk": full_disk,
                                 "machine": machine, "flips": flips, "numbers": numbers}
