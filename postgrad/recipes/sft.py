"""Supervised fine-tuning: imitate conversations, from a task's demonstrations,
a JSONL file or rows that are handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from postgrad import methods, objectives
from postgrad.batches import ConversationBatches
from postgrad.data.rows import read_conversations
from postgrad.loop import Optim, OptimSettings
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.opening.models import Beginning, open_policy
from postgrad.opening.tasks import open_task
from postgrad.recipes.base import METHOD, MODEL, STEPS, Parts, RunConfig, examiner, one_source, prove
from postgrad.recipes.counts import data_counts
from postgrad.recipes.defaults import fits
from postgrad.records import Conversation
from postgrad.settings import setting


@dataclass(frozen=True, kw_only=True)
class SFTConfig(RunConfig):
    """One run of imitation."""

    recipe: ClassVar[str] = "sft"
    model: str = setting("tiny", *MODEL)
    data: str | Sequence | None = setting(None, 'instead of a task: a JSONL file of {"messages": [...]} rows',
                                          "to imitate conversations of your own; in Python rows, or a table "
                                          "of them")
    method: Method = setting(methods.get("sft"), *METHOD, parse=methods.named)
    examples: int = setting(4000, "demonstrations drawn from the task",
                            "at least steps x rows_per_step, so that none comes twice; a task with fewer "
                            "gives all it has")
    steps: int = setting(60, *STEPS)
    rows_per_step: int = setting(64, "conversations in a step", "fewer where the data are few, so that there "
                                 "are steps enough; memory is tokens_per_pass")
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))

    def __post_init__(self):
        super().__post_init__()
        one_source(self)
        if min(self.rows_per_step, self.examples) < 1:
            raise ValueError("rows_per_step and examples must be at least 1.")


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


SETTINGS = {"words": words, "arithmetic": arithmetic, "countdown": countdown, "questions": questions,
            "gsm8k": gsm8k}


def conversations(config: SFTConfig, task) -> list[Conversation]:
    if config.data is not None:
        return read_conversations(config.data)
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has no demonstrations to imitate: "
                         "give conversations of your own with data=FILE.jsonl.")
    return task.demonstrations("train", config.examples, config.seed)


@fits
def build(config: SFTConfig, begins: Beginning) -> Parts:
    model, chat = open_policy(config, begins)
    task = open_task(config.task) if config.task is not None else None
    rows, examine, examined = conversations(config, task), None, []
    if task and config.evaluation.every:
        prove(task)
        examined = config.evaluation.asked(task, config.seed)
        examine = examiner(model, chat, task, config.evaluation, config.seed)
    batches = ConversationBatches(rows, chat, config.method, per_step=config.rows_per_step,
                                  steps=config.steps, seed=config.seed, device=config.device,
                                  max_tokens=model.config.max_position_embeddings)
    models = Models(policy=model)
    return Parts(models=models, chat=chat, batches=batches, objective=objectives.build(config.method),
                 optim=Optim(models, config.optim, config.steps), examine=examine,
                 every=config.evaluation.every,
                 data=data_counts((c.messages[:-1] for c in rows), (p.messages for p in examined)))
