"""What is served: a model by its name, its tokens, and the thread that writes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from postgrad import __version__
from postgrad.models.chat import Chat
from postgrad.sampling import Slots
from postgrad.serving.errors import Refusal
from postgrad.serving.record import Recorder
from postgrad.serving.worker import Worker


@dataclass(kw_only=True)
class Served:
    """name: what clients call it. context: tokens of a prompt and its reply together. recorder: who keeps
    what was asked and written. weights: what a training calls the weights in use, "" where none gave them."""

    name: str
    chat: Chat
    worker: Worker
    context: int
    recorder: Recorder | None = None
    weights: str = ""
    began: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, model, chat: Chat, name: str, *, rows: int, context: int, waiting: int,
           version: int = 0) -> Served:
        """A model whose slots are made here; its thread is started by the app."""
        slots = Slots(model, chat, rows=rows, read=context, new=context, positions=context)
        slots.version = version
        return cls(name=name, chat=chat, worker=Worker(slots, waiting=waiting), context=context)

    @property
    def version(self) -> int:
        """The policy step of the weights in use; 0 of a model that is no run's."""
        return self.worker.version

    @property
    def fingerprint(self) -> str:
        return f"postgrad-{__version__}-step-{self.version}"

    def check_name(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise Refusal(f"there is no model {name!r:.80}: this server has {self.name!r}.", 404,
                          param="model", code="model_not_found")

    def room(self, prompt: list[int], asked: int | None, param: str) -> int:
        """How many tokens a reply may have: as many as were asked for, or all that fit."""
        left = self.context - len(prompt)
        if not prompt:
            raise Refusal(f"{param} has no token: a model needs at least one to go on from.", param=param)
        if (asked or 0) > left or left < 1:
            wanted = f" and {asked} for the reply" if asked is not None else ""
            raise Refusal(f"{param} has {len(prompt)} tokens{wanted}, and the context is {self.context} "
                          "tokens: shorten it, or ask for a shorter reply.", param=param,
                          code="context_length_exceeded")
        return left if asked is None else asked

    def check_tokens(self, tokens: list, name: str) -> list[int]:
        most = self.worker.vocab_size
        bad = next((t for t in tokens if type(t) is not int or not 0 <= t < most), None)
        if bad is not None:
            raise Refusal(f"{name} holds {bad!r:.40}, and a token is a whole number from 0 to {most - 1}.",
                          param=name)
        return tokens
