"""Supervised fine-tuning: imitate conversations, from a task's demonstrations or a JSONL file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from postgrad import methods, objectives
from postgrad.batches import ConversationBatches
from postgrad.data.rows import read_conversations
from postgrad.loop import Optim, OptimSettings
from postgrad.models import Models
from postgrad.recipes.base import Evaluation, Parts, examiner, prove
from postgrad.recipes.opening import open_policy
from postgrad.records import Conversation
from postgrad.tasks import load_task


@dataclass(frozen=True, kw_only=True)
class SFTConfig:
    model: str = "tiny"
    task: str | None = None         # whose demonstrations to imitate, and which to examine
    data: str | None = None         # or a JSONL file of {"messages": [...]} rows
    method: str = "sft"
    examples: int = 4000            # demonstrations drawn from the task
    steps: int = 60
    rows_per_step: int = 64
    optim: OptimSettings = field(default_factory=lambda: OptimSettings(lr=1e-3, schedule="linear", warmup=5))
    evaluation: Evaluation = field(default_factory=Evaluation)
    save_every: int = 20
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        if (self.task is None) == (self.data is None):
            raise ValueError("sft needs either task=NAME (its demonstrations) or data=FILE.jsonl (your own conversations), "
                             "not both.")
        if methods.get(self.method).source != "conversations":
            raise ValueError(f"method {self.method!r} does not learn from conversations alone: this recipe takes sft.")
        if min(self.steps, self.rows_per_step, self.examples, self.save_every) < 1:
            raise ValueError("steps, rows_per_step, examples and save_every must be at least 1.")


def words() -> SFTConfig:
    """Word problems as an average writer answers them: mostly straight to the answer."""
    return SFTConfig(task="words")


def arithmetic() -> SFTConfig:
    return SFTConfig(task="arithmetic")


def countdown() -> SFTConfig:
    return SFTConfig(task="countdown")


def questions() -> SFTConfig:
    """Questions answered politely, tersely, at length and rudely."""
    return SFTConfig(task="questions")


def gsm8k() -> SFTConfig:
    """GSM8K's worked solutions, four times over, for a real model: `postgrad fetch smollm2` brings one."""
    return SFTConfig(task="gsm8k", model="models/smollm2", examples=10_000, steps=420, save_every=420,
                     optim=OptimSettings(lr=5e-4, schedule="linear", warmup=10))


SETTINGS = {"words": words, "arithmetic": arithmetic, "countdown": countdown, "questions": questions, "gsm8k": gsm8k}


def conversations(config: SFTConfig, task) -> list[Conversation]:
    if config.data:
        return read_conversations(Path(config.data))
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has no demonstrations to imitate: "
                         "give conversations of your own with data=FILE.jsonl.")
    return task.demonstrations("train", config.examples, config.seed)


def build(config: SFTConfig, begins_with: Path) -> Parts:
    model, chat = open_policy(config, begins_with)
    method = methods.get(config.method)
    task = load_task(config.task) if config.task else None
    examine = None
    if task and config.evaluation.every:
        prove(task)
        examine = examiner(model, chat, task, config.evaluation, config.seed)
    batches = ConversationBatches(conversations(config, task), chat, method, per_step=config.rows_per_step,
                                  steps=config.steps, seed=config.seed, room=model.config.max_position_embeddings,
                                  device=config.device)
    models = Models(policy=model)
    return Parts(models=models, chat=chat, batches=batches, objective=objectives.build(method),
                 optim=Optim(models, config.optim, config.steps), examine=examine, every=config.evaluation.every)
