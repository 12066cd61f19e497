"""What the endpoint costs: 64 prompts x 8 samples of 128 + 128 tokens through `postgrad serve` on this
machine, against sampling them in this process.

    python bench/endpoint.py [--shape none] [--device cpu] [--rounds 5] [--profile FILE]

Of a model of next to no size (none) most of the time is the host's work, which a GPU would wait for: the
medians of seconds by the clock, and of the CPU's seconds in this process and in the server's. --profile: how
the client spends its time, by cProfile, as it is written to FILE.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / name) for name in ("", "bench", "tests/support")]

from ranks_launch import free_port  # noqa: E402
from shapes import SHAPES, questions, shape, write_model  # noqa: E402

from postgrad.records import Prompt  # noqa: E402
from postgrad.resolve.models import open_writer  # noqa: E402
from postgrad.resolve.weights import WeightsFolder  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling, ServedSampler  # noqa: E402

PROMPTS, GROUP, PROMPT, NEW = 64, 8, 128, 128
NONE = shape(1, 8, 1, 1, 8, 64)


def cpu_of(process: int) -> float:
    """Seconds of the CPU that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", default="none", choices=["none", *SHAPES])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", type=Path)
    args = parser.parse_args()
    config = NONE if args.shape == "none" else SHAPES[args.shape]
    with tempfile.TemporaryDirectory() as place:
        folder = write_model(Path(place) / "model", config)
        prompts = [Prompt.ask(text) for text in questions(PROMPTS, PROMPT, config.vocab_size)]
        model, chat = open_writer(folder, args.device)
        weights = WeightsFolder(Path(place) / "weights", chat)
        weights.show(first := weights.write(model, 0))
        address = f"http://127.0.0.1:{(port := free_port())}"
        server = subprocess.Popen(
            [sys.executable, "-m", "postgrad", "serve", str(weights.folder), "--port", str(port), "--rows",
             str(PROMPTS * GROUP), "--queue", "2048", "--context", "256", "--device", args.device],
            env=os.environ | {"PYTHONPATH": str(HERE)}, stdout=subprocess.DEVNULL)
        try:
            served = ServedSampler([address], chat, positions=256, vocabulary=config.vocab_size)
            served.await_weights(first)
            measure(served, LocalSampler(model, chat), prompts, server.pid, args)
        finally:
            server.kill()
            server.wait()


def measure(served: ServedSampler, local: LocalSampler, prompts: list, server: int, args) -> None:
    how, found = Sampling(max_new_tokens=NEW), {"in process": [], "endpoint": [], "client": [], "server": []}
    profile = cProfile.Profile()
    for turn in range(args.rounds + 1):  # the first one is not counted: connections, captured graphs
        began = time.perf_counter()
        here = local.sample(prompts, GROUP, how, turn)
        found["in process"].append(time.perf_counter() - began)
        began, cpu, there = time.perf_counter(), time.process_time(), cpu_of(server)
        if args.profile and turn == args.rounds:
            profile.enable()
        rows = served.sample(prompts, GROUP, how, turn)
        profile.disable()
        found["endpoint"].append(time.perf_counter() - began)
        found["client"].append(time.process_time() - cpu)
        found["server"].append(cpu_of(server) - there)
        same = sum(a.tokens == b.tokens for x, y in zip(here, rows, strict=True)
                   for a, b in zip(x, y, strict=True))
        assert same == PROMPTS * GROUP or args.device != "cpu", f"{same} rows are the same"
    if args.profile:
        profile.dump_stats(args.profile)
    seconds = {name: round(statistics.median(values[1:]), 3) for name, values in found.items()}
    print(json.dumps({"part": "endpoint", "rows": PROMPTS * GROUP, "new tokens": NEW, "shape": args.shape,
                      "device": args.device, "seconds in process": seconds["in process"],
                      "seconds through the endpoint": seconds["endpoint"],
                      "CPU seconds of the client": seconds["client"],
                      "CPU seconds of the server": seconds["server"]}))


if __name__ == "__main__":
    main()
