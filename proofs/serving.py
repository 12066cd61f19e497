"""The endpoint against the sampler that it stands on: bits, throughput, nonsense, dropped connections.

    python proofs/serving.py [--out FILE.json]
The clients are one process of their own. Throughput is a ratio of rounds taken turn by turn in one run; the
ratio of this process's own processor time stands beside it, as other work on the machine disturbs the first.
About three minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tools")]

import httpx  # noqa: E402
import torch  # noqa: E402
from results import bar, end  # noqa: E402
from serve_fuzz import malformed  # noqa: E402
from serve_small import ASK, idle, on_a_socket, served  # noqa: E402

from postgrad.data.tasks import load_task  # noqa: E402
from postgrad.models import find_model, load_model  # noqa: E402
from postgrad.models.chat import Chat  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402

CLIENTS, EACH, ROWS, ROUNDS = 64, 4, 32, 3
SETTINGS = Sampling(max_new_tokens=96, temperature=1.3)
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


def throughput(port: int) -> tuple[dict, list]:
    """Tokens a second of the same requests, by the sampler alone and through the endpoint."""
    model, chat = load_model("tiny-chat").requires_grad_(False), Chat.load(find_model("tiny-chat"))
    prompts = load_task("words").prompts("test", CLIENTS * EACH, 0)
    sampler = LocalSampler(model, chat, rows_at_once=ROWS)
    groups = sampler.sample(prompts, 1, SETTINGS, 7)
    how = {"max_tokens": SETTINGS.max_new_tokens, "temperature": SETTINGS.temperature}
    bodies = [[{"messages": [dict(m) for m in r.prompt.messages], "seed": r.seed} | how
               for (r,) in groups[i::CLIENTS]] for i in range(CLIENTS)]
    times: dict[str, list[float]] = {"sampler": [], "endpoint": [], "sampler cpu": [], "endpoint cpu": []}
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        groups = sampler.sample(prompts, 1, SETTINGS, 7)
        times["sampler"].append(time.perf_counter() - began)
        times["sampler cpu"].append(time.process_time() - used)
        used = time.process_time()
        said, seconds = ask(port, bodies)
        times["endpoint"].append(seconds)
        times["endpoint cpu"].append(time.process_time() - used)
    wrong = sum(reply["choices"][0]["message"]["content"] != r.text
                for i, mine in enumerate(said) for reply, (r,) in zip(mine, groups[i::CLIENTS], strict=True))
    tokens = sum(len(r.tokens) for (r,) in groups)
    told = sum(reply["usage"]["completion_tokens"] for mine in said for reply in mine)
    assert told == tokens
    return {"wrong": wrong, "ratio": middle(times["sampler"], times["endpoint"]),
            "cpu": middle(times["sampler cpu"], times["endpoint cpu"]),
            "sampler": tokens / min(times["sampler"]), "endpoint": tokens / min(times["endpoint"])}, bodies


def middle(first: list[float], second: list[float]) -> float:
    """The median of the ratios, round by round."""
    return sorted(a / b for a, b in zip(first, second, strict=True))[len(first) // 2]


def mixed_up(port: int, bodies: list[list[dict]]) -> int:
    """Replies to 64 clients at once that are not, bit for bit, those that each one's seed gives alone."""
    first = [[mine[0] | {"logprobs": True}] for mine in bodies]
    together, _ = ask(port, first)
    alone = [ask(port, [mine])[0][0] for mine in first[::8]]
    return sum(a[0]["choices"] != b[0]["choices"] for a, b in zip(alone, together[::8], strict=True))


def echoed(port: int) -> float:
    """How far the log-probs of echoed prompts are from the trainer's, at most."""
    model, chat = load_model("tiny-chat").requires_grad_(False), Chat.load(find_model("tiny-chat"))
    far = 0.0
    for prompt in load_task("words").prompts("test", 32, 1):
        tokens = chat.render(prompt.messages)
        body = {"prompt": [tokens], "max_tokens": 1, "echo": True, "logprobs": 1}
        said = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body).json()
        told = said["choices"][0]["logprobs"]
        mask = torch.arange(len(tokens))[None] > 0
        wanted = model.logp(torch.tensor([tokens]), mask)[0][mask]
        far = max(far, float((torch.tensor(told["token_logprobs"][1:-1]) - wanted).abs().max()))
    return far


def nonsense(port: int, count: int) -> dict[str, int]:
    """Answers to requests that make no sense, by what they are."""
    found: Counter[str] = Counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        for method, path, content in malformed(seed=2, count=count):
            answer = http.request(method, path, content=content)
            sound = 400 <= answer.status_code < 500 and answer.json()["error"]["message"].endswith(".")
            found["sound" if sound else str(answer.status_code)] += 1
    return dict(found)


def dropped(port: int, what, count: int) -> bool:
    """Connections that are closed while their replies are written or wait; -> whether all slots are free."""
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


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    what, command = served(rows=ROWS, waiting=512), "python proofs/serving.py"
    with on_a_socket(what) as port:
        speed, bodies = throughput(port)
        bits, far = mixed_up(port, bodies), echoed(port)
        answers, free = nonsense(port, 1000), dropped(port, what, 100)
        alive = httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    bars = [
        bar(f"throughput of the endpoint, 64 clients at once, against the sampler's own, {ROWS} rows each",
            ">= 0.8",
            f"{speed['ratio']:.2f} ({speed['endpoint']:,.0f} of {speed['sampler']:,.0f} tokens a second; "
            f"{speed['cpu']:.2f} by processor time)",
            speed["ratio"] >= 0.8, command),
        bar("replies to 64 clients at once that are not the sampler's own text for their seed", "0 of 256",
            f"{speed['wrong']} of {CLIENTS * EACH}", not speed["wrong"], command),
        bar("... that are not, log-probs included, the bits that a client alone gets", "0 of 8",
            f"{bits} of 8", not bits, command),
        bar("echoed log-probs against the trainer's, the farthest", "<= 1e-5", f"{far:.1e}", far <= 1e-5,
            command),
        bar("malformed requests answered by a 4xx and a sentence", "1,000 of 1,000", f"{answers}",
            answers == {"sound": 1000}, command),
        bar("slots free after 100 dropped connections", "all, and alive", f"{free}, {alive}", free and alive,
            command)]
    end(bars, args.out)


if __name__ == "__main__":
    main()
