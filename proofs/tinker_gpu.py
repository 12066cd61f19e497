"""The Tinker server on a GPU: a step of the cookbook's rl_loop at the 135M shape against `pg.fit`.

    python proofs/tinker_gpu.py pack [FOLDER]    FOLDER/packages.tar.xz (scratch_tinker/): the SDK, and what
                                  the server imports beyond torch and transformers (Python 3.12, x86-64)
    PYTHONPATH=PACKAGES python proofs/tinker_gpu.py speed gsm8k [model=FOLDER] [data=train.jsonl] [steps=8]
                                  [seeds=0,1,2] [most=180] [small=1]

A line of JSON for each measurement; one that fails says so, and the next goes on. The client is a loop on
the SDK in the form of rl_loop: weights saved for a sampler, a call of `sample` for each prompt, rewards less
their group's mean, importance_sampling, one step of AdamW. The recipe itself imports `datasets`, which is
too large to carry to a machine without network.

speed: random weights, or those of model=; 64 prompts of 128 tokens, 8 samples of 128. A step's wall time less
the client's own is the server's: all the time in which the client waits for an answer. adapter: rank 32 on
every layer and the head, as the recipe asks for it; body: without the head's, which `pg.fit` has not; whole:
rank 0. gsm8k: a short SFT into the recipe's form (boxed answers), then rl_loop; the share of right answers,
step by step. small=1 tries the script on a CPU: tiny shapes, meaningless figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import harness  # noqa: F401  so that the benchmarks' modules are found
import shapes
import torch
from harness import DATA, HOME, arguments, started, train
from shapes import Setting
from cookbook import TEMPLATE
from sides import Side

from postgrad.models.chat import Chat
from postgrad.recipes.export import export_model

PACKAGES = ("tinker==0.38.0", "anyio", "click", "distro", "httpx", "httpcore", "h11", "h2", "hpack",
            "hyperframe", "certifi", "idna", "orjson", "protobuf", "pydantic", "pydantic_core",
            "annotated-types", "typing-inspection", "typing-extensions", "pyqwest", "rich", "markdown-it-py",
            "mdurl", "opentelemetry-api", "pygments", "sniffio", "zstandard", "starlette", "uvicorn",
            "jinja2", "markupsafe")
RANK = 32  # the recipe's own
KINDS = {"adapter": {"rank": RANK}, "body": {"rank": RANK, "train_unembed": False}, "whole": {"rank": 0}}
SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."

LOOP = r"""
import json, re, resource, sys, time, zlib
import tinker, torch
from tinker.types.tensor_data import TensorData
from tokenizers import Tokenizer

job = json.load(sys.stdin)
tokenizer, group = Tokenizer.from_file(job["tokenizer"]), job["group"]
service = tinker.ServiceClient(base_url=job["url"])
client = service.create_lora_training_client(base_model=job["model"], seed=job["seed"], **job["how"])
client = client.result() if hasattr(client, "result") else client
sampling = tinker.SamplingParams(max_tokens=job["new"], seed=None, **job["sampling"])
adam = tinker.AdamParams(learning_rate=job["lr"], beta1=0.9, beta2=0.95, eps=1e-8)
waited = {}

def wait(name, future):
    began = time.perf_counter()
    result = future.result() if hasattr(future, "result") else future
    waited[name] = waited.get(name, 0.0) + time.perf_counter() - began
    return result

def reward(text, answer):
    if answer is None:
        return zlib.crc32(text.encode()) % 5 / 4
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return float(bool(boxed) and boxed[-1].replace(",", "").strip() == answer)

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

for step in range(job["steps"]):
    began, cpu_began = time.perf_counter(), cpu()
    waited.clear()
    rows = job["rows"][step * job["prompts"] % len(job["rows"]):][: job["prompts"]]
    sampler = wait("save", client.save_weights_and_get_sampling_client())
    futures = [sampler.sample(prompt=tinker.ModelInput.from_ints(tokens), num_samples=group,
                              sampling_params=sampling) for tokens, _ in rows]
    data, total, count = [], 0.0, 0
    for future, (tokens, answer) in zip(futures, rows):
        sequences = wait("sample", future).sequences
        rewards = [reward(tokenizer.decode(one.tokens), answer) for one in sequences]
        mean = sum(rewards) / group
        total, count = total + mean, count + sum(len(one.tokens) for one in sequences)
        if all(one == mean for one in rewards):
            continue
        before = len(tokens) - 1
        for one, value in zip(sequences, rewards):
            columns = {"target_tokens": [0] * before + list(one.tokens),
                       "logprobs": [0.0] * before + list(one.logprobs),
                       "advantages": [0.0] * before + [value - mean] * len(one.tokens)}
            data.append(tinker.Datum(
                model_input=tinker.ModelInput.from_ints([*tokens, *one.tokens[:-1]]),
                loss_fn_inputs={k: TensorData.from_torch(torch.tensor(v)) for k, v in columns.items()}))
    if data:
        passed = client.forward_backward(data, loss_fn="importance_sampling")
        stepped = client.optim_step(adam)
        wait("train", passed)
        wait("train", stepped)
    seconds = time.perf_counter() - began
    print(json.dumps({"step": step, "seconds": seconds, "waited": dict(waited), "cpu": cpu() - cpu_began,
                      "reward": total / len(rows), "tokens": count, "data": len(data)}), flush=True)
