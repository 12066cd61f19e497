"""Preference optimisation of the policy: DPO and its family on pairs, KTO on answers labelled good or bad.

    postgrad train dpo:questions            a task's pairs
    postgrad train dpo data=pairs.jsonl     pairs of your own: {"prompt", "chosen", "rejected"} a line
    postgrad train kto data=labels.jsonl    answers of your own: {"prompt", "completion", "label"} a line
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import ClassVar

from postgrad import methods
from postgrad.data.preferences import (
    RowT,
    ask_of,
    preference_report,
    preference_sentence,
    prompt_messages,
    read_pairs,
    read_singles,
    split_rows,
)
from postgrad.data.rows import BadRows, Source, source_name
from postgrad.data.tasks import Task
from postgrad.evaluation.evaluate import Figures
from postgrad.maths.intervals import grouped_interval
from postgrad.methods import Method, Preference
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.recipes.base import (
    EVAL_TASK,
    METHOD,
    DataConfig,
    Evaluation,
    RunInputs,
    TrainingSetup,
    data_counts,
    policy_examiner,
)
from postgrad.recipes.row_reader import MAX_HELD_OUT, RowReader, RowSettings, evaluate_objective
from postgrad.records import Batch, Conversation, Pair, completion_messages, without_training
from postgrad.resolve.models import ModelSource, open_policy, open_reference
from postgrad.system.settings import COUNT, setting
from postgrad.training import objectives
from postgrad.training.batches import PairBatches, SingleBatches
from postgrad.training.distributed.virtual_ranks import current_virtual_ranks
from postgrad.training.loop import Objective
from postgrad.training.optim import Optim, OptimSettings

Row = Pair | Conversation


@dataclass(frozen=True, kw_only=True)
class Pairs(RowSettings):
    """The number of pairs: drawn from a task (a file gives all it has), held out, in a step."""

    drawn: int = setting(2000, "training pairs drawn from a task",
                         "more where the held-out accuracy is far below that of the step; a file gives all "
                         "it has", within=COUNT)
    held_out: int = setting(400, "held-out pairs drawn from a task",
                            "more: a narrower interval; 400 leave about 5 points of accuracy either way",
                            within=COUNT)
    per_step: int = setting(32, "pairs (kto: answers) in a step", "more: a steadier gradient; kto wants 16 "
                            "or more, because its baseline is the batch's", within=COUNT)

    prefix: ClassVar[str] = "pairs."


class PairConfig(DataConfig):
    """What the configs of preference runs and reward models have. (The field is theirs.)"""

    pairs: Pairs

    @property
    def skips_bad(self) -> bool:
        return self.pairs.skip_bad


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig(PairConfig):
    """One run on preferences."""

    recipe: ClassVar[str] = "preference"
    data: str | Sequence[object] | None = setting(
        None, "instead of a task: a JSONL file of pairs (kto: of labelled answers)",
        "to learn from preferences of your own; `postgrad label` collects them")
    eval_task: Task | str | Sequence[object] | None = setting(None, *EVAL_TASK)
    method: Method = setting(methods.get_method("dpo"), *METHOD, resolve=methods.method_from_config)
    pairs: Pairs = setting(group=Pairs)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=20, samples=8))

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, eval_task=self.eval_task)

    def __post_init__(self) -> None:
        super().__post_init__()
        beta = methods.constants_of(self.method).get("beta", 1.0)
        if not (isinstance(beta, int | float) and beta > 0):
            raise ValueError(f"method.beta is {beta}: it must be above 0.")


def preference_on_questions() -> PreferenceConfig:
    """Questions whose true quality is known, labelled by annotators who err and like long replies."""
    return PreferenceConfig(task="questions", steps=120)


def preference_on_gsm8k() -> PreferenceConfig:
    """Right and wrong answers to GSM8K's problems, for a real model after SFT, on a GPU."""
    return PreferenceConfig(task="gsm8k", model="models/smollm2", pairs=Pairs(drawn=10_000, held_out=500),
                            steps=120, save_every=120,
                            optim=OptimSettings(schedule="linear", warmup=10),
                            evaluation=Evaluation(every=20, problems=256))


