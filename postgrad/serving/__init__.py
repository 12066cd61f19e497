"""The endpoint: a model, or the newest checkpoint of a run, for any program that speaks OpenAI's protocol."""

from postgrad.serving.app import create_app, endpoint
from postgrad.serving.follow import Checkpoints, Pushed
from postgrad.serving.record import Recorder, recorded
from postgrad.serving.served import Served
from postgrad.serving.worker import Worker

__all__ = ["Checkpoints", "Pushed", "Recorder", "Served", "Worker", "create_app", "endpoint", "recorded"]
