"""Samples from elsewhere and sampling ahead, measured: a trainer and `postgrad serve` on this machine.

Parts of proofs/scale.py: endpoint and faulty take minutes on two cores, the 20 kills of struck half an hour,
ahead (4 depths x 3 seeds) two hours. DECOUPLED_KILLS=4 makes fewer kills; AT_ONCE=6 makes so many runs of
ahead at a time, each on two cores of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("", "tests/support", "proofs", "tools")]

import kills  # noqa: E402
from ranks_launch import free_port  # noqa: E402
from remote_small import saying  # noqa: E402
from results import bar  # noqa: E402

SEED, KILLS = 0, int(os.environ.get("DECOUPLED_KILLS", "20"))
AT_ONCE = int(os.environ.get("AT_ONCE", "1"))
ENV = os.environ | {"OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
SMALL = ("grpo:words", "steps=6", "save_every=2", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
         "rollouts.group_size=4", "rollouts.max_new_tokens=24", "evaluation.every=3", "evaluation.problems=4",
         "evaluation.samples=2")
LONG = ("grpo:words", "rollouts.collections=40", "evaluation.problems=128", "evaluation.samples=4")


def postgrad(*args: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "postgrad", *args], env=ENV | env, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def done(process: subprocess.Popen) -> str:
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


def until(there: Callable[[], bool], process: subprocess.Popen | None = None, seconds: float = 120) -> bool:
    """Whether something came to be, before a process ended or the time was over."""
    ends = time.monotonic() + seconds
    while not (came := there()) and time.monotonic() < ends and (process is None or process.poll() is None):
        time.sleep(0.02)
    return came


class Samplers:
    """`postgrad serve` over one folder of weights, on ports of their own; each can be killed and started."""

    def __init__(self, weights: Path, count: int):
        self.weights, self.ports = weights, [free_port() for _ in range(count)]
        self.running: dict[int, subprocess.Popen] = {}

    @property
    def addresses(self) -> str:
        return ",".join(f"http://127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int) -> None:
        assert until((self.weights / "newest.json").exists), "the training left no weights"
        self.running[number] = subprocess.Popen(
            [sys.executable, "-m", "postgrad", "serve", str(self.weights), "--port", str(self.ports[number])],
            env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@contextmanager
def samplers(weights: Path, count: int) -> Iterator[Samplers]:
    """They start as soon as a training has left its first weights."""
    made = Samplers(weights, count)
    thread = threading.Thread(target=lambda: [made.start(i) for i in range(count)], daemon=True)
    thread.start()
    try:
        yield made
    finally:
        thread.join()
        made.end()


def steps_made(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def words(run: Path, addresses: str, *more: str, what: tuple[str, ...] = SMALL) -> list[str]:
    return ["train", *what, f"sampler={addresses}", f"weights={run}-weights", *more, "--run", str(run)]


def endpoint(folder: Path) -> list[dict]:
    """In process against two samplers, in step and one ahead."""
    out = []
    for ahead in (0, 1):
        here, there = folder / f"here-{ahead}", folder / f"there-{ahead}"
        done(postgrad("train", *SMALL, f"async_depth={ahead}", "--run", str(here)))
        with samplers(Path(f"{there}-weights"), 2) as two:
            done(postgrad(*words(there, two.addresses, f"async_depth={ahead}")))
        differ = kills.differences(kills.facts(here), there)
        out.append(bar(f"async_depth={ahead} over two samplers against the same run in one process: grpo",
                       "metrics, samples, evaluations, weights and state equal bit for bit after 6 steps",
                       "equal" if not differ else str(differ), not differ,
                       "python proofs/scale.py FOLDER endpoint"))
    return out


# what becomes of a sampler's answer
FAULTS: dict[str, Callable[[dict], object]] = {
    "lies about its version": lambda said: said | {"weights": "9-0123456789ab"},
    "returns NaN": lambda said: changed(said, lambda row: {"logp": [float("nan")] * len(row["logp"])}),
    "returns half a reply": lambda said: changed(said, lambda row: {
        "token_ids": row["token_ids"][:3], "finish_reason": "length", "logp": row["logp"][:3]}),
    "has other weights": lambda said: changed(said, lambda row: {"logp": [x - 0.01 for x in row["logp"]]}),
    "hangs": lambda said: time.sleep(90),
}


def changed(said: dict, how: Callable[[dict], dict]) -> dict:
    """Every row of an answer, with what is changed of it."""
    return said | {"choices": [row | how(row) for row in said["choices"]]}


def between(port: int, alter: Callable[[dict], object], after: int) -> Callable:
    """Passes questions on to a sampler, and after so many rows changes its answers."""
    rows = 0

    def answer(path: str, body: dict | None) -> object:
        nonlocal rows
        question = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                          json.dumps(body).encode() if body else None,
                                          {"Content-Type": "application/json"})
        with urllib.request.urlopen(question, timeout=60) as reply:
            said = json.load(reply)
        rows += len(said.get("choices", ()))
        return alter(said) if body is not None and rows > after else said

    return answer


def faulty(folder: Path) -> list[dict]:
    """Samplers that are sound for a step and wrong in the second: named, and that step not trained on."""
    out = []
    for name, alter in FAULTS.items():
        run = folder / name.replace(" ", "-")
        for old in (run, Path(f"{run}-weights")):
            shutil.rmtree(old, ignore_errors=True)
        with samplers(Path(f"{run}-weights"), 1) as one, saying(between(one.ports[0], alter, 16)) as address:
            began = time.monotonic()
            process = postgrad(*words(run, address), POSTGRAD_TIMEOUT="60")
            _, said = process.communicate()
        made = steps_made(run)
        sentence = next((line for line in reversed(said.splitlines()) if address in line), "")
        out.append(bar(f"a sampler that {name} from its 17th row on", "named with its address; one step made",
                       f"{sentence.replace(address, 'http://HOST:PORT')} ({made} step, "
                       f"{time.monotonic() - began:.0f} s in all)",
                       bool(sentence) and made == 1 and process.returncode != 0,
                       "python proofs/scale.py FOLDER faulty"))
    return out


def strike(run: Path, ahead: int, victim: str, after: int, delay: float) -> dict:
    """A training with two samplers, of which one process is killed and started again: what it then is."""
    with samplers(Path(f"{run}-weights"), 2) as two, ExitStack() as ends:
        trainer = postgrad(*words(run, two.addresses, f"async_depth={ahead}"))
        ends.callback(trainer.kill)

        until(lambda: steps_made(run) >= after, trainer)
        time.sleep(delay)
        if trainer.poll() is not None:
            return {}
        at = steps_made(run)
        if victim == "trainer":
            trainer.send_signal(signal.SIGKILL)
            trainer.communicate()
            trainer = postgrad("resume", str(run))
            ends.callback(trainer.kill)
        else:
            two.running[1].kill()
            two.running[1].wait()
            two.start(1)
        done(trainer)
    return {"victim": victim, "ahead": ahead, "step": at}


def struck(folder: Path) -> list[dict]:
    for ahead in (0, 1):
        if not (folder / f"alone-{ahead}").exists():
            done(postgrad("train", *SMALL, f"async_depth={ahead}", "--run", str(folder / f"alone-{ahead}")))
    expected = {ahead: kills.facts(folder / f"alone-{ahead}") for ahead in (0, 1)}
    kept = folder / "kills.json"
    rows = json.loads(kept.read_text()) if kept.exists() else []
    draw = random.Random(f"{SEED}/{len(rows)}")
    while len(rows) < KILLS:
        run, ahead = folder / f"killed-{len(rows)}", len(rows) // 2 % 2
        for old in (run, Path(f"{run}-weights")):
            shutil.rmtree(old, ignore_errors=True)
        victim = ("trainer", "sampler")[len(rows) % 2]
        row = strike(run, ahead, victim, draw.randint(1, 4), draw.uniform(0, 1))
        if row:
            rows.append(row | {"differences": kills.differences(expected[ahead], run)})
            print(len(rows), rows[-1], file=sys.stderr, flush=True)
            kept.write_text(json.dumps(rows, indent=1))
    same = sum(not row["differences"] for row in rows)
    return [bar(f"{len(rows)} kills of trainer or sampler, async_depth=0 and async_depth=1, "
                "the dead one started again",
                "the same bits as a run in one process left alone: no group lost, none trained on twice",
                f"{same} of {len(rows)} equal", same == len(rows) and len(rows) >= 20,
                "python proofs/scale.py FOLDER struck")]


def run_ahead(folder: Path, depth: int, seed: int) -> None:
    run = folder / f"ahead-{depth}-{seed}"
    state = run / "status.json"
    if not state.exists() or json.loads(state.read_text())["state"] != "done":
        for old in (run, Path(f"{run}-weights")):
            shutil.rmtree(old, ignore_errors=True)
        with samplers(Path(f"{run}-weights"), 1) as one:
            done(postgrad(*words(run, one.addresses, f"async_depth={depth}", f"seed={seed}", what=LONG)))


def pinned(number: int, cores: list[int]) -> None:
    """This thread, and the processes that it starts, on two cores of their own."""
    os.sched_setaffinity(0, cores[2 * number:2 * number + 2])


def ahead(folder: Path) -> list[dict]:
    """Throughput and pass@1 of K = 0, 1, 2, 4 over one sampler, three seeds each."""
    out, base, depths, seeds = [], 0.0, (0, 1, 2, 4), range(3)
    turns, cores = itertools.count(), sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(AT_ONCE, initializer=lambda: pinned(next(turns), cores)) as threads:
        list(threads.map(lambda one: run_ahead(folder, *one), [(d, s) for s in seeds for d in depths]))
    for depth in depths:
        speed, passed = [], []
        for seed in seeds:
            run = folder / f"ahead-{depth}-{seed}"
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][2:]
            speed.append(sum(row["tokens"] for row in rows) / sum(row["time/step"] for row in rows))
            passed.append([json.loads(line) for line in (run / "evals.jsonl").read_text().splitlines()][-1])
        mean = statistics.mean(speed)
        base = base or mean
        final = [row["pass@1"] for row in passed]
        half = 4.30 * statistics.stdev(final) / 3**0.5  # Student's t, two degrees of freedom, 95 %
        out.append(bar(f"async_depth={depth}, one sampler, 2 cores, 40 collections of GRPO on words, 3 seeds",
                       "tokens/s and final pass@1, with intervals",
                       f"{mean:.0f} tokens/s ({mean / base:.2f}x), pass@1 {statistics.mean(final):.3f} "
                       f"+- {half:.3f}", True, "python proofs/scale.py FOLDER ahead"))
    return out


PARTS = {"endpoint": endpoint, "faulty": faulty, "struck": struck, "ahead": ahead}
