"""The oversight lab: who can watch over a model that knows more?

    postgrad train examples/labs/oversight.py
    postgrad train examples/labs/oversight.py:quick seed=1

judge      a judge who may check one step says which of two answers to a word problem is right (Irving,
           Christiano & Amodei 2018, arXiv:1805.00899)
recovered  a strong student learns from a weak teacher's labels, mistakes and all: the share of the gap to the
           ceiling that it recovers (Burns et al. 2023, arXiv:2312.09390)

weak      the model with layers left out, after SFT on chains that code wrote; it writes both answers, for it
          is wrong about as often as right
student   the model after SFT on the replies of `weak` to other problems
strong    the model after SFT on the worked answers to the same problems: the ceiling
critic    a process model of the replies of `weak`, trained from `strong`

The two answers are to one problem, one right and one wrong. The protocol says which step is checked:
    alone       any step of either answer, or the last step of either
    critic      the step that a critic points at
    opponents   each answer has an advocate, who points at a step of the other answer; a coin says at which
                of the two the judge looks
Two critics point: the process model, where its chance that all is right falls most, and `strong`, at the
token that it finds least likely. The judge decides from the check alone: a step that does not hold speaks
against its answer. A step that holds speaks for its answer by `trust`: at 1 the judge believes it, at 0.5 he
throws a coin.

This is debate in its smallest form: one statement each, and a judge who can verify one leaf. Left out on
purpose: statements that answer each other, and advocates that are trained to win.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from postgrad.data.tasks import load_task, word_problems
from postgrad.evaluation import mean_of, passed, score_samples, with_interval
from postgrad.evaluation.progress import Progress
from postgrad.maths.intervals import mean_interval, ratio_interval
from postgrad.maths.noise import seed_of
from postgrad.models import Decoder, load_scalar, save_model
from postgrad.models.chat import Chat
from postgrad.models.protocols import LanguageModel
from postgrad.recipes.base import DEVICE, SEED, Evaluation
from postgrad.recipes.defaults import reply_sampling
from postgrad.recipes.pipelines.stages import CONVERSATIONS, Data, Done, Measurement, Pipeline, Stage, keep
from postgrad.recipes.process import ProcessConfig, Replies
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Prompt, Rollout
from postgrad.resolve.models import open_folder, open_model
from postgrad.rewards.format import find_answer
from postgrad.rewards.model import ProcessReward
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler
from postgrad.system.files import write_text
from postgrad.system.settings import COUNT, Settings, setting
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.optim import OptimSettings

PROBLEMS = tuple(word_problems.OPERATIONS)
LEARNERS = ("weak", "student", "strong")
SHARE = (0.0, 1.0)
AT_ONCE = 8192  # tokens that are read in a pass
BELIEVES, DOUBTS = 1.0, 0.5  # trust in an answer of which one step holds


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

    def __post_init__(self) -> None:
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

def write_small(config: OversightConfig, out: Path, track: Progress) -> JsonDict:
    """The model with layers left out, as a model folder."""
    model, chat = open_model(config.model, config.device)
    if not isinstance(model, Decoder):
        raise ValueError(f"model is {config.model!r}, an architecture whose layers cannot be left out here.")
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


def write_lessons(part: str, config: OversightConfig, out: Path, track: Progress) -> JsonDict:
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

def recovered(config: OversightConfig, models: Sequence[str], track: Progress) -> JsonDict:
    """Greedy replies of base, teacher, student and ceiling to fresh problems.

    recovered: (student - weak) / (strong - weak), the performance gap recovered
    mended, copied: of the problems that the teacher gets wrong, the share that the student gets right, and
        the share on which it gives the teacher's answer
    """
    task, names = load_task(config.task), ("base", *LEARNERS)
    prompts = task.prompts("test", config.gathered.problems, config.seed)
    answers: dict[str, list[str | None]] = {}
    right: dict[str, list[float]] = {}
    for name, model in zip(names, models, strict=True):
        policy, chat = open_model(model, config.device)
        greedy = reply_sampling(task, policy, temperature=0.0)
        groups = score_samples(task, LocalSampler(policy, chat), prompts, 1, greedy, 0, track)
        right[name] = [float(passed(task, scored)) for (scored,) in groups]
        answers[name] = [find_answer(scored.rollout.text) for (scored,) in groups]
    rows = [{"model": name, **with_interval("right", mean_interval(right[name], SHARE))}
            for name in names]
    gains = ([b - a for a, b in zip(right["weak"], right[name], strict=True)]
             for name in ("student", "strong"))
    gap = ratio_with_interval("recovered", *gains)
    wrong = [i for i, hit in enumerate(right["weak"]) if not hit]
    return {"problems": len(prompts), "models": rows, **gap,
            "mended": mean_or_none([right["student"][i] for i in wrong]),
            "copied": mean_or_none([float(answers["student"][i] == answers["weak"][i]) for i in wrong])}


def mean_or_none(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# protocols: what a judge checks

@dataclass(frozen=True, kw_only=True)
class Answer:
    """The steps of an answer; the last step is the answer itself.

    Answer(right=False, holds=(True, False, True), suspicion=(0.0, 0.9, 0.05))
    holds: the result of a check of each step. suspicion: the critic's, in any unit.
    """

    right: bool
    holds: tuple[bool, ...]
    suspicion: tuple[float, ...]

    @property
    def worst(self) -> int:
        """The step that the critic suspects most."""
        return max(range(len(self.suspicion)), key=self.suspicion.__getitem__)


Pair = tuple[Answer, Answer]
Check = tuple[float, int, int]  # the chance that it is made, the answer, the step
Protocol = Callable[[Pair], list[Check]]


def suspected(pair: Pair) -> int:
    """The answer that the critic takes for wrong: the one with the most suspected step."""
    return max(range(2), key=lambda i: max(pair[i].suspicion))


def check_any_step(pair: Pair) -> list[Check]:
    return [(0.5 / len(answer.holds), i, k) for i, answer in enumerate(pair)
            for k in range(len(answer.holds))]


def check_last_step(pair: Pair) -> list[Check]:
    return [(0.5, i, len(answer.holds) - 1) for i, answer in enumerate(pair)]


def pointed_by_critic(pair: Pair) -> list[Check]:
    """Points at the most suspected step."""
    i = suspected(pair)
    return [(1.0, i, pair[i].worst)]


def liar(pair: Pair) -> list[Check]:
    """Points at the least suspected step of the answer that the critic takes for wrong, to make the judge
    believe it."""
    i = suspected(pair)
    return [(1.0, i, min(range(len(pair[i].suspicion)), key=pair[i].suspicion.__getitem__))]


def opponents(pair: Pair) -> list[Check]:
    """Each advocate points at the most suspected step of the other answer. The advocate of the wrong answer
    lies wherever he points."""
    return [(0.5, i, answer.worst) for i, answer in enumerate(pair)]


ALONE: dict[str, Protocol] = {"alone, any step": check_any_step, "alone, the last step": check_last_step}
POINTED: dict[str, Protocol] = {"critic": pointed_by_critic, "lying critic": liar, "two opponents": opponents}


def decided(pair: Pair, protocol: Protocol, trust: float) -> float:
    """The probability that the judge decides for the right answer, over his coins."""
    for_checked = [(chance, pair[i].right, trust if pair[i].holds[k] else 0.0)
                   for chance, i, k in protocol(pair)]
    return sum(chance * (taken if right else 1 - taken) for chance, right, taken in for_checked)


def perfect(pair: Pair) -> Pair:
    """The pair with the suspicions of a critic who knows every mistake of the wrong answer."""
    first, second = (replace(a, suspicion=tuple(float(not a.right and not x) for x in a.holds)) for a in pair)
    return first, second


def pick_pair(right: Sequence[bool], rng: random.Random) -> tuple[int, int] | None:
    """A right and a wrong one of several answers to a problem, in random order; None where all are alike."""
    sides = [[i for i, x in enumerate(right) if x is side] for side in (True, False)]
    if not all(sides):
        return None
    first, second = rng.sample([rng.choice(side) for side in sides], 2)
    return first, second


# answers as critics see them

def paired(rollouts: Sequence[Rollout], right: Sequence[bool],
           suspicion: Sequence[tuple[float, ...]]) -> list[Pair]:
    """The answers two by two, with a critic's suspicions."""
    answers = [Answer(right=x, holds=tuple(word_problems.check_steps(r.prompt, r.text)), suspicion=s)
               for r, x, s in zip(rollouts, right, suspicion, strict=True)]
    return list(zip(answers[::2], answers[1::2], strict=True))


