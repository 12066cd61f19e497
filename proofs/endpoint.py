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
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from harness import HOME, Bars, Page, Tables, bar, environment, once, own_python, read_lines

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
        said = await asyncio.gather(*(one(http, mine) for mine in bodies))
    print(json.dumps(said), flush=True)
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
        said = json.loads(process.stdout.readline())
        return said, time.perf_counter() - began


def tiny() -> tuple:
    from postgrad.models import find_model, load_model
    from postgrad.models.chat import Chat
    return load_model("tiny-chat").requires_grad_(False), Chat.load(find_model("tiny-chat"))


def throughput(port: int) -> tuple[dict, list]:
    """Tokens a second of the same requests, by the sampler alone and through the endpoint: the medians of the
    ratios of rounds taken turn by turn, by the clock and by this process's processor time."""
    from postgrad.data.tasks import load_task
    from postgrad.sampling import LocalSampler, Sampling
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
        said, seconds = ask(port, bodies)
        rounds.append((alone, seconds, used_alone, time.process_time() - used))
    wrong = sum(reply["choices"][0]["message"]["content"] != r.text
                for i, mine in enumerate(said) for reply, (r,) in zip(mine, groups[i::CLIENTS], strict=True))
    tokens = sum(len(r.tokens) for (r,) in groups)
    assert tokens == sum(reply["usage"]["completion_tokens"] for mine in said for reply in mine)
    middle = lambda a, b: sorted(row[a] / row[b] for row in rounds)[ROUNDS // 2]  # noqa: E731
    return {"wrong": wrong, "ratio": middle(0, 1), "cpu": middle(2, 3),
            "sampler": tokens / min(row[0] for row in rounds),
            "endpoint": tokens / min(row[1] for row in rounds)}, bodies


def mixed_up(port: int, bodies: list[list[dict]]) -> int:
    """Replies to 64 clients at once that are not, bit for bit, those that each one's seed gives alone."""
    first = [[mine[0] | {"logprobs": True}] for mine in bodies]
    together, _ = ask(port, first)
    alone = [ask(port, [mine])[0][0] for mine in first[::8]]
    return sum(a[0]["choices"] != b[0]["choices"] for a, b in zip(alone, together[::8], strict=True))


def echoed(port: int) -> float:
    """How far the log-probs of echoed prompts are from the trainer's, at most."""
    import httpx
    import torch

    from postgrad.data.tasks import load_task
    (model, chat), far = tiny(), 0.0
    for prompt in load_task("words").prompts("test", 32, 1):
        tokens = chat.render(prompt.messages)
        body = {"prompt": [tokens], "max_tokens": 1, "echo": True, "logprobs": 1}
        said = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body).json()
        mask = torch.arange(len(tokens))[None] > 0
        wanted = model.logp(torch.tensor([tokens]), mask)[0][mask]
        told = torch.tensor(said["choices"][0]["logprobs"]["token_logprobs"][1:-1])
        far = max(far, float((told - wanted).abs().max()))
    return far


def nonsense(port: int, count: int) -> dict[str, int]:
    """Answers to requests that make no sense, by what they are."""
    import httpx
    from serve_fuzz import malformed
    found: Counter[str] = Counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        for method, path, content in malformed(seed=2, count=count):
            answer = http.request(method, path, content=content)
            sound = 400 <= answer.status_code < 500 and answer.json()["error"]["message"].endswith(".")
            found["sound" if sound else str(answer.status_code)] += 1
    return dict(found)


def dropped(port: int, what, count: int) -> bool:
    """Connections that are closed while their replies are written or wait; -> whether all slots are free."""
    import httpx
    from serve_small import ASK, idle
    for i in range(count):
        body = json.dumps({"messages": ASK, "max_tokens": 150, "ignore_eos": True, "n": 1 + i % 3,
                           "stream": i % 2 == 0})
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            if i % 4 == 0:
                link.recv(1000)
            if i % 4 == 1:
                httpx.get(f"http://127.0.0.1:{port}/health")
    until = time.monotonic() + 60
    while not idle(what) and time.monotonic() < until:
        httpx.get(f"http://127.0.0.1:{port}/health")
    return idle(what)


def serving(folder: Path) -> Bars:
    import httpx
    from serve_small import on_a_socket, served
    what = served(rows=ROWS, waiting=512)
    with on_a_socket(what) as port:
        speed, bodies = throughput(port)
        bits, far = mixed_up(port, bodies), echoed(port)
        said, free = nonsense(port, 1000), dropped(port, what, 100)
        alive = httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    return [bar("throughput of the endpoint, 64 clients at once, against the sampler's own, "
                f"{ROWS} rows each", ">= 0.8",
                f"{speed['ratio']:.2f} ({speed['endpoint']:,.0f} of {speed['sampler']:,.0f} tokens a second; "
                f"{speed['cpu']:.2f} by processor time)", speed["ratio"] >= 0.8),
            bar("replies to 64 clients at once that are not the sampler's own text for their seed",
                "0 of 256", f"{speed['wrong']} of {CLIENTS * EACH}", not speed["wrong"]),
            bar("... that are not, log-probs included, the bits that a client alone gets", "0 of 8",
                f"{bits} of 8", not bits),
            bar("echoed log-probs against the trainer's, the farthest", "<= 1e-5", f"{far:.1e}", far <= 1e-5),
            bar("malformed requests answered by a 4xx and a sentence", "1,000 of 1,000", said,
                said == {"sound": 1000}),
            bar("slots free after 100 dropped connections", "all, and alive", f"{free}, {alive}",
                free and alive)]


