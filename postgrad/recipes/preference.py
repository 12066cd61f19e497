"""Learning from preferences on the policy itself: DPO and its family on pairs,
KTO on answers labelled good or bad.

    postgrad train dpo:questions            a task's pairs
    postgrad train dpo data=pairs.jsonl     pairs of your own: {"prompt", "chosen", "rejected"} a line
    postgrad train kto data=labels.jsonl    answers of your own: {"prompt", "completion", "label"} a line
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from postgrad import methods
from postgrad.data.preferences import (
    preference_report,
    preference_sentence,
    prompt_messages,
    read_pairs,
    read_singles,
    split_rows,
)
from postgrad.data.rows import source_name
from postgrad.data.tasks import Task
from postgrad.maths.intervals import grouped_interval
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.recipes.base import (
    METHOD,
    STEPS,
    Evaluation,
    RunConfig,
    RunInputs,
    TrainingSetup,
    check_one_source,
    policy_evaluator,
)
from postgrad.recipes.data_counts import data_counts
from postgrad.recipes.defaults import with_defaults
from postgrad.recipes.row_reader import RowReader, RowSettings, evaluate_objective
from postgrad.records import Batch, Conversation, Pair
from postgrad.resolve.models import ModelSource, open_policy, open_reference
from postgrad.resolve.tasks import open_task
from postgrad.system.settings import setting
from postgrad.training import objectives
from postgrad.training.batches import PairBatches, SingleBatches
from postgrad.training.distributed.virtual_ranks import current_virtual_ranks
from postgrad.training.optim import Optim, OptimSettings


@dataclass(frozen=True, kw_only=True)
class Pairs(RowSettings):
    """How many pairs are drawn from a task (a file gives all it has), how many are held out,
    how many go into a step."""

    drawn: int = setting(2000, "pairs drawn from a task to learn from",
                         "more where the held-out accuracy is far below that of the step; a file gives all "
                         "it has")
    held_out: int = setting(400, "pairs drawn from a task to evaluate",
                            "more: a narrower interval; 400 leave about 5 points of accuracy either way")
    per_step: int = setting(32, "pairs (kto: answers) in a step", "more: a steadier gradient; kto wants 16 "
                            "or more, for its baseline is the batch's")

    def __post_init__(self):
        super().__post_init__()
        if min(self.drawn, self.held_out, self.per_step) < 1:
            raise ValueError(f"pairs.drawn {self.drawn}, pairs.held_out {self.held_out} and pairs.per_step "
                             f"{self.per_step} must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig(RunConfig):
    """One run on preferences."""

    recipe: ClassVar[str] = "preference"
    data: str | Sequence | None = setting(None, "instead of a task: a JSONL file of pairs (kto: of labelled "
                                          "answers)", "to learn from preferences of your own; `postgrad "
                                          "label` collects them")
    method: Method = setting(methods.get_method("dpo"), *METHOD, resolve=methods.method_from_config)
    pairs: Pairs = setting(group=Pairs)
    steps: int = setting(120, *STEPS)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=20, samples=8))

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, data=self.data)

    def __post_init__(self):
        super().__post_init__()
        check_one_source(self)
        beta = methods.constants_of(self.method).get("beta", 1.0)
        if not beta > 0:
            raise ValueError(f"method.beta is {beta}: it must be above 0.")


def preference_on_questions() -> PreferenceConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return PreferenceConfig(task="questions")


def preference_on_gsm8k() -> PreferenceConfig:
    """Right and wrong answers to GSM8K's problems, for a real model after SFT, on a GPU."""
    return PreferenceConfig(task="gsm8k", model="models/smollm2", pairs=Pairs(drawn=10_000, held_out=500),
                            steps=120, save_every=120,
                            optim=OptimSettings(lr=5e-6, schedule="linear", warmup=10),
                            evaluation=Evaluation(every=20, problems=256, max_new_tokens=256))


SETTINGS = {"questions": preference_on_questions, "gsm8k": preference_on_gsm8k}


def read_pair_sets(config, reading: RowReader) -> tuple[list[Pair], list[Pair], Task | None]:
    """Pairs to learn from, pairs held out, and the task, if there is one."""
    if config.data is not None:
        return *split_rows(read_pairs(config.data, reading.bad), config.pairs.holdout), None
    task = open_task(config.task)
    if task.preferences is None:
        raise ValueError(f"task {task.name} has no labelled pairs: give pairs of your own with "
                         "data=FILE.jsonl.")
    drawn = task.preferences("train", config.pairs.drawn, config.seed)
    return drawn, task.preferences("test", config.pairs.held_out, config.seed), task


