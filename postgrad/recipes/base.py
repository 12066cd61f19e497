"""What every recipe shares: the settings of all runs, the parts of a training, and its evaluations."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from postgrad import methods
from postgrad.data.environments import Player, sampler_for
from postgrad.data.rows import BadRows
from postgrad.data.tasks import Task
from postgrad.data.tasks.base import HOLDOUT
from postgrad.data.tasks.games import prove_play
from postgrad.evaluation import evaluate_task
from postgrad.evaluation.evaluate import Figures, Measure
from postgrad.maths.noise import seed_of
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.recipes.registry import recipe_for
from postgrad.records import Message, Prompt, Reward
from postgrad.resolve.models import Model, ModelSource
from postgrad.resolve.tasks import SplitRows, open_task, task_label
from postgrad.rewards.base import check_verifier
from postgrad.sampling import LocalSampler, Sampling
from postgrad.sampling.sampler import DecodableModel
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Settings, setting
from postgrad.training.loop import BatchSource, Objective, StepInfo
from postgrad.training.optim import Optim, OptimSettings


@dataclass(frozen=True, kw_only=True)
class Evaluation(Settings):
    """How often a run is evaluated on held-out problems, and how thoroughly."""

    every: int | None = setting(0, "steps between two evaluations; 0: no evaluation; none, of recipes that "
                                "sample: the updates of ten collections",
                                "often enough to see where a curve turns; each one costs problems x samples "
                                "replies", within=NOT_NEGATIVE)
    problems: int = setting(64, "held-out problems of an evaluation", "more: a narrower interval, by the "
                            "root of their number; 256 leave about 5 points either way", within=COUNT)
    samples: int = setting(4, "samples of each problem",
                           "8 or more to read pass@8; more problems narrow the interval faster", within=COUNT)
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; none: as in the rollouts, else "
                                         "as the task says, else by the model's size",
                                         "more where `finished` is below 1: replies are cut", within=COUNT)
    split: str = setting("validation", "the split of the task: train, validation or test",
                         "test for the last figure alone; train to see whether a model has memorised it")

    holdout_prompts: float | None = setting(
        None, "the share of the prompts of a file or of rows that is held out, by a hash, half as validation "
        "and half as test; none: 0.1 where the run is evaluated on them, else 0",
        "more for a narrower interval; 0 to train on every prompt; tasks with splits of their own keep them",
        within=SHARE)
    metric: str | None = setting(
        None, "the figure of an evaluation that decides which checkpoint is the best, and early stopping: "
        "loss, ece and kl_reply by the lowest, any other by the highest; none: pass@1, accuracy, reward or "
        "loss, the first that there is", "where an evaluation has several, as pass@1 of a task and the loss "
        "of rows")
    patience: int = setting(0, "evaluations in a row without a better one after which the run ends, with a "
                            "checkpoint; each better one is saved; 0: it goes on to its last step",
                            "2 or 3 where a run may overfit; more where the figure is noisy",
                            within=NOT_NEGATIVE)
    panel: str | None = setting(None, "further tasks that every evaluation measures, for `postgrad ledger`: "
                                "standard, or names with commas between",
                                "to see during training what a run loses elsewhere; it costs problems x "
                                "samples replies of each task")

    prefix: ClassVar[str] = "evaluation."

    def held_out(self, task: Task, other: bool = False) -> Task:
        """The task with what a run holds out of it. other: another is evaluated."""
        share = HOLDOUT if self.every != 0 and not other else 0.0
        return task.with_holdout(share if self.holdout_prompts is None else self.holdout_prompts)

    def asked(self, task: Task, seed: int) -> list[Prompt]:
        """The problems of a run's evaluations, the same at each."""
        return task.prompts(self.split, self.problems, seed_of(seed, "evaluation") % 2**31)


# settings of several recipes: about, when, range
MODEL = ("the model to start from: a name, a folder, a hub id, a run, RUN@best or RUN@STEP",
         "to train a model of your own; a run continues from the model that run trained")
METHOD = ("the row of the table, its name or FILE.py", "to train by another algorithm; `postgrad methods` "
          "lists them, and method.NAME=VALUE sets a constant of the row")
STEPS = ("optimizer steps", "more while the held-out figures still rise; fewer where they have begun to fall",
         COUNT)
SAVE = ("steps between two checkpoints",
        "less where a stop would cost much time; more where the disk is small", COUNT)
SEED = ("of everything random in the run",
        "three seeds or more before believing a difference between two runs")
DEVICE = ("where it is computed: cpu, cuda, or cuda:1 for the second GPU",
          "cuda for every model that is not embedded")
