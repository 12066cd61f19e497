"""The sampler of a run's rollouts, and how it gets the weights: this process, a copy of the policy in a
thread, or samplers behind addresses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.parse import urlsplit

import torch

from postgrad.models import LanguageModel
from postgrad.models.chat import Chat
from postgrad.records import Batch
from postgrad.resolve.handles import SharedWeights, gpu_of
from postgrad.resolve.models import Trained
from postgrad.resolve.samplers import is_sampler_name, make_sampler
from postgrad.resolve.weights import WeightsFolder, name_weights
from postgrad.sampling import LocalSampler, PolicySampler, RemoteSampler, Sampler, TokenSampler
from postgrad.sampling.checked import CheckedSampler
from postgrad.sampling.remote import SamplerFault, SpotCheck, WeightVersion, check_address, check_logprobs
from postgrad.sampling.vllm_engine import VllmSampler
from postgrad.system import processes
from postgrad.system.processes import timeout
from postgrad.system.settings import POSITIVE, Settings, setting
from postgrad.system.sockets import is_loopback
from postgrad.training.batches import Rollouts
from postgrad.training.batches.async_collector import LiveWeights, WeightSource
from postgrad.training.batches.shuffled import model_logp, padded_columns
from postgrad.training.optim import OptimSettings

HERE = "vllm"  # in the place of an address: vLLM in this process
EXACT, ROUNDED, OLDER = 1e-3, 0.1, 0.5  # nats: how far a sampler's log-probs may be off


@dataclass(frozen=True, kw_only=True)
class RemoteSettings(Settings):
    """Samplers outside this process, and how they get the weights."""

    sampler: Sampler | str | None = setting(
        None, "addresses that sample, http://HOST:PORT, several with commas: `postgrad serve`, or vLLM from "
        "0.28 on; vllm: vLLM in this process; FILE.py or a plugin's name: a sampler of yours, in Python an "
        "object; none: postgrad itself", "to sample on other GPUs or machines; rows are dealt to them in "
        "turn")
    weights: str | None = setting(None, "the folder in which the weights of every step are left for the "
                                  "samplers", "with sampler: a folder that all of them can read")
    weight_sync: str = setting("folder", "how samplers take the weights: folder (`postgrad serve FOLDER` "
                               "reads it), ipc (from the memory of the GPU that both are on), or vllm (told "
                               "to reload them)", "ipc where trainer and sampler share one GPU, vllm where "
                               "the samplers are vLLM", choices=("folder", "ipc", "vllm"))
    max_logp_gap: float | None = setting(None, "how far a sampler's log-probs may be off the trainer's, mean "
                                         f"|difference| per token in nats; none: {EXACT:g} on a CPU, "
                                         f"{ROUNDED:g} on a GPU or with vLLM", "more where another engine "
                                         "rounds otherwise and `mismatch` shows how much; less finds smaller "
                                         "faults", within=POSITIVE)

    prefix: ClassVar[str] = "remote."

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in self.addresses:
            check_address(address)
            if self.weight_sync == "ipc" and not is_loopback(urlsplit(address).hostname or ""):
                raise ValueError(f"remote.weight_sync=ipc is for a sampler on this machine and this GPU, and "
                                 f"{address} is none by its address: write http://127.0.0.1:PORT, or leave "
                                 "weight_sync out.")
        if self.here and self.weight_sync != "folder":
            raise ValueError("sampler=vllm reads its weights from a folder, and "
                             f"remote.weight_sync={self.weight_sync} is for samplers behind addresses: leave "
                             "weight_sync out.")
        if self.own and (self.weights or self.weight_sync != "folder"):
            raise ValueError("a sampler of yours takes the weights by its method update_weights(policy, "
                             "step): leave weights and weight_sync out.")
        if not self.own and (self.sampler is None) != (self.weights is None):
            raise ValueError("sampler= and weights= go together: sampler=http://HOST:PORT weights=FOLDER, "
                             "where FOLDER is one that the sampler can read.")

    @property
    def own(self) -> bool:
        """Whether the sampler is a user's: an object, a file or a plugin's."""
        return is_sampler_name(self.sampler) if isinstance(self.sampler, str) else self.sampler is not None

    @property
    def here(self) -> bool:
        """Whether vLLM samples in this process."""
        return self.sampler == HERE

    @property
    def addresses(self) -> list[str]:
        listed = self.sampler if isinstance(self.sampler, str) and not (self.here or self.own) else ""
        return [a.strip() for a in listed.split(",") if a.strip()]

    def check_device(self, device: str) -> None:
        """Whether the weights can go this way from where they are trained."""
        if self.sampler and self.weight_sync == "ipc" and not device.startswith("cuda"):
            raise ValueError(f"remote.weight_sync=ipc hands weights over in a GPU's memory, and device is "
                             f"{device}: leave weight_sync out, or train with device=cuda.")

    @property
    def foreign(self) -> bool:
        """Whether another engine than ours samples."""
        return self.here or self.own or (bool(self.sampler) and self.weight_sync == "vllm")


class SamplingConfig(Protocol):
    """What opening a sampler needs of a run's config."""

    @property
    def rollouts(self) -> Rollouts: ...

    @property
    def remote(self) -> RemoteSettings: ...

    @property
    def optim(self) -> OptimSettings: ...

    @property
    def device(self) -> str: ...

    @property
    def seed(self) -> int: ...


