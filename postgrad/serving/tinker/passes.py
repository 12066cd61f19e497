"""A forward, or forward and backward, pass over a client's data, by the objectives of training/.

A datum's targets stand one column to the right of the tokens that they are predicted from, as in every batch
here. The trained tokens are computed as a training would, so that the bits are its own; the log-probs of the
others, which clients are sent too, come from a pass without a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from postgrad.maths.noise import widest
from postgrad.maths.packing import Packed
from postgrad.models import LanguageModel, Models
from postgrad.models.protocols import CHUNK, Choices, choice_columns, log_softmax
from postgrad.records import Batch
from postgrad.serving.request_body import Refusal
from postgrad.serving.tinker.wire import TrainingDatum
from postgrad.training.batches.columns import weigh_minibatch
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.named_losses import LOSS_PARTS, Loss
from postgrad.training.objectives import policy_objective, supervised_objective
from postgrad.training.optim import Optim
from postgrad.training.stats import Max, Mean, Stats

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TargetBatch(Batch):
    """targets [B, T], or [B, T, K]: what is predicted in place of the tokens; None: the tokens. shares
    [B, T, K]: of each target in its column's loss."""

    targets: Tensor | None = None
    shares: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class PassResult:
    """logprobs: of each datum's targets, in their shape."""

    logprobs: list[Array]
    loss: float
    stats: Stats
    tokens: int


class TargetModel:
    """A language model asked for other tokens than those that it reads next."""

    def __init__(self, model: LanguageModel, targets: Tensor):
        self.model, self.targets = model, targets

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        logp, entropy = choice_columns(self.model.choices(tokens, mask, packed), self.targets, temperature)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        return self.model.choices(tokens, mask, packed)

    def each_logp(self, tokens: Tensor, mask: Tensor, packed: Packed | None) -> Tensor:  # [B, T, K]
        """The log-probs of the targets [B, T, K], zero where nothing is masked."""
        made, (B, T, K) = self.model.choices(tokens, mask, packed), self.targets.shape
        chosen = self.targets.reshape(-1, K)[made.cells]
        parts = [checkpoint(gathered, made, part, made.states[i: i + CHUNK],
                                                   use_reentrant=False)
                 for i in range(0, len(chosen), CHUNK) for part in [chosen[i: i + CHUNK]]]
        logp = torch.cat(parts)
        return logp.new_zeros(B * T, K).index_put((made.cells,), logp).view(B, T, K)


def gathered(made: Choices, chosen: Tensor, states: Tensor) -> Tensor:  # [n, K]
    return log_softmax(made.read(states), 1.0).gather(-1, chosen)


# data to batches

def check_datum(datum: TrainingDatum, loss: Loss, place: str, vocab: int, positions: int) -> None:
    """Refuses columns that are missing, unknown, or not as long as the model's input."""
    n = len(datum.tokens)
    wanted = {"target_tokens": True, **loss.inputs}
    for name in datum.inputs.keys() - wanted.keys():
        raise Refusal(f"{place}.loss_fn_inputs has {name[:60]!r}, which {loss.name} does not take: it takes "
                      f"{', '.join(wanted)}.")
    for name in (name for name, needed in wanted.items() if needed and name not in datum.inputs):
        raise Refusal(f"{place}.loss_fn_inputs has no {name}, which {loss.name} needs: a number for each "
                      "token of model_input.")
    targets = datum.inputs["target_tokens"]
    if targets.shape[:1] != (n,) or targets.ndim > 2 or targets.ndim == 2 and (loss.row or not targets.size):
        wants = f"[{n}] or [{n}, K]" if loss.row is None else f"[{n}]"
        raise Refusal(f"{place}.target_tokens is {list(targets.shape)}, and has to be {wants}: a target for "
                      "each token of model_input.")
    for name, column in datum.inputs.items():
        if column.shape != targets.shape:
            raise Refusal(f"{place}.{name} is {list(column.shape)}, and has to be {list(targets.shape)}, as "
                          "target_tokens.")
        if column.dtype == np.float32 and not np.isfinite(column).all():
            raise Refusal(f"{place}.{name} holds a number that is not finite.")
    if targets.dtype != np.int64:
        raise Refusal(f"{place}.target_tokens are {targets.dtype}, and have to be whole numbers.")
    for name, column in (("model_input", datum.tokens), ("target_tokens", targets)):
        if column.min() < 0 or column.max() >= vocab:
            bad = column[(column < 0) | (column >= vocab)][0]
            raise Refusal(f"{place}.{name} holds {bad}, and a token is a whole number from 0 to {vocab - 1}.")
    if n + 1 > positions:
        raise Refusal(f"{place}.model_input has {n} tokens, and the model reads {positions - 1} at most: "
                      "shorten it.")


