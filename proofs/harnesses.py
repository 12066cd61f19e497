"""Standard harnesses against `postgrad serve` and in process: each says what `postgrad eval` says.

    python proofs/harnesses.py [model=tiny-chat] [suite=words] [problems=200] [tokens=64] [ways=all]
                               [folder=runs/proof-harnesses] [python=PYTHON] [inspect=PYTHON]
    python proofs/harnesses.py write [folder=...]      docs/results/harnesses.* of what was measured there

Three ways of lm-eval (in process, local-completions, local-chat-completions) and inspect-ai on the same rows,
greedy, with the same strict reading; their replies are held against `postgrad eval`'s problem by problem. A
way that was measured is not measured again. Both harnesses have environments of their own, FOLDER/venv-NAME,
made here from the package index (inspect-ai's without postgrad: the server is all it knows); python= and
inspect= name others. ways: some of eval, bench, completions, chat, inspect, with commas between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from postgrad.evaluation import task_figures
from postgrad.recipes.benchmarks.suite import judged, suite_of, write_suite
from postgrad.recipes.measuring import Measured
from postgrad.resolve.models import open_folder

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE / "tools"))
import results  # noqa: E402

WAYS = {"eval": "postgrad eval", "bench": "postgrad bench", "completions": "local-completions",
        "chat": "local-chat-completions", "inspect": "inspect-ai"}
FOLDER = "runs/proof-harnesses"
PACKAGES = {"lm-eval": "lm-eval[api]==0.4.13", "inspect": "inspect-ai openai"}
LOCAL = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "OPENAI_API_KEY": "none", "PYTHONPATH": str(HERE),
         "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
AT_ONCE = 16  # replies that are asked for together: as many as the server writes at once


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


class Suite:
    """One task of a suite, for one model: each way gives its figure, and the replies by their problem."""

    def __init__(self, model: str, name: str, problems: int, tokens: int, folder: Path, pythons: dict):
        self.model, self.name, self.problems, self.tokens = model, name, problems, tokens
        self.task = write_suite(folder / "files", [name], problems=problems, seed=0, tokens=tokens)[name]
        self.files, self.pythons = folder / "files", pythons
        self.rows = self.files / f"{self.task.removeprefix('postgrad_')}.jsonl"
        self.place = folder / f"{self.task}-{Path(model).name}-{problems}-{tokens}"
        self.place.mkdir(parents=True, exist_ok=True)

    def eval(self) -> tuple[float, list[str]]:
        asked = Measured(self.name, None, self.problems, 1, "test", 0, self.tokens, 0.0, "cpu", None)
        model = asked.open(self.model)
        drawn = asked.draw(model, asked.open_reward(model), greedy=False)  # at temperature 0
        return task_figures(asked.task, drawn)["pass@1"], [group[0].rollout.text for group in drawn.groups]

    def bench(self) -> tuple[float, None]:
        said = subprocess.run([self.pythons["lm-eval"](), "-m", "postgrad", "bench", self.model, "--suite",
                               self.name, "--problems", str(self.problems), "--max-new-tokens",
                               str(self.tokens), "--json"], check=True, text=True, stdout=subprocess.PIPE,
                              env=os.environ | LOCAL).stdout
        return json.loads(said.splitlines()[-1])["tasks"][0]["value"], None

    def completions(self) -> tuple[float, list[str]]:
        return self.lm_eval("local-completions", "completions",
                            f",tokenizer_backend=huggingface,tokenizer={open_folder(self.model)}")

    def chat(self) -> tuple[float, list[str]]:
        return self.lm_eval("local-chat-completions", "chat/completions")

    def lm_eval(self, kind: str, path: str, more: str = "") -> tuple[float, list[str]]:
        out = self.place / kind
        with served(self.model) as url:
            args = (f"model=policy,base_url={url}/{path},num_concurrent={AT_ONCE},max_retries=1,timeout=3600"
                    f"{more}")
            subprocess.run([self.pythons["lm-eval"](), "-m", "lm_eval", "--model", kind, "--model_args", args,
                            "--tasks", self.task, "--include_path", self.files, "--apply_chat_template",
                            "--output_path", out, "--log_samples"], check=True, env=os.environ | LOCAL,
                           stdout=subprocess.DEVNULL)
        newest = {kind: max(out.rglob(f"{kind}_*.json*"), key=os.path.getmtime)
                  for kind in ("results", "samples")}
        said = [json.loads(line) for line in newest["samples"].read_text().splitlines()]
        figure = json.loads(newest["results"].read_text())["results"][self.task]["strict,none"]
        return figure, in_order([(row["doc"]["number"], row["resps"][0][0]) for row in said])

    def inspect(self) -> tuple[float, list[str]]:
        replies = (self.place / "replies.jsonl").resolve()
        replies.unlink(missing_ok=True)
        with served(self.model) as url:
            env = {"POSTGRAD_BASE_URL": url, "POSTGRAD_API_KEY": "none", "ROWS": str(self.rows.resolve()),
                   "REPLIES": str(replies), "TOKENS": str(self.tokens)}
            subprocess.run([self.pythons["inspect"](), "-m", "inspect_ai", "eval", "inspect_suite.py",
                            "--model", "openai-api/postgrad/policy", "--display", "plain", "--log-dir",
                            (self.place / "inspect").resolve()], check=True, env=os.environ | LOCAL | env,
                           stdout=subprocess.DEVNULL, cwd=HERE / "proofs" / "elsewhere")
        docs = [json.loads(line) for line in self.rows.read_text().splitlines()]
        said = in_order([json.loads(line) for line in replies.read_text().splitlines()])
        return sum(map(judged, docs, said)) / len(docs), said

    def measure(self, ways: list[str]) -> None:
        for way in ways:
            path = self.place / f"{way}.json"
            if not path.exists():
                figure, replies = getattr(self, way)()
                path.write_text(json.dumps({"figure": figure, "replies": replies}, indent=1))
            print(self.task, way, json.loads(path.read_text())["figure"], flush=True)
        (self.place / "asked.json").write_text(json.dumps(
            {"task": self.task, "model": self.model, "problems": self.problems, "tokens": self.tokens,
             "command": f"python proofs/harnesses.py model={self.model} suite={self.name} "
                        f"problems={self.problems} tokens={self.tokens}"}))


def in_order(said: list) -> list[str]:
    """Replies with the number of their problem -> the replies, one to each problem."""
    numbers = sorted(number for number, _ in said)
    assert numbers == list(range(len(said))), f"not one reply to each problem: {numbers}"
    return [reply for _, reply in sorted(said)]


def main(model="tiny-chat", suite="words", problems="200", tokens="64", ways="all", folder=FOLDER,
         python=None, inspect=None) -> None:
    place = Path(folder)
    pythons: dict[str, Callable] = {
        "lm-eval": lambda: Path(python) if python else python_of("lm-eval", place, behind=True),
        "inspect": lambda: Path(inspect) if inspect else python_of("inspect", place, behind=False)}
    for name in suite_of(suite):
        Suite(model, name, int(problems), int(tokens), place, pythons).measure(
            list(WAYS) if ways == "all" else ways.split(","))
    write(folder)


def row_of(place: Path) -> dict:
    """What was measured of one task and model. equal: all figures are one, and so are the replies."""
    row = json.loads((place / "asked.json").read_text())
    found = {way: json.loads(path.read_text()) for way in WAYS if (path := place / f"{way}.json").exists()}
    ours = found["eval"]["replies"]
    row |= {name: found[way]["figure"] if way in found else None for way, name in WAYS.items()}
    row["replies that differ"] = sum(a != b for way in found.values() if way["replies"]
                                     for a, b in zip(ours, way["replies"], strict=True))
    row["equal"] = (len(found) > 1 and not row["replies that differ"]
                    and len({round(way["figure"], 12) for way in found.values()}) == 1)
    return row


def write(folder=FOLDER, **where) -> None:
    found = [row_of(path.parent) for path in sorted(Path(folder).glob("*/asked.json"))]
    bars = []
    for row in found:
        ways, apart = [name for name in WAYS.values() if row[name] is not None], row["replies that differ"]
        bars.append(results.bar(f"{row['task']}, {row['problems']} problems, {row['model']}: "
                                f"{', '.join(ways)}", "one figure, and the same replies",
                                f"{' '.join(f'{row[name]:g}' for name in ways)}; {apart} replies differ",
                                row["equal"], row.pop("command")))
    results.write("harnesses", "Standard harnesses", bars, seeds=[0], tables={"Figures": found}, **where)


if __name__ == "__main__":
    words = sys.argv[1:]
    (write if words[:1] == ["write"] else main)(**dict(word.split("=", 1) for word in words if "=" in word))
