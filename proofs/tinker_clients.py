"""Clients of the Tinker server while it is killed, and many of them at once: parts of cookbook.py."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import Bars, bar, environment, once, own_python, served

from postgrad.system.sockets import bind

PACKAGES = ["torch==2.13.0", "tinker-cookbook[math-rl]"]
KEY = "tml-this-machine"
KILLS, CLIENTS, ADAPTERS = 20, 8, 4
SHARED = r"""
import json, sys, time, tinker
service = tinker.ServiceClient(base_url=sys.argv[1])

def datum(number, length=32):
    tokens = [10 + (number * 37 + place * (place + number)) % 900 for place in range(length)]
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={
        "target_tokens": tokens[1:], "weights": [1.0 / length] * (length - 1)})

def learner(seed):
    client = service.create_lora_training_client(base_model="tiny-chat", rank=4, seed=seed)
    return client.result() if hasattr(client, "result") else client

def log_probs(client, data):
    passed = client.forward(data, loss_fn="cross_entropy").result()
    return [list(map(float, row["logprobs"].data)) for row in passed.loss_fn_outputs]
"""
# Two passes to a step, so that a kill can fall between a gradient and its step.
STEPPING = SHARED + r"""
client, steps = learner(1), int(sys.argv[2])
for step in range(steps):
    losses = [client.forward_backward([datum(8 * step + 4 * half + row) for row in range(4)],
                                      loss_fn="cross_entropy").result().metrics for half in (0, 1)]
    client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    print(json.dumps({"step": step, "metrics": losses}), flush=True)
print(json.dumps({"logp": log_probs(client, [datum(number) for number in range(4)])}), flush=True)
"""
# What a client does is named by its words: train:ADAPTER:TIMES and sample:ADAPTER:TIMES.
WORKING = SHARED + r"""
STEPS, ROWS = 6, 8

def work(kind, adapter, times):
    client = learner(100 + adapter)
    if kind == "train":
        yield
        out = []
        for step in range(STEPS):
            data = [datum(1000 * adapter + ROWS * times * step + row, 128) for row in range(ROWS * times)]
            passed = client.forward_backward(data, loss_fn="cross_entropy")
            client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
            out.append([list(map(float, row["logprobs"].data)) for row in passed.result().loss_fn_outputs])
        yield out
    else:
        sampler = client.save_weights_and_get_sampling_client(name=f"fixed-{adapter}")
        sampler = sampler.result() if hasattr(sampler, "result") else sampler
        yield
        futures = [sampler.sample(tinker.ModelInput.from_ints([1, 20 + adapter, 30 + row]), num_samples=4,
                                  sampling_params=tinker.SamplingParams(max_tokens=64, seed=row))
                   for row in range(ROWS * times)]
        yield [[list(one.tokens) for one in future.result().sequences] for future in futures]

works = [work(kind, int(adapter), int(times)) for kind, adapter, times in
         (word.split(":") for word in sys.argv[2:])]
for one in works:
    next(one)
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
out = [next(one) for one in works]
print(json.dumps({"seconds": time.perf_counter() - began, "out": out}), flush=True)
"""


def client_python(place: Path) -> Path:
    """The Python of an environment of the cookbook's own."""
    return own_python(place, PACKAGES, behind=False)


def client_environment(url: str = "") -> dict[str, str]:
    """Of a client's process: nothing of ours in its path, no network."""
    env = environment(TINKER_API_KEY=KEY, HF_HUB_OFFLINE="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    env.pop("PYTHONPATH")
    return env | ({"TINKER_BASE_URL": url} if url else {})


# kills

@contextmanager
def server_at(folder: Path, port: int) -> Iterator[subprocess.Popen]:
    """The server of a folder, ready; ended with the block."""
    words = [sys.executable, "-m", "postgrad", "serve", "tiny-chat", "--tinker", "--port", str(port),
             "--json"]
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["url"]
            yield process
        finally:
            process.kill()


def stepped(folder: Path, python: Path, steps: int, kills: int) -> dict:
    """What a client's loop prints, while its server is killed so many times, at moments of a seed."""
    folder.mkdir(parents=True, exist_ok=True)
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    rng, lines, killed = random.Random(0), [], 0
    words = [python, "-c", STEPPING, f"http://127.0.0.1:{port}", str(steps)]
    with ExitStack() as servers:
        server = servers.enter_context(server_at(folder, port))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=client_environment()) as client:
            began = time.monotonic()
            for line in client.stdout:
                row = json.loads(line)
                lines.append(row)
                took = (time.monotonic() - began) / len(lines)
                if killed < kills and row.get("step", 0) >= 2 * killed + 1:
                    time.sleep(rng.random() * min(took, 1.0))
                    server.send_signal(signal.SIGKILL)
                    server.wait()
                    killed += 1
                    server = servers.enter_context(server_at(folder, port))
        assert client.wait() == 0, f"the client ended with {client.returncode}"
    return {"lines": lines, "killed": killed}


def kills(folder: Path, place: str = "", count: str = str(KILLS)) -> Bars:
    python, steps = client_python(Path(place or folder / "cookbook")), 2 * int(count) + 6
    whole = once(folder / "whole.json", stepped, folder / "whole", python, steps, 0)
    killed = once(folder / "killed.json", stepped, folder / "killed", python, steps, int(count))
    same = sum(a == b for a, b in zip(whole["lines"], killed["lines"], strict=True))
    return [bar("kill -9 of the server in a client's loop of two passes a step: losses of every step, and "
                "log-probs after the last, equal to the bit to those of a loop that was left alone",
                f"{KILLS} kills, all equal",
                f"{killed['killed']} kills, {same} of {len(whole['lines'])} equal",
                killed["killed"] == KILLS and same == len(whole["lines"]))]


# clients

def at_once(url: str, python: Path, clients: list[list[str]]) -> tuple[list, float]:
    """Each client's results, all of them started together, and the seconds until the last one ended."""
    with ExitStack() as open_clients:
        running = [open_clients.enter_context(subprocess.Popen(
            [python, "-c", WORKING, url, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=client_environment())) for words in clients]
        for client in running:
            assert client.stdout.readline() == "ready\n"
        began = time.perf_counter()
        for client in running:
            client.stdin.write("\n")
            client.stdin.flush()
        results = [json.loads(client.stdout.readline())["out"] for client in running]
        return results, time.perf_counter() - began


def clients(folder: Path, place: str = "") -> Bars:
    """Four clients that train an adapter each, four that sample from one each."""
    python = client_python(Path(place or folder / "cookbook"))
    works = [[f"{kind}:{adapter}:1"] for kind in ("train", "sample") for adapter in range(ADAPTERS)]
    with served("serve", "tiny-chat", "--tinker", "--port", "0", "--rows", "64", cwd=folder) as address:
        url = address.removesuffix("/v1")
        alone = [at_once(url, python, [work])[0][0] for work in works]
        together, seconds = at_once(url, python, works)
        _, one = at_once(url, python, [[f"train:0:{ADAPTERS}", f"sample:0:{ADAPTERS}"]])
    equal = sum(a == b for a, b in zip(alone, together, strict=True))
    return [bar("8 clients at once, 4 adapters: log-probs and samples equal to each alone, to the bit",
                "8 of 8", f"{equal} of {len(works)}", equal == CLIENTS),
            bar("their throughput against one client that sends the same work in one batch", ">= 0.7",
                f"{one / seconds:.2f} ({seconds:.1f} s against {one:.1f} s)", one / seconds >= 0.7)]
