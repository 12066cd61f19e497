"""Kills and faults of the machine, over everything that trains: parts of proofs/reliability.py.

Parts: kills, kills_again, pipelines, full_disk, machine, flips, numbers. Each is many cases. A case has a
process of its own, is recorded when it is done, and not tried again; a part counts what is recorded.
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
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import harness
import copyist
import faults_small
import forks
import kills as strikes
from harness import Bars, Tables, bar, served

import postgrad.recipes.base  # noqa: F401  what a fork has, it need not import
from postgrad.cli.settings import config_from_text
from postgrad.methods import METHODS
from postgrad.runs import Run
from postgrad.system.settings import flat_settings
from postgrad.system.throughput import repeatable

SEED, LIMIT = 0, 600  # seconds that a case may take
KILLS, OTHER_KILLS, PIPELINE_KILLS = 50, 3, 16
AGAIN = ("sdft", "opd")  # whose kills were not all tried: kills_again
POINTS, FLIPS, NUMBERS = 20, 1000, 100
MORE = {"opd": ("teacher=tiny-chat",), "sdft": ("evaluation.problems=20", "evaluation.samples=4")}
LETTERS = '''prompts = [{"question": str(n), "answer": "c"} for n in range(10, 100)]


def verify(prompt, text):
    return text == prompt.answer


def gold(prompt):
    return prompt.answer
'''
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
    more = MORE.get(name, ())
    known = flat_settings(config_from_text(spec, more)[1])
    return (spec, *(f"{key}={value}" for key, value in FEW.items() if key in known), *more)


# cases

@dataclass(frozen=True)
class Case:
    """work(*args) -> JSON, kept in `record`. It begins when the file that it needs is there, in its turn."""

    record: Path
    work: Callable
    args: tuple = ()
    needs: Path | None = None
    turn: int = 5


def at_once(cases: list[Case], workers: int, minutes: float) -> None:
    """The cases that are not recorded, each in a fork of this process, so many at once, until the time is
    over. What a case says that fails is in its record's .error."""
    ends, running = time.monotonic() + 60 * minutes, dict[int, tuple[Case, float]]()
    waiting = sorted((case for case in cases if not case.record.exists()), key=lambda case: case.turn)
    where = {"commit": harness.commit(), "machine": harness.machine()}
    print(f"{len(waiting)} of {len(cases)} cases of faults are to be done", file=sys.stderr, flush=True)
    while time.monotonic() < ends:
        ready = (case for case in waiting if case.needs is None or case.needs.exists())
        while len(running) < workers and (case := next(ready, None)):
            waiting.remove(case)
            running[begin(case, where)] = case, time.monotonic()
            ready = (case for case in waiting if case.needs is None or case.needs.exists())
        if not running:
            break
        for pid, (case, began) in [*running.items()]:
            if time.monotonic() > began + LIMIT:
                os.killpg(pid, signal.SIGKILL)
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
                outcome = "done" if case.record.exists() else "FAILED"
                print(f"{outcome} {case.record.parent.name}/{case.record.stem} "
                      f"{time.monotonic() - began:.0f} s, {len(waiting)} wait", file=sys.stderr, flush=True)
        time.sleep(0.01)
    for pid in running:
        os.killpg(pid, signal.SIGKILL)
    while running:
        del running[os.wait()[0]]


def work_of(folder: Path) -> Path:
    """Where a part's runs lie: of another commit they are not used."""
    return folder / ("work-" + harness.commit().replace(" ", "-"))


def begin(case: Case, where: dict) -> int:
    """A fork that does a case and records it."""
    case.record.parent.mkdir(parents=True, exist_ok=True)
    if pid := os.fork():
        return pid
    code, failed = 1, case.record.with_suffix(".error")
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        failed.write_text(f"It had not ended after {LIMIT} s, or with the time of all.\n")
        half = case.record.with_suffix(".half")
        half.write_text(json.dumps(where | {"row": case.work(*case.args)}))
        failed.unlink()
        half.rename(case.record)
        code = 0
    except BaseException:
        failed.write_text(traceback.format_exc()[-8000:])
    finally:
        os._exit(code)