def open_sampler(config: SamplingConfig, policy: Trained,
                 chat: Chat) -> tuple[TokenSampler, WeightSource]:
    """The sampler of a run, and the source of its weights."""
    remote, depth, ranks = config.remote, config.rollouts.async_depth, processes.world()
    if remote.here and (depth or ranks > 1):
        raise ValueError("sampler=vllm is for one process that trains in step: for rollouts.async_depth or "
                         "torchrun start `vllm serve` and name it with sampler=http://HOST:PORT "
                         "remote.weight_sync=vllm.")
    if remote.own and (depth or ranks > 1):
        raise ValueError("a sampler of yours is for one process that trains in step: leave "
                         "rollouts.async_depth or torchrun out.")
    if remote.sampler:
        served = OwnSampler(config, policy, chat) if remote.own else Served(config, policy, chat)
        return served.sampler, served
    sampler = LocalSampler(policy, chat, max_concurrent=config.rollouts.max_concurrent)
    if depth:
        return sampler, Copied(sampler, policy)
    return sampler, Released(sampler) if config.rollouts.release else LiveWeights()


class Released(LiveWeights):
    """The weights in training; the sampler frees its cache and its copy of them after each collection."""

    def __init__(self, sampler: LocalSampler):
        self.sampler = sampler

    def check(self, step: int, behind: int) -> None:
        self.sampler.release()


def full_policy(policy: Trained) -> Trained:
    """A policy, or of a sharded one its full copy."""
    copy = getattr(policy, "copy", None)
    return copy.model if copy else policy


class Copied:
    """A copy of the policy in this process, which samples while the policy is trained."""

    def __init__(self, sampler: LocalSampler, policy: Trained):
        self.sampler, self.policy = sampler, policy

    def keep(self, step: int) -> Callable[[], None]:
        policy = full_policy(self.policy)
        if self.sampler.model is self.policy:
            self.sampler.model = copy.deepcopy(policy).requires_grad_(False)
        weights = {name: x.detach().clone() for name, x in policy.state_dict().items()}
        return lambda: self.use(weights)

    def use(self, weights: dict[str, torch.Tensor]) -> None:
        self.sampler.model.load_state_dict(weights)

    def check(self, step: int, behind: int) -> None:
        return None


class OwnSampler(LiveWeights):
    """A sampler of the user's, which takes the policy's weights itself; its rows are checked."""

    def __init__(self, config: SamplingConfig, policy: Trained, chat: Chat):
        self.config, self.policy = config, policy
        assert config.remote.sampler is not None
        self.own = make_sampler(config.remote.sampler, policy, chat)
        self.sampler = CheckedSampler(self.own, chat, positions=policy.config.max_position_embeddings,
                                      vocabulary=policy.config.vocab_size,
                                      policy_logp=lambda rows: row_logp(config, policy, rows),
                                      secret=config.seed)
        self.gap = config.remote.max_logp_gap or ROUNDED

    def keep(self, step: int) -> Callable[[], None]:
        return partial(self.use, step)

    def use(self, step: int) -> None:
        self.sampler.weights_step = step
        if isinstance(self.own, PolicySampler):
            self.own.update_weights(self.policy, step)

    def check(self, step: int, behind: int) -> None:
        rows = self.sampler.spot_checks.pop(step, [])
        if rows and not self.config.optim.divides:
            check_logprobs(rows, row_logp(self.config, self.policy, rows), step, self.gap)


