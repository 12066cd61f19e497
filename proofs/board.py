"""The board: minutes to score on one GPU, default settings only: docs/board.json and docs/board.md.

    python proofs/board.py model=models/smollm2 task=gsm8k:data/gsm8k device=cuda
    python proofs/board.py model=FOLDER task=gsm8k:data/gsm8k recipe=grpo device=cuda [at_once=3]
    python proofs/board.py render                     docs/board.md from docs/board.json

`postgrad train RECIPE model=... task=... device=... seed=N`, seeds 0, 1 and 2, and nothing else is set. The
clock runs over the whole command, its own evaluations included. Then the start and the end (the newest
checkpoint, of a pipeline that of its last stage) are measured by `postgrad eval` on `problems` test problems,
8 samples each. recipe: expert-iteration (a pipeline of four stages), or a row (one run). at_once=3: the seeds
side by side on one GPU, and the minutes those of all three. A line of the same model, task, recipe and
at_once is replaced. folder=...: the runs; one that is done is not trained again, and has the minutes it had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import harness

from postgrad.recipes.registry import PIPELINES

BOARD = harness.HOME / "docs" / "board.json"
ALLOWED = ("model", "task", "recipe", "device", "at_once", "problems", "folder")
PEERS = [  # published by themselves, typed by hand
    {"library": "verl", "model": "Qwen2.5-0.5B-Instruct", "what": "GSM8K, PPO", "score": "49.6 -> 56.7 %",
     "minutes": "not published",
     "source": "docs/algo/baseline.md of verl; the first figure is Qwen's, 4-shot"},
    {"library": "slime", "model": "Qwen2.5-0.5B-Instruct", "what": "GSM8K, GRPO, 100 x 160 samples, greedy",
     "score": "43.6 -> 50.2 %", "minutes": "71 on a DGX Spark", "source": "pull request 1835 of slime"}]


def train(folder: Path, recipe: str, words: Sequence[str], seed: int, env: Mapping[str, str]) -> dict:
    """When the command began and ended, where and at which commit; it stands in folder/clock-SEED.json."""
    clock, run = folder / f"clock-{seed}.json", folder / f"seed-{seed}"
    if not clock.exists():
        began = time.time()
        command = [sys.executable, "-m", "postgrad", "train", recipe, *words, f"seed={seed}", "--run",
                   str(run)]
        with (folder / f"seed-{seed}.log").open("wb") as log:
            done = subprocess.run(command, cwd=harness.HOME, stdout=log, stderr=log,
                                  env=harness.environment() | env)
        if done.returncode:
            sys.exit(f"seed {seed} ended with {done.returncode}: see {folder}/seed-{seed}.log.")
        clock.write_text(json.dumps({"began": began, "ended": time.time(), "commit": harness.commit(),
                                     "machine": harness.machine()}))
    return json.loads(clock.read_text())


def trained_model(run: Path) -> Path:
    """The run itself, or the last one of a pipeline."""
    plan = run / "pipeline.json"
    steps = json.loads(plan.read_text())["steps"] if plan.exists() else []
    return run / [step["name"] for step in steps if step["kind"] == "run"][-1] if steps else run


def measure_line(folder: Path, *, model: str, task: str, recipe: str = "expert-iteration",
                 device: str = "cuda", at_once: int = 1, problems: int = 1319,
                 seeds: Sequence[int] = (0, 1, 2)) -> dict:
    """A line of the board."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"model={model}", f"task={task}", f"device={device}"]

    def score(name: str, what: object, seed: int) -> dict:
        found = harness.once(folder / f"{name}.json", harness.postgrad, "eval", what, "--task", task,
                             "--problems", problems, "--samples", 8, "--seed", seed, "--device", device)
        return {key: found[key] for key in ("pass@1", "pass@1_interval", "greedy")}

    with harness.shared_gpu() as env, ThreadPoolExecutor(at_once) as pool:
        clocks = list(pool.map(lambda seed: train(folder, recipe, words, seed, env), seeds))
    minutes = ([(x["ended"] - x["began"]) / 60 for x in clocks] if at_once == 1 else
               [(max(x["ended"] for x in clocks) - min(x["began"] for x in clocks)) / 60])
    ends = {str(seed): score(f"end-{seed}", trained_model(folder / f"seed-{seed}"), seed) for seed in seeds}
    name = recipe.partition(":")[0]
    return {"model": model, "task": task, "recipe": recipe, "at_once": at_once,
            "kind": "a pipeline" if name in PIPELINES else "one run", "problems": problems,
            "command": " ".join(["postgrad train", recipe, *words, "seed=N"]), "minutes": minutes,
            "before": score("start", model, 0), "after": ends, "date": time.strftime("%Y-%m-%d"),
            "commit": clocks[-1]["commit"], "machine": clocks[-1]["machine"]}