def forked(args: list[str], *, at: int | str = 0, number: int = signal.SIGKILL,
           kill_after: float | None = None) -> tuple[int, str]:
    """kills.spawn in a fork of this process, which has imported torch and computed nothing."""
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = forks.carry_out({"call": "kills:child", "args": [at, int(number), args],
                                        "argv": ["postgrad"], "cwd": "."}, said.fileno())
            finally:
                os._exit(code)
        ends, struck = time.monotonic() + (LIMIT if kill_after is None else kill_after), False
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > ends and not struck:
                struck = os.kill(pid, signal.SIGKILL) is None
            time.sleep(0.005)
        said.seek(0)
        return os.waitstatus_to_exitcode(ended[1]), said.read().decode(errors="replace")


def recorded(folder: Path) -> tuple[dict[str, list], str, dict]:
    """Rows of a part by case, a sentence about cases without a result, and the commit and machines of all."""
    rows, commits, machines = dict[str, list](), set[str](), dict[str, dict]()
    for path in sorted(folder.glob("*/*.json")):
        record = json.loads(path.read_text())
        rows.setdefault(path.parent.name, []).append(record["row"])
        commits.add(record["commit"])
        machines[record["machine"]["cpu"]] = record["machine"]
    if len(commits) > 1:
        sys.exit(f"{folder} has cases of several commits, which are no one measurement: {commits}.")
    on = {"cpu": "; ".join(machines)} if len(machines) > 1 else {}
    where = {"commit": commits.pop(), "machine": [*machines.values()][0] | on} if commits else {}
    failed = [f"{path.parent.name}/{path.stem}" for path in sorted(folder.glob("*/*.error"))]
    more = f"; without a result: {', '.join(failed[:5])}{' ...' if failed[5:] else ''}" if failed else ""
    return rows, more, where


# kills

def leave_alone(place: Path, name: str) -> dict:
    """A run that is not killed, in a fresh interpreter; -> what strikes have to know of it."""
    shutil.rmtree(place / "alone", ignore_errors=True)
    with ExitStack() as stack:
        prepare(name, place / "alone-weights", stack)
        return strikes.left_alone(name, place / "alone")


def prepare(name: str, weights: Path, stack: ExitStack) -> None:
    """The words of a training; a remote sampler is begun."""
    if name in strikes.PIPELINES:
        return
    strikes.SMALL[name] = small_args(name, (NAMED | OTHERS)[name])
    if name == "sdft":  # it begins where a demonstration helps, which is of no use to the embedded models
        strikes.SMALL[name] += copyist_files(weights.parent / "copyist")
    if name == "remote":
        from remote_small import begin
        shutil.rmtree(weights, ignore_errors=True)
        begin(weights, "tiny")
        url = stack.enter_context(served("serve", weights, "--port", 0, "--every", 0.05))
        strikes.SMALL[name] += (f"remote.sampler={url.removesuffix('/v1')}", f"remote.weights={weights}")


def copyist_files(folder: Path) -> tuple[str, ...]:
    """Settings of sdft: a model that can copy what it is shown, and a task that it does not know."""
    task = folder / "letters.py"
    if not task.exists():
        copyist.copyist().save(folder / "model")
        task.write_text(LETTERS)
    return f"model={folder / 'model'}", f"task={task}"