def step_ends(rollout: Rollout) -> list[int]:
    return [step.end for step in word_problems.label_chain(rollout.prompt, rollout.text)]


def fallen(critic: ProcessReward, rollouts: Sequence[Rollout]) -> list[tuple[float, ...]]:
    """The fall of the critic's probability that all is right, at each step; it starts at 1."""
    falls = []
    for rollout, (places, chances) in zip(rollouts, critic.chances(rollouts), strict=True):
        chance = dict(zip(places, chances, strict=True))
        so_far = [1.0, *(chance[place] for place in critic.chat.places(rollout.tokens, step_ends(rollout)))]
        falls.append(tuple(a - b for a, b in pairwise(so_far)))
    return falls


def surprises(reader: LanguageModel, rollouts: Sequence[Rollout], chat: Chat,
              device: str) -> list[tuple[float, ...]]:
    """The largest -log p of a token under the reader, at each step."""
    batch = rollout_batch(rollouts).to(device)
    logp, _ = model_logp(reader, batch, AT_ONCE)
    largest = []
    for row, mask, rollout in zip(logp, batch.mask, rollouts, strict=True):
        surprise = (-row[mask]).tolist()
        cuts = [0, *(place + 1 for place in chat.places(rollout.tokens, step_ends(rollout)))]
        largest.append(tuple(max(surprise[a:b], default=0.0) for a, b in pairwise(cuts)))
    return largest


# figures

