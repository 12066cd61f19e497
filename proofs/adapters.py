"""Environments that exist elsewhere, each with its real package: a short training on each.

    python proofs/adapters.py [doors=trl,verifiers,openenv,skyrl] [collections=12]
                              [folder=runs/proof-adapters] [out=runs/proof-adapters/figures.json]
                              [record=tests/assets/adapters]

Their pins exclude one another, so each package has an environment of its own, FOLDER/venv-NAME, made here
from the package index; what this Python has (torch and the others) is seen behind it. In it postgrad trains:
the embedded model, for all but verifiers after a short SFT that shows the form, then GRPO. The
reward and the success on held-out episodes are kept, before and after. The server of OpenEnv runs beside.
record: no training; what the package says to a few scripted replies is written to a file of that folder, on
which tests/data/adapters_recorded_test.py runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ELSEWHERE = HERE / "proofs" / "elsewhere"
PORT = 8931
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


def python_of(door: str, folder: Path) -> Path:
    """The Python of a door's own environment, made where it is not there; TRL is in this one."""
    if door == "trl":
        return Path(sys.executable)
    place = folder / f"venv-{door}"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGES[door]], check=True)
        seen = next((place / "lib").glob("python3*/site-packages")) / "zz_behind.pth"
        seen.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


@contextmanager
def served(door: str, python: Path):
    """With the server beside, where the door leads to one."""
    if door != "openenv":
        yield
        return
    server = subprocess.Popen([python, ELSEWHERE / "guess_server.py", str(PORT)])
    try:
        for _ in range(120):
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    f"http://127.0.0.1:{PORT}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield
    finally:
        server.terminate()
        server.wait()


def trained(door: str, folder: Path, collections: int) -> dict:
    """What a short training makes of a door's environment; in that door's Python."""
    from importlib.metadata import version

    import postgrad as pg
    quiet = {"watch": None, "evaluation": {"every": 0}, "seed": 0}
    exam = {"problems": 100, "samples": 2, "greedy": False, "watch": None, "seed": 0}
    model = "tiny-chat"
    if door in FORMS:
        model = pg.fit(model, "sft", run=folder / f"{door}-form", rows_per_step=32, **FORMS[door], **quiet)
    before, began = pg.evaluate(model, TASKS[door], **exam), time.process_time()
    run = pg.fit(model, "grpo", task=TASKS[door], run=folder / f"{door}-grpo", lr=2e-4, kl=0.0,
                 collections=collections, **quiet)
    took, after, rows = time.process_time() - began, pg.evaluate(run, TASKS[door], **exam), run.metrics()
    package = PACKAGES[door].split("=")[0]
    return {"door": door, "package": f"{package} {version(package)}", "collections": collections,
            "task": TASKS[door].replace(f"{HERE}/", ""), "seconds": took,
            "before": before["pass@1"], "after": after["pass@1"],
            "reward_first": rows[0]["reward"], "reward_last": rows[-1]["reward"],
            "errors": sum(row["errors"] for row in rows), "turns": rows[-1].get("turns")}


def recorded(door: str) -> dict:
    """A slice of what is said between postgrad and the package."""
    from postgrad.data.tasks import load_task
    if door == "verifiers":
        task = load_task("env:verifiers:sums-taskset(most=5)")
        prompts = sorted(task.verify.prompts, key=lambda prompt: prompt.id)
        return {"tasks": [{"data": task.verify.tasks[p.id].data.model_dump(mode="json"),
                           "replies": {text: paid(task.verify(p, text)) for text in (
                               f"<answer>{p.answer}</answer>",
                               f"<think>so</think><answer>{p.answer}</answer>", "?")}} for p in prompts]}
    return (recorded_server if door == "openenv" else recorded_steps)(load_task(TASKS[door]))


def recorded_steps(task) -> dict:
    """Episodes of scripted replies with skyrl-gym: each step of an environment, and the conversation."""
    import random

    from postgrad.data.tasks.games import acted
    make, talks = task.play.make, []

    def listening(name, **given):
        environment = make(name, **given)
        step = environment.step
        environment.step = lambda text: (said := step(text), talks[-1]["steps"].append([text, dict(said)]))[0]
        talks[-1] |= {"name": name, "extras": given["extras"], "max_turns": environment.max_turns}
        return environment

    task.play.make = listening
    for prompt in task.prompts("train", 2, 0):
        for replies in (["?", "#### 1", f"#### {prompt.answer}"], [f"#### {prompt.answer}"], ["1"] * 3):
            talks.append({"prompt": [dict(m) for m in prompt.messages], "replies": replies, "steps": []})
            script = iter(replies)
            messages, said = acted(prompt, task.play, lambda *_, script=script: next(script),
                                   random.Random(0))
            talks[-1] |= {"conversation": messages, "score": said.score, "per_turn": said.per_turn}
    return {"episodes": talks}


def paid(said) -> dict:
    return {"score": said.score, "rewards": said.parts, "weights": said.weights}


def recorded_server(task) -> dict:
    """Episodes of scripted replies with a server: every message of both sides, and the verdict."""
    import random

    from postgrad.data.tasks.adapters.openenv import schema_of
    from postgrad.data.tasks.games import acted
    connect, talks = task.play.connect, []

    def listening(url, **settings):
        connection = connect(url, **settings)
        send, recv = connection.send, connection.recv
        connection.send = lambda text: (talks[-1]["messages"].append([json.loads(text)]), send(text))
        connection.recv = lambda timeout: (text := recv(timeout),
                                           talks[-1]["messages"][-1].append(json.loads(text)))[0]
        return connection

    task.play.connect = listening
    prompt = task.prompts("train", 1, 0)[0]
    for seed, replies in enumerate((["5", "2", "8", "1"], ["x"], ["7", "3", "4", "9"])):
        talks.append({"seed": seed, "replies": replies, "messages": []})
        script = iter(replies)
        messages, said = acted(prompt, task.play, lambda *_, script=script: next(script), random.Random(seed))
        talks[-1] |= {"conversation": messages, "score": said.score, "per_turn": said.per_turn}
    return {"action": schema_of(f"http://127.0.0.1:{PORT}/schema", True), "episodes": talks}


def main(words: list[str]) -> None:
    given = dict(word.split("=", 1) for word in words)
    folder = Path(given.get("folder", "runs/proof-adapters")).resolve()
    out = Path(given.get("out", folder / "figures.json"))
    collections = int(given.get("collections", 12))
    if "inside" in given:
        door = given["inside"]
        print(json.dumps(recorded(door) if "record" in given else trained(door, folder, collections)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for door in given.get("doors", "trl,verifiers,openenv,skyrl").split(","):
        python = python_of(door, folder)
        paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(ELSEWHERE)])}
        with served(door, python):
            # -P: proofs/verifiers.py is not the package of that name
            done = subprocess.run([python, "-P", __file__, *words, f"inside={door}", f"folder={folder}"],
                                  env=paths, check=True, text=True, stdout=subprocess.PIPE)
        if "record" in given:
            made = json.dumps(json.loads(done.stdout.splitlines()[-1]), indent=1)
            (Path(given["record"]) / f"{door}.json").write_text(made + "\n")
            continue
        figures.append(json.loads(done.stdout.splitlines()[-1]))
        print(figures[-1], flush=True)
        out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
