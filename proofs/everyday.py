"""A working day of someone who comes from TRL.

    python proofs/everyday.py [PART ...]      parts: tests, templates, ported, rewards, setup, demo

setup makes two environments in a folder, place=/tmp/everyday, and deletes them: ten minutes. demo runs it as
it was and as it is, and a short one beside processes that compute: ten minutes on an idle machine. templates
reads TRL's and those of llama-cpp-python's source distribution, unpacked in lcpp=/tmp/lcpp (pip download
--no-deps --no-binary :all: llama-cpp-python).
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from harness import HOME, Bars, Page, Tables, bar, copy_tree, environment, once, python, started, tests

# isort: split
# harness makes tests/support importable
import golden_templates
from golden_templates import short_hash
from judge_server import INJECTIONS, JudgeServer
from ported import GRADIENT, LOSS, NAMES, apart, make_place, ported_lines, run_port, run_trl

from postgrad.models.chat import template as postgrad_template
from postgrad.records import Prompt, Rollout
from postgrad.rewards.base import VerifierReward
from postgrad.rewards.function import own_verifier
from postgrad.rewards.remote_judge import RemoteJudge
from postgrad.training.batches.offline import encode_completion

BEFORE = "6e66ba3"
TURNS = 9
FAULTS = (429, 500, "slow", "nonsense", "echo")


def rollouts(texts: list[str]) -> list[Rollout]:
    return [Rollout(prompt=Prompt.ask("How are you?"), prompt_tokens=(), tokens=(), logp=(), text=text,
                    finished=True, seed=0) for text in texts]


def waits(prompt: Prompt, text: str) -> float:
    time.sleep(0.5)
    return float(text)


def computes(prompt: Prompt, text: str) -> float:
    return float(sum(n * n for n in range(100_000)) > 0)


SANDBOXED = """isolate = True
def verify(prompt, text):
    return float(sum(n * n for n in range(500_000)) > 0)
"""


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


def in_turns(first: Callable, second: Callable, turns: int = TURNS) -> tuple[list[float], list[float], float]:
    """Seconds of two calls in pairs, each pair in the other order than the last, so that what else the
    machine does falls on both; and the CPU time of the second over that of the first."""
    seconds: dict[Callable, list[float]] = {first: [], second: []}
    cpu = dict.fromkeys(seconds, 0.0)
    for turn in range(turns):
        for call in (first, second) if turn % 2 == 0 else (second, first):
            before = time.process_time()
            seconds[call].append(timed(call)[0])
            cpu[call] += time.process_time() - before
    return seconds[first], seconds[second], cpu[second] / cpu[first]


def function_in(path: Path, source: str) -> Callable:
    """`verify` of a file, which is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    space: dict = {"__name__": "sandboxed"}
    exec(compile(source, str(path), "exec"), space)
    return space["verify"]


def reward_of(function: Callable, seconds: float | None = None) -> VerifierReward:
    return VerifierReward(own_verifier(function, seconds=seconds))


def rewards(folder: Path) -> Bars:
    """Functions that wait, compute, use signals or hang; a judge behind an address with faults injected."""
    rows = rollouts([str(n) for n in range(128)])
    waited, said = timed(lambda: reward_of(waits).score(rows))
    ordered = [v.score for v in said] == list(map(float, range(128)))
    serial, batch, of_cpu = in_turns(lambda: [computes(r.prompt, r.text) for r in rows],
                                     lambda: reward_of(computes).score(rows))
    ratio = statistics.median(b / a for a, b in zip(serial, batch, strict=True))
    apart = function_in(folder / "sandboxed.py", SANDBOXED)
    alone, spread, _ = in_turns(lambda: [apart(r.prompt, r.text) for r in rows],
                                lambda: reward_of(apart).score(rows), 3)
    cores = len(os.sched_getaffinity(0))
    share = statistics.median(b / (a / cores) for a, b in zip(alone, spread, strict=True))
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
            f"{ratio:.2f}x, median of {TURNS} pairs ({min(serial):.2f} s; {of_cpu:.2f}x the CPU time)",
            ratio <= 1.2),
        bar("128 replies by a function that computes, isolate = True, against a loop's time over the cores",
            "<= 1.2x", f"{share:.2f}x on {cores} cores, median of 3 pairs (a loop: {min(alone):.1f} s)",
            share <= 1.2),
        bar("a function that waits and uses signal", "128 of 128 judged", f"{signals} of 128",
            signals == 128),
        bar("a function that hangs on all of 128 replies, limit 2 s", "<= 2.5 s", f"{hung:.2f} s",
            hung <= 2.5),
        bar("a judge behind an address, 1,000 gradings, 50 faults (429, 500, slow, nonsense)",
            "0 lost, 0 wrong", f"{lost} lost, {wrong} wrong, {retries} retries, {took:.1f} s",
            not lost and not wrong and retries >= 50),
        bar(f"{len(INJECTIONS)} injections in replies", "0 paid", f"{paid} paid", not paid)]