TASK = ("the task: a name, a file, or in Python a Task or rows",
        "to train on prompts of your own: mytask.py, questions.jsonl, VERIFIER:FILE.jsonl")
EVAL_TASK = ("the task that evaluations ask the model: a name, a file (all of its prompts), or in Python a "
             "Task or rows; none: the task of the run, where it has one",
             "to follow pass@1 at what the training is for; each evaluation costs evaluation.problems x "
             "evaluation.samples replies")


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """What a run reads besides its model: if one of them changes, a resumed run would differ."""

    task: Task | str | SplitRows | Sequence[object] | None = None
    data: str | Sequence[object] | None = None
    eval_task: Task | str | Sequence[object] | None = None
    eval_data: str | Sequence[object] | None = None
    reward: object = None
    teacher: Model | str | None = None
    method_file: str | None = None
    agent_files: tuple[str, ...] = ()
    rates: str | None = None


class TrainConfig(Settings):
    """What the config of every run has. (No dataclass of its own: the fields are the recipes'.)"""

    recipe: ClassVar[str]
    steps: int | None
    optim: OptimSettings
    save_every: int | None
    keep: int | str = 2
    save_optimizer: bool = True
    on_trouble: str = "warn"
    seed: int
    device: str

    @property
    def kept_checkpoints(self) -> float:
        """The newest checkpoints that stay, besides the best one; inf: all."""
        named: dict[int | str, float] = {"all": math.inf, "best": 1}
        return named.get(self.keep, 0) or float(self.keep)

    @property
    def last_step(self) -> int:
        """`steps`, of a config whose model-dependent defaults are filled in."""
        assert self.steps is not None, "fill_defaults comes first"
        return self.steps

    @property
    def source_model(self) -> str | None:
        """The model to start from; None for a recipe that makes its own (pretraining)."""
        return None

    @property
    def inputs(self) -> RunInputs:
        return RunInputs()

    def facts(self) -> dict[str, object]:
        """What run.json says of the config."""
        return {}


class ModelDefaults(Settings):
    """A config with defaults that depend on its model (recipes/defaults.py).

    reply_group: the group of settings with the most tokens of a reply, where there is one.
    rate_law: (learning rate at 2M parameters, exponent of the size); None: the recipe's.
    """

    recipe: ClassVar[str]
    reply_group: ClassVar[str] = ""
    rate_law: ClassVar[tuple[float, float] | None] = None
    model: str
    optim: OptimSettings
    device: str

    @property
    def reply_limit(self) -> int | None:
        """The most tokens of a reply that the config names."""
        return None


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainConfig, ModelDefaults):
    """The settings that all recipes have. Every recipe gives `method`, `steps` and `optim` its own values.

    recipe: the name of the recipe; the methods it trains follow from what they learn from (`recipe_for`).
    """

    recipe: ClassVar[str]
    task: Task | str | SplitRows | Sequence[object] | None = setting(None, *TASK)
    model: str = setting("tiny-chat", *MODEL)
    template: str | None = setting(None, *TEMPLATE)
    method: Method = setting(MISSING, *METHOD, resolve=methods.method_from_config)
    steps: int | None = setting(MISSING, *STEPS)
    optim: OptimSettings = setting(about="the optimizer")
    evaluation: Evaluation = setting(group=Evaluation)
    save_every: int | None = setting(20, *SAVE)
    keep: int | str = setting(2, "checkpoints that stay: N newest ones and the best one, all, or best (the "
                              "newest and the best, which is saved whenever an evaluation finds one)",
                              "all to look at a run's course; best where the disk is small, or the best "
                              "model is what counts")
    save_optimizer: bool = setting(True, "checkpoints hold the state of the optimizer and of all else that a "
                                   "resume needs; false: the weights alone", "false where the disk is small: "
                                   "about a third of the bytes; such a run cannot be resumed")
    on_trouble: str = setting("warn", "where a run runs away (docs/doctor.md): warn, stop (with a "
                              "checkpoint), or halve_rate (back to the last good checkpoint, and on at half "
                              "the rate)",
                              "halve_rate for a run that nobody watches; stop where time is dear",
                              choices=("warn", "stop", "halve_rate"))
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)

    @property
    def row(self) -> Method:
        """The method that is trained, with the constants that other settings name."""
        return self.method

    @property
    def source_model(self) -> str | None:
        return self.model

    @property
    def inputs(self) -> RunInputs:
        return RunInputs(task=self.task, method_file=self.method.file)

    def facts(self) -> dict[str, object]:
        return {"model": task_label(self.model), "task": None if self.task is None else task_label(self.task),
                "method": self.method.name, "row": methods.describe_row(self.row)}

    @property
    def skips_bad(self) -> bool:
        """Whether bad rows of a task's file are left out."""
        return False

    def open_task(self) -> Task:
        assert self.task is not None
        return self.evaluation.held_out(open_task(self.task, bad=BadRows.of_run(self.skips_bad)))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep not in ("all", "best") and (isinstance(self.keep, str) or self.keep < 1):
            raise ValueError(f"keep={self.keep}: expected a number of checkpoints of 1 or more, all or best.")
        if self.on_trouble == "halve_rate":
            self.check_going_back()
        if recipe_for(self.method) != self.recipe:
            raise ValueError(f"method {self.method.name!r} is not trained by this recipe: it learns from "
                             f"{self.method.source}, write `postgrad train {self.method.name}`.")

    def check_going_back(self) -> None:
        if not self.save_optimizer:
            raise ValueError("on_trouble=halve_rate goes back to a checkpoint, and save_optimizer=false "
                             "saves none to go back to: leave one of them out.")


