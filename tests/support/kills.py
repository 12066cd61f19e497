"""Kills a training process at a chosen or random moment, resumes it, and compares it with one left alone.

    python tests/support/kills.py N SIGNAL ARGS...    `postgrad ARGS...`, which gets the signal at its Nth
                                                      call that touches a file; save:N: its Nth inside a
                                                      save; eval:N: before its Nth evaluation is written;
                                                      twice:N: at its Nth call, and again at the
                                                      first one after it took that signal

Kills at random are parts of proofs: foundation.py, environments.py, reasoning.py and bench/speed.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LABS = Path(__file__).resolve().parents[2] / "examples" / "labs"
CALLS = ("write", "fsync", "rename", "replace", "open")
SMALL = {
    "sft": ("sft:words", "steps=12", "rows_per_step=2", "examples=32", "save_every=3"),
    "grpo": ("grpo:words", "steps=9", "save_every=3", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
             "rollouts.group_size=4", "rollouts.max_new_tokens=24", "method.epochs=2",
             "method.minibatches=2", "evaluation.every=3", "evaluation.problems=4", "evaluation.samples=2"),
    "games": ("grpo:guess", "steps=6", "save_every=2", "rollouts.prompts=16", "rollouts.prompts_per_step=2",
              "rollouts.group_size=4", "method.epochs=2", "method.minibatches=2", "evaluation.every=3",
              "evaluation.problems=4", "evaluation.samples=2"),
}
PIPELINES = {  # a few steps of each stage
    "r1-zero": ("r1-zero:quick",),
    "r1": ("r1:quick",),
    "expert-iteration": ("expert-iteration:quick",),
    "oversight": (f"{LABS}/oversight.py:quick",),
    "instruct": ("instruct", "sft_steps=3", "pairs=32", "reward_steps=3", "collections=1", "problems=4",
                 "samples=2"),
}
CLOCKS = ("time/", "memory", "seconds", "minutes", "created", "updated", "pid")


def child(at: int | str, number: int, args: list[str]) -> int:
    """Counts the calls of `os` that touch files, and sends itself a signal before the given one, of which it
    says how many steps were logged by then."""
    import postgrad.recipes.base  # noqa: F401  imported first, so that only the run's own calls are counted
    from postgrad.cli import main
    from postgrad.runs import Run
    seen, inside, written, evaluations, steps, handlers = 0, [], {}, 0, [], []
    log, log_eval = Run.log, Run.log_eval
    kind, _, which = str(at).rpartition(":")

    def watched(call):
        def wrapper(*a, **k):
            nonlocal seen
            seen += 1
            if ".tmp-" in str(a[0]) and "checkpoints" in str(a[0]):
                inside.append(seen)
            if isinstance(a[0], str | os.PathLike):
                written.setdefault(str(a[0]), seen)
            if int(which) == {"": seen, "save": len(inside), "twice": seen}.get(kind):
                handlers.append(signal.getsignal(number))
                print(f"signalled after {len(steps)} steps", file=sys.stderr)
                os.kill(os.getpid(), number)
            elif kind == "twice" and handlers and signal.getsignal(number) is not handlers[0]:
                handlers.clear()
                os.kill(os.getpid(), number)
            return call(*a, **k)
        return wrapper

    def evaluated(run, step, row):
        nonlocal evaluations
        evaluations += 1
        if kind == "eval" and evaluations == int(which):
            os.kill(os.getpid(), number)
        log_eval(run, step, row)

    def logged(run, *row):
        steps.append(seen)
        log(run, *row)

    Run.log, Run.log_eval = logged, evaluated
    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))
    began = time.perf_counter()
    code = main(args)
    print(json.dumps({"calls": seen, "inside_save": inside, "first_call": written, "evaluations": evaluations,
                      "steps": steps,
                      "seconds": time.perf_counter() - began, "compiler": "torch._dynamo" in sys.modules}),
          file=sys.stderr)
    return code


def spawn(args: list[str], *, at: int | str = 0, number: int = signal.SIGKILL,
          kill_after: float | None = None) -> tuple[int, str]:
    """A training process. at: the file call at which it signals itself; kill_after: seconds."""
    command = [sys.executable, __file__, str(at), str(int(number)), *args]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        _, said = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    return process.returncode, said


def train_args(recipe: str, folder: Path) -> list[str]:
    return ["train", *(SMALL | PIPELINES)[recipe], "--run", str(folder), "--json"]


def left_alone(recipe: str, folder: Path) -> dict:
    """The uninterrupted run; returns how many file calls it made, and which of them were inside a save."""
    code, said = spawn(train_args(recipe, folder))
    assert code == 0, said
    return json.loads(said.splitlines()[-1])


def finish(recipe: str, folder: Path) -> None:
    """Resumes until done (or starts, when the kill came before there was a run)."""
    begun = any((folder / name).exists() for name in ("run.json", "pipeline.json"))
    code, said = spawn(["resume", str(folder), "--json"] if begun else train_args(recipe, folder))
    assert code == 0, said


def facts(folder: Path) -> dict[str, object]:
    """What must be equal bit for bit: all metrics but the clock, sampled tokens, evaluations, final weights
    and state."""
    def rows(name: str) -> list[dict]:
        return [{k: v for k, v in row.items() if not k.startswith(CLOCKS)}
                for row in map(json.loads, (folder / name).read_text().splitlines())]

    last = max(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    state = json.loads((last / "state.json").read_text())
    for held in state["batches"].get("held", []):
        held["facts"] = {k: v for k, v in held["facts"].items() if not k.startswith(CLOCKS)}
    return {"metrics": rows("metrics.jsonl"), "samples": rows("samples.jsonl"), "evals": rows("evals.jsonl"),
            "state": state, "last": last.name, "weights": (last / "model.safetensors").read_bytes(),
            "optimizer": (last / "state.tensors").read_bytes()}


def differences(alone: dict, folder: Path) -> list[str]:
    """What a finished run has that one left alone has not; none is what resuming promises."""
    resumed = facts(folder)
    found = [name for name in alone if alone[name] != resumed[name]]
    found += [f"left behind: {p.name}" for p in folder.rglob("*tmp*")]
    steps = [row["step"] for row in resumed["metrics"]]
    return found + (["steps not once each"] if steps != list(range(1, len(steps) + 1)) else [])


def first_difference(alone: object, resumed: object) -> str:
    """Where two facts begin to differ: the row and its keys, or the tensor."""
    if isinstance(alone, bytes) and isinstance(resumed, bytes):
        from safetensors.torch import load
        a, b = load(alone), load(resumed)
        names = [k for k in a.keys() | b.keys() if k not in a or k not in b or not a[k].equal(b[k])]
        return f"{len(names)} of {len(a)} tensors: {sorted(names)[:4]}"
    if isinstance(alone, list) and isinstance(resumed, list):
        for i, pair in enumerate(zip(alone, resumed, strict=False)):
            if pair[0] != pair[1]:
                return f"row {i}: {first_difference(*pair)}"
        return f"{len(alone)} and {len(resumed)} rows"
    if isinstance(alone, dict) and isinstance(resumed, dict):
        keys = [key for key in alone.keys() | resumed.keys() if alone.get(key) != resumed.get(key)]
        return f"step {alone.get('step')}: " + "; ".join(
            f"{key}: {first_difference(alone.get(key), resumed.get(key))}" for key in sorted(keys)[:6])
    return f"{alone!r:.300} and {resumed!r:.300}"


def try_kill(recipe: str, run: Path, alone: dict, **moment) -> dict:
    """Kills a run at the moment (at=N or kill_after=seconds), resumes it,
    and says where it was and what differs."""
    code, _ = spawn(train_args(recipe, run), **moment)
    half = list((run / "checkpoints").glob(".tmp*")) if run.exists() else []
    finish(recipe, run)
    return {"recipe": recipe, **{k: round(v, 2) for k, v in moment.items()}, "exit": code,
            "inside_save": bool(half), "differences": differences(alone, run)}


def try_kills(recipe: str, folder: Path, count: int, seed: int) -> list[dict]:
    """A third inside a save, a third at any file call, the rest at random times of the run's length."""
    began, rng = time.perf_counter(), random.Random(f"{recipe}/{seed}")
    calls = left_alone(recipe, folder / "alone")
    length, alone, third = time.perf_counter() - began, facts(folder / "alone"), count // 3
    moments = [{"at": rng.choice(calls["inside_save"])} for _ in range(third)]
    moments += [{"at": rng.randint(1, calls["calls"])} for _ in range(third)]
    moments += [{"kill_after": rng.uniform(0.3, 0.95) * length} for _ in range(count - 2 * third)]
    return [try_kill(recipe, folder / f"killed-{i}", alone, **moment) for i, moment in enumerate(moments)]