SETTINGS = {"questions": preference_on_questions, "gsm8k": preference_on_gsm8k}


def count_judged(task: Task, pairs: Sequence[Pair], seed: int, count: int = 64) -> dict[str, int]:
    """Of the first pairs, those whose answers the task's own verifier scores apart, and those of them whose
    rejected answer it scores higher."""
    if task.verify is None or task.plays:
        return {}
    asked = {ask_of(p.messages): p for p in task.prompts("train", len(pairs), seed)}
    known = [(asked[ask], pair.replies) for pair in pairs[:count] if (ask := ask_of(pair.messages)) in asked]
    gaps = [gap for prompt, ((_, chosen), (_, rejected)) in known
            if (gap := task.verify(prompt, chosen).score - task.verify(prompt, rejected).score)]
    return {"judged": len(gaps), "judged_against": sum(gap < 0 for gap in gaps)}


def read_pair_sets(config: PairConfig, reader: RowReader) -> tuple[Sequence[Pair], Sequence[Pair]]:
    """The pairs to train on, and those of the evaluations."""
    return read_sets(config, reader, read_pairs, lambda pairs: pairs)


def read_sets(config: PairConfig, reader: RowReader, read: Callable[[Source, BadRows], Sequence[RowT]],
              from_pairs: Callable[[Sequence[Pair]], Sequence[RowT]]
              ) -> tuple[Sequence[RowT], Sequence[RowT]]:
    """The rows of `data` or a task to train on, and those of the evaluations, of eval_data or held out.
    from_pairs: of the pairs of a task."""
    share = config.held_out_share(config.pairs.holdout)
    if config.data is not None:
        train, held_out = split_rows(read(config.data, reader.bad), share)
    else:
        task, pairs = config.open_task(), config.pairs
        if task.preferences is None:
            raise ValueError(f"task {task.name} has no labelled pairs: give pairs of your own with "
                             "data=FILE.jsonl.")
        drawn = task.preferences("train", pairs.drawn, config.seed)
        reader.judged = count_judged(task, drawn, config.seed)
        train = from_pairs(drawn)
        held_out = from_pairs(task.preferences("test", pairs.held_out, config.seed))
    if config.eval_data is not None:
        held_out = read(config.eval_data, reader.evaluated.bad)
    return train, held_out


def split_pairs(pairs: Sequence[Pair]) -> list[Conversation]:
    """Both answers of each pair by themselves, labelled."""
    return [Conversation(id=f"{p.id}/{side}", label=side == "chosen",
                         messages=(*without_training(p.messages), *completion_messages(answer)),
                         tools=p.tools)
            for p in pairs for side, answer in (("chosen", p.chosen), ("rejected", p.rejected))]


def balance_kto(method: Preference, rows: Sequence[Row]) -> Preference:
    """KTO's weights, so that wanted and unwanted answers count alike whatever their number
    (its section 4.2)."""
    good = sum(isinstance(row, Conversation) and bool(row.label) for row in rows)
    bad = len(rows) - good
    return methods.change(method, wanted=max(1.0, bad / good), unwanted=max(1.0, good / bad))


def build(config: PreferenceConfig, source: ModelSource) -> TrainingSetup:
    method, reader = config.method, RowReader(config.pairs, config.data, config.eval_data)
    assert isinstance(method, Preference)
    rows: tuple[Sequence[Row], Sequence[Row]] = (
        read_sets(config, reader, read_singles, split_pairs) if method.source == "singles"
        else read_pair_sets(config, reader))
    policy, chat = open_policy(config, source)
    positions = config.pairs.limit(policy.config.max_position_embeddings)
    train = reader.fitting(rows[0], chat, positions)
    held_out = reader.evaluated.fitting(rows[1], chat, positions)
    if method.source == "singles" and {"wanted", "unwanted"} <= methods.constants_of(method).keys():
        method = balance_kto(method, train)
    models = Models(policy=policy,
                    reference=open_reference(config, source, policy) if method.needs_reference else None)
    evaluate, _ = policy_examiner(policy, chat, config)
    return pair_setup(config, method, models, chat, reader, train, held_out, evaluate)


