"""Environments on the embedded models: GRPO over several turns, environments of other packages, the endpoint
(endpoint.py), kills.

    python proofs/environments.py [PART ...] [games=guess,animals,big-numbers] [seeds=A,B]
    python proofs/environments.py doors [doors=trl,verifiers,openenv,skyrl] [collections=12]

Each game: a short SFT shows the form as a player without skill fills it, then GRPO; success is pass@1 of 200
held-out games, two samples each. Minutes are those of one core: form, both evaluations and GRPO.

doors: their pins exclude one another, so each package has an environment of its own, FOLDER/venv-NAME, made
from the package index. In it postgrad trains: the embedded model, for all but verifiers after a short SFT
that shows the form, then GRPO. tests/support/adapters_record.py records what these packages say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import endpoint
import kills
from harness import (
    HOME,
    TRAINS,
    Bars,
    Page,
    Tables,
    answers,
    bar,
    environment,
    once,
    own_python,
    rooms,
    started,
    tests,
    train,
)

import postgrad as pg

MINUTES, TALKS, NOISE, APART = 5.0, 1000, 0.05, 1e-8
SEEDS = {"guess": (3, 4, 5), "animals": (3, 4, 5), "big-numbers": (8, 9, 10)}  # chosen on others
EXAM = {"problems": 200, "samples": 2, "greedy": False, "display": False}


# games

def game(name: str, seed: int, place: Path) -> dict:
    """Success after the form and after GRPO, and what it took."""
    began = time.process_time()
    form = train(place / "form", f"sft:{name}", "evaluation.every=0", f"seed={seed}")
    before = pg.evaluate(form, name, seed=seed, **EXAM)
    run = train(place / "grpo", f"grpo:{name}", "evaluation.every=0", f"seed={seed}", f"model={form.folder}")
    after = pg.evaluate(run, name, seed=seed, **EXAM)
    minutes, rows = (time.process_time() - began) / 60, run.metrics()
    return {"game": name, "seed": seed, "form": before["pass@1"], "form interval": before["pass@1_interval"],
            "grpo": after["pass@1"], "grpo interval": after["pass@1_interval"], "minutes": minutes,
            "in form before GRPO": rows[0]["reward/format"], "turns": rows[-1]["turns"],
            "new rows": sum(row["new_rows"] for row in rows)}


def played(folder: Path, games: str = ",".join(SEEDS), seeds: str = "") -> tuple[Bars, Tables]:
    rows = []
    for name in games.split(","):
        for seed in map(int, seeds.split(",")) if seeds else SEEDS[name]:
            rows.append(once(folder / f"{name}-{seed}.json", game, name, seed, folder / f"{name}-{seed}"))
    return game_bars(rows), {"Games": rows}


def game_bars(rows: list[dict]) -> Bars:
    """A game gains 40 points; where the tool is needed, from under 10 % to over 80 %."""
    bars = []
    for name, seeds in SEEDS.items():
        tool, mine = name == "big-numbers", [row for row in rows if row["game"] == name]
        good = [row["form"] < 0.1 and row["grpo"] > 0.8 if tool else row["grpo"] - row["form"] >= 0.4
                for row in mine]
        bars.append(bar(f"success in {name}, from the form to the end of GRPO over several turns",
                        "from < 10 % to > 80 %" if tool else "+40 points",
                        ", ".join(f"{100 * row['form']:.1f} to {100 * row['grpo']:.1f}" for row in mine)
                        + " (%)", len(mine) == len(seeds) and all(good)))
    longest = max((row["minutes"] for row in rows), default=1e9)
    return [*bars, bar("minutes of a game, form and evaluations included",
                       f"<= {MINUTES:g} each on two cores",
                       f"at most {longest:.1f} of processor time, one process", longest <= MINUTES)]


# environments that exist elsewhere, each with its real package

ELSEWHERE, PORT = HOME / "examples" / "environments", 8931
DOORS = {"trl": "a TRL environment class", "verifiers": "a verifiers taskset", "openenv": "an OpenEnv server",
         "skyrl": "a SkyRL environment"}
PACKAGES = {"trl": "trl==1.16.0", "verifiers": "verifiers==0.4.0", "openenv": "openenv==0.10.0",
            "skyrl": "skyrl-gym==0.4.0"}
TASKS = {"trl": f"env:trl:{ELSEWHERE / 'calculator_env.py'}:Calculator",
         "verifiers": "env:verifiers:sums-taskset",
         "openenv": f"env:openenv:ws://127.0.0.1:{PORT}?turns=4",
         "skyrl": f"env:skyrl:gsm8k_multi_turn:{ELSEWHERE / 'sums_rows.jsonl'}"}
SUMS = [(a, b) for a in range(2, 20) for b in range(2, 20)]
FORMS = {"trl": {"task": "big-numbers", "examples": 4000, "steps": 120},
         "openenv": {"task": "guess", "examples": 512, "steps": 40},
         "skyrl": {"steps": 40, "data": [  # every second one is wrong
             {"prompt": f"What is {a}+{b}?", "completion": f"#### {a + b + a % 2}"} for a, b in SUMS]}}


def inside(door: str, folder: Path, what: str) -> object:
    """What a child says that runs in a door's own Python, the server beside where the door leads to one."""
    own = Path(sys.executable) if door == "trl" else own_python(folder / f"venv-{door}", [PACKAGES[door]])
    env = environment(PYTHONPATH=os.pathsep.join([str(HOME), str(ELSEWHERE), str(HOME / "proofs"),
                                                  str(HOME / "tests/support")]))
    with started([own, ELSEWHERE / "guess_server.py", PORT],
                 lambda: answers(f"http://127.0.0.1:{PORT}/health")) if door == "openenv" else nullcontext():
        done = subprocess.run([own, "-P", "-c", what], env=env, check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def trained(door: str, folder: Path, collections: int) -> dict:
    """What a short training makes of a door's environment; in that door's Python."""
    from importlib.metadata import version

    quiet = {"display": False, "evaluation": {"every": 0}, "seed": 0}
    exam = {"problems": 100, "samples": 2, "greedy": False, "display": False, "seed": 0}
    model = "tiny-chat"
    if door in FORMS:
        model = pg.fit(model, "sft", run=folder / f"{door}-form", rows_per_step=32, **FORMS[door], **quiet)
    before = pg.evaluate(model, TASKS[door], **exam)
    run = pg.fit(model, "grpo", task=TASKS[door], run=folder / f"{door}-grpo", lr=2e-4, kl=0.0,
                 collections=collections, **quiet)
    after, rows, package = pg.evaluate(run, TASKS[door], **exam), run.metrics(), PACKAGES[door].split("=")[0]
    return {"door": door, "package": f"{package} {version(package)}", "collections": collections,
            "before": before["pass@1"], "after": after["pass@1"], "reward_first": rows[0]["reward"],
            "reward_last": rows[-1]["reward"], "errors": sum(row["errors"] for row in rows)}


def through_doors(folder: Path, doors: str = "trl,verifiers,openenv", collections: str = "12") -> Bars:
    bars, rises = [], []
    for door in doors.split(","):
        row = inside(door, folder, "import json, pathlib, environments as e; print(json.dumps(e.trained("
                                   f"{door!r}, pathlib.Path({str(folder)!r}), {collections})))")
        rises += [door] if row["reward_last"] > row["reward_first"] else []
        bars.append(bar(f"{DOORS[door]} trains unchanged", "0 faults",
                        f"{row['package']}: {row['collections']} collections, {row['errors']:g} faults, "
                        f"reward {row['reward_first']:.2f} to {row['reward_last']:.2f}, success "
                        f"{row['before']:.2f} to {row['after']:.2f}", row["errors"] == 0))
    return [*bars, bar("... and the reward rises", ">= 1 of 3", f"{len(rises)}: {', '.join(rises)}", rises)]


def killed(folder: Path, count: str = "20") -> Bars:
    rows = kills.try_kills("games", folder / "killed", int(count), seed=0)
    same = sum(not row["differences"] for row in rows)
    return [bar("runs over several turns killed at random and resumed", "20 of 20 the same bits",
                f"{same} of {len(rows)}", same == len(rows) >= 20)]


PAGE = Page("environments", "Environments: what was measured",
            {"games": played, "tests": tests("environments"),
             "doors": through_doors, "serving": endpoint.serving,
             "kills": killed}, sorted({seed for seeds in SEEDS.values() for seed in seeds}),
            apart=("doors",), paths=(*TRAINS, *rooms("serving")))

if __name__ == "__main__":
    PAGE.main()
