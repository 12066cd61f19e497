"""Supervised fine-tuning on conversations: a task's demonstrations, JSONL files or rows from Python; several
of them mixed by weight.

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
from postgrad.data.preferences import split_sources
from postgrad.data.rows import BadRows, read_conversations
from postgrad.data.tasks import Task
from postgrad.data.tasks.listed import task_notes
from postgrad.evaluation.evaluate import Figures
from postgrad.methods import Method, Supervised
from postgrad.models import Adapted, Models
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.models.pass_noise import add_neftune
from postgrad.recipes.base import (
    EVAL_TASK,
    METHOD,
    MODEL,
    DataConfig,
    RunInputs,
    TrainingSetup,
    data_counts,
    policy_examiner,
)
from postgrad.recipes.row_reader import MAX_HELD_OUT, RowReader, RowSettings, evaluate_objective
from postgrad.records import Batch, Conversation
from postgrad.resolve.models import ModelSource, open_policy
from postgrad.resolve.sources import DataSource, source_shares, sources_of
from postgrad.resolve.tasks import open_task
from postgrad.system.disk_list import DiskList
from postgrad.system.settings import COUNT, NOT_NEGATIVE, setting
from postgrad.training import objectives
from postgrad.training.batches import ConversationBatches
from postgrad.training.batches.offline import TokenLimit
from postgrad.training.loop import Objective
from postgrad.training.optim import Optim, OptimSettings


@dataclass(frozen=True, kw_only=True)
class SFTConfig(DataConfig):
    """One run of supervised fine-tuning."""

    recipe: ClassVar[str] = "sft"
    default_epochs: ClassVar[int] = 3
    task_steps: ClassVar[int] = 60
    model: str = setting("tiny", *MODEL)
    data: str | Sequence[object] | None = setting(
        None, 'instead of a task: a JSONL file of {"messages": [...]} rows; several with commas between, and '
        "a weight after a colon, a.jsonl:0.7,words:0.3, where a task gives its demonstrations",
        "to train on conversations of your own, or on several kinds; in Python rows, or a table of them")
    eval_task: Task | str | Sequence[object] | None = setting(None, *EVAL_TASK)
    method: Method = setting(methods.get_method("sft"), *METHOD, resolve=methods.method_from_config)
    examples: int = setting(4000, "demonstrations drawn from the task",
                            "at least steps x rows_per_step, so that none comes twice; a task with fewer "
                            "gives all it has", within=COUNT)
    rows: RowSettings = setting(group=RowSettings)
    turns: str = setting("all", "the assistant's turns to train on: all, or the last of a conversation; "
                         "prompts: every token, those of users and of the template too",
                         "last where earlier turns are context alone; prompts where users' turns are worth "
                         "learning", choices=("all", "last", "prompts"))
    neftune: float = setting(0.0, "NEFTune: uniform noise of +-neftune / sqrt(tokens x width) on a row's "
                             "embeddings, in training alone", "5 to 15 where few rows are seen several "
                             "times; 0: none", within=NOT_NEGATIVE)
    rows_per_step: int = setting(64, "conversations in a step", "fewer where the data are few, so that there "
                                 "are steps enough; memory is tokens_per_pass", within=COUNT)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, eval_task=self.eval_task)

    @property
    def skips_bad(self) -> bool:
        return self.rows.skip_bad


def sft_on_words() -> SFTConfig:
    """Word problems as an average writer answers them: mostly straight to the answer."""
    return SFTConfig(task="words", steps=60)


def sft_on_arithmetic() -> SFTConfig:
    return SFTConfig(task="arithmetic", steps=60)


def sft_on_countdown() -> SFTConfig:
    return SFTConfig(task="countdown", steps=60)


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
    return SFTConfig(task="questions", steps=60)


def sft_on_gsm8k() -> SFTConfig:
    """GSM8K's worked solutions, four times over, for a real model: `postgrad fetch smollm2` brings one."""
    return SFTConfig(task="gsm8k", model="models/smollm2", examples=10_000, steps=420, save_every=420,
                     optim=OptimSettings(schedule="linear", warmup=10))


SETTINGS = {"words": sft_on_words, "arithmetic": sft_on_arithmetic, "countdown": sft_on_countdown,
            "guess": sft_on_guess,
            "animals": sft_on_animals, "big-numbers": sft_on_big_numbers, "questions": sft_on_questions,
            "gsm8k": sft_on_gsm8k}


def task_demonstrations(name: str | Task, config: SFTConfig,
                        bad: BadRows | None = None) -> list[Conversation]:
    """The demonstrations of a task, with the schemas of its tools. bad: collects its bad rows."""
    task = open_task(name, bad=bad)
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has no demonstrations to imitate: "
                         "give conversations of your own with data=FILE.jsonl.")
    tools = tuple(tool_schema(tool) for tool in task.tools)
    return [replace(row, tools=tools) for row in task.demonstrations("train", config.examples, config.seed)]


