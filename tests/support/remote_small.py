"""Remote samplers for tests: `postgrad serve` in a thread over a folder of weights, and one that says
what it is told to."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from web_small import on_a_port

from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import WeightsFolder, current_weights
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.weight_updates import PushedWeights


def begin(folder, model="tiny-chat"):
    """A folder with the weights that a training would leave there before its first step."""
    net, chat = open_writer(model)
    place = WeightsFolder(folder, chat)
    place.show(place.write(net, 0))
    return folder


@contextmanager
def sampler_of(folder, rows=16, spoil=lambda net: None, follows=True):
    """The address of an endpoint over a folder of weights. spoil: changes the weights it opened with."""
    place, weights = current_weights(folder)
    net, chat = open_writer(place)
    spoil(net)
    served = ServedModel.of(net.requires_grad_(False), chat, "policy", rows=rows, context=256, waiting=256,
                       version=weights.step)
    served.weights = weights.name
    source = PushedWeights(folder, "cpu", weights.name) if follows else None
    with on_a_port(create_app(served, source=source, every=0.01)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def saying(answer):
    """The address of a sampler whose answer to a question is answer(path, body): JSON, bytes, or None, which
    closes the connection."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers.get("Content-Length") or 0)
            said = answer(self.path, json.loads(self.rfile.read(size)) if size else None)
            if said is None:
                return self.connection.close()
            text = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

        def log_message(self, *words):
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
