"""At home in the ecosystem: trackers with their real packages, model cards, GGUF files.

    python proofs/ecosystem.py [PART ...]    the four trackers in an environment of theirs, minutes to install
    python proofs/ecosystem.py llama         in llama.cpp's binding, which pip builds: tens of minutes
    python proofs/ecosystem.py pages         on a quiet machine; page-tests needs chromium
    python proofs/ecosystem.py ranks gloo kills ahead    many ranks; kills takes half an hour
    python proofs/ecosystem.py slurm         with Debian's slurm-wlm and munge installed, as root
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

from harness import HOME, Bars, Page, Tables, bar, environment, own_python, postgrad, read_lines
from distribution import PARTS as DISTRIBUTION
from distribution import wait_until
from families import PARTS as FAMILIES
from many_ranks import PARTS as MANY_RANKS
from published import PARTS as PUBLISHED
from run_pages import PARTS as RUN_PAGES

TRACKERS = ("trackio", "wandb", "tensorboard", "mlflow")
TRAINING = ("grpo:words steps=12 prompts=8 prompts_per_step=2 group_size=2 rollouts.max_new_tokens=8 "
            "save_every=3 evaluation.every=4 evaluation.problems=4 evaluation.samples=2 device=cpu").split()
COMPARE = """
import json, sys
from pathlib import Path
from tracker_small import compare
from postgrad.runs import Run
print(json.dumps(compare(sys.argv[1], Run.open(sys.argv[2]), Path(sys.argv[3]))))
"""
QUESTIONS = 20


def steps_in(run: Path) -> int:
    return len(read_lines(run / "metrics.jsonl"))


def killed_twice(python: Path, name: str, place: Path) -> dict:
    """A run with a tracker beside it, whose process is killed after some steps; then the training is killed
    too, and resumed with the tracker. -> what the tracker has, against the run's logs."""
    from tracker_small import environment_of

    from postgrad.runs.disk import holder
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run, env = place / "run", environment(**environment_of(place))
    env["PYTHONPATH"] = os.pathsep.join([str(HOME), str(HOME / "tests/support")])
    words = [python, "-m", "postgrad"]
    with (place / "training.log").open("w") as log:
        training = subprocess.Popen([*words, "train", *TRAINING, f"track={name}", "--run", run, "--json"],
                                    cwd=place, env=env, stdout=log, stderr=log)
        lock = run / "trackers" / f"{name}.lock"
        wait_until(lambda: lock.exists() and holder(lock) and steps_in(run) >= 2)
        os.killpg(holder(lock), signal.SIGKILL)
        after = steps_in(run)
        wait_until(lambda: steps_in(run) >= min(after + 3, 11) or training.poll() is not None)
        alive = training.poll() is None
        training.kill()
        training.wait()
        lost = steps_in(run)
        subprocess.run([*words, "resume", run, f"track={name}", "--json"], cwd=place, env=env, check=True,
                       stdout=log, stderr=log)
    done = subprocess.run([python, "-c", COMPARE, name, run, place], cwd=place, env=env, check=True,
                          text=True, capture_output=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"alive": alive, "killed at": lost}


def tracker(name: str, folder: Path) -> tuple[Bars, Tables]:
    """A tracker's package, in an environment of all four."""
    python = own_python(folder.parent / "venv-trackers", list(TRACKERS))
    version = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{name}'))"],
                             text=True, capture_output=True, check=True).stdout.strip()
    found = killed_twice(python, name, folder / name)
    good = (found["alive"] and found["rollouts_equal"] and found["points"] == found["read"]
            and not any(found[key] for key in ("missing", "twice", "unknown", "different")))
    return [bar(f"{name}: tracker killed (-9), then the training; resumed with it",
                "every point of metrics.jsonl and evals.jsonl once, equal; all rollouts; the killed tracker "
                "did not end the training",
                f"{found['read']} of {found['points']} points, {found['missing']} missing, {found['twice']} "
                f"twice, {found['different']} different, {found['rollouts']} rollouts"
                f"{'' if found['rollouts_equal'] else ' NOT equal'}", good)
            ], {f"{name}, killed and resumed": [{"version": version, **found}]}