@dataclass
class ConversationSets:
    """The conversations of a run: of each source those to train on, and those held out."""

    sources: list[DataSource]
    readers: list[RowReader]
    train: Sequence[Sequence[Conversation]]
    held_out: Sequence[Conversation]
    task_notes: tuple[str, ...] = ()
    split_off: int = 0  # rows of the sources that are held out

    @property
    def shares(self) -> list[float]:
        return source_shares(self.sources, [len(rows) for rows in self.train])

    @property
    def name(self) -> str:
        return self.readers[0].name if len(self.readers) == 1 else "the rows"

    @property
    def weighted(self) -> bool:
        return self.sources[0].weight is not None

    def counts(self, limit: TokenLimit) -> dict[str, object]:
        """Rows that were left out or cut, and where there are several sources, the rows and share of each."""
        total = dict(sum((Counter(reader.counts()) for reader in self.readers), Counter[str]()))
        named = [{"name": source.name, "rows": len(rows), "share": share}
                 for source, rows, share in zip(self.sources, self.train, self.shares, strict=True)]
        return {"bad": 0, "dropped": 0, **total, "cut": limit.cut,
                **({"sources": named} if len(named) > 1 else {})}

    def notes(self, limit: TokenLimit) -> tuple[str, ...]:
        parts = [f"{source.name} {share:.1%} ({len(rows):,} rows)"
                 for source, rows, share in zip(self.sources, self.train, self.shares, strict=True)]
        mixture = (f"imitated: {', '.join(parts)}",) if len(parts) > 1 else ()
        left_out = [note for reader in self.readers for note in reader.notes()]
        return (*self.task_notes, *mixture, *left_out, *limit.note(self.name))


def read_conversation_sets(config: SFTConfig, chat: Chat, max_tokens: int) -> ConversationSets:
    """Reads all sources, and eval_data. Without it a share of the prompts in `data` is held out, in whichever
    source they are."""
    given, share = config.eval_data, config.held_out_share(config.rows.holdout)
    sources = [DataSource(rows=config.task)] if config.data is None else sources_of(config.data)
    first = RowReader(config.rows, None if config.data is None else sources[0].rows, given)
    held_out = [] if given is None else read_conversations(given, first.evaluated.bad)
    if config.data is None:
        task = config.open_task()
        rows = first.fitting(task_demonstrations(task, config), chat, max_tokens)
        return ConversationSets(sources, [first], [rows], first.evaluated.fitting(held_out, chat, max_tokens),
                                task_notes(task))
    readers = [first, *(RowReader(config.rows, source.rows) for source in sources[1:])]
    read = [task_demonstrations(source.rows, config, reader.bad) if source.task
            else read_conversations(source.rows, reader.bad)
            for source, reader in zip(sources, readers, strict=True)]
    split = split_sources(read, share, MAX_HELD_OUT)
    held_out = held_out or [row for _, rows in split for row in rows]
    train = [reader.fitting(rows, chat, max_tokens) for (rows, _), reader in zip(split, readers, strict=True)]
    for source, rows in zip(sources, train, strict=True):
        if not rows:
            raise ValueError(f"{source.name} has no row left to learn from: lower holdout, or leave it out.")
    evaluated = first.evaluated.fitting(held_out, chat, max_tokens)
    return ConversationSets(sources, readers, train, evaluated,
                            split_off=len(evaluated) if given is None else 0)


def build(config: SFTConfig, source: ModelSource) -> TrainingSetup:
    assert isinstance(config.method, Supervised)
    model, chat = open_policy(config, source)
    examine, problems = policy_examiner(model, chat, config)
    positions = config.rows.limit(model.config.max_position_embeddings)
    sets = read_conversation_sets(config, chat, positions)
    make = partial(ConversationBatches, chat=chat, method=config.method, seed=config.seed,
                   device=config.device, max_tokens=positions, truncate=config.rows.cut,
                   turns=config.turns)
    train = sets.train[0] if len(sets.train) == 1 else DiskList(row for rows in sets.train for row in rows)
    length = config.length(len(train), config.rows_per_step)
    batches = make(sets.train if sets.weighted else train, per_step=length.per_step, steps=length.steps,
                   shares=sets.shares if sets.weighted else ())
    if config.neftune:
        add_neftune(model.body if isinstance(model, Adapted) else model, config.neftune, config.seed)
    models, objective = Models(policy=model), objectives.build_objective(config.method)
    held_out = [*make(sets.held_out, per_step=len(sets.held_out), steps=1)] if sets.held_out else []

    def evaluate(step: int) -> Figures:
        figures = held_out_loss(objective, models, held_out[0], config, step) if held_out else {}
        return figures | (examine(step) if examine else {})

    every = config.evaluation.every or evaluation_interval(length.steps, config.save_every)
    return TrainingSetup(
        models=models, chat=chat, batches=batches, objective=objective, evaluate=evaluate,
        evaluate_every=every if examine or held_out else 0,
        optim=Optim(models, config.optim, length.steps, batches.tokens),
        notes=sets.notes(batches.limit),
        length=length.sentence(config.label or sets.name, batches.trained_tokens, held_out=sets.split_off),
        settings={"steps": length.steps, "rows_per_step": length.per_step, "epochs": None},
        data=sets.counts(batches.limit) | length.facts(batches.trained_tokens) | data_counts(
            (c.prompt for c in train),
            [*(p.messages for p in problems), *(c.prompt for c in sets.held_out)]))


def evaluation_interval(steps: int, save_every: int) -> int:
    """Steps between evaluations, about a tenth of the run, at steps of checkpoints: a divisor of
    save_every, or a multiple."""
    tenth = -(-steps // 10)
    if tenth >= save_every:
        return tenth - tenth % save_every
    return max(n for n in range(1, tenth + 1) if save_every % n == 0)


def held_out_loss(objective: Objective, models: Models, held_out: Batch, config: SFTConfig,
                  step: int) -> Figures:
    """The loss on held-out conversations, and their number."""
    stats = evaluate_objective(objective, models, held_out, config.optim.at_once)
    return {"loss": stats.results()["loss"], "rows": len(held_out)}
