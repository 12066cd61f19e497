"""An ASGI app on a free port, by the server that users have."""

import threading
from contextlib import contextmanager

from postgrad.system.sockets import bind
from postgrad.system.web_server import http_server


@contextmanager
def on_a_port(app):
    """Its port. The server has a thread of its own."""
    sock = bind("127.0.0.1", 0)
    server = http_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        sock.close()
