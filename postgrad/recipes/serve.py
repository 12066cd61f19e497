"""Serves a model, by its name, behind OpenAI's protocol (serving/)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postgrad.resolve.handles import start_folder
from postgrad.resolve.models import Network, open_folder, open_writer, run_named
from postgrad.resolve.weights import current_weights, is_weights_folder
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.front import serve_by_fronts
from postgrad.serving.session_recorder import Recorder
from postgrad.serving.weight_updates import CheckpointWatcher, PushedWeights, WeightFeed
from postgrad.system.web_server import http_server

if TYPE_CHECKING:
    from postgrad.serving.tinker.service import TinkerService

PUSH_INTERVAL = 0.05  # seconds between two polls of a folder of weights, for which a training waits


class OpenedModel(NamedTuple):
    """source: where newer weights are looked for, every so many seconds. tinker: what trains it over the
    Tinker protocol."""

    served: ServedModel
    source: WeightFeed | None
    every: float
    tinker: TinkerService | None = None


def default_fronts(device: str) -> int:
    """Processes that serve HTTP: none but this one for a model on a CPU, which needs the cores itself."""
    return 0 if device == "cpu" else max(1, min(4, (os.cpu_count() or 1) // 3))


def serve_opened(opened: OpenedModel, sock: socket.socket, token: str | None, fronts: int,
                 ready: Callable[[], None]) -> None:
    """Serves until Ctrl-C. ready: called when it listens, or is about to."""
    served, source, every, tinker = opened
    if fronts:
        return serve_by_fronts(served, fronts, sock, token=token, source=source, every=every, ready=ready)
    ready()
    app = create_app(served, token=token, source=source, every=every)
    if tinker:
        from postgrad.serving.tinker.routes import add_tinker
        add_tinker(app, tinker)
    return http_server(app).run(sockets=[sock])


def open_served(model: str, *, name: str | None, rows: int, context: int, queue: int, record: str | None,
                every: float, device: str, template: str | None = None,
                tinker_runs: str | None = None) -> OpenedModel:
    """model: a name; a run, whose newest checkpoint is followed; or a folder of weights that a training
    writes for its samplers. every: seconds between two polls for newer weights. template: in place of the
    model's own. tinker_runs: where the runs go that clients train over the Tinker protocol; none: they do
    not."""
    pushed = is_weights_folder(model)
    run = None if pushed else run_named(model)
    if template and (pushed or run):
        raise ValueError(f"{model} is a run, which has the chat template that it was trained with: leave "
                         "template out.")
    folder = current_weights(model)[0] if pushed else open_folder(model)
    folder = start_folder(folder) if pushed and not folder.is_dir() else folder
    net, chat = open_writer(folder, device, template)
    training = PushedWeights(model, device, folder.name) if pushed else None
    weights = training.load_first(net) if training else None
    step = weights.step if weights else int(folder.name) if run and folder.name.isdecimal() else 0
    context = min(context, net.config.max_position_embeddings)
    name = name or (Path(model).resolve().name if run or Path(model).exists() else model)
    served = ServedModel.of(net.requires_grad_(False), chat, name, rows=rows, context=context, waiting=queue,
                            version=step)
    served.recorder = Recorder(record, chat) if record else None
    newer = training or (CheckpointWatcher(run[0], device, step) if run and run[1] is None else None)
    served.weights = weights.name if weights else ""
    if tinker_runs is None:
        return OpenedModel(served, newer, min(every, PUSH_INTERVAL) if weights else every)
    if pushed or newer:
        raise ValueError(f"{model} is a run that may train on, whose weights would change under those who "
                         "train on them: name one of its checkpoints, RUN@best or RUN@STEP, for --tinker.")
    return OpenedModel(served, None, every, open_tinker(served, net, folder, tinker_runs))


def open_tinker(served: ServedModel, net: Network, folder: Path, runs: str) -> TinkerService:
    """What trains a served model over the Tinker protocol."""
    from postgrad.serving.tinker.service import TinkerService
    from postgrad.serving.tinker.wire import message_classes
    message_classes()
    return TinkerService(served, net, str(folder.resolve()), Path(runs))
