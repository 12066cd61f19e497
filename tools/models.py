"""Builds the embedded models, and carries TRL to a machine without network.

    python tools/models.py pack tiny|zero RUN      the package's folder of a run of `postgrad train
                                       pretrain:tiny device=cuda` or `pretrain:zero workers=8` (five minutes
                                       on one GPU): bfloat16 weights, and origin.json
    python tools/models.py chat OUT    tiny-chat: tiny fine-tuned on the average writer's demonstrations of
                                       all tasks, on a CPU in about two minutes
    python tools/models.py tools OUT   tiny-tools: tiny-chat with tokens and a template for tools
    python tools/models.py trl [FOLDER]            scratch_trl/: TRL and what it imports beyond torch,
                                       transformers and accelerate (Python 3.12, x86-64), and FOLDER.tar.xz

The control of tiny-zero, `pretrain:control workers=8`, reads the same text without chains that look back. It
is not shipped: `python proofs/reasoning.py rates models=ZERO_RUN,CONTROL_RUN` measures both. tools: each new
token begins as a copy of the one that it resembles. Then the model imitates: demonstrations of the tasks it
knows, so that they are not forgotten, and calls of the calculator where the user asks for one. That a call
helps where nobody asks for it is left to RL. trl: the packages are the real ones, cut down to what the
trainers import; the folder inside is called site-packages because dill, which `datasets` hashes functions
with, takes only what lies in such a folder for a library.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import AddedToken

from postgrad.data.tasks import load_task
from postgrad.data.tasks.toolbox import calc
from postgrad.models import Decoder, load_model, save_model
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.models.load import EMBEDDED, EMBEDDING
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.running import start_run
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Conversation
from postgrad.runs import Run
from postgrad.training.optim import OptimSettings

HOME = EMBEDDED["tiny"].parent
CHAT = {"words": 5000, "words-easy": 1000, "words-hard": 1500, "words-es": 1500, "arithmetic": 2500,
        "arithmetic-hard": 1500, "countdown": 2500, "questions": 3000}


def write(run: Run, target: Path, made_by: str, machine: str) -> None:
    """The folder that the package ships."""
    target.mkdir(parents=True, exist_ok=True)
    model = load_model(run.latest())
    save_model(model, target, torch.bfloat16)
    Chat.load(run.latest()).save(target)
    rows = run.metrics()
    some = [r for r in rows if r["step"] in (1, 10) or r["step"] % (len(rows) // 50 + 1) == 0]
    origin = {"made_by": made_by, "machine": machine,
              "config": json.loads((run.folder / "config.json").read_text()),
              "parameters": sum(p.numel() for p in model.parameters()),
              "tokens": sum(r["tokens"] for r in rows),
              "training_seconds": round(sum(r["time/step"] for r in rows)),
              "loss_curve": [[r["step"], round(r["loss"], 4)] for r in some],
              "sha256": hashlib.sha256((target / "model.safetensors").read_bytes()).hexdigest()}
    (target / "origin.json").write_text(json.dumps(origin) + "\n")


def pack(name: str, run: Path) -> None:
    write(Run.open(run), HOME / ("tiny" if name == "tiny" else "tiny-zero"),
          f"postgrad train pretrain:{name} device=cuda, then python tools/models.py pack {name} RUN",
          "one NVIDIA H200")


def tuned(out: Path, what: str, steps: int, **more) -> Run:
    config = SFTConfig(steps=steps, save_every=steps, **more,
                       optim=OptimSettings(lr=1e-3, schedule="linear", warmup=10))
    return start_run(config, out / "run", command=f"python tools/models.py {what} OUT")


def chat(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    data = out / "demonstrations.jsonl"
    data.write_text("".join(json.dumps({"id": c.id, "messages": c.messages}) + "\n"
                            for name, count in CHAT.items()
                            for c in load_task(name).demonstrations("train", count, 0)))
    write(tuned(out, "chat", 240, data=str(data)), EMBEDDED["tiny-chat"], "python tools/models.py chat OUT",
          "2 CPU cores")


# a control token is for the template alone; the others are text that the model writes
LIKE = {"<|tools|>": "<|system|>", "<|tool|>": "<|user|>", "<tool>": "<think>", "</tool>": "</think>"}
TEMPLATE = """{{ bos_token }}{% if tools %}<|tools|>\
{% for tool in tools %}{{ tool.function.name }}\
{% for name in tool.function.parameters.properties %} {{ name }}{% endfor %}\
{% if not loop.last %}, {% endif %}{% endfor %}<|end|>{% endif %}\
{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\
{% for call in m.tool_calls or [] %}<tool>{{ call.function.name }}\
{% for value in call.function.arguments.values() %} {{ value }}{% endfor %}</tool>{% endfor %}\
<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
CALLS, SHARE = 3000, 0.25  # calls that are imitated, and how much of what tiny-chat imitated


def with_tools(model: Decoder, chat: Chat) -> tuple[Decoder, Chat]:
    """The model and its tokenizer with the new tokens, and the template for them."""
    for name in LIKE:
        chat.tokenizer.add_tokens([AddedToken(name, special=name.startswith("<|"), normalized=False)])
    wider = Decoder(replace(model.config, vocab_size=chat.vocab_size))
    copies = model.head[[chat.id(name) for name in LIKE.values()]]
    wider.load_state_dict(model.state_dict() | {EMBEDDING: torch.cat([model.head, copies])})
    return wider, Chat(chat.tokenizer, TEMPLATE, bos=chat.bos, eos=chat.eos, pad=chat.pad, ends=chat.ends)


def calls() -> list[Conversation]:
    """Products that the user wants from the calculator."""
    talks = []
    for prompt in load_task("big-numbers").prompts("train", CALLS, 0):
        asked = prompt.question.removeprefix("What is ").removesuffix("?")
        turns = {"user": f"Use calc: {asked}", "assistant": f"<tool>calc {asked}</tool>", "tool": calc(asked)}
        talk = [*turns.items(), ("assistant", f"<answer>{prompt.answer}</answer>")]
        talks.append(Conversation(id=prompt.id, tools=(tool_schema(calc),),
                                  messages=tuple({"role": role, "content": text} for role, text in talk)))
    return talks


def tools(out: Path) -> None:
    start = out / "start"
    start.mkdir(parents=True, exist_ok=True)
    model, talk = with_tools(load_model("tiny-chat"), Chat.load(EMBEDDED["tiny-chat"]))
    save_model(model, start, torch.float32)
    talk.save(start)
    known = [row for name, count in CHAT.items()
             for row in load_task(name).demonstrations("train", int(SHARE * count), 0)]
    run = tuned(out, "tools", 120, model=str(start), data=[*known, *calls()], rows=RowSettings(holdout=0.0))
    write(run, HOME / "tiny-tools", "python tools/models.py tools OUT", "one CPU core")
    talk.tokenizer.save(str(HOME / "tiny-tools" / "tokenizer.json"), pretty=False)  # within 4 MB


# TRL

PACKAGES = ("trl==1.16.0", "datasets==5.2.0", "pyarrow", "pandas", "dill", "multiprocess", "xxhash",
            "python-dateutil", "six")
UNUSED = ("**/tests", "pyarrow/include", "pyarrow/includes", "pyarrow/src", "pyarrow/**/*.pyx",
          "pyarrow/**/*.pxd", "pyarrow/**/*.pxi", "pyarrow/**/*.h", "pyarrow/libarrow_flight*",
          "pyarrow/libarrow_python_flight*", "pyarrow/_flight*", "pyarrow/_substrait*",
          "pyarrow/libarrow_s3*", "pyarrow/_s3fs*", "pyarrow/_parquet_encryption*",
          "pyarrow/libarrow_python_parquet*", "pyarrow/_orc*")


def trl(folder: Path = Path("scratch_trl")) -> None:
    if folder.exists():
        raise SystemExit(f"{folder} is there already: move it away first.")
    inside = folder / "site-packages"
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.12",
                        "--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", "--no-deps", "-d",
                        wheels, *PACKAGES], check=True)
        for wheel in sorted(Path(wheels).glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(inside)
    for pattern in UNUSED:
        for path in inside.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for library in inside.glob("**/*.so*"):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    with tarfile.open(folder.with_name(folder.name + ".tar.xz"), "w:xz", preset=4) as file:
        file.add(folder, arcname=folder.name,
                 filter=lambda entry: None if "__pycache__" in entry.name else entry)


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or sys.exit(__doc__)
    if what == "pack":
        pack(rest[0], Path(rest[1]))
    else:
        {"chat": chat, "tools": tools, "trl": trl}[what](*map(Path, rest))
