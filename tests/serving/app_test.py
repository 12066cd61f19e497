"""The endpoint: what OpenAI's and vLLM's clients ask, answered by the sampler's own numbers."""

import asyncio
import json

import httpx
import pytest
import torch
from serve_small import ASK, client, events, idle, on_a_socket, post, served

from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.records import Prompt
from postgrad.sampling import LocalSampler, Sampling
from postgrad.serving import chat_completions, completions

TOOL = {"type": "function", "function": {"name": "add"}}
TOKEN = "a-token-that-nobody-guesses-0123456789"


@pytest.fixture(scope="module")
def what():
    return served()


@pytest.fixture(scope="module")
def web(what):
    with client(what) as inside:
        yield inside
        assert idle(what)


@pytest.fixture(scope="module")
def model():
    return load_model("tiny-chat").requires_grad_(False)


@pytest.fixture(scope="module")
def chat():
    return Chat.load(find_model("tiny-chat"))


def told(chosen):
    return [(c["token"], c["logprob"]) for c in chosen["logprobs"]["content"]]


def test_the_reply_is_the_samplers_own(web, model, chat):
    ((rollout,),) = LocalSampler(model, chat).sample([Prompt(id="q", messages=tuple(ASK))], 1,
                                                     Sampling(max_new_tokens=40), seed=3)
    said = post(web, "/v1/chat/completions", messages=ASK, seed=rollout.seed, max_tokens=40, logprobs=True,
                return_token_ids=True)
    (choice,) = said["choices"]
    assert choice["token_ids"] == [*rollout.tokens] and choice["message"]["content"] == rollout.text
    assert choice["finish_reason"] == ("stop" if rollout.finished else "length")
    assert [logp for _, logp in told(choice)] == pytest.approx(rollout.logp, abs=1e-5)
    assert said["usage"]["prompt_tokens"] == len(rollout.prompt_tokens) == len(said["prompt_token_ids"])
    out = post(web, "/inference/v1/generate", token_ids=[*rollout.prompt_tokens],
               sampling_params={"seed": rollout.seed, "max_tokens": 40, "logprobs": 1})["choices"][0]
    assert out["token_ids"] == [*rollout.tokens] and out["weight_versions"] == [[0, 0]]
    assert [c["token"] for c in out["logprobs"]["content"]] == [f"token_id:{t}" for t in rollout.tokens]
    assert [logp for _, logp in told(out)] == pytest.approx(rollout.logp, abs=1e-5)
    first, again = post(web, "/inference/v1/generate", token_ids=[*rollout.prompt_tokens],
                        sampling_params={"seeds": [rollout.seed, 5], "max_tokens": 40})["choices"]
    assert first["token_ids"] == out["token_ids"] != again["token_ids"] and first["logprobs"] is None
    assert first["logp"] == [logp for _, logp in told(out)]
    for wrong in ({"seeds": []}, {"seeds": [1, "2"]}, {"seeds": [2**63]}, {"seeds": [1], "n": 1}):
        said = web.post("/inference/v1/generate", json={"token_ids": [5], "sampling_params": wrong})
        assert said.status_code == 400 and "sampling_params.seeds" in said.json()["error"]["message"]


def test_several_replies_and_the_first_is_that_of_the_seed(web):
    asked = {"messages": ASK, "seed": 5, "max_tokens": 12, "temperature": 1.5}
    many, one = (post(web, "/v1/chat/completions", **asked, n=n)["choices"] for n in (3, 1))
    assert many[0] == one[0] and [c["index"] for c in many] == [0, 1, 2]
    assert len({c["message"]["content"] for c in many}) == 3
    assert many == post(web, "/v1/chat/completions", **asked, n=3)["choices"]
    (greedy,) = post(web, "/v1/chat/completions", messages=ASK, temperature=0)["choices"]
    assert greedy["finish_reason"] == "stop"


