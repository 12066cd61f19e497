"""The door from Python: every argument is an object or a name, and goes through the functions that the command line uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from postgrad import methods, recipes
from postgrad.display import Watch
from postgrad.evaluate import evaluate as measure
from postgrad.evaluate import passed, score_samples
from postgrad.maths.passk import mean_interval
from postgrad.methods import Method
from postgrad.opening.models import Model, load
from postgrad.opening.tasks import open_task
from postgrad.recipes.defaults import fitted, tokens_for
from postgrad.run import Run as Folder
from postgrad.sampler import LocalSampler, Sampling
from postgrad.settings import Settings

Callback = Callable[[int, dict], None]


class Run(Folder):
    """A run's folder, as `fit` gives it: its rows, its model. Run.open("runs/words").metrics()[-1]["reward"]"""

    def metrics(self) -> list[dict]:
        """A row for every step."""
        return self.rows("metrics")[0]

    def examinations(self) -> list[dict]:
        """A row for every examination on held-out problems, the first at step 0."""
        return self.rows("evals")[0]

    def samples(self) -> list[dict]:
        """Samples of every step with their scores and what is known of each token."""
        return self.rows("samples")[0]

    def model(self, step: int | None = None, device: str = "cpu") -> Model:
        """The trained model; step: as it was at a checkpoint, 0 for the start."""
        return load(str(self.folder) if step is None else f"{self.folder}@{step}", device)

    def chat(self, prompt: str | None = None, **settings) -> str | None:
        """The model's reply; without a prompt, a conversation in the terminal or notebook, until an empty line."""
        model = self.model()
        if prompt is not None:
            return model.reply(prompt, **settings)
        while asked := input("you: ").strip():
            print(f"{self.folder.name}: {model.reply(asked, **settings)}")
        return None


Source = str | Path | Folder | Model


def fit(model: Source, method: str | Method = "grpo", *, task=None, data=None, reward=None,
        run: str | Path | None = None, watch="auto", callback: Callback | None = None, **settings) -> Run:
    """Trains a model, and gives the run.

        fit("tiny-chat", "grpo", task="words", run="runs/words", steps=40, lr=3e-4)
        fit("tiny-chat", "grpo", task=prompts, reward=my_reward)
        fit(model, method("dapo", high=0.3), task=my_task)
        fit("tiny-chat", "dpo", data=pairs)

    model: a name, a folder, a Run or a Model. method: a row's name, a row, a changed row. task: a Task, rows of prompts,
    a file or a name. data: conversations, pairs or labelled answers as records, dicts, a table or a file. reward: a
    function (prompt, text) -> float | bool | Verdict, a list or weighted dict of them, a reward model, a run or a name.
    settings: by the names of the command line, lr=1e-4, group_size=4; with their group as **{"optim.lr": 1e-4}.
    run: the folder, by default the next free one in runs/. watch: None is silent. callback(step, row) follows each step.
    """
    row = methods.get(method) if isinstance(method, str) else method
    folder = Path(run) if run is not None else free_folder(row.name)
    given = {name: _named(value) for name, value in {"task": task, "data": data, "reward": reward}.items()
             if value is not None}
    groups = {name: value for name, value in settings.items() if isinstance(value, Settings)}
    words = [f"{name}={_written(value)}" for name, value in settings.items() if name not in groups]
    recipe = recipes.recipe_for(row)
    with _origin(model, folder) as (name, origin):
        config = recipes.configured(row.name, recipe, "", words, given | groups | {"model": name, "method": row})
        config, chosen = fitted(config, origin)
        if chosen and watch == "auto":
            print(chosen)
        with _eyes(watch, row.name, config.steps) as eyes:
            recipes.start(recipe, config, folder, watch=eyes, callback=callback, origin=origin,
                          command=f"postgrad.fit({name!r}, {row.name!r}, ...)")
    return Run.open(folder)


def resume(run: str | Path | Folder, *, watch="auto", callback: Callback | None = None, **given) -> Run:
    """Goes on with a run to the same result as if it had never stopped.

    given: what was handed in as an object and has no name (task, data, reward, method), once more; another is refused.
    """
    folder = run.folder if isinstance(run, Folder) else Path(run)
    info = Folder.open(folder).info
    objects = {name: _named(value) for name, value in given.items()}
    with _eyes(watch, info.get("method") or info["recipe"], info["steps"]) as eyes:
        recipes.resume(folder, watch=eyes, callback=callback, **objects)
    return Run.open(folder)


