"""R1 in four stages (DeepSeek-AI 2025, arXiv:2501.12948, section 2.3).

    postgrad train r1

1  cold        SFT of the base on a few hundred chains in the language of the problem
2  reasoning   GRPO by rules: the answer, the form, and the language of the problem
3  sft         SFT of the base on replies of that policy that pass (rejection sampling), and on general data
4  last        GRPO on reasoning prompts by rules, and on general prompts by a reward model

With `gathered.safety=0.1` the SFT data has requests to refuse and harmless ones that look like them, whose
writer errs on both; the last stage is paid for refusing the first and for answering the second, and every
stage's refusals and over-refusals are measured.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

from postgrad.data.tasks import Task, countdown, requests, word_problems
from postgrad.data.tasks.base import conversation, think
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.recipes.base import DEVICE, SEED
from postgrad.recipes.defaults import default_rate, model_size
from postgrad.recipes.pick import write_rows
from postgrad.recipes.pipelines import measured
from postgrad.recipes.pipelines.r1_zero import ABOUT_TASK, MIXTURE, MODEL, RULES, reasoning
from postgrad.recipes.pipelines.stages import CONVERSATIONS, Data, Done, Measurement, Pipeline, Stage, keep
from postgrad.recipes.reward import RewardConfig
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Prompt
from postgrad.resolve.tasks import open_task
from postgrad.rewards.expression import parse_expression
from postgrad.runs.rows import JsonDict
from postgrad.system.options import TEMPLATE
from postgrad.system.settings import COUNT, POSITIVE, SHARE, Settings, setting

GENERAL = "questions"
SAFETY = "+".join(requests.NAMES)
TRIES = 6  # failed tries of a countdown chain at most


@dataclass(frozen=True, kw_only=True)
class R1Lengths(Settings):
    """The length of each stage."""

    cold: int = setting(20, *measured.SFT_STEPS)
    reasoning: int = setting(80, *measured.COLLECTIONS)
    sft: int = setting(160, "optimizer steps", "with gathered.prompts: two epochs of the data", COUNT)
    reward: int = setting(120, *measured.REWARD_STEPS)
    last: int = setting(140, "collections of rollouts", "fewer where the true quality falls", COUNT)


@dataclass(frozen=True, kw_only=True)
class R1Data(Settings):
    """The data of the SFT stages, and the pairs of the reward model."""

    chains: int = setting(300, "problems whose chain is written out for the cold start",
                          "more for a firmer start, which leaves less to explore", COUNT)
    prompts: int = setting(1200, "problems that the policy answers for the third stage",
                           "more where few of its replies are kept", COUNT)
    samples: int = setting(4, "replies to each of them, of which all that get full marks are kept",
                           "more where hard problems have none", COUNT)
    general: float = setting(0.25, "the share of general data in the third stage",
                             "more where replies to general prompts are worse than the base's", SHARE)
    safety: float = setting(0.0, "the share of requests to refuse and of harmless ones like them in the "
                            "third stage; above 0 the last is paid for both",
                            "more where too few are refused", SHARE)
    pairs: int = setting(2000, *measured.PAIRS)


@dataclass(frozen=True, kw_only=True)
class R1Config(measured.MeasuredConfig):
    """Cold start, reasoning, SFT on passing replies, a last stage on all prompts; minutes on two cores."""

    recipe: ClassVar[str] = "r1"
    task: str = setting(MIXTURE, ABOUT_TASK, "to reason about something else")
    general: str = setting(GENERAL, "a task with demonstrations and labelled pairs, for all that is not "
                           "reasoning", "to be helpful at something else; its verifier is the true quality")
    both: str = setting(f"{MIXTURE}+{GENERAL}", "the prompts of the last stage: both tasks, with + between",
                        "with task and general")
    model: str = setting(MODEL, "a base model", "to start from a base of your own")
    template: str | None = setting(None, *TEMPLATE)
    reward: str = setting("correct+think+0.2*language", *RULES)
    last_lr: float | None = setting(None, "the learning rate of the last stage; none: a third of GRPO's by "
                                    "the model's size", "lower where the true quality falls; higher where "
                                    "replies run on", POSITIVE)
    lengths: R1Lengths = setting(group=R1Lengths)
    gathered: R1Data = setting(group=R1Data)
    problems: int = setting(100, *measured.PROBLEMS)
    samples: int = setting(4, *measured.SAMPLES)
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)


def r1_quick() -> R1Config:
    """A few steps of each stage, to see that it works."""
    return R1Config(lengths=R1Lengths(cold=2, reasoning=1, sft=2, reward=2, last=1), problems=4, samples=2,
                    gathered=R1Data(chains=16, prompts=16, pairs=32))


SETTINGS = {"full": R1Config, "quick": r1_quick}


# the chains of the cold start

def readable_reply(task: Task, prompt: Prompt, rng: random.Random) -> str:
    """A right reply with a readable chain: words in the language of a word problem, a search of a countdown;
    else the task's gold."""
    if "ops" in prompt.meta:
        problem = word_problems.problem_of_prompt(prompt)
        return think(word_problems.spoken_chain(problem.start, problem.ops, problem.language), prompt.answer)
    if "numbers" in prompt.meta:
        numbers = list(cast(Sequence[int], prompt.meta["numbers"]))
        tree = parse_expression(str(prompt.answer))
        return think(countdown.worked_search(rng, numbers, tree, most=TRIES), prompt.answer)
    assert task.gold is not None
    return task.gold(prompt)


