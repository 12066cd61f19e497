"""A pipeline: named steps, each built on those before it, in one folder.

Stage         a run by a recipe
Data          what later steps are given: conversations to imitate, of a model or made by code; or a model
              that code made of another
Measurement   figures of a model
In whatever a step is given, {NAME} is the folder of the step NAME: model="{sft}", reward="{reward}",
data="{kept}/conversations.jsonl".

FOLDER/pipeline.json        what was started, and the steps in order
FOLDER/NAME/                a run; or data, conversations.jsonl or a model, and counts.json; of replies that
                            passed also rates.jsonl, how often each prompt was solved
FOLDER/measured/NAME.json   figures
FOLDER/state.json           the seconds of every step that is done
FOLDER/summary.json         written at the end
What is done stays done: going on does only what is left, to the same bits.
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
from typing import ClassVar

from postgrad.data.environments import sampler_for
from postgrad.data.tasks import reflection
from postgrad.evaluation import evaluate_task
from postgrad.evaluation.progress import Progress
from postgrad.recipes import pick
from postgrad.recipes.base import RunConfig
from postgrad.recipes.defaults import fill_defaults, reply_sampling
from postgrad.recipes.fit import config_value
from postgrad.recipes.registry import config_for, setting_hint
from postgrad.recipes.running import resume_saved, start_run
from postgrad.resolve.models import open_writer
from postgrad.resolve.tasks import open_task
from postgrad.runs import Run, check_name
from postgrad.runs.display import Display, progress
from postgrad.runs.rows import read_json
from postgrad.runs.tracker import Tracker
from postgrad.sampling import LocalSampler
from postgrad.system.files import atomic_folder, load_json, write_text
from postgrad.system.options import PickConfig
from postgrad.system.renamed import renamed_argument, renamed_pipeline, translate_config
from postgrad.system.settings import Settings, replace_settings, settings_to_json, suggest
from postgrad.system.user_code import is_record, record

CONVERSATIONS, RATES = "conversations.jsonl", "rates.jsonl"
COUNTS, MEASURED = "counts.json", "measured"
FILE, STATE, SUMMARY = "pipeline.json", "state.json", "summary.json"
FROM_PYTHON = "python"  # the recipe of a pipeline that has no name to find it by
FIGURES = ("pass@1", "reward", "format", "greedy", "mean_length")
NAMED = re.compile(r"\{([A-Za-z][^{}]*)\}")  # begins with a letter: \d{3} is a pattern's own


def with_folders(value, folder: Path):
    """A value with the folders of the steps that it names: "{sft}" -> "runs/mine/sft"."""
    if isinstance(value, str):
        return NAMED.sub(lambda found: str(folder / found[1]), value)
    if isinstance(value, Settings):
        return replace(value, **{f.name: with_folders(getattr(value, f.name), folder) for f in fields(value)})
    if isinstance(value, Mapping):
        return {with_folders(key, folder): with_folders(inner, folder) for key, inner in value.items()}
    return [with_folders(x, folder) for x in value] if isinstance(value, list) else value


def step_names(value) -> Iterator[str]:
    """The steps that a value names, as often as it does."""
    if isinstance(value, str):
        yield from NAMED.findall(value)
    elif isinstance(value, Mapping):
        yield from step_names([*value.keys(), *value.values()])
    elif isinstance(value, list):
        yield from (name for x in value for name in step_names(x))
    elif isinstance(value, Settings):
        yield from step_names([getattr(value, f.name) for f in fields(value)])


class StageTrackers:
    """The trackers of each stage of a pipeline, and how its measurements show their progress.

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
    """One run of a pipeline, by a config of its recipe. about: what it does, for whoever looks on."""

    kind: ClassVar[str] = "run"
    name: str
    config: RunConfig
    about: str = ""

    @property
    def given(self) -> object:
        return self.config

    def done(self, folder: Path) -> bool:
        place = folder / self.name
        return (place / "run.json").exists() and Run.open(place).summary()["state"] == "done"

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> Run:
        """The stage's run: started, gone on with, or found done."""
        place, title = folder / self.name, self.about or self.name
        if self.done(folder):
            return Run.open(place)
        if (place / "run.json").exists():
            run = Run.open(place)
            objects = {key: getattr(self.config, key) for key, kept in run.config.items() if is_record(kept)}
            return resume_saved(run, trackers=stages.of_stage(title, run.info["steps"]), **objects)
        config, _ = fill_defaults(with_folders(self.config, folder))
        return start_run(config, place, command=command, trackers=stages.of_stage(title, config.steps))


