"""Bodies that make no sense to a server of the Tinker protocol, from a seed: each is to be answered with a
4xx and a sentence."""

import json
import random

from tinker.proto import tinker_public_pb2 as pb

NEVER = [{}, [{}], [[[]]], True, 10**30, "\ud800", [None], "", "x" * 400, -1, 1.5]
# a good body of each route that takes one, with the names of what is there
GOOD = {
    "create_model": {"session_id": "session", "model_seq_id": 900, "base_model": "small",
                     "lora_config": {"rank": 2}},
    "get_info": {"model_id": "model"}, "unload_model": {"model_id": "model"},
    "session_heartbeat": {"session_id": "session"},
    "optim_step": {"model_id": "model", "seq_id": 10**6, "adam_params": {"learning_rate": 0.1}},
    "save_weights": {"model_id": "model", "seq_id": 10**6, "path": "a"},
    "save_weights_for_sampler": {"model_id": "model", "seq_id": 10**6, "path": "a"},
    "load_weights": {"model_id": "model", "seq_id": 10**6, "path": "path", "optimizer": False},
    "copy_weights": {"source_path": "path"}, "weights_info": {"tinker_path": "path"},
    "create_sampling_session": {"session_id": "session", "sampling_session_seq_id": 900,
                                "base_model": "small"},
    "join_sampling_session": {"sampling_session_id": "sampler"},
    "asample": {"sampling_session_id": "sampler", "seq_id": 900, "num_samples": 1,
                "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}]},
                "sampling_params": {"max_tokens": 2}},
    "retrieve_future": {"request_id": "model"}, "cancel_future": {"request_id": "model"},
    "retrieve_futures": {"target": {"sampling_session_id": "sampler"}, "prev_cursor": 0},
    "sessions/search": {"limit": 5},
}
NEEDED = {  # fields without which a body is refused
    "create_model": "session_id", "optim_step": "model_id", "save_weights": "model_id", "asample": "prompt",
    "load_weights": "model_id", "copy_weights": "source_path", "weights_info": "tinker_path",
    "create_sampling_session": "session_id", "join_sampling_session": "sampling_session_id",
    "get_info": "model_id", "unload_model": "model_id", "session_heartbeat": "session_id",
    "save_weights_for_sampler": "model_id", "retrieve_future": "request_id", "cancel_future": "request_id",
    "retrieve_futures": "target"}
JSON, PROTO = {"Content-Type": "application/json"}, {"Content-Type": "application/x-protobuf"}


def bodies(count, *, seed, routes, known):
    """(method, path, body, headers), so many."""
    rng = random.Random(seed)
    kinds = [spoilt, torn, nobody, wrong_pass, wrong_place]
    for i in range(count):
        yield kinds[i % len(kinds)](rng, routes, known)


def filled(route, known):
    """The good body of a route, naming what is there."""
    return {name: known.get(value, value) if isinstance(value, str) else value
            for name, value in json.loads(json.dumps(GOOD[route])).items()}


def spoilt(rng, routes, known):
    """A needed field of another kind, or missing."""
    route = rng.choice(sorted(NEEDED))
    body = filled(route, known)
    if rng.random() < 0.5:
        body[NEEDED[route]] = rng.choice([*NEVER, None])
    else:
        del body[NEEDED[route]]
    return "POST", f"/api/v1/{route}", json.dumps(body).encode(), JSON


def torn(rng, routes, known):
    """The bytes of a good body, cut until they are no JSON; or no object at all."""
    route = rng.choice(sorted(GOOD))
    text = json.dumps(filled(route, known)).encode()
    body = rng.choice([text[: rng.randrange(len(text))], b"[1]", b"\xff\xfe", b"[" * 5000, b'{"a": NaN}',
                       b'{"a": 1, "a": 2}', text + b"}"])
    return "POST", f"/api/v1/{route}", body, JSON


def nobody(rng, routes, known):
    """What belongs to nobody, or to somebody else."""
    route = rng.choice(["get_info", "asample", "weights_info", "retrieve_future", "create_sampling_session",
                        "optim_step", "retrieve_futures", "session_heartbeat", "load_weights"])
    body = filled(route, known)
    other = rng.choice(["../../etc/passwd", "deadbeefdeadbeef:train:0", "a:sample:0", ":", "tinker://a/weights/b",
                        "tinker://../weights/../../x", "deadbeefdeadbeef", "%00", "é" * 99])
    for name in ("model_id", "session_id", "sampling_session_id", "request_id", "tinker_path", "path"):
        if name in body:
            body[name] = other
    if "target" in body:
        body["target"] = {"sampling_session_id": other}
    return "POST", f"/api/v1/{route}", json.dumps(body).encode(), JSON


def wrong_pass(rng, routes, known):
    """A pass in protobuf that cannot be read, or is of no model."""
    message = pb.ForwardBackwardRequest(model_id=rng.choice(["", "x", known["session"], known["model"]]),
                                        seq_id=rng.choice([0, -1]), loss_fn="cross_entropy")
    if rng.random() < 0.5:
        message.data.add().loss_fn_inputs["target_tokens"].dense = bytes(rng.randrange(9))
    text = message.SerializeToString()
    body = rng.choice([text, text[:-1] + b"\xff", rng.randbytes(rng.randrange(1, 200)), b""])
    headers = rng.choice([PROTO, JSON, {**PROTO, "Content-Encoding": "zstd"},
                          {**PROTO, "Content-Encoding": "br"}])
    return "POST", "/api/v1/forward_backward", body, headers


def wrong_place(rng, routes, known):
    """No such route, or not so."""
    method, path = rng.choice([
        ("GET", "/api/v1/create_session"), ("POST", "/api/v1/healthz"), ("GET", "/api/v1/nothing"),
        ("GET", "/api/v1/training_runs/x"), ("GET", "/api/v1/training_runs/%2e%2e%2fx"),
        ("DELETE", f"/api/v1/training_runs/{known['model']}/checkpoints/weights/none"),
        ("DELETE", f"/api/v1/training_runs/{known['model']}/checkpoints/other/none"),
        ("PUT", f"/api/v1/training_runs/{known['model']}/checkpoints/weights/none/ttl"),
        ("GET", "/api/v1/training_runs?limit=-1"), ("GET", "/api/v1/training_runs?limit=a"),
        ("GET", "/api/v1/checkpoints?offset=1.5"), ("GET", "/api/v1/sessions/x"),
        ("GET", "/api/v1/samplers/x"), ("POST", "/api/v1/sessions/x/finish"),
        ("POST", f"/api/v1/sessions/{known['session']}/finish"), ("PUT", "/api/v1/sessions/x/project")])
    return method, path, b"", JSON