def card(folder: Path) -> tuple[Bars, Tables]:
    """The card of a small run, read by huggingface_hub."""
    from huggingface_hub import ModelCard

    from postgrad.runs import Run
    run = folder / "run"
    if not run.exists():
        postgrad("train", *TRAINING, "seed=3", "--run", run)
    made = postgrad("push", run, "me/words", "--dry-run")
    read, last = ModelCard(made["card"]), Run.open(run).rows("evals")[0][-1]
    results = {result.metric_type: result for result in read.data.eval_results}
    equal = sum(result.metric_value == last[name] for name, result in results.items())
    intervals = [name for name in results if f"{name}_interval" in last]
    kept = sum(results[name].metric_args["interval"] == last[f"{name}_interval"] for name in intervals)
    return [bar("push --dry-run: the card as huggingface_hub reads it",
                "every figure of the last evaluation and every interval equal in model-index; a licence",
                f"{equal} of {len(results)} figures, {kept} of {len(intervals)} intervals, licence "
                f"{read.data.license}", equal == len(results) > 0 and kept == len(intervals) > 0
                and read.data.license)], {}


def questions() -> list[str]:
    from postgrad.resolve.tasks import open_task
    return [prompt.question for prompt in open_task("words").prompts("test", QUESTIONS, 0)]


def greedy_texts(model: str) -> list[str]:
    from postgrad.resolve.models import open_named_model
    opened = open_named_model(model, "cpu")
    return [opened.reply(question, max_new_tokens=64, temperature=0.0) for question in questions()]


def perplexity(model: str, texts: list[tuple[str, str]]) -> float:
    """Of the replies of another model to the questions."""
    import torch

    from postgrad.models import load_model
    from postgrad.models.chat import Chat
    network, chat, total, count = load_model(model), Chat.load(Path(model)), 0.0, 0
    for question, reply in texts:
        head = chat.render([{"role": "user", "content": question}])
        tokens = [*head, *chat.encode(reply)]
        with torch.no_grad():
            logp = network.logits(torch.tensor([tokens]))[0].log_softmax(-1)
        for at in range(len(head), len(tokens)):
            total, count = total - float(logp[at - 1, tokens[at]]), count + 1
    return math.exp(total / count)


def export(folder: Path, kind: str) -> Path:
    """tiny-chat as a GGUF file of a kind, and that file as a folder again."""
    for path in (folder / f"{kind}.gguf", folder / kind):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    postgrad("export", "tiny-chat", "--gguf", kind, "--out", folder / f"{kind}.gguf")
    postgrad("fetch", folder / f"{kind}.gguf", "--out", folder / kind)
    return folder / kind


def gguf(folder: Path) -> tuple[Bars, Tables]:
    """tiny-chat out as GGUF and in again by our own reader."""
    from postgrad.models import load_model
    half = export(folder, "f16")
    ours = dict(load_model("tiny-chat").named_parameters())
    unequal = sum(int((x != (ours[name].half().float() if x.dim() == 2 else ours[name])).sum())
                  for name, x in load_model(half).named_parameters())
    shutil.rmtree(folder / "hf", ignore_errors=True)
    postgrad("export", "tiny-chat", "--dtype", "fp16", "--out", folder / "hf")
    wanted, got = greedy_texts(str(folder / "hf")), greedy_texts(str(half))
    same = sum(x == y for x, y in zip(wanted, got, strict=True))
    texts = list(zip(questions(), wanted, strict=True))
    base, rows = perplexity(str(folder / "hf"), texts), []
    for kind in ("f16", "q8_0", "q4_0"):
        place = half if kind == "f16" else export(folder, kind)
        rows.append({"file": kind, "MB": round((folder / f"{kind}.gguf").stat().st_size / 1e6, 2),
                     "perplexity": round(perplexity(str(place), texts), 5),
                     "against f16": f"{perplexity(str(place), texts) / base - 1:+.3%}"})
    eight = abs(rows[1]["perplexity"] / base - 1)
    return [bar("tiny-chat as f16, read again: weights", "0 unequal after rounding to 16 bits",
                f"{unequal} unequal", not unequal),
            bar("tiny-chat as f16, read again: greedy texts of 64 tokens",
                f"{QUESTIONS} of {QUESTIONS} equal", f"{same} of {QUESTIONS}", same == QUESTIONS),
            bar("tiny-chat as q8_0: perplexity of its own replies", "within 1 % of f16", f"{eight:.3%}",
                eight <= 0.01)], {"GGUF files of tiny-chat": rows}


