"""Supervised fine-tuning: imitate conversations, from a task's demonstrations, JSONL files or rows that are
handed in; several of them by weight.

    postgrad train sft data=chats.jsonl
    postgrad train sft data=chats.jsonl:0.8,words:0.2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad import methods
from postgrad.data.preferences import ask_of, prompt_messages, split_rows
from postgrad.data.rows import read_conversations
from postgrad.data.tasks import Task
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.recipes.base import (
    METHOD,
    MODEL,
    STEPS,
    RunConfig,
    RunInputs,
    TrainingSetup,
    check_one_source,
    check_task,
    policy_evaluator,
)
from postgrad.recipes.data_counts import data_counts
from postgrad.recipes.defaults import with_defaults
from postgrad.recipes.row_reader import RowReader, RowSettings, evaluate_objective
from postgrad.records import Batch, Conversation
from postgrad.resolve.models import ModelSource, open_policy
from postgrad.resolve.sources import DataSource, source_shares, sources_of
from postgrad.resolve.tasks import open_task
from postgrad.system.settings import COUNT, setting
from postgrad.training import objectives
from postgrad.training.batches import ConversationBatches
from postgrad.training.batches.offline import TokenLimit
from postgrad.training.optim import Optim, OptimSettings

TURNS = ("all", "last")
MOST_HELD_OUT = 500  # conversations: an evaluation is to cost little beside the steps


@dataclass(frozen=True, kw_only=True)
class SFTConfig(RunConfig):
    """One run of imitation."""

    recipe: ClassVar[str] = "sft"
    model: str = setting("tiny", *MODEL)
    data: str | Sequence | None = setting(
        None, 'instead of a task: a JSONL file of {"messages": [...]} rows; several with commas between, and '
        "a weight after a colon, a.jsonl:0.7,words:0.3, where a task gives its demonstrations",
        "to imitate conversations of your own, or several kinds together; in Python rows, or a table of them")
    method: Method = setting(methods.get_method("sft"), *METHOD, resolve=methods.method_from_config)
    examples: int = setting(4000, "demonstrations drawn from the task",
                            "at least steps x rows_per_step, so that none comes twice; a task with fewer "
                            "gives all it has", within=COUNT)
    rows: RowSettings = setting(group=RowSettings)
    turns: str = setting("all", "the assistant's turns that are learned: all, or the last of a conversation",
                         "last where earlier turns are there to be read and not to be imitated")
    steps: int = setting(60, *STEPS)
    rows_per_step: int = setting(64, "conversations in a step", "fewer where the data are few, so that there "
                                 "are steps enough; memory is tokens_per_pass", within=COUNT)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, data=self.data)

    def __post_init__(self):
        super().__post_init__()
        check_one_source(self)
        if self.turns not in TURNS:
            raise ValueError(f"turns is {self.turns!r}: expected {' or '.join(TURNS)}.")


def sft_on_words() -> SFTConfig:
    """Word problems as an average writer answers them: mostly straight to the answer."""
    return SFTConfig(task="words")


def sft_on_arithmetic() -> SFTConfig:
    return SFTConfig(task="arithmetic")


def sft_on_countdown() -> SFTConfig:
    return SFTConfig(task="countdown")


def sft_on_guess() -> SFTConfig:
    """The form of a game over several turns, as a player without skill plays it."""
    return SFTConfig(task="guess", model="tiny-tools", examples=512, steps=16, rows_per_step=32)


def sft_on_animals() -> SFTConfig:
    return SFTConfig(task="animals", model="tiny-tools", examples=1600, steps=100, rows_per_step=16)


def sft_on_big_numbers() -> SFTConfig:
    """Both forms of a reply, with the calculator and without."""
    return SFTConfig(task="big-numbers", model="tiny-tools", examples=2048, steps=64, rows_per_step=32)


def sft_on_questions() -> SFTConfig:
    """Questions answered politely, tersely, at length and rudely."""
    return SFTConfig(task="questions")


def sft_on_gsm8k() -> SFTConfig:
    """GSM8K's worked solutions, four times over, for a real model: `postgrad fetch smollm2` brings one."""
    return SFTConfig(task="gsm8k", model="models/smollm2", examples=10_000, steps=420, save_every=420,
                     optim=OptimSettings(lr=5e-4, schedule="linear", warmup=10))


SETTINGS = {"words": sft_on_words, "arithmetic": sft_on_arithmetic, "countdown": sft_on_countdown,
            "guess": sft_on_guess,
            "animals": sft_on_animals, "big-numbers": sft_on_big_numbers, "questions": sft_on_questions,
            "gsm8k": sft_on_gsm8k}


def task_demonstrations(name: str | Task, config: SFTConfig) -> list[Conversation]:
    """Those of a task, with its tools as whoever plays it is shown them."""
    task = open_task(name)
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has no demonstrations to imitate: "
                         "give conversations of your own with data=FILE.jsonl.")
    tools = tuple(tool_schema(tool) for tool in task.tools)
    return [replace(row, tools=tools) for row in task.demonstrations("train", config.examples, config.seed)]