def pair_setup(config: PairConfig, method: Preference, models: Models, chat: Chat, reader: RowReader,
               train: Sequence[Row], held_out: Sequence[Row],
               evaluate: Callable[[int], Figures] | None = None,
               measure: Callable[[Batch], Figures] = lambda batch: {}) -> TrainingSetup:
    """A training on pairs or singles that fit the model. evaluate: of the policy, where a task judges it.
    measure: further figures of the held-out batch."""
    source: type[SingleBatches] | type[PairBatches]
    source = SingleBatches if method.source == "singles" else PairBatches
    make: Callable[..., SingleBatches | PairBatches] = partial(
        source, chat=chat, method=method, models=models, seed=config.seed, truncate=config.pairs.cut,
        max_tokens=config.pairs.limit(models.policy.config.max_position_embeddings),
        tokens_per_pass=config.optim.at_once,
        device=config.device)
    length = config.length(len(train), config.pairs.per_step)
    batches = make(train, per_step=length.per_step, steps=length.steps,
                   virtual_ranks=current_virtual_ranks(config.optim.virtual_ranks, config.optim.divides))
    objective = objectives.build_objective(method)
    thinned = config.data is not None and config.eval_data is None
    evaluated = held_out[:: -(-len(held_out) // MAX_HELD_OUT) or 1] if thinned else held_out

    def figures(step: int) -> Figures:
        row: Figures = {}
        if evaluated:
            (batch,) = make(evaluated, per_step=len(evaluated), steps=1)
            row = pair_figures(objective, models, batch, config.optim.at_once) | measure(batch)
        return row | (evaluate(step) if evaluate else {})

    return TrainingSetup(
        models=models, chat=chat, batches=batches, objective=objective,
        notes=reader.notes(batches.limit) + data_notes(config, chain(train, held_out)),
        length=length.sentence(config.label or reader.name, batches.trained_tokens,
                               "answers" if method.source == "singles" else "pairs",
                               len(held_out) if thinned else 0),
        settings={"steps": length.steps, "pairs.per_step": length.per_step, "epochs": None},
        data=reader.counts(batches.limit) | length.facts(batches.trained_tokens) | data_counts(
            map(prompt_messages, train), map(prompt_messages, evaluated)),
        optim=Optim(models, config.optim, length.steps), evaluate=figures,
        evaluate_every=config.evaluation.every or 0 if held_out or evaluate else 0)


def data_notes(config: PairConfig, rows: Iterable[Row]) -> tuple[str, ...]:
    """A note on the repeats and contradictions of `data`."""
    if config.data is None:
        return ()
    report = preference_report(rows)
    odd = report["repeated"] or report["contradicted"]
    return (f"{source_name(config.data)}: {preference_sentence(report)}",) if odd else ()


def pair_figures(objective: Objective, models: Models, batch: Batch, tokens_per_pass: int) -> Figures:
    """Loss, accuracy (with its interval over prompts) and margin on held-out rows."""
    stats = evaluate_objective(objective, models, batch, tokens_per_pass)
    results = stats.results()
    starts = batch.mask.int().argmax(1).tolist()
    prompts = [tuple(batch.tokens[row, : starts[row]].tolist())
               for row in range(0, len(batch), batch.rows_per_unit)]
    _, low, high = grouped_interval(stats.of_units("accuracy"), prompts, (0.0, 1.0))
    return {"accuracy": results["accuracy"], "accuracy_interval": [low, high],
            "margin": results["chosen"] - results["rejected"], "loss": results["loss"]}
