"""The models of a run, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from postgrad.models.decoder import Config, Decoder
from postgrad.models.heads import ScalarModel
from postgrad.models.hf_model import HFModel
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
from postgrad.models.nf4 import quantise
from postgrad.models.protocols import Critic, LanguageModel, Scorer, Trainable
from postgrad.models.weights import weight_files

__all__ = ["Adapted", "Adapter", "Adapters", "Config", "Critic", "Decoder", "LanguageModel", "Models",
           "ScalarModel", "Scorer", "Trainable", "model_files", "find_model",
           "folder_with_file", "is_adapted", "load_model", "load_scalar", "on_hub", "quantise", "save_model",
           "weight_files"]


@dataclass
class Models:
    """Up to five: the policy is trained; the reference stands still; the critic is trained beside it;
    the reward and the teacher are fixed."""

    # a LanguageModel, or where a scalar head is trained a Scorer; Trainable
    policy: Any
    reference: LanguageModel | None = None
    critic: Any = None                      # a Critic, Trainable
    reward: Scorer | None = None
    teacher: LanguageModel | None = None

    def trained(self) -> dict[str, Trainable]:
        return {name: m for name in ("policy", "critic") if (m := getattr(self, name)) is not None}

    def decoders(self) -> list[Decoder | HFModel]:
        """The networks behind them: several models may stand on one."""
        found: list[Decoder | HFModel] = []
        for model in filter(None, (self.policy, self.reference, self.critic, self.reward,
                                   self.teacher)):
            while hasattr(model, "body"):
                model = model.body
            found += ([model] if isinstance(model, Decoder | HFModel) and not any(model is m for m in found)
                      else [])
        return found
