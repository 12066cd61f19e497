"""Decoders, their families and files, adapters, chat templates. Names are loaded when first used, so that
`import postgrad.models.chat` loads no decoder."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postgrad.models.decoder import Decoder
    from postgrad.models.families import Config
    from postgrad.models.heads import ScalarModel
    from postgrad.models.load import (
        find_model,
        folder_with_file,
        load_model,
        load_scalar,
        model_files,
        on_hub,
        save_model,
    )
    from postgrad.models.lora import Adapted, Adapter, Adapters, is_adapted
    from postgrad.models.model_set import Models
    from postgrad.models.nf4 import quantise
    from postgrad.models.protocols import Critic, LanguageModel, Scorer, Trainable
    from postgrad.models.weights import weight_files

__all__ = ["Adapted", "Adapter", "Adapters", "Config", "Critic", "Decoder", "LanguageModel", "Models",
           "ScalarModel", "Scorer", "Trainable", "find_model", "folder_with_file", "is_adapted", "load_model",
           "load_scalar", "model_files", "on_hub", "quantise", "save_model", "weight_files"]

_HOMES = {"Decoder": "decoder", "Config": "families", "ScalarModel": "heads", "Models": "model_set",
          "quantise": "nf4", "weight_files": "weights",
          **dict.fromkeys(("find_model", "folder_with_file", "load_model", "load_scalar", "model_files",
                           "on_hub", "save_model"), "load"),
          **dict.fromkeys(("Adapted", "Adapter", "Adapters", "is_adapted"), "lora"),
          **dict.fromkeys(("Critic", "LanguageModel", "Scorer", "Trainable"), "protocols")}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'postgrad.models' has no name {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(f"postgrad.models.{_HOMES[name]}"), name)
