"""`postgrad demo`, `train` and `resume`: trainings in the terminal."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import (
    format_figure,
    format_percent,
    print_json,
    print_table,
)
from postgrad.cli.settings import config_from_text, print_settings
from postgrad.system import processes
from postgrad.system.parse import parse_value, split_setting
from postgrad.system.settings import Settings, default_settings, describe_settings, setting, setting_text

DEMO = "runs/demo"


@dataclass(frozen=True, kw_only=True)
class DemoOptions(CommandOptions):
    quick: bool = setting(False, "a quarter of the work")
    seed: int = setting(0, "random seed")
    run: str = setting(DEMO, "folder of the demo; an unfinished one is resumed, a finished one renamed",
                       metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(CommandOptions):
    recipe: str = setting("", "what to train, on what: e.g. grpo:words, sft:words, dapo:arithmetic",
                          metavar="RECIPE[:SETTING]", positional=True)
    changes: list[str] = setting([], "a setting, e.g. optim.lr=1e-4 steps=20", metavar="KEY=VALUE",
                                 positional=True)
    task: str | None = setting(None, "a task's name, your Python file, a .jsonl of questions and answers, or "
                               "VERIFIER:FILE.jsonl", metavar="NAME|FILE")
    agent: str | None = setting(None, "your program with an OpenAI client that plays the episodes (the "
                                "setting agent.command)", metavar="COMMAND")
    run: str | None = setting(None, "the run's folder; default: runs/RECIPE-SETTING-N", metavar="FOLDER")
    track: list[str] = setting([], "a further tracker: trackio, wandb, tensorboard, mlflow, FILE.py that "
                               "defines `tracker`, or the name of a registered one; several with commas; "
                               "track=NAME is the same", metavar="FILE|NAME")
    config: str | None = setting(None, "the settings of a run, or of a JSON file of your own that names a "
                                 "recipe or method; RECIPE can then be left out, and KEY=VALUE override it",
                                 metavar="RUN|FILE")
    show: bool = setting(False, "print the settings with their descriptions and exit")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(CommandOptions):
    run: str = setting(about="the folder of a run or a pipeline", metavar="FOLDER", positional=True)
    changes: list[str] = setting([], "the new number of steps; or sampler=http://HOST:PORT, the new address "
                                 "of the samplers", metavar="steps=N", positional=True)
    track: list[str] = setting([], "a further tracker, as in `train`", metavar="FILE|NAME")


# commands

def run_demo(options: DemoOptions) -> int:
    """Starts the demo, or resumes one that was stopped; a finished one is renamed."""
    from postgrad.recipes.launch import start_pipeline
    from postgrad.recipes.pipelines import demo
    from postgrad.recipes.pipelines.stages import is_unfinished
    folder = Path(options.run)
    config = demo.quick_demo(options.seed) if options.quick else demo.DemoConfig(seed=options.seed)
    command = ("postgrad demo" + (" --quick" if options.quick else "")
               + (f" --seed {options.seed}" if options.seed else ""))
    note = f"resuming the demo in {folder}" if is_unfinished(config, folder) else move_aside(folder)
    if note and not options.json:
        print(note)
    place = "" if folder == Path(DEMO) else f" --run {folder}"
    return follow_pipeline(options, folder, partial(start_pipeline, "demo", config, folder, command=command),
                           again=command + place)


def move_aside(folder: Path) -> str:
    """Renames a folder that is not empty; -> a sentence on it, "" where there was none."""
    if not folder.exists() or not any(folder.iterdir()):
        return ""
    names = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10_000))
    aside = next(path for path in names if not path.exists())
    folder.rename(aside)
    return f"what was in {folder} is kept in {aside}"


def run_train(options: TrainOptions) -> int:
    spec, base, changes = what_to_train(options)
    track, changes = split_trackers(options.track, changes)
    if options.show:
        return print_settings(spec, changes, options.task, options.json, base)
    from postgrad.recipes.defaults import fill_defaults
    from postgrad.recipes.fit import free_folder
    from postgrad.recipes.launch import start_pipeline
    from postgrad.recipes.registry import is_pipeline
    from postgrad.recipes.running import check_place, start_run
    processes.join_ranks()
    folder = (Path(options.run) if options.run
              else processes.agreed(lambda: free_folder(spec), "named the run"))
    recipe, config = config_from_text(spec, changes, options.task, base)
    staged = is_pipeline(recipe)
    if not staged:
        check_place(folder)
    config, chosen = fill_defaults(config)
    intro = describe_run(spec, folder, config, {c.setting: c.why for c in chosen.choices},
                         f"{chosen.model} has {chosen.size} parameters" if chosen.choices else "",
                         "pipeline.json" if staged else "config.json")
    flags = {"--task": options.task, "--config": options.config}
    command = shlex.join(["postgrad", "train", *([options.recipe] if options.recipe else []), *changes,
                          *(word for flag, value in flags.items() if value for word in (flag, value))])
    if staged:
        stages = partial(start_pipeline, recipe, config, folder, command=command)
        return follow_pipeline(options, folder, stages, track, intro=intro)
    go = partial(start_run, config, folder, command=command, ask=ask_person(options.json))
    return train_and_report(options, folder, spec, config.steps or 0, go, track, intro)


def what_to_train(options: TrainOptions) -> tuple[str, dict[str, object], list[str]]:
    """(the recipe, the settings of --config, KEY=VALUE)."""
    spec = options.recipe
    changes = [*options.changes, *([f"agent.command={options.agent}"] if options.agent else [])]
    if options.config is None:
        if not spec:
            raise ValueError("RECIPE is required: write `postgrad train grpo:words` (`postgrad methods` "
                             "lists them), or give a config, --config FILE.")
        return spec, {}, changes
    from postgrad.recipes.registry import read_config
    named, base = read_config(options.config)
    if "=" in spec:
        spec, changes = "", [spec, *changes]
    if spec and spec != named:
        base.pop("method", None)
    return spec or named, base, changes


def split_trackers(flags: Sequence[str], changes: Sequence[str]) -> tuple[list[str], list[str]]:
    """(["wandb,own.py"], ["lr=1e-4", "track=mlflow"]) -> (["wandb", "own.py", "mlflow"], ["lr=1e-4"])"""
    words = [*flags, *(change.removeprefix("track=") for change in changes if change.startswith("track="))]
    return ([spec for word in words for spec in word.split(",")],
            [change for change in changes if not change.startswith("track=")])


def ask_person(as_json: bool) -> Callable[[str], bool] | None:
    """Asks yes or no on the terminal; None where nobody sits there."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    return lambda question: input(question).strip().lower() in ("y", "yes")