def shifted(column: Array, first: float = 0) -> Array:
    """One to the right: a value of target i stands at the token that it is of."""
    return np.concatenate([np.full_like(column[:1], first), column])


def trained_tokens(datum: TrainingDatum, loss: Loss) -> Array:  # [N] bool
    """The targets that count in the loss."""
    inputs = datum.inputs
    if loss.row is None:
        weights = inputs.get("weights", np.ones(inputs["target_tokens"].shape))
        counts = np.asarray(weights != 0)
        return counts if counts.ndim == 1 else np.asarray(counts.any(1))
    for name in ("mask", "weights"):
        if name in inputs:
            return np.asarray(inputs[name] != 0)
    praised = np.asarray(inputs["advantages"] != 0)
    return praised | np.asarray(inputs["logprobs"] != 0) if "logprobs" in inputs else praised


def is_next(datum: TrainingDatum, counts: Array) -> bool:
    """Whether the counted targets are the tokens that are read next."""
    targets = datum.inputs["target_tokens"]
    return targets.ndim == 1 and bool((targets[:-1] == datum.tokens[1:])[counts[:-1]].all())


def make_batch(data: Sequence[TrainingDatum], loss: Loss, device: torch.device) -> TargetBatch:
    """The rows of a pass, with their trained tokens masked."""
    counts = [trained_tokens(datum, loss) for datum in data]
    targets = [datum.inputs["target_tokens"] for datum in data]
    several = any(t.ndim == 2 for t in targets)
    plain = not several and all(is_next(datum, mine) for datum, mine in zip(data, counts, strict=True))
    rows = [np.append(d.tokens, t.reshape(len(t), -1)[-1, 0]) for d, t in zip(data, targets, strict=True)]
    mask = pad_arrays([shifted(mine) for mine in counts], torch.bool)
    columns: dict[str, Any] = {"weight": mask.float()}
    if not plain:
        columns["targets"] = pad_arrays([wide(shifted(t), several) for t in targets], torch.int64)
    if loss.row is None:
        weights = [d.inputs.get("weights", np.ones(t.shape, np.float32))
                   for d, t in zip(data, targets, strict=True)]
        name = "shares" if several else "weight"
        columns[name] = pad_arrays([wide(shifted(w), several) for w in weights], torch.float32)
    else:
        columns["adv"] = pad_arrays([shifted(d.inputs["advantages"]) for d in data], torch.float32)
        if all("logprobs" in d.inputs for d in data):
            old = pad_arrays([shifted(d.inputs["logprobs"]) for d in data], torch.float32)
            columns |= {"old_logp": old, "sampler_logp": old}
    batch = TargetBatch(ids=tuple(map(str, range(len(data)))), tokens=pad_arrays(rows, torch.int64),
                        mask=mask, lengths=torch.tensor([len(row) for row in rows]), **columns)
    moved = batch.to(device)
    assert isinstance(moved, TargetBatch)
    return moved


def wide(column: Array, several: bool) -> Array:
    """[T] as [T, 1], where other data have several targets a token."""
    return column[:, None] if several and column.ndim == 1 else column


def pad_arrays(rows: Sequence[Array], dtype: torch.dtype) -> Tensor:  # [B, T], [B, T, K]
    shape = tuple(max(row.shape[i] for row in rows) for i in range(rows[0].ndim))
    out = torch.zeros((len(rows), *shape), dtype=dtype)
    for whole, row in zip(out.numpy(), rows, strict=True):
        whole[tuple(slice(n) for n in row.shape)] = row
    return out


