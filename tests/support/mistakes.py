"""The corpus of mistakes (assets/mistakes.toml), and what people are told who make them: by the command and
from Python, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import tomllib
import traceback
from pathlib import Path

import postgrad as pg
from postgrad.cli import main

CORPUS = tomllib.loads((Path(__file__).parents[1] / "assets" / "mistakes.toml").read_text(encoding="utf-8"))
MISTAKES = {mistake["name"]: mistake for mistake in CORPUS["mistake"]}
MOST_LINES = 3
SMALL = {"display": False, "evaluation": {"every": 0}}


def stop_at(last):
    """A callback that ends a run as a fault of the machine would."""
    def callback(step, metrics):
        if step == last:
            raise KeyboardInterrupt
    return callback


def make_place(folder):
    """Runs and models that mistakes are about, made once: runs/rl, runs/sft and runs/judge are finished,
    runs/half is not; models/mute has no tokenizer, models/plain no template, models/cut half its
    weights, models/weightless none, models/broken half a config, models/mamba one of another family."""
    rows = [{"question": f"{n}+3?", "answer": str(n + 3)} for n in range(40)]
    chats = [{"prompt": row["question"], "completion": row["answer"]} for row in rows]
    pairs = [{"prompt": row["question"], "chosen": row["answer"], "rejected": "no"} for row in rows]
    runs, models = folder / "runs", folder / "models"
    pg.fit("tiny-chat", "grpo", task=rows, run=runs / "rl", steps=1, prompts_per_step=2, group_size=2,
           rollouts={"max_new_tokens": 4}, display=False, evaluation={"problems": 2})
    pg.fit("tiny-chat", "sft", data=chats, run=runs / "sft", steps=2, rows_per_step=2, **SMALL)
    with contextlib.suppress(KeyboardInterrupt):
        pg.fit("tiny-chat", "sft", data=chats, run=runs / "half", steps=4, rows_per_step=2, save_every=1,
               callback=stop_at(2), **SMALL)
    pg.fit("tiny-chat", "reward", data=pairs, run=runs / "judge", steps=1, pairs={"per_step": 2}, **SMALL)
    for name in ("mute", "plain", "cut", "weightless", "broken", "mamba"):
        pg.load_model("tiny-chat").save(models / name)
    for file in (models / "mute").glob("*token*"):
        file.unlink()
    (models / "plain" / "chat_template.jinja").unlink(missing_ok=True)
    tokens = models / "plain" / "tokenizer_config.json"
    tokens.write_text(json.dumps({key: value for key, value in json.loads(tokens.read_text()).items()
                                  if key != "chat_template"}))
    weights = models / "cut" / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    (models / "weightless" / "model.safetensors").unlink()
    (models / "broken" / "config.json").write_text('{"model_type": ')
    config = json.loads((models / "mamba" / "config.json").read_text()) | {
        "model_type": "mamba", "architectures": ["MambaForCausalLM"]}
    (models / "mamba" / "config.json").write_text(json.dumps(config))
    return folder


def lay_out(mistake, made, here):
    """A folder of its own for a mistake: the files, and what make_place made, by links."""
    for inside in ("runs", "models"):
        (here / inside).mkdir(parents=True)
        for path in (made / inside).iterdir():
            (here / inside / path.name).symlink_to(path)
    for name, text in (CORPUS["files"] | mistake.get("files", {})).items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode())


def make_mistake(mistake, made, here):
    """-> (exit code, what was said). An exception that is no ValueError, TypeError or AttributeError from
    Python, or any from the command, is a traceback."""
    lay_out(mistake, made, here)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(here), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(mistake["command"]) if "command" in mistake else snippet(mistake["python"])
        except Exception:
            code = 1
            traceback.print_exc()
    shutil.rmtree(here)
    return code, out.getvalue() if code == 0 else err.getvalue()


def command(line):
    try:
        return main(shlex.split(line))
    except SystemExit as end:
        return end.code


def snippet(source):
    import sys
    scope = {}
    exec(CORPUS["prelude"], scope)  # noqa: S102 (ours)
    try:
        exec(source, scope)  # noqa: S102
    except (ValueError, TypeError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def faults(mistake, code, said):
    """What is wrong with what was said; nothing where it is as the corpus has it."""
    wanted = mistake.get("code", 2)
    lines = said.strip().splitlines()
    found = [] if code == wanted else [f"exit code {code}"]
    if wanted and len(lines) > MOST_LINES:
        found.append(f"{len(lines)} lines")
    low = said.lower()
    found += [f"no {word!r}" for word in mistake["says"] if word.lower() not in low]
    return found + [f"says {word!r}" for word in mistake.get("never", []) if word.lower() in low]
