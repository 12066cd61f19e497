"""A model that a client trains: a policy on the served base, its optimizer, and a run folder of ours."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from postgrad.maths.noise import seed_of
from postgrad.models import Adapted, Adapter, Decoder, Models
from postgrad.models.chat import Chat
from postgrad.models.checkpoint import read_state, state_writer, write_state
from postgrad.models.load import load_model
from postgrad.models.lora import Network, is_adapted
from postgrad.models.nf4 import linear_layers
from postgrad.runs import Run
from postgrad.serving.request_body import Refusal
from postgrad.serving.tinker.passes import PassResult, run_pass
from postgrad.serving.tinker.wire import Array, TrainingDatum
from postgrad.system.files import atomic_folder
from postgrad.system.throughput import memory_taken
from postgrad.training.named_losses import Loss
from postgrad.training.optim import Optim, OptimSettings
from postgrad.training.stats import Stats

LOGGED = 4    # samples of a step in the run folder
ALPHA = 32.0  # of every adapter, as Tinker has it: the scale is 32 / rank


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a client asked for at create_model. rank 0: all weights are trained."""

    rank: int
    seed: int = 0
    mlp: bool = True
    attention: bool = True
    head: bool = True

    @property
    def shape(self) -> tuple[object, ...]:
        """What two adapters have in common whose weights fit each other."""
        return (self.rank, self.mlp, self.attention, self.head) if self.rank else ("all",)


@dataclass(frozen=True, kw_only=True)
class StepParameters:
    """Of one optimizer step: AdamW's. clip: the gradient's largest norm; inf: none."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip: float


def new_policy(base: Network, tuning: Tuning) -> Network | Adapted:
    """The base with a new adapter, or a copy of it that is trained in full."""
    if not tuning.rank:
        policy = copy.deepcopy(base).requires_grad_(True)
        if hasattr(policy, "active_adapter"):
            policy.active_adapter = None
        return policy
    parts = {"self_attn": tuning.attention, "mlp": tuning.mlp}
    targets = {path.split(".")[-1] for path in linear_layers(base)
               if all(parts.get(part, True) for part in path.split("."))}
    if tuning.head and not isinstance(base, Decoder):
        raise Refusal("train_unembed is true, and this model runs through transformers, where the head gets "
                      "no adapter: pass train_unembed=False.", param="lora_config")
    draw = torch.Generator().manual_seed(seed_of(tuning.seed, "lora", "policy"))
    return Adapted(base, Adapter(base, rank=tuning.rank, alpha=ALPHA, generator=draw, head=tuning.head,
                                 targets=("all",) if tuning.attention and tuning.mlp else targets))


class TunedModel:
    """The policy of a training run. All calls come from the model's thread."""

    def __init__(self, base: Network, chat: Chat, origin: str, tuning: Tuning, run: Run):
        self.base, self.chat, self.origin, self.tuning, self.run = base, chat, origin, tuning, run
        self.policy = new_policy(base, tuning)
        reference = Adapted(base, None) if isinstance(self.policy, Adapted) else base
        self.models = Models(policy=self.policy, reference=reference)
        self.optim = Optim(self.models, OptimSettings(lr=1e-4, compile=False), steps=0)
        self.forget()
        self.began = time.perf_counter()

    def forget(self) -> None:
        """Begins the statistics of a step, and the samples that are logged with it."""
        self.stats, self.loss, self.tokens, self.data = Stats(), 0.0, 0, 0
        self.samples: list[dict[str, object]] = []

    @property
    def pending(self) -> bool:
        """Whether there is a gradient that no step has taken."""
        return any(p.grad is not None for p in self.optim.stepped)

    def run_pass(self, data: tuple[TrainingDatum, ...], loss: Loss, backward: bool) -> PassResult:
        result = run_pass(self.models, self.optim, data, loss, backward=backward)
        if backward:
            self.stats.add(result.stats)
            self.loss += result.loss
            self.tokens += result.tokens
            self.data += len(data)
            if loss.row:
                left = LOGGED - len(self.samples)
                self.samples += [sample_row(self.chat, datum, logp) for datum, logp in
                                 zip(data[:left], result.logprobs[:left], strict=True)]
        return result

    def step(self, asked: StepParameters) -> dict[str, float]:
        """One update -> its row of the run's metrics."""
        optim, step = self.optim, self.run.next_step
        optim.adam.betas, optim.adam.eps = (asked.beta1, asked.beta2), asked.eps
        optim.adam.weight_decay = asked.weight_decay
        optim.settings = replace(optim.settings, max_grad_norm=asked.clip, schedule="constant", lr=1.0)
        optim.factor = asked.lr  # times the rate of 1
        rows = self.pending
        facts = {**self.stats.results(), "data": float(self.data), "tokens": float(self.tokens)}
        norm = float(optim.clip()) if rows else 0.0
        row = {**facts, **optim.step(step, self.loss, rows, norm)}
        now = time.perf_counter()
        row |= {"time/step": now - self.began, "memory": memory_taken()}
        self.began = now
        self.run.log(step, row)
        self.run.log_samples(step, self.samples)
        self.run.set_steps(step)  # how many there will be is the client's to know
        self.run.status("running")
        self.forget()
        if row["skipped"]:
            why = f"loss {row['loss']}, gradient norm {norm}" if rows else "no gradient came before it"
            self.run.event("skipped", f"step {step}: {why}; the weights were left as they were", step=step)
        return row

    # weights

    def weights_state(self, optimizer: bool) -> dict[str, Any]:
        state: dict[str, Any] = {"tuning": asdict(self.tuning), "policy": dict(self.policy.state_dict())}
        return state | ({"optim": self.optim.state()} if optimizer else {})

    def save(self, folder: Path, optimizer: bool) -> None:
        """Writes the trained weights, with the optimizer's state or without."""
        with atomic_folder(folder) as made:
            write_state(self.weights_state(optimizer), made)

    def load(self, state: Mapping[str, Any], optimizer: bool) -> None:
        """Weights that `save` has written; without the optimizer's state it starts over."""
        put_weights(self.policy, state)
        fresh = Optim(self.models, self.optim.settings, steps=0)
        fresh.masters = [p.detach().float() for p in fresh.rounded]
        self.optim = fresh
        if optimizer:
            self.optim.restore(state["optim"])

    def checkpoint(self, facts: Mapping[str, Any]) -> None:
        """A checkpoint of the run, which is also a model folder. facts: of the journal."""
        step = self.run.next_step - 1
        state = {**self.weights_state(optimizer=True), "journal": dict(facts)}
        base = self.origin if is_adapted(self.policy) else ""
        if not is_adapted(self.policy):
            state["policy"] = {}  # the folder's own weights
        self.run.save(step, state_writer(state, policy=self.policy, chat=self.chat, base=base))

    def restore(self, folder: Path) -> dict[str, Any]:
        """A checkpoint's weights and optimizer -> its facts."""
        state = read_state(folder)
        if not is_adapted(self.policy):
            device = str(self.optim.stepped[0].device)
            state["policy"] = load_model(folder, device=device).state_dict()
        self.load(state, optimizer=True)
        facts: dict[str, Any] = state["journal"]
        return facts


