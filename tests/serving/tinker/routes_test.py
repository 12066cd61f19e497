"""Every public method of the real SDK's clients, called against the server: it is served, or refused with a
sentence. And bodies that make no sense."""

import asyncio
import copy
import inspect
import warnings
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
import tinker
import zstandard
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker_fuzz import bodies
from tinker_small import KEY, datum, imitation, one_step, service_client, tinker_server

from postgrad.resolve.models import open_writer
from postgrad.serving.tinker.routes import REFUSED_ROUTES, TINKER_ROUTES

CLIENTS = (tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient, tinker.RestClient,
           tinker.AdminClient)
PROJECT = "a-project"


class Everything:
    """A server, clients of all kinds, and what their methods need."""

    def __init__(self, address, service, folder):
        self.address, self.service_state = address, service
        self.chat = open_writer("tiny-chat")[1]
        (folder / "small").mkdir()
        self.chat.save(folder / "small")  # where the SDK's sampler looks for the tokenizer of "small"
        self.service = service_client(address)
        self.rest, self.admin = (kind(base_url=address, api_key=KEY) for kind in CLIENTS[3:])
        self.training = self.new_training()
        one_step(self.training, self.data)
        self.state = self.training.save_state("first").result().path
        self.weights = self.training.save_weights_for_sampler("first").result().path
        self.sampler = self.service.create_sampling_client(model_path=self.weights).result()
        self.session = self.service.holder.get_session_id()
        self.names = iter(f"name-{i}" for i in range(1000))

    def new_training(self):
        return self.service.create_lora_training_client("small", rank=2).result()

    @property
    def data(self):
        return imitation(self.chat)[:2]

    @property
    def prompt(self):
        return types.ModelInput.from_ints(self.chat.tokenizer.encode("Tom has").ids)

    def saved(self):
        return self.training.save_state(next(self.names)).result().path

    def checkpoint(self):
        path = types.ParsedCheckpointTinkerPath.from_tinker_path(self.saved())
        return path.training_run_id, path.checkpoint_id


def custom(data, logprobs):
    loss = -sum(x.sum() for x in logprobs)
    return loss, {"mine": float(loss)}


def traced(logprobs):
    return -logprobs.sum(), {}