def test_a_conversation_is_rendered_once(web, monkeypatch):
    rendered, plain = [], Chat.text_of

    def counted(chat, *given, **named):
        rendered.append(plain(chat, *given, **named))
        return rendered[-1]

    monkeypatch.setattr(Chat, "text_of", counted)
    post(web, "/v1/chat/completions", messages=ASK, max_tokens=1)
    assert len(rendered) == 1


def test_echoed_log_probs_are_the_trainers(web, model, chat):
    tokens = chat.render(ASK)
    said = post(web, "/v1/completions", prompt=[tokens, tokens[:7]], max_tokens=1, echo=True, logprobs=2,
                temperature=0, seed=1234)
    for row, choice in zip((tokens, tokens[:7]), said["choices"], strict=True):
        told = choice["logprobs"]
        mask = torch.arange(len(row))[None] > 0
        wanted = model.logp(torch.tensor([row]), mask)[0][mask].tolist()
        assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
        assert told["token_logprobs"][1:-1] == pytest.approx(wanted, abs=1e-5)
        assert len(told["tokens"]) == len(told["text_offset"]) == len(row) + 1
        best = [max(top.values()) for top in told["top_logprobs"][1:]]
        assert all(top[t] <= b and t in top for top, t, b in zip(told["top_logprobs"][1:], told["tokens"][1:],
                                                                 best, strict=True))
        assert told["token_logprobs"][-1] == best[-1]  # greedy
        assert choice["text"].startswith(chat.tokenizer.decode(row, skip_special_tokens=False))
    text = "Tom has 3 pears."
    said = post(web, "/v1/completions", prompt=text, max_tokens=0, echo=True, logprobs=0)["choices"][0]
    assert said["text"] == text and said["finish_reason"] == "length"
    assert [text[a:] for a in said["logprobs"]["text_offset"]][-1] == said["logprobs"]["tokens"][-1]


def test_a_stream_joins_to_the_whole(web):
    for extra in ({}, {"stop": ["="]}, {"stop": ["an", "</t"]}, {"temperature": 3.0}):
        asked = {"messages": ASK, "seed": 2, "n": 2, "max_tokens": 16, "logprobs": True,
                 "top_logprobs": 2} | extra
        whole = post(web, "/v1/chat/completions", **asked)
        parts = events(web.post("/v1/chat/completions", json=asked | {
            "stream": True, "stream_options": {"include_usage": True}}).text)
        assert parts[-1]["usage"] == whole["usage"] and parts[-1]["choices"] == []
        for i, choice in enumerate(whole["choices"]):
            mine = [p["choices"][0] for p in parts[:-1] if p["choices"][0]["index"] == i]
            assert "".join(p["delta"].get("content", "") for p in mine) == choice["message"]["content"]
            assert [c for p in mine if p["logprobs"] for c in told(p)] == told(choice)
            assert [p["finish_reason"] for p in mine if p["finish_reason"]] == [choice["finish_reason"]]
            assert not any(stop in choice["message"]["content"] for stop in extra.get("stop", ()))
        asked = {"prompt": ["Tom has", "There are 3"], "seed": 2, "n": 2, "max_tokens": 9,
                 "logprobs": 1} | extra
        whole = post(web, "/v1/completions", **asked)["choices"]
        streamed = web.post("/v1/completions", json=asked | {"stream": True}).text
        parts = [p["choices"][0] for p in events(streamed)]
        for i, choice in enumerate(whole):
            mine = [p for p in parts if p["index"] == i]
            assert "".join(p["text"] for p in mine) == choice["text"] and mine[-1]["finish_reason"]
            scores = [x for p in mine for x in p["logprobs"]["token_logprobs"]]
            assert scores == choice["logprobs"]["token_logprobs"]


def test_tokens_and_back(web, chat):
    assert post(web, "/tokenize", messages=ASK) == {"tokens": chat.render(ASK), "max_model_len": 256,
                                                    "count": len(chat.render(ASK))}
    tokens = post(web, "/tokenize", prompt="Écris 数.")["tokens"]
    assert post(web, "/detokenize", tokens=tokens) == {"prompt": "Écris 数."}


