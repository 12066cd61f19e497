"""Evaluation from Python: how good a model is, and whether another is better. The commands `eval` and
`compare` use it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
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
from postgrad.evaluation.evaluate import ScoredSamples
from postgrad.recipes.defaults import reply_sampling
from postgrad.recipes.fit import Source, TaskLike, config_value
from postgrad.records import Reward
from postgrad.resolve.models import Model, open_writer
from postgrad.resolve.rewards import parse_reward, split_model_names
from postgrad.resolve.samplers import make_sampler
from postgrad.resolve.tasks import open_task
from postgrad.runs.display import progress
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler, Sampler, TokenSampler
from postgrad.sampling.checked import CheckedSampler
from postgrad.system.renamed import renamed_argument


class Evaluator:
    """The same problems for every model: a task, its reward, and the number of replies."""

    def __init__(self, task: TaskLike, reward: object, problems: int, samples: int, split: str, seed: int,
                 max_new_tokens: int | None, temperature: float, device: str, display: bool,
                 sampler: Sampler | str | None = None, template: str | None = None):
        if min(problems, samples) < 1:
            raise ValueError(f"problems {problems} and samples {samples} must be at least 1.")
        prompts = config_value("task", task)
        assert isinstance(prompts, Task | str | Iterable)
        self.task, self.reward = open_task(prompts, reward), config_value("reward", reward)
        self.prompts = self.task.prompts(split, problems, seed)
        if not self.prompts:
            raise ValueError(f"task {self.task.name} has no problems in its {split} part: choose another.")
        self.samples, self.seed, self.device, self.display = samples, seed, device, display
        self.max_new_tokens, self.temperature, self.sampler = max_new_tokens, temperature, sampler
        self.template = template

    def open(self, model: Source) -> Model:
        if isinstance(model, Model):
            return model
        name = str(config_value("model", model))
        net, chat = open_writer(name, self.device, self.template)
        return Model(net=net, chat=chat, name=name)

    def open_reward(self, model: Model) -> Reward:
        return parse_reward(self.reward).open_alone(self.task, model.chat, self.device)

    def rankers(self, rank_by: object, model: Model) -> dict[str, Reward]:
        """Each reward that ranks samples, by name."""
        parts = split_model_names(rank_by) if isinstance(rank_by, str) else rank_by
        rankers: dict[str, Reward] = {}
        for part in parts if isinstance(parts, Sequence) else [parts] if parts is not None else []:
            reward = config_value("reward", part)
            name = Path(reward).name if isinstance(reward, str) else getattr(reward, "__name__",
                                                                             "reward model")
            name = name if name not in rankers else f"{name} {len(rankers) + 1}"
            rankers[name] = parse_reward(reward).open_alone(self.task, model.chat, self.device)
        return rankers

    def open_sampler(self, model: Model) -> TokenSampler:
        if self.sampler is None:
            return LocalSampler(model.net, model.chat)
        own, shape = make_sampler(self.sampler, model.net, model.chat), model.net.config
        return CheckedSampler(own, model.chat, positions=shape.max_position_embeddings,
                              vocabulary=shape.vocab_size)

    def draw(self, model: Model, reward: Reward, greedy: bool) -> ScoredSamples:
        """The scored replies of a model; every problem has to fit the model with its reply."""
        settings = reply_sampling(self.task, model.net, self.max_new_tokens, self.temperature)
        sampler = sampler_for(self.task, self.open_sampler(model))
        sampler.check(self.prompts, settings)
        track = partial(progress, label=f"{model.name} on {self.task.name}") if self.display else iter
        return draw_samples(self.task, sampler, self.prompts, samples=self.samples, settings=settings,
                            seed=self.seed, greedy=greedy, reward=reward, track=track)


@renamed_argument("watch")
def evaluate(model: Source, task: TaskLike, *, reward: object = None, rank_by: object = None,
             problems: int = 200, samples: int = 8, split: str = "test", seed: int = 0,
             max_new_tokens: int | None = None, temperature: float = 1.0, greedy: bool = True,
             device: str = "cpu", display: bool = True, sampler: Sampler | str | None = None,
             template: str | None = None) -> JsonDict:
    """How good a model is at a task, and what more samples buy.

    Flat figures, each with its interval (pass@1, greedy, reward, distinct-2 ...), and `curve`: a row for
    k = 1, 2, 4 ... samples with pass@k, maj@k (majority vote; `no_vote` says why there is none) and best@k of
    each ranker.

    evaluate(run, "words", samples=64, rank_by="runs/reward"); evaluate("tiny-chat", prompts,
    reward=my_reward). reward: who judges, as in `fit`. rank_by: reward or process models that choose the best
    of several samples; each by itself. max_new_tokens: by default the task's, else by the model's size.
    display: progress is printed after two seconds. sampler: as in `fit`. template: of a base
    model, which has none.
    """
    began = time.perf_counter()
    evaluator = Evaluator(task, reward, problems, samples, split, seed, max_new_tokens, temperature, device,
                          display, sampler, template)
    opened, opened_task = evaluator.open(model), evaluator.task
    rankers, scorer = evaluator.rankers(rank_by, opened), evaluator.open_reward(opened)
    drawn = evaluator.draw(opened, scorer, greedy)
    rows, no_vote = compute_curve(opened_task, drawn.judged, rankers)
    return {"model": opened.name, "task": opened_task.name, "split": split, "seed": seed,
            **task_figures(opened_task, drawn), **diversity(opened_task, drawn.judged), "curve": rows,
            **({"no_vote": no_vote} if no_vote else {}), "seconds": time.perf_counter() - began}


@renamed_argument("watch")
def compare(*models: Source, task: TaskLike, reward: object = None, problems: int = 200, samples: int = 8,
            split: str = "test", seed: int = 0, max_new_tokens: int | None = None, temperature: float = 1.0,
            device: str = "cpu", display: bool = True) -> list[JsonDict]:
    """Models on the same problems, a row each: pass@1 and reward, and the paired difference of each to the
    first model, with intervals.

    Rows after the first test the difference of pass@1: p_value (an exact sign-flip test over problems), real,
    won, lost, problems_needed (where it may be chance, for 80 % power), by_problem, and `says`, a sentence.
    Problems on which some model has no verdict are left out of all, and counted in `unjudged`.

    compare("tiny-chat", run, task="words")[1]["says"]
    """
    if len(models) < 2:
        raise ValueError(f"compare needs two models at least; it was given {len(models)}.")
    evaluator = Evaluator(task, reward, problems, samples, split, seed, max_new_tokens, temperature, device,
                          display)
    opened_task, names, groups = evaluator.task, [], []
    for model in models:
        opened = evaluator.open(model)
        groups.append(evaluator.draw(opened, evaluator.open_reward(opened), greedy=False).groups)
        names.append(opened.name)
    judged = judged_by_all(opened_task, groups)
    count = len(judged[0])
    rows = [{"model": name, "task": opened_task.name, "split": split, "seed": seed, **row,
             "problems": count, "unjudged": len(evaluator.prompts) - count, "samples": samples}
            for name, row in zip(names, against_first(opened_task, judged), strict=True)]
    for row, second in zip(rows[1:], judged[1:], strict=True):
        row |= paired_test(opened_task, judged[0], second)
    return rows