@dataclass(frozen=True, kw_only=True)
class DataConfig(RunConfig):
    """The config of a recipe that learns from the data of a task, or from rows of the user's."""

    data: str | Sequence[object] | None = None
    eval_data: str | Sequence[object] | None = setting(
        None, "rows of the evaluations, all of them, in the forms of data: a file, or in Python rows or a "
        "table; nothing is then held out of data", "where the rows to examine are set apart already")
    steps: int | None = setting(None, "optimizer steps; none: by epochs", STEPS[1], COUNT)
    epochs: float | None = setting(None, "passes over the rows, instead of steps; with neither named, `data` "
                                   "is passed over three times by sft and once by the others, in at least 20 "
                                   "steps", "to name the length by the size of the data; a step then never "
                                   "holds a row twice", within=POSITIVE)
    save_every: int = setting(20, *SAVE)

    # TRL passes over the data three times in all its trainers. Preferences are overfitted in the second pass:
    # InstructGPT (arXiv:2203.02155) and Llama 2 (arXiv:2307.09288) train their reward models for one.
    default_epochs: ClassVar[int] = 1
    task_steps: ClassVar[int] = 120

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, data=self.data, eval_data=self.eval_data)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.task is None) == (self.data is None):
            raise ValueError(f"{self.method.name} needs either task=NAME (its own data) or data=FILE.jsonl "
                             "(yours), not both.")
        if self.steps is not None and self.epochs is not None:
            raise ValueError(f"steps={self.steps} and epochs={self.epochs:g} are two lengths of one run: "
                             "name one of them.")

    def held_out_share(self, named: float | None) -> float:
        """The share of the prompts in `data` that is held out. named: the setting."""
        if self.eval_data is None:
            return HOLDOUT if named is None else named
        if named:
            raise ValueError(f"holdout={named:g} and eval_data are two sets of rows to evaluate: name one of "
                             "them.")
        return 0.0

    @property
    def label(self) -> str:
        """The task's name; "" where rows are given."""
        return "" if self.task is None else task_label(self.task)

    def length(self, rows: int, per_step: int) -> Length:
        """The length of a training on so many rows, `per_step` in a step."""
        if self.steps is not None or self.data is None and self.epochs is None:
            return Length(self.steps or self.task_steps, per_step, rows)
        per_step = max(1, min(per_step, rows))
        steps = math.ceil(round((self.epochs or self.default_epochs) * rows / per_step, 6))
        return Length(max(steps, 1 if self.epochs else FEWEST_STEPS), per_step, rows)


FEWEST_STEPS = 20  # by default, however few the rows are: fewer updates hardly move a model


class Length(NamedTuple):
    """The length of a training on rows."""

    steps: int
    per_step: int
    rows: int

    @property
    def passes(self) -> float:
        return self.steps * self.per_step / max(1, self.rows)

    def sentence(self, name: str, tokens: int, unit: str = "rows", held_out: int = 0) -> str:
        """tokens: the trained ones of all rows. held_out: further rows of the same data."""
        steps = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        passes = "1 pass" if (count := f"{self.passes:.3g}") == "1" else f"{count} passes"
        further = f"; {held_out:,} more are held out for evaluations (holdout)" if held_out else ""
        return (f"{name}: {self.rows:,} {unit} with {tokens:,} trained tokens; {steps} of {self.per_step}, "
                f"{passes} over them{further}")

    def facts(self, tokens: int) -> dict[str, object]:
        """What run.json says of it."""
        return {"rows": self.rows, "trained_tokens": tokens, "passes": round(self.passes, 3)}


def refuse_adapter(optim: OptimSettings) -> None:
    """Of a recipe that trains all weights."""
    if optim.adapter.lora:
        raise ValueError("this recipe trains all weights: leave lora out.")


