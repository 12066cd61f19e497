"""The model that is served: its name, its chat template, and the thread that decodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from postgrad import __version__
from postgrad.models.chat import Chat
from postgrad.sampling import RequestBatch
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.decode_worker import DecodeWorker
from postgrad.serving.errors import Refusal
from postgrad.serving.session_recorder import Recorder


@dataclass(kw_only=True)
class ServedModel:
    """name: what clients call it. context: tokens of a prompt and its reply together. weights: the name that
    a training gave the weights in use, "" without one."""

    name: str
    chat: Chat
    worker: DecodeWorker
    context: int
    recorder: Recorder | None = None
    weights: str = ""
    began: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, model: DecodableModel, chat: Chat, name: str, *, rows: int, context: int, waiting: int,
           version: int = 0) -> ServedModel:
        """Makes the KV cache of a model; its thread is started by the app."""
        batch = RequestBatch(model, chat, rows=rows, max_prompt_tokens=context, max_new_tokens=context,
                             positions=context)
        batch.version = version
        return cls(name=name, chat=chat, worker=DecodeWorker(batch, waiting=waiting), context=context)

    @property
    def version(self) -> int:
        """The optimizer step of the weights in use; 0 of a model that is no run's."""
        return self.worker.version

    def envelope(self, id: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The fields that every completion has."""
        return {"id": id, "object": kind, "created": int(time.time()), "model": self.name, "choices": choices,
                "system_fingerprint": f"postgrad-{__version__}-step-{self.version}",
                "policy_step": self.version}

    def check_name(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise Refusal(f"there is no model {name!r:.80}: this server has {self.name!r}.", 404,
                          param="model", code="model_not_found")

    def reply_room(self, prompt: list[int], asked: int | None, param: str) -> int:
        """The most tokens of a reply: as many as were asked for, or all that fit."""
        left = self.context - len(prompt)
        if not prompt:
            raise Refusal(f"{param} has no token: a model needs at least one.", param=param)
        if (asked or 0) > left or left < 1:
            wanted = f" and {asked} for the reply" if asked is not None else ""
            raise Refusal(f"{param} has {len(prompt)} tokens{wanted}, and the context is {self.context} "
                          "tokens: shorten it, or ask for a shorter reply.", param=param,
                          code="context_length_exceeded")
        return left if asked is None else asked

    def check_tokens(self, tokens: list[int], name: str) -> list[int]:
        most = self.worker.vocab_size
        bad = next((t for t in tokens if type(t) is not int or not 0 <= t < most), None)
        if bad is not None:
            raise Refusal(f"{name} holds {bad!r:.40}, and a token is a whole number from 0 to {most - 1}.",
                          param=name)
        return tokens
