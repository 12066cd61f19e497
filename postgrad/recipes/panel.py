"""Models on a panel of tasks, for the ledger: during training, or afterwards over the checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from postgrad.data.environments import sampler_for
from postgrad.data.tasks import Task, corpus, load_task
from postgrad.evaluation import draw_samples, mean_of, passed
from postgrad.evaluation.perplexity import held_out_text, negative_log_likelihood
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.models.chat import Chat
from postgrad.recipes.base import RunConfig, TrainingSetup
from postgrad.recipes.defaults import reply_sampling
from postgrad.records import Scored
from postgrad.resolve.models import Trained, open_writer, run_named, runs_in_folder
from postgrad.resolve.stages import SCORERS, model_stages
from postgrad.runs import Run, ledger
from postgrad.runs.display import progress
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler

TEXT = "text"  # the perplexity of held-out pretraining text
STANDARD = ("words", "arithmetic", "countdown", "questions", "constraints", "words-es", TEXT)
PROBLEMS, SAMPLES = 50, 4
Measured = dict[str, list[float | None]]  # one value a problem, by measure


def panel_tasks(panel: str) -> list[str]:
    """The members of a panel: standard, or names with commas between."""
    names = list(STANDARD) if panel == "standard" else [name.strip() for name in panel.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"panel is {panel!r}: expected standard, or tasks with commas between, each once; "
                         f"{TEXT} is the perplexity of held-out pretraining text.")
    return names


def panel_header(panel: str, problems: int, samples: int, seed: int) -> JsonDict:
    """How a ledger is measured."""
    return {"panel": panel_tasks(panel), "problems": problems, "samples": samples, "seed": seed}


class Panel:
    """The tasks of a panel, opened."""

    def __init__(self, header: JsonDict, device: str = "cpu"):
        self.header, self.device = header, device
        self.tasks = {name: load_task(name) for name in header["panel"] if name != TEXT}
        for name, task in self.tasks.items():
            if not task.judged:
                raise ValueError(f"panel names {name}, which has no verifier: leave it out.")

    def measure(self, net: Trained, chat: Chat, track: Progress = iter) -> dict[str, Measured]:
        """Every measure of every member."""
        measured = {name: self.measure_task(task, net, chat, track) for name, task in self.tasks.items()}
        if TEXT in self.header["panel"]:
            most = ledger.RANGES["nats"][1]
            rows = held_out_text(corpus.documents, chat, self.header["problems"], self.header["seed"])
            measured[TEXT] = {"nats": [round(x, 6) if x <= most else None  # a model that has diverged
                                       for x in negative_log_likelihood(net, rows, self.device)]}
        return {name: measured[name] for name in self.header["panel"]}

    def measure_task(self, task: Task, net: Trained, chat: Chat, track: Progress) -> Measured:
        prompts = task.prompts("test", self.header["problems"], self.header["seed"])
        sampler, samples = sampler_for(task, LocalSampler(net, chat)), self.header["samples"]
        settings = reply_sampling(task, net)
        sampler.check(prompts, settings)
        drawn = draw_samples(task, sampler, prompts, samples=samples, settings=settings, greedy=False,
                             seed=seed_of(self.header["seed"], "panel", task.name), track=track)
        judged = [[s for s in group if s.verdict.given] for group in drawn.groups]

        def each(value: Callable[[list[Scored]], float]) -> list[float | None]:
            return [value(group) if group else None for group in judged]

        once = each(lambda group: mean_of(passed(task, s) for s in group))
        within = each(lambda group: float(any(passed(task, s) for s in group)))
        paid = each(lambda group: mean_of(s.verdict.score for s in group))
        return {"pass@1": once, **({f"pass@{samples}": within} if samples > 1 else {}),
                **({"reward": paid} if task.best != 1.0 or paid != once else {}),
                ledger.DIVERSITY: each(lambda group: len({s.rollout.text for s in group}) / len(group))}


# during training

def panel_recorder(config: RunConfig, setup: TrainingSetup, panel: str) -> Callable[[Path, int], None]:
    """Adds an entry to the ledger at each evaluation."""
    if config.recipe in SCORERS:
        raise ValueError("a reward or process model writes no text, so it has no ledger: leave panel out.")
    if not setup.evaluate or not setup.evaluate_every:
        raise ValueError("panel measures at each evaluation, and evaluation.every=0 makes none: set it, or "
                         "measure afterwards with `postgrad ledger RUN`.")
    header = panel_header(panel, config.evaluation.problems, config.evaluation.samples, config.seed)
    opened = Panel(header, config.device)

    def add_entry(folder: Path, step: int) -> None:
        ledger.add_entry(folder, header, {"name": entry_name(step), "step": step,
                                          "figures": opened.measure(setup.models.policy, setup.chat)})
    return add_entry


def entry_name(step: int) -> str:
    return f"step {step}" if step else "start"


# afterwards

def ledger_models(place: str) -> list[tuple[str, str, int]]:
    """(entry, model, step) in order: a run's start and checkpoints; or the stages of a folder of runs, their
    base model first."""
    if runs_in_folder(place):
        return [(stage.made_by if stage.made_by == "base" else Path(stage.name).name, stage.name, at)
                for at, stage in enumerate(model_stages(place)[0])]
    named = run_named(place)
    if named is None or named[1] is not None:
        raise ValueError(f"{place} is no run: a ledger is of a run's folder, or of a folder of runs.")
    run = Run.open(place)
    if run.started()[0] in SCORERS:
        raise ValueError(f"{place} scores text and writes none, so it has no ledger.")
    steps = [*([0] if run.info.get("begins_with") else []), *run.checkpoints()]
    if len(steps) < 2:
        raise ValueError(f"{place} has no checkpoint besides its start: let it run on.")
    return [(entry_name(step), f"{place}@{step}", step) for step in steps]


def measure_ledger(place: str, *, panel: str | None = None, problems: int | None = None,
                   samples: int | None = None, seed: int | None = None, every: bool = False,
                   device: str = "cpu", display: bool = True) -> JsonDict:
    """The ledger of a run or of a folder of runs, saved in its folder; measures the entries that it lacks.

    every: all checkpoints of a run, not only the first and the last. None: as in the saved ledger; another
    value measures all entries again.
    """
    saved = ledger.read_ledger(place)
    usual = saved or panel_header("standard", PROBLEMS, SAMPLES, 0)
    header = panel_header(panel or ",".join(usual["panel"]),
                          *(value if value is not None else usual[key] for key, value in
                            (("problems", problems), ("samples", samples), ("seed", seed))))
    if min(header["problems"], header["samples"]) < 1:
        raise ValueError(f"problems {header['problems']} and samples {header['samples']} must be at least 1.")
    entries = {e["step"]: e for e in saved["entries"]} if saved and ledger.same_panel(saved, header) else {}
    models = ledger_models(place) if not is_training(place) or not entries else []
    opened = Panel(header, device)
    for name, model, step in models if every or runs_in_folder(place) else [*models[:1], *models[-1:]]:
        if step in entries and entries[step]["name"] == name:
            continue
        net, chat = open_writer(model, device)
        track = partial(progress, label=f"{name} on the panel") if display else iter
        entries[step] = {"name": name, "step": step, "figures": opened.measure(net, chat, track)}
        ledger.write_ledger(place, {**header, "entries": [entries[at] for at in sorted(entries)]})
    return {**header, "entries": [entries[at] for at in sorted(entries)]}


def is_training(place: str) -> bool:
    return (Path(place) / "run.json").is_file() and Run.open(place).alive()