# standard harnesses

WAYS = {"eval": "postgrad eval", "bench": "postgrad bench", "completions": "local-completions",
        "chat": "local-chat-completions", "inspect": "inspect-ai"}
PACKAGES = {"lm-eval": ["lm-eval[api]==0.4.13"], "inspect": ["inspect-ai", "openai"]}
LOCAL = environment(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1", OPENAI_API_KEY="none",
                    HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1")
AT_ONCE = 16  # replies that are asked for together: as many as the server writes at once


@contextmanager
def serve(model: str):
    """The address of the server."""
    server = subprocess.Popen([sys.executable, "-m", "postgrad", "serve", model, "--name", "policy", "--port",
                               "0", "--json"], stdout=subprocess.PIPE, text=True, env=environment())
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait()


class Suite:
    """One task of a suite, for one model: each way gives its figure, and the replies by their problem."""

    def __init__(self, model: str, name: str, problems: int, tokens: int, folder: Path):
        from postgrad.recipes.benchmarks.suite import write_suite
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
        from postgrad.evaluation import task_figures
        from postgrad.recipes.measuring import Measured
        asked = Measured(self.name, None, self.problems, 1, "test", 0, self.tokens, 0.0, "cpu", None)
        model = asked.open(self.model)
        drawn = asked.draw(model, asked.open_reward(model), greedy=False)  # at temperature 0
        return task_figures(asked.task, drawn)["pass@1"], [group[0].rollout.text for group in drawn.groups]

    def bench(self) -> tuple[float, None]:
        said = self.child("lm-eval", "postgrad", "bench", self.model, "--suite", self.name, "--problems",
                          self.problems, "--max-new-tokens", self.tokens, "--json")
        return json.loads(said.splitlines()[-1])["tasks"][0]["value"], None

    def completions(self) -> tuple[float, list[str]]:
        from postgrad.resolve.models import open_folder
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
        from postgrad.recipes.benchmarks.suite import score_reply
        replies = (self.place / "replies.jsonl").resolve()
        rows = (self.files / f"{self.task.removeprefix('postgrad_')}.jsonl").resolve()
        replies.unlink(missing_ok=True)
        with serve(self.model) as url:
            self.child("inspect", "inspect_ai", "eval", "inspect_suite.py", "--model",
                       "openai-api/postgrad/policy", "--display", "plain", "--log-dir",
                       (self.place / "inspect").resolve(), cwd=HOME / "proofs" / "elsewhere",
                       env={"POSTGRAD_BASE_URL": url, "POSTGRAD_API_KEY": "none", "ROWS": str(rows),
                            "REPLIES": str(replies), "TOKENS": str(self.tokens)})
        docs, said = read_lines(rows), in_order(read_lines(replies))
        return sum(map(score_reply, docs, said)) / len(docs), said


def in_order(said: list) -> list[str]:
    """Replies with the number of their problem -> the replies, one to each problem."""
    numbers = sorted(number for number, _ in said)
    assert numbers == list(range(len(said))), f"not one reply to each problem: {numbers}"
    return [reply for _, reply in sorted(said)]


def row_of(suite: Suite, ways: list[str]) -> dict:
    """What each way says of one task and model. equal: all figures are one, and so are the replies."""
    found = {way: once(suite.place / f"{way}.json", getattr(suite, way)) for way in WAYS
             if way in ways or (suite.place / f"{way}.json").exists()}
    _, ours = found["eval"]
    row = {"task": suite.task, "model": suite.model, "problems": suite.problems, "tokens": suite.tokens,
           **{name: found[way][0] if way in found else None for way, name in WAYS.items()},
           "replies that differ": sum(a != b for _, replies in found.values() if replies
                                      for a, b in zip(ours, replies, strict=True))}
    one = len({round(figure, 12) for figure, _ in found.values()}) == 1
    return row | {"equal": len(found) > 1 and one and not row["replies that differ"]}


def harnesses(folder: Path, model: str = "tiny-chat", suite: str = "words", problems: str = "200",
              tokens: str = "64", ways: str = ",".join(WAYS)) -> tuple[Bars, Tables]:
    from postgrad.recipes.benchmarks.suite import suite_tasks
    bars, rows = [], []
    for name in suite_tasks(suite):
        row = row_of(Suite(model, name, int(problems), int(tokens), folder), ways.split(","))
        rows.append(row)
        told = [way for way in WAYS.values() if row[way] is not None]
        bars.append(bar(f"{row['task']}, {row['problems']} problems, {row['model']}: {', '.join(told)}",
                        "one figure, and the same replies",
                        f"{' '.join(f'{row[way]:g}' for way in told)}; {row['replies that differ']} replies "
                        "differ", row["equal"]))
    return bars, {f"Figures: {suite.partition(':')[0]}": rows}


def gsm8k(folder: Path, data: str = "data/gsm8k") -> tuple[Bars, Tables]:
    return harnesses(folder, "runs/smollm2-gsm8k", f"gsm8k:{data}", tokens="200", ways="eval,chat")


PAGE = Page("harnesses", "Standard harnesses", {"gsm8k": gsm8k, "words": harnesses}, [0], apart=("gsm8k",))

if __name__ == "__main__":
    PAGE.main()
