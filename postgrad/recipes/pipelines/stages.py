"""A pipeline: named steps in one folder, each built on those before it.

Stage         a run by a recipe
Data          input of later steps: conversations to imitate, sampled or written by code; or a model that code
              derives from another
Measurement   figures of a model
In the settings of a step, {NAME} is the folder of the step NAME: model="{sft}", reward="{reward}",
data="{kept}/conversations.jsonl".

FOLDER/pipeline.json        the recipe, its config, and the steps in order
FOLDER/NAME/                a run; or data: conversations.jsonl or a model, and counts.json; with replies that
                            passed also rates.jsonl, the pass rate of each prompt
FOLDER/measured/NAME.json   figures
FOLDER/state.json           the seconds of every finished step
FOLDER/summary.json         written at the end
A resumed pipeline runs the steps that are left, to the same bits.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from postgrad.data.environments import sampler_for
from postgrad.data.tasks import Task, reflection
from postgrad.evaluation import evaluate_task
from postgrad.evaluation.progress import Progress
from postgrad.models.lora import Adapters
from postgrad.recipes import pick
from postgrad.recipes.base import TrainConfig
from postgrad.recipes.defaults import fill_defaults, reply_sampling
from postgrad.recipes.fit import config_value
from postgrad.recipes.registry import config_for, setting_hint
from postgrad.recipes.running import resume_saved, start_run
from postgrad.resolve.models import open_folder, open_writer, save_with_template
from postgrad.resolve.tasks import open_task
from postgrad.runs import Run, check_name
from postgrad.runs.display import Display, progress
from postgrad.runs.rows import JsonDict, read_json
from postgrad.runs.tracker import Tracker
from postgrad.sampling import LocalSampler
from postgrad.system.files import atomic_folder, write_text
from postgrad.system.options import PickConfig
from postgrad.system.renamed import renamed_argument, renamed_pipeline, translate_config
from postgrad.system.settings import Settings, replace_settings, settings_from_json, settings_to_json, suggest
from postgrad.system.signals import Stopped
from postgrad.system.user_code import is_record, record

CONVERSATIONS, RATES = "conversations.jsonl", "rates.jsonl"
COUNTS, MEASURED = "counts.json", "measured"
START = "start"
FILE, STATE, SUMMARY = "pipeline.json", "state.json", "summary.json"
FROM_PYTHON = "python"  # the recipe of a pipeline that was built in Python and has no name
FIGURES = ("pass@1", "reward", "format", "greedy", "mean_length")
NAMED = re.compile(r"\{([A-Za-z][^{}]*)\}")  # begins with a letter: \d{3} belongs to a regular expression
T = TypeVar("T")


def with_folders(value: T, folder: Path) -> T:
    """A value with {NAME} replaced by the step's folder: "{sft}" -> "runs/mine/sft"."""
    out: object = value
    if isinstance(value, str):
        out = NAMED.sub(lambda match: str(folder / match[1]), value)
    elif isinstance(value, Settings):
        out = replace(value, **{f.name: with_folders(getattr(value, f.name), folder) for f in fields(value)})
    elif isinstance(value, Mapping):
        out = {with_folders(key, folder): with_folders(inner, folder) for key, inner in value.items()}
    elif isinstance(value, list):
        out = [with_folders(x, folder) for x in value]
    return cast(T, out)


def step_names(value: object) -> Iterator[str]:
    """The steps that a value names, with repetitions."""
    if isinstance(value, str):
        yield from NAMED.findall(value)
    elif isinstance(value, Mapping):
        yield from step_names([*value.keys(), *value.values()])
    elif isinstance(value, list):
        yield from (name for x in value for name in step_names(x))
    elif isinstance(value, Settings):
        yield from step_names([getattr(value, f.name) for f in fields(value)])


