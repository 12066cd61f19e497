"""The oversight lab: who can watch over a model that knows more?

    postgrad train oversight

judge      a judge who may check one step says which of two answers to a word problem is right: alone, with a
           critic, with one who lies, between two opponents (judging.py; Irving et al. 2018, arXiv:1805.00899)
recovered  a strong student learns from a weak teacher's labels, mistakes and all: how much of the gap to what
           the truth would have taught it does it make up (Burns et al. 2023, arXiv:2312.09390)

weak      the model with layers left out, after SFT on chains that code wrote; it writes both answers, for it
          is wrong about as often as right
student   the model after SFT on what `weak` says of other problems
strong    the model after SFT on what code says of the same: the ceiling
critic    `strong` as a process model of what `weak` writes. Two point at steps: the critic, where its chance
          that all is right falls most, and `strong` itself, at what it would least have written
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from postgrad.data.tasks import load_task, word_problems
from postgrad.evaluation import passed, score_samples, with_interval
from postgrad.evaluation.progress import Progress
from postgrad.maths.intervals import mean_interval
from postgrad.maths.noise import seed_of
from postgrad.models import Decoder, load_scalar, save_model
from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.defaults import reply_tokens_for
from postgrad.recipes.pipelines import judging
from postgrad.recipes.pipelines.stages import CONVERSATIONS, Data, Done, Measurement, Pipeline, Stage, keep
from postgrad.recipes.process import ProcessConfig, Replies
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Prompt
from postgrad.resolve.models import open_folder, open_model
from postgrad.rewards.format import find_answer
from postgrad.rewards.model import ProcessReward
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import write_text
from postgrad.system.settings import COUNT, Settings, setting
from postgrad.training.optim import OptimSettings

PROBLEMS = tuple(word_problems.OPERATIONS)
LEARNERS = ("weak", "student", "strong")


@dataclass(frozen=True, kw_only=True)
class OversightLengths(Settings):
    """Optimizer steps of each run."""

    weak: int = setting(14, "of the weak teacher", "fewer for a weaker one", COUNT)
    student: int = setting(20, "of the student, and of the model that learns from the truth",
                           "more while the loss still falls", COUNT)
    critic: int = setting(40, "of the critic", "more where its accuracy still rises", COUNT)


@dataclass(frozen=True, kw_only=True)
class OversightData(Settings):
    """How much each learns from, and on how much all are measured."""

    lessons: int = setting(480, "problems whose worked answers teach the weak teacher", "fewer for a weaker "
                           "one", COUNT)
    labelled: int = setting(660, "problems that it labels for the student", "at least 32 a step, so that "
                            "none comes twice", COUNT)
    criticised: int = setting(300, "problems whose replies teach the critic", "more for a better critic",
                              COUNT)
    problems: int = setting(240, "fresh problems that all are measured on", "more: narrower intervals", COUNT)
    samples: int = setting(4, "replies to each, of which the judge sees a right and a wrong one",
                           "more where few problems have both", COUNT)

    prefix: ClassVar[str] = "gathered."


@dataclass(frozen=True, kw_only=True)
class OversightConfig(Settings):
    """A judge who may check one step, and a student of a weak teacher."""

    recipe: ClassVar[str] = "oversight"
    task: str = setting("words-hard", f"word problems: {', '.join(PROBLEMS)}",
                        "longer chains are harder to judge by one step")
    model: str = setting("tiny", "the strong model, before it has seen any label",
                         "to try a base of your own")
    layers: str = setting("0,1,3", "the layers of it that the weak teacher has, with commas between",
                          "fewer for a weaker teacher")
    lengths: OversightLengths = setting(group=OversightLengths)
    gathered: OversightData = setting(group=OversightData)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)

    def __post_init__(self):
        super().__post_init__()
        if self.task not in PROBLEMS:
            raise ValueError(f"task is {self.task!r}: its steps cannot be checked one by one; take one of "
                             f"{', '.join(PROBLEMS)}.")
        if not self.layers.replace(",", "").isdigit() or "" in self.layers.split(","):
            raise ValueError(f"layers is {self.layers!r}: expected numbers with commas between, from 0, e.g. "
                             "0,1,3.")

    @property
    def kept_layers(self) -> list[int]:
        return [int(x) for x in self.layers.split(",")]


def oversight_full() -> OversightConfig:
    """Minutes on two cores."""
    return OversightConfig()


def oversight_quick() -> OversightConfig:
    """A few steps of each run, to see that it works."""
    return OversightConfig(lengths=OversightLengths(weak=2, student=2, critic=2), gathered=OversightData(
        lessons=64, labelled=64, criticised=16, problems=8, samples=4))


SETTINGS = {"full": oversight_full, "quick": oversight_quick}


# what the runs learn from

def write_small(config: OversightConfig, out: Path, track: Progress) -> dict:
    """The model with layers left out, as a model folder."""
    model, chat = open_model(config.model, config.device)
    layers = config.kept_layers
    if max(layers) >= (has := model.config.num_hidden_layers):
        raise ValueError(f"layers is {config.layers!r}, and {config.model} has the layers 0 to {has - 1}.")
    small = Decoder(replace(model.config, num_hidden_layers=len(layers)))
    small.load_state_dict(model.state_dict(), strict=False)
    for mine, theirs in zip(small.model.layers, layers, strict=True):
        mine.load_state_dict(model.model.layers[theirs].state_dict())
    save_model(small, out.parent)
    chat.save(out.parent)
    return {"parameters": sum(p.numel() for p in small.parameters()),
            "of": sum(p.numel() for p in model.parameters())}


def oversight_problems(config: OversightConfig, part: str) -> list[Prompt]:
    """The training problems that are labelled, or those after them, from which the weak teacher learns."""
    many = config.gathered
    drawn = load_task(config.task).prompts("train", many.labelled + many.lessons, label_seed(config))
    return drawn[: many.labelled] if part == "truth" else drawn[many.labelled:]


def label_seed(config: OversightConfig) -> int:
    return seed_of(config.seed, "oversight") % 2**31


def write_lessons(part: str, config: OversightConfig, out: Path, track: Progress) -> dict:
    """Problems with the worked answers that code writes."""
    rows = [{"messages": [*map(dict, prompt.messages),
                          {"role": "assistant", "content": word_problems.gold(prompt)}]}
            for prompt in oversight_problems(config, part)]
    write_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return {"chains": len(rows)}


# the steps

def oversight_sft(config: OversightConfig, model: str, data: str, steps: int) -> SFTConfig:
    return SFTConfig(model=model, data=f"{{{data}}}/{CONVERSATIONS}", steps=steps, rows_per_step=32,
                     seed=config.seed, device=config.device, save_every=steps, rows=RowSettings(holdout=0.02))


def pipeline(config: OversightConfig) -> Pipeline:
    lengths, many = config.lengths, config.gathered
    critic = ProcessConfig(model="{strong}", generator="{weak}", task=config.task, steps=lengths.critic,
                           seed=config.seed, device=config.device, save_every=lengths.critic,
                           replies=Replies(problems=many.criticised),
                           optim=OptimSettings(lr=5e-4, schedule="linear", warmup=5),
                           evaluation=Evaluation(every=lengths.critic, problems=min(50, many.problems),
                                                 samples=4))
    return Pipeline(name="oversight", summarise=partial(oversight_summary, config), steps=[
        Data(name="small", given=config, write=write_small),
        Data(name="lessons", given=config, write=partial(write_lessons, "lessons")),
        Stage(name="weak", config=oversight_sft(config, "{small}", "lessons", lengths.weak),
              about="a weak teacher, from the truth"),
        keep("labels", model="{weak}", task=config.task, keep="best", samples=1, prompts=many.labelled,
             temperature=0.0, seed=label_seed(config), device=config.device),
        Data(name="truth", given=config, write=partial(write_lessons, "truth")),
        Stage(name="student", config=oversight_sft(config, config.model, "labels", lengths.student),
              about="a strong student, from the weak teacher's labels"),
        Stage(name="strong", config=oversight_sft(config, config.model, "truth", lengths.student),
              about="the same, from the truth"),
        Measurement(name="recovered", model=[config.model, *(f"{{{name}}}" for name in LEARNERS)],
                    figures=partial(recovered, config)),
        Stage(name="critic", config=critic, about="a critic of what the weak one writes: a process model"),
        Measurement(name="judge", model=["{weak}", "{strong}", "{critic}"], figures=partial(measure_judge,
                                                                                            config))])


# weak to strong

def recovered(config: OversightConfig, models: Sequence[str], track: Progress) -> dict:
    """The likeliest replies of base, teacher, student and ceiling to fresh problems.

    recovered: (student - weak) / (strong - weak), the performance gap recovered
    mended, copied: of the problems that the teacher gets wrong, how many the student gets right, and on how
        many it says what the teacher says
    """
    task, names = load_task(config.task), ("base", *LEARNERS)
    prompts = task.prompts("test", config.gathered.problems, config.seed)
    said: dict[str, list[str | None]] = {}
    right: dict[str, list[float]] = {}
    for name, model in zip(names, models, strict=True):
        policy, chat = open_model(model, config.device)
        greedy = Sampling(max_new_tokens=reply_tokens_for(task, policy), temperature=0.0)
        groups = score_samples(task, LocalSampler(policy, chat), prompts, 1, greedy, 0, track)
        right[name] = [float(passed(task, scored)) for (scored,) in groups]
        said[name] = [find_answer(scored.rollout.text) for (scored,) in groups]
    rows = [{"model": name, **with_interval("right", mean_interval(right[name], judging.SHARE))}
            for name in names]
    gap = judging.ratio_with_interval("recovered", *([b - a for a, b in zip(right["weak"], right[name],
                                                                            strict=True)]
                                       for name in ("student", "strong")))
    wrong = [i for i, hit in enumerate(right["weak"]) if not hit]
    return {"problems": len(prompts), "models": rows, **gap,
            "mended": mean_or_none([right["student"][i] for i in wrong]),
            "copied": mean_or_none([float(said["student"][i] == said["weak"][i]) for i in wrong])}


def mean_or_none(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# the judge

def measure_judge(config: OversightConfig, models: Sequence[str], track: Progress) -> dict:
    """The judge on pairs of fresh answers: of each problem that has both, a right and a wrong one in form."""
    task, many = load_task(config.task), config.gathered
    (writer, chat), (reader, _) = (open_model(name, config.device) for name in models[:2])
    critic = ProcessReward(load_scalar(open_folder(models[2]), device=config.device), chat, judging.step_ends,
                          device=config.device)
    groups = score_samples(task, LocalSampler(writer, chat), task.prompts("test", many.problems, config.seed),
                           many.samples, Sampling(max_new_tokens=reply_tokens_for(task, writer)),
                           seed_of(config.seed, "answers"), track)
    rng, shown = random.Random(seed_of(config.seed, "pairs")), []
    for group in groups:
        formed = [scored for scored in group if scored.verdict.parts["format"]]
        if chosen := judging.pick_pair([passed(task, scored) for scored in formed], rng):
            shown += [formed[i] for i in chosen]
    if not shown:
        return {"problems": len(groups), "pairs": 0, "critics": {}, "rows": []}
    rollouts, right = [s.rollout for s in shown], [passed(task, s) for s in shown]
    by_critic = judging.paired(rollouts, right, judging.fallen(critic, rollouts))
    by_reader = judging.paired(rollouts, right, judging.surprises(reader, rollouts, chat, config.device))
    seen = {"process model": by_critic, "strong model": by_reader,
            "who knows all": [judging.perfect(pair) for pair in by_critic]}
    return {"problems": len(groups), **judging.pair_facts(by_critic),
            "critics": {who: judging.skill(pairs) for who, pairs in seen.items()},
            "rows": judging.alone(by_critic) + [row for who, pairs in seen.items()
                                            for row in judging.pointed(pairs, who)]}


def oversight_summary(config: OversightConfig, done: Done) -> dict:
    """Both measurements, each with its table."""
    judge, gap = done.measured["judge"], done.measured["recovered"]
    gained = [{"model": row["model"], "right": row["right"], "right_interval": row["right_interval"]}
              for row in gap["models"]]
    return {"task": config.task, "model": config.model, "seed": config.seed, "small": done.data["small"],
            "judge": judge, "recovered": gap,
            "tables": {f"Which of two answers is right: {judge['pairs']} pairs, one check": judge["rows"],
                       f"Weak to strong: {gap['problems']} fresh problems": gained,
                       "The gap recovered": [{k: gap[k] for k in ("recovered", "recovered_interval",
                                                                  "mended", "copied")}]}}
