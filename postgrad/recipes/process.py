"""Process reward models score every step of a reply, outcome reward models the reply; on the same replies.

    postgrad train process:words                    labels: is all right after this step?
    postgrad train outcome:words                    labels: is the answer right?
    postgrad train process:words generator=RUN      on the replies of another model than the trained one
    postgrad train ppo:words reward=RUN             what they are for

The replies are samples of a model, so that the mistakes are those a model makes; the task labels them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch

from postgrad import methods
from postgrad.data.tasks import Task
from postgrad.evaluation.evaluate import Figures
from postgrad.maths.intervals import mean_interval
from postgrad.maths.noise import seed_of
from postgrad.methods import Method
from postgrad.models import Models, ScalarModel
from postgrad.models.chat import Chat
from postgrad.recipes.base import (
    METHOD,
    SAVE,
    STEPS,
    Evaluation,
    RunConfig,
    TrainingSetup,
    check_task,
    refuse_adapter,
)
from postgrad.records import Batch, Rollout, Step
from postgrad.resolve.models import ModelSource, open_reward, open_writer
from postgrad.rewards.base import VerifierReward, score_groups
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import COUNT, Settings, setting
from postgrad.training import objectives
from postgrad.training.batches import LabelledReply, StepBatches
from postgrad.training.batches.offline import label_reply
from postgrad.training.optim import Optim, OptimSettings

# by label, right or wrong: 1 where the sign of the score is the label, 0 where not, 0.5 where the score is 0
Hits = dict[bool, list[float]]


@dataclass(frozen=True, kw_only=True)
class Replies(Settings):
    """The labelled replies."""

    problems: int = setting(800, "problems of the training replies",
                            "more where the held-out accuracy is far below that of the step", within=COUNT)
    samples: int = setting(4, "replies to each problem", "more where most replies to a problem are alike, "
                           "right or wrong; other problems teach more", within=COUNT)
    per_step: int = setting(32, "replies in a step", "more: a steadier gradient", within=COUNT)
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; none: as the task says, else by "
                                         "the model's size",
                                         "more where replies are cut: their ends have no label")
    temperature: float = setting(1.0, "of the sampling; 1 is the model's own distribution",
                                 "above 1 where the generator makes too few mistakes to learn from")

    prefix: ClassVar[str] = "replies."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sampling()  # checks its settings

    def sampling(self) -> Sampling:
        return Sampling(max_new_tokens=64 if self.max_new_tokens is None else self.max_new_tokens,
                        temperature=self.temperature)


@dataclass(frozen=True, kw_only=True)
class ProcessConfig(RunConfig):
    """One run that trains a process or outcome reward model."""

    recipe: ClassVar[str] = "process"
    model: str = setting("tiny-chat", "the body that is trained",
                         "to check the reasoning of a model of your own: that model, or one of its family")
    generator: str | None = setting(None,
                                    "the model whose replies are labelled; none: the model before training",
                                    "the policy that will be checked, where it is another than the body")
    method: Method = setting(methods.get_method("process"), *METHOD, resolve=methods.method_from_config)
    replies: Replies = setting(group=Replies)
    steps: int = setting(100, *STEPS)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear", warmup=5))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=25, problems=100))
    save_every: int = setting(25, *SAVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_adapter(self.optim)
        if self.task is None:
            raise ValueError(f"{self.method.name} needs problems whose replies can be checked: name a task "
                             "with task=NAME.")

    reply_group: ClassVar[str] = "replies"

    @property
    def reply_limit(self) -> int | None:
        return self.replies.max_new_tokens

    @property
    def by_step(self) -> bool:
        """Whether every step is labelled, not the reply alone."""
        return self.method.source == "steps"


def process_on_words() -> ProcessConfig:
    """Word problems of two to four operations."""
    return ProcessConfig(task="words")


def process_on_hard_words() -> ProcessConfig:
    """Word problems of four to six operations."""
    return ProcessConfig(task="words-hard")


SETTINGS = {"words": process_on_words, "hard": process_on_hard_words}


def build(config: ProcessConfig, source: ModelSource) -> TrainingSetup:
    task = config.open_task()
    task.of_one_reply("an outcome or process model")
    check_task(task)
    model, chat = open_reward(source.weights, config.device, divide=config.optim.dividing(config.device))
    model.head = "process" if config.by_step else "outcome"
    generator, how = ReplyGenerator(config, chat, config.generator or source.origin), config.evaluation
    make = partial(StepBatches, seed=config.seed, max_tokens=model.config.max_position_embeddings,
                   device=config.device)
    drawn = generator.replies(task, "train", config.replies.problems, config.replies.samples)
    labelled = label_replies(config.by_step, task, drawn, chat)
    models = Models(policy=model)
    setup = TrainingSetup(models=models, chat=chat,
                          batches=make(labelled, per_step=config.replies.per_step, steps=config.steps),
                          objective=objectives.build_objective(config.method),
                          optim=Optim(models, config.optim, config.steps),
                          notes=unlabelled_note(len(drawn), len(labelled)))
    if how.every:
        held_out = label_replies(config.by_step, task,
                                 generator.replies(task, how.split, how.problems, how.samples), chat)
        (batch,) = make(held_out, per_step=len(held_out), steps=1)
        setup.evaluate_every = how.every
        setup.evaluate = lambda step: evaluate_labels(model, batch, config.optim.at_once)
    return setup


class ReplyGenerator:
    """The model whose replies are labelled. They are a function of (seed, split): a resumed run labels the
    same ones."""

    def __init__(self, config: ProcessConfig, chat: Chat, name: str | Path):
        model, theirs = open_writer(name, config.device)
        if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or theirs.template != chat.template:
            raise ValueError(f"the generator {name} has another tokenizer or chat template than the model "
                             f"{config.model}, so its tokens would be misread: take a generator trained from "
                             "the same model.")
        self.sampler = LocalSampler(model, chat)
        self.settings = config.replies.sampling()
        self.seed = config.seed

    def replies(self, task: Task, split: str, problems: int, samples: int) -> list[Rollout]:
        seed = seed_of(self.seed, "replies", split)
        groups = self.sampler.sample(task.prompts(split, problems, seed % 2**31), samples, self.settings,
                                     seed)
        return [r for group in groups for r in group]


def label_replies(by_step: bool, task: Task, replies: Sequence[Rollout], chat: Chat) -> list[LabelledReply]:
    """Replies with the labels of their steps (process), or one label at the end (outcome), on their tokens.

    A reply that the verifier failed on has no label, and is left out.
    """
    if by_step and task.steps is None:
        raise ValueError(f"task {task.name} cannot check the steps of a reply: train an outcome model "
                         "(outcome), or give the task a `steps`.")
    if by_step and task.steps is not None:
        return [label_reply(r, task.steps(r.prompt, r.text), chat) for r in replies]
    assert task.verify is not None
    (rows,) = score_groups(VerifierReward(task.verify, task.waits), [replies])
    return [label_reply(s.rollout, [Step(end=len(s.rollout.text), right=s.verdict.score >= task.best,
                                         reason=s.verdict.reason)], chat) for s in rows if s.verdict.given]


def unlabelled_note(replies: int, labelled: int) -> tuple[str, ...]:
    without = replies - labelled
    return (f"{without} of {replies} replies could not be judged, and are left out.",) if without else ()


@torch.no_grad()
def evaluate_labels(model: ScalarModel, held_out: Batch, tokens_per_pass: int) -> Figures:
    """How often the sign of the score is the label, on held-out replies."""
    hits: dict[str, Hits] = {}
    for micro in held_out.split(tokens_per_pass):
        assert micro.label is not None
        agrees = micro.label * model.token_scores(micro.tokens, packed=micro.packed)
        for i, name in enumerate(micro.ids):
            of_problem = hits.setdefault(name, {True: [], False: []})
            for x, label in zip(agrees[i][micro.mask[i]].tolist(), micro.label[i][micro.mask[i]].tolist(),
                                strict=True):
                of_problem[label > 0].append(0.5 if x == 0 else float(x > 0))
    return label_figures(hits)


def label_figures(hits: Mapping[str, Hits]) -> Figures:
    """Accuracy on all labels, on the right ones and on the wrong ones; their mean, balanced, with its
    interval over problems.

    Labels of one problem are not independent, so the interval is that of a ratio of sums over problems,
    linearised: a share S = sum_i h_i / sum_i n_i moves with problem i by (h_i - S n_i) / mean(n).
    """
    count = {side: sum(len(x[side]) for x in hits.values()) for side in (True, False)}
    share = {side: sum(sum(x[side]) for x in hits.values()) / count[side] for side in count if count[side]}
    balanced = sum(share.values()) / len(share)
    shifts = [sum((sum(x[side]) - s * len(x[side])) * len(hits) / count[side] for side, s in share.items())
              / len(share) for x in hits.values()]
    _, low, high = mean_interval([balanced + shift for shift in shifts], (0.0, 1.0))
    names = {True: "accuracy_right", False: "accuracy_wrong"}
    return {"accuracy": sum(share[side] * count[side] for side in share) / sum(count.values()),
            "balanced_accuracy": balanced, "balanced_accuracy_interval": [low, high],
            "right_steps": count[True] / sum(count.values()), "problems": len(hits),
            **{names[side]: s for side, s in share.items()}}
