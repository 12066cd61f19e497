"""The endpoint against the sampler that it stands on: bits, throughput, nonsense, dropped connections (a part
of environments.py); and standard harnesses against it, each of which says what `postgrad eval` says.

    python proofs/endpoint.py [words] [model=tiny-chat] [suite=words] [problems=200] [tokens=64] [ways=all]
    python proofs/endpoint.py gsm8k [data=data/gsm8k]

Three ways of lm-eval (in process, local-completions, local-chat-completions) and inspect-ai on the same rows,
greedy, with the same strict reading; their replies are held against `postgrad eval`'s problem by problem. A
way that was measured is not measured again. Both harnesses have environments of their own, FOLDER/venv-NAME,
made here from the package index. ways: some of eval, bench, completions, chat, inspect, with commas between.
gsm8k: runs/smollm2-gsm8k is SmolLM2 after 21 of the 40 steps of postgrad train sft:gsm8k
task=gsm8k:data/gsm8k model=models/smollm2 optim.adapter.lora=8 rows_per_step=8 examples=400 steps=40.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from harness import (
    COMPUTES,
    HOME,
    Bars,
    Page,
    Tables,
    bar,
    environment,
    once,
    own_python,
    read_lines,
    rooms,
    served,
)

from postgrad.data.tasks import load_task
from postgrad.evaluation import task_figures
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.recipes.benchmarks.suite import score_reply, suite_tasks, write_suite
from postgrad.recipes.measuring import Evaluator
from postgrad.resolve.models import open_folder
from postgrad.sampling import LocalSampler, Sampling

CLIENTS, EACH, ROWS, ROUNDS = 64, 4, 32, 3
CLIENT = """
import asyncio, json, sys, httpx
port, bodies = int(sys.argv[1]), json.load(sys.stdin)
async def one(http, mine):
    return [(await http.post("/v1/chat/completions", json=body)).json() for body in mine]
async def main():
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600, limits=limits) as http:
        await http.get("/health")
        print("ready", flush=True)
        replies = await asyncio.gather(*(one(http, mine) for mine in bodies))
    print(json.dumps(replies), flush=True)
asyncio.run(main())
"""


def ask(port: int, bodies: list[list[dict]]) -> tuple[list[list[dict]], float]:
    """Every client's replies to its requests, one after the other, all clients at once; and the seconds."""
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(port)], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(bodies))
        process.stdin.close()
        assert process.stdout.readline() == "ready\n"
        began = time.perf_counter()
        replies = json.loads(process.stdout.readline())
        return replies, time.perf_counter() - began


def tiny() -> tuple:
    return load_model("tiny-chat").requires_grad_(False), Chat.load(find_model("tiny-chat"))


