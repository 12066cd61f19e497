"""Training from Python: every argument is an object or a name, and takes the same way as on the command
line."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from postgrad import methods
from postgrad.data.tasks import SPLITS, Task
from postgrad.methods import Method
from postgrad.recipes.base import TrainConfig
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.registry import (
    OBJECTS,
    config_class,
    make_config,
    override_config,
    read_config,
    recipe_for,
    split_spec,
)
from postgrad.recipes.running import check_place, finished, place_beside, resume_saved, start_run
from postgrad.resolve.models import Model, open_named_model
from postgrad.resolve.tasks import SplitRows
from postgrad.runs import Run as Folder
from postgrad.runs.display import Display
from postgrad.runs.rows import JsonDict
from postgrad.runs.tracker import CallbackTracker, Tracker, open_tracker
from postgrad.sampling import Sampler
from postgrad.system import processes
from postgrad.system.disk_list import DiskList
from postgrad.system.renamed import renamed_argument, renamed_attribute

Callback = Callable[[int, dict[str, float]], str | None]


class Run(Folder):
    """A run's folder, as `fit` returns it: its rows, its model.

    Run.open("runs/words").metrics()[-1]["reward"]
    """

    if not TYPE_CHECKING:
        __getattr__ = renamed_attribute

    def metrics(self) -> list[JsonDict]:
        """A row for every step."""
        return self.rows("metrics")[0]

    def evaluations(self) -> list[JsonDict]:
        """A row for every evaluation on held-out problems, the first at step 0."""
        return self.rows("evals")[0]

    def samples(self) -> list[JsonDict]:
        """Samples of every step, with their scores and the columns of each token."""
        return self.rows("samples")[0]

    def model(self, step: int | str | None = None, device: str = "cpu") -> Model:
        """The trained model; step: as it was at a checkpoint, "best" at the best one, 0 for the start."""
        return open_named_model(str(self.folder) if step is None else f"{self.folder}@{step}", device)

    def chat(self, prompt: str | None = None, *, seed: int = 0,
             **settings: float | tuple[str, ...]) -> str | None:
        """The model's reply; without a prompt, a conversation in the terminal or notebook, until an empty
        line or the end of the input. settings: as `Sampling` has them."""
        model = self.model()
        if prompt is not None:
            return model.reply(prompt, seed=seed, **settings)
        with suppress(EOFError):
            while asked := input("you: ").strip():
                print(f"{self.folder.name}: {model.reply(asked, seed=seed, **settings)}")
        return None


class PreTrained(Protocol):
    """A model of transformers."""

    def save_pretrained(self, save_directory: str, /) -> object: ...


Source = str | Path | Folder | Model
TaskLike = Task | str | Path | Iterable[object]


@renamed_argument("watch")
def fit(model: Source | PreTrained | None = None, method: str | Path | Method | None = None, *more: object,
        config: str | Path | Folder | Mapping[str, object] | None = None, task: TaskLike | None = None,
        data: str | Path | Iterable[object] | None = None, eval_task: TaskLike | None = None,
        eval_data: str | Path | Iterable[object] | None = None, reward: object = None,
        teacher: Source | None = None, run: str | Path | None = None, display: bool = True,
        trackers: Sequence[Tracker | str] = (), callback: Callback | None = None, **settings: object) -> Run:
    """Trains a model, and returns the run.

        fit("tiny-chat", "grpo", task="words", run="runs/words", steps=40, lr=3e-4)
        fit("tiny-chat", "grpo", task=prompts, reward=my_reward)
        fit(model, method("dapo", high=0.3), task=my_task)
        fit("tiny-chat", "dpo", data=pairs)

    model: a name, a folder, a Run, a Model or a model of transformers. method: a row's name, a row, a
    changed row; default: grpo. config: settings of another run, its folder or config.json, or a file or
    dict of one's own; what else is given comes first. task: a Task, rows of prompts, a file or a name.
    data: conversations, pairs or labelled answers as records, dicts, a table or a file. eval_data,
    eval_task: what the evaluations examine, in the forms of data and task. reward: a function (prompt,
    text) -> float | bool | Verdict, a list or weighted dict of them, a reward model, a run or a name.
    teacher: the model that opd distils, a name, a folder, a Run or a Model.
    settings: by the names of the command line, lr=1e-4, group_size=4; by group, rollouts={"temperature":
    0.8}.
    run: the folder, by default the next free one in runs/. display: False prints nothing. trackers: objects
    with the hooks of `Tracker`, files or names. callback(step, metrics) is called after each step; where it
    returns "stop", the run is saved and ends, and can be resumed.
    """
    if more or (method is config is task is None and data is not None):
        raise argument_error(more)
    base, setting, method = ({}, "", method or "grpo") if config is None else read_base(config, method)
    model = model or base.get("model")
    if (isinstance(model, str) and model in methods.METHODS and isinstance(method, str)
            and method not in methods.METHODS and Path(method).suffix != ".py"):
        raise ValueError(f"fit takes the model first, then the method: fit({method!r}, {model!r}, ...).")
    row = methods.get_method(str(method)) if isinstance(method, str | Path) else method
    if not isinstance(model, Source):
        model = other_model(model, cast("str | None", settings.get("template")))
    if not isinstance(row, Method):
        raise ValueError(f"method is {row!r:.80}: expected a row of the table, its name, or FILE.py with a "
                         "row of your own.")
    followers = open_trackers(trackers, callback)
    processes.join_ranks()
    folder = (Path(run) if run is not None
              else processes.agreed(lambda: free_folder(row.name), "named the run"))
    check_place(folder)
    recipe = recipe_for(row)
    inputs = {"task": task, "data": data, "eval_task": eval_task, "eval_data": eval_data, "reward": reward,
              "teacher": teacher}
    if isinstance(data, Mapping):
        inputs = spread_splits(inputs, {f.name for f in fields(config_class(recipe))})
    objects = {name: config_value(name, value) for name, value in inputs.items() if value is not None}
    name = str(folder / "start") if isinstance(model, Model) else str(config_value("model", model))
    given = override_config(base, {**settings, **objects, "model": name, "method": row})
    made = make_config(row.name, recipe, setting, given)
    with place_beside(folder, "start") if isinstance(model, Model) else nullcontext() as place:
        origin = model.save(place) if isinstance(model, Model) and place else None
        made, chosen = fill_defaults(made, origin)
        assert isinstance(made, TrainConfig)
        shown = [Display(row.name, made.steps or 0, intro=chosen.sentence)] if display else []
        start_run(made, folder, trackers=[*shown, *followers], origin=origin,
                  command=f"postgrad.fit({name!r}, {row.name!r}, ...)")
    return Run.open(folder)


@renamed_argument("watch")
def resume(run: str | Path | Folder, *, steps: int | None = None, sampler: Sampler | str | None = None,
           display: bool = True, trackers: Sequence[Tracker | str] = (), callback: Callback | None = None,
           **objects: object) -> Run:
    """Resumes a run, to the same bits as if it had never stopped.

    steps: another length: a finished run is trained further, with the learning rate of a run of so many
    steps. sampler: the addresses of its samplers now, or the object that it was given. display, trackers,
    callback: as in `fit`. objects: the task, data, reward or method that has no name, once more; another is
    refused.
    """
    opened = Folder.open(run.folder if isinstance(run, Folder) else Path(run))
    recipe, planned = opened.started()
    followers = open_trackers(trackers, callback)
    objects = {name: config_value(name, value) for name, value in spread_splits(objects, OBJECTS).items()}
    processes.join_ranks()
    end_note = finished(opened, steps)
    title = opened.info.get("method") or recipe
    shown = [Display(title, steps or planned)] if display and not end_note else []
    resume_saved(opened, steps=steps, sampler=sampler, trackers=[*shown, *followers], **objects)
    if end_note and display and processes.leads():
        print(end_note)
    return Run.open(opened.folder)


def from_transformers(model: Any, template: str | None = None) -> Model:
    """A model of transformers as a Model, a copy with the weights that it has now. Its tokenizer is that
    of the folder or hub id which it was loaded from. template: in place of the tokenizer's."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    if hasattr(model, "peft_config"):
        raise ValueError("model is a PeftModel: give model.merge_and_unload(), and lora=16 for a new "
                         "adapter.")
    if not name:
        raise ValueError(f"model is a {type(model).__name__} that was not loaded from anywhere, so that its "
                         "tokenizer is not known: save both in one folder, and name that.")
    from transformers import AutoTokenizer  # there, as the model is one of its own
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(name).save_pretrained(folder)
        return open_named_model(folder, "cpu", template)