class Probes(NamedTuple):
    """What the look before the first step asks and judges with (recipes/look.py). positions: of the model."""

    prompts: Sequence[Prompt]
    sampler: LocalSampler | Player
    reward: Reward
    task: Task
    positions: int


@dataclass
class TrainingSetup:
    """Everything that `train` needs, and how the policy is evaluated.

    evaluate(step) -> figures; None where this recipe evaluates nothing.
    notes: on the data; saved as events. data: its counts (`data_counts`); saved in run.json.
    length: a sentence on rows, tokens, passes and steps. settings: those that the size of the data decides.
    hooks: called after each step, before it is evaluated and saved.
    panel(folder, step): adds an entry to the ledger at each evaluation.
    probes: of a recipe that samples; None where nobody can be asked before the run (an agent plays).
    """

    models: Models
    chat: Chat
    batches: BatchSource
    objective: Objective
    optim: Optim
    evaluate: Callable[[int], Figures] | None = None
    evaluate_every: int = 0
    source: ModelSource | None = None
    notes: tuple[str, ...] = ()
    length: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    hooks: tuple[Callable[[StepInfo], None], ...] = ()
    panel: Callable[[Path, int], None] | None = None
    probes: Probes | None = None


def check_task(task: Task, split: str = "train", count: int = 8) -> None:
    """Before any training: the verifier pays its own gold, and not garbage."""
    if task.play is not None:
        prove_play(task, task.prompts(split, count, 0))
    elif task.gold is not None and task.verify is not None:
        check_verifier(task.verify, [(p, task.gold(p)) for p in task.prompts(split, count, 0)],
                       best=task.best)


def prompts_that_fit(sampler: LocalSampler | Player, prompts: list[Prompt], settings: Sampling,
                     truncate: str) -> list[Prompt]:
    """The prompts that fit the model with their replies. truncate: refuse, where one does not, or drop."""
    fitting = [p for p in prompts if sampler.fits(p, settings)] if truncate == "drop" else []
    if not fitting:
        sampler.check(prompts, settings)
    return fitting or prompts


LOGGED_PROBLEMS = 4  # held-out problems whose replies are logged at every evaluation


def policy_evaluator(model: DecodableModel, chat: Chat, task: Task, config: RunConfig,
                     max_new_tokens: int = 64, *, reward: Reward | None = None, truncate: str = "refuse",
                     turns: int | None = None,
                     measures: Mapping[str, Measure] = MappingProxyType({})) -> Callable[[int], Figures]:
    """Evaluates the same held-out problems at every step, with new samples.

    reward: where the task has no verifier. truncate: as in `prompts_that_fit`. turns: the most replies of an
    episode. measures: as in `evaluate_task`.
    """
    how, seed = config.evaluation, config.seed
    sampler = sampler_for(task, LocalSampler(model, chat), turns)
    settings = Sampling(max_new_tokens=how.max_new_tokens or max_new_tokens)
    prompts = prompts_that_fit(sampler, how.asked(task, seed), settings, truncate)
    return lambda step: evaluate_task(task, sampler, prompts, samples=how.samples, settings=settings,
                                      seed=seed_of(seed, "evaluation", step), greedy=False, reward=reward,
                                      measures=measures, kept=LOGGED_PROBLEMS)


def policy_examiner(model: DecodableModel, chat: Chat,
                    config: RunConfig) -> tuple[Callable[[int], Figures] | None, list[Prompt]]:
    """The evaluation of the policy on eval_task, else on the run's own task where evaluation.every is set;
    and its problems."""
    other = config.inputs.eval_task
    if other is None and (config.task is None or not config.evaluation.every):
        return None, []
    task = config.open_task() if other is None else open_task(other).with_holdout(0.0)
    check_task(task, config.evaluation.split)
    return policy_evaluator(model, chat, task, config), config.evaluation.asked(task, config.seed)


def data_counts(train: Iterable[Sequence[Message]],
                evaluated: Iterable[Sequence[Message]] = ()) -> dict[str, int]:
    """Prompts of training and of evaluations, counted by their text: those of training, how many of them
    repeat another, those that are evaluated, and how many of these are trained on too.

    {"prompts": 2000, "repeated": 0, "evaluated": 64, "leaked": 0}
    """
    texts, held_out = (array("q", (
        hash(" ".join(word for m in messages for word in f"{m['role']}: {m['content']}".split()))
        for messages in prompts)) for prompts in (train, evaluated))
    distinct = set(texts)
    return {"prompts": len(texts), "repeated": len(texts) - len(distinct), "evaluated": len(held_out),
            "leaked": sum(text in distinct for text in held_out)}
