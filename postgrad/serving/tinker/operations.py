"""What a client asks of a model, by kind: read and checked when it comes, done on the model's thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from postgrad.models.checkpoint import read_state
from postgrad.serving.request_body import Refusal, RequestBody, parse_body
from postgrad.serving.tinker.catalogue import (
    Catalogue,
    SavedCheckpoint,
    checkpoint_name,
    expiry,
    tinker_path,
)
from postgrad.serving.tinker.passes import check_datum, metric_names
from postgrad.serving.tinker.sampler_pool import SavedWeights
from postgrad.serving.tinker.tuned_model import StepParameters, TunedModel, finite_numbers
from postgrad.serving.tinker.wire import decode_pass, encode_pass_output, read_pass_request
from postgrad.training.named_losses import loss_named


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a future holds in the end: bytes of protobuf, an object, or the sentence of an error."""

    proto: bytes | None = None
    fields: Mapping[str, Any] | None = None
    error: str = ""
    category: str = "user"


@dataclass(frozen=True, kw_only=True)
class ModelPlace:
    """What an operation needs to know of its model. resolve: a path to the weights that it names."""

    model_id: str
    catalogue: Catalogue
    vocab: int
    positions: int
    resolve: Callable[[str], SavedWeights]


Action = Callable[[TunedModel], Result]


def prepare_operation(kind: str, seq: int, body: bytes, place: ModelPlace) -> Action:
    """Reads an operation -> what does it. What is wrong with it is refused here, by name."""
    return PREPARE[kind](seq, body, place)


def json_body(body: bytes) -> RequestBody:
    asked = parse_body(body)
    asked.take("type", str, None)
    return asked


def prepare_pass(seq: int, body: bytes, place: ModelPlace) -> Action:
    asked = decode_pass(read_pass_request(body))
    try:
        loss = loss_named(asked.loss, asked.config)
    except ValueError as error:
        raise Refusal(str(error)) from None
    for i, datum in enumerate(asked.data):
        check_datum(datum, loss, f"data[{i}]", place.vocab, place.positions)

    def act(model: TunedModel) -> Result:
        result = model.run_pass(asked.data, loss, not asked.forward_only)
        return Result(proto=encode_pass_output(result.logprobs, finite_numbers(metric_names(result))))

    return act


def prepare_step(seq: int, body: bytes, place: ModelPlace) -> Action:
    asked = numbered(json_body(body))
    if "optimizer_params" in asked.left:
        raise Refusal("optimizer_params are of another optimizer than AdamW, which this server has: pass "
                      "AdamParams.", param="optimizer_params")
    fields = RequestBody(asked.take("adam_params", dict, {}), "adam_params.")
    clip = fields.take("grad_clip_norm", float, 0.0, low=0)
    parameters = StepParameters(
        lr=fields.take("learning_rate", float, 1e-4, low=0, high=1e6),
        beta1=fields.take("beta1", float, 0.9, low=0, high=1 - 1e-12),
        beta2=fields.take("beta2", float, 0.95, low=0, high=1 - 1e-12),
        eps=fields.take("eps", float, 1e-12, low=0, high=1e6),
        weight_decay=fields.take("weight_decay", float, 0.0, low=0, high=1e6), clip=clip or math.inf)
    fields.done()
    asked.done()

    def act(model: TunedModel) -> Result:
        return Result(fields={"metrics": finite_numbers(model.step(parameters)), "type": "optim_step"})

    return act


def prepare_save(seq: int, body: bytes, place: ModelPlace) -> Action:
    asked = numbered(json_body(body))
    name = checkpoint_name(asked.take("path", str, None) or f"{seq:06d}")
    overwrite = asked.take("overwrite", bool, False)
    entry = checkpoint_entry(asked, f"weights/{name}", seq)
    asked.done()

    def act(model: TunedModel) -> Result:
        place.catalogue.save(entry, lambda folder: model.save(folder, optimizer=True), overwrite)
        return Result(fields={"path": tinker_path(place.model_id, entry.id), "type": "save_weights"})

    return act


def prepare_save_for_sampler(seq: int, body: bytes, place: ModelPlace) -> Action:
    asked = numbered(json_body(body))
    name, number = asked.take("path", str, None), asked.take("sampling_session_seq_id", int, None, low=0)
    asked.take("kind", str, "snapshot")
    if (name is None) == (number is None):
        raise Refusal("either path or sampling_session_seq_id has to be given: a name for the weights, or "
                      "the number of a sampler of them.")
    label = checkpoint_name(name) if name else f"~{seq:08d}"
    entry = checkpoint_entry(asked, f"sampler_weights/{label}", seq)
    asked.done()
    session = place.model_id.partition(":")[0]

    def act(model: TunedModel) -> Result:
        place.catalogue.save(entry, lambda folder: model.save(folder, optimizer=False), False)
        sampler = None if number is None else f"{session}:sample:{number}"
        path = tinker_path(place.model_id, entry.id) if name else None
        return Result(fields={"path": path, "sampling_session_id": sampler,
                              "type": "save_weights_for_sampler"})

    return act


def prepare_load(seq: int, body: bytes, place: ModelPlace) -> Action:
    asked = numbered(json_body(body))
    path, optimizer = asked.take("path", str), asked.take("optimizer", bool)
    refuse_foreign(asked)
    asked.done()
    saved = place.resolve(path)

    def act(model: TunedModel) -> Result:
        state = read_state(saved.folder)
        model.load(state, optimizer and has_optimizer(state, path))
        return Result(fields={"path": path, "model_id": place.model_id, "type": "load_weights"})

    return act


def refuse_external(seq: int, body: bytes, place: ModelPlace) -> Action:
    raise Refusal("save_weights_external is not here, for every checkpoint of a training run is a model "
                  "folder in Hugging Face's layout: take the newest of its run folder's checkpoints.")


def has_optimizer(state: Mapping[str, Any], path: str) -> bool:
    if "optim" not in state:
        raise Refusal(f"{path} was saved for a sampler, without the optimizer's state: load it without, or "
                      "save with save_state.")
    return True


def refuse_foreign(asked: RequestBody) -> None:
    """Fields of a service with accounts."""
    if asked.take("weights_access_token", str, None) is not None:
        raise Refusal("weights_access_token is for weights of another account, and this server has none: "
                      "their owner publishes them.", param="weights_access_token")


def numbered(asked: RequestBody) -> RequestBody:
    """Without the fields that name the model and the operation's number."""
    asked.take("model_id", str, None)
    asked.take("seq_id", int, None)
    return asked


def checkpoint_entry(asked: RequestBody, id: str, seq: int) -> SavedCheckpoint:
    expires = expiry(asked.take("ttl_seconds", int, None))
    return SavedCheckpoint(id=id, seq=seq, made=time.time(), expires=expires,
                           user_metadata=text_map(asked, "user_metadata"))


def text_map(asked: RequestBody, name: str) -> dict[str, str] | None:
    values = asked.take(name, dict, None)
    if values is not None and not all(isinstance(x, str) for pair in values.items() for x in pair):
        asked.refuse(name, "has to be an object of texts")
    return values


PREPARE: dict[str, Callable[[int, bytes, ModelPlace], Action]] = {
    "forward_backward": prepare_pass, "optim_step": prepare_step, "save_weights": prepare_save,
    "save_weights_for_sampler": prepare_save_for_sampler, "load_weights": prepare_load,
    "save_weights_external": refuse_external}