def describe_run(spec: str, folder: Path, config: Settings, reasons: Mapping[str, str], model: str,
                 file: str) -> str:
    """What is trained: the settings that are not the defaults, those that the model decides with the reason,
    and where all of them are saved."""
    rows = [(name, setting_text(value), reasons.get(name, "")) for name, value in changed_settings(config)]
    widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
    lines = [f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {why}".rstrip() for name, value, why in rows]
    count = sum(1 for _ in describe_settings(config))
    return "\n".join([f"{spec} -> {folder}" + (f"   {model}" if model else ""), *lines,
                      f"  all {count} settings: {folder / file}, or postgrad train {spec} --show"])


def changed_settings(config: Settings) -> Iterator[tuple[str, object]]:
    """Names and values of the settings that are not the defaults of the recipe; of a method's constants those
    that are not the method's own."""
    defaults = default_settings(type(config))
    method = getattr(config, "method", None)
    saved = method.saved() if method is not None else None
    constants = saved if isinstance(saved, Mapping) else {}
    for row in describe_settings(config):
        head, _, inner = row.name.partition(".")
        if head == "method" and inner:
            changed = inner in constants
        else:
            changed = defaults.get(row.name, MISSING) != row.value
        if changed:
            yield row.name, row.value


def run_resume(options: ResumeOptions) -> int:
    from postgrad.recipes.launch import resume_pipeline, resume_training, saved_pipeline
    from postgrad.recipes.running import finished
    from postgrad.runs import Run
    track, words = split_trackers(options.track, options.changes)
    folder, changes = Path(options.run), parse_resume(words)
    steps, go = changes.get("steps"), partial(resume_training, folder, **changes)
    if saved_pipeline(folder):
        stages = go if changes else partial(resume_pipeline, folder)
        return follow_pipeline(options, folder, stages, track)
    processes.join_ranks()
    run = Run.open(folder)
    recipe, began_with = run.started()
    if note := finished(run, steps):
        if not processes.leads():
            return 0
        print_json(run.summary() | {"folder": str(folder)}) if options.json else print(note)
        return 0
    title = run.info.get("method") or recipe
    return train_and_report(options, folder, title, steps or began_with, go, track)


def parse_resume(changes: Sequence[str]) -> dict[str, Any]:
    """["steps=80"] -> {"steps": 80}: what can change when a run is resumed."""
    types = {"steps": int, "sampler": str}
    out: dict[str, Any] = {}
    for change in changes:
        if change.partition("=")[0] not in types or "=" not in change:
            raise ValueError(f"{change!r}: a run is resumed with the settings it began with, and steps=N and "
                             "sampler=http://HOST:PORT alone can change; for others start a new run, which "
                             "model=RUN begins where this one ended.")
        name, text = split_setting(change)
        out[name] = parse_value(text, types[name], name)
    return out


# displays

@contextmanager
def exit_on_stop(folder: Path, again: str) -> Iterator[None]:
    """A signal ends the command with its code and a sentence on how to resume, which the first rank prints; a
    tracker that raises ends it with a sentence that names the tracker."""
    from postgrad.system.signals import Stopped
    try:
        yield
    except Stopped as end:
        if processes.leads():
            again = go_on(folder, again)
            print(f"\n{end}; saved. Go on with: {again}", file=sys.stderr)
        sys.exit(end.exit_code)
    except Exception as error:
        if (notes := getattr(error, "__notes__", [])) and "of tracker" in notes[-1]:
            raise ValueError(f"{type(error).__name__}: {error} ({notes[-1]}).") from error
        raise
    except KeyboardInterrupt:
        if not any((folder / name).exists() for name in ("run.json", "pipeline.json")):
            raise
        print(f"\nstopped at once. Go on from the last checkpoint with: {again}", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def go_on(folder: Path, again: str) -> str:
    """The command that goes on after a stop; of a run that saved its weights alone, what a new one is given.
    """
    from postgrad.system.files import load_json
    file = folder / "config.json"
    config = load_json(file) if file.exists() else None
    alone = isinstance(config, dict) and config.get("save_optimizer") is False
    return f"a new run from its weights, model={folder}" if alone else again


def train_and_report(options: CommandOptions, folder: Path, title: str, steps: int, go: Callable[..., Any],
               track: Sequence[str] = (), intro: str = "") -> int:
    """Trains with a display, and says at the end where things are. intro: printed once all is checked."""
    from postgrad.runs.display import Display
    from postgrad.runs.tracker import open_tracker
    leads = processes.leads()
    trackers = [*([] if options.json else [Display(title, steps, intro=intro)]), *map(open_tracker, track)]
    with exit_on_stop(folder, again=f"postgrad resume {folder}"):
        run = go(trackers=trackers if leads else [])
    processes.leave()
    if not leads:
        return 0
    if options.json:
        print_json(run.summary() | {"folder": str(folder)})
    elif run.state()["state"] == "stopped":
        print(f"saved. Go on with: {go_on(folder, f'postgrad resume {folder}')}")
    else:
        scores = run.info["recipe"] in ("reward", "process")  # and writes no text
        if checkpoints := run.checkpoint_sentence():
            print(checkpoints)
        print(f"done: {folder}\n  postgrad runs {folder}   postgrad {'audit' if scores else 'chat'} {folder}")
    return 0


def follow_pipeline(options: CommandOptions, folder: Path, go: Callable[..., Any],
                    track: Sequence[str] = (), *, again: str = "", intro: str = "") -> int:
    """Runs a pipeline, and prints its tables. again: the command that resumes it."""
    from postgrad.recipes.pipelines.stages import StageTrackers
    from postgrad.runs.tracker import open_tracker
    stages = StageTrackers([*map(open_tracker, track)], not options.json, intro)
    with exit_on_stop(folder, again=again or f"postgrad resume {folder}"):
        summary = go(stages=stages)
    if options.json:
        print_json(summary | {"folder": str(folder)})
        return 0
    print()
    if summary["recipe"] == "demo":
        print_demo(folder, summary)
        return 0
    for title, rows in summary.get("tables", {}).items():
        print_table([with_intervals(row) for row in rows], title=title) if rows else print(f"{title}: none")
    print(f"{summary['minutes']:.1f} minutes. Runs and figures: {folder}")
    return 0


def with_intervals(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as text: a figure with its interval behind it, a pair of numbers as "low to high"."""
    out = {}
    for name, value in row.items():
        if name.endswith("_interval") and name.removesuffix("_interval") in row:
            continue
        interval = row.get(f"{name}_interval")
        out[name] = format_figure(value) + (f" ({format_figure(interval)})" if interval else "")
    return out


def print_demo(folder: Path, summary: Mapping[str, Any]) -> None:
    """Base, SFT and RL in figures and in answers, and what to try next."""
    from postgrad.recipes.pipelines.demo import NEXT
    title = (f"Word problems: {summary['problems']} held out, {summary['samples']} samples each "
             "(95 % intervals)")
    print_table([demo_row(stage) for stage in summary["stages"]], title=title)
    for question in summary["answers"]:
        print(f"\n{question['question']}  (answer: {question['gold']})")
        for stage in question["stages"]:
            print(f"  {stage['name']:<5}{'right' if stage['correct'] else 'wrong':<7}{stage['text']!r}")
    print(f"\n{summary['seconds_total'] / 60:.1f} minutes. Curves: {folder}/report.html   figures: "
          f"{folder}/summary.json")
    print("\nNext:\n" + "\n".join(f"  {line.replace(DEMO, str(folder))}" for line in NEXT))


def demo_row(stage: Mapping[str, Any]) -> dict[str, str]:
    shares = ("pass@1", f"pass@{stage['samples']}", "greedy")
    return {"stage": stage["name"], **{name: format_percent(stage, name) for name in shares},
            "in form": f"{stage.get('format', 0):.1%}", "mean length": f"{stage['mean_length']:.1f}",
            "minutes": f"{stage['seconds'] / 60:.1f}"}


COMMANDS = (
    Command("demo", "train a small model to reason in minutes: base, SFT, RL, each measured", DemoOptions,
            run_demo),
    Command("train", "train a model by a recipe", TrainOptions, run_train,
            "recipes: postgrad methods   settings: postgrad train RECIPE --show"),
    Command("resume", "resume a run from its last checkpoint, bit for bit as if it had never stopped",
            ResumeOptions, run_resume),
)
