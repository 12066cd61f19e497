"""A run from its start to its end: folder, checks, hooks that examine, show and save,
and going on after a stop."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from postgrad import __version__, methods
from postgrad.batches.keep import pick
from postgrad.loop import Now, Stopped, restore, state_of, stop_on_signal, train
from postgrad.models import is_adapted
from postgrad.models.checkpoint import read_state, seed_everything, write_state
from postgrad.opening import rewards, tasks
from postgrad.opening.models import Beginning, base_name, fingerprint, open_folder
from postgrad.recipes.base import Parts
from postgrad.recipes.defaults import fitted
from postgrad.records import Batch, Scored
from postgrad.run import Run
from postgrad.settings import plain
from postgrad.stats import Stats
from postgrad.user_code import record

Build = Callable[..., Parts]  # (config, begins) -> Parts


class Watch(Protocol):
    """Whoever looks on while a run is trained."""

    def stepped(self, step: int, row: dict, scored: tuple[Scored, ...]) -> None: ...

    def examined(self, step: int, row: dict) -> None: ...


def beginning(config, checkpoint: Path | None = None, origin: Path | None = None) -> Beginning | None:
    """Where a run's models begin; None for a recipe that makes its own (pretraining)."""
    if not getattr(config, "model", None):
        return Beginning(origin=checkpoint, name="", checkpoint=checkpoint) if checkpoint else None
    return Beginning(origin=origin or open_folder(config.model), name=config.model, checkpoint=checkpoint)


def start(recipe: str, config, build: Build, folder: Path | str, *, command: str = "",
          watch: Watch | None = None, callback: Callable[[int, dict], None] | None = None,
          origin: Path | None = None) -> Run:
    """A new run. Everything is built, and so checked, before the folder is made.

    origin: the folder of a model that has no name of its own; it is moved into the run, as `start`, and
    config.model names it there. What the config leaves open is chosen here (recipes/defaults.py), and saved.
    """
    begins = beginning(config, origin=origin)
    config, _ = fitted(config, begins.origin if begins else None)
    seed_everything(config.seed)
    parts = replace(build(config, begins), begins=begins)
    facts = {"command": command, "version": __version__, "python": platform.python_version(),
             "torch": torch.__version__, "seed": config.seed,
             "begins_with": fingerprint(begins.origin) if begins else None, "data": dict(parts.data),
             **inputs(config)}
    names = {"model": getattr(config, "model", None), "task": getattr(config, "task", None)}
    names = {k: tasks.label(v) if v is not None else None for k, v in names.items() if hasattr(config, k)}
    row = {}
    if hasattr(config, "method"):
        row = {"method": config.method.name, "row": methods.described(config.row)}
    run = Run.create(folder, recipe=recipe, config=plain(config, record), steps=config.steps, **names, **row,
                     **facts, bring={"start": origin} if origin else {})
    for note in parts.notes:
        run.event("data", note)
        if watch:
            print(note, file=sys.stderr)
    return carry_on(run, parts, config, watch, callback)


def inputs(config) -> dict:
    """Hashes of what a run was given by name: if one of them changes, going on would not be the same run."""
    reward = getattr(config, "reward", None)
    files = {name: path for name, path in (("task", tasks.file_in(getattr(config, "task", None))),
                                           ("data", tasks.file_in(getattr(config, "data", None)))) if path}
    return {"judged_by": [fingerprint(open_folder(name)) for name in rewards.model_names(reward)],
            "rubric": rewards.rubric_hash(reward),
            "files": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}}


def check_inputs(run: Run, config) -> None:
    """Before anything in the run is touched: all that it was given is as it was."""
    remedy = "so it cannot go on to the same result: put the old one back, or start a new run."
    expected = run.info.get("begins_with")
    if expected and fingerprint(open_folder(config.model)) != expected:
        raise ValueError(f"the model this run began with has changed ({open_folder(config.model)}), {remedy}")
    now = inputs(config)
    reward = getattr(config, "reward", None)
    for name, before, after in zip(rewards.model_names(reward), run.info.get("judged_by", ()),
                                   now["judged_by"],
                                   strict=True):
        if before != after:
            kind = "grading" if any(part.kind == "grader" for part in rewards.parts_of(reward)) else "reward"
            raise ValueError(f"the {kind} model {name} has changed since this run began, {remedy}")
    if now["rubric"] != run.info.get("rubric"):
        raise ValueError(f"the rubric of {reward} has changed since this run began, {remedy}")
    for name, before in run.info.get("files", {}).items():
        if now["files"].get(name) != before:
            raise ValueError(f"{name} {getattr(config, name)} has changed since this run began, {remedy}")
    if "row" in run.info and (changed := methods.difference(run.info["row"], methods.described(config.row))):
        raise ValueError(f"the row {config.method.name} has changed since this run began "
                         f"({changed}), {remedy}")


