"""The door from Python, for measuring: how good a model is, and whether another is better. The commands
`eval` and `compare` go through it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from postgrad.data.environments import sampler_for
from postgrad.data.tasks import Task
from postgrad.evaluation import (
    against_first,
    compute_curve,
    diversity,
    draw_samples,
    judged_by_all,
    paired_test,
    task_figures,
)
from postgrad.evaluation.progress import Progress
from postgrad.recipes.defaults import reply_tokens_for
from postgrad.recipes.fit import Source, as_given
from postgrad.records import Reward
from postgrad.resolve.models import Model, open_writer
from postgrad.resolve.rewards import parse_reward, split_model_names
from postgrad.resolve.samplers import make_sampler
from postgrad.resolve.tasks import open_task
from postgrad.runs.display import progress
from postgrad.sampling import LocalSampler, Sampler, Sampling, TokenSampler
from postgrad.sampling.checked import CheckedSampler
from postgrad.system.renamed import renamed_argument


class Measured:
    """The same problems for every model that is measured: a task, who judges it, and how many replies."""

    def __init__(self, task, reward, problems: int, samples: int, split: str, seed: int,
                 max_new_tokens: int | None, temperature: float, device: str, display: bool,
                 sampler: Sampler | str | None = None):
        if min(problems, samples) < 1:
            raise ValueError(f"problems {problems} and samples {samples} must be at least 1.")
        self.task, self.reward = open_task(as_given("task", task), reward), as_given("reward", reward)
        self.prompts = self.task.prompts(split, problems, seed)
        if not self.prompts:
            raise ValueError(f"task {self.task.name} has no problems in its {split} part: choose another.")
        self.samples, self.seed, self.device, self.display = samples, seed, device, display
        self.max_new_tokens, self.temperature, self.sampler = max_new_tokens, temperature, sampler

    def open(self, model: Source) -> Model:
        if isinstance(model, Model):
            return model
        name = as_given("model", model)
        net, chat = open_writer(name, self.device)
        return Model(net=net, chat=chat, name=name)

    def open_reward(self, model: Model) -> Reward:
        return parse_reward(self.reward).open_alone(self.task, model.chat, self.device)

    def rankers(self, rank_by: object, model: Model) -> dict[str, Reward]:
        """Who chooses the best of several samples, by name; each alone."""
        parts = split_model_names(rank_by) if isinstance(rank_by, str) else rank_by
        named: dict[str, Reward] = {}
        for part in parts if isinstance(parts, Sequence) else [parts] if parts is not None else []:
            given = as_given("reward", part)
            name = Path(given).name if isinstance(given, str) else getattr(given, "__name__", "reward model")
            name = name if name not in named else f"{name} {len(named) + 1}"
            named[name] = parse_reward(given).open_alone(self.task, model.chat, self.device)
        return named

    def open_sampler(self, model: Model) -> TokenSampler:
        if self.sampler is None:
            return LocalSampler(model.net, model.chat)
        own, shape = make_sampler(self.sampler, model.net, model.chat), model.net.config
        return CheckedSampler(own, model.chat, positions=shape.max_position_embeddings,
                              vocabulary=shape.vocab_size)

    def draw(self, model: Model, reward: Reward, greedy: bool):
        """The replies of a model, judged; every problem has to fit the model with its reply."""
        asked = self.max_new_tokens
        tokens = reply_tokens_for(self.task, model.net) if asked is None else asked
        settings = Sampling(max_new_tokens=tokens, temperature=self.temperature)
        sampler = sampler_for(self.task, self.open_sampler(model))
        sampler.check(self.prompts, settings)
        return draw_samples(self.task, sampler, self.prompts, samples=self.samples, settings=settings,
                            seed=self.seed, greedy=greedy, reward=reward,
                            track=tracked(self.display, model, self.task))


def tracked(display: bool, model: Model, task: Task) -> Progress:
    """How a measurement shows how far it is."""
    return partial(progress, label=f"{model.name} on {task.name}") if display else iter


@renamed_argument("watch")
def evaluate(model: Source, task, *, reward=None, rank_by=None, problems: int = 200, samples: int = 8,
             split: str = "test", seed: int = 0, max_new_tokens: int | None = None, temperature: float = 1.0,
             greedy: bool = True, device: str = "cpu", display: bool = True,
             sampler: Sampler | str | None = None) -> dict:
    """How good a model is at a task, and what more samples buy.

    Flat figures, each with its interval (pass@1, greedy, reward, distinct-2 ...), and `curve`: a row for
    1, 2, 4 ... samples spent with pass@k, maj@k (the most frequent answer; `no_vote` says why there is none)
    and best@k of each ranker.

    evaluate(run, "words", samples=64, rank_by="runs/reward"); evaluate("tiny-chat", prompts,
    reward=my_reward). reward: who judges, as in `fit`. rank_by: reward or process models that choose the best
    of several samples; each alone. max_new_tokens: by default as the task says, else by the model's size.
    display: progress is printed once it has taken two seconds. sampler: one of yours, as in `fit`.
    """
    began = time.perf_counter()
    asked = Measured(task, reward, problems, samples, split, seed, max_new_tokens, temperature, device,
                     display, sampler)
    opened = asked.open(model)
    rankers, scorer = asked.rankers(rank_by, opened), asked.open_reward(opened)
    drawn = asked.draw(opened, scorer, greedy)
    rows, no_vote = compute_curve(asked.task, drawn.judged, rankers)
    return {"model": opened.name, "task": asked.task.name, "split": split, "seed": seed,
            **task_figures(asked.task, drawn), **diversity(asked.task, drawn.judged), "curve": rows,
            **({"no_vote": no_vote} if no_vote else {}), "seconds": time.perf_counter() - began}


@renamed_argument("watch")
def compare(*models: Source, task, reward=None, problems: int = 200, samples: int = 8, split: str = "test",
            seed: int = 0, max_new_tokens: int | None = None, temperature: float = 1.0,
            device: str = "cpu", display: bool = True) -> list[dict]:
    """Models on the same problems, a row each: pass@1 and reward, and how much more of each than the first
    model, problem by problem, with the intervals.

    Rows after the first say whether their pass@1 really differs: p_value (an exact sign-flip test over
    problems), real, won, lost, problems_needed (where it may be chance, and 80 % power), by_problem, and
    `says`, a sentence. Problems on which some model has no verdict are left out of all, and counted in
    `unjudged`.

    compare("tiny-chat", run, task="words")[1]["says"]
    """
    if len(models) < 2:
        raise ValueError(f"compare needs two models at least; it was given {len(models)}.")
    asked = Measured(task, reward, problems, samples, split, seed, max_new_tokens, temperature, device,
                     display)
    names: list[str] = []
    drawn: list[list[list]] = []
    for model in models:
        opened = asked.open(model)
        drawn.append(asked.draw(opened, asked.open_reward(opened), greedy=False).groups)
        names.append(opened.name)
    judged = judged_by_all(asked.task, drawn)
    kept = len(judged[0])
    rows = [{"model": name, "task": asked.task.name, "split": split, "seed": seed, **row,
             "problems": kept, "unjudged": len(asked.prompts) - kept, "samples": samples}
            for name, row in zip(names, against_first(asked.task, judged), strict=True)]
    for row, groups in zip(rows[1:], judged[1:], strict=True):
        row |= paired_test(asked.task, judged[0], groups)
    return rows