def compare_template(path: Path, twin: Path | None) -> Counter[str]:
    """How many conversations with a chat template are those of transformers, and their trained spans TRL's.
    twin: TRL's version of the template, with marks."""
    source, counts = path.read_text(), Counter[str](templates=1)
    chat, marked = golden_templates.open_chat(source), golden_templates.open_chat(source)
    for name, wanted in golden_templates.record_template(path, twin)["talks"].items():
        (messages, tools), talks = golden_templates.TALKS[name], {}
        if "refused" in wanted:
            continue
        counts["conversations"] += 1
        counts["several turns"] += len(messages) > 3
        counts["left out"] += bool(chat.left_out(messages, tools))
        try:
            tokens, mask = chat.conversation(messages, tools=tools)
            talks = {"SFT": tokens, "GRPO": chat.render(messages[:-1], tools),
                     "DPO": encode_completion(messages[:-1], tuple(messages[-1:]), chat, tools)[0]}
        except ValueError:
            counts["refused"] += 1
            continue
        for kind, ids in talks.items():
            counts[kind] += short_hash(ids) == wanted["prompt" if kind == "GRPO" else "ids"]
        if twin:
            marked._render = golden_templates.open_chat(twin.read_text())._render
            theirs, on = marked.conversation(messages, tools=tools)
            known = short_hash(theirs) == wanted["twin"] and short_hash([*map(int, on)]) == wanted["mask"]
            counts["marked"], counts["marked equal"] = counts["marked"] + 1, counts["marked equal"] + known
            if theirs == tokens:
                counts["own"], counts["own equal"] = counts["own"] + 1, counts["own equal"] + (mask == on)
    return counts


def templates(folder: Path, lcpp: str = "/tmp/lcpp") -> tuple[Bars, Tables]:
    """Conversations with the chat templates of TRL and llama-cpp-python, as transformers renders them."""
    from transformers.utils import chat_template_utils
    chat_template_utils.datetime = postgrad_template.datetime = golden_templates.Today
    found = [*golden_templates.templates(Path(lcpp))]
    by_source: dict[str, Counter[str]] = {"trl": Counter(), "llama.cpp": Counter()}
    for name, path, twin in found:
        by_source[name.split("/")[0]] += compare_template(path, twin)
    if not by_source["llama.cpp"]:
        raise SystemExit(f"{lcpp} holds no templates: unpack llama-cpp-python's source distribution there.")
    all_of = by_source["trl"] + by_source["llama.cpp"]
    count = all_of["conversations"]
    bars = [bar("templates of TRL and llama-cpp-python, single and several turns", ">= 40",
                f"{all_of['templates']}; {count} conversations that transformers renders, "
                f"{all_of['several turns']} of several turns", all_of["templates"] >= 40),
            bar("conversations refused of those", "0",
                f"{all_of['refused']}; of {all_of['left out']} the template leaves out tools, calls or "
                "thoughts: as rows to train on, these are refused in a sentence", not all_of["refused"])]
    bars += [bar(f"{what} equal apply_chat_template", "all", f"{all_of[kind]} of {count}",
                 all_of[kind] == count)
             for kind, what in (("SFT", "SFT: ids of the whole conversation"),
                                ("DPO", "DPO: ids of the whole conversation"),
                                ("GRPO", "GRPO: ids of the prompt"))]
    bars += [bar(what, "all", f"{all_of[f'{kind} equal']} of {all_of[kind]}{why}",
                 all_of[f"{kind} equal"] == all_of[kind])
             for kind, what, why in (
                 ("marked", "trained spans equal TRL's, with the marks of its training templates", ""),
                 ("own", "trained spans equal TRL's, with the models' own templates, which have no marks",
                  "; in the others TRL also trains a part of the generation prompt, which is never sampled "
                  "(DeepSeek, gpt-oss, Muse, the line break of Qwen2.5), or not the token that ends a call "
                  "(Gemma)"))]
    return bars, {"Templates": [{"source": source, **{name: counts[name] for name in all_of}}
                                for source, counts in by_source.items()]}