def accuracy(pairs: Sequence[Pair], protocol: Protocol) -> JsonDict:
    """The accuracy of the believing and of the doubting judge, with intervals over problems."""
    return {key: value for name, trust in (("believing", BELIEVES), ("doubting", DOUBTS))
            for key, value in with_interval(name, mean_interval([decided(pair, protocol, trust)
                                                                 for pair in pairs], SHARE)).items()}


def alone(pairs: Sequence[Pair]) -> list[JsonDict]:
    return [{"judge": name, **accuracy(pairs, protocol)} for name, protocol in ALONE.items()]


def pointed(pairs: Sequence[Pair], who: str) -> list[JsonDict]:
    """A row for each protocol in which somebody points. who: the critic's name."""
    return [{"judge": f"{name}: {who}", **accuracy(pairs, protocol)} for name, protocol in POINTED.items()]


def ratio_with_interval(name: str, tops: Sequence[float], bottoms: Sequence[float]) -> JsonDict:
    """mean(tops) / mean(bottoms) and its interval; None where the ratio is undefined."""
    ratio = ratio_interval(tops, bottoms)
    return {name: None, f"{name}_interval": None} if math.isnan(ratio[0]) else with_interval(name, ratio)


def pair_facts(pairs: Sequence[Pair]) -> JsonDict:
    """steps: of an answer. mistakes: steps of a wrong answer that do not hold. sound: of the right answers,
    those whose steps all hold. bare: of the wrong ones, those of which none does, about which nobody can lie
    to a judge who checks."""
    answers = [a for pair in pairs for a in pair]
    return {"pairs": len(pairs), "steps": mean_of(len(a.holds) for a in answers),
            "mistakes": mean_of(a.holds.count(False) for a in answers if not a.right),
            "sound": mean_of(all(a.holds) for a in answers if a.right),
            "bare": mean_of(not any(a.holds) for a in answers if not a.right)}


def skill(pairs: Sequence[Pair]) -> JsonDict:
    """How good a critic is, and how often he may lie.

    finds: the share of wrong answers with a mistake at the most suspected step.
    lies: the share of lies at which the believing judge is no better than alone,
        (critic - alone) / (critic - liar)
    """
    helped, unhelped, misled = ([decided(pair, protocol, BELIEVES) for pair in pairs]
                                for protocol in (pointed_by_critic, check_any_step, liar))
    hits = [float(not a.holds[a.worst]) for pair in pairs for a in pair if not a.right]
    return with_interval("finds", mean_interval(hits, SHARE)) | ratio_with_interval(
        "lies", *([h - other for h, other in zip(helped, others, strict=True)]
                  for others in (unhelped, misled)))


# the judge

def measure_judge(config: OversightConfig, models: Sequence[str], track: Progress) -> JsonDict:
    """The judge on a right and a wrong answer, both in form, to each fresh problem that has them."""
    task, many = load_task(config.task), config.gathered
    (writer, chat), (reader, _) = (open_model(name, config.device) for name in models[:2])
    critic = ProcessReward(load_scalar(open_folder(models[2]), device=config.device), chat, step_ends,
                          device=config.device)
    groups = score_samples(task, LocalSampler(writer, chat), task.prompts("test", many.problems, config.seed),
                           many.samples, reply_sampling(task, writer),
                           seed_of(config.seed, "answers"), track)
    rng, shown = random.Random(seed_of(config.seed, "pairs")), []
    for group in groups:
        formed = [scored for scored in group if scored.verdict.parts["format"]]
        if chosen := pick_pair([passed(task, scored) for scored in formed], rng):
            shown += [formed[i] for i in chosen]
    if not shown:
        return {"problems": len(groups), "pairs": 0, "critics": {}, "rows": []}
    rollouts, right = [s.rollout for s in shown], [passed(task, s) for s in shown]
    by_critic = paired(rollouts, right, fallen(critic, rollouts))
    by_reader = paired(rollouts, right, surprises(reader, rollouts, chat, config.device))
    seen = {"process model": by_critic, "strong model": by_reader,
            "who knows all": [perfect(pair) for pair in by_critic]}
    return {"problems": len(groups), **pair_facts(by_critic),
            "critics": {who: skill(pairs) for who, pairs in seen.items()},
            "rows": alone(by_critic) + [row for who, pairs in seen.items()
                                            for row in pointed(pairs, who)]}


def oversight_summary(config: OversightConfig, done: Done) -> JsonDict:
    """Both measurements, as figures and tables."""
    judge, gap = done.measured["judge"], done.measured["recovered"]
    gained = [{"model": row["model"], "right": row["right"], "right_interval": row["right_interval"]}
              for row in gap["models"]]
    return {"task": config.task, "model": config.model, "seed": config.seed, "small": done.data["small"],
            "judge": judge, "recovered": gap,
            "tables": {f"Which of two answers is right: {judge['pairs']} pairs, one check": judge["rows"],
                       f"Weak to strong: {gap['problems']} fresh problems": gained,
                       "The gap recovered": [{k: gap[k] for k in ("recovered", "recovered_interval",
                                                                  "mended", "copied")}]}}
