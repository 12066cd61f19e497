"""Who teaches: the model that a run names, or the one it starts from, shown a demonstration of a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from postgrad.data.tasks import Task
from postgrad.evaluation import against_first, judged_by_all, score_samples
from postgrad.methods import Method, Policy
from postgrad.models.chat import Chat
from postgrad.records import Message, Prompt, Reward
from postgrad.resolve.models import Model, ModelSettings, ModelSource, Trained, open_model, open_reference
from postgrad.sampling import LocalSampler, Sampling

ALL = 100_000  # demonstrations that are looked through for those of a run's prompts

Again = Callable[[Prompt], Prompt]


def open_teacher(row: Method, named: Model | str | None, config: ModelSettings, source: ModelSource,
                 policy: Trained, chat: Chat) -> Trained | None:
    """The frozen teacher of a row; None where the row has none."""
    taught, shown = (row.teacher, row.shown) if isinstance(row, Policy) else (False, False)
    if named is not None and (shown or not taught):
        why = "its teacher is the model itself" if shown else "it learns from no teacher"
        raise ValueError(f"{row.name} has no use for teacher={teacher_name(named)}: {why}; leave teacher "
                         "out, or train opd.")
    if not taught:
        return None
    return open_reference(config, source, policy) if shown else named_teacher(row, named, config, chat)


def named_teacher(row: Method, named: Model | str | None, config: ModelSettings, chat: Chat) -> Trained:
    if named is None:
        raise ValueError(f"{row.name} learns from a teacher, and none is named: say teacher=MODEL, a name, a "
                         "folder, a run or RUN@STEP.")
    net, theirs = (named.net.to(config.device), named.chat) if isinstance(named, Model) else \
        open_model(named, config.device, config.optim.adapter.bits, config.optim.dividing(config.device))
    if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab():
        raise ValueError(f"the teacher {teacher_name(named)} has another tokenizer than the policy, so it "
                         "would misread its tokens: take a teacher of the same family.")
    return net.requires_grad_(False)


def teacher_name(teacher: Model | str) -> str:
    return teacher.name if isinstance(teacher, Model) else teacher


# demonstrations

def asked_again(prompt: Prompt, demonstration: str) -> Prompt:
    """A prompt that was answered once and is asked again: question, demonstration, question."""
    answered = {"role": "assistant", "content": demonstration}
    return replace(prompt, messages=(*prompt.messages, answered, prompt.messages[-1]))


def ask_with_demonstration(task: Task, seed: int) -> Again:
    """How a prompt of the task is asked with its demonstration: its gold, else the reply that the task's
    demonstrations have for it."""
    task.of_one_reply("a teacher that is shown a demonstration")
    if task.gold is not None:
        gold = task.gold
        return lambda prompt: asked_again(prompt, gold(prompt))
    if task.demonstrations is None:
        raise ValueError(f"task {task.name} has neither gold nor demonstrations, and a teacher has to be "
                         "shown one: give the task gold(prompt) or demonstrations.")
    talks = [talk for split in ("train", "validation") for talk in task.demonstrations(split, ALL, seed)]
    replies = {contents_of(talk.messages[:-1]): talk.messages[-1]["content"] for talk in talks}

    def again(prompt: Prompt) -> Prompt:
        if contents_of(prompt.messages) not in replies:
            raise ValueError(f"{prompt.place} has no demonstration: give every prompt of {task.name} one, or "
                             "the task gold(prompt).")
        return asked_again(prompt, replies[contents_of(prompt.messages)])

    return again


def contents_of(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(message["content"] for message in messages)


def prove_help(row: Method, task: Task, sampler: LocalSampler, again: Again, prompts: Sequence[Prompt],
               reward: Reward | None, *, samples: int, settings: Sampling, seed: int) -> str:
    """A sentence on what demonstrations gain the model that a run starts from: held-out prompts are sampled
    with and without. Raises ValueError where the gain's interval includes 0: it has nothing to teach itself.

    reward: the run's own; None: the task's verifier.
    """
    if not task.judged and reward is None:
        raise ValueError(f"{row.name} has to see that demonstrations help, and nobody judges the "
                         f"replies to {task.name}: say who does with reward=.")
    asked = [again(prompt) for prompt in prompts]
    sampler.check(asked, settings)
    figure, other = ("pass@1", None) if task.judged else ("reward", reward)
    drawn = [score_samples(task, sampler, x, samples, settings, seed, reward=other) for x in (prompts, asked)]
    plain, shown = against_first(task, judged_by_all(task, drawn))
    interval = shown[f"{figure}_gain_interval"]
    low, high = interval if isinstance(interval, list) else (-math.inf, math.inf)
    words = (f"shown a demonstration of each of {len(prompts)} held-out problems of {task.name}, the model "
             f"has a {figure} of {shown[figure]:.1%} in place of {plain[figure]:.1%} (a gain of {low:+.1%} "
             f"to {high:+.1%})")
    if not low > 0:
        raise ValueError(f"{words}: that is no gain for certain, so it has nothing to teach itself; train it "
                         "by sft on the demonstrations or by opd from a better model, or look at more "
                         f"problems (evaluation.problems={2 * len(prompts)}).")
    return words
