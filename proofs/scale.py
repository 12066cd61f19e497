"""Past one process, measured: several ranks of torchrun on this machine against one process.

    python proofs/scale.py FOLDER [PART...]   equal, divided, nodes, late, kills, and those of
                                              proofs/rank_memory.py, decoupled.py, with_vllm.py, planned.py;
                                              without PART all of them: four hours on two cores
    python proofs/scale_gpu.py FOLDER         what needs a GPU
    python proofs/scale.py FOLDER write       docs/results/scale.json and .md of the parts that were measured

Every part leaves its bars and the commit in FOLDER, and a part whose bars are there is not measured again.
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
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("", "tests/support", "proofs", "tools")]

import decoupled  # noqa: E402
import kills  # noqa: E402
import planned  # noqa: E402
import rank_memory  # noqa: E402
import results  # noqa: E402
import scale_gpu  # noqa: E402
import with_vllm  # noqa: E402
from ranks_launch import carry_out, free_port  # noqa: E402
from results import bar  # noqa: E402
from torchrun import ENV, torchrun  # noqa: E402

STEPS, KILLS, SEED = 5, 20, 0
CUT = (f"steps={STEPS}", "save_every=2", "max_grad_norm=0.01", "tokens_per_pass=200")
SAMPLED = ("rollouts.prompts=32", "rollouts.prompts_per_step=6", "rollouts.group_size=4",
           "rollouts.max_new_tokens=24", "evaluation.every=3", "evaluation.problems=4",
           "evaluation.samples=2")
TRAININGS = {
    "sft": ("sft:words", "rows_per_step=24", "examples=128"),
    "reward": ("reward:questions", "pairs.per_step=12", "pairs.drawn=64", "pairs.held_out=16"),
    "dpo": ("dpo:questions", "pairs.per_step=12", "pairs.drawn=64", "pairs.held_out=16"),
    "ppo": ("ppo:words", *SAMPLED),
    "grpo": ("grpo:words", *SAMPLED),
    "dapo": ("dapo:words", *SAMPLED),
}
ONE_PASS = {"sft": 1000, "reward": 500, "dpo": 500, "grpo": 500}  # tokens: a step is two passes of so many
KILLED = ("grpo:words", "steps=10", "save_every=2", *SAMPLED[:4], "evaluation.every=0", "virtual_ranks=2")
COMMAND = "python proofs/scale.py FOLDER"
COMMITS = "Commit at which each part was measured"
NAMED = re.compile(r"rank (\d+) \(process \d+ on \S+\) (died|did not come)")


def job(name: str, run: Path, *changes: str) -> dict:
    spec, *words = TRAININGS[name]
    return {"train": spec, "changes": [*words, *CUT, *changes], "run": str(run)}


def in_ranks(jobs: list[dict], folder: Path, world: int = 2) -> None:
    """The jobs one after another in so many ranks of one torchrun."""
    path = folder / f"jobs-{len(list(folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    process = torchrun(__file__, "work", str(path), world=world)
    _, said = process.communicate()
    assert process.returncode == 0, said


def work(path: str) -> None:
    for each in json.loads(Path(path).read_text()):
        carry_out(each)


def alone(jobs: list[dict], folder: Path) -> None:
    """The jobs in one process without torchrun."""
    path = folder / f"jobs-{len(list(folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    subprocess.run([sys.executable, __file__, "work", str(path)], env=ENV, check=True)


def train_all(folder: Path) -> None:
    """Every training by one process, by two ranks, and by one, two and one across resumes."""
    turns = {name: folder / f"{name}-turns" for name in TRAININGS}
    alone([job(name, folder / f"{name}-1", "virtual_ranks=2") for name in TRAININGS]
          + [job(name, turns[name], "virtual_ranks=2") | {"until": 1} for name in TRAININGS], folder)
    in_ranks([job(name, folder / f"{name}-2") for name in TRAININGS]
             + [{"run": str(run), "until": 3} for run in turns.values()], folder)
    alone([{"run": str(run)} for run in turns.values()], folder)


def equal(folder: Path) -> list[dict]:
    """World 2 against world 1, and one, two, one across resumes."""
    if not (folder / "sft-1").exists():
        train_all(folder)
    out = []
    for what, kind in (("two ranks", "2"), ("one rank, then two, then one, across resumes", "turns")):
        facts = {name: kills.facts(folder / f"{name}-1") for name in TRAININGS}
        differ = {name: found for name in TRAININGS
                  if (found := kills.differences(facts[name], folder / f"{name}-{kind}"))}
        norms = [row["grad_norm"] for name in TRAININGS for row in facts[name]["metrics"]]
        cut = all(norm == 0 or norm > 0.01 for norm in norms)
        out.append(bar(f"{what} against one process with two lanes: {', '.join(TRAININGS)}",
                       f"metrics, samples, state and weights equal bit for bit after {STEPS} steps, every "
                       "gradient that is not 0 clipped",
                       f"{len(TRAININGS) - len(differ)} of {len(TRAININGS)} equal"
                       + (f"; {differ}" if differ else "") + (", all" if cut else ", not all") + " clipped",
                       not differ and cut, "python proofs/scale.py FOLDER equal"))
    return out


def divided(folder: Path) -> list[dict]:
    """A model divided between two ranks against the whole one in one process with two lanes."""
    ways = {"one": {name: (f"tokens_per_pass={n}", "max_grad_norm=1000") for name, n in ONE_PASS.items()},
            "several": {name: () for name in TRAININGS}}
    if not (folder / "one-sft-1").exists():
        alone([job(name, folder / f"{way}-{name}-1", "virtual_ranks=2", *more)
               for way, listed in ways.items() for name, more in listed.items()], folder)
        in_ranks([job(name, folder / f"{way}-{name}-2", "shard=true", *more)
                  for way, listed in ways.items() for name, more in listed.items()], folder)
    off = {way: {name: apart(*(scale_gpu.weights(folder / f"{way}-{name}-{n}") for n in (1, 2)))
                 for name in listed} for way, listed in ways.items()}
    far, one = (max(x[i] for x in off["several"].values()) for i in (0, 1))
    same = {name: "equal" if x == (0, 0) else f"off by {x[0]:.1e}" for name, x in off["one"].items()}
    return [bar("shard=true (FSDP2), two ranks against one process, one pass a rank, no gradient clipped: "
                + ", ".join(same), f"weights equal bit for bit after {STEPS} steps",
                ", ".join(f"{name} {how}" for name, how in same.items()),
                all(how == "equal" for how in same.values()), f"{COMMAND} divided"),
            bar("the same with 4 passes or more, every gradient that is not 0 clipped: "
                + ", ".join(off["several"]), f"every tensor within 1e-6 of its length after {STEPS} steps",
                f"{far:.1e} at most ({', '.join(f'{name} {x[0]:.0e}' for name, x in off['several'].items())})"
                f"; a single number by {one:.1e} of its tensor's largest", far <= 1e-6,
                f"{COMMAND} divided")]


def apart(one: dict, two: dict) -> tuple[float, float]:
    """How far two models' tensors are apart at most: by their length, and by their largest number."""
    assert one.keys() == two.keys()
    return (max(float((x - two[name]).norm() / x.norm()) for name, x in one.items()),
            max(float((x - two[name]).abs().max() / x.abs().max()) for name, x in one.items()))