def moments_of(name: str, calls: dict, count: int) -> list[dict]:
    """When a run is killed: a quarter inside saves, of which the first is killed again in the save after its
    resume; one before an evaluation is written; the rest at any file call and at any time."""
    draw = random.Random(f"{name}/{SEED}")
    saves = max(1, count // 4)
    moments: list[dict] = [{"at": draw.choice(calls["inside_save"])} for _ in range(saves)]
    moments[0]["again"] = f"save:{draw.randint(1, 5)}"
    moments += [{"at": f"eval:{draw.randint(1, 2)}"}] if calls["evaluations"] else []
    rest = count - len(moments)
    moments += [{"at": draw.randint(1, calls["calls"])} for _ in range(rest - rest // 2)]
    return moments + [{"kill_after": draw.uniform(0, 0.9) * calls["seconds"]} for _ in range(rest // 2)]


def moments_between(calls: dict) -> list[dict]:
    """When a pipeline is killed: before files that end a step or a stage, and inside saves of every stage."""
    ends = [at for path, at in calls["first_call"].items() if Path(path).name.startswith(
        (".state.json", ".pipeline.json", ".summary.json", ".counts.json")) or "/measured/" in path]
    spread = lambda calls, n: [calls[i * len(calls) // n] for i in range(n)]  # noqa: E731
    half = PIPELINE_KILLS // 2
    return [{"at": at} for pair in zip(spread(sorted(ends), half), spread(calls["inside_save"], half),
                                       strict=True) for at in pair]


def strike(place: Path, name: str, count: int, i: int) -> dict:
    """One kill, a second one where the moment says so, and what differs after the resume."""
    calls, run = json.loads((place / "calls.json").read_text())["row"], place / f"killed-{i}"
    many = name in strikes.PIPELINES
    moment = (moments_between(calls) if many else moments_of(name, calls, count))[i]
    again, second = moment.pop("again", None), None
    strikes.spawn = forked
    with ExitStack() as stack:
        prepare(name, place / f"weights-{i}", stack)
        shutil.rmtree(run, ignore_errors=True)
        code, said = forked(strikes.train_args(name, run), **moment)
        while code == 0 and "kill_after" in moment:  # it came too late
            shutil.rmtree(run)
            moment["kill_after"] *= 0.7
            code, said = forked(strikes.train_args(name, run), **moment)
        inside = bool([*run.glob("**/checkpoints/.tmp*")])
        if again and (run / "run.json").exists():
            second, _ = forked(["resume", str(run), "--json"], at=again)
        row = {**moment, "killed": code == -signal.SIGKILL, "inside_save": inside,
               "killed_again": second == -signal.SIGKILL}
        if code > 0:
            return row | {"differences": [f"it ended with {code}"], "evidence": said[-4000:]}
        try:
            strikes.finish(name, run)
        except AssertionError as error:
            return row | {"differences": ["it was not resumed"], "evidence": str(error)[-4000:]}
    if many:
        alone, now = strikes.left_in(place / "alone"), strikes.left_in(run)
        row["differences"] = sorted(k for k in alone.keys() | now.keys() if alone.get(k) != now.get(k))
    else:
        alone = strikes.facts(place / "alone")
        now, row["differences"] = strikes.facts(run), strikes.differences(alone, run)
    if row["differences"]:
        row["evidence"] = {k: strikes.first_difference(alone.get(k), now.get(k))
                           for k in row["differences"][:8]}
    shutil.rmtree(run)
    return row


def struck(folder: Path, name: str, count: int, first: int, turn: int, then: int) -> Iterator[Case]:
    """The kills of a training or pipeline, and before them the run that is left alone."""
    place = work_of(folder) / name
    calls = place / "calls.json"
    mine = [Case(folder / name / f"{i:02}.json", strike, (place, name, count, i), calls,
                 turn if i < first else then) for i in range(count)]
    if not all(case.record.exists() for case in mine):
        yield Case(calls, leave_alone, (place, name), turn=turn)
        yield from mine


def kill_cases(folder: Path) -> list[Case]:
    """Every row of the table, recipe and environment, and a remote sampler: their kills inside saves first,
    taken in turns."""
    named = [[*struck(folder, name, KILLS, KILLS // 4 + 1, 1, 6)] for name in NAMED]
    others = [[*struck(folder, name, OTHER_KILLS, OTHER_KILLS, 2, 2)] for name in OTHERS]
    return [case for cases in (named, others) for turn in zip_longest(*cases) for case in turn if case]


def pipeline_cases(folder: Path) -> list[Case]:
    cases = [[*struck(folder, name, PIPELINE_KILLS, 4, 3, 5)] for name in strikes.PIPELINES]
    return [case for turn in zip_longest(*cases) for case in turn if case]


def kills(folder: Path) -> tuple[Bars, Tables]:
    by_case, failed, where = recorded(folder)
    rows = [row for listed in by_case.values() for row in listed]
    count = lambda name, what: sum(row[what] for row in by_case.get(name, ()))  # noqa: E731
    same, wanted = sum(not row["differences"] for row in rows), dict.fromkeys(NAMED, KILLS)
    wanted |= dict.fromkeys(OTHERS, OTHER_KILLS)
    short = [name for name in wanted if count(name, "killed") < wanted[name]]
    inside, again = [count(name, "inside_save") for name in NAMED], sum(row["killed_again"] for row in rows)
    table = [{"case": name, "kills": count(name, "killed"), "inside a save": count(name, "inside_save"),
              "again in the save after": count(name, "killed_again"),
              "other bits": sum(bool(row["differences"]) for row in listed)}
             for name, listed in by_case.items()]
    return [bar("trainings killed at random moments and resumed, each step once, no temporary file left",
                f"all the same bits: {KILLS} of each of {len(NAMED)} families, {OTHER_KILLS} of each of "
                f"{len(OTHERS)} other rows",
                f"{same} of {len(rows)} in {len(by_case)} cases"
                + (f"; fewer of {', '.join(short)}" if short else "") + failed,
                same == len(rows) and not short and not failed) | where,
            bar("kills inside a save", f">= {KILLS // 5} of each of {len(NAMED)} families",
                f"{min(inside)} to {max(inside)}", min(inside) >= KILLS // 5) | where,
            bar("second kills in the save after the resume", f">= {len(wanted) // 2}, all the same bits",
                again, again >= len(wanted) // 2 and same == len(rows)) | where
            ], {"Kills, case by case": table}


def again_cases(folder: Path) -> list[Case]:
    return [case for name in AGAIN for case in struck(folder, name, KILLS, KILLS, 1, 1)]


def kills_again(folder: Path) -> Bars:
    """What the part kills lost or did not reach: sdft, which it began with a model that sdft refuses, and
    opd, of which a full disk took one."""
    by_case, failed, where = recorded(folder)
    bars = []
    for name in AGAIN:
        rows = by_case.get(name, [])
        killed, same = sum(row["killed"] for row in rows), sum(not row["differences"] for row in rows)
        lost = [case for case in failed.split(", ") if f"{name}/" in case]
        inside, twice = (sum(row[what] for row in rows) for what in ("inside_save", "killed_again"))
        bars.append(bar(f"trainings of {name} killed at random moments and resumed, each step once, no "
                        "temporary file left", f"{KILLS} of {KILLS} the same bits",
                        f"{same} of {killed} kills, {inside} inside a save, {twice} killed again there"
                        + (f"; {', '.join(lost)}" if lost else ""),
                        same == killed == len(rows) == KILLS and not lost) | where)
    return bars


def pipelines(folder: Path) -> Bars:
    """Every pipeline, killed inside each stage, at saves, and between two stages."""
    by_case, failed, where = recorded(folder)
    rows = [row for listed in by_case.values() for row in listed]
    same = sum(not row["differences"] for row in rows)
    return [bar("pipelines killed inside and between their stages and resumed",
                f"all the same files: {PIPELINE_KILLS} kills of each of {len(strikes.PIPELINES)} pipelines",
                f"{same} of {len(rows)} in {len(by_case)} pipelines{failed}",
                same == len(rows) == PIPELINE_KILLS * len(strikes.PIPELINES)) | where]


# the machine

def alone_of(name: str, folder: Path) -> tuple[Case, Path]:
    place = work_of(folder) / name
    return Case(place / "calls.json", leave_small, (place, name), turn=4), place


def leave_small(place: Path, name: str) -> dict:
    shutil.rmtree(place / "alone", ignore_errors=True)
    return strikes.left_alone(name, place / "alone")


def tried(folder: Path, training: str, cases: Mapping[str, tuple]) -> list[Case]:
    """Cases, (work, more ...) each, over a small training that is left alone: work(place, more ...)."""
    alone, place = alone_of(training, folder)
    mine = [Case(folder / name / "0.json", work, (place, *more), alone.record, 4)
            for name, (work, *more) in cases.items()]
    return [] if all(case.record.exists() for case in mine) else [alone, *mine]


def full_at(place: Path, i: int) -> dict:
    """A training whose files may have so many bytes, in POINTS steps up to its largest; then without."""
    largest = max(path.stat().st_size for path in (place / "alone").rglob("*") if path.is_file())
    limit = max(1, int(largest * (i + 0.5) / POINTS))
    row = stopped(place, f"full-{i}", "grpo", file_bytes=limit)
    return row | {"limit": limit, "good": row["good"] and "no room to write" in row["said"]}


def stopped(place: Path, name: str, training: str, **fault) -> dict:
    """A training that a fault ends: a sentence; what it saved is sound; without the fault the same bits."""
    run = place / name
    shutil.rmtree(run, ignore_errors=True)
    code, said = faults_small.command(*strikes.train_args(training, run), **fault)
    begun = Run.open(run) if (run / "run.json").exists() else None
    sound = begun is None or all(begun.verify(step) for step in begun.checkpoints())
    strikes.finish(training, run)
    differences = strikes.differences(strikes.facts(place / "alone"), run)
    shutil.rmtree(run)
    return {"good": code != 0 and faults_small.is_sentence(said) and sound and not differences, "code": code,
            "sound": bool(sound), "differences": differences, "said": said[-2000:]}


def full_disk_cases(folder: Path) -> list[Case]:
    return tried(folder, "grpo", {f"{i:02}": (full_at, i) for i in range(POINTS)})


def full_disk(folder: Path) -> Bars:
    """A limit on the size of files at many points of a training's largest file, and below its logs."""
    rows, failed, where = recorded(folder)
    good = sum(row["good"] for (row,) in rows.values())
    return [bar("a full disk: one sentence, what was saved is sound, the resumed run has the same bits",
                f"{POINTS} of {POINTS} points", f"{good} of {len(rows)}{failed}", good == POINTS) | where]


def refused_in(place: Path, folder: str) -> dict:
    code, said = faults_small.command("train", *strikes.SMALL["sft"], "--run", folder)
    return {"good": code == 2 and faults_small.is_sentence(said), "said": said[-2000:]}


def tricked(place: Path, trick: str) -> dict:
    """A training under a clock or a file system that does what it may."""
    run = place / re.sub(r"\W", "-", trick)
    shutil.rmtree(run, ignore_errors=True)
    code, said = faults_small.command(*strikes.train_args("sft", run), trick=trick)
    differences = strikes.differences(strikes.facts(place / "alone"), run) if code == 0 else []
    shutil.rmtree(run, ignore_errors=True)
    return {"good": code == 0 and not differences, "differences": differences, "said": said[-2000:]}


def interrupted(place: Path, code: str) -> dict:
    """A disk that fails from a change on: before the run is there, in its first steps, and in two saves."""
    rows = [stopped(place, f"{code}-{at}", "sft", trick=f"{code}:{at}") for at in (2, 25, 60, 120)]
    return {"good": all(row["good"] for row in rows), "rows": rows}


def without_locks(place: Path) -> dict:
    """A training is refused there with a sentence, and a run that was copied there can be read."""
    run = place / "unlocked"
    shutil.rmtree(run, ignore_errors=True)
    code, said = faults_small.command(*strikes.train_args("sft", run), trick="ENOLCK:1")
    read, error = faults_small.command("runs", place / "alone", trick="ENOLCK:1")
    refused = code == 2 and "ocks" in said and "Traceback" not in said and not run.exists()
    return {"good": refused and read == 0, "said": said + error}


def short_of_memory(place: Path) -> dict:
    """The sentence names settings; with one of them the same training fits into the same memory."""
    rows = [{"messages": [{"role": "user", "content": "a b c"},
                          {"role": "assistant", "content": "the word is " * 60}]}] * 200
    (place / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["train", "sft", f"data={place / 'long.jsonl'}", "steps=1", "rows_per_step=200"]
    empty = harness.python("-c", "import postgrad.recipes.base; print(open('/proc/self/status').read())")
    memory = 1024 * int(re.search(r"VmPeak:\s+(\d+)", empty)[1]) + (1500 << 20)
    runs = [place / "large", place / "small"]
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    code, said = faults_small.command(*words, "optim.tokens_per_pass=65536", "--run", runs[0], memory=memory)
    named = re.search(r"set (optim\.tokens_per_pass=\d+)", said)
    then, more = faults_small.command(*words, named[1], "--run", runs[1], memory=memory) if named else (1, "")
    return {"good": code == 2 and faults_small.is_sentence(said) and then == 0, "said": said + more[-2000:]}


def from_before(place: Path) -> dict:
    """The run of version 0.1 in tests/assets goes on to the metrics of a new one with its settings."""
    old, new = place / "version-0.1", place / "new"
    for run in (old, new):
        shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(harness.HOME / "tests/assets/run-0.1", old)
    (old / "checkpoints").mkdir()
    code, said = faults_small.command("resume", old)
    again, _ = faults_small.command("train", "--config", old, "--run", new)
    rows = [[repeatable(row) for row in harness.read_lines(run / "metrics.jsonl")] for run in (old, new)]
    return {"good": code == again == 0 and rows[0] == rows[1] and len(rows[0]) == 2, "said": said[-2000:]}


def two_processes(folder: Path) -> dict:
    """A second process is refused with a sentence, and the first goes on to the same bits."""
    place = folder / "two"
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
    good = code == 2 and "is training in" in said and "Traceback" not in said and first.returncode == 0
    return {"good": good and not strikes.differences(strikes.facts(folder / "alone"), place), "said": said}


def carried(folder: Path, how: str) -> dict:
    """A run in the middle of its work, in another place."""
    begun, place = folder / f"{how} begun", folder / how / "run"
    for old in (begun, place):
        shutil.rmtree(old, ignore_errors=True)
    place.parent.mkdir(exist_ok=True)
    shutil.copytree(folder / "alone", begun)
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
    differences = strikes.differences(strikes.facts(folder / "alone"), place)
    return {"good": not differences, "differences": differences}


def machine_cases(folder: Path) -> list[Case]:
    return tried(folder, "sft", MACHINE)


def machine(folder: Path) -> Bars:
    """Folders, disks, clocks and memory that fail, two processes, runs that are copied, moved or old."""
    rows, failed, where = recorded(folder)
    good = sum(row["good"] for (row,) in rows.values())
    bad = "".join(f"; not {name}" for name, (row,) in rows.items() if not row["good"])
    return [bar(f"{', '.join(MACHINE)}", f"all {len(MACHINE)}: one sentence, or the same bits",
                f"{good} of {len(rows)}{bad}{failed}", good == len(MACHINE)) | where]


MACHINE: Mapping[str, tuple] = {
    "a folder that cannot be written": (refused_in, "/proc/postgrad-run"),
    "a file in the place of the folder": (refused_in, __file__ + "/run"),
    **{f"a clock that jumps by {s:g} s": (tricked, f"clock:{s}") for s in (1.0, 3600.0, 3e8)},
    "a slow disk": (tricked, "slow:0.02"),
    "NFS: locks and syncs and deleted files of its own kind": (tricked, "network:1"),
    "a file system without locks": (without_locks,),
    **{f"a disk that ends with {code} at 4 moments": (interrupted, code)
       for code in ("EROFS", "EIO", "ESTALE", "EDQUOT")},
    "out of memory": (short_of_memory,), "a run of version 0.1": (from_before,),
    "two processes on one run": (two_processes,),
    **{f"a run that is {how}": (carried, how) for how in ("copied", "moved", "copied while it is trained")}}


# bits and numbers

def flipped(place: Path, i: int) -> dict:
    run = place / f"flips-{i}"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(place / "alone", run)
    silent = faults_small.flip_bits(run, FLIPS // 10, random.Random(f"{SEED}/{i}"))
    shutil.rmtree(run)
    return {"silent": silent}


def flip_cases(folder: Path) -> list[Case]:
    return tried(folder, "grpo", {str(i): (flipped, i) for i in range(10)})


def flips(folder: Path) -> Bars:
    rows, failed, where = recorded(folder)
    silent, count = [flip for (row,) in rows.values() for flip in row["silent"]], len(rows) * FLIPS // 10
    return [bar("single bits flipped over all files of a checkpoint",
                f"{FLIPS} of {FLIPS} detected, the checkpoint before it offered",
                f"{count - len(silent)} of {count}{failed}", count == FLIPS and not silent) | where]


def spoilt(place: Path, i: int) -> dict:
    """A tenth of the numbers that are none, or too large, at random steps and tokens of a training; and a
    model with such a weight."""
    draw, rows, folder = random.Random(f"{SEED}/{i}"), [], place / str(i)
    shutil.rmtree(folder, ignore_errors=True)
    kinds = [(place, value) for place, values in faults_small.PLACES.items() for value in values]
    for k in range(i, NUMBERS, 10):
        rows.append(faults_small.numeric_fault(*kinds[k // 10 % len(kinds)], draw, folder / f"{k}"))
    model = faults_small.damaged_model(folder / "model", ("nan", "inf", "-inf")[i % 3], draw)
    words = [w for w in strikes.SMALL["sft"] if not w.startswith("model=")]
    code, said = faults_small.command("train", *words, f"model={model}", "--run", folder / "run")
    refused = code == 2 and bool(re.search("no finite numbers|no distribution", said))
    return {"caught": [row for row in rows if faults_small.is_caught(row)], "model": refused,
            "missed": [row for row in rows if not faults_small.is_caught(row)], "said": said[-2000:]}


def number_cases(folder: Path) -> list[Case]:
    place = work_of(folder)
    return [Case(folder / str(i) / "0.json", spoilt, (place, i), turn=4) for i in range(10)]


def numbers(folder: Path) -> Bars:
    rows, failed, where = recorded(folder)
    good, models = (sum(counts(row) for (row,) in rows.values())
                    for counts in (lambda row: len(row["caught"]), lambda row: row["model"]))
    return [bar("nan, inf and spikes of 1e30 in loss, gradient, log-prob, reward and advantage",
                f"all {NUMBERS} named at their step with the ids of the batch, the weights unchanged",
                f"{good} of {len(rows) * NUMBERS // 10}{failed}", good == NUMBERS) | where,
            bar("models opened with one weight that is no number", "10 of 10 refused with a sentence",
                f"{models} of {len(rows)}", models == 10) | where]


PARTS: Mapping[str, Callable] = {
    "kills": kills, "kills_again": kills_again, "pipelines": pipelines, "full_disk": full_disk,
    "machine": machine, "flips": flips, "numbers": numbers}
CASES: Mapping[str, Callable[[Path], list[Case]]] = {
    "kills": kill_cases, "kills_again": again_cases, "pipelines": pipeline_cases,
    "full_disk": full_disk_cases, "machine": machine_cases, "flips": flip_cases, "numbers": number_cases}
