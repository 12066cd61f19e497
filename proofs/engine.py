"""The engine behind every door: docs/results/engine.json and its page.

    python proofs/engine.py [PART ...]            turns, cpu_endpoint: some minutes on two cores
    python proofs/engine.py turns_h200            the same turns at the 135M shape in bf16, on one GPU
    python proofs/engine.py h200 lines=FILE at=COMMIT
                                                  lines that bench/endpoint.py and proofs/gpu_paths.py
                                                  printed on an H200 at that commit, or at a line's own
                                                  "commit", brought here by hand

Turns: conversations of TURNS replies of REPLY tokens each, to which ADDED tokens are added; the samples of a
group begin alike. Unique tokens are those of the last contexts, a group's prompt counted once. One turn: as
many tokens read and as many written, in one reply each.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from http.client import HTTPConnection
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import harness
from harness import COMPUTES, HOME, Bars, Page, Tables, bar, read_lines, rooms

from postgrad.data.environments import Player
from postgrad.records import Prompt, Sampling
from postgrad.resolve.models import open_writer
from postgrad.resolve.tasks import make_task
from postgrad.sampling import LocalSampler
from postgrad.serving.agents import Agent, played_by

TURNS, FIRST, REPLY, ADDED, GROUP = 8, 64, 24, 16, 4
CONTEXT = FIRST + TURNS * REPLY + (TURNS - 1) * ADDED
BEFORE, CHATS, NEW, SECONDS, ROUNDS = "6e66ba3", 16, 64, 8, 5
H200 = "NVIDIA H200"
CHAT_BARS = {1: 600, 64: 40_000, 256: 90_000, 1024: 120_000}
QUESTION = "Tom has {} pears and buys 4 more. How many pears does he have?"
AGENT = '''import json, os, sys
from http.client import HTTPConnection
from urllib.parse import urlsplit
said = [{"role": "user", "content": json.load(sys.stdin)["question"]}]
address = urlsplit(os.environ["OPENAI_BASE_URL"])
web = HTTPConnection(address.hostname, address.port)
for turn in range(TURNS):
    body = json.dumps({"model": "policy", "messages": said})
    web.request("POST", address.path + "/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(web.getresponse())["choices"][0]["message"]["content"]
    said += [{"role": "assistant", "content": reply}, {"role": "user", "content": "Are you sure?"}]
'''.replace("TURNS", str(TURNS))


def draw(seed: object, count: int, vocab: int) -> list[int]:
    return random.Random(str(seed)).choices(range(vocab // 2), k=count)


def first_of(i: int, vocab: int) -> list[int]:
    return draw(f"first {i // GROUP}", FIRST, vocab)


def unique(rows: int) -> int:
    return rows // GROUP * FIRST + rows * (CONTEXT - FIRST)


def opened(folder: Path, device: str, shape: str):
    """A name that `postgrad serve` takes, the model, and its chat with a stop token that no model writes."""
    name = "tiny-chat"
    if shape:
        import torch
        from shapes import SHAPES, write_model
        name = str(write_model(folder / "model", SHAPES[shape], dtype=torch.bfloat16))
    net, chat = open_writer(name, device)
    endless = copy(chat)
    endless.stop = (net.config.vocab_size + 1,)
    return name, net.requires_grad_(False), chat, endless


def in_process(sampler: LocalSampler, rows: int, vocab: int) -> None:
    """Episodes as a training samples them: the replies to all contexts, turn after turn."""
    contexts = [first_of(i, vocab) for i in range(rows)]
    after: list = []
    for turn in range(TURNS):
        replies = sampler.reply(contexts, list(range(rows)), Sampling(max_new_tokens=REPLY), after)
        contexts = [[*c, *r.tokens, *draw((turn, i), ADDED, vocab)]
                    for i, (c, r) in enumerate(zip(contexts, replies, strict=True))]
        after = replies


def one_turn(sampler: LocalSampler, rows: int, vocab: int) -> None:
    """As many tokens read and written."""
    read = [[*first_of(i, vocab), *draw(("rest", i), (TURNS - 1) * ADDED, vocab)] for i in range(rows)]
    list(sampler.generate(read, 1, list(range(rows)), Sampling(max_new_tokens=TURNS * REPLY)))


def talk(port: int, i: int, vocab: int) -> tuple[int, int]:
    """A conversation through the endpoint -> the tokens of its turns that were in the cache, and all."""
    web, context, cached, total = HTTPConnection("127.0.0.1", port), first_of(i, vocab), 0, 0
    for turn in range(TURNS):
        body = {"prompt": context, "max_tokens": REPLY, "seed": i, "ignore_eos": True,
                "return_token_ids": True}
        web.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = json.load(web.getresponse())
        cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        total += reply["usage"]["total_tokens"]
        context = [*context, *reply["choices"][0]["token_ids"], *draw((turn, i), ADDED, vocab)]
    return cached, total


def through_endpoint(port: int, rows: int, vocab: int) -> int:
    """All conversations at once -> the tokens that were computed."""
    with ThreadPoolExecutor(rows) as pool:
        counts = [*pool.map(lambda i: talk(port, i, vocab), range(rows))]
    return sum(total - cached for cached, total in counts)


def games(folder: Path, net, chat, rows: int) -> dict[str, Callable[[LocalSampler], list]]:
    """The same game as a function and as a program: a question, and seven doubts."""
    def play(prompt, rng):
        reply = yield ()
        for _ in range(TURNS - 1):
            reply = yield [{"role": "user", "content": "Are you sure?"}]
        return float(prompt.answer in reply.text)

    asked = [{"id": f"{i}", "question": QUESTION.format(i), "answer": str(i + 4)}
             for i in range(max(40, rows // GROUP))]
    (folder / "agent.py").write_text(AGENT)
    tasks = {"function": make_task(asked, play=play), "program": played_by(
        Agent(command=f"{sys.executable} -I -S {folder / 'agent.py'}", at_once=rows),
        make_task(asked, lambda prompt, text: prompt.answer in text), chat, net)}
    prompts = [Prompt.ask(row["question"], row["answer"], id=row["id"]) for row in asked[: rows // GROUP]]

    def played(task):
        def work(sampler: LocalSampler) -> list:
            groups = Player(replace(task, turns=TURNS), sampler, turns=TURNS).sample(
                prompts, GROUP, Sampling(max_new_tokens=48), 0)
            return [rollout for group in groups for rollout in group]
        return work
    return {name: played(task) for name, task in tasks.items()}


def game_figures(work: Callable[[LocalSampler], list], sampler: LocalSampler, rows: int
                 ) -> tuple[float, float]:
    """Sampled tokens a second, and tokens computed over unique ones."""
    work(sampler)
    begun = sampler.computed_tokens
    played = work(sampler)
    computed = sampler.computed_tokens - begun
    own = sum(len(row.prompt_tokens) + len(row.tokens) for row in played)
    own -= (rows - rows // GROUP) * len(played[0].prompt_tokens)  # a group's prompt is computed once
    (seconds,) = harness.best(lambda: work(sampler), rounds=3)
    return sum(len(rollout.sampled) for rollout in played) / seconds, computed / own


def turns(folder: Path, device: str = "cpu", shape: str = "", rows: str = "16") -> tuple[Bars, Tables]:
    name, net, chat, endless = opened(folder, device, shape)
    many, vocab = int(rows), net.config.vocab_size
    where = f"{many} episodes of {TURNS} turns, {shape or name}, {device}"
    sampler, lone = (LocalSampler(net, endless) for _ in range(2))
    in_process(sampler, many, vocab)
    before = sampler.computed_tokens
    in_process(sampler, many, vocab)
    computed = (sampler.computed_tokens - before) / unique(many)
    kept, alone = harness.best(lambda: in_process(sampler, many, vocab), lambda: one_turn(lone, many, vocab))
    written = many * TURNS * REPLY
    with harness.served("serve", name, "--port", 0, "--rows", many, "--context", CONTEXT + ADDED, "--device",
                        device) as url:
        port = int(url.split(":")[2].split("/")[0])
        asked = through_endpoint(port, many, vocab) / unique(many)
        (served,) = harness.best(lambda: through_endpoint(port, many, vocab), rounds=3)
    sampler.release()
    lone.release()
    figures = {kind: game_figures(work, LocalSampler(net, chat), many)
               for kind, work in games(folder, net, chat, many).items()}
    speed = {kind: tokens for kind, (tokens, _) in figures.items()}
    ratio = speed["program"] / speed["function"]
    return [
        bar(f"tokens computed in process, times the unique ones: {where}", "<= 1.2", f"{computed:.2f}",
            computed <= 1.2),
        bar(f"tokens computed through the endpoint, times the unique ones: {where}", "<= 1.2", f"{asked:.2f}",
            asked <= 1.2),
        bar(f"tokens computed for an agent's program, times the unique ones: {where}", "<= 1.2",
            f"{figures['program'][1]:.2f} ({figures['function'][1]:.2f} for the game in process)",
            figures["program"][1] <= 1.2),
        bar(f"sampled tokens a second in process, times those of the same tokens in one turn: {where}",
            ">= 0.8", f"{alone / kept:.2f} ({written / kept:,.0f} of {written / alone:,.0f})",
            alone / kept >= 0.8),
        bar(f"an agent's program through its endpoint, times the same game in process: {where}", ">= 0.5",
            f"{ratio:.2f} ({speed['program']:,.0f} of {speed['function']:,.0f} tokens a second)",
            ratio >= 0.5)], {f"Turns, tokens a second: {where}": [
                {"how": "one turn", "tokens/s": written / alone}, {"how": "in process",
                                                                   "tokens/s": written / kept},
                {"how": "through the endpoint", "tokens/s": written / served},
                {"how": "game in process", "tokens/s": speed["function"]},
                {"how": "agent's program", "tokens/s": speed["program"]}]}


def turns_h200(folder: Path, rows: str = "64") -> tuple[Bars, Tables]:
    return turns(folder, "cuda", "135M", rows)


def cpu_endpoint(folder: Path) -> Bars:
    """Both commits in turns, the clients in processes of their own."""
    before, spec = folder / "before", spec_from_file_location("bench_endpoint", HOME / "bench/endpoint.py")
    bench = module_from_spec(spec)
    spec.loader.exec_module(bench)
    if not before.exists():
        before.mkdir()
        packed = subprocess.run(["git", "-C", str(HOME), "archive", BEFORE], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(before)], check=True, input=packed.stdout)
    texts = [f"Tom has {i % 50} pears and buys {i} more. How many pears does he have?" for i in range(256)]
    speeds: dict[str, list[float]] = {BEFORE: [], "now": []}
    for _ in range(ROUNDS):
        for name, home in ((BEFORE, before), ("now", HOME)):
            with harness.served("serve", "tiny-chat", "--port", 0, "--rows", CHATS, "--context", 256,
                                PYTHONPATH=str(home), cwd=folder) as url:
                port = int(url.split(":")[2].split("/")[0])
                seen = bench.load(port, CHATS, texts, NEW, False, SECONDS, 2)
                speeds[name].append(seen["tokens/s"])
    rounds = sorted((b / a, a, b) for a, b in zip(*speeds.values(), strict=True))
    ratio, old, now = rounds[ROUNDS // 2]
    return [bar(f"tokens a second of the endpoint on a CPU, {CHATS} chats, against commit {BEFORE} in the "
                "same run", ">= 1.5", f"{ratio:.2f} in the middle round ({now:,.0f} of {old:,.0f}), from "
                f"{rounds[0][0]:.2f} to {rounds[-1][0]:.2f}", ratio >= 1.5)]


# figures of an H200, from lines

def h200(folder: Path, lines: str, at: str, cpu: str = "") -> tuple[Bars, Tables]:
    rows = [{"commit": at} | row for row in read_lines(Path(lines))]
    on = {"machine": {"gpu": H200} | ({"cpu": cpu} if cpu else {}), "by_hand": True}
    chats = [row for row in rows if "chats" in row]
    bars = [row for stream in (False, True)
            for row in chat_bars([x for x in chats if x["stream"] == stream], stream)]
    paths = [row for row in rows if "path" in row]
    if paths:
        wrong = [f"{row['path']} ({row['precision']}: {row.get('error') or row['difference']})"
                 for row in paths if not row["ok"]]
        bars.append(bar("paths on a GPU: loss and gradient norm of the first step on the CPU's rollouts, "
                        "relative to the CPU's", "all within 1e-4 in float32, 0.05 in bf16",
                        f"{len(paths) - len(wrong)} of {len(paths)}" + "; not: " * bool(wrong)
                        + ", ".join(wrong), not wrong, "python proofs/gpu_paths.py"))
    tables = {"Endpoint of an H200": chats, "Paths on an H200": [
        {"path": row["path"], "precision": row["precision"], "ok": row["ok"], "seconds": row.get("seconds"),
         "difference": row.get("difference"), "rows alike": row.get("alike")} for row in paths]}
    return [{"commit": at} | row | on for row in bars], {name: rows for name, rows in tables.items() if rows}


def chat_bars(chats: list[dict], stream: bool) -> Bars:
    """Of lines of bench/endpoint.py: tokens a second, against in process, never falling, first tokens."""
    how = "streamed" if stream else "whole replies"
    command, bars = "python bench/endpoint.py", []
    for row in chats:
        first = len(bars)
        if (least := CHAT_BARS.get(row["chats"])) and (stream or row["chats"] > 1):
            bars.append(bar(f"endpoint, 135M, {row['chats']} chats at once, {how}: tokens a second",
                            f">= {least:,}", f"{row['tokens/s']:,.0f}, over {row['seconds']:g} s",
                            row["tokens/s"] >= least, command))
        if row["chats"] > 1 and row["chats"] in CHAT_BARS:
            bars.append(bar(f"endpoint, 135M, {row['chats']} chats at once, {how}: times in process",
                            ">= 0.7", f"{row['ratio']:.2f}", row["ratio"] >= 0.7, command))
        if row["chats"] == 64 and stream:
            wait = row["first token ms p50"]
            bars.append(bar("endpoint, 135M, 64 chats at once: milliseconds to the first token, p50", "<= 30",
                            f"{wait:.0f}", wait <= 30, command))
        bars[first:] = [{"commit": row["commit"]} | made for made in bars[first:]]
    if len(chats) > 1:
        speeds = [row["tokens/s"] for row in sorted(chats, key=lambda row: row["chats"])]
        bars.append({"commit": chats[0]["commit"]} | bar(
            f"endpoint, 135M, {how}: tokens a second never fall with more chats",
            "each of them >= all before", " ".join(f"{x:,.0f}" for x in speeds), speeds == sorted(speeds),
            command))
    return bars


PAGE = Page("engine", "The engine", {"turns": turns, "cpu_endpoint": cpu_endpoint, "turns_h200": turns_h200,
                                     "h200": h200}, [0], apart=("turns_h200", "h200"),
            paths=(*COMPUTES, *rooms("serving")))

if __name__ == "__main__":
    PAGE.main()