# the pass

def run_pass(models: Models, optim: Optim, data: Sequence[TrainingDatum], loss: Loss, *,
             backward: bool) -> PassResult:
    """The loss of the data and their log-probs. backward: the gradient is added to the optimizer's; a pass
    that fails leaves it as it was."""
    size = optim.tokens_per_pass
    batch = add_row_columns(make_batch(data, loss, optim.stepped[0].device), loss, models, size)
    before = [p.grad for p in optim.stepped]
    for p in optim.stepped:
        p.grad = None
    try:
        total, stats, logps = trained_pass(models, optim, batch, loss, size, backward)
        rest = untrained_logp(models.policy, batch, size)
    except BaseException:
        for p, grad in zip(optim.stepped, before, strict=True):
            p.grad = grad
        raise
    for p, grad in zip(optim.stepped, before, strict=True):
        if grad is not None:
            p.grad = grad if p.grad is None else grad.add_(p.grad)
    logprobs = [join_logprobs(*row) for row in zip(logps, rest, batch.mask.cpu(), data, strict=True)]
    return PassResult(logprobs=logprobs, loss=total, stats=stats, tokens=int(batch.mask.sum()))


def add_row_columns(batch: TargetBatch, loss: Loss, models: Models, size: int) -> TargetBatch:
    """Adds what a row wants: the reference's log-probs, entropies, marks, and the weights of its mean."""
    row = loss.row
    if row is None:
        return batch
    columns = {name for place in LOSS_PARTS for name in row.columns_of(place)}
    if row.kl_in_loss > 0 or "ref_logp" in columns:
        assert models.reference, "every model has the base as its reference"
        batch = replace(batch, ref_logp=pad_tensors(row_logps(models.reference, batch, size), batch))
    if columns & {"entropy"} and (row.choose or row.mark):
        _, entropy = model_logp(models.policy, batch, size)
        batch = replace(batch, entropy=entropy)
    budget = loss.budget or int(batch.mask.sum(1).max())
    weighed = weigh_minibatch(batch, row, budget, loss.group_size)
    assert isinstance(weighed, TargetBatch)
    return weighed


def trained_pass(models: Models, optim: Optim, batch: TargetBatch, loss: Loss, size: int,
                 backward: bool) -> tuple[float, Stats, list[Tensor]]:
    """The loss, its statistics, and the log-probs of each row's trained tokens."""
    stats, total = Stats(), widest(torch.zeros((), device=batch.tokens.device))
    logps: list[Tensor] = []
    if not batch.mask.any():
        empty = batch.tokens if batch.targets is None else batch.targets
        return 0.0, stats, list(torch.zeros(empty.shape))
    for micro in batch.split(size):
        assert isinstance(micro, TargetBatch)
        with torch.set_grad_enabled(backward):
            values, seen, logp = micro_loss(models, micro, loss)
            part = (values * micro.weight).sum()
            if backward:
                part.backward()
        optim.gather()
        total = total + widest(part.detach())
        stats.add(seen)
        logps.append(logp)
    stats.columns.clear()
    return float(total), stats, cpu_rows(logps)


def micro_loss(models: Models, micro: TargetBatch, loss: Loss) -> tuple[Tensor, Stats, Tensor]:
    if micro.targets is not None:
        models = replace(models, policy=TargetModel(models.policy, micro.targets))
    if micro.shares is not None:
        logp = models.policy.each_logp(micro.tokens, micro.mask, micro.packed)
        values = -(logp * micro.shares).sum(-1)
        return values, Stats({"loss": Mean(values.detach().sum(), micro.mask.sum())}), logp.detach()
    objective = supervised_objective if loss.row is None else partial(policy_objective, loss.row, 1.0)
    values, seen = objective(models, micro)
    return values, seen, torch.stack(seen.columns["logp"])