class Served:
    """Samplers behind addresses; the first rank sends them the weights, through a folder or the GPU's
    memory."""

    def __init__(self, config: SamplingConfig, policy: Trained, chat: Chat):
        how = config.remote
        assert how.weights is not None
        self.config, self.policy, self.foreign = config, policy, how.foreign
        place, depth = Path(how.weights).absolute(), config.rollouts.async_depth
        shares = how.weight_sync == "ipc"
        self.folder = SharedWeights(place, chat, copies=depth + 1) if shares else \
            WeightsFolder(place, chat, keep=depth + 2)
        shape = {"positions": policy.config.max_position_embeddings, "vocabulary": policy.config.vocab_size,
                 "secret": config.seed}
        self.sampler = VllmSampler(chat, rows=config.rollouts.max_concurrent, on_gpu=config.device != "cpu",
                                   **shape) if how.here else RemoteSampler(
                how.addresses, chat, names=not how.foreign,
                gpu=gpu_of(config.device) if shares and processes.leads() else None,
                timeout=timeout(), ranks=processes.world(), **shape)
        self.gap = how.max_logp_gap or (EXACT if config.device == "cpu" and not how.foreign else ROUNDED)

    def keep(self, step: int) -> Callable[[], None]:
        model = full_policy(self.policy)
        weights = self.folder.write(model, step) if processes.leads() else name_weights(model, step)
        return lambda: self.use(weights)

    def use(self, weights: WeightVersion) -> None:
        """The samplers have these weights."""
        if weights == self.sampler.weights:
            return
        if processes.leads():
            self.folder.show(weights)
            if self.foreign:
                self.reload(weights)
        if self.foreign:
            self.sampler.weights = weights
        else:
            self.sampler.await_weights(weights)
        processes.gather(None, "gave the samplers their weights")

    def reload(self, weights: WeightVersion) -> None:
        """Has vLLM load the weights. It does not report which it has: the log-probs do."""
        place = self.folder.folder / weights.name
        if isinstance(self.sampler, VllmSampler):
            return self.sampler.load(place)
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(place)}, "timeout": timeout()}
        for address in self.sampler.addresses:
            self.sampler.ask_until(address, "/collective_rpc", body,
                                   f"a word on the weights of step {weights.step}")

    def check(self, step: int, behind: int) -> None:
        """Recomputes the log-probs of a few rows of each sampler: by the policy, and where that has moved on
        and they differ too much, by the weights that sampled. Not with a sharded policy."""
        rows = self.sampler.spot_checks.pop(step, [])
        if not rows or self.config.optim.divides:
            return
        try:
            gap = max(self.gap, OLDER) if behind else self.gap
            check_logprobs(rows, row_logp(self.config, self.policy, rows), step, gap)
        except SamplerFault:
            if not behind:
                raise
            older = self.folder.open(rows[0].weights, self.config.device)
            check_logprobs(rows, row_logp(self.config, older, rows), step, self.gap)


def row_logp(config: SamplingConfig, model: LanguageModel, rows: Sequence[SpotCheck]) -> list[list[float]]:
    """A model's log-probs of sampled rows."""
    tokens = [[*row.context, *row.tokens] for row in rows]
    masks = [[False] * len(row.context) + [True] * len(row.tokens) for row in rows]
    base = padded_columns([row.address for row in rows], tokens, masks)
    batch = Batch(**base, weight=base["mask"].float()).to(config.device)
    logp, _ = model_logp(model, batch, config.optim.at_once, config.rollouts.temperature)
    return [row[mask].tolist() for row, mask in zip(logp.cpu(), base["mask"], strict=True)]