@dataclass(frozen=True, kw_only=True)
class Data:
    """Conversations, or a model in the folder of the file; written once. write(settings, file, track) ->
    counts of what it wrote."""

    kind: ClassVar[str] = "data"
    name: str
    given: Settings
    write: Callable[[Settings, Path, Progress], dict]

    def done(self, folder: Path) -> bool:
        return (folder / self.name / COUNTS).exists()

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> dict:
        if not self.done(folder):
            with atomic_folder(folder / self.name) as made:
                counts = self.write(with_folders(self.given, folder), made / CONVERSATIONS,
                                    stages.progress(self.name))
                write_text(made / COUNTS, json.dumps(counts, indent=1))
        return load_json(folder / self.name / COUNTS)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Figures of a model, or of several together, kept once they are measured.

    figures(model, track) -> what JSON can hold; with a list of models: figures(models, track).
    """

    kind: ClassVar[str] = "measured"
    name: str
    model: str | list[str]
    figures: Callable[..., dict]

    @property
    def given(self) -> object:
        return self.model

    def done(self, folder: Path) -> bool:
        return self.path(folder).exists()

    def path(self, folder: Path) -> Path:
        return folder / MEASURED / f"{self.name}.json"

    def run_step(self, folder: Path, stages: StageTrackers, command: str) -> dict:
        path = self.path(folder)
        if not path.exists():
            found = self.figures(with_folders(self.model, folder), stages.progress(f"measuring {self.name}"))
            path.parent.mkdir(exist_ok=True)
            write_text(path, json.dumps(found, indent=1))
        return load_json(path)


Step = Stage | Data | Measurement


@dataclass(frozen=True, kw_only=True)
class Done:
    """What the steps of a pipeline left: runs, the counts of data, figures, by their names;
    how many seconds each step took; and the command that started it."""

    folder: Path
    command: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    data: dict[str, dict] = field(default_factory=dict)
    measured: dict[str, dict] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, step: Step, found) -> None:
        {"run": self.runs, "data": self.data, "measured": self.measured}[step.kind][step.name] = found

    @property
    def minutes(self) -> float:
        return sum(self.seconds.values()) / 60


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Steps in order, and what is said at the end.

    summarise(done) -> the summary; its "tables" are shown, {title: rows}. Without it: a row for each
    measurement, with what made the model.
    """

    name: str
    steps: tuple[Step, ...] | list[Step]
    summarise: Callable[[Done], dict] | None = None

    def __post_init__(self):
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
    def run(self, folder: str | Path, *, display: bool = False, trackers: Sequence[Tracker] = ()) -> dict:
        """Carries it out in a folder, or what is left of it; -> the summary."""
        return run_pipeline(self, Path(folder), stages=StageTrackers(trackers, display))

    def stage_config(self, name: str) -> RunConfig:
        """The config of a stage. name: of the stage, or of a setting of it, "rl.steps"."""
        stages = {step.name: step.config for step in self.steps if isinstance(step, Stage)}
        if name.partition(".")[0] not in stages:
            raise ValueError(f"{name!r} names no stage of {self.name}: write STAGE.KEY=VALUE."
                             f"{suggest(name.partition('.')[0], stages)}")
        return stages[name.partition(".")[0]]

    def changed(self, changes: Mapping[str, object]) -> Pipeline:
        """With other settings of its stages: {"rl.steps": 5}."""
        steps = {(step.kind, step.name): step for step in self.steps}
        for change, value in changes.items():
            config, (name, _, rest) = self.stage_config(change), change.partition(".")
            config = replace_settings(config, {rest: value}, setting_hint)
            steps["run", name] = replace(steps["run", name], config=config)
        return replace(self, steps=tuple(steps.values()))

    def described(self) -> list[dict]:
        """The steps as JSON: what each is, from what it is made, with what settings."""
        return [{"kind": step.kind, "name": step.name, "needs": [*dict.fromkeys(step_names(step.given))],
                 "settings": settings_to_json(step.given, record) if isinstance(step.given, Settings)
                             else {"model": step.given}} for step in self.steps]


# carrying out a pipeline

