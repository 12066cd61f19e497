"""A working day of someone who comes from TRL.

    python proofs/everyday.py [PART ...]      parts: rewards, setup

setup makes two environments in a folder, place=/tmp/everyday, and deletes them: ten minutes.
"""

from __future__ import annotations

import io
import random
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness import HOME, Bars, Page, bar, copy_tree, once, rooms
from judge_server import INJECTIONS, JudgeServer

from postgrad.records import Prompt, Rollout
from postgrad.rewards.base import VerifierReward
from postgrad.rewards.function import own_verifier
from postgrad.rewards.remote_judge import RemoteJudge

BEFORE = "6e66ba3"
FAULTS = (429, 500, "slow", "nonsense", "echo")


def rollouts(texts: list[str]) -> list[Rollout]:
    return [Rollout(prompt=Prompt.ask("How are you?"), prompt_tokens=(), tokens=(), logp=(), text=text,
                    finished=True, seed=0) for text in texts]


def waits(prompt: Prompt, text: str) -> float:
    time.sleep(0.5)
    return float(text)


def computes(prompt: Prompt, text: str) -> float:
    return float(sum(n * n for n in range(100_000)) > 0)


def alarms(prompt: Prompt, text: str) -> float:
    time.sleep(0.01)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(5)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    return 1.0


def hangs(prompt: Prompt, text: str) -> float:
    threading.Event().wait()
    return 0.0


def timed(call: Callable) -> tuple[float, object]:
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def reward_of(function: Callable, seconds: float | None = None) -> VerifierReward:
    return VerifierReward(own_verifier(function, seconds=seconds))


def rewards(folder: Path) -> Bars:
    """Functions that wait, compute, use signals or hang; a judge behind an address with faults injected."""
    rows = rollouts([str(n) for n in range(128)])
    waited, said = timed(lambda: reward_of(waits).score(rows))
    ordered = [v.score for v in said] == list(map(float, range(128)))
    serial, batch = [], []
    for _ in range(3):  # in turns, as others use the machine too
        serial.append(timed(lambda: [computes(r.prompt, r.text) for r in rows])[0])
        batch.append(timed(lambda: reward_of(computes).score(rows))[0])
    signals = sum(v.score == 1.0 for v in reward_of(alarms).score(rows))
    hung, _ = timed(lambda: reward_of(hangs, seconds=2.0).score(rows))
    texts = [f"quality {n % 11} of {n}" for n in range(1000)]
    numbers = random.Random(0).sample(range(1000), 50)
    with JudgeServer({number: FAULTS[i % len(FAULTS)] for i, number in enumerate(numbers)}) as server:
        judge = RemoteJudge(server.address, model="judge", cache=str(folder / "cache"), timeout=1.0)
        took, graded = timed(lambda: judge.score(rollouts(texts)))
        lost = sum(v.error is not None for v in graded)
        wrong = sum(v.error is None and v.score != n % 11 / 10 for n, v in enumerate(graded))
        paid = sum(v.score > 0 for v in judge.score(rollouts(INJECTIONS)))
    retries = int(judge.totals["judge/retries"])
    return [
        bar("128 replies by a function that waits 0.5 s, in order", "<= 2 s", f"{waited:.2f} s",
            waited <= 2 and ordered),
        bar("128 replies by a function that computes, against a loop", "<= 1.2x",
            f"{min(batch) / min(serial):.2f}x ({min(serial):.2f} s)", min(batch) <= 1.2 * min(serial)),
        bar("a function that waits and uses signal", "128 of 128 judged", f"{signals} of 128",
            signals == 128),
        bar("a function that hangs on all of 128 replies, limit 2 s", "<= 2.5 s", f"{hung:.2f} s",
            hung <= 2.5),
        bar("a judge behind an address, 1,000 gradings, 50 faults (429, 500, slow, nonsense)",
            "0 lost, 0 wrong", f"{lost} lost, {wrong} wrong, {retries} retries, {took:.1f} s",
            not lost and not wrong and retries >= 50),
        bar(f"{len(INJECTIONS)} injections in replies", "0 paid", f"{paid} paid", not paid)]


def install(place: Path, target: str, commit: str = "") -> dict:
    """Packages, megabytes and minutes of `make TARGET` in a fresh copy of the tree, which is deleted.
    commit: the tree as it was there."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if commit:
        tar = subprocess.run(["git", "archive", commit], cwd=HOME, capture_output=True, check=True).stdout
        tarfile.open(fileobj=io.BytesIO(tar)).extractall(place, filter="data")
    else:
        copy_tree(place)
    began = time.monotonic()
    subprocess.run(["make", target], cwd=place, check=True, capture_output=True)
    minutes = (time.monotonic() - began) / 60
    made = place / ".venv"
    packages = len([*made.glob("lib/python3*/site-packages/*.dist-info")])
    size = int(subprocess.run(["du", "-sm", made], capture_output=True, text=True, check=True)
               .stdout.split()[0])
    shutil.rmtree(place)
    return {"packages": packages, "MB": size, "minutes": round(minutes, 1)}


def setup_bars(folder: Path, place: str = "/tmp/everyday") -> tuple[list[dict], dict]:
    after = once(folder / "after.json", install, Path(place), "setup")
    before = once(folder / "before.json", install, Path(place), ".venv/.ready", BEFORE)
    bars = [bar(f"what make demo installs: {name}", "<= half of before, CPU torch on both sides",
                f"{after[name]}, {before[name]} before", after[name] <= before[name] / 2)
            for name in ("packages", "MB")]
    bars.append(bar("minutes of set-up before the demo starts", "said",
                    f"{after['minutes']}, {before['minutes']} before; on a busy machine", True))
    return bars, {"Set-up": [{"commit": BEFORE} | before, {"commit": "now"} | after]}


PAGE = Page("everyday", "A working day of someone who comes from TRL",
            {"rewards": rewards, "setup": setup_bars},
            [0], paths=rooms("rewards"))

if __name__ == "__main__":
    PAGE.main()
