"""An endpoint over the embedded chat model: in this process, or on a socket."""

import json
from contextlib import contextmanager

from starlette.testclient import TestClient
from web_small import on_a_port

from postgrad.resolve.models import open_writer
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import ServedModel

ASK = [{"role": "user", "content": "Tom has 3 pears and buys 4 more. How many pears does he have?"}]


def served(rows=8, context=256, waiting=64, model="tiny-chat", chat=None, **more):
    net, own = open_writer(model)
    return ServedModel.of(net.requires_grad_(False), chat or own, "small", rows=rows, context=context,
                     waiting=waiting, **more)


@contextmanager
def client(what=None, token=None, host="http://localhost", **more):
    with TestClient(create_app(what or served(), token=token, **more), base_url=host,
                    raise_server_exceptions=False) as inside:
        yield inside


def on_a_socket(what):
    """Its port."""
    return on_a_port(create_app(what))


def idle(what):
    """Every slot is free; asked on the thread that owns them."""
    batch, scheduler = what.worker.batch, what.worker.batch.scheduler
    return (sorted(scheduler.free_slots) == list(range(batch.rows))
            and len(scheduler.free_places) == batch.engine.prompts
            and not batch.busy and not what.worker.pending and what.worker.open == 0)


def events(text):
    """The objects of a stream of server-sent events, which ends as it has to."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def post(web, path, status=200, **body):
    answer = web.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()
