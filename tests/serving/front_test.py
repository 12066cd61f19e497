"""HTTP in processes of its own: the same replies, over a pipe."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from multiprocessing import Pipe

import httpx
import pytest
from paths import ROOT
from serve_small import ASK, client, events, idle, post, served

from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.front import FrontChannel, FrontSettings, FrontWorker

BODY = {"messages": ASK, "max_tokens": 12, "seed": 3}


@contextmanager
def fronts(what, count=1, most=64):
    """Clients of so many fronts of a model, in this process."""
    what.worker.start()
    clients, links = [], []
    try:
        for _ in range(count):
            ours, theirs = Pipe()
            FrontChannel(what, what.worker, ours)
            settings = FrontSettings("small", "", what.context, what.worker.vocab_size, most, None,
                                     ("127.0.0.1", 0))
            worker = FrontWorker(theirs, settings)
            worker.served = ServedModel(name="small", chat=what.chat, worker=worker, context=what.context)
            clients.append(client(worker.served))
            links.append(theirs)
        opened = [c.__enter__() for c in clients]
        yield opened
        for c in clients:
            c.__exit__(None, None, None)
        for link in links:
            link.close()
    finally:
        what.worker.stop()


def same(reply):
    """A reply without what differs from call to call."""
    left_out = ("id", "created", "request_id")
    return {k: v for k, v in reply.items() if k not in left_out} | {"usage": {
        k: v for k, v in reply["usage"].items() if k != "prompt_tokens_details"}}


def test_a_front_gives_the_replies_of_the_model_itself():
    asks = [("/v1/chat/completions", BODY | {"n": 2, "logprobs": True, "top_logprobs": 2}),
            ("/v1/chat/completions", BODY | {"stop": ["e"], "temperature": 0.7, "return_token_ids": True}),
            ("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 4, "echo": True, "logprobs": 1,
                                 "seed": 1}),
            ("/inference/v1/generate", {"token_ids": [5, 6], "sampling_params": {"seeds": [1, 2]}})]
    with client(served()) as web:
        expected = [same(post(web, path, **body)) for path, body in asks]
        streamed = events(web.post("/v1/chat/completions", json=BODY | {"stream": True}).text)
    what = served()
    with fronts(what, 2) as (one, two):
        for web in (one, two):
            replies = [post(web, path, **body) for path, body in asks]
            assert [*map(same, replies)] == expected
            cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
            known = replies[0]["usage"]["prompt_tokens"] - 1  # the second request has the same prompt
            assert cached == [known if web is two else 0, known, 0, 0]
        told = events(two.post("/v1/chat/completions", json=BODY | {"stream": True}).text)
        assert [e["choices"] for e in told] == [e["choices"] for e in streamed]
        health = one.get("/health").json()
        assert (health["status"], health["slots"], health["free"]) == ("ok", 8, 8)
    assert idle(what)


def test_what_is_too_much_or_wrong_is_refused_and_nothing_is_left():
    what = served()
    with fronts(what, most=2) as (web,):
        error = post(web, "/v1/chat/completions", 400, **BODY | {"n": 3})["error"]
        assert error["param"] == "n"
        answer = web.post("/v1/completions", json={"prompt": ["a", "b"], "n": 2, "max_tokens": 4})
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        assert post(web, "/v1/chat/completions", **BODY)["usage"]["completion_tokens"] > 0
    assert idle(what)


def test_a_step_that_fails_is_said_to_all_who_wait(monkeypatch):
    what = served()
    with fronts(what) as (web,):
        with monkeypatch.context() as patch:
            patch.setattr(what.worker.batch, "step", lambda: 1 / 0)
            assert "ZeroDivisionError" in post(web, "/v1/chat/completions", 500, **BODY)["error"]["message"]
        assert post(web, "/v1/chat/completions", **BODY)["choices"]
    assert idle(what)


def test_an_error_that_cannot_be_sent_is_said_by_its_kind(monkeypatch):
    class Odd(Exception):
        """Local: it cannot be pickled."""

    def fail():
        raise Odd("in the step")

    what = served()
    with fronts(what) as (web,):
        with monkeypatch.context() as patch:
            patch.setattr(what.worker.batch, "step", fail)
            assert post(web, "/v1/chat/completions", 500, **BODY)["error"]["type"] == "server_error"
        assert post(web, "/v1/chat/completions", **BODY)["choices"]


@pytest.mark.skipif(not hasattr(os, "setsid"), reason="fronts need a POSIX system")
def test_the_command_with_two_fronts_until_ctrl_c():
    command = [sys.executable, "-m", "postgrad", "serve", "tiny-chat", "--port", "0", "--json", "--rows", "2",
               "--fronts", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)},
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        told = json.loads(process.stdout.readline())
        replies = [httpx.post(f"{told['url']}/chat/completions", json=BODY, timeout=60).json()
                   for _ in range(4)]
        assert len({r["choices"][0]["message"]["content"] for r in replies}) == 1
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said.strip() == "postgrad: stopped by Ctrl-C." and process.returncode == 130