class StageTrackers:
    """The trackers of each stage, and the progress of measurements.

    display: each stage has the terminal's display; intro is printed before the first.
    """

    def __init__(self, trackers: Sequence[Tracker] = (), display: bool = False, intro: str = ""):
        self.trackers, self.display, self.intro = trackers, display, intro if display else ""

    def print_intro(self) -> None:
        if self.intro:
            print(self.intro)
            self.intro = ""

    def of_stage(self, title: str, steps: int) -> Sequence[Tracker]:
        self.print_intro()
        return [*([Display(title, steps)] if self.display else []), *self.trackers]

    def progress(self, label: str) -> Progress:
        self.print_intro()
        return partial(progress, label=label) if self.display else iter


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A run by the config of a recipe. about: its title in the display."""

    kind: ClassVar[str] = "run"
    name: str
    config: TrainConfig
    about: str = ""

    @property
    def given(self) -> object:
        return self.config

    def done(self, folder: Path) -> bool:
        place = folder / self.name
        return (place / "run.json").exists() and Run.open(place).summary()["state"] == "done"

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> Run:
        """The stage's run: finished before, resumed or started."""
        place, title = folder / self.name, self.about or self.name
        if self.done(folder):
            return Run.open(place)
        if (place / "run.json").exists():
            run = Run.open(place)
            objects = {key: getattr(self.config, key) for key, old in run.config.items() if is_record(old)}
            resume_saved(run, trackers=stages.of_stage(title, run.info["steps"]), **objects)
        else:
            config, _ = fill_defaults(with_folders(self.config, folder))
            start_run(config, place, command=command, trackers=stages.of_stage(title, config.steps or 0))
        if not self.done(folder):
            raise Stopped(f"stage {self.name} was {Run.open(place).state()['error']}")
        return Run.open(place)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Conversations in a file, or a model in its folder.

    write(settings, file, track) -> counts of what it wrote.
    """

    kind: ClassVar[str] = "data"
    name: str
    given: Settings
    write: Callable[..., JsonDict]

    def done(self, folder: Path) -> bool:
        return (folder / self.name / COUNTS).exists()

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> JsonDict:
        if not self.done(folder):
            with atomic_folder(folder / self.name) as place:
                counts = self.write(with_folders(self.given, folder), place / CONVERSATIONS,
                                    stages.progress(self.name))
                write_text(place / COUNTS, json.dumps(counts, indent=1))
        return read_json(folder / self.name / COUNTS)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Figures of a model, or of several together.

    figures(model, track) -> JSON; with a list of models: figures(models, track).
    """

    kind: ClassVar[str] = "measured"
    name: str
    model: str | list[str]
    figures: Callable[..., JsonDict]

    @property
    def given(self) -> object:
        return self.model

    def path(self, folder: Path) -> Path:
        return folder / MEASURED / f"{self.name}.json"

    def done(self, folder: Path) -> bool:
        return self.path(folder).exists()

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> JsonDict:
        path = self.path(folder)
        if not path.exists():
            row = self.figures(with_folders(self.model, folder), stages.progress(f"measuring {self.name}"))
            path.parent.mkdir(exist_ok=True)
            write_text(path, json.dumps(row, indent=1))
        return read_json(path)


Step = Stage | Data | Measurement