def run_pipeline(pipeline: Pipeline, folder: Path, *, stages: StageTrackers | None = None, command: str = "",
                 recipe: str = FROM_PYTHON, config: Settings | None = None) -> dict:
    """Carries out a pipeline in a folder, or what is left of it; -> its summary.

    recipe, config: saved, so that `postgrad resume` can make the pipeline again.
    """
    stages = stages or StageTrackers()
    save_plan(pipeline, folder, recipe, config, command)
    remove_partial_steps(folder)
    done = Done(folder=folder, command=command, seconds=step_seconds(folder))
    for step in pipeline.steps:
        began, was_done = time.perf_counter(), step.done(folder)
        done.add(step, step.run_step(folder, stages, command))
        if not was_done:
            done.seconds[f"{step.kind} {step.name}"] = time.perf_counter() - began
            write_text(folder / STATE, json.dumps({"seconds": done.seconds}, indent=1))
    summary = {"recipe": pipeline.name, "command": command, "minutes": done.minutes,
               **(pipeline.summarise or default_summary)(done)}
    write_text(folder / SUMMARY, json.dumps(summary, indent=1))
    return summary


def save_plan(pipeline: Pipeline, folder: Path, recipe: str, config: Settings | None, command: str) -> None:
    """Writes pipeline.json, once; another pipeline in the folder is refused."""
    plan = {"recipe": recipe, "name": pipeline.name, "config": settings_to_json(config) if config else {},
            "command": command, "steps": pipeline.described()}
    path = folder / FILE
    if path.exists():
        began, now = saved_plan(path), json.loads(json.dumps(plan))
        if any(began.get(key) != now[key] for key in ("recipe", "config")):
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


def saved_plan(path: Path) -> dict:
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
    """Removes what a killed process left half written: hidden, beside what it was to become."""
    for place in (*folder.glob(".*"), *folder.glob(f"{MEASURED}/.*")):
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def is_unfinished(config: Settings, folder: Path) -> bool:
    """Whether a pipeline with these settings was started in the folder and has not ended."""
    path = folder / FILE
    begun = path.exists() and saved_plan(path).get("config") == settings_to_json(config)
    return begun and not (folder / SUMMARY).exists()


def step_seconds(folder: Path) -> dict[str, float]:
    path = folder / STATE
    return dict(read_json(path)["seconds"]) if path.exists() else {}


def default_summary(done: Done) -> dict:
    """A row for each measurement: its figures, and what made the model."""
    rows = []
    for name, found in done.measured.items():
        run = done.runs.get(name)
        figures = {key: found[key] for wanted in FIGURES for key in (wanted, f"{wanted}_interval")
                   if found.get(key) is not None}
        rows.append({"model": name, "made by": run.info.get("method") if run else "",
                     **figures, "minutes": run_minutes(run) if run else 0.0})
    return {"data": done.data, "measured": done.measured, "tables": {"What was measured": rows}}


# steps by the names of the command line

def stage(name: str, spec: str, *, about: str = "", **settings) -> Stage:
    """stage("rl", "grpo:words", model="{sft}", steps=20): as `postgrad train grpo:words ...`. task, data and
    reward may be objects, as `postgrad.fit` takes them."""
    objects = {key: config_value(key, settings.pop(key)) for key in ("task", "data", "reward")
               if key in settings}
    _, config = config_for(spec, settings | objects)
    return Stage(name=name, config=config, about=about)


def keep(name: str, **settings) -> Data:
    """keep("kept", model="{rl}", task="words", keep="passing"): replies of a model to a task's training
    prompts, as `postgrad pick` keeps them."""
    return Data(name=name, given=PickConfig(**settings), write=write_picked)


def write_picked(config: PickConfig, out: Path, track: Progress) -> dict:
    """Beside the replies stand the pass rates of their prompts, for difficulty.rates of a later stage."""
    rates = out.with_name(RATES) if config.keep == "passing" else None
    return {key: value for key, value in pick.pick_replies(config, out, rates=rates, track=track).items()
            if key != "out"}


def measure(name: str, model: str, task, **settings) -> Measurement:
    """measure("rl", "{rl}", "words", problems=100): the model on a task's held-out problems."""
    return Measurement(name=name, model=model, figures=partial(evaluate_named_model, task, **settings))


def evaluate_named_model(task, model: str, track: Progress, *, problems: int = 100, samples: int = 8,
                  split: str = "test",
             seed: int = 0, greedy: bool = False, max_new_tokens: int | None = None,
             device: str = "cpu") -> dict:
    """A model on a task's held-out problems: the figures of `evaluate`, and what replies do as they think."""
    opened = open_task(task)
    policy, chat = open_writer(model, device)
    settings = reply_sampling(opened, policy, max_new_tokens)
    sampler = sampler_for(opened, LocalSampler(policy, chat))
    return evaluate_task(opened, sampler, opened.prompts(split, problems, seed), samples=samples,
                    greedy=greedy, settings=settings, seed=seed, track=track,
                    measures=reflection.measures(opened, chat.places))


def run_minutes(run: Run) -> float:
    """What the steps of a run took, all in all."""
    return sum(run.curve("time/step")[1]) / 60