def free_folder(spec: str) -> Path:
    """The next folder in runs/ that is not taken: runs/grpo-words-1, ..."""
    stem = Path(spec).name.replace(":", "-")
    return next(path for n in range(1, 100_000) if not (path := Path("runs") / f"{stem}-{n}").exists())


def _named(value):
    """A run or a path stands for its name."""
    return str(value.folder) if isinstance(value, Folder) else str(value) if isinstance(value, Path) else value


def _written(value) -> str:
    """A value as the command line writes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _eyes(watch, title: str, steps: int):
    """Who looks on: nobody, the terminal's display, or an object with `stepped` and `examined`."""
    if isinstance(watch, str) and watch != "auto":
        raise ValueError(f"watch is {watch!r}: expected None (silent), 'auto', or an object with `stepped` and `examined`.")
    return Watch(title, steps) if watch == "auto" else nullcontext(watch)


@contextmanager
def _origin(model: Source, folder: Path) -> Iterator[tuple[str, Path | None]]:
    """The name of the model a run starts from. One that was handed in gets a folder, which becomes `start` in the run's."""
    if not isinstance(model, Model):
        if not isinstance(model, str | Path | Folder):
            raise ValueError(f"model is {model!r:.80}: expected a name, a folder, a Run, or what load_model gives.")
        yield str(_named(model)), None
        return
    aside = folder.parent / f".{folder.name}.start-{os.getpid()}"
    try:
        yield str(folder / "start"), model.save(aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# measuring

def _opened(model: Source, device: str) -> Model:
    return model if isinstance(model, Model) else load(_named(model), device)


def evaluate(model: Source, task, *, problems: int = 200, samples: int = 8, split: str = "test", seed: int = 0,
             max_new_tokens: int | None = None, temperature: float = 1.0, greedy: bool = True,
             device: str = "cpu") -> dict:
    """How good a model is at a task: pass@1 with its interval, pass@k, greedy, format, length.

    evaluate(run, "words"). max_new_tokens: by default as the task says, else by the model's size.
    """
    opened, asked = _opened(model, device), open_task(task)
    tokens = max_new_tokens or tokens_for(asked, opened.net)
    settings = Sampling(max_new_tokens=tokens, temperature=temperature)
    return {"model": opened.name, "task": asked.name, "split": split, "seed": seed,
            **measure(asked, LocalSampler(opened.net, opened.chat), asked.prompts(split, problems, seed), samples=samples,
                      settings=settings, seed=seed, greedy=greedy)}


def compare(*models: Source, task, problems: int = 200, samples: int = 8, split: str = "test", seed: int = 0,
            max_new_tokens: int | None = None, temperature: float = 1.0, device: str = "cpu") -> list[dict]:
    """Models on the same problems, a row each: pass@1 with its interval, and how much better it is than the first model's,
    problem by problem. compare("tiny-chat", run, task="words")"""
    if len(models) < 2:
        raise ValueError(f"compare needs two models at least; it was given {len(models)}.")
    asked = open_task(task)
    prompts = asked.prompts(split, problems, seed)
    rows: list[dict] = []
    first: list[float] = []
    for model in models:
        opened = _opened(model, device)
        tokens = max_new_tokens or tokens_for(asked, opened.net)
        settings = Sampling(max_new_tokens=tokens, temperature=temperature)
        groups = score_samples(asked, LocalSampler(opened.net, opened.chat), prompts, samples, settings, seed)
        shares = [sum(passed(asked, s) for s in group) / len(group) for group in groups]
        first = first or shares
        mean, low, high = mean_interval(shares, (0.0, 1.0))
        gain, worse, better = mean_interval([b - a for a, b in zip(first, shares, strict=True)], (-1.0, 1.0))
        rows.append({"model": opened.name, "pass@1": mean, "pass@1_interval": [low, high], "gain": gain,
                     "gain_interval": [worse, better], "problems": len(prompts), "samples": samples})
    return rows