@torch.no_grad()
def row_logps(model: LanguageModel, batch: TargetBatch, size: int) -> list[Tensor]:
    """The log-probs of each row's masked tokens, [T] or [T, K], on the CPU."""
    rows: list[Tensor] = []
    for micro in batch.split(size):
        assert isinstance(micro, TargetBatch)
        if micro.targets is None:
            logp, _ = model.logp(micro.tokens, micro.mask, 1.0, packed=micro.packed)
        elif micro.targets.dim() == 2:
            logp, _ = TargetModel(model, micro.targets).logp(micro.tokens, micro.mask, 1.0, micro.packed)
        else:
            logp = TargetModel(model, micro.targets).each_logp(micro.tokens, micro.mask, micro.packed)
        rows.append(logp)
    return cpu_rows(rows)


def cpu_rows(passes: Sequence[Tensor]) -> list[Tensor]:
    """The rows of tensors, each tensor fetched once: a row at a time would wait for a GPU so many times."""
    return [row for each in passes for row in each.cpu()]


def pad_tensors(rows: Sequence[Tensor], batch: Batch) -> Tensor:  # [B, T]
    out = torch.zeros(batch.tokens.shape, dtype=torch.float32)
    for whole, row in zip(out, rows, strict=True):
        whole[: len(row)] = row
    return out.to(batch.tokens.device)


def untrained_logp(model: LanguageModel, batch: TargetBatch, size: int) -> list[Tensor | None]:
    """For each row the log-probs of the targets that its loss does not count, up to the last of them. Equal
    rows, such as the prompts of a group, are computed once."""
    tokens, mask, lengths = batch.tokens.cpu(), batch.mask.cpu(), batch.lengths.cpu()
    targets = None if batch.targets is None else batch.targets.cpu()
    place = torch.arange(tokens.shape[1])
    wanted = (place > 0) & (place < lengths[:, None]) & ~mask
    ends = torch.where(wanted, place, 0).amax(1).tolist()
    numbers: dict[bytes, int] = {}
    picked: list[int] = []
    rows: list[int | None] = []
    for i, end in enumerate(ends):
        key = tokens[i, : end + 1].numpy().tobytes()
        key += b"" if targets is None else targets[i, : end + 1].numpy().tobytes()
        if end and key not in numbers:
            numbers[key] = len(picked)
            picked.append(i)
        rows.append(numbers[key] if end else None)
    if not picked:
        return [None] * len(rows)
    lengths = torch.tensor([ends[i] + 1 for i in picked])
    width, column = int(lengths.max()), torch.arange(int(lengths.max()))
    asked = TargetBatch(ids=tuple(map(str, picked)), tokens=tokens[picked, :width],
                        mask=(column > 0) & (column < lengths[:, None]), lengths=lengths,
                        weight=torch.zeros(len(picked)),
                        targets=None if targets is None else targets[picked, :width]).to(batch.tokens.device)
    assert isinstance(asked, TargetBatch)
    logps = row_logps(model, asked, size)
    return [None if row is None else logps[row] for row in rows]


def join_logprobs(trained: Tensor, rest: Tensor | None, mask: Tensor,
                  datum: TrainingDatum) -> Array:  # [N], [N, K]
    """A datum's log-probs, in the shape of its targets."""
    targets = datum.inputs["target_tokens"]
    n = len(targets) + 1
    out = trained[:n].float()
    if rest is not None:
        end = min(n, len(rest))
        counted = mask[:end] if out.dim() == 1 else mask[:end, None]
        out = torch.cat([torch.where(counted, out[:end], rest[:end].float()), out[end:]])
    values: Array = out[1:].numpy()
    return values[:, : targets.shape[1]] if targets.ndim == 2 else values.reshape(len(targets))


def metric_names(result: PassResult) -> dict[str, float]:
    """A pass's numbers by name and by how a client joins those of several: "entropy:mean"."""
    named = {name: f"{name}:{'max' if isinstance(entry, Max) else 'mean'}"
             for name, entry in result.stats.items() if name != "loss"}
    values = result.stats.results()
    return {"loss:sum": result.loss, "tokens:sum": float(result.tokens),
            **{name: values[key] for key, name in named.items()}}
