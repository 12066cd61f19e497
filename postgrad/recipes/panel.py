"""Models on a panel of tasks, for the ledger: while a run is trained, or afterwards over what it kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from postgrad.recipes.defaults import reply_tokens_for
from postgrad.records import Scored
from postgrad.resolve.models import open_writer, run_named, runs_in_folder
from postgrad.resolve.stages import SCORERS, model_stages
from postgrad.runs import Run, ledger
from postgrad.runs.display import progress
from postgrad.sampling import LocalSampler, Sampling

TEXT = "text"  # held-out text of the pretraining, of which the perplexity is taken
STANDARD = ("words", "arithmetic", "countdown", "questions", "constraints", "words-es", TEXT)
PROBLEMS, SAMPLES = 50, 4
Figures = dict[str, dict[str, list[float | None]]]


def panel_tasks(panel: str) -> list[str]:
    """The members of a panel: standard, or names with commas between."""
    names = list(STANDARD) if panel == "standard" else [name.strip() for name in panel.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"panel is {panel!r}: expected standard, or tasks with commas between, each once; "
                         f"{TEXT} is the perplexity of held-out pretraining text.")
    return names


def panel_header(panel: str, problems: int, samples: int, seed: int) -> dict:
    return {"panel": panel_tasks(panel), "problems": problems, "samples": samples, "seed": seed}


class Panel:
    """The tasks of a panel, opened, and how thoroughly they are asked."""

    def __init__(self, asked: Mapping, device: str = "cpu"):
        self.asked, self.device = dict(asked), device
        self.tasks = {name: load_task(name) for name in asked["panel"] if name != TEXT}
        for name, task in self.tasks.items():
            if not task.judged:
                raise ValueError(f"panel names {name}, which has no verifier: leave it out.")

    def measure(self, net, chat: Chat, track: Progress = iter) -> Figures:
        """One value a problem, for every measure of every member."""
        found = {name: self._task(task, net, chat, track) for name, task in self.tasks.items()}
        if TEXT in self.asked["panel"]:
            most = ledger.RANGES["nats"][1]
            rows = held_out_text(corpus.documents, chat, self.asked["problems"], self.asked["seed"])
            found[TEXT] = {"nats": [round(x, 6) if x <= most else None  # a model that has diverged
                                    for x in negative_log_likelihood(net, rows, self.device)]}
        return {name: found[name] for name in self.asked["panel"]}

    def _task(self, task: Task, net, chat: Chat, track: Progress) -> dict[str, list[float | None]]:
        prompts = task.prompts("test", self.asked["problems"], self.asked["seed"])
        sampler, samples = sampler_for(task, LocalSampler(net, chat)), self.asked["samples"]
        settings = Sampling(max_new_tokens=reply_tokens_for(task, net))
        sampler.check(prompts, settings)
        drawn = draw_samples(task, sampler, prompts, samples=samples, settings=settings, greedy=False,
                     seed=seed_of(self.asked["seed"], "panel", task.name), track=track)
        judged = [[s for s in group if s.verdict.given] for group in drawn.groups]

        def each(value: Callable[[list[Scored]], float]) -> list[float | None]:
            return [value(group) if group else None for group in judged]

        once = each(lambda group: mean_of(passed(task, s) for s in group))
        within = each(lambda group: float(any(passed(task, s) for s in group)))
        paid = each(lambda group: mean_of(s.verdict.score for s in group))
        return {"pass@1": once, **({f"pass@{samples}": within} if samples > 1 else {}),
                **({"reward": paid} if task.best != 1.0 or paid != once else {}),
                ledger.DIVERSITY: each(lambda group: len({s.rollout.text for s in group}) / len(group))}


# while a run is trained

def panel_recorder(config, setup: TrainingSetup) -> Callable[[Path, int], None] | None:
    """What puts an entry down at each evaluation; None where the config names no panel."""
    if not isinstance(config, RunConfig) or (panel := config.evaluation.panel) is None:
        return None
    if config.recipe in SCORERS:
        raise ValueError("a reward or process model writes no text, so it has no ledger: leave panel out.")
    if not setup.evaluate or not setup.evaluate_every:
        raise ValueError("panel measures at each evaluation, and evaluation.every=0 makes none: set it, or "
                         "measure afterwards with `postgrad ledger RUN`.")
    asked = panel_header(panel, config.evaluation.problems, config.evaluation.samples, config.seed)
    opened = Panel(asked, config.device)

    def put_down(folder: Path, step: int) -> None:
        ledger.add_entry(folder, asked, {"name": entry_name(step), "step": step,
                                       "figures": opened.measure(setup.models.policy, setup.chat)})
    return put_down


def entry_name(step: int) -> str:
    return f"step {step}" if step else "start"


# afterwards

def ledger_models(place: str) -> list[tuple[str, str, int]]:
    """(what an entry is called, the model that it is of, its step), in order: a run's start and checkpoints;
    the stages of a folder of runs, the model that they began with first."""
    if runs_in_folder(place):
        found, _ = model_stages(place)
        return [(stage.made_by if stage.made_by == "base" else Path(stage.name).name, stage.name, at)
                for at, stage in enumerate(found)]
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
              samples: int | None = None, seed: int | None = None, every: bool = False, device: str = "cpu",
              display: bool = True) -> dict:
    """The ledger of a run or of a folder of runs, measured where it is not yet, and kept in its folder.

    every: all checkpoints that a run has kept, not only the first and the last. What is not said is as in the
    ledger that is there; said otherwise, all is measured anew.
    """
    known = ledger.read_ledger(place)
    usual = known or panel_header("standard", PROBLEMS, SAMPLES, 0)
    asked = panel_header(panel or ",".join(usual["panel"]),
                   *(given if given is not None else usual[key] for key, given in
                     (("problems", problems), ("samples", samples), ("seed", seed))))
    if min(asked["problems"], asked["samples"]) < 1:
        raise ValueError(f"problems {asked['problems']} and samples {asked['samples']} must be at least 1.")
    entries = {e["step"]: e for e in known["entries"]} if known and ledger.same_panel(known, asked) else {}
    there = ledger_models(place) if not is_training(place) or not entries else []
    wanted = there if every or runs_in_folder(place) else [*there[:1], *there[-1:]]
    opened = Panel(asked, device)
    for name, model, step in wanted:
        if step in entries and entries[step]["name"] == name:
            continue
        net, chat = open_writer(model, device)
        track = partial(progress, label=f"{name} on the panel") if display else iter
        entries[step] = {"name": name, "step": step, "figures": opened.measure(net, chat, track)}
        ledger.write_ledger(place, {**asked, "entries": [entries[at] for at in sorted(entries)]})
    return {**asked, "entries": [entries[at] for at in sorted(entries)]}


def is_training(place: str) -> bool:
    return (Path(place) / "run.json").is_file() and Run.open(place).alive()