"""


def pack(folder: Path) -> Path:
    """An archive of PACKAGES, for a machine without network."""
    out = folder / "packages.tar.xz"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        platforms = [f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux_2_28")]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.12", *platforms,
                        "--only-binary=:all:", "--no-deps", "-d", f"{place}/wheels", *PACKAGES], check=True)
        for wheel in sorted(Path(place, "wheels").glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(f"{place}/packages")
        with tarfile.open(out, "w:xz") as file:
            file.add(f"{place}/packages", arcname=".")
    return out


def environment() -> dict[str, str]:
    paths = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TINKER_API_KEY": "tml-this-machine",
                         "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
                         "TOKENIZERS_PARALLELISM": "false"}


def looped(s: Setting, model: Path, jobs: dict[str, dict]) -> dict[str, list[dict]]:
    """The steps of each client's loop, one after another against one server."""
    context = s.prompt + s.new + 8
    words = [sys.executable, "-m", "postgrad", "serve", model, "--tinker", "--json", "--port", "0", "--name",
             "shape", "--rows", s.rows, "--queue", s.rows, "--context", context, "--device", s.device,
             "--runs", s.folder / "served"]
    out: dict[str, list[dict]] = {}
    with (open(s.folder / "server.log", "a") as log,
          started(words, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True) as server):
        url = json.loads(server.stdout.readline())["tinker"]
        for name, job in jobs.items():
            job = {"url": url, "model": "shape", "tokenizer": str(model / "tokenizer.json"), "seed": 0,
                   "group": s.group, "prompts": s.prompts, "new": s.new, "sampling": {}} | job
            ran = subprocess.run([sys.executable, "-c", LOOP], input=json.dumps(job), text=True,
                                 capture_output=True, env=environment(), cwd=s.folder, timeout=300)
            if ran.returncode:
                tail = (s.folder / "server.log").read_text()[-1500:]
                raise RuntimeError(f"{name}: {ran.stderr[-1500:]} server: {tail}")
            out[name] = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return out


def fitted(s: Setting, model: Path, rank: int, steps: int) -> dict:
    """Seconds of steps of `pg.fit` of GRPO on the same prompts."""
    how = (f"optim.adapter.lora={rank}", *s.ours)
    work = replace(s.work(s.shape, how, steps), model=str(model))
    with open(s.folder / "fit.log", "a") as log:
        side = Side("ours", (), threads=os.cpu_count() or 1, log=log)
        try:
            side.how = how
            seconds = [side.start(work)["seconds"], *(side.ask("step")["seconds"] for _ in range(steps - 1))]
        finally:
            side.process.kill()
            side.process.wait()
    return {"rank": rank, "step": middle(seconds), "seconds": seconds}


