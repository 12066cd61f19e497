"""The endpoint under load, and the same work in process: tokens/s, first tokens, by the number of chats.

    python bench/endpoint.py [shape=135M] [device=cuda] [chats=1,64,256,1024] [seconds=10] [stream=0,1]
                             [fronts=N] [processes=8] [new=128] [prompt=128]

Clients are processes of their own; each has its share of the chats, every one of which asks again as soon as
it has its reply. Counted are the tokens of replies (of streams: of events) between the end of a warm-up and
the end of the seconds. In process: LocalSampler with as many rows, prompts of as many tokens, all different.
One line of JSON for each number of chats.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


async def chat(port: int, asked: list[str], new: int, stream: bool, until: float, seen: list) -> None:
    """One connection that asks and asks; seen: (when, tokens, seconds to the first ones or None)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for i in range(10**9):
        how = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        talk = [{"role": "user", "content": asked[i % len(asked)]}]
        body = json.dumps({"messages": talk, "max_tokens": new, "seed": i, "ignore_eos": True} | how).encode()
        began = time.time()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head, head + await reader.read(500)
        if stream:
            first, events = None, 0
            while size := int(await reader.readline(), 16):
                piece = (await reader.readexactly(size + 2))[:size]
                events += 1
                if events == 2:  # after the one with the role
                    first = time.time() - began
                if b'"usage"' in piece:
                    tokens = json.loads(piece.removeprefix(b"data: "))["usage"]["completion_tokens"]
                    seen.append((time.time(), tokens, first))
            await reader.readline()
        else:
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            reply = json.loads(await reader.readexactly(length))
            seen.append((time.time(), reply["usage"]["completion_tokens"], None))
        if time.time() > until:
            return writer.close()


async def clients(port: int, chats: int, texts: list[str], new: int, stream: bool, until: float) -> list:
    seen: list = []
    share = [texts[i::chats] or texts for i in range(chats)]
    await asyncio.gather(*(chat(port, mine, new, stream, until, seen) for mine in share))
    return seen


def load(port: int, chats: int, texts: list[str], new: int, stream: bool, seconds: float,
         processes: int) -> dict:
    """Tokens/s between a warm-up of half the seconds and the end."""
    processes = min(processes, chats)
    begin = time.time() + seconds / 2
    until = begin + seconds
    children = []
    for i in range(processes):
        mine = len(range(i, chats, processes))
        child = subprocess.Popen([sys.executable, __file__, "client"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        json.dump([port, mine, texts[i::processes], new, stream, until], child.stdin)
        child.stdin.close()
        children.append(child)
    seen = [tuple(row) for child in children for row in json.load(child.stdout)]
    counted = [row for row in seen if begin < row[0] <= until]
    firsts = [row[2] for row in counted if row[2] is not None]
    return {"tokens/s": sum(row[1] for row in counted) / seconds, "replies": len(counted),
            **({"first token ms p50": 1e3 * statistics.median(firsts)} if firsts else {})}


def in_process(sampler, texts: list[str], rows: int, new: int) -> float:
    from postgrad.records import Prompt, Sampling
    prompts = [Prompt(messages=({"role": "user", "content": t},), id=str(i)) for i, t in
               enumerate(texts[:rows])]
    how, speeds = Sampling(max_new_tokens=new), []
    for turn in range(4):
        began = time.perf_counter()
        groups = sampler.sample(prompts, 1, how, turn)
        speeds.append(sum(len(r.tokens) for (r,) in groups) / (time.perf_counter() - began))
    return statistics.median(speeds[1:])


def main() -> None:
    import torch
    from shapes import SHAPES, harness, questions, write_model

    from postgrad.resolve.models import open_writer
    from postgrad.sampling import LocalSampler
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    shape, device = given.get("shape", "135M"), given.get("device", "cuda")
    new, prompt = int(given.get("new", 128)), int(given.get("prompt", 128))
    seconds, processes = float(given.get("seconds", 10)), int(given.get("processes", 8))
    chats = [int(n) for n in given.get("chats", "1,64,256,1024").split(",")]
    texts = questions(2048, prompt, SHAPES[shape].vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        model = write_model(Path(folder) / "model", SHAPES[shape], dtype=dtype)
        net, own = open_writer(model, device)
        sampler = LocalSampler(net.requires_grad_(False), own)
        alone = {n: in_process(sampler, texts, n, new) for n in chats}
        sampler.release()
        del net, sampler
        more = ["--fronts", given["fronts"]] if "fronts" in given else []
        with harness.served("serve", str(model), "--port", "0", "--device", device, "--rows", str(max(chats)),
                            "--context", str(prompt + new), "--queue", "4096", *more) as url:
            port = int(url.split(":")[2].split("/")[0])
            for n in chats:
                for stream in map(int, given.get("stream", "0,1").split(",")):
                    figures = load(port, n, texts, new, bool(stream), seconds, processes)
                    print(json.dumps({"chats": n, "stream": bool(stream), "seconds": seconds,
                                      "in process tokens/s": alone[n],
                                      "ratio": figures["tokens/s"] / alone[n], **figures}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["client"]:
        json.dump(asyncio.run(clients(*json.load(sys.stdin))), sys.stdout)
    else:
        main()
