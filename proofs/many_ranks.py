"""Many ranks: 64 on torch's fake backend, 8 that talk gloo, and two that sample ahead over two samplers.
Parts of proofs/ecosystem.py."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import fake_ranks
import kills
import scale
from harness import HOME, Bars, Tables, bar
from ranks_launch import launch as launch_ranks

launch = partial(launch_ranks, timeout=None)
EIGHT = scale.TRAININGS | {name: (f"{name}:words", *scale.SAMPLED) for name in ("online_dpo", "best_of_n")}
WHOLE_STEP = ("rollouts.prompts_per_step=8",)  # a prompt for each rank
KILLED, KILLS = ("grpo", "dpo", "sft"), 20


def ranks(folder: Path) -> tuple[Bars, Tables]:
    """Every recipe as ranks 0, 31 and 63 of 64; some also sharded."""
    fake_ranks.begin(folder)
    plain, sharded = list(fake_ranks.RECIPES), list(fake_ranks.SHARDED)
    jobs = [*(fake_ranks.job(name, folder) for name in plain),
            *(fake_ranks.job(name, folder, "shard=true") for name in sharded)]
    began = time.monotonic()
    found = fake_ranks.reports(fake_ranks.WORLD, jobs, folder, fake_ranks.RANKS)
    seconds, first = time.monotonic() - began, found[0]
    names = [*plain, *(f"{name} shard=true" for name in sharded)]
    good = [name for i, name in enumerate(names) if all(rows[i]["steps"] == 2 and (
        name in fake_ranks.BRANCH or rows[i]["collectives"] == first[i]["collectives"])
        for rows in found.values())]
    shares = [rows[names.index(f"{name} shard=true")]["held"] * fake_ranks.WORLD
              / rows[names.index(name)]["held"] for rows in found.values() for name in sharded]
    return [bar("64 ranks on torch's fake backend, every recipe, three sharded too: ranks 0, 31 and 63",
                "all make 2 steps with the same collectives in the same order, of the same shapes; "
                f"{' and '.join(fake_ranks.BRANCH)} branch on gathered rewards: 2 steps (gloo has them)",
                f"{len(good)} of {len(names)}", len(good) == len(names)),
            bar("the same, shard=true: weights, gradients and moments of a rank",
                "1/64 of the whole within 2 %: the head of a critic is one row, on rank 0",
                f"{min(shares):.3g}/64 to {max(shares):.3g}/64", 0.98 <= min(shares) and max(shares) <= 1.02),
            bar("the same: seconds in all", "<= 300 s", f"{seconds:.0f} s", seconds <= 300)], {
        "64 ranks on the fake backend": [
            {"recipe": name, "collectives of two steps": len(first[i]["collectives"]),
             "kB a rank holds": round(first[i]["held"] / 1e3, 1),
             "seconds of a rank": max(rows[i]["seconds"] for rows in found.values())}
            for i, name in enumerate(names)]}


def eight(name: str, run: Path) -> dict:
    spec, *settings = EIGHT[name]
    return {"train": spec, "run": str(run), "changes": [
        *settings, *scale.CUT, *(WHOLE_STEP if scale.SAMPLED[0] in settings else ()), "virtual_ranks=8"]}


def alone(name: str, folder: Path) -> dict:
    """The facts of a recipe in one process with eight lanes."""
    run = folder / f"{name}-1"
    if not run.exists():
        launch(1, [eight(name, run)], folder)
    return kills.facts(run)


def gloo(folder: Path) -> Bars:
    """Eight ranks on this machine against one process. Recipes whose batches depend on gathered rollouts, on
    which the fake backend tells nothing of the numbers, are all here."""
    launch(8, [eight(name, folder / f"{name}-8") for name in EIGHT], folder)
    differ = {name: found for name in EIGHT
              if (found := kills.differences(alone(name, folder), folder / f"{name}-8"))}
    return [bar(f"8 gloo ranks against one process with 8 virtual ranks: {', '.join(EIGHT)}",
                "metrics, samples, evaluations, weights and optimizer equal to the bit",
                f"{len(EIGHT) - len(differ)} of {len(EIGHT)} equal{f': {differ}' if differ else ''}",
                not differ)]


def gloo_kills(folder: Path) -> tuple[Bars, Tables]:
    """One of eight ranks is killed at a random moment; the run goes on with one, two or eight."""
    expected = {name: alone(name, folder) for name in KILLED}

    def strike(run: Path, number: int, draw: random.Random) -> dict:
        name, rank, world = KILLED[number % 3], draw.randrange(8), draw.choice((1, 2, 8))
        after, delay = draw.randint(1, 3), draw.uniform(0, 1.5)
        (path := folder / "job.json").write_text(json.dumps([eight(name, run)]))
        parent = scale.child(HOME / "tests/support/ranks_launch.py", 8, path)
        while scale.steps_made(run) < after and parent.poll() is None:
            time.sleep(0.02)
        time.sleep(delay)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent.pid)], capture_output=True,
                                text=True)
        ranks = sorted(map(int, listed.stdout.split()))
        if parent.poll() is not None or len(ranks) < 8:
            parent.communicate()
            return {}
        os.kill(ranks[rank], signal.SIGKILL)
        began = time.perf_counter()
        said = parent.communicate()[1]
        seconds, match, step = time.perf_counter() - began, scale.NAMED.search(said), scale.steps_made(run)
        if match is None and (run / "status.json").exists() and "done" in (run / "status.json").read_text():
            return {}  # it came too late
        launch(world, [{"run": str(run)}], folder)
        return {"recipe": name, "rank": rank, "named": int(match[1]) if match else None, "step": step,
                "seconds to the end": round(seconds, 1), "resumed with": world,
                "differences": kills.differences(expected[name], run)}

    rows = scale.repeated(folder, KILLS, strike)
    named = sum(row["named"] == row["rank"] for row in rows)
    same = sum(not row["differences"] for row in rows)
    return [bar(f"{KILLS} kills (-9) of one of 8 gloo ranks at random moments: grpo, dpo, sft",
                f"the dead rank named, {KILLS} of {KILLS}", f"{named} of {KILLS}", named == KILLS),
            bar("each of these runs resumed, with 1, 2 or 8 ranks",
                f"{KILLS} of {KILLS} with the bits of one left alone", f"{same} of {KILLS} equal",
                same == KILLS)], {
        "Kills of one of 8 ranks": [{key: value for key, value in row.items() if key != "differences"}
                                    for row in rows]}


def ahead(folder: Path) -> Bars:
    """Two ranks that sample ahead: in a thread of each, and over two samplers."""
    how, torchrun = ("async_depth=1", "virtual_ranks=2"), ("-m", "--", "postgrad")
    train = "train", *scale.SMALL, *how, "--run"
    scale.finish(scale.postgrad(*train, folder / "alone"))
    scale.finish(scale.torchrun(*torchrun, *train, folder / "threads"))
    run = scale.empty_run(folder / "samplers")
    with scale.samplers(Path(f"{run}-weights"), 2) as two:
        scale.finish(scale.torchrun(*torchrun, *scale.words(run, two.addresses, *how)))
    expected = kills.facts(folder / "alone")
    found = {name: kills.differences(expected, folder / name) for name in ("threads", "samplers")}
    return [bar("async_depth=1 with 2 ranks, in a thread of each and over 2 samplers, against one process",
                "2 of 2 equal to the bit",
                f"{sum(not differ for differ in found.values())} of 2 equal"
                f"{f': {found}' if any(found.values()) else ''}", not any(found.values()))]


PARTS = {"ranks": ranks, "gloo": gloo, "kills": gloo_kills, "ahead": ahead}
