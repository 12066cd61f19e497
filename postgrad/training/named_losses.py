"""Losses by the names that clients send: the SDK's, as rows of the table without a mean, and every policy
row by its own, "postgrad/dapo".

A row's credit is the client's: it sends advantages. Here are its surrogate, correction, KL, entropy bonus and
weights, over the data of one request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from postgrad.maths import credit, surrogate, weights
from postgrad.methods import METHODS, Policy
from postgrad.methods.row import bound_constants
from postgrad.system.json_text import shorten_value

Config = Mapping[str, float | str]
PREFIX = "postgrad/"
LOSS_PARTS = ("surrogate", "kl_estimator", "choose", "mark", "correction")
# columns of a batch that a request's data give, or that are computed for it
COLUMNS_HERE = {"entropy", "sampler_logp", "old_logp", "ref_logp", "lengths", "marked"}


@dataclass(frozen=True, kw_only=True)
class Loss:
    """row: None for cross-entropy. budget, group_size: what a row's weights may ask for."""

    name: str
    row: Policy | None = None
    budget: int | None = None
    group_size: int = 1

    @property
    def inputs(self) -> dict[str, bool]:
        """The columns of a datum beside target_tokens, by whether they have to be there."""
        if self.row is None:
            return {"weights": False}
        return {"advantages": True, "logprobs": self.needs_logprobs, "mask": False, "weights": False}

    @property
    def needs_logprobs(self) -> bool:
        assert self.row is not None
        return self.row.ratio or bool(self.row.wanted & {"old_logp", "sampler_logp"} or self.row.correction)


def each_token(mask: Tensor, budget: int) -> Tensor:
    """1 for each token: a sum, whose mean the client takes where it wants one."""
    return mask.float()


def sum_row(name: str, function: Callable[..., tuple[Tensor, Tensor]]) -> Policy:
    return Policy(name=name, credit=credit.raw, compares=False, surrogate=function, weigh=each_token)


def threshold(config: dict[str, float], name: str, default: float) -> float:
    value = config.pop(name, default)
    if not (0 <= value < math.inf):
        raise ValueError(f"loss_fn_config.{name} is {value:g}, and has to be a number of 0 or more.")
    return value


def importance_sampling(config: dict[str, float]) -> Policy:
    return sum_row("importance_sampling", partial(surrogate.clipped_ratio, low=math.inf, high=math.inf))


def clipped(name: str, function: Callable[..., tuple[Tensor, Tensor]], config: dict[str, float]) -> Policy:
    low, high = threshold(config, "clip_low_threshold", 0.8), threshold(config, "clip_high_threshold", 1.2)
    return sum_row(name, partial(function, low=1.0 - low, high=high - 1.0))


def dro(config: dict[str, float]) -> Policy:
    return sum_row("dro", partial(surrogate.squared_ratio, beta=threshold(config, "beta", 0.05)))


SDK_LOSSES: dict[str, Callable[[dict[str, float]], Policy]] = {
    "importance_sampling": importance_sampling,
    "ppo": partial(clipped, "ppo", surrogate.clipped_ratio),
    "cispo": partial(clipped, "cispo", surrogate.cispo),
    "gspo": partial(clipped, "gspo", surrogate.sequence_ratio),
    "dro": dro,
}
REFUSED = {
    "stable_reinforce": "needs what Tinker's own sampler records of each sequence, whose form is not public: "
                        "take importance_sampling, ppo or cispo",
    "custom": "runs a loss on the server that create_custom_loss has stored, which this server does not: "
              "hand a function to forward_backward_custom, which runs it in the client",
}


def loss_named(name: str, config: Config) -> Loss:
    """The loss of a request; what is not honoured is refused by its name."""
    if name in REFUSED:
        raise ValueError(f"loss_fn {name!r} {REFUSED[name]}.")
    values = {key: config_number(key, value) for key, value in config.items()}
    if name == "cross_entropy":
        check_empty(values, name)
        return Loss(name=name)
    if name in SDK_LOSSES:
        row = SDK_LOSSES[name](values)
        if "kl_in_loss" in values:
            row = changed(row, {"kl_in_loss": values.pop("kl_in_loss")})
        check_empty(values, name)
        return Loss(name=name, row=row)
    return table_loss(name, values)


def table_loss(name: str, values: dict[str, float]) -> Loss:
    known = METHODS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if not isinstance(known, Policy):
        rows = ", ".join(f"{PREFIX}{row.name}" for row in METHODS.values() if isinstance(row, Policy))
        raise ValueError(f"there is no loss_fn {shorten_value(name)}: there are cross_entropy, "
                         f"{', '.join(SDK_LOSSES)}, and of postgrad's table {rows}.")
    sizes = {key: values.pop(key) for key in ("budget", "group_size") if key in values}
    for key, value in sizes.items():
        if value != int(value) or value < 1:
            raise ValueError(f"loss_fn_config.{key} is {value:g}, and has to be a whole number from 1.")
    row = replace(changed(known, values), credit=credit.raw, critic=False, value_weight=0.0, shown=False)
    if missing := sorted({column for place in LOSS_PARTS for column in row.columns_of(place)} - COLUMNS_HERE):
        raise ValueError(f"loss_fn {name!r} needs {' and '.join(missing)}, which a Tinker client cannot "
                         "send: take another row.")
    if row.weigh is weights.fixed_length and "budget" not in sizes:
        raise ValueError(f"loss_fn {name!r} divides by the most tokens that a reply may have: give it as "
                         "loss_fn_config={\"budget\": 256}, say.")
    if row.columns_of("weigh") and "group_size" not in sizes:
        raise ValueError(f"loss_fn {name!r} weighs the samples of a prompt together: give their number as "
                         "loss_fn_config={\"group_size\": 8}, say, and send them side by side.")
    return Loss(name=name, row=row, budget=int(sizes["budget"]) if "budget" in sizes else None,
                group_size=int(sizes.get("group_size", 1)))


def changed(row: Policy, values: Mapping[str, float]) -> Policy:
    """The row with other constants: of its loss alone, for its credit and its schedule are the client's."""
    constants = {"kl_in_loss", "entropy", *(name for place in LOSS_PARTS if getattr(row, place)
                                            for name in bound_constants(getattr(row, place)))}
    for name, value in values.items():
        if name not in constants:
            raise ValueError(f"loss_fn_config.{shorten_value(name, quote=False)} is no constant of the loss "
                             f"of {row.name}: it has {', '.join(sorted(constants))}.")
        try:
            row = row.with_setting(name, value)
        except ValueError as error:
            raise ValueError(f"loss_fn_config: {error}") from None
    return row


def config_number(name: str, value: float | str) -> float:
    if isinstance(value, str) or not math.isfinite(value):
        raise ValueError(f"loss_fn_config.{shorten_value(name, quote=False)} is {shorten_value(value)}, and "
                         "has to be a number.")
    return value


def check_empty(left: Mapping[str, float], name: str) -> None:
    for key in left:
        raise ValueError(f"loss_fn_config.{shorten_value(key, quote=False)} is not honoured with {name}: "
                         "leave it out.")
