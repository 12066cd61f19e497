"""The endpoint under strain: clients that leave or do not read, requests that make no sense, models that
fail, weights that change."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest
import torch
from paths import ROOT
from serve_fuzz import malformed
from serve_small import ASK, client, idle, on_a_socket, post, served

from postgrad.models import load_model, save_model
from postgrad.resolve.models import open_chat, open_folder
from postgrad.runs import Run
from postgrad.serving import streaming
from postgrad.serving.app import create_app
from postgrad.serving.weight_updates import CheckpointWatcher, NewWeights, take_new_weights

HOME = ROOT
LONG = {"messages": ASK, "seed": 1, "max_tokens": 200, "ignore_eos": True}


def wire(**body):
    text = json.dumps(body)
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}").encode()


def wait_for(port, what):
    """Until every slot is free; the server is asked in the meantime, so that it is at work."""
    end = time.monotonic() + 60
    while not idle(what) and time.monotonic() < end:
        httpx.get(f"http://127.0.0.1:{port}/health")
    assert idle(what)


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.proof)])
def test_whoever_leaves_frees_a_slot(monkeypatch, count):
    """Within a stream, before the reply is whole, while waiting in the queue. Rows of 20 tokens wait until
    something is asked of the thread: they can't end before their client has left."""
    what, dropped, rows, pause = served(rows=2), [], 0, threading.Event()
    abort, step, batch = what.worker.batch.abort, what.worker.batch.step, what.worker.batch

    def held():
        while any(len(row.tokens) >= 20 for row in batch.active) and what.worker.inbox.empty():
            pause.wait(0.001)
        return step()

    monkeypatch.setattr(batch, "step", held)
    monkeypatch.setattr(batch, "abort", lambda row: dropped.append(row) or abort(row))
    with on_a_socket(what) as port:
        for i in range(count):
            with socket.create_connection(("127.0.0.1", port)) as link:
                link.sendall(wire(**LONG, n=1 + i % 4, stream=i % 2 == 0))
                rows += 1 + i % 4
                while i % 2 == 0 and b"data:" not in (heard := link.recv(100)):
                    assert heard, "the stream ended before it began"
                while not what.worker.pending:
                    httpx.get(f"http://127.0.0.1:{port}/health")
            wait_for(port, what)
        assert len(dropped) == rows
        assert all(row.finish_reason == "abort" and len(row.tokens) < 200 for row in dropped)
        monkeypatch.setattr(batch, "step", step)
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json={"messages": ASK, "n": 2},
                            timeout=60)
        assert answer.status_code == 200


def test_whoever_does_not_read_is_left_behind(monkeypatch):
    monkeypatch.setattr(streaming, "SLOW", 0.01)
    what = served(rows=1)
    app = create_app(what)
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"",
             "scheme": "http", "headers": [(b"host", b"localhost")], "app": app}

    async def ask():
        body = iter([{"type": "http.request", "body": json.dumps(LONG | {"stream": True}).encode()}])

        async def receive():
            return next(body, None) or await asyncio.Event().wait()

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()  # nobody takes it

        await app(scope, receive, send)

        assert what.worker.open == 0
        await asyncio.to_thread(what.worker.stop)

    what.worker.start()
    asyncio.run(ask())


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.proof)])
def test_what_makes_no_sense_is_a_sentence(count):
    what = served(rows=4)
    with client(what) as web:
        for method, path, content in malformed(seed=1, count=count):
            answer = web.request(method, path, content=content)
            error = answer.json()["error"]
            assert 400 <= answer.status_code < 500, (method, path, content[:200], answer.text)
            assert error["message"].endswith(".") and len(error["message"]) < 600
        assert idle(what) and web.get("/health").json()["free"] == 4


def test_a_model_that_fails_is_told_to_those_who_wait_and_to_no_one_else(monkeypatch, capsys):
    what = served(rows=2)
    choose, broken = what.worker.batch.choose, [ValueError("row 0 of the logits has no distribution")]
    monkeypatch.setattr(what.worker.batch, "choose", lambda n: raise_one(broken) or choose(n))
    with client(what) as web:
        error = post(web, "/v1/chat/completions", 500, messages=ASK, n=3)["error"]
        assert error["type"] == "server_error" and "no distribution" in error["message"]
        broken.append(RuntimeError("secret"))
        text = web.post("/v1/chat/completions", json={"messages": ASK, "stream": True}).text
        assert '"message": "the server failed: RuntimeError' in text and "secret" not in text
        assert len(post(web, "/v1/chat/completions", messages=ASK, n=3)["choices"]) == 3 and idle(what)
    assert "secret" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["logits", "text"])
