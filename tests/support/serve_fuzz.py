"""Requests that make no sense, from a seed: each is to be answered with a 4xx and a sentence."""

import copy
import json
import random

GOOD = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "n": 1,
                             "seed": 1, "temperature": 1.0, "top_p": 0.9, "stop": ["x"], "logprobs": True,
                             "top_logprobs": 1, "stream": False, "model": "small"},
    "/v1/completions": {"prompt": [5, 6], "max_tokens": 2, "n": 1, "seed": 1, "echo": True, "logprobs": 1,
                        "temperature": 0.5, "model": "small"},
    "/inference/v1/generate": {"token_ids": [5, 6], "sampling_params": {"max_tokens": 2, "logprobs": 1}},
    "/tokenize": {"prompt": "Hi"}, "/detokenize": {"tokens": [5, 6]}}
NEVER = [{}, {"a": 1}, [{}], [[[]]], True, 10**30, "\ud800", [None]]  # what no field takes
NUMBER = ["1", -1, 0.5, [1], "x" * 300]
WRONG = {
    "messages": ["x", [], 5, [5], [{"role": "user"}], [{"role": "robot", "content": "a"}], [{"content": "a"}],
                 [{"role": "user", "content": 5}], [{"role": "user", "content": "a", "z": 1}],
                 [{"role": "user", "content": [{"type": "image_url"}]}]],
    "prompt": [[], 5, [10**9], [-5], [[5], "x", 6], [[5], [6.5]]],
    "token_ids": ["x", [], [-1], ["5"], [10**9]],
    "tokens": ["x", [-1], ["5"], [10**9]], "max_tokens": [*NUMBER, 10**6], "n": [*NUMBER, 0, 10**6],
    "seed": ["1", 0.5, [1], -10**20], "temperature": ["1", -1, [1], -1e308], "top_p": ["1", -1, 0, 2],
    "stop": [[""], 5, [1], ["a"] * 17], "logprobs": ["true", -1, [], 0.5], "top_logprobs": [*NUMBER, 21],
    "stream": [1, "true", []], "echo": [1, "x"], "model": ["x" * 300, 5, []], "sampling_params": [[], "x", 5]}
NAMES = ["Messages", "prompt ", "guided_json", "\u0000", "n\n", "a" * 500, "__class__", "temprature", "", "é"]


def spoilt(rng, body):
    """A body with a field of another kind, without what is needed, or with one that nobody knows."""
    body = copy.deepcopy(body)
    inside = body["sampling_params"] if "sampling_params" in body and rng.random() < 0.6 else body
    name = rng.choice(list(inside))
    how = rng.randrange(3)
    if how == 0:
        inside[name] = rng.choice(WRONG[name] if rng.random() < 0.7 else NEVER)
    elif how == 1:
        inside[rng.choice(NAMES)] = rng.choice([*NEVER, *NUMBER, *WRONG[name], None])
    else:
        for needed in ("messages", "prompt", "token_ids", "tokens"):
            body.pop(needed, None)
    return json.dumps(body).encode()


def torn(rng, body):
    """The bytes of a good body, cut or changed until they are no JSON."""
    text = bytearray(json.dumps(body).encode())
    if rng.random() < 0.5:
        return bytes(text[: rng.randrange(len(text))])
    while is_json(text):
        text[rng.randrange(len(text))] = rng.choice(b'"\\{}[],:\x00\xff\xe9')
    return bytes(text)


def is_json(text):
    try:
        json.loads(bytes(text))
    except ValueError:
        return False
    return True


def malformed(seed, count):
    """(method, path, content), each wrong in some way."""
    rng = random.Random(seed)
    for _ in range(count):
        path, how = rng.choice(list(GOOD)), rng.random()
        if how < 0.1:
            yield rng.choice(["GET", "PUT", "DELETE"]), path, b""
        elif how < 0.2:
            yield "POST", rng.choice(["/", "/v1", "/v1/x/../etc/passwd", "/v1/embeddings"]), b"{}"
        else:
            yield "POST", path, (spoilt if how < 0.75 else torn)(rng, GOOD[path])