def test_models_and_health(web):
    (card,) = web.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["policy_step"]) == ("small", 256, 0)
    assert web.get("/v1/models/small").json() == card
    assert web.get("/health").json() == {"status": "ok", "model": "small", "policy_step": 0, "weights": "",
                                         "gpu": "", "slots": 8, "free": 8, "queue": 64, "asked": 0}


@pytest.mark.parametrize(("path", "body", "status", "param", "words"), [
    ("chat/completions", {"temperatur": 1}, 400, "temperatur", "if temperature is meant"),
    ("chat/completions", {"logit_bias": {"5": 1}}, 400, "logit_bias", "does not honour: leave it out"),
    ("chat/completions", {"response_format": {"type": "json_object"}}, 400, "response_format", "not honour"),
    ("chat/completions", {"tools": [TOOL]}, 400, "tools", "template has no place for them"),
    ("chat/completions", {"tool_choice": "required"}, 400, "tool_choice", "can't be forced"),
    ("chat/completions", {"model": "gpt"}, 404, "model", "this server has 'small'"),
    ("chat/completions", {"n": 0}, 400, "n", "from 1 to 72"),
    ("chat/completions", {"n": True}, 400, "n", "a whole number"),
    ("chat/completions", {"max_tokens": 500}, 400, "messages", "the context is 256 tokens"),
    ("chat/completions", {"max_tokens": 5, "max_completion_tokens": 6}, 400, "max_tokens", "two lengths"),
    ("chat/completions", {"messages": []}, 400, "messages", "at least one"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
     "messages[0].content[0].type", "only text is read"),
    ("chat/completions", {"messages": [{"role": "robot", "content": ""}]}, 400, "messages[0].role", "one of"),
    ("chat/completions", {"messages": [{"role": "user", "content": "a", "name": "Bob"}]}, 400,
     "messages[0].name", "not honour"),
    ("chat/completions", {"top_logprobs": 3}, 400, "top_logprobs", "needs logprobs"),
    ("chat/completions", {"stop": [""]}, 400, "stop", "none empty"),
    ("chat/completions", {"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages[0].content",
     "half a character"),
    ("completions", {"prompt": []}, 400, "prompt", "a list of texts"),
    ("completions", {"prompt": ""}, 400, "prompt", "at least one"),
    ("completions", {"prompt": [4, 9999]}, 400, "prompt", "a token is a whole number"),
    ("completions", {"prompt": [1], "suffix": "x"}, 400, "suffix", "not honour"),
])
def test_what_is_not_honoured_is_refused_by_name(web, path, body, status, param, words):
    asked = ({"messages": ASK} if path.startswith("chat") else {}) | body
    answer = web.post(f"/v1/{path}", content=json.dumps(asked))
    error = answer.json()["error"]
    assert answer.status_code == status and error["param"] == param and words in error["message"]
    assert error["message"].endswith(".") and error["type"]


@pytest.mark.parametrize(("body", "status", "words"), [
    (b"{", 400, "no JSON"), (b"[]", 400, "an object"), (b'{"n": NaN}', 400, "NaN"), (b"\xff", 400, "no JSON"),
    (b"[" * 100_000, 400, "nested over"), (b'{"n": 1, "n": 2}', 400, "stands twice"),
    (b" " * (4 * 2**20 + 1), 413, "4,194,304 bytes"), (b'{"n": ' + b"9" * 5000 + b"}", 400, "no JSON"),
], ids=range(8))
def test_a_body_that_cannot_be_read_is_a_sentence(web, body, status, words):
    answer = web.post("/v1/chat/completions", content=body)
    assert answer.status_code == status and words in answer.json()["error"]["message"]
    other = web.post("/v1/chat/completions", content=b"a=1", headers={"content-type": "text/plain"})
    assert other.status_code == 415


@pytest.mark.parametrize("field", [
    *({"temperature": t} for t in (1e-40, 5e-324, 9e-5, 101, 1e308, -1e-40)), {"top_p": 1e-40}, {"top_p": 0},
    {"min_p": 1}, {"min_p": -1e-40}, {"top_k": -2}, {"top_k": 10**30}, {"seed": 10**30},
    {"max_tokens": 10**300}, {"top_logprobs": 10**30}, {"n": 10**30}], ids=str)
def test_a_value_that_no_sampler_can_use_is_refused_at_the_door(web, field):
    answer = web.post("/v1/chat/completions", json={"messages": ASK, "logprobs": True, **field})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == next(iter(field))


@pytest.mark.parametrize("field", [
    *({"temperature": t} for t in (0, 1e-4, 100)), {"top_p": 1e-6}, {"min_p": 0.999999}, {"top_k": 2**40},
    {"temperature": 1e-4, "top_p": 1e-6, "min_p": 0.999999, "top_k": 1}], ids=str)
def test_the_last_value_that_is_taken_can_be_sampled_with(web, field):
    (choice,) = post(web, "/v1/chat/completions", messages=ASK, max_tokens=3, **field)["choices"]
    assert choice["message"]["content"] is not None


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 200_000}]}),
    ("/v1/completions", {"prompt": "a " * 200_000}), ("/v1/completions", {"prompt": ["b", "a " * 200_000]})])
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(web, monkeypatch, path, body):
    async def encode(served, text, special=False):
        return [5] if text == "b" else pytest.fail(text[:9])

    for module in (completions, chat_completions):
        monkeypatch.setattr(module, "encode_text", encode)
    error = post(web, path, 400, **body)["error"]
    assert error["code"] == "context_length_exceeded" and "characters" in error["message"]