def resume(run: Run, config, build: Build, *, watch: Watch | None = None,
           callback: Callable[[int, dict], None] | None = None) -> Run:
    """Goes on from the newest sound checkpoint, or from the beginning where there is none,
    to the same bits."""
    check_inputs(run, config)
    seed_everything(config.seed)
    checkpoint = run.resume()
    begins = beginning(config, checkpoint)
    parts = replace(build(config, begins), begins=begins)
    if checkpoint:
        restore(read_state(checkpoint), parts.models, parts.optim, parts.batches)
    return carry_on(run, parts, config, watch, callback)


def carry_on(run: Run, parts: Parts, config, watch: Watch | None = None,
             callback: Callable[[int, dict], None] | None = None) -> Run:
    """Trains to the end, or to a signal; says in the run folder how it ended."""
    try:
        with run.locked(), stop_on_signal() as stop:
            run.status("running")
            if parts.examine and parts.every and run.next_step == 1:
                examine(run, parts, 0, watch)
            train(parts.models, parts.batches, parts.objective, parts.optim, run,
                  hooks(run, parts, config, stop, watch, callback))
    except Stopped as end:
        run.status("stopped", error=str(end))
        raise
    except BaseException as error:
        run.status("failed", error=f"{type(error).__name__}: {error}")
        raise
    run.status("done")
    return run


def examine(run: Run, parts: Parts, step: int, watch: Watch | None) -> None:
    assert parts.examine is not None
    row = parts.examine(step)
    run.log_eval(step, row)
    if watch:
        watch.examined(step, row)


def hooks(run: Run, parts: Parts, config, stop: Callable, watch: Watch | None,
          callback: Callable[[int, dict], None] | None) -> list[Callable[[Now], None]]:
    def samples(now: Now) -> None:
        if now.batch.scored:
            run.log_samples(now.step, list(sample_rows(now, parts)))

    def show(now: Now) -> None:
        if watch:
            watch.stepped(now.step, now.row, now.batch.scored)
        if callback:
            callback(now.step, dict(now.row))

    def examination(now: Now) -> None:
        if parts.examine and parts.every and (now.step % parts.every == 0 or now.step == config.steps):
            examine(run, parts, now.step, watch)

    def save(now: Now) -> None:
        asked = stop()
        if asked or now.step % config.save_every == 0 or now.step == config.steps:
            state = state_of(parts.models, parts.optim, parts.batches)
            policy = parts.models.policy
            under = base_name(parts.begins) if parts.begins and is_adapted(policy) else ""
            run.save(now.step,
                     lambda folder: write_state(folder, state, policy=policy, chat=parts.chat, base=under))
        if asked:
            raise Stopped(asked)

    return [samples, show, *parts.hooks, examination, save]


def sample_rows(now: Now, parts: Parts) -> Iterator[dict]:
    """The rollouts of a step's first groups, with what is known of each token."""
    rows = first_groups(now.batch)
    columns = {name: [values[i] for i in rows] for name, values in now.stats.columns.items()}
    columns["mask"] = [now.batch.mask[i] for i in rows]
    if "logp" in columns:
        columns["moved"] = [after - before[: len(after)] for before, after
                            in zip(columns["logp"], logp_after(now, parts, rows), strict=True)]
    for k, i in enumerate(rows):
        s = now.batch.scored[i]
        reply = slice(at := len(s.rollout.prompt_tokens), at + len(s.rollout.tokens))
        yield {"id": now.batch.ids[i], "prompt": s.rollout.prompt.question, "text": s.rollout.text,
               "tokens": parts.chat.pieces(s.rollout.tokens), "token_ids": list(s.rollout.tokens),
               "columns": {name: [round(x, 5) for x in values[k][reply].float().tolist()]
                           for name, values in columns.items()},
               "prompt_tokens": parts.chat.pieces(s.rollout.prompt_tokens),
               "score": s.verdict.score, "reason": s.verdict.error or s.verdict.reason,
               "parts": dict(s.verdict.parts), "finished": s.rollout.finished,
               "adv": mean_advantage(now.batch, i)}


def first_groups(batch: Batch, groups: int = 2) -> list[int]:
    """The rows of a batch's first prompts."""
    names = list(dict.fromkeys(s.rollout.prompt.id for s in batch.scored))[:groups]
    return [i for i, s in enumerate(batch.scored) if s.rollout.prompt.id in names]


@torch.no_grad()
def logp_after(now: Now, parts: Parts, rows: list[int]) -> list[torch.Tensor]:  # [T] each
    """What the policy says of the tokens of these rows after the update."""
    stats = Stats()
    for micro in pick(now.batch, rows).split(parts.optim.tokens_per_pass):
        stats.add(parts.objective(now.models, micro)[1])
    return stats.columns["logp"]


def mean_advantage(batch: Batch, row: int) -> float | None:
    """Over the trained tokens of a row; None where the method has no advantages (pairs, texts to imitate)."""
    if batch.adv is None:
        return None
    return float(batch.adv[row][batch.mask[row]].mean()) if batch.mask[row].any() else 0.0