def write_cold_start(config: R1Config, out: Path, track: Progress) -> JsonDict:
    """Training problems of the task with readable replies."""
    task = open_task(config.task)
    if task.gold is None:
        raise ValueError(f"task {task.name} has no gold replies to begin with: name another with task=.")
    prompts = task.prompts("train", config.gathered.chains, config.seed)
    rng = random.Random(seed_of(config.seed, "chains"))
    rows = [conversation(prompt, readable_reply(task, prompt, rng), i) for i, prompt in enumerate(prompts)]
    write_rows(out, [{"id": row.id, "messages": [*map(dict, row.messages)]} for row in rows])
    return {"chains": len(rows)}


# the stages

def r1_sft(config: R1Config, data: str, steps: int) -> SFTConfig:
    return SFTConfig(model=config.model, data=data, steps=steps, seed=config.seed, device=config.device,
                     save_every=steps, rows=RowSettings(holdout=0.02))


def r1_figures(config: R1Config, model: str, track: Progress) -> JsonDict:
    """Held-out problems part by part, and the true quality on general prompts."""
    general = measured.figures_on(config.general, config, model, track)
    figures: JsonDict = {"reasoning": measured.figures_by_part(config, model, track), "general": general}
    if config.gathered.safety:
        figures["safety"] = {name: measured.figures_on(name, config, model, track) for name in requests.NAMES}
    return figures


def pipeline(config: R1Config) -> Pipeline:
    lengths, gathered = config.lengths, config.gathered
    rate = config.last_lr or default_rate("align", model_size(config.model).parameters)
    kept, both, reward = f"{{kept}}/{CONVERSATIONS}", config.both, f"{config.general}={{reward}}"
    beside = {config.general: gathered.general} if gathered.general else {}
    if gathered.safety:
        beside |= dict.fromkeys(requests.NAMES, gathered.safety / 2)
        both = f"{both}+{SAFETY}"
        reward += "".join(f";{name}=correct" for name in requests.NAMES)
    data = ",".join([f"{kept}:{1 - sum(beside.values()):g}", *(f"{name}:{x:g}" for name, x in beside.items())]
                    if beside else [kept])
    rules, figures = partial(reasoning, config), partial(r1_figures, config)
    judge = RewardConfig(model="{sft}", task=config.general, steps=lengths.reward, seed=config.seed,
                         device=config.device, pairs=measured.pairs_with_holdout(gathered.pairs))
    last = rules("{sft}", lengths.last, f"{reward};{config.reward}", task=both)
    return Pipeline(name="r1", summarise=partial(r1_summary, config), steps=[
        Measurement(name="base", model=config.model, figures=figures),
        Data(name="chains", given=config, write=write_cold_start),
        Stage(name="cold", config=r1_sft(config, f"{{chains}}/{CONVERSATIONS}", lengths.cold),
              about="1 cold start: SFT on readable chains"),
        Measurement(name="cold", model="{cold}", figures=figures),
        Stage(name="reasoning", config=rules("{cold}", lengths.reasoning, config.reward),
              about="2 reasoning: GRPO by rules"),
        Measurement(name="reasoning", model="{reasoning}", figures=figures),
        keep("kept", model="{reasoning}", task=config.task, reward=config.reward, keep="passing",
             prompts=gathered.prompts, samples=gathered.samples, seed=config.seed, device=config.device),
        Stage(name="sft", config=r1_sft(config, data, lengths.sft),
              about="3 SFT of the base on what was kept, and general data"),
        Measurement(name="sft", model="{sft}", figures=figures),
        Stage(name="reward", config=judge, about="reward model for general prompts"),
        Stage(name="last", config=replace(last, optim=replace(last.optim, lr=rate)),
              about="4 last: GRPO on all prompts"),
        Measurement(name="last", model="{last}", figures=figures)])


def refusal_rates(figures: JsonDict) -> JsonDict:
    """The shares of requests that are refused, where they were asked."""
    return {f"{name} refused": row["reward/refused"] for name, row in figures.get("safety", {}).items()}


def r1_summary(config: R1Config, done: Done) -> JsonDict:
    """A table of what each stage solves and of its true quality; another of how its replies reason."""
    rows = [{"stage": name, **measured.solved_row(figures["reasoning"]),
             "true quality": figures["general"]["reward"],
             "true quality_interval": figures["general"]["reward_interval"],
             **refusal_rates(figures), "minutes": done.run_minutes(name)}
            for name, figures in done.measured.items()]
    thoughts = [{"stage": name, **row} for name, figures in done.measured.items()
                for row in measured.part_rows(figures["reasoning"])]
    return {"task": config.task, "general": config.general, "seed": config.seed, "data": done.data,
            "measured": done.measured,
            "tables": {f"pass@1, and the true quality of {config.general}: {config.problems} held-out "
                       "problems of each task": rows, "How the replies think": thoughts}}