def free_folder(spec: str) -> Path:
    """The first free folder of runs/grpo-words-1, runs/grpo-words-2, ..."""
    stem = Path(spec).name.replace(":", "-")
    return next(path for n in range(1, 100_000) if not (path := Path("runs") / f"{stem}-{n}").exists())


def open_trackers(trackers: Sequence[Tracker | str], callback: Callback | None = None) -> list[Tracker]:
    if isinstance(trackers, str) or not isinstance(trackers, Sequence):
        raise ValueError(f"trackers is {trackers!r:.80}: expected a list of trackers, files or names.")
    if callback is not None:
        check_callback(callback)
    return [*map(open_tracker, trackers), *([CallbackTracker(callback)] if callback else [])]


def argument_error(more: Sequence[object]) -> TypeError | ValueError:
    """Of values by position, or of data without a method."""
    if more:
        return TypeError("fit takes the model and the method by position, all else by name: task=... for "
                         "prompts, data=... for conversations and pairs, and settings, lr=1e-4.")
    return ValueError("data is learned from by a method, and none is named: fit(model, 'sft', data=...) "
                      "for conversations, 'dpo' or 'reward' for pairs, 'kto' for labelled answers.")


def check_callback(callback: Callback) -> None:
    """Raises ValueError where a callback cannot be called with a step and its metrics."""
    if not callable(callback):
        raise ValueError(f"callback is {callback!r:.80}: expected a function of (step, metrics).")
    try:
        inspect.signature(callback).bind(0, {})
    except TypeError as error:
        raise ValueError(f"callback cannot be called with (step, metrics): {error}.") from None
    except ValueError:  # a builtin without a signature
        return