HOUR = datetime(2026, 1, 1, tzinfo=UTC)
FEW = types.SamplingParams(max_tokens=3, seed=1)
# method -> a call of it. What stands in REFUSED raises with these words
SERVICE = {
    "holder": lambda e: e.service.holder,
    "get_telemetry": lambda e: e.service.get_telemetry(),
    "get_console_url": lambda e: e.service.get_console_url(),
    "get_server_capabilities": lambda e: e.service.get_server_capabilities(),
    "create_lora_training_client": lambda e: e.service.create_lora_training_client("small", rank=2),
    "create_training_client_from_state": lambda e: e.service.create_training_client_from_state(e.state),
    "create_training_client_from_state_with_optimizer":
        lambda e: e.service.create_training_client_from_state_with_optimizer(e.state),
    "create_sampling_client": lambda e: e.service.create_sampling_client(base_model="small"),
    "create_custom_loss": lambda e: e.service.create_custom_loss(traced, {"logprobs": 1}),
    "create_rest_client": lambda e: e.service.create_rest_client(),
    "copy_weights": lambda e: tinker.ServiceClient(base_url=e.address, api_key=KEY,
                                                   project_id=PROJECT).copy_weights(e.state),
    "close": lambda e: service_client(e.address).close("success"),
}
TRAINING = {
    "get_info": lambda e: e.training.get_info(), "get_tokenizer": lambda e: e.training.get_tokenizer(),
    "get_telemetry": lambda e: e.training.get_telemetry(),
    "get_console_url": lambda e: e.training.get_console_url(),
    "forward": lambda e: e.training.forward(e.data, "cross_entropy"),
    "forward_backward": lambda e: e.training.forward_backward(e.data, "cross_entropy"),
    "forward_backward_custom": lambda e: e.training.forward_backward_custom(e.data, custom),
    "optim_step": lambda e: e.training.optim_step(types.AdamParams()),
    "save_state": lambda e: e.training.save_state(next(e.names)),
    "load_state": lambda e: e.training.load_state(e.state),
    "load_state_with_optimizer": lambda e: e.training.load_state_with_optimizer(e.state),
    "save_weights_for_sampler": lambda e: e.training.save_weights_for_sampler(next(e.names)),
    "save_weights_external": lambda e: e.training.save_weights_external(next(e.names)),
    "save_weights_and_get_sampling_client": lambda e: e.training.save_weights_and_get_sampling_client(),
    "create_sampling_client": lambda e: e.training.create_sampling_client(e.weights),
}
SAMPLING = {
    "create": lambda e: tinker.SamplingClient.create(e.service.holder, base_model="small"),
    "sample": lambda e: e.sampler.sample(e.prompt, 2, FEW),
    "compute_logprobs": lambda e: e.sampler.compute_logprobs(e.prompt),
    "get_base_model": lambda e: e.sampler.get_base_model(),
    "get_tokenizer": lambda e: e.sampler.get_tokenizer(),
    "get_telemetry": lambda e: e.sampler.get_telemetry(),
    "get_sampler_handle": lambda e: e.sampler.get_sampler_handle(),
    "from_sampler_handle": lambda e: tinker.SamplingClient.from_sampler_handle(
        e.sampler.get_sampler_handle(), api_key=KEY).sample(e.prompt, 1, FEW),
    "on_queue_state_change": lambda e: e.sampler.on_queue_state_change(
        __import__("tinker.lib.api_future_impl", fromlist=["QueueState"]).QueueState.ACTIVE, None),
}
REST = {
    "get_server_capabilities": lambda e: e.rest.get_server_capabilities(),
    "get_telemetry": lambda e: e.rest.get_telemetry(),
    "get_training_run": lambda e: e.rest.get_training_run(e.training.model_id),
    "get_training_run_by_tinker_path": lambda e: e.rest.get_training_run_by_tinker_path(e.state),
    "get_weights_info_by_tinker_path": lambda e: e.rest.get_weights_info_by_tinker_path(e.state),
    "list_training_runs": lambda e: e.rest.list_training_runs(limit=2),
    "list_checkpoints": lambda e: e.rest.list_checkpoints(e.training.model_id),
    "list_user_checkpoints": lambda e: e.rest.list_user_checkpoints(),
    "delete_checkpoint": lambda e: e.rest.delete_checkpoint(*e.checkpoint()),
    "delete_checkpoint_from_tinker_path": lambda e: e.rest.delete_checkpoint_from_tinker_path(e.saved()),
    "publish_checkpoint_from_tinker_path": lambda e: e.rest.publish_checkpoint_from_tinker_path(e.saved()),
    "unpublish_checkpoint_from_tinker_path":
        lambda e: e.rest.unpublish_checkpoint_from_tinker_path(e.saved()),
    "set_checkpoint_ttl_from_tinker_path":
        lambda e: e.rest.set_checkpoint_ttl_from_tinker_path(e.saved(), 3600),
    "copy_weights": lambda e: e.rest.copy_weights(e.state, PROJECT),
    "get_external_weights_urls": lambda e: e.rest.get_external_weights_urls(
        f"tinker://{e.training.model_id}/external_weights/x"),
    "get_session": lambda e: e.rest.get_session(e.session), "list_sessions": lambda e: e.rest.list_sessions(),
    "search_sessions": lambda e: e.rest.search_sessions(types.SessionSearchRequest(session_id=e.session)),
    "assign_session_project": lambda e: e.rest.assign_session_project(e.session, PROJECT),
    "export_session_trace": lambda e: e.rest.export_session_trace(e.session),
    "get_sampler": lambda e: e.rest.get_sampler(e.sampler._sampling_session_id),
    "whoami": lambda e: e.rest.whoami(),
    "get_audit_log": lambda e: e.rest.get_audit_log(),
    "get_billing_usage": lambda e: e.rest.get_billing_usage(HOUR, HOUR + timedelta(hours=1)),
    "get_current_checkpoint_storage_usage": lambda e: e.rest.get_current_checkpoint_storage_usage(),
}
ADMIN = {
    "get_telemetry": lambda e: e.admin.get_telemetry(), "get_audit_log": lambda e: e.admin.get_audit_log(),
    "get_billing_usage": lambda e: e.admin.get_billing_usage(HOUR, HOUR + timedelta(hours=1)),
    "get_current_checkpoint_storage_usage": lambda e: e.admin.get_current_checkpoint_storage_usage(),
}
CALLS = dict(zip(CLIENTS, (SERVICE, TRAINING, SAMPLING, REST, ADMIN), strict=True))
ATTRIBUTES = dict(zip(CLIENTS, ("service", "training", "sampler", "rest", "admin"), strict=True))
REFUSED = {
    "save_weights_external": "every checkpoint of a training run is a model folder",
    "get_external_weights_urls": "no external weights", "export_session_trace": "keeps no traces",
    "get_audit_log": "keeps no audit log", "get_billing_usage": "bills nothing",
    "whoami": "requires JWT auth",  # the SDK's own: it asks no server
}
# what needs no answer of the server has no other form
PAIRS = [(kind, name) for kind in CLIENTS for name, _ in inspect.getmembers(kind) if not name.startswith("_")]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinker")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.chdir(folder)
        with tinker_server(folder / "runs") as (address, service):
            yield Everything(address, service, folder)


