"""What every recipe shares: starting and resuming runs, the hooks that evaluate, show and save."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from postgrad import __version__, methods
from postgrad.chat import Chat
from postgrad.evaluate import evaluate
from postgrad.loop import Now, Optim, Stopped, restore, state_of, stop_on_signal, train
from postgrad.maths.noise import seed_of
from postgrad.models import Models, is_adapted
from postgrad.models.checkpoint import read_state, seed_everything, write_state
from postgrad.recipes.config import plain
from postgrad.recipes.opening import base_name, fingerprint, open_folder
from postgrad.records import Batch
from postgrad.rewards.base import check
from postgrad.run import Run
from postgrad.sampler import LocalSampler, Sampling


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How often a run is examined on held-out problems, and how thoroughly. every 0: never."""

    every: int = 0
    problems: int = 64
    samples: int = 4
    max_new_tokens: int | None = None   # None: as in the rollouts; 64 where there are none
    split: str = "validation"

    def __post_init__(self):
        if self.every < 0 or self.problems < 1 or self.samples < 1:
            raise ValueError(f"evaluation.every {self.every}, problems {self.problems}, samples {self.samples}: "
                             "expected every >= 0 and at least one problem and sample.")


def check_run(config, family: Sequence[str]) -> None:
    """What every recipe asks of its config: a method that it trains, and at least one step."""
    if config.method not in family:
        methods.get(config.method)  # a name that is no method at all gets a suggestion
        raise ValueError(f"method {config.method!r} is not trained by this recipe: it takes {', '.join(family)}.")
    if min(config.steps, config.save_every) < 1:
        raise ValueError(f"steps {config.steps} and save_every {config.save_every} must be at least 1.")


def no_adapter(config) -> None:
    """Of a recipe that trains all weights."""
    if config.optim.adapter.lora:
        raise ValueError("this recipe trains all weights: leave lora out.")


@dataclass
class Parts:
    """A run, taken apart: what `train` needs, and how to examine the policy (None: this recipe has nothing to examine)."""

    models: Models
    chat: Chat
    batches: object
    objective: object
    optim: Optim
    examine: Callable[[int], dict] | None = None
    every: int = 0


def grader_of(config) -> tuple[str, str] | None:
    """(model, rubric file or "") of reward="judge:MODEL" or "judge:MODEL:RUBRIC.txt"; None where no chat model grades."""
    named, _, rest = (getattr(config, "reward", None) or "").partition(":")
    model, _, rubric = rest.partition(":")
    if named.strip() != "judge":
        return None
    if not model:
        raise ValueError(f"reward={config.reward}: name the chat model that grades, e.g. reward=judge:tiny-chat.")
    return model, rubric


def judges_of(config) -> list[str]:
    """The names of the models that a config trains against: the one that grades, or reward models with commas between."""
    if grader := grader_of(config):
        return [grader[0]]
    return [name.strip() for name in (getattr(config, "reward", None) or "").split(",") if name.strip()]


def rubric_of(config) -> str | None:
    """The hash of the rubric file that a grading model is given; None where there is none."""
    _, rubric = grader_of(config) or ("", "")
    return hashlib.sha256(Path(rubric).read_bytes()).hexdigest() if rubric and Path(rubric).is_file() else None


def prove(task, split: str = "train", count: int = 8) -> None:
    """The verifier pays its own gold and not garbage; before any training."""
    if task.gold is not None:
        check(task.verify, [(p, task.gold(p)) for p in task.prompts(split, count, 0)], best=task.best)


def examiner(model, chat, task, evaluation: Evaluation, seed: int, max_new_tokens: int = 64,
             **measures) -> Callable[[int], dict]:
    """The same held-out problems at every examination, with samples drawn anew. measures: as `evaluate` takes them."""
    prompts = task.prompts(evaluation.split, evaluation.problems, seed_of(seed, "evaluation") % 2**31)
    sampler, settings = LocalSampler(model, chat), Sampling(max_new_tokens=evaluation.max_new_tokens or max_new_tokens)
    sampler.check(prompts, settings)
    return lambda step: evaluate(task, sampler, prompts, samples=evaluation.samples, settings=settings,
                                 seed=seed_of(seed, "evaluation", step), greedy=False, measures=measures)


def start(recipe: str, config, build: Callable, folder: Path | str, *, command: str = "", watch=None) -> Run:
    """A new run. Everything is built, and so checked, before the folder is made."""
    seed_everything(config.seed)
    begins_with = open_folder(config.model) if getattr(config, "model", None) else None
    parts = build(config, begins_with)
    facts = {"command": command, "version": __version__, "python": platform.python_version(), "torch": torch.__version__,
             "seed": config.seed, "begins_with": fingerprint(begins_with) if begins_with else None,
             "judged_by": [fingerprint(open_folder(name)) for name in judges_of(config)], "rubric": rubric_of(config)}
    names = {k: getattr(config, k) for k in ("method", "model", "task") if hasattr(config, k)}
    run = Run.create(folder, recipe=recipe, config=plain(config), steps=config.steps, **names, **facts)
    return carry_on(run, parts, config, watch)