def middle(seconds: list[float]) -> float:
    """The median of the later half: the first steps compile and capture."""
    return statistics.median(seconds[len(seconds) // 2:])


def speed(s: Setting, model: Path, steps: int, kinds: tuple[str, ...]) -> dict:
    chat = Chat.load(model)
    rows = [(chat.render(prompt.messages), None) for prompt in s.asked()]
    job = {"rows": rows, "steps": steps, "lr": 1e-7}
    loops = looped(s, model, {kind: job | {"how": KINDS[kind]} for kind in kinds})
    fits = {rank: fitted(s, model, rank, steps) for rank in {KINDS[kind]["rank"] for kind in kinds}}
    figures = {}
    for kind, ran in loops.items():
        server = [sum(row["waited"].values()) for row in ran]
        late, fit = ran[len(ran) // 2:], fits[KINDS[kind]["rank"]]
        figures[kind] = {
            "server's seconds": middle(server), "fit's seconds": fit["step"],
            "ratio": middle(server) / fit["step"],
            "client's own seconds": middle([row["seconds"] - w for row, w in zip(ran, server, strict=True)]),
            "client's CPU seconds": middle([row["cpu"] for row in ran]),
            "waits": {k: statistics.median(row["waited"].get(k, 0.0) for row in late)
                      for k in ("save", "sample", "train")},
            "tokens": late[-1]["tokens"], "data": late[-1]["data"], "every step": server}
    return {**figures, "fit": fits}


def boxed_rows(path: Path) -> list[dict]:
    """GSM8K in the recipe's form."""
    rows = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        thought, _, answer = row["answer"].partition("####")
        thought = " ".join(part for part in thought.split("\n") if part)
        while "<<" in thought:  # the calculator's notes
            before, _, after = thought.partition("<<")
            thought = before + after.partition(">>")[2]
        answer = answer.replace(",", "").strip()
        rows.append({"prompt": f"User: {row['question']}{SUFFIX}\n\nAssistant:", "answer": answer,
                     "completion": f" {thought} \\boxed{{{answer}}}\n\nUser:"})
    return rows


def gsm8k(s: Setting, model: Path, data: Path, steps: int, seed: int, lr: float = 3e-4) -> dict:
    """rl_loop on GSM8K after an SFT into its form on the rows that it does not see."""
    rows, chat, folder = boxed_rows(data), Chat.load(model), s.folder / f"gsm8k-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    half = len(rows) // 2
    learnt = folder / "rows.jsonl"
    learnt.write_text("".join(json.dumps({k: row[k] for k in ("prompt", "completion")}) + "\n"
                              for row in rows[:half]))
    template = folder / "role_colon.jinja"
    template.write_text(TEMPLATE)
    began = time.perf_counter()
    run = train(folder / "sft", "sft", f"data={learnt}", f"model={model}", f"template={template}",
                "rows_per_step=64", "epochs=1", "rows.holdout=0", "truncate=drop", f"seed={seed}",
                f"device={s.device}", "optim.adapter.lora=0", *s.ours)
    start = folder / "start"
    export_model(str(run.folder), start)
    taught = time.perf_counter() - began
    bos = [chat.id(chat.bos)] if chat.bos else []
    asked = [(bos + chat.tokenizer.encode(row["prompt"], add_special_tokens=False).ids, row["answer"])
             for row in rows[half:]]
    asked = [(tokens, answer) for tokens, answer in asked if len(tokens) <= s.prompt]
    shapes.clean()
    job = {"rows": asked, "steps": steps, "lr": lr, "how": {"rank": RANK}, "seed": seed,
           "sampling": {"stop": ["\n\nUser:"]}}
    ran = looped(s, start, {"gsm8k": job})["gsm8k"]
    curve = [row["reward"] for row in ran]
    fifth = max(1, len(curve) // 5)
    return {"seed": seed, "model": str(model), "SFT seconds": taught, "curve": curve,
            "first fifth": sum(curve[:fifth]) / fifth, "last fifth": sum(curve[-fifth:]) / fifth,
            "seconds a step": middle([row["seconds"] for row in ran])}


def main() -> None:
    words, how = arguments()
    if words[:1] == ["pack"]:
        return print(pack(Path(words[1] if len(words) > 1 else "scratch_tinker")))
    with tempfile.TemporaryDirectory() as place:
        small = "small" in how
        s = Setting(folder=Path(how.get("folder", place)), dtype=torch.bfloat16,
                    ours=tuple(filter(None, how.get("ours", "").split(","))))
        if small:
            s = replace(s, device="cpu", shape="tiny", prompts=4, group=4, prompt=16, new=16)
        model = Path(how["model"]).resolve() if "model" in how else s.model(s.shape)
        steps, kinds = int(how.get("steps", 8)), tuple(how.get("kinds", ",".join(KINDS)).split(","))
        works = {}
        if "speed" in words:
            works["speed"] = partial(speed, s, model, steps, kinds)
        if "gsm8k" in words:
            wide = replace(s, prompts=4 if small else 64, group=4 if small else 16,
                           prompt=256, new=16 if small else 256)
            data = Path(how.get("data", DATA / "gsm8k/train.jsonl"))
            works |= {f"gsm8k {seed}": partial(gsm8k, wide, model, data, int(how.get("rl_steps", 30)),
                                               int(seed)) for seed in how.get("seeds", "0").split(",")}
        shapes.print_each("part", works, float(how.get("most", "inf")))


if __name__ == "__main__":
    main()