class Renamed:
    """A client whose method goes by another name."""

    def __init__(self, client, name, other):
        self.client, self.name, self.other = client, name, other

    def __getattr__(self, name):
        return getattr(self.client, self.other if name == self.name else name)


def plain(name):
    return name.removesuffix("_async")


def awaited(value):
    """The result of a future of the SDK's, of either kind."""
    async def wait(coroutine):
        return await coroutine

    if inspect.iscoroutine(value):
        return awaited(asyncio.run(wait(value)))
    return value.result(60) if hasattr(value, "result") else value


def test_the_table_has_every_public_method():
    assert len(PAIRS) >= 100
    assert {(kind, plain(name)) for kind, name in PAIRS} == {
        (kind, name) for kind, calls in CALLS.items() for name in calls}


@pytest.mark.parametrize("kind, name", PAIRS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_method_is_served_or_refused_with_a_sentence(everything, kind, name):
    call, everything = CALLS[kind][plain(name)], copy.copy(everything)
    where = ATTRIBUTES[kind]
    if plain(name) != name:  # the deprecated form, of the same arguments
        setattr(everything, where, Renamed(getattr(everything, where), plain(name), name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if plain(name) in REFUSED:
            with pytest.raises(Exception, match=REFUSED[plain(name)]):
                awaited(call(everything))
        else:
            awaited(call(everything))


def test_what_is_listed_is_what_was_saved(everything):
    e = everything
    training = e.new_training()
    path = training.save_state("kept", user_metadata={"a": "b"}, ttl_seconds=7200).result().path
    with pytest.raises(tinker.RequestFailedError, match="there are weights called weights/kept already"):
        training.save_state("kept").result()
    assert training.save_state("kept", overwrite=True).result().path == path
    one, = e.rest.list_checkpoints(training.model_id).result().checkpoints
    assert (one.tinker_path, one.checkpoint_type, one.public) == (path, "training", False)
    assert one.size_bytes > 0 and one.user_metadata is None
    run = e.rest.get_training_run(training.model_id).result()
    assert run.last_checkpoint.tinker_path == path and run.lora_rank == 2 and run.base_model == "small"
    info = e.rest.get_weights_info_by_tinker_path(path).result()
    assert (info.base_model, info.lora_rank, info.train_unembed) == ("small", 2, True)
    e.rest.delete_checkpoint_from_tinker_path(path).result()
    assert e.rest.list_checkpoints(training.model_id).result().checkpoints == []
    with pytest.raises(tinker.NotFoundError, match="no weights"):
        e.service.create_training_client_from_state(path).result()


def test_samples_come_with_logprobs_of_their_own_and_of_the_prompt(everything):
    e = everything
    ids = e.prompt.to_ints()
    out = e.sampler.sample(e.prompt, 2, FEW, include_prompt_logprobs=True, topk_prompt_logprobs=3,
                           topk_sample_logprobs=2).result()
    assert out.prompt_logprobs[0] is None and len(out.prompt_logprobs) == len(ids)
    assert [len(row) for row in out.topk_prompt_logprobs[1:]] == [3] * (len(ids) - 1)
    again = e.sampler.sample(e.prompt, 2, FEW).result()
    assert [s.tokens for s in again.sequences] == [s.tokens for s in out.sequences]
    first = out.sequences[0]
    scored = e.sampler.compute_logprobs(types.ModelInput.from_ints([*ids, *first.tokens])).result()
    assert scored[len(ids):] == pytest.approx(first.logprobs, abs=1e-4)
    assert scored[1: len(ids)] == pytest.approx(out.prompt_logprobs[1:], abs=1e-4)
    last = e.sampler.compute_logprobs(e.prompt, prompt_logprobs_last_n=1).result()
    assert last[:-1] == [None] * (len(ids) - 1)
    assert last[-1] == pytest.approx(out.prompt_logprobs[-1], abs=1e-4)
    text = e.chat.decode(out.sequences[0].tokens)
    at_text = types.SamplingParams(max_tokens=3, seed=1, stop=[text[:2]])
    stopped, = e.sampler.sample(e.prompt, 1, at_text).result().sequences
    assert stopped.stop_reason == "stop" and len(stopped.tokens) < 3
    endless = types.SamplingParams(max_tokens=40, seed=1, stop=[])
    assert e.sampler.sample(e.prompt, 1, endless).result().sequences[0].stop_reason == "length"


def test_a_later_poll_hears_which_samples_have_ended(everything):
    e = everything
    sampler = e.service.create_sampling_client(base_model="small").result()
    holder, config = sampler.holder, sampler.holder._client_config
    holder._client_config = config.model_copy(update={"sample_use_retrieve_futures": True})
    try:
        assert len(sampler.sample(e.prompt, 1, FEW).result().sequences) == 1
        assert len(sampler.sample(e.prompt, 3, FEW).result().sequences) == 3
    finally:
        holder._client_config = config


def test_a_custom_loss_trains_as_the_same_loss_by_name(everything):
    e = everything
    by_name, by_function = e.new_training(), e.new_training()

    def imitate(data, logprobs):
        import torch
        weights = [torch.from_numpy(d.loss_fn_inputs["weights"].to_numpy()) for d in data]
        return -sum((w * x).sum() for w, x in zip(weights, logprobs, strict=True)), {}

    first = by_name.forward_backward(e.data, "cross_entropy").result().metrics["loss:sum"]
    second = by_function.forward_backward_custom(e.data, imitate).result().metrics["loss:sum"]
    assert second == pytest.approx(first, abs=1e-6)
    steps = [t.optim_step(types.AdamParams()).result().metrics["grad_norm"] for t in (by_name, by_function)]
    assert steps[0] == pytest.approx(steps[1], rel=1e-5)


@pytest.mark.parametrize("loss, columns, words", [
    ("cross_entropy", {"advantages": [1.0]}, "does not take: it takes target_tokens, weights"),
    ("ppo", {}, "has no advantages, which ppo needs"),
    ("ppo", {"advantages": [1.0]}, "has no logprobs"),
    ("stable_reinforce", {}, "take importance_sampling"), ("custom", {}, "forward_backward_custom"),
    ("postgrad/dapo2", {}, "there is no loss_fn"),
    ("postgrad/dr_grpo", {}, "the most tokens that a reply may"),
    ("cross_entropy", {"weights": [float("nan")]}, "not finite")])
def test_what_is_wrong_with_a_pass_is_said_and_the_next_one_runs(everything, loss, columns, words):
    e = everything
    ids = e.data[0].model_input.to_ints()
    inputs = {name: np.array(values * len(ids), np.float32) for name, values in columns.items()}
    bad = types.Datum(model_input=types.ModelInput.from_ints(ids),
                      loss_fn_inputs={"target_tokens": np.array(ids), **inputs})
    with pytest.raises(tinker.RequestFailedError, match=words):
        e.training.forward_backward([bad], loss).result()
    one_step(e.training, e.data)


def test_every_policy_row_and_every_loss_of_the_sdk_has_a_gradient_or_a_sentence(everything):
    from postgrad.methods import METHODS, Policy
    e = everything
    data = [datum([*d.model_input.to_ints(), 5], logprobs=np.full(d.model_input.length, -1.0, np.float32),
                  advantages=np.full(d.model_input.length, sign, np.float32))
            for d, sign in zip(e.data, (1.0, -1.0), strict=True)]
    sizes = {"budget": 64, "group_size": 2}
    names = ["importance_sampling", "ppo", "cispo", "gspo", "dro",
             *(f"postgrad/{row.name}" for row in METHODS.values() if isinstance(row, Policy))]
    refused = []
    for name in names:
        try:
            e.training.forward_backward(data, name, sizes if "/" in name else None).result()
        except tinker.RequestFailedError as error:
            assert "which a Tinker client cannot send" in str(error)
            refused.append(name)
            continue
        stepped = e.training.optim_step(types.AdamParams(learning_rate=0.0)).result()
        assert stepped.metrics["grad_norm"] > 0, name
    assert refused == ["postgrad/opd"]  # it needs a teacher


def test_several_targets_a_token_weigh_as_one_by_one(everything):
    e = everything
    (ids, *_), training = [d.model_input.to_ints() for d in e.data], e.new_training()
    draw = np.random.default_rng(1)
    targets, weights = draw.integers(5, 500, (len(ids), 3)), draw.random((len(ids), 3)).astype(np.float32)
    wide = types.Datum(model_input=types.ModelInput.from_ints(ids),
                       loss_fn_inputs={"target_tokens": targets, "weights": weights})
    single = [types.Datum(model_input=types.ModelInput.from_ints(ids), loss_fn_inputs={
        "target_tokens": targets[:, k].copy(), "weights": weights[:, k].copy()}) for k in range(3)]
    whole = training.forward([wide], "cross_entropy").result()
    parts = training.forward(single, "cross_entropy").result()
    assert whole.metrics["loss:sum"] == pytest.approx(parts.metrics["loss:sum"], rel=1e-5)
    columns = whole.loss_fn_outputs[0]["logprobs"].to_numpy().reshape(len(ids), 3)
    assert columns[:, 1] == pytest.approx(parts.loss_fn_outputs[1]["logprobs"].to_numpy(), abs=1e-4)
    assert one_step(training, [wide])[1] > 0


# safety

def test_the_weights_of_one_key_are_not_anothers_until_published(everything):
    e = everything
    other = service_client(e.address, "tml-bob")
    rest = tinker.RestClient(base_url=e.address, api_key="tml-bob")
    for call in (lambda: other.create_training_client_from_state(e.state).result(),
                 lambda: other.create_sampling_client(model_path=e.weights).result(),
                 lambda: rest.get_training_run(e.training.model_id).result(),
                 lambda: rest.delete_checkpoint_from_tinker_path(e.state).result(),
                 lambda: rest.get_session(e.session).result(),
                 lambda: rest.get_sampler(e.sampler._sampling_session_id).result()):
        with pytest.raises(tinker.NotFoundError, match="of this API key"):
            call()
    assert rest.list_user_checkpoints().result().checkpoints == []
    e.rest.publish_checkpoint_from_tinker_path(e.state).result()
    assert other.create_training_client_from_state(e.state).result().model_id != e.training.model_id
    with pytest.raises(tinker.NotFoundError):
        rest.delete_checkpoint_from_tinker_path(e.state).result()
    e.rest.unpublish_checkpoint_from_tinker_path(e.state).result()
    with pytest.raises(tinker.NotFoundError):
        other.create_training_client_from_state(e.state).result()


def test_elsewhere_a_client_needs_the_token_and_may_have_a_name(tmp_path):
    token = "tml-0123456789abcdef0123456789abcdef"
    with tinker_server(tmp_path / "runs", token=token) as (address, _):
        ids = []
        for key in (token, f"{token}.bob"):
            client = service_client(address, key)
            ids.append(client.holder.get_session_id())
            rest = tinker.RestClient(base_url=address, api_key=key)
            assert rest.list_sessions().result().sessions == ids[-1:]
        for key in ("tml-guess", f"{token}x", ""):
            refused = httpx.get(f"{address}/api/v1/sessions", headers={"X-API-Key": key}, timeout=60)
            assert refused.status_code == 401 and "needs a token" in refused.text


def test_pages_of_others_and_other_names_are_refused(everything):
    web = httpx.Client(base_url=everything.address, timeout=60)
    assert web.get("/api/v1/healthz", headers={"Origin": "http://evil.example"}).status_code == 403
    assert web.get("/api/v1/healthz", headers={"Host": "evil.example"}).status_code == 421
    assert web.get("/api/v1/healthz").json() == {"status": "ok"}


def test_a_body_may_be_packed_and_is_taken_once(everything):
    e, training = everything, everything.new_training()
    message = forward_backward_request_to_proto(types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=e.data, loss_fn="cross_entropy"),
        model_id=training.model_id, seq_id=1)).SerializeToString()
    headers = {"Content-Type": "application/x-protobuf", "X-API-Key": KEY}
    web = httpx.Client(base_url=e.address, headers=headers, timeout=60)
    packed = web.post("/api/v1/forward_backward", content=zstandard.compress(message),
                      headers={"Content-Encoding": "zstd"})
    again = web.post("/api/v1/forward_backward", content=message)
    name = training.model_id
    assert packed.json() == again.json() == {"request_id": f"{name}:1", "model_id": name}
    bomb = web.post("/api/v1/forward_backward", content=zstandard.compress(bytes(2**28 + 2)),
                    headers={"Content-Encoding": "zstd"})
    assert bomb.status_code == 413
    other = web.post("/api/v1/forward_backward", content=message + b"\x22\x03ppo")
    assert other.status_code == 400 and "came already" in other.text


def test_hostile_bodies_are_answered_with_a_sentence_each(everything):
    e = everything
    known = {"session": e.session, "model": e.training.model_id, "path": e.state,
             "sampler": e.sampler._sampling_session_id}
    web, count = httpx.Client(base_url=e.address, headers={"X-API-Key": KEY}, timeout=60), 0
    for method, path, body, headers in bodies(300, seed=0, routes=TINKER_ROUTES, known=known):
        answer = web.request(method, path, content=body, headers=headers)
        assert 400 <= answer.status_code < 500, (method, path, body[:200], answer.text[:200])
        message = answer.json()["error"]["message"]
        assert message.endswith(".") and " " in message and len(message) < 3000, (method, path, message)
        count += 1
    assert count == 300
    one_step(e.training, e.data)  # nothing is down
    assert e.sampler.sample(e.prompt, 1, FEW).result().sequences


def test_a_refused_route_says_what_is_there_instead(everything):
    web = httpx.Client(base_url=everything.address, headers={"X-API-Key": KEY}, timeout=60)
    for method, path, _ in REFUSED_ROUTES:
        where = path.format(id="x", kind="weights", name="y")
        answer = web.request(method, f"/api/v1{where}")
        assert answer.status_code == 400 and answer.json()["error"]["message"].count(" ") > 5
