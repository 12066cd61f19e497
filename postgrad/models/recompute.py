"""Activation checkpointing (Chen et al. 2016, arXiv:1604.06174): a layer saves its input alone, and the
backward pass recomputes the rest. The gradient is the same bit for bit; a no-grad forward is not affected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def run_checkpointed(body: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """function(*args), checkpointed if body.recompute, with the same adapter active in both passes."""
    if not body.recompute or not torch.is_grad_enabled():
        return function(*args, **options)
    again = partial(adapter_active, body, body.active_adapter) if hasattr(body,
                                                                          "active_adapter") else nullcontext
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False,
                      context_fn=lambda: (nullcontext(), again()), **options)


@contextmanager
def adapter_active(body: Any, adapter: Any) -> Iterator[None]:
    """Makes an adapter, or none, the body's active one within the block."""
    before, body.active_adapter = body.active_adapter, adapter
    own = []
    for name in adapter.stand_ins if adapter is not None else ():
        path, _, leaf = name.rpartition(".")
        parameters = body.get_submodule(path)._parameters
        own.append((parameters, leaf, parameters[leaf]))
        parameters[leaf] = adapter.stand_in(name).to(parameters[leaf].dtype)
    try:
        yield
    finally:
        body.active_adapter = before
        for parameters, leaf, parameter in own:
            parameters[leaf] = parameter


def set_recompute(body: Any, on: bool) -> None:
    """Switches activation checkpointing of a decoder or an HFModel; not by transformers' switch, which needs
    training mode and so dropout."""
    if on and hasattr(body, "network"):
        for layer in checkpointing_layers(body.network):
            if not isinstance(layer.forward, partial):
                layer.forward = partial(run_checkpointed, body, layer.forward)
    body.recompute = on


def checkpointing_layers(network: nn.Module) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer
    layers = [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(f"optim.recompute=true: {type(network).__name__} of transformers does not say what "
                         "its layers are: leave it out, and lower optim.tokens_per_pass where memory is "
                         "short.")
    return layers