def put_weights(policy: Network | Adapted, state: Mapping[str, Any]) -> None:
    with torch.no_grad():
        own = policy.state_dict()
        stored: dict[str, torch.Tensor] = state["policy"]
        if own.keys() != stored.keys() or any(own[k].shape != stored[k].shape for k in own):
            raise Refusal("these weights are of a model of another shape: load them into a model of the same "
                          "rank and layers.")
        for name, x in own.items():
            x.copy_(stored[name])


def sample_row(chat: Chat, datum: TrainingDatum, logp: Array) -> dict[str, object]:
    """A reinforced row as the run's samples have it, from its first trained token on. Its score is not told:
    advantages are all that a client sends."""
    targets, adv = datum.inputs["target_tokens"], datum.inputs["advantages"]
    trained = np.asarray(datum.inputs.get("mask", datum.inputs.get("weights", adv)) != 0)
    first = int(trained.argmax())
    reply, prompt = targets[first:].tolist(), [*datum.tokens[: first + 1].tolist()]
    columns = {"logp": logp, "adv": adv, "mask": trained, "old_logp": datum.inputs.get("logprobs", logp)}
    return {"id": f"prompt/{seed_of(*prompt) % 10**8:08d}",
            "prompt": chat.decode(prompt), "text": chat.decode(reply),
            "tokens": chat.pieces(reply), "token_ids": reply, "prompt_tokens": chat.pieces(prompt),
            "columns": {name: [round(float(x), 5) for x in column[first:]]
                        for name, column in columns.items()},
            "score": None, "reason": "", "parts": {}, "finished": True,
            "adv": float(adv[trained].mean()) if trained.any() else 0.0}


def finite_numbers(values: Mapping[str, float]) -> dict[str, float]:
    """JSON has no number for the others."""
    return {name: value for name, value in values.items() if math.isfinite(value)}