def nodes(folder: Path) -> list[dict]:
    """Two agents that meet over loopback stand for two nodes."""
    spec, *words = TRAININGS["grpo"]
    train = ["-m", "--", "postgrad", "train", spec, *words, *CUT]
    subprocess.run([sys.executable, "-m", "postgrad", *train[3:], "virtual_ranks=2", "--run",
                    str(folder / "one")],
                   env=ENV, check=True, stdout=subprocess.DEVNULL)
    meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
            "--rdzv-id", "proof", "--local-addr", "127.0.0.1"]
    agents = [torchrun(*meet, *train, "--run", str(folder / "two"), world=1) for _ in range(2)]
    said = [agent.communicate()[1] for agent in agents]
    codes = [agent.returncode for agent in agents]
    assert codes == [0, 0], said
    differ = kills.differences(kills.facts(folder / "one"), folder / "two")
    return [bar("two agents with a loopback rendezvous (two nodes of one rank) against one process: grpo",
                f"equal bit for bit after {STEPS} steps", "equal" if not differ else str(differ), not differ,
                "python proofs/scale.py FOLDER nodes")]


def steps_made(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def ranks_of(agent: subprocess.Popen) -> list[int]:
    """The processes that an agent started, by rank."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(agent.pid)], capture_output=True, text=True)
    return sorted(int(pid) for pid in listed.stdout.split())


def struck(run: Path, args: list[str], rank: int, after: int, delay: float, number: int,
           env: dict | None = None) -> dict:
    """A training in two ranks, one of which gets a signal so many steps in: who was named, and when; nothing
    where it was through before."""
    agent = torchrun("-m", "--", "postgrad", *args, env=env)
    while steps_made(run) < after and agent.poll() is None:
        time.sleep(0.02)
    time.sleep(delay)
    victims = ranks_of(agent)
    if agent.poll() is not None or len(victims) < 2:
        return {}
    os.kill(victims[rank], number)
    began, sentence, seconds, lines = time.perf_counter(), "", None, []
    assert agent.stderr is not None
    for line in agent.stderr:
        lines.append(line)
        if sentence == "" and NAMED.search(line):
            sentence, seconds = line.strip(), round(time.perf_counter() - began, 2)
            if number == signal.SIGSTOP:
                os.kill(victims[rank], signal.SIGKILL)
    agent.wait()
    told = NAMED.search(sentence)
    return {"rank": rank, "step": steps_made(run), "said": sentence or "".join(lines)[-3000:],
            "seconds": seconds, "named": int(told[1]) if told else None}


def killed(folder: Path) -> list[dict]:
    """Random ranks killed at random moments; each run is gone on with by one or two ranks. What was tried
    before is kept."""
    if not (folder / "alone").exists():
        subprocess.run([sys.executable, "-m", "postgrad", "train", *KILLED, "--run", str(folder / "alone")],
                       env=ENV, check=True, stdout=subprocess.DEVNULL)
    expected, kept = kills.facts(folder / "alone"), folder / "kills.json"
    rows = json.loads(kept.read_text()) if kept.exists() else []
    draw = random.Random(f"{SEED}/{len(rows)}")
    while len(rows) < KILLS:
        run = folder / f"killed-{len(rows)}"
        shutil.rmtree(run, ignore_errors=True)
        rank, world = draw.randrange(2), draw.choice((1, 2))
        row = struck(run, ["train", *KILLED, "--run", str(run)], rank, draw.randint(1, 6),
                     draw.uniform(0, 1.5), signal.SIGKILL)
        if not row:  # it was through before the kill
            continue
        again = torchrun("-m", "--", "postgrad", "resume", str(run), world=world)
        _, said = again.communicate()
        assert again.returncode == 0, said
        row |= {"resumed with": world, "differences": kills.differences(expected, run)}
        print(len(rows), row, file=sys.stderr, flush=True)
        rows.append(row)
        kept.write_text(json.dumps(rows, indent=1))
    named = [row for row in rows if row["named"] == row["rank"]]
    slowest = max((row["seconds"] for row in named), default=0.0)
    same = sum(not row["differences"] for row in rows)
    command = "python proofs/scale.py FOLDER kills"
    return [bar(f"{KILLS} kills of random ranks, at random moments",
                "the dead rank named within 10 s, each time",
                f"{len(named)} of {KILLS} named, the slowest after {slowest} s",
                len(named) == KILLS and slowest <= 10, command),
            bar("each of these runs resumed, with one rank or two", "the same bits as one left alone",
                f"{same} of {KILLS} equal", same == KILLS, command)]


def late(folder: Path) -> list[dict]:
    """A rank that hangs (SIGSTOP) is named when its time is up."""
    run = folder / "late"
    row = struck(run, ["train", *KILLED, "--run", str(run)], 1, 2, 0.0, signal.SIGSTOP,
                 ENV | {"POSTGRAD_TIMEOUT": "20"})
    assert row, "it was through before the signal"
    return [bar("a rank that hangs, POSTGRAD_TIMEOUT=20", "named within 30 s",
                f"{row['said']} ({row['seconds']} s)",
                row["named"] == 1 and "did not come" in row["said"] and row["seconds"] <= 30,
                "python proofs/scale.py FOLDER late")]


PARTS = {"equal": equal, "divided": divided, "nodes": nodes, "late": late, "kills": killed,
         **rank_memory.PARTS, **decoupled.PARTS, **with_vllm.PARTS, **planned.PARTS}


def main(folder: Path, *parts: str) -> int:
    found: list[dict] = []
    for name in parts or PARTS:
        kept = folder / f"{name}.json"
        if not kept.exists():
            (folder / name).mkdir(parents=True, exist_ok=True)
            made = {"commit": results.commit(), "bars": PARTS[name](folder / name)}
            kept.write_text(json.dumps(made, indent=1))
        found += json.loads(kept.read_text())["bars"]
        print(json.dumps(found, indent=1), flush=True)
    return int(not all(row["holds"] for row in found))


def write(folder: Path) -> None:
    """A part of which FOLDER has nothing stays as the page has it; one that was never measured is a bar that
    does not hold, or, where it needs a GPU, is missing."""
    page = json.loads((results.RESULTS / "scale.json").read_text())
    commands = ({name: f"{COMMAND} {name}" for name in PARTS}
                | {f"gpu-{name}": scale_gpu.command(name) for name in scale_gpu.MEASURES})
    made = {name: json.loads((folder / f"{name}.json").read_text()) for name in commands
            if (folder / f"{name}.json").exists()}
    before = {row["part"]: row["commit"] for row in page["tables"][COMMITS] if row["part"] not in made}
    bars = {name: part["bars"] for name, part in made.items()}
    bars |= {name: [row for row in page["bars"] if row["command"].endswith(commands[name])]
             for name in before}
    never = {name: [bar(name, "measured", results.NOT_MEASURED, False, commands[name])]
             for name in PARTS if name not in bars}
    commits = before | {name: part["commit"] for name, part in made.items()}
    rows = kept_kills(folder) or page["tables"]["Kills"]
    listed = [row for name in commands for row in (bars | never).get(name, [])]
    results.write("scale", "Past one process", listed, seeds=[SEED], tables={
        COMMITS: [{"part": name, "commit": commits[name]} for name in commands if name in commits],
        "Kills": rows})


def kept_kills(folder: Path) -> list[dict]:
    path = folder / "kills" / "kills.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    return [{key: row[key] for key in ("rank", "step", "seconds", "resumed with")} for row in rows]


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2])
    elif sys.argv[2:] == ["write"]:
        write(Path(sys.argv[1]).resolve())
    else:
        sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