def throughput(port: int) -> dict:
    """Tokens a second of the same requests, by the sampler alone and through the endpoint: the medians of the
    ratios of rounds taken turn by turn, by the clock and by this process's processor time."""
    settings = Sampling(max_new_tokens=96, temperature=1.3)
    prompts = load_task("words").prompts("test", CLIENTS * EACH, 0)
    sampler = LocalSampler(*tiny(), max_concurrent=ROWS)
    groups = sampler.sample(prompts, 1, settings, 7)
    how = {"max_tokens": settings.max_new_tokens, "temperature": settings.temperature}
    bodies = [[{"messages": [dict(m) for m in r.prompt.messages], "seed": r.seed} | how
               for (r,) in groups[i::CLIENTS]] for i in range(CLIENTS)]
    rounds = []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        groups = sampler.sample(prompts, 1, settings, 7)
        alone, used_alone, used = time.perf_counter() - began, time.process_time() - used, time.process_time()
        replies, seconds = ask(port, bodies)
        rounds.append((alone, seconds, used_alone, time.process_time() - used))
    wrong = sum(reply["choices"][0]["message"]["content"] != r.text
                for i, mine in enumerate(replies)
                for reply, (r,) in zip(mine, groups[i::CLIENTS], strict=True))
    tokens = sum(len(r.tokens) for (r,) in groups)
    assert tokens == sum(reply["usage"]["completion_tokens"] for mine in replies for reply in mine)
    middle = lambda a, b: sorted(row[a] / row[b] for row in rounds)[ROUNDS // 2]  # noqa: E731
    return {"wrong": wrong, "ratio": middle(0, 1), "cpu": middle(2, 3),
            "sampler": tokens / min(row[0] for row in rounds),
            "endpoint": tokens / min(row[1] for row in rounds)}


def serving(folder: Path) -> Bars:
    from serve_small import on_a_socket, served
    with on_a_socket(served(rows=ROWS, waiting=512)) as port:
        speed = throughput(port)
    return [bar("throughput of the endpoint, 64 clients at once, against the sampler's own, "
                f"{ROWS} rows each", ">= 0.8",
                f"{speed['ratio']:.2f} ({speed['endpoint']:,.0f} of {speed['sampler']:,.0f} tokens a second; "
                f"{speed['cpu']:.2f} by processor time)", speed["ratio"] >= 0.8),
            bar("replies to 64 clients at once that are not the sampler's own text for their seed",
                "0 of 256", f"{speed['wrong']} of {CLIENTS * EACH}", not speed["wrong"])]


# standard harnesses

WAYS = {"eval": "postgrad eval", "bench": "postgrad bench", "completions": "local-completions",
        "chat": "local-chat-completions", "inspect": "inspect-ai"}
PACKAGES = {"lm-eval": ["lm-eval[api]==0.4.13"], "inspect": ["inspect-ai", "openai"]}
LOCAL = environment(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1", OPENAI_API_KEY="none",
                    HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1")
AT_ONCE = 16  # replies that are asked for together: as many as the server writes at once


def serve(model: str):
    return served("serve", model, "--name", "policy", "--port", "0")


class Suite:
    """One task of a suite, for one model: each way gives its figure, and the replies by their problem."""

    def __init__(self, model: str, name: str, problems: int, tokens: int, folder: Path):
        self.model, self.name, self.problems, self.tokens = model, name, problems, tokens
        self.task = write_suite(folder / "files", [name], problems=problems, seed=0, tokens=tokens)[name]
        self.folder, self.files = folder, folder / "files"
        self.place = folder / f"{self.task}-{Path(model).name}-{problems}-{tokens}"

    def child(self, package: str, *words: object, env: dict | None = None, **how) -> str:
        """What the package says, in its own environment; inspect-ai's is without postgrad."""
        own = own_python(self.folder / f"venv-{package}", PACKAGES[package], behind=package == "lm-eval")
        return subprocess.run([own, "-m", *map(str, words)], check=True, text=True, stdout=subprocess.PIPE,
                              env=LOCAL | (env or {}), **how).stdout

    def eval(self) -> tuple[float, list[str]]:
        asked = Evaluator(self.name, None, self.problems, 1, "test", 0, self.tokens, 0.0, "cpu", None)
        model = asked.open(self.model)
        drawn = asked.draw(model, asked.open_reward(model), greedy=False)  # at temperature 0
        return task_figures(asked.task, drawn)["pass@1"], [group[0].rollout.text for group in drawn.groups]

    def bench(self) -> tuple[float, None]:
        printed = self.child("lm-eval", "postgrad", "bench", self.model, "--suite", self.name, "--problems",
                          self.problems, "--max-new-tokens", self.tokens, "--json")
        return json.loads(printed.splitlines()[-1])["tasks"][0]["value"], None

    def completions(self) -> tuple[float, list[str]]:
        return self.lm_eval("local-completions", "completions",
                            f",tokenizer_backend=huggingface,tokenizer={open_folder(self.model)}")

    def chat(self) -> tuple[float, list[str]]:
        return self.lm_eval("local-chat-completions", "chat/completions")

    def lm_eval(self, kind: str, path: str, more: str = "") -> tuple[float, list[str]]:
        out = self.place / kind
        with serve(self.model) as url:
            args = (f"model=policy,base_url={url}/{path},num_concurrent={AT_ONCE},max_retries=1,timeout=3600"
                    f"{more}")
            self.child("lm-eval", "lm_eval", "--model", kind, "--model_args", args, "--tasks", self.task,
                       "--include_path", self.files, "--apply_chat_template", "--output_path", out,
                       "--log_samples")
        newest = {kind: max(out.rglob(f"{kind}_*.json*"), key=os.path.getmtime)
                  for kind in ("results", "samples")}
        figure = json.loads(newest["results"].read_text())["results"][self.task]["strict,none"]
        return figure, in_order([(row["doc"]["number"], row["resps"][0][0])
                                 for row in read_lines(newest["samples"])])

    def inspect(self) -> tuple[float, list[str]]:
        replies = (self.place / "replies.jsonl").resolve()
        rows = (self.files / f"{self.task.removeprefix('postgrad_')}.jsonl").resolve()
        replies.unlink(missing_ok=True)
        with serve(self.model) as url:
            self.child("inspect", "inspect_ai", "eval", "inspect_suite.py", "--model",
                       "openai-api/postgrad/policy", "--display", "plain", "--log-dir",
                       (self.place / "inspect").resolve(), cwd=HOME / "examples" / "environments",
                       env={"POSTGRAD_BASE_URL": url, "POSTGRAD_API_KEY": "none", "ROWS": str(rows),
                            "REPLIES": str(replies), "TOKENS": str(self.tokens)})
        docs, texts = read_lines(rows), in_order(read_lines(replies))
        return sum(map(score_reply, docs, texts)) / len(docs), texts


def in_order(replies: list) -> list[str]:
    """(problem's number, reply) pairs -> the replies, one to each problem."""
    numbers = sorted(number for number, _ in replies)
    assert numbers == list(range(len(replies))), f"not one reply to each problem: {numbers}"
    return [reply for _, reply in sorted(replies)]


def harnesses(folder: Path, model: str = "tiny-chat", suite: str = "words", problems: str = "200",
              tokens: str = "64", ways: str = ",".join(WAYS)) -> tuple[Bars, Tables]:
    """Each way's figure of each task, and how many replies differ from `postgrad eval`'s."""
    bars, rows = [], []
    for name in suite_tasks(suite):
        one = Suite(model, name, int(problems), int(tokens), folder)
        figures = {way: once(one.place / f"{way}.json", getattr(one, way)) for way in WAYS
                   if way in ways.split(",") or (one.place / f"{way}.json").exists()}
        _, ours = figures["eval"]
        differ = sum(a != b for _, replies in figures.values() if replies
                     for a, b in zip(ours, replies, strict=True))
        equal = len(figures) > 1 and len({round(figure, 12) for figure, _ in figures.values()}) == 1
        rows.append({"task": one.task, "model": model, "problems": int(problems), "tokens": int(tokens),
                     **{label: figures[way][0] if way in figures else None for way, label in WAYS.items()},
                     "replies that differ": differ, "equal": equal and not differ})
        bars.append(bar(f"{one.task}, {problems} problems, {model}: {', '.join(WAYS[w] for w in figures)}",
                        "1 figure, 0 replies differ",
                        f"{' '.join(f'{figure:g}' for figure, _ in figures.values())}; {differ} replies "
                        "differ", rows[-1]["equal"]))
    return bars, {f"Figures: {suite.partition(':')[0]}": rows}


def gsm8k(folder: Path, data: str = "data/gsm8k") -> tuple[Bars, Tables]:
    return harnesses(folder, "runs/smollm2-gsm8k", f"gsm8k:{data}", tokens="200", ways="eval,chat")


PAGE = Page("harnesses", "Standard harnesses", {"gsm8k": gsm8k, "words": harnesses}, [0], apart=("gsm8k",),
            paths=(*COMPUTES, *rooms("serving", "evaluation")))

if __name__ == "__main__":
    PAGE.main()
