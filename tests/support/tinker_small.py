"""A server of the Tinker protocol over the embedded chat model, for the real SDK: here, on a socket."""

import logging
import threading
from contextlib import contextmanager

import numpy as np
import tinker
import uvicorn
from tinker import types

from postgrad.models import find_model
from postgrad.resolve.models import open_writer
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.tinker.routes import add_tinker
from postgrad.serving.tinker.service import TinkerService
from postgrad.system.sockets import bind

# clients of a server that is gone warn of every heartbeat, to the end of the process
logging.getLogger("tinker.lib.internal_client_holder").setLevel(logging.ERROR)
KEY = "tml-alice"
WORDS = ["2 and 3 is 5.", "The sky is blue.", "Tom has 4 pears.", "7 less 2 is 5.", "Ann buys 9 hens.", "No."]


@contextmanager
def tinker_server(runs, token=None):
    """Its address, and its service."""
    net, chat = open_writer("tiny-chat")
    served = ServedModel.of(net.requires_grad_(False), chat, "small", rows=4, context=128, waiting=1000)
    app = create_app(served, token=token)
    service = TinkerService(served, net, str(find_model("tiny-chat")), runs)
    add_tinker(app, service)
    sock = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False,
                                           timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", service
    finally:
        server.should_exit = True
        thread.join()


def rows(chat, texts=WORDS):
    """Tokens of the texts, and which of them are trained: all but the first three."""
    return [(ids, [i >= 3 for i in range(len(ids))]) for ids in (chat.tokenizer.encode(t).ids for t in texts)]


def imitation(chat, texts=WORDS):
    """Data for cross-entropy, the mean over all trained tokens."""
    listed = rows(chat, texts)
    total = sum(sum(mask[1:]) for _, mask in listed)
    return [datum(ids, weights=np.array(mask[1:], np.float32) / np.float32(total)) for ids, mask in listed]


def datum(ids, **columns):
    return types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]),
                       loss_fn_inputs={"target_tokens": np.array(ids[1:]), **columns})


def service_client(address, key=KEY):
    return tinker.ServiceClient(base_url=address, api_key=key)


ADAM = types.AdamParams(learning_rate=1e-3, beta1=0.9, beta2=0.99, eps=1e-8)


def all_done(service):
    """Waits until the model's thread has done what it was told."""
    done = threading.Event()
    service.worker.inbox.put(done.set)
    done.wait()


def one_step(training, data, loss="cross_entropy", adam=ADAM, **config):
    """A pass and an update, sent together as the SDK's guide has it -> the loss and the gradient's norm."""
    passed, stepped = training.forward_backward(data, loss, config or None), training.optim_step(adam)
    return passed.result().metrics["loss:sum"], stepped.result().metrics["grad_norm"]
