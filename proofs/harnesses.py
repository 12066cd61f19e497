"""Standard harnesses against `postgrad serve` and in process: each says what `postgrad eval` says.

    python proofs/harnesses.py [model=tiny-chat] [suite=words] [problems=200] [tokens=64]
                               [folder=runs/proof-harnesses] [python=PYTHON] [inspect=PYTHON]

writes docs/results/harnesses.*.

Three ways of lm-eval (in process, local-completions, local-chat-completions) and inspect-ai on the same rows,
greedy, with the same strict reading. Both have environments of their own, FOLDER/venv-NAME, made here from
the package index (inspect-ai's without postgrad: the server is all it knows); python= and inspect= name
others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

from postgrad.benchmarks.suite import judged, suite_of, write_suite
from postgrad.recipes.measuring import evaluate

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE / "tools"))
import results  # noqa: E402

WAYS = ("postgrad eval", "postgrad bench", "local-completions", "local-chat-completions", "inspect-ai")
PACKAGES = {"lm-eval": "lm-eval[api]==0.4.13", "inspect": "inspect-ai openai"}


def python_of(name: str, folder: Path, behind: bool) -> Path:
    """The Python of a harness's environment. behind: what this Python has is seen in it too."""
    place = (folder / f"venv-{name}").resolve()
    if not (place / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES[name].split()],
                       check=True)
        if behind:
            seen = next((place / "lib").glob("python3*/site-packages")) / "zz_behind.pth"
            seen.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "bin" / "python"


@contextmanager
def served(model: str):
    """The address of the server."""
    server = subprocess.Popen([sys.executable, "-m", "postgrad", "serve", model, "--name", "policy", "--port",
                               "0", "--json"], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONPATH": str(HERE)})
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait()


def lm_eval(python: Path, kind: str, url: str, files: Path, task: str, tokenizer: Path, out: Path) -> float:
    path = {"local-completions": "completions", "local-chat-completions": "chat/completions"}[kind]
    args = f"model=policy,base_url={url}/{path},num_concurrent=4,max_retries=1"
    if kind == "local-completions":
        args += f",tokenizer_backend=huggingface,tokenizer={tokenizer}"
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "OPENAI_API_KEY": "none",
             "PYTHONPATH": str(HERE), "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([python, "-m", "lm_eval", "--model", kind, "--model_args", args, "--tasks", task,
                    "--include_path", files, "--apply_chat_template", "--output_path", out / kind],
                   check=True, env=os.environ | local, stdout=subprocess.DEVNULL)
    found = max((out / kind).rglob("results_*.json"), key=os.path.getmtime)
    return json.loads(found.read_text())["results"][task]["strict,none"]


def inspect(python: Path, url: str, rows: Path, tokens: int, folder: Path) -> float:
    replies = (folder / "replies.jsonl").resolve()
    replies.unlink(missing_ok=True)
    env = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "POSTGRAD_BASE_URL": url,
           "POSTGRAD_API_KEY": "none", "ROWS": str(rows.resolve()), "REPLIES": str(replies),
           "TOKENS": str(tokens)}
    subprocess.run([python, "-m", "inspect_ai", "eval", "inspect_suite.py", "--model",
                    "openai-api/postgrad/policy", "--display", "plain", "--log-dir",
                    (folder / "inspect").resolve()], check=True, env=os.environ | env,
                   stdout=subprocess.DEVNULL, cwd=HERE / "proofs" / "elsewhere")
    docs = [json.loads(line) for line in rows.read_text().splitlines()]
    said = [json.loads(line) for line in replies.read_text().splitlines()]
    assert sorted(number for number, _ in said) == list(range(len(docs)))
    return sum(judged(docs[number], reply) for number, reply in said) / len(said)


def main(model="tiny-chat", suite="words", problems="200", tokens="64", folder="runs/proof-harnesses",
         python=None, inspect_python=None):
    folder, problems, tokens = Path(folder), int(problems), int(tokens)
    lm = Path(python) if python else python_of("lm-eval", folder, behind=True)
    other = Path(inspect_python) if inspect_python else python_of("inspect", folder, behind=False)
    names, found = suite_of(suite), []
    called = write_suite(folder / "files", names, problems=problems, seed=0, tokens=tokens)
    from postgrad.opening.models import open_folder
    for name, task in called.items():
        rows = folder / "files" / f"{task.removeprefix('postgrad_')}.jsonl"
        row = {"task": task, "problems": problems,
               "postgrad eval": evaluate(model, name, problems=problems, samples=1, max_new_tokens=tokens,
                                         watch=None)["greedy"]}
        said = subprocess.run([lm, "-m", "postgrad", "bench", model, "--suite", name, "--problems",
                               str(problems), "--max-new-tokens", str(tokens), "--json"], check=True,
                              text=True, stdout=subprocess.PIPE,
                              env=os.environ | {"PYTHONPATH": str(HERE)}).stdout
        row["postgrad bench"] = json.loads(said.splitlines()[-1])["tasks"][0]["value"]
        with served(model) as url:
            for kind in ("local-completions", "local-chat-completions"):
                row[kind] = lm_eval(lm, kind, url, folder / "files", task, open_folder(model), folder)
            row["inspect-ai"] = inspect(other, url, rows, tokens, folder)
        row["equal"] = len({round(row[way], 12) for way in WAYS}) == 1
        found.append(row)
        print(json.dumps(row), flush=True)
    write(model, found, f"python proofs/harnesses.py model={model} suite={suite} problems={problems}")


def write(model: str, found: list[dict], command: str, **where) -> None:
    bars = [results.bar(f"{row['task']}, {row['problems']} problems, {model}: postgrad eval, postgrad bench, "
                        "lm-eval's local-completions and local-chat-completions, inspect-ai", "one figure",
                        " ".join(f"{row[way]:g}" for way in WAYS), row["equal"], command) for row in found]
    results.write("harnesses", "Standard harnesses", bars, seeds=[0], tables={"Figures": found}, **where)


if __name__ == "__main__":
    words = dict(word.split("=", 1) for word in sys.argv[1:])
    main(**{("inspect_python" if k == "inspect" else k): v for k, v in words.items()})