def test_a_rows_fault_stays_in_its_row(monkeypatch, capsys, where):
    """Of four rows that are sampled together one has no distribution, or its text cannot be decoded."""
    what = served(rows=4)
    batch = what.worker.batch
    with client(what) as web:
        alone = post(web, "/v1/chat/completions", messages=ASK, n=3, seed=1, max_tokens=8)["choices"]
        hidden, add = batch.run_layers, batch.add

        def spoil(n, token, at, longest=None):
            hidden(n, token, at, longest)
            for i, sequence in enumerate(batch.active):
                if sequence.request.seed == 77:
                    batch.hidden[i] = torch.nan

        def spoil_text(prompt, requests):
            added = add(prompt, requests)
            for sequence in added:
                if sequence.request.seed == 77:
                    sequence.detokenizer = SimpleNamespace(stop=(), stopped=False, end=str,
                                                           add=lambda *tokens: 1 / 0)
            return added

        monkeypatch.setattr(batch, *(("run_layers", spoil) if where == "logits" else ("add", spoil_text)))
        bodies = [{"messages": ASK, "n": 3, "seed": 1, "max_tokens": 8},
                  {"messages": ASK, "seed": 77, "max_tokens": 9, "stream": where == "text"}]
        with ThreadPoolExecutor(2) as pool:
            good, bad = pool.map(lambda body: web.post("/v1/chat/completions", json=body), bodies)
        assert good.status_code == 200 and good.json()["choices"] == alone
        assert "the server failed" in bad.text and ("no distribution" if where == "logits"
                                                    else "ZeroDivisionError") in bad.text
        assert idle(what)
    capsys.readouterr()


def raise_one(faults):
    if faults:
        raise faults.pop()


def test_a_run_is_followed_to_its_newest_checkpoint(tmp_path, capsys, monkeypatch):
    run = Run.create(tmp_path / "run", recipe="grpo", config={}, steps=9)
    chat = open_chat(open_folder("tiny"))

    def save(step):
        model = load_model("tiny").requires_grad_(False)
        for p in model.parameters():
            p.mul_(1 + 0.02 * step)
        run.log(step, {"loss": 0.0})
        run.save(step, lambda folder: (save_model(model, folder), chat.save(folder)), keep=9)
        return model

    save(1)
    what, newer = served(rows=1, model=run.folder, version=1), CheckpointWatcher(run.folder, "cpu", 1)
    asked = {"messages": ASK, "seed": 4, "max_tokens": 20}
    with client(what) as web:
        first = post(web, "/v1/chat/completions", **asked)
        assert not web.portal.call(take_new_weights, what, what.worker, newer)
        save(2)
        assert web.portal.call(take_new_weights, what, what.worker, newer)
        second = post(web, "/v1/chat/completions", **asked)
        assert [x["policy_step"] for x in (first, second, web.get("/health").json())] == [1, 2, 2]
        assert first["choices"] != second["choices"] and second["system_fingerprint"].endswith("-step-2")
        save(3)
        weights = run.folder / "checkpoints" / "000003" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])  # a damaged one is passed over
        assert not web.portal.call(take_new_weights, what, what.worker, newer)
        assert post(web, "/v1/chat/completions", **asked)["choices"] == second["choices"]
        monkeypatch.setattr(CheckpointWatcher, "__call__", lambda _: NewWeights(4, {}))
        assert not web.portal.call(take_new_weights, what, what.worker, newer)
        assert "Missing key" in newer.reported
        assert post(web, "/v1/chat/completions", **asked)["choices"] == second["choices"]
    with client(served(rows=1, model=f"{run.folder}@2", version=2)) as web:
        assert post(web, "/v1/chat/completions", **asked)["choices"] == second["choices"]


def test_the_command_serves_until_ctrl_c():
    command = [sys.executable, "-m", "postgrad", "serve", "tiny-chat", "--port", "0", "--json", "--rows", "2"]
    with subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": str(HOME)},
                          # a shell that runs the tests in the background leaves its children deaf to Ctrl-C
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        told = json.loads(process.stdout.readline())
        assert told["model"] == "tiny-chat" and told["token"] is None and told["context"] == 512
        answer = httpx.post(f"{told['url']}/chat/completions", json={"messages": ASK, "max_tokens": 4},
                            timeout=60)
        assert answer.json()["choices"][0]["message"]["role"] == "assistant"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said.strip() == "postgrad: stopped by Ctrl-C." and process.returncode == 130


def test_the_openai_client(tmp_path):
    openai = pytest.importorskip("openai", reason="the openai client is not installed: pip install openai")
    with on_a_socket(served()) as port:
        api = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        assert [m.id for m in api.models.list()] == ["small"]
        asked = {"model": "small", "messages": ASK, "seed": 3, "max_tokens": 16}
        said = api.chat.completions.create(**asked, logprobs=True, top_logprobs=2, n=2)
        assert said.usage.completion_tokens == sum(len(c.logprobs.content) for c in said.choices)
        assert said.choices[0].logprobs.content[0].top_logprobs[0].logprob <= 0
        pieces = [c.choices[0].delta.content or "" for c in api.chat.completions.create(**asked, stream=True)]
        assert "".join(pieces) == said.choices[0].message.content
        text = api.completions.create(model="small", prompt=[5, 6, 7], max_tokens=0, echo=True, logprobs=1)
        assert text.choices[0].logprobs.token_logprobs[0] is None
        with pytest.raises(openai.BadRequestError, match="presence_penalty is 1, which this server"):
            api.chat.completions.create(**asked, presence_penalty=1)
        with pytest.raises(openai.NotFoundError, match="there is no model"):
            api.chat.completions.create(**asked | {"model": "gpt"})
