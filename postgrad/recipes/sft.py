"""Supervised fine-tuning: imitate conversations, from a task's demonstrations,
a JSONL file or rows that are handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from postgrad import methods, objectives
from postgrad.batches import ConversationBatches
from postgrad.data.preferences import split_rows
from postgrad.data.rows import read_conversations
from postgrad.loop import Optim, OptimSettings
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.opening.models import Beginning, open_policy
from postgrad.opening.tasks import open_task
from postgrad.recipes.base import METHOD, MODEL, STEPS, Parts, RunConfig, examiner, one_source, prove
from postgrad.recipes.counts import data_counts
from postgrad.recipes.defaults import fits
from postgrad.recipes.own_rows import OwnRows, Reading, seen_on
from postgrad.records import Batch, Conversation
from postgrad.settings import COUNT, setting

MOST_HELD_OUT = 500  # conversations: an examination is to cost little beside the steps


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
                            "gives all it has", within=COUNT)
    rows: OwnRows = setting(group=OwnRows)
    steps: int = setting(60, *STEPS)
    rows_per_step: int = setting(64, "conversations in a step", "fewer where the data are few, so that there "
                                 "are steps enough; memory is tokens_per_pass", within=COUNT)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))

    def __post_init__(self):
        super().__post_init__()
        one_source(self)


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


def read(config: SFTConfig, task, reading: Reading) -> tuple[list[Conversation], list[Conversation]]:
    """Conversations to imitate, and those of one's own that are held out."""
    if config.data is not None:
        return split_rows(read_conversations(config.data, reading.bad), config.rows.holdout, MOST_HELD_OUT)
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has no demonstrations to imitate: "
                         "give conversations of your own with data=FILE.jsonl.")
    return task.demonstrations("train", config.examples, config.seed), []


@fits
def build(config: SFTConfig, begins: Beginning) -> Parts:
    model, chat = open_policy(config, begins)
    task = open_task(config.task) if config.task is not None else None
    examine, every, examined = None, config.evaluation.every, []
    if task and every:
        prove(task)
        examined = config.evaluation.asked(task, config.seed)
        examine = examiner(model, chat, task, config.evaluation, config.seed)
    most, reading = model.config.max_position_embeddings, Reading(config.rows, config.data)
    line = partial(ConversationBatches, chat=chat, method=config.method, seed=config.seed,
                   device=config.device, max_tokens=most, truncate=config.rows.cut)
    train, held = (reading.fitting(rows, chat, most) for rows in read(config, task, reading))
    batches = line(train, per_step=config.rows_per_step, steps=config.steps)
    models, objective = Models(policy=model), objectives.build(config.method)
    if held:
        (kept,) = line(held, per_step=len(held), steps=1)
        examine, every = partial(loss_on, objective, models, kept, config), every or -(-config.steps // 10)
    return Parts(models=models, chat=chat, batches=batches, objective=objective,
                 optim=Optim(models, config.optim, config.steps), examine=examine, every=every,
                 notes=reading.notes(batches.limit),
                 data=data_counts((c.messages[:-1] for c in train),
                                  [*(p.messages for p in examined), *(c.messages[:-1] for c in held)]))


def loss_on(objective, models: Models, held: Batch, config: SFTConfig, step: int) -> dict:
    """The loss on what was held out, and on how many conversations."""
    stats = seen_on(objective, models, held, config.optim.at_once)
    return {"loss": stats.results()["loss"], "rows": len(held)}