def resume(run: Run, config, build: Callable, *, watch=None) -> Run:
    """Goes on from the newest sound checkpoint, or from the beginning where there is none, to the same bits."""
    expected = run.info.get("begins_with")
    folder = open_folder(config.model) if expected else None
    if expected and fingerprint(folder) != expected:  # before anything in the run is touched
        raise ValueError(f"the model this run began with has changed ({folder}), so it cannot go on to the same result: "
                         "put the old weights back, or start a new run.")
    for name, before in zip(judges_of(config), run.info.get("judged_by", ()), strict=True):
        if fingerprint(open_folder(name)) != before:
            kind = "grading" if grader_of(config) else "reward"
            raise ValueError(f"the {kind} model {name} has changed since this run began, so it cannot go on to the same "
                             "result: put the old one back, or start a new run.")
    if rubric_of(config) != run.info.get("rubric"):
        raise ValueError(f"the rubric {grader_of(config)[1]} has changed since this run began, so it cannot go on to the same "
                         "result: put the old one back, or start a new run.")
    seed_everything(config.seed)
    checkpoint = run.resume()
    parts = build(config, checkpoint or folder)
    if checkpoint:
        restore(read_state(checkpoint), parts.models, parts.optim, parts.batches)
    return carry_on(run, parts, config, watch)


def carry_on(run: Run, parts: Parts, config, watch) -> Run:
    """Trains to the end, or to a signal; says in the run folder how it ended."""
    try:
        with run.locked(), stop_on_signal() as stop:
            run.status("running")
            if parts.examine and parts.every and run.next_step == 1:
                examine(run, parts, 0, watch)
            train(parts.models, parts.batches, parts.objective, parts.optim, run, hooks(run, parts, config, stop, watch))
    except Stopped as end:
        run.status("stopped", error=str(end))
        raise
    except BaseException as error:
        run.status("failed", error=f"{type(error).__name__}: {error}")
        raise
    run.status("done")
    return run


def examine(run: Run, parts: Parts, step: int, watch) -> None:
    row = parts.examine(step)
    run.log_eval(step, row)
    if watch:
        watch.examined(step, row)


def hooks(run: Run, parts: Parts, config, stop: Callable, watch) -> list[Callable[[Now], None]]:
    def samples(now: Now) -> None:
        if now.batch.scored:
            run.log_samples(now.step, list(sample_rows(now, parts.chat)))

    def examination(now: Now) -> None:
        if parts.examine and parts.every and (now.step % parts.every == 0 or now.step == config.steps):
            examine(run, parts, now.step, watch)

    def show(now: Now) -> None:
        if watch:
            watch.stepped(now.step, now.row, now.batch.scored)

    def save(now: Now) -> None:
        asked = stop()
        if asked or now.step % config.save_every == 0 or now.step == config.steps:
            state = state_of(parts.models, parts.optim, parts.batches)
            policy = parts.models.policy
            under = base_name(config) if is_adapted(policy) else ""
            run.save(now.step, lambda folder: write_state(folder, state, policy=policy, chat=parts.chat, base=under))
        if asked:
            raise Stopped(asked)

    return [samples, show, examination, save]


def sample_rows(now: Now, chat: Chat, groups: int = 2):
    """The rollouts of a step's first groups, with what is known of each token."""
    shown: list[str] = []
    for i, s in enumerate(now.batch.scored):
        name = s.rollout.prompt.id
        if name not in shown:
            if len(shown) == groups:
                continue
            shown.append(name)
        at = len(s.rollout.prompt_tokens)
        columns = {key: [round(x, 5) for x in rows[i][at: at + len(s.rollout.tokens)].float().tolist()]
                   for key, rows in {**now.stats.columns, "mask": now.batch.mask}.items()}
        yield {"id": now.batch.ids[i], "prompt": s.rollout.prompt.question, "text": s.rollout.text,
               "tokens": chat.pieces(s.rollout.tokens), "token_ids": list(s.rollout.tokens), "columns": columns,
               "prompt_tokens": chat.pieces(s.rollout.prompt_tokens),
               "score": s.verdict.score, "reason": s.verdict.reason, "parts": dict(s.verdict.parts),
               "finished": s.rollout.finished, "adv": mean_advantage(now.batch, i)}


def mean_advantage(batch: Batch, row: int) -> float | None:
    """Over the trained tokens of a row; None where the method has no advantages (pairs, texts to imitate)."""
    if batch.adv is None:
        return None
    return float(batch.adv[row][batch.mask[row]].mean()) if batch.mask[row].any() else 0.0
