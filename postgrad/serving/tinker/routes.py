"""The routes of the protocol, under /api/v1."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from postgrad.serving.request_body import PATIENCE, Refusal, RequestBody, read_body
from postgrad.serving.tinker.catalogue import Catalogue, expiry, iso_time
from postgrad.serving.tinker.operations import json_body, refuse_foreign, text_map
from postgrad.serving.tinker.service import TinkerService
from postgrad.serving.tinker.sessions import Session, owner_of
from postgrad.serving.tinker.tuned_model import Tuning
from postgrad.serving.tinker.wire import decompress, read_pass_request
from postgrad.system.json_text import shorten_value

PROTOBUF = "application/x-protobuf"
LARGEST_PASS = 2**28   # bytes of a forward_backward body, unpacked
HELD = 25.0            # seconds for which a request for a future is held
MOST_PAGE = 1000
MOST_RANK = 4096


def service_of(request: Request) -> TinkerService:
    service: TinkerService = request.app.state.tinker
    return service


def owner(request: Request) -> str:
    return owner_of(request.headers.get("x-api-key", ""))


async def request_body(request: Request) -> RequestBody:
    body = await read_body(request)
    body.take("type", str, None)
    return body


async def read_raw(request: Request, most: int = LARGEST_PASS) -> bytes:
    """The body as it came, unpacked."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Refusal(f"the body has over {most:,} bytes, the most that is read.", 413)
                parts.append(part)
    except TimeoutError:
        raise Refusal(f"the body did not come within {PATIENCE:g} seconds.", 408) from None
    except ClientDisconnect:
        raise Refusal("the connection was closed before the body had come.", 400) from None
    body, encoding = b"".join(parts), request.headers.get("content-encoding", "identity").lower()
    if encoding == "zstd":
        return await run_in_threadpool(decompress, body, most)
    if encoding != "identity":
        raise Refusal(f"the body is packed as {shorten_value(encoding)}, and zstd is read.", 415)
    return body


# the server and its sessions

async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def client_config(request: Request) -> Response:
    await read_body(request)
    return JSONResponse({"pjwt_auth_enabled": False, "proto_compress_fwdbwd": False,
                         "custom_loss_server_side": False, "sample_join_sampling_session": True})


async def dynamic_config(request: Request) -> Response:
    await read_body(request)
    return JSONResponse({"refresh_interval_sec": 300, "sample_cancel_enabled": True})


async def capabilities(request: Request) -> Response:
    served = service_of(request).served
    return JSONResponse({"supported_models": [
        {"model_name": served.name, "max_context_length": served.context, "trainable": True,
         "sampleable": True}]})


async def create_session(request: Request) -> Response:
    body = await request_body(request)
    body.take("tags", list, None)
    body.take("sdk_version", str, None)
    session = service_of(request).sessions.create(
        owner(request), user_metadata=body.take("user_metadata", dict, {}),
        project_id=body.take("project_id", str, None), display_name=body.take("display_name", str, None))
    body.done()
    return JSONResponse({"type": "create_session", "session_id": session.id})


async def heartbeat(request: Request) -> Response:
    body = await request_body(request)
    session = service_of(request).sessions.get(body.take("session_id", str), owner(request))
    if not session.open:
        raise Refusal(f"session {session.id} is finished.", 410)
    return JSONResponse({"type": "session_heartbeat"})


async def finish_session(request: Request) -> Response:
    service = service_of(request)
    session = service.sessions.get(request.path_params["id"], owner(request))
    body = await request_body(request)
    reason, detail = RequestBody(body.take("reason", dict), "reason."), body.take("detail", str, None)
    kind = reason.take("type", str)
    if kind not in ("success", "errored", "interrupted"):
        reason.refuse("type", f"is {shorten_value(kind)}, and has to be success, errored or interrupted")
    body.done()
    session.status = {"type": "client_finished", "reason": {"type": kind}, "detail": detail}
    service.sessions.write(session)
    for model_id in [name for name in service.queues if name.startswith(f"{session.id}:")]:
        service.unload(model_id, {"success": "done", "errored": "failed"}.get(kind, "stopped"))
    return JSONResponse({})