@dataclass
class ConversationSets:
    """The conversations of a run: those of each source to learn from, those that are held out."""

    sources: list[DataSource]
    readings: list[RowReader]
    train: list[list[Conversation]]
    held: list[Conversation]

    @property
    def shares(self) -> list[float]:
        return source_shares(self.sources, [len(rows) for rows in self.train])

    @property
    def weighed(self) -> bool:
        return self.sources[0].weight is not None

    def counts(self, limit: TokenLimit) -> dict:
        """What was left out and cut, and what each of several sources gives."""
        total = dict(sum((Counter(reading.counts()) for reading in self.readings), Counter()))
        named = [{"name": source.name, "rows": len(rows), "share": share}
                 for source, rows, share in zip(self.sources, self.train, self.shares, strict=True)]
        return {"bad": 0, "dropped": 0, **total, "cut": limit.cut,
                **({"sources": named} if len(named) > 1 else {})}

    def notes(self, limit: TokenLimit) -> tuple[str, ...]:
        said = [f"{source.name} {share:.1%} ({len(rows):,} rows)"
                for source, rows, share in zip(self.sources, self.train, self.shares, strict=True)]
        mixed = (f"imitated: {', '.join(said)}",) if len(said) > 1 else ()
        left_out = [note for reading in self.readings for note in reading.notes()]
        return (*mixed, *left_out, *limit.note(self.readings[0].name if len(said) == 1 else "the rows"))


def read_conversation_sets(config: SFTConfig, chat: Chat, most: int) -> ConversationSets:
    """All that is imitated. Of rows of one's own some prompts are held out, in whatever source they stand."""
    if config.data is None:
        reading = RowReader(config.rows, None)
        rows = reading.fitting(task_demonstrations(config.task, config), chat, most)
        return ConversationSets([DataSource(rows=config.task)], [reading], [rows], [])
    sources = sources_of(config.data)
    readings = [RowReader(config.rows, source.rows) for source in sources]
    found = [task_demonstrations(source.rows, config) if source.task
             else read_conversations(source.rows, reading.bad)
             for source, reading in zip(sources, readings, strict=True)]
    _, held = split_rows([row for rows in found for row in rows], config.rows.holdout, MOST_HELD_OUT)
    asks = {ask_of(prompt_messages(row)) for row in held}
    kept = [[row for row in rows if ask_of(prompt_messages(row)) not in asks] for rows in found]
    train = [reading.fitting(rows, chat, most) for rows, reading in zip(kept, readings, strict=True)]
    for source, rows in zip(sources, train, strict=True):
        if not rows:
            raise ValueError(f"{source.name} has no row left to learn from: lower holdout, or leave it out.")
    return ConversationSets(sources, readings, train, readings[0].fitting(held, chat, most))


@with_defaults
def build(config: SFTConfig, begins: ModelSource) -> TrainingSetup:
    model, chat = open_policy(config, begins)
    task = open_task(config.task) if config.task is not None else None
    evaluate, every, evaluated = None, config.evaluation.every, []
    if task and every:
        check_task(task)
        evaluated = config.evaluation.asked(task, config.seed)
        evaluate = policy_evaluator(model, chat, task, config.evaluation, config.seed)
    most = model.config.max_position_embeddings
    imitated = read_conversation_sets(config, chat, most)
    line = partial(ConversationBatches, chat=chat, method=config.method, seed=config.seed,
                   device=config.device, max_tokens=most, truncate=config.rows.cut,
                   last=config.turns == "last")
    train = [row for rows in imitated.train for row in rows]
    batches = line(imitated.train if imitated.weighed else train, per_step=config.rows_per_step,
                   steps=config.steps, shares=imitated.shares if imitated.weighed else ())
    models, objective = Models(policy=model), objectives.build_objective(config.method)
    if imitated.held:
        (kept,) = line(imitated.held, per_step=len(imitated.held), steps=1)
        evaluate, every = partial(held_out_loss, objective, models, kept,
                                 config), every or -(-config.steps // 10)
    return TrainingSetup(models=models, chat=chat, batches=batches, objective=objective,
                 optim=Optim(models, config.optim, config.steps, batches.tokens), evaluate=evaluate,
                 evaluate_every=every,
                 notes=imitated.notes(batches.limit),
                 data=imitated.counts(batches.limit) | data_counts(
                     (c.messages[:-1] for c in train),
                     [*(p.messages for p in evaluated), *(c.messages[:-1] for c in imitated.held)]))


def held_out_loss(objective, models: Models, held: Batch, config: SFTConfig, step: int) -> dict:
    """The loss on what was held out, and on how many conversations."""
    stats = evaluate_objective(objective, models, held, config.optim.at_once)
    return {"loss": stats.results()["loss"], "rows": len(held)}
