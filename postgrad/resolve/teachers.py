"""Who teaches: the model that a run names, or the one it starts from, shown a demonstration of a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from postgrad.data.tasks import Task
from postgrad.evaluation import against_first, judged_by_all, score_samples
from postgrad.models import Adapted, Decoder
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Reward
from postgrad.resolve.models import Model, ModelSource, open_model, open_reference
from postgrad.sampling import LocalSampler, Sampling

ALL = 100_000  # demonstrations that are looked through for those of a run's prompts

Again = Callable[[Prompt], Prompt]


def open_teacher(config, source: ModelSource, policy, chat: Chat) -> Decoder | Adapted | None:
    """The teacher of a run's row, standing still; None where the row has none."""
    row, named = config.row, config.teacher
    taught, shown = getattr(row, "teacher", False), getattr(row, "shown", False)
    if named is not None and (shown or not taught):
        why = "its teacher is the model itself" if shown else "it learns from no teacher"
        raise ValueError(f"{row.name} has no use for teacher={teacher_name(named)}: {why}; leave teacher "
                         "out, or train opd.")
    if not taught:
        return None
    if shown:
        return open_reference(config, source, policy)
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


def contents_of(messages: Sequence) -> tuple[str, ...]:
    return tuple(message["content"] for message in messages)


def prove_help(config, task: Task, sampler: LocalSampler, again: Again, reward: Reward) -> str:
    """A sentence on what demonstrations do for the model that a run starts from, on the problems of its
    evaluations, each asked with and without; refused where they do not help for certain, for then it has
    nothing to teach itself."""
    if not task.judged and config.reward is None:
        raise ValueError(f"{config.method.name} has to see that demonstrations help, and nobody judges the "
                         f"replies to {task.name}: say who does with reward=.")
    look = config.evaluation
    settings = Sampling(max_new_tokens=look.max_new_tokens or config.rollouts.budget)
    prompts = look.asked(task, config.seed)
    asked = [again(prompt) for prompt in prompts]
    sampler.check(asked, settings)
    figure, other = ("pass@1", None) if task.judged else ("reward", reward)
    samples = [score_samples(task, sampler, x, look.samples, settings, config.seed, reward=other)
               for x in (prompts, asked)]
    plain, shown = against_first(task, judged_by_all(task, samples))
    low, high = shown[f"{figure}_gain_interval"] or (-math.inf, math.inf)
    words = (f"shown a demonstration of each of {len(prompts)} held-out problems of {task.name}, the model "
             f"has a {figure} of {shown[figure]:.1%} in place of {plain[figure]:.1%} (a gain of {low:+.1%} "
             f"to {high:+.1%})")
    if not low > 0:
        raise ValueError(f"{words}: that is no gain for certain, so it has nothing to teach itself; train it "
                         "by sft on the demonstrations or by opd from a better model, or look at more "
                         f"problems (evaluation.problems={2 * look.problems}).")
    return words