def data_notes(config, rows: list) -> tuple[str, ...]:
    """What is worth saying of data that was handed in: its repeats and contradictions."""
    if config.data is None:
        return ()
    found = preference_report(rows)
    odd = found["repeated"] or found["contradicted"]
    return (f"{source_name(config.data)}: {preference_sentence(found)}",) if odd else ()


def split_pairs(pairs: Sequence[Pair]) -> list[Conversation]:
    """Both answers of each pair by themselves, labelled."""
    return [Conversation(id=f"{p.id}/{side}", label=side == "chosen",
                         messages=(*p.messages, {"role": "assistant", "content": getattr(p, side)}))
            for p in pairs for side in ("chosen", "rejected")]


def read_labelled(config, reading: RowReader) -> tuple[list[Conversation], list[Conversation], Task | None]:
    """What KTO learns from, in the same three parts."""
    if config.data is not None:
        return *split_rows(read_singles(config.data, reading.bad), config.pairs.holdout), None
    train, held, task = read_pair_sets(config, reading)
    return split_pairs(train), split_pairs(held), task


def balance_kto(method: Method, rows: Sequence[Conversation]) -> Method:
    """KTO's weights, so that wanted and unwanted answers count alike whatever their number
    (its section 4.2)."""
    good = sum(bool(r.label) for r in rows)
    bad = len(rows) - good
    return methods.change(method, wanted=max(1.0, bad / good), unwanted=max(1.0, good / bad))


@with_defaults
def build(config: PreferenceConfig, begins: ModelSource) -> TrainingSetup:
    method = config.method
    alone = method.source == "singles"
    reading = RowReader(config.pairs, config.data)
    train, held, task = (read_labelled if alone else read_pair_sets)(config, reading)
    policy, chat = open_policy(config, begins)
    most = policy.config.max_position_embeddings
    train, held = (reading.fitting(rows, chat, most) for rows in (train, held))
    if alone and {"wanted", "unwanted"} <= methods.constants_of(method).keys():
        method = balance_kto(method, train)
    models = Models(policy=policy,
                    reference=open_reference(config, begins, policy) if method.needs_reference else None)
    line = partial(SingleBatches if alone else PairBatches, chat=chat, method=method, models=models,
                   seed=config.seed, max_tokens=most, truncate=config.pairs.cut,
                   tokens_per_pass=config.optim.at_once, device=config.device)
    batches = line(train, per_step=config.pairs.per_step, steps=config.steps,
                   virtual_ranks=current_virtual_ranks(config.optim.virtual_ranks, config.optim.divides))
    objective = objectives.build_objective(method)
    looks: list[Callable[[int], dict]] = []
    if held:
        looks.append(lambda step: evaluate_pairs(objective, models, line(held, per_step=len(held), steps=1),
                                                 config))
    if task:
        looks.append(policy_evaluator(policy, chat, task, config.evaluation, config.seed))
    return TrainingSetup(models=models, chat=chat, batches=batches, objective=objective,
                 notes=reading.notes(batches.limit) + data_notes(config, train + held),
                 data=reading.counts(batches.limit)
                      | data_counts(map(prompt_messages, train), map(prompt_messages, held)),
                 optim=Optim(models, config.optim, config.steps),
                 evaluate=lambda step: {k: v for look in looks for k, v in look(step).items()},
                 evaluate_every=config.evaluation.every if looks else 0)


def evaluate_pairs(objective, models: Models, line, config) -> dict:
    """Loss, accuracy (with its interval over prompts) and margin on what was held out."""
    (batch,) = line
    stats = evaluate_objective(objective, models, batch, config.optim.at_once)
    found = stats.results()
    _, low, high = grouped_interval(stats.of_units("accuracy"), prompts_in(batch), (0.0, 1.0))
    return {"accuracy": found["accuracy"], "accuracy_interval": [low, high],
            "margin": found["chosen"] - found["rejected"], "loss": found["loss"]}


def prompts_in(batch: Batch) -> list[tuple[int, ...]]:
    """The prompt of each unit, as its tokens."""
    starts = batch.mask.int().argmax(1).tolist()
    return [tuple(batch.tokens[row, : starts[row]].tolist())
            for row in range(0, len(batch), batch.rows_per_unit)]
