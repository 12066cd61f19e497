"""The endpoint: a model, or the newest checkpoint of a run, for any program that speaks OpenAI's protocol."""

from postgrad.serve.app import create_app
from postgrad.serve.follow import Checkpoints, Pushed
from postgrad.serve.served import Served
from postgrad.serve.worker import Worker

__all__ = ["Checkpoints", "Pushed", "Served", "Worker", "create_app"]
