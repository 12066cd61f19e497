"""What every recipe shares: the settings that all runs have, what a run is made of, and its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import ClassVar

from postgrad import methods
from postgrad.data.environments import sampler_for
from postgrad.data.tasks import Task
from postgrad.data.tasks.games import prove_play
from postgrad.evaluation import evaluate_task
from postgrad.maths.noise import seed_of
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.recipes.registry import recipe_for
from postgrad.records import Prompt, Reward
from postgrad.resolve.models import Model, ModelSource
from postgrad.resolve.tasks import task_label
from postgrad.rewards.base import check_verifier
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import COUNT, NOT_NEGATIVE, Settings, setting
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
    split: str = setting("validation", "the part of the task that is asked: train, validation or test",
                         "test for the last figure alone; train to see whether a model has learned by heart")

    panel: str | None = setting(None, "further tasks that every evaluation measures, for `postgrad ledger`: "
                                "standard, or names with commas between",
                                "to see while it is trained what a run loses elsewhere; it costs problems x "
                                "samples replies of each task")

    prefix: ClassVar[str] = "evaluation."

    def asked(self, task: Task, seed: int) -> list[Prompt]:
        """The problems of a run's evaluations, the same at each."""
        return task.prompts(self.split, self.problems, seed_of(seed, "evaluation") % 2**31)


# what several recipes say of a setting: about, and when to change it
MODEL = ("the model to start from: a name, a folder, a hub id, a run or RUN@STEP",
         "to train a model of your own; a run goes on from what that run made")
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


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """What a run reads besides its model: if one of them changes, going on would not be the same run."""

    task: object = None
    data: object = None
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
    seed: int
    device: str

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
    """A config whose open settings are filled in by the size of its model (recipes/defaults.py).

    reply_group: the group of settings with the limit of a reply, where there is one.
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
    """The settings that all recipes have. Every recipe gives `method`, `steps` and `optim` values of its own.

    recipe: the name of the recipe; which methods it trains follows from what they learn from (`recipe_for`).
    """

    recipe: ClassVar[str]
    task: Task | str | Sequence | None = setting(None, *TASK)
    model: str = setting("tiny-chat", *MODEL)
    method: Method = setting(MISSING, *METHOD, resolve=methods.method_from_config)
    steps: int = setting(MISSING, *STEPS)
    optim: OptimSettings = setting(about="the optimizer")
    evaluation: Evaluation = setting(group=Evaluation)
    save_every: int = setting(20, *SAVE)
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

    def __post_init__(self):
        super().__post_init__()
        if recipe_for(self.method) != self.recipe:
            raise ValueError(f"method {self.method.name!r} is not trained by this recipe: it learns from "
                             f"{self.method.source}, write `postgrad train {self.method.name}`.")


def refuse_adapter(config) -> None:
    """Of a recipe that trains all weights."""
    if config.optim.adapter.lora:
        raise ValueError("this recipe trains all weights: leave lora out.")


def check_one_source(config) -> None:
    if (config.task is None) == (config.data is None):
        raise ValueError(f"{config.method.name} needs either task=NAME (its own data) or data=FILE.jsonl "
                         "(yours), not both.")


@dataclass
class TrainingSetup:
    """Everything that `train` needs, and how the policy is evaluated.

    evaluate(step) -> figures; None where this recipe evaluates nothing.
    notes: on the data; saved as events. data: its counts (recipes/data_counts.py); saved in run.json.
    hooks: called after each step, before it is evaluated and saved.
    panel(folder, step): adds an entry to the ledger at each evaluation.
    """

    models: Models
    chat: Chat
    batches: BatchSource
    objective: Objective
    optim: Optim
    evaluate: Callable[[int], dict] | None = None
    evaluate_every: int = 0
    source: ModelSource | None = None
    notes: tuple[str, ...] = ()
    data: Mapping[str, int] = field(default_factory=dict)
    hooks: tuple[Callable[[StepInfo], None], ...] = ()
    panel: Callable[[Path, int], None] | None = None


def check_task(task: Task, split: str = "train", count: int = 8) -> None:
    """The verifier pays its own gold and not garbage; before any training."""
    if task.gold is not None and task.verify is not None and task.play is None:
        check_verifier(task.verify, [(p, task.gold(p)) for p in task.prompts(split, count, 0)],
                       best=task.best)
    elif task.play is not None:
        prove_play(task, task.prompts(split, count, 0))


def prompts_that_fit(sampler: LocalSampler, prompts: list[Prompt], settings: Sampling,
                     truncate: str) -> list[Prompt]:
    """The prompts that fit the model with their replies. truncate: refuse, where one does not, or drop."""
    kept = [p for p in prompts if sampler.fits(p, settings)] if truncate == "drop" else []
    if not kept:
        sampler.check(prompts, settings)
    return kept or prompts


FOLLOWED = 4  # held-out problems whose replies are logged at every evaluation


def policy_evaluator(model, chat: Chat, task: Task, evaluation: Evaluation, seed: int,
                     max_new_tokens: int = 64,
             reward: Reward | None = None, truncate: str = "refuse", turns: int | None = None,
             **measures) -> Callable[[int], dict]:
    """The same held-out problems at every evaluation, with samples drawn anew. judge:
    where the task has no verifier. truncate: as in `fitting`. turns: the most replies of an episode.
    measures: as `evaluate` takes them. The replies to the first problems are in the row."""
    prompts = evaluation.asked(task, seed)
    sampler = sampler_for(task, LocalSampler(model, chat), turns)
    settings = Sampling(max_new_tokens=evaluation.max_new_tokens or max_new_tokens)
    prompts = prompts_that_fit(sampler, prompts, settings, truncate)
    return lambda step: evaluate_task(task, sampler, prompts, samples=evaluation.samples, settings=settings,
                                 seed=seed_of(seed, "evaluation", step), greedy=False, reward=reward,
                                 measures=measures, kept=FOLLOWED)