@dataclass(frozen=True, kw_only=True)
class Done:
    """The results of the steps, by name: runs, counts of data, figures. seconds: of each step."""

    folder: Path
    command: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    data: dict[str, JsonDict] = field(default_factory=dict)
    measured: dict[str, JsonDict] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, step: Step, result: Run | JsonDict) -> None:
        if isinstance(result, Run):
            self.runs[step.name] = result
        else:
            (self.data if step.kind == "data" else self.measured)[step.name] = result

    @property
    def minutes(self) -> float:
        return sum(self.seconds.values()) / 60

    def run_minutes(self, name: str) -> float:
        """The minutes of the optimizer steps of a run; 0 where no stage has the name."""
        return sum(self.runs[name].curve("time/step")[1]) / 60 if name in self.runs else 0.0


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Steps in order.

    summarise(done) -> the summary; its "tables", {title: rows}, are printed. Default: a row for each
    measurement, with the method that trained the model.
    """

    name: str
    steps: tuple[Step, ...] | list[Step]
    summarise: Callable[[Done], JsonDict] | None = None

    def __post_init__(self) -> None:
        known: dict[str, set[str]] = {"run": set(), "data": set(), "measured": set()}
        for step in self.steps:
            if not check_name(step.name)[0].isalpha():
                raise ValueError(f"{step.name!r} cannot name a step: begin with a letter.")
            folders = known["run"] | known["data"]
            for name in step_names(step.given):
                if name not in folders:
                    hint = suggest(name, folders) if folders else " It is the first."
                    raise ValueError(f"step {step.name} is given {{{name}}}, and no step before it is called "
                                     f"so.{hint}")
            if step.name in (known["measured"] if step.kind == "measured" else {*folders, MEASURED}):
                raise ValueError(f"two steps are called {step.name!r}: give one of them another name.")
            known[step.kind].add(step.name)

    @renamed_argument("watch")
    def run(self, folder: str | Path, *, display: bool = False, trackers: Sequence[Tracker] = ()) -> JsonDict:
        """Runs the steps that are not done in the folder; -> the summary."""
        return run_pipeline(self, Path(folder), stages=StageTrackers(trackers, display))

    def stage_config(self, name: str) -> TrainConfig:
        """The config of a stage. name: of the stage, or of one of its settings, "rl.steps"."""
        stages = {step.name: step.config for step in self.steps if isinstance(step, Stage)}
        if name.partition(".")[0] not in stages:
            raise ValueError(f"{name!r} names no stage of {self.name}: write STAGE.KEY=VALUE."
                             f"{suggest(name.partition('.')[0], stages)}")
        return stages[name.partition(".")[0]]

    def changed(self, changes: Mapping[str, object]) -> Pipeline:
        """With other settings of its stages: {"rl.steps": 5}."""
        configs: dict[str, TrainConfig] = {}
        for change, value in changes.items():
            name, _, rest = change.partition(".")
            config = configs.get(name) or self.stage_config(change)
            configs[name] = replace_settings(config, {rest: value}, setting_hint)
        return replace(self, steps=tuple(
            replace(step, config=configs.get(step.name, step.config)) if isinstance(step, Stage) else step
            for step in self.steps))

    def described(self) -> list[JsonDict]:
        """The steps as JSON: kind, name, the steps it needs, settings."""
        return [{"kind": step.kind, "name": step.name, "needs": [*dict.fromkeys(step_names(step.given))],
                 "settings": settings_to_json(step.given, record) if isinstance(step.given, Settings)
                             else {"model": step.given}} for step in self.steps]


    def from_template(self, config: Settings, model: str) -> Pipeline:
        """The pipeline with a first step, `start`: a copy of its model with config's template, which every
        step has in place of the model."""
        start = f"{{{START}}}"

        def started(step: Step) -> Step:
            if isinstance(step, Stage) and getattr(step.config, "model", None) == model:
                return replace(step, config=replace_settings(step.config, {"model": start}, setting_hint))
            if isinstance(step, Measurement) and step.model == model:
                return replace(step, model=start)
            return step

        begin = Data(name=START, given=config, write=write_start)
        return replace(self, steps=(begin, *map(started, self.steps)))


def write_start(config: Any, out: Path, track: Progress) -> JsonDict:
    save_with_template(open_folder(config.model), config.template, out.parent, Adapters())
    return {"model": config.model, "template": config.template}


# running a pipeline

def run_pipeline(pipeline: Pipeline, folder: Path, *, stages: StageTrackers | None = None, command: str = "",
                 recipe: str = FROM_PYTHON, config: Settings | None = None) -> JsonDict:
    """Runs the steps that are not done in the folder; -> the summary.

    recipe, config: saved, so that `postgrad resume` can build the pipeline again.
    """
    stages = stages or StageTrackers()
    save_plan(pipeline, folder, recipe, config, command)
    remove_partial_steps(folder)
    state = folder / STATE
    done = Done(folder=folder, command=command, seconds=read_json(state)["seconds"] if state.exists() else {})
    for step in pipeline.steps:
        began, was_done = time.perf_counter(), step.done(folder)
        done.add(step, step.run_step(folder, stages, command))
        if not was_done:
            done.seconds[f"{step.kind} {step.name}"] = time.perf_counter() - began
            write_text(state, json.dumps({"seconds": done.seconds}, indent=1))
    summary = {"recipe": pipeline.name, "command": command, "minutes": done.minutes,
               **(pipeline.summarise or default_summary)(done)}
    write_text(folder / SUMMARY, json.dumps(summary, indent=1))
    return summary


def save_plan(pipeline: Pipeline, folder: Path, recipe: str, config: Settings | None, command: str) -> None:
    """Writes pipeline.json once; refuses a folder with another pipeline."""
    plan = {"recipe": recipe, "name": pipeline.name, "config": settings_to_json(config) if config else {},
            "command": command, "steps": pipeline.described()}
    path = folder / FILE
    if path.exists():
        began, now = saved_plan(path), json.loads(json.dumps(plan))
        if began.get("recipe") != now["recipe"] or (config and began.get("config") != now["config"] and (
                settings_to_json(settings_from_json(type(config), began["config"])) != now["config"])):
            raise ValueError(f"{folder} holds a pipeline with other settings: choose another folder with "
                             f"--run, or go on with `postgrad resume {folder}`.")
        if (recipe in (FROM_PYTHON, "own") or recipe.endswith(".py")) and began.get("steps") != now["steps"]:
            raise ValueError(f"{folder} holds a pipeline with other steps: put back those it began with, or "
                             "choose another folder.")
        return
    if folder.exists() and any(not place.name.startswith(".") for place in folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder with --run.")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(plan, indent=1))


def saved_plan(path: Path) -> JsonDict:
    """pipeline.json, with the settings and labs of version 0.1 under their present names."""
    plan = read_json(path)
    plan["recipe"] = renamed_pipeline(str(plan.get("recipe"))) or plan.get("recipe")
    if isinstance(config := plan.get("config"), dict):
        plan["config"] = translate_config(config)
    for step in plan["steps"] if isinstance(plan.get("steps"), list) else ():
        if isinstance(step, dict) and isinstance(step.get("settings"), dict):
            step["settings"] = translate_config(step["settings"])
    return plan


def remove_partial_steps(folder: Path) -> None:
    """Removes the hidden temporary files and folders of a killed process."""
    for place in (*folder.glob(".*"), *folder.glob(f"{MEASURED}/.*")):
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def is_unfinished(config: Settings, folder: Path) -> bool:
    """Whether the folder has a pipeline with this config and no summary."""
    path = folder / FILE
    begun = path.exists() and saved_plan(path).get("config") == settings_to_json(config)
    return begun and not (folder / SUMMARY).exists()


def default_summary(done: Done) -> JsonDict:
    """A row for each measurement: its figures, and the method that trained the model."""
    rows = [{"model": name, "made by": done.runs[name].info.get("method") if name in done.runs else "",
             **with_intervals(figures, FIGURES), "minutes": done.run_minutes(name)}
            for name, figures in done.measured.items()]
    return {"data": done.data, "measured": done.measured, "tables": {"What was measured": rows}}


def with_intervals(figures: JsonDict, names: Sequence[str]) -> JsonDict:
    """The named figures that were measured, each followed by its interval."""
    return {key: figures[key] for name in names for key in (name, f"{name}_interval")
            if figures.get(key) is not None}


# steps by name, as on the command line

def stage(name: str, spec: str, *, about: str = "", **settings: object) -> Stage:
    """stage("rl", "grpo:words", model="{sft}", steps=20): as `postgrad train grpo:words ...`. task, data and
    reward may be objects, as in `postgrad.fit`."""
    objects = {key: config_value(key, settings.pop(key)) for key in ("task", "data", "reward")
               if key in settings}
    config = config_for(spec, settings | objects)[1]
    if not isinstance(config, TrainConfig):
        raise ValueError(f"step {name} is {spec}, which is several runs: give them one by one.")
    return Stage(name=name, config=config, about=about)


def keep(name: str, **settings: object) -> Data:
    """keep("kept", model="{rl}", task="words", keep="passing"): replies of a model to a task's training
    prompts, as `postgrad pick` keeps them."""
    return Data(name=name, given=PickConfig(**cast(JsonDict, settings)), write=write_picked)


def write_picked(config: PickConfig, out: Path, track: Progress) -> JsonDict:
    """Writes the replies, and where only passing ones are kept the pass rates of their prompts, for
    difficulty.rates of a later stage."""
    rates = out.with_name(RATES) if config.keep == "passing" else None
    counts = pick.pick_replies(config, out, rates=rates, track=track)
    return {key: value for key, value in counts.items() if key != "out"}


def measure(name: str, model: str, task: Task | str, **settings: object) -> Measurement:
    """measure("rl", "{rl}", "words", problems=100): the model on a task's held-out problems."""
    return Measurement(name=name, model=model, figures=partial(evaluate_named_model, task,
                                                             **cast(JsonDict, settings)))


def evaluate_named_model(task: Task | str, model: str, track: Progress, *, problems: int = 100,
                         samples: int = 8, split: str = "test", seed: int = 0, greedy: bool = False,
                         max_new_tokens: int | None = None, device: str = "cpu",
                         template: str | None = None) -> JsonDict:
    """The figures of `evaluate` on held-out problems, and the measures of how replies reason."""
    opened = open_task(task)
    policy, chat = open_writer(model, device, template)
    settings = reply_sampling(opened, policy, max_new_tokens)
    sampler = sampler_for(opened, LocalSampler(policy, chat))
    return evaluate_task(opened, sampler, opened.prompts(split, problems, seed), samples=samples,
                         greedy=greedy, settings=settings, seed=seed, track=track,
                         measures=reflection.measures(opened, chat.places))