# models

async def create_model(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    session = service.sessions.get(body.take("session_id", str), owner(request))
    number = body.take("model_seq_id", int, low=0)
    service.check_base(body.take("base_model", str))
    user_metadata = text_map(body, "user_metadata")
    check_optimizer(body)
    tuning = read_tuning(body.take("lora_config", dict, None))
    body.done()
    queue = service.create(session, number, tuning, user_metadata)
    model_id = queue.place.model_id
    return JSONResponse({"request_id": f"{model_id}:create", "model_id": model_id})


def check_optimizer(body: RequestBody) -> None:
    config = body.take("optimizer_config", dict, None)
    if config is not None and config != {"type": "adamw"}:
        raise Refusal(f"optimizer_config is {shorten_value(config)}, and this server has AdamW: leave it "
                      "out.", param="optimizer_config")


def read_tuning(config: dict[str, Any] | None) -> Tuning:
    if config is None:
        return Tuning(rank=0)
    fields = RequestBody(config, "lora_config.")
    tuning = Tuning(rank=fields.take("rank", int, low=0, high=MOST_RANK),
                    seed=fields.take("seed", int, 0, low=-2**63, high=2**63 - 1),
                    mlp=fields.take("train_mlp", bool, True), attention=fields.take("train_attn", bool, True),
                    head=fields.take("train_unembed", bool, True))
    fields.done()
    if tuning.rank and not (tuning.mlp or tuning.attention or tuning.head):
        raise Refusal("lora_config trains nothing: train_mlp, train_attn or train_unembed has to be true.")
    if not tuning.rank and not (tuning.mlp and tuning.attention and tuning.head):
        raise Refusal("lora_config.rank is 0, which trains all weights: train_mlp, train_attn and "
                      "train_unembed have to be true.")
    return tuning


async def get_info(request: Request) -> Response:
    service = service_of(request)
    facts = service.owned_facts((await request_body(request)).take("model_id", str), owner(request))
    rank, name = facts["tuning"]["rank"], facts["base_model"]
    data = {"arch": service.architecture, "model_name": name, "tokenizer_id": service.tokenizer_id}
    return JSONResponse({
        "type": "get_info", "model_id": facts["model_id"], "is_lora": rank > 0, "lora_rank": rank or None,
        "model_name": name, "optimizer_config": {"type": "adamw"}, "model_data": data})


async def unload_model(request: Request) -> Response:
    service = service_of(request)
    model_id = (await request_body(request)).take("model_id", str)
    service.owned_facts(model_id, owner(request))
    service.unload(model_id)
    return JSONResponse({"request_id": f"{model_id}:unload", "model_id": model_id})


async def forward_backward(request: Request) -> Response:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != PROTOBUF:
        raise Refusal(f"the body is {shorten_value(kind)}, and has to be {PROTOBUF}.", 415)
    body = await read_raw(request)
    message = await run_in_threadpool(read_pass_request, body)
    return submit(request, "forward_backward", message.model_id, message.seq_id, body)


def operation_route(kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        body = await read_raw(request, 2**22)
        fields = json_body(body)
        return submit(request, kind, fields.take("model_id", str), fields.take("seq_id", int), body)

    return route


def submit(request: Request, kind: str, model_id: str, seq: int, body: bytes) -> Response:
    if seq < 1:
        raise Refusal(f"seq_id is {seq}, and the operations of a model are numbered from 1.", param="seq_id")
    queue = service_of(request).queue(model_id, owner(request))
    queue.submit(kind, seq, body)
    return JSONResponse({"request_id": f"{model_id}:{seq}", "model_id": model_id})


save_weights, optim_step = operation_route("save_weights"), operation_route("optim_step")
save_weights_external = operation_route("save_weights_external")


async def save_for_sampler(request: Request) -> Response:
    service, body = service_of(request), await read_raw(request, 2**22)
    fields = json_body(body)
    model_id, seq = fields.take("model_id", str), fields.take("seq_id", int)
    answer = submit(request, "save_weights_for_sampler", model_id, seq, body)
    number, kind = fields.take("sampling_session_seq_id", int, None), fields.take("kind", str, "snapshot")
    if number is not None:
        source = ({"inflight": model_id} if kind == "inflight"
                  else {"path": f"tinker://{model_id}/sampler_weights/~{seq:08d}"})
        service.add_sampler(service.sessions.get(model_id.partition(":")[0], owner(request)), number, source)
    return answer


async def load_weights(request: Request) -> Response:
    service, body = service_of(request), await read_raw(request, 2**22)
    fields = json_body(body)
    if fields.left.get("session_id") is None:
        return submit(request, "load_weights", fields.take("model_id", str), fields.take("seq_id", int), body)
    session = service.sessions.get(fields.take("session_id", str), owner(request))
    number, path = fields.take("model_seq_id", int, low=0), fields.take("path", str)
    optimizer = fields.take("optimizer", bool)
    if (base := fields.take("base_model", str, None)) is not None:
        service.check_base(base)
    user_metadata = text_map(fields, "user_metadata")
    check_optimizer(fields)
    refuse_foreign(fields)
    fields.done()
    facts, _, _ = service.checkpoint(path, session.owner)
    service.check_base(facts["base_model"])
    queue = service.create(session, number, Tuning(**facts["tuning"]), user_metadata,
                           {"path": path, "optimizer": optimizer})
    model_id = queue.place.model_id
    return JSONResponse({"request_id": f"{model_id}:create", "model_id": model_id})


# sampling

async def create_sampling_session(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    session = service.sessions.get(body.take("session_id", str), owner(request))
    number = body.take("sampling_session_seq_id", int, low=0)
    base, path = body.take("base_model", str, None), body.take("model_path", str, None)
    body.done()
    if path is None:
        service.check_base(base)
    else:
        facts, _, _ = service.checkpoint(path, session.owner)
        service.check_base(facts["base_model"])
    name = service.add_sampler(session, number, {} if path is None else {"path": path})
    return JSONResponse({"type": "create_sampling_session", "sampling_session_id": name})


async def join_sampling_session(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    session, number, _ = service.sampler(body.take("sampling_session_id", str), owner(request))
    body.done()
    session.clones[number] = session.clones.get(number, 0) + 1
    service.sessions.write(session)
    return JSONResponse({"type": "join_sampling_session", "client_counter": session.clones[number]})


async def get_sampler(request: Request) -> Response:
    service, name = service_of(request), request.path_params["id"]
    _, _, source = service.sampler(name, owner(request))
    return JSONResponse({"sampler_id": name, "base_model": service.served.name,
                         "model_path": source.get("path")})


async def asample(request: Request) -> Response:
    name, sequences = service_of(request).ask(await read_body(request), owner(request))
    return JSONResponse({"request_id": name, "sample_sequence_ids": sequences})


# futures

async def retrieve_future(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    name = body.take("request_id", str)
    body.take("allow_metadata_only", bool, False)
    body.take("model_id", str, None)
    body.done()
    promise = service.future(name, owner(request))
    result = await promise.wait(HELD)
    if result is None:
        return JSONResponse({"type": "try_again", "request_id": name, "queue_state": "active"})
    service.mark_sent(name, promise)
    if result.error:
        return JSONResponse({"error": result.error, "category": result.category})
    if result.proto is not None:
        return Response(result.proto, media_type=PROTOBUF)
    return JSONResponse(dict(result.fields or {}))


async def retrieve_futures(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    target = RequestBody(body.take("target", dict), "target.")
    target.take("type", str, None)
    name, clone = target.take("sampling_session_id", str), target.take("cloned_sampler_id", int, 0, low=0)
    target.done()
    cursor, seconds = body.take("prev_cursor", int, 0, low=0), body.take("timeout", float, HELD, low=0)
    retrieved = body.take("retrieved_request_ids", list, [])
    body.done()
    completions, cursor = await service.ended_samples(name, clone, cursor, owner(request), min(seconds, HELD))
    for other in (other for other in retrieved if isinstance(other, str) and other.startswith(f"{name}:")):
        service.samples.pop(other, None)
    return JSONResponse({"completions": completions, "cursor": cursor})


async def cancel_future(request: Request) -> Response:
    service = service_of(request)
    service.cancel((await request_body(request)).take("request_id", str), owner(request))
    return JSONResponse({})


# what there is

def page(request: Request) -> tuple[int, int]:
    query = RequestBody({name: query_number(request.query_params[name], name) for name in ("limit", "offset")
                         if name in request.query_params}, "the query's ")
    return query.take("limit", int, 20, low=1, high=MOST_PAGE), query.take("offset", int, 0, low=0)


def query_number(text: str, name: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else text


async def list_runs_route(request: Request) -> Response:
    service, (limit, offset) = service_of(request), page(request)
    records = await run_in_threadpool(service.run_records, owner(request))
    return JSONResponse({"training_runs": records[offset: offset + limit],
                         "cursor": {"offset": offset, "limit": limit, "total_count": len(records)}})


async def get_run(request: Request) -> Response:
    service = service_of(request)
    facts = service.owned_facts(request.path_params["id"], owner(request))
    return JSONResponse(service.run_record(facts))


async def list_checkpoints(request: Request) -> Response:
    service, model_id = service_of(request), request.path_params["id"]
    service.owned_facts(model_id, owner(request))
    entries = service.catalogue(model_id).available()
    return JSONResponse({"checkpoints": [entry.record(model_id) for entry in entries]})


async def list_user_checkpoints(request: Request) -> Response:
    service, (limit, offset) = service_of(request), page(request)
    records = await run_in_threadpool(service.checkpoint_records, owner(request))
    return JSONResponse({"checkpoints": records[offset: offset + limit],
                         "cursor": {"offset": offset, "limit": limit, "total_count": len(records)}})


def own_checkpoint(request: Request) -> tuple[Catalogue, str]:
    """The catalogue and the id of saved weights of this key, by the route's path."""
    service, path = service_of(request), request.path_params
    service.owned_facts(path["id"], owner(request))
    _, entry, catalogue = service.checkpoint(f"tinker://{path['id']}/{path['kind']}/{path['name']}",
                                             owner(request))
    return catalogue, entry.id


async def delete_checkpoint(request: Request) -> Response:
    catalogue, name = own_checkpoint(request)
    await run_in_threadpool(catalogue.delete, name)
    return JSONResponse({})


async def publish_checkpoint(request: Request) -> Response:
    catalogue, name = own_checkpoint(request)
    catalogue.change(name, public=request.method == "POST")
    return JSONResponse({})


async def set_ttl(request: Request) -> Response:
    catalogue, name = own_checkpoint(request)
    body = await request_body(request)
    expires = expiry(body.take("ttl_seconds", int, None))
    body.done()
    catalogue.change(name, expires=expires)
    return JSONResponse({})


async def weights_info(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    facts, _, _ = service.checkpoint(body.take("tinker_path", str), owner(request))
    tuning = facts["tuning"]
    return JSONResponse({"base_model": facts["base_model"], "is_lora": tuning["rank"] > 0,
                         "lora_rank": tuning["rank"] or None, "train_unembed": tuning["head"],
                         "train_mlp": tuning["mlp"], "train_attn": tuning["attention"],
                         "optimizer_config": {"type": "adamw"}})


async def copy_weights(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    path, ttl = body.take("source_path", str), body.take("ttl_seconds", int, None)
    session_id, number = body.take("session_id", str, None), body.take("model_seq_id", int, 0, low=0)
    project = body.take("destination_project_id", str, None)
    refuse_foreign(body)
    if "x-tinker-weights-access-token" in request.headers:
        body.left["weights_access_token"] = "given"
        refuse_foreign(body)
    body.done()
    name = owner(request), request.headers.get("x-idempotency-key", "")
    if not name[1] or name not in service.copies:
        service.checkpoint(path, name[0])
        session = (service.sessions.get(session_id, name[0]) if session_id else
                   service.sessions.create(name[0], display_name="copied weights", project_id=project))
        service.copies[name] = service.copy_weights(session, number, path, ttl)
    return JSONResponse({"tinker_path": service.copies[name]})


async def search_sessions(request: Request) -> Response:
    body = await request_body(request)
    sessions = service_of(request).sessions.of(owner(request))
    wanted, words = body.take("session_id", str, None), body.take("display_name", str, None)
    projects, pairs = body.take("project_ids", list, None), text_map(body, "user_metadata") or {}
    statuses = [status.get("type") for status in body.take("statuses", list, []) if isinstance(status, dict)]
    limit, cursor = body.take("limit", int, 50, low=1, high=200), body.take("cursor", dict, None)
    body.take("owner", dict, None)  # a key has its own sessions alone
    body.done()
    records = []
    for session in sessions:
        title = (session.display_name or "").lower()
        named = session.id == wanted or (words and all(word in title for word in words.lower().split()))
        status = session.status or {"type": "active"}
        if ((wanted or words) and not named or projects is not None and session.project_id not in projects
                or any(session.user_metadata.get(k) != v for k, v in pairs.items())
                or statuses and status["type"] not in statuses):
            continue
        records.append(session_summary(service_of(request), session, status))
    if cursor is not None:
        ids = [record["session_id"] for record in records]
        last = cursor.get("last_session_id")
        records = records[ids.index(last) + 1:] if last in ids else []
    more = records[limit - 1] if len(records) > limit else None
    return JSONResponse({"sessions": records[:limit], "next_cursor": more and {
        "last_created_at": more["created_at"], "last_session_id": more["session_id"]}})


def session_summary(service: TinkerService, session: Session, status: dict[str, Any]) -> dict[str, Any]:
    saved = [entry for model in service.models_of(session) for entry in service.catalogue(model).available()]
    return {"session_id": session.id, "created_at": iso_time(session.created), "owner": session.owner,
            "project_id": session.project_id or "", "status": status, "checkpoints_count": len(saved),
            "display_name": session.display_name, "user_metadata": session.user_metadata,
            "checkpoint_storage_bytes": sum(entry.size for entry in saved)}


async def assign_project(request: Request) -> Response:
    service, body = service_of(request), await request_body(request)
    session = service.sessions.get(request.path_params["id"], owner(request))
    session.project_id = body.take("project_id", str)
    body.done()
    service.sessions.write(session)
    return JSONResponse({})


async def trace_export(request: Request) -> Response:
    service_of(request).sessions.get(request.path_params["id"], owner(request))
    return JSONResponse({"status": "failed", "error": "this server keeps no traces: the metrics of a "
                                                      "training run are in its folder, metrics.jsonl."})


async def storage_usage(request: Request) -> Response:
    count, size = await run_in_threadpool(service_of(request).storage, owner(request))
    return JSONResponse({"data": [{"checkpoint_count": count, "size_bytes": size,
                                   "size_gigabytes": size / 1e9}]})


async def list_sessions(request: Request) -> Response:
    limit, offset = page(request)
    sessions = service_of(request).sessions.of(owner(request))
    return JSONResponse({"sessions": [session.id for session in sessions[offset: offset + limit]]})


async def get_session(request: Request) -> Response:
    service = service_of(request)
    session = service.sessions.get(request.path_params["id"], owner(request))
    return JSONResponse({"training_run_ids": service.models_of(session),
                         "sampler_ids": [f"{session.id}:sample:{n}" for n in session.samplers],
                         "user_metadata": session.user_metadata, "display_name": session.display_name})


async def telemetry(request: Request) -> Response:
    """Answered, and dropped."""
    await read_raw(request, 2**24)
    return JSONResponse({"status": "accepted"})


def refused(what: str) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        raise Refusal(f"{what}.", 400)

    return route


V1 = "/api/v1"
REFUSED_ROUTES = (
    ("POST", "/create_custom_loss", "create_custom_loss stores a loss on the server, which this one does "
     "not: hand the function to forward_backward_custom, which runs it in the client"),
    ("POST", "/auth/token", "this server gives no tokens: the API key is all that it takes"),
    ("GET", "/auth/apikey/me", "this server knows no accounts: an API key is all that it knows of a client"),
    ("GET", "/audit", "this server keeps no audit log: a run folder's events.jsonl says what happened to it"),
    ("GET", "/billing/usage/events", "this server bills nothing, and keeps no record of usage"),
    ("GET", "/training_runs/{id}/checkpoints/{kind}/{name}/external_weights_urls",
     "this server has no external weights: every checkpoint of a run folder is a model folder"),
    ("GET", "/training_runs/{id}/checkpoints/{kind}/{name}/archive",
     "this server packs no archives: the weights are files in the run's folder"))
RUN, CHECKPOINT = "/training_runs/{id}", "/training_runs/{id}/checkpoints/{kind}/{name}"
TINKER_ROUTES = [
    Route(V1 + path, route, methods=[method]) for method, path, route in (
        ("GET", "/healthz", healthz), ("POST", "/client/config", client_config),
        ("POST", "/client/dynamic_config", dynamic_config), ("GET", "/get_server_capabilities", capabilities),
        ("POST", "/create_session", create_session), ("POST", "/session_heartbeat", heartbeat),
        ("POST", "/sessions/{id}/finish", finish_session), ("POST", "/create_model", create_model),
        ("POST", "/get_info", get_info), ("POST", "/unload_model", unload_model),
        ("POST", "/forward_backward", forward_backward), ("POST", "/optim_step", optim_step),
        ("POST", "/save_weights", save_weights), ("POST", "/save_weights_for_sampler", save_for_sampler),
        ("POST", "/save_weights_external", save_weights_external), ("POST", "/load_weights", load_weights),
        ("POST", "/create_sampling_session", create_sampling_session),
        ("POST", "/join_sampling_session", join_sampling_session), ("GET", "/samplers/{id}", get_sampler),
        ("POST", "/asample", asample), ("POST", "/retrieve_future", retrieve_future),
        ("POST", "/retrieve_futures", retrieve_futures), ("POST", "/cancel_future", cancel_future),
        ("GET", "/training_runs", list_runs_route),
        ("GET", RUN, get_run), ("GET", f"{RUN}/checkpoints", list_checkpoints),
        ("GET", "/checkpoints", list_user_checkpoints), ("DELETE", CHECKPOINT, delete_checkpoint),
        ("POST", f"{CHECKPOINT}/publish", publish_checkpoint),
        ("DELETE", f"{CHECKPOINT}/publish", publish_checkpoint), ("PUT", f"{CHECKPOINT}/ttl", set_ttl),
        ("POST", "/weights_info", weights_info), ("GET", "/sessions", list_sessions),
        ("GET", "/sessions/{id}", get_session), ("POST", "/sessions/search", search_sessions),
        ("PUT", "/sessions/{id}/project", assign_project),
        ("GET", "/sessions/{id}/trace_export", trace_export), ("POST", "/copy_weights", copy_weights),
        ("GET", "/billing/usage/checkpoints/current", storage_usage), ("POST", "/telemetry", telemetry),
        *((method, path, refused(what)) for method, path, what in REFUSED_ROUTES))]


def add_tinker(app: Starlette, service: TinkerService) -> None:
    """The protocol's routes beside those of an app."""
    app.router.routes += TINKER_ROUTES
    app.state.tinker = service
    app.state.closing.append(service.close)