def ported(folder: Path) -> tuple[Bars, Tables]:
    """Ten scripts of TRL and their ports, both run here and now."""
    place = make_place(folder / "place")
    table = []
    for name in NAMES:
        theirs = run_trl(name, place)
        far = apart(run_port(name, place, theirs.completions), theirs)
        lines, ours, new = ported_lines(name)
        table.append({"script": name, "steps": len(theirs.steps), "lines in TRL": lines, "lines here": ours,
                      "of them new": new, **far})
    shutil.rmtree(place)
    worst = {key: max(row.get(key, 0.0) for row in table) for key in (
        "rows", "loss", "gradient", "norm", "evaluation", "best")}
    count = len(table)
    bars = [
        bar("ten scripts of TRL and their ports: rows and masks that differ", "10 scripts, 0 rows",
            f"{count} scripts, {worst['rows']:.0f} rows", count == 10 and not worst["rows"]),
        bar("the same: loss of every step, apart by", "<= 1e-5", f"{worst['loss']:.1e}",
            worst["loss"] <= LOSS),
        bar("the same: gradient of every weight, relative to its norm, apart by", "<= 1e-4",
            f"{max(worst['gradient'], worst['norm']):.1e}",
            max(worst["gradient"], worst["norm"]) <= GRADIENT),
        bar("the same: losses of the evaluation set, apart by, and the best step", "<= 1e-5, the same step",
            f"{worst['evaluation']:.1e}, {'the same' if not worst['best'] else 'another'}",
            worst["evaluation"] <= LOSS and not worst["best"]),
        bar("the same: lines of a port against those of the script", "fewer in 10 of 10",
            f"{sum(row['lines here'] for row in table)} against {sum(row['lines in TRL'] for row in table)}, "
            f"fewer in {sum(row['lines here'] < row['lines in TRL'] for row in table)} of {count}",
            count == 10 and all(row["lines here"] < row["lines in TRL"] for row in table))]
    return bars, {"Ported scripts": table}


def earlier_tree(place: Path, commit: str) -> Path:
    """The tree as it was at a commit."""
    place.mkdir(parents=True)
    tar = subprocess.run(["git", "archive", commit], cwd=HOME, capture_output=True, check=True).stdout
    tarfile.open(fileobj=io.BytesIO(tar)).extractall(place, filter="data")
    return place


def install(place: Path, target: str, commit: str = "") -> dict:
    """Packages, megabytes and minutes of `make TARGET` in a fresh copy of the tree, which is deleted.
    commit: the tree as it was there."""
    shutil.rmtree(place, ignore_errors=True)
    if commit:
        earlier_tree(place, commit)
    else:
        place.mkdir(parents=True)
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
    bars = [bar(f"what make demo installs: {name}", "<= 50 % of before, CPU torch on both sides",
                f"{after[name]}, {before[name]} before", after[name] <= before[name] / 2)
            for name in ("packages", "MB")]
    return bars, {"Set-up": [{"commit": BEFORE} | before, {"commit": "now"} | after]}


def demo_table(tree: Path, folder: Path) -> dict:
    """The figures of the demo's summary, and its seconds."""
    began = time.monotonic()
    python("-m", "postgrad", "demo", "--run", folder, "--json", cwd=tree)
    stages = json.loads((folder / "summary.json").read_text())["stages"]
    return {"seconds": time.monotonic() - began,
            "table": [{key: row[key] for key in ("name", "pass@1", "greedy", "format", "mean_length")}
                      for row in stages]}


def short_demo(folder: Path, busy: int) -> float:
    """Seconds of the short demo beside processes that compute; threads as a user's shell has them."""
    env = {k: v for k, v in environment().items() if k != "OMP_NUM_THREADS"}
    with ExitStack() as others:
        for _ in range(busy):
            others.enter_context(started([sys.executable, "-c", "while True: sum(range(10**6))"]))
        began = time.monotonic()
        python("-m", "postgrad", "demo", "--quick", "--run", folder / f"beside-{busy}", "--json", env=env)
        return time.monotonic() - began


def demo(folder: Path, place: str = "/tmp/everyday") -> tuple[Bars, Tables]:
    """The demo's table as it was and as it is, and what busy processes beside it cost."""
    shutil.rmtree(place, ignore_errors=True)
    before = once(folder / "before.json", demo_table, earlier_tree(Path(place), BEFORE), folder / "before")
    after = once(folder / "after.json", demo_table, HOME, folder / "after")
    shutil.rmtree(place)
    alone, two, four = (once(folder / f"busy-{n}.json", short_demo, folder, n) for n in (0, 2, 4))
    same = before["table"] == after["table"]
    return [bar("the demo's table", f"the same as at {BEFORE}", "the same" if same else "another", same),
            bar("the short demo beside 2 busy processes", "<= 3x slower", f"{two / alone:.2f}x",
                two <= 3 * alone),
            bar("the short demo beside 4 busy processes", "<= 5x slower", f"{four / alone:.2f}x",
                four <= 5 * alone)], {"Demo": [{"commit": at, **row, "seconds of all": run["seconds"]}
                                               for at, run in ((BEFORE, before), ("now", after))
                                               for row in run["table"]]}


PAGE = Page("everyday", "A working day of someone who comes from TRL",
            {"tests": tests("everyday"), "templates": templates, "ported": ported, "rewards": rewards,
             "setup": setup_bars, "demo": demo},
            [0], paths=("postgrad", "pyproject.toml", "Makefile"))

if __name__ == "__main__":
    PAGE.main()