LLAMA = """
import json, sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=512, logits_all=False, verbose=False, n_threads=1)
out = []
for prompt in json.load(sys.stdin):
    ids = []
    model.reset()
    for token in model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
        ids.append(token)
        if token == model.token_eos() or len(ids) == 64:
            break
    out.append(ids)
print(json.dumps({"ids": out, "tokens": [model.tokenize(t.encode(), add_bos=False, special=True)
                                          for t in json.loads(sys.argv[2])]}))
"""


def llama(folder: Path) -> tuple[Bars, Tables]:
    """The files in llama.cpp's binding, in an environment of its own."""
    import torch

    from postgrad.models import load_model
    from postgrad.models.chat import Chat
    python = own_python(folder / "venv", ["llama-cpp-python"], behind=False)
    half = export(folder, "f16")
    network, chat = load_model(half), Chat.load(half)
    prompts = [chat.render([{"role": "user", "content": question}]) for question in questions()]
    texts = [*questions(), "Don't  stop\n1234 naïve 数学"]
    done = subprocess.run([python, "-c", LLAMA, folder / "f16.gguf", json.dumps(texts)], check=True,
                          text=True, input=json.dumps(prompts), capture_output=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    equal, close = 0, 0
    for prompt, theirs in zip(prompts, answer["ids"], strict=True):
        with torch.no_grad():
            logits = network.logits(torch.tensor([[*prompt, *theirs]]))[0]
        best = logits.topk(2).values
        at = [len(prompt) + i - 1 for i in range(len(theirs))]
        wrong = [i for i, place in enumerate(at) if int(logits[place].argmax()) != theirs[i]]
        equal += not wrong
        close += all(float(best[at[i], 0] - logits[at[i], theirs[i]]) <= 1e-3 for i in wrong)
    words = sum(chat.encode(text) == ids for text, ids in zip(texts, answer["tokens"], strict=True))
    return [bar("tiny-chat as f16 in llama.cpp: greedy texts of 64 tokens",
                f"{QUESTIONS} of {QUESTIONS} equal wherever the margin of the best two is above 1e-3",
                f"{close} of {QUESTIONS}; to the last token {equal}", close == QUESTIONS),
            bar("tiny-chat as f16 in llama.cpp: tokens of texts", f"{len(texts)} of {len(texts)} equal",
                f"{words} of {len(texts)}", words == len(texts))], {}


PAGE = Page("ecosystem", "At home in the ecosystem",
            {**{name: partial(tracker, name) for name in TRACKERS},
             "card": card, "gguf": gguf, "llama": llama, **FAMILIES, **DISTRIBUTION, **MANY_RANKS,
             **PUBLISHED, **RUN_PAGES},
            seeds=[0, 3], apart=("llama", "slurm"),
            paths=("postgrad/runs/follow.py", "postgrad/runs/backends.py", "postgrad/runs/frame.py",
                   "postgrad/models/gguf.py", "postgrad/models/gguf_write.py", "postgrad/recipes/export.py",
                   "postgrad/recipes/model_card.py", "postgrad/recipes/publish.py",
                   "postgrad/recipes/launchers.py", "tools/image.sh", "skills", "pyproject.toml"))

if __name__ == "__main__":
    PAGE.main()