def timeless(value, folder: Path):
    """JSON without clocks and without the folder's name."""
    if isinstance(value, dict):
        return {k: timeless(v, folder) for k, v in value.items() if not str(k).startswith(CLOCKS)}
    if isinstance(value, list):
        return [timeless(x, folder) for x in value]
    return value.replace(str(folder), "FOLDER") if isinstance(value, str) else value


def left_in(folder: Path) -> dict[str, object]:
    """What a pipeline leaves and must be reproducible: all files but event logs and locks, timeless."""
    found: dict[str, object] = {}
    left_out = ("events.jsonl", "lock")
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in left_out):
        name, rows = str(path.relative_to(folder)), path.suffix == ".jsonl"
        if "/checkpoints/" in name and path.name not in ("model.safetensors", "state.tensors"):
            continue
        if path.suffix in (".json", ".jsonl"):
            text = path.read_text()
            lines = text.splitlines() if rows else [text]
            found[name] = [timeless(json.loads(line), folder) for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def kill_pipeline(name: str, folder: Path) -> dict:
    """Kills a pipeline once inside each stage, at each save and before each file that ends a step, and says
    what differs from one left alone."""
    calls = left_alone(name, folder / "alone")
    alone, known = left_in(folder / "alone"), calls["first_call"]
    ends = [at for path, at in known.items() if Path(path).name.startswith(
        (".state.json", ".pipeline.json", ".summary.json", ".counts.json")) or "/measured/" in path]
    saves = calls["inside_save"]
    moments = sorted({*ends, *saves[:: max(1, len(saves) // 12)]})

    def struck(at: int) -> dict:
        place = folder / f"killed-{at}"
        code, _ = spawn(train_args(name, place), at=at)
        finish(name, place)
        now = left_in(place)
        differ = sorted(key for key in alone.keys() | now.keys() if alone.get(key) != now.get(key))
        print(name, at, "of", moments, code, differ, file=sys.stderr, flush=True)
        shutil.rmtree(place)
        return {"at": at, "exit": code, "differences": differ}

    with ThreadPoolExecutor(int(os.environ.get("AT_ONCE", "1"))) as several:
        rows = list(several.map(struck, moments))
    killed = sum(row["exit"] == -signal.SIGKILL for row in rows)
    return {"pipeline": name, "kills": len(rows), "killed": killed,
            "differing": [row for row in rows if row["differences"]]}


# checkpoints that are written while the run goes on


def new_work(folder: Path) -> None:
    """A model of 5M random weights, whose checkpoints take a while to write, and a task for it."""
    from shapes import SHAPES, write_model, write_task
    write_model(folder / "model", SHAPES["5M"], 0.1)
    task = write_task(folder / "task", 16, 16, SHAPES["5M"].vocab_size)
    SMALL["saves"] = ("grpo", f"model={folder / 'model'}", "steps=6", "save_every=1", "rollouts.prompts=16",
                      "rollouts.prompts_per_step=2", "rollouts.group_size=4", "rollouts.max_new_tokens=16",
                      "optim.lr=1e-4", "evaluation.every=0", "--task", str(task))


def half_written(run: Path) -> set[str]:
    """The checkpoints that are being written, by the folders that they are built in."""
    return {path.name for path in (run / "checkpoints").glob(".tmp-0*")}


def kill_in_a_save(run: Path, number: int, seconds: float) -> tuple[int, bool]:
    """Kills a run so many seconds into the writing of its checkpoint with this number; -> how it ended, and
    whether the checkpoint was still being written."""
    command = [sys.executable, __file__, "0", str(int(signal.SIGKILL)), *train_args("saves", run)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=os.environ | {"OMP_NUM_THREADS": "1"})
    seen: set[str] = set()
    while process.poll() is None and len(seen) < number:
        seen |= half_written(run)
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    process.wait()
    return process.returncode, bool(half_written(run))


def save_seconds(run: Path) -> float:
    """How long the writing of a checkpoint takes, from the times of its files."""
    last = max(p for p in (run / "checkpoints").iterdir() if p.name.isdigit())
    times = [path.stat().st_mtime for path in last.iterdir()]
    return max(times) - min(times)


def kill_saves(folder: Path, count: int = 20) -> dict:
    """As many kills as asked for that met a checkpoint half written; those that came too late are counted."""
    new_work(folder)
    left_alone("saves", folder / "alone")
    alone, length, rng = facts(folder / "alone"), save_seconds(folder / "alone"), random.Random("saves/0")
    rows: list[dict] = []
    while sum(row["inside_save"] for row in rows) < count and len(rows) < 3 * count:
        run, number, seconds = folder / "killed", rng.randint(1, 6), rng.uniform(0, length)
        code, inside = kill_in_a_save(run, number, seconds)
        finish("saves", run)
        rows.append({"checkpoint": number, "seconds": round(seconds, 3), "exit": code, "inside_save": inside,
                     "differences": differences(alone, run)})
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(run)
    met = [row for row in rows if row["inside_save"]]
    return {"kills": len(rows), "inside_save": len(met), "seconds_of_a_save": round(length, 3),
            "same_bits": sum(not row["differences"] for row in met), "rows": rows}


if __name__ == "__main__":
    first, second, *rest = sys.argv[1:]
    sys.exit(child(first, int(second), rest))