def has_splits(table: object) -> bool:
    """Whether a value is a table with the splits train, validation and test, or some of them."""
    return isinstance(table, Mapping) and "train" in table and set(table) <= set(SPLITS)


def read_base(config: str | Path | Folder | Mapping[str, object], method: str | Path | Method | None
              ) -> tuple[dict[str, Any], str, str | Path | Method]:
    """(settings, named setting, method) of another run or of a file. method: in place of its own."""
    spec, read = read_config(config.folder if isinstance(config, Folder) else config)
    name, setting = split_spec(spec)
    base: dict[str, Any] = {**read}
    return base, setting, method or methods.method_from_config(base.get("method", name))


def other_model(model: object, template: str | None) -> Model:
    if hasattr(model, "save_pretrained"):
        return from_transformers(model, template)
    raise ValueError(f"model is {model!r:.80}: expected a name, a folder, a Run, what load_model gives, or a "
                     "model of transformers.")


def spread_splits(given: Mapping[str, object], settings: Container[str]) -> dict[str, object]:
    """The arguments, with the splits of `data` where it has some: train as data, validation (without, test)
    as eval_data."""
    table = given.get("data")
    if not isinstance(table, Mapping) or not has_splits(table) or "eval_data" not in settings:
        return {**given}
    held_out = table.get("validation", table.get("test"))
    if held_out is not None and given.get("eval_data") is not None:
        raise ValueError("data has a split to evaluate, and eval_data is given too: give "
                         "data=table['train'].")
    return {**given, "data": table["train"], **({} if held_out is None else {"eval_data": held_out})}


def config_value(name: str, value: object) -> object:
    """An argument as a config holds it: a run or a path as its name, rows as `config_rows` has them."""
    if isinstance(value, Folder | Path):
        return str(value.folder) if isinstance(value, Folder) else str(value)
    if name == "reward" and isinstance(value, Mapping):
        return {config_value(name, key): weight for key, weight in value.items()}
    if name == "reward" and isinstance(value, list | tuple):
        return [config_value(name, x) for x in value]
    rows = name in ("task", "data", "eval_task", "eval_data") and not isinstance(value, str | Task)
    return config_rows(name, value) if rows else value


def config_rows(name: str, value: object) -> object:
    """Rows as a config holds them: an iterator or a stream as a list (on disk, where it is long), a pandas
    table as rows, the splits of a table as those of a task."""
    kind = name.removeprefix("eval_")
    if not isinstance(value, Iterable):
        or_name = "" if kind == "data" else " or a name"
        raise ValueError(f"{name} is {value!r:.80}: expected rows, a table, a file{or_name}.")
    if name == "data" and isinstance(value, Mapping) and value and all(
            isinstance(weight, int | float) for weight in value.values()):
        return ",".join(f"{source}:{weight}" for source, weight in value.items())
    if name == "data" and isinstance(value, list | tuple) and value and all(
            isinstance(source, str | Path) for source in value):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        if name != "task" or not has_splits(value):
            inside = ", ".join(map(repr, list(value)[:4]))
            raise ValueError(f"{name} is a {type(value).__name__} of {inside}: expected rows; of a table "
                             f"with splits give one, {name}=table[{'train' if name == kind else 'test'!r}].")
        return SplitRows({split: cast(Sequence[object], config_value(name, value[split]))
                          for split in SPLITS if split in value})
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    sized = hasattr(value, "__len__") and not isinstance(value, Iterator)
    return value if sized else DiskList(value).as_list()