def add_line(line: dict, board: Path = BOARD) -> Path:
    """Writes the line over that of the same work; a line from an uncommitted tree is refused."""
    if harness.UNCOMMITTED in line["commit"]:
        sys.exit("A line of the board is not made from a tree with uncommitted changes: commit them, and run "
                 "it again with another folder.")
    same = ("model", "task", "recipe", "at_once")
    lines = [old for old in json.loads(board.read_text()) if any(old[key] != line[key] for key in same)] \
        if board.exists() else []
    board.write_text(json.dumps([*lines, line], indent=1) + "\n")
    page = board.with_suffix(".md")
    page.write_text(rendered(board))
    return page


def as_row(line: dict) -> dict:
    """A line of the board as a row of its table: the best seed does not stand for the three."""
    after, minutes = list(line["after"].values()), line["minutes"]
    order = "side by side" if line["at_once"] > 1 else "one after another"
    state = harness.changed_since(line["commit"], harness.TRAINS)
    return {"model": line["model"], "task": f"{line['task']}, {line['problems']:,} problems",
            "recipe": f"{line['recipe']}: {line['kind']}, seeds {', '.join(line['after'])}, {order}",
            "minutes": f"{fmean(minutes):.1f}" + ("" if len(minutes) < 2 else f" ({min(minutes):.1f} to "
                                                                            f"{max(minutes):.1f})"),
            "pass@1 before": f"{line['before']['pass@1']:.1%}",
            "pass@1, mean of seeds": f"{fmean(x['pass@1'] for x in after):.1%} ("
                                     + ", ".join(f"{x['pass@1']:.1%}" for x in after) + ")",
            "greedy": f"{line['before']['greedy']:.1%} -> {fmean(x['greedy'] for x in after):.1%}",
            "on": line["machine"].get("gpu", line["machine"]["cpu"]), "commit": line["commit"],
            "code as then": ("not known (yes then)" if state is None else
                             "stale (yes then)" if state else "yes"),
            "command": f"`{line['command']}`"}


def rendered(board: Path = BOARD) -> str:
    """docs/board.md"""
    lines = json.loads(board.read_text()) if board.exists() else []
    return "\n".join([
        "# The board: minutes to score on one GPU", "",
        "Default settings only, three seeds, test problems; every line by its command, at its commit. A line "
        "says whether it is one run or a pipeline of several. Add yours: `python proofs/board.py "
        "model=FOLDER task=gsm8k:DATA recipe=grpo device=cuda` (`--help` has the rules). Made from "
        "`board.json` by `make docs`.",
        "", *(harness.grid([as_row(line) for line in lines]) if lines else ["No line is measured yet."]), "",
        "Before the board: SmolLM2-135M on GSM8K by `postgrad train expert-iteration`, a pipeline, three "
        "seeds side by side on one H200, 12.6 % pass@1 in 18.8 minutes; from a tree with uncommitted changes "
        "([results](results/reasoning.md)), so no line.", "",
        "## What others publish", "",
        "Their own figures, typed by hand, on other hardware and with their own settings; beside ours where "
        "the model is the same.", "", *harness.grid(PEERS), ""])


if __name__ == "__main__":
    words, settings = harness.arguments()
    if unknown := [*(set(words) - {"render"}), *(set(settings) - set(ALLOWED))]:
        sys.exit(f"{unknown[0]}: the board has default settings only; it takes {', '.join(ALLOWED)}.")
    if "render" in words:
        BOARD.with_suffix(".md").write_text(rendered())
    elif harness.UNCOMMITTED in harness.commit():
        sys.exit("A line of the board is not made from a tree with uncommitted changes: commit them first.")
    else:
        place = settings.pop("folder", harness.HOME / "runs" / f"board-{settings.get('recipe', 'default')}")
        counts = {key: int(settings.pop(key)) for key in ("at_once", "problems") if key in settings}
        line = {"model": "models/smollm2", "task": "gsm8k"} | settings
        print(add_line(measure_line(Path(place).resolve(), **line, **counts)))