def test_a_long_text_is_tokenized_as_a_short_one_is(web, chat):
    text = "one two three " * 2000
    said = post(web, "/tokenize", prompt=text, add_special_tokens=False)
    assert said["tokens"] == chat.tokenizer.encode(text, add_special_tokens=False).ids
    assert said["count"] > 5000


def test_who_may_ask():
    """This machine alone, and no page of another site in its browser; elsewhere whoever has the token."""
    with client(served(rows=1)) as web:
        assert web.get("/health").status_code == 200
        assert web.get("/health", headers={"host": "evil.example"}).status_code == 421
        assert web.get("/health", headers={"origin": "http://evil.example"}).status_code == 403
    with client(served(rows=1), token=TOKEN, host="http://10.0.0.3:8000") as web:
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": TOKEN},
                        {"authorization": "Bearer \xe9".encode("latin-1")}):
            answer = web.get("/v1/models", headers=headers)
            assert answer.status_code == 401 and "needs a token" in answer.json()["error"]["message"]
        assert web.get("/v1/models", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_too_many_at_once_are_refused_with_a_sentence():
    what = served(rows=2, waiting=3)
    with client(what) as web:
        error = post(web, "/v1/chat/completions", 400, messages=ASK, n=6)["error"]
        assert "from 1 to 5" in error["message"]
        error = post(web, "/v1/completions", 429, prompt=["a", "b", "c"], n=2)["error"]
        assert error["code"] == "queue_full" and "room for 5" in error["message"]
        assert len(post(web, "/v1/chat/completions", messages=ASK, n=5, max_tokens=3)["choices"]) == 5
        assert idle(what)


def test_clients_at_once_each_get_what_their_seed_gives_alone():
    what = served(rows=8, waiting=64)

    def body(i):
        return {"messages": [{"role": "user", "content": f"What is {i}+{i + 3}?"}], "seed": i,
                "max_tokens": 12, "temperature": (1.0, 0.8)[i % 2], "logprobs": True}

    with on_a_socket(what) as port:
        async def ask(numbers):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                calls = (http.post("/v1/chat/completions", json=body(i)) for i in numbers)
                answers = await asyncio.gather(*calls)
            return [answer.json()["choices"] for answer in answers]

        together = asyncio.run(ask(range(64)))
        assert [asyncio.run(ask([i]))[0] for i in range(0, 64, 7)] == together[::7]
    assert len({json.dumps(c) for c in together}) > 50 and idle(what)
