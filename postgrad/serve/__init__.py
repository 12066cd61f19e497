"""The endpoint: a model, or the newest checkpoint of a run, for any program that speaks OpenAI's protocol."""

from postgrad.serve.app import create_app, endpoint
from postgrad.serve.follow import Checkpoints, Pushed
from postgrad.serve.record import Recorder, recorded
from postgrad.serve.served import Served
from postgrad.serve.worker import Worker

__all__ = ["Checkpoints", "Pushed", "Recorder", "Served", "Worker", "create_app", "endpoint", "recorded"]
