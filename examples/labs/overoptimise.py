"""The over-optimisation lab: a true quality known in code, a reward model trained on noisy and biased labels
of it, and policies trained against the reward model for too long, under several KL penalties or none.

    postgrad train examples/labs/overoptimise.py
    postgrad train examples/labs/overoptimise.py:quick kls=0,0.1

curves.json in the folder: proxy and true reward against the distance from the start, sqrt(KL), for each KL
penalty, for an ensemble of reward models, and for best-of-n (Gao et al. 2023, arXiv:2210.10760; ensembles:
Coste et al. 2023, arXiv:2310.02743).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from postgrad import methods
from postgrad.data.tasks import load_task
from postgrad.evaluation import mean_of, score_samples
from postgrad.evaluation.progress import Progress
from postgrad.maths.noise import seed_of
from postgrad.maths.passk import best_of_n
from postgrad.maths.select import best_of_n_kl
from postgrad.methods import Method
from postgrad.models import load_scalar
from postgrad.recipes import reward, rollouts
from postgrad.recipes.base import DEVICE, SEED, Evaluation, ModelDefaults
from postgrad.recipes.defaults import STEEP
from postgrad.recipes.pipelines.measured import pairs_with_holdout
from postgrad.recipes.pipelines.stages import Done, Measurement, Pipeline, Stage
from postgrad.resolve.models import open_folder, open_model
from postgrad.rewards.model import ModelReward
from postgrad.runs import Run
from postgrad.runs.overoptimisation import turning_point
from postgrad.runs.rows import JsonDict
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import write_text
from postgrad.system.settings import COUNT, Settings, setting
from postgrad.training.batches import Rollouts
from postgrad.training.optim import OptimSettings


@dataclass(frozen=True, kw_only=True)
class Proxies(Settings):
    """The reward models: how many, and how each is trained."""

    members: int = setting(3, "reward models; 2 or more: an ensemble is tried too, without a KL penalty",
                           "1 to leave the ensemble out; more make it more sceptical", COUNT)
    pairs: int = setting(1000, "pairs that each learns from", "fewer: a worse proxy, which turns over sooner",
                         COUNT)
    train_steps: int = setting(120, "optimizer steps of each", "with the pairs", COUNT)

    prefix: ClassVar[str] = "proxies."


@dataclass(frozen=True, kw_only=True)
class OveroptimiseConfig(ModelDefaults):
    """Reward models, and policies pushed against them."""

    recipe: ClassVar[str] = "overoptimise"
    task: str = setting(about="a task with labelled pairs and a known true quality",
                        when="to push a reward model of another task; its verifier is the true quality")
    model: str = setting("tiny-chat", "the model to start from, after SFT", "to push a model of your own")
    method: Method = setting(methods.get_method("ppo"), "the method of the policies",
                             "to see how another one over-optimises",
                             resolve=methods.method_from_config)
    kls: str = setting("0,0.05,0.3", "the KL penalties: weights with commas between",
                       "to find the weight at which the true quality no longer falls")
    proxies: Proxies = setting(group=Proxies)
    best_of: int = setting(64, "the largest n of best-of-n",
                           "more shows whether best-of-n turns over too; costs as many samples")
    steps: int = setting(240, "optimizer steps of each policy",
                         "more where the true quality has not turned yet")
    rollouts: Rollouts = setting(group=lambda: Rollouts(prompts_per_step=64, max_new_tokens=80))
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear"))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=10, problems=128, samples=16))
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)

    reply_group: ClassVar[str] = "rollouts"
    rate_law: ClassVar[tuple[float, float] | None] = (1.5e-4, STEEP)

    @property
    def reply_limit(self) -> int | None:
        return self.rollouts.max_new_tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 <= weight < math.inf for weight in kl_weights(self)):
            raise ValueError(f"kls is {self.kls!r}: expected weights of 0 or more with commas between, "
                             "e.g. 0,0.05,0.3.")
        if min(self.best_of, self.steps, self.evaluation.every or 0) < 1:
            raise ValueError("best_of, steps and evaluation.every must be at least 1.")


def kl_weights(config: OveroptimiseConfig) -> list[float]:
    try:
        return [float(x) for x in config.kls.split(",")]
    except ValueError as error:
        raise ValueError(f"kls is {config.kls!r}: expected weights with commas between, "
                         "e.g. 0,0.05,0.3.") from error


def overoptimise_questions() -> OveroptimiseConfig:
    """Questions, labelled by annotators who often err and like long replies."""
    return OveroptimiseConfig(task="questions-biased")


def overoptimise_quick() -> OveroptimiseConfig:
    """A quarter of the work; whether the true reward turns over depends on the seed."""
    return OveroptimiseConfig(task="questions-biased", steps=140, optim=OptimSettings(lr=1e-4),
                              rollouts=Rollouts(prompts_per_step=32, max_new_tokens=80),
                              evaluation=Evaluation(every=20, problems=32, samples=64))


SETTINGS = {"questions": overoptimise_questions, "quick": overoptimise_quick}


def proxies(config: OveroptimiseConfig) -> list[Stage]:
    """Reward models that differ in their pairs and in the order of them."""
    pairs = pairs_with_holdout(config.proxies.pairs)
    return [Stage(name=f"reward-{i}", config=reward.RewardConfig(
        model=config.model, task=config.task, device=config.device,
        seed=seed_of(config.seed, "member", i) % 2**31, steps=config.proxies.train_steps, pairs=pairs))
            for i in range(config.proxies.members)]


def policies(config: OveroptimiseConfig) -> list[Stage]:
    """A policy for each KL penalty against the first reward model, and one without a penalty against the
    lowest score of all reward models."""
    def stage(name: str, members: int, coef: float, ensemble: str = "mean") -> Stage:
        made = rollouts.RolloutConfig(
            task=config.task, model=config.model, method=config.method, steps=config.steps,
            rollouts=config.rollouts, optim=config.optim, evaluation=config.evaluation, seed=config.seed,
            device=config.device, reward=",".join(f"{{reward-{i}}}" for i in range(members)),
            save_every=config.steps, reward_ensemble=ensemble,
            kl=rollouts.KL(measure=True, coef=coef))
        return Stage(name=name, config=made)

    out = [stage(f"{config.method.name}-kl-{weight:g}", 1, weight) for weight in kl_weights(config)]
    several = config.proxies.members
    return out + ([stage(f"{config.method.name}-ensemble", several, 0.0, "min")] if several > 1
                  else [])


def policy_curve(run: Run) -> list[JsonDict]:
    """The distance from the start and both rewards on held-out prompts, at each evaluation of a policy."""
    rows, _ = run.rows("evals")
    return [{"step": r["step"], "kl": r["kl_reply"], "distance": math.sqrt(max(r["kl_reply"], 0.0)),
             "proxy": r["proxy"], "true": r["reward"], "length": r["mean_length"]} for r in rows]


def best_of_curve(config: OveroptimiseConfig, proxy: str, track: Progress) -> JsonDict:
    """Both rewards of the sample that the proxy ranks first of n samples of the start, n = 1, 2, 4, ...; the
    KL is its upper bound."""
    task = load_task(config.task)
    policy, chat = open_model(config.model, config.device)
    reward = ModelReward([load_scalar(open_folder(proxy), device=config.device)], device=config.device)
    prompts = config.evaluation.asked(task, config.seed)
    settings = Sampling(max_new_tokens=config.rollouts.budget)
    groups = score_samples(task, LocalSampler(policy, chat), prompts, config.best_of, settings,
                           seed_of(config.seed, "best of n"), track)
    scored = [([v.score for v in reward.score([s.rollout for s in group])], [s.verdict.score for s in group])
              for group in groups]
    sizes = [2**i for i in range(config.best_of.bit_length()) if 2**i <= config.best_of]
    return {"curve": [{"n": n, "kl": best_of_n_kl(n), "distance": math.sqrt(best_of_n_kl(n)),
                       "proxy": mean_of(best_of_n(proxy, proxy, n) for proxy, _ in scored),
                       "true": mean_of(best_of_n(proxy, true, n) for proxy, true in scored)} for n in sizes]}


def pipeline(config: OveroptimiseConfig) -> Pipeline:
    """The reward models, the policies that push them, and best-of-n against the first of them."""
    of_n = Measurement(name="best-of-n", model="{reward-0}", figures=partial(best_of_curve, config))
    return Pipeline(name="overoptimise", steps=[*proxies(config), *policies(config), of_n],
                    summarise=partial(overoptimise_summary, config))


def overoptimise_summary(config: OveroptimiseConfig, done: Done) -> JsonDict:
    """Turning points and best-of-n; writes curves.json."""
    judges = [done.runs[stage.name] for stage in proxies(config)]
    curves: list[JsonDict] = []
    for stage in policies(config):
        assert isinstance(stage.config, rollouts.RolloutConfig)
        curve = policy_curve(done.runs[stage.name])
        curves.append({"name": stage.name, "kl_weight": stage.config.kl.coef,
                       "ensemble": stage.name.endswith("ensemble"), "points": curve,
                       "turning": turning_point(curve), "minutes": done.run_minutes(stage.name)})
    of_n = done.measured["best-of-n"]["curve"]
    facts = {"task": config.task, "seed": config.seed, "method": config.method.name,
             "reward_accuracy": [list(r.rows("evals")[0])[-1]["accuracy"] for r in judges],
             "best_of_n": of_n}
    write_text(done.folder / "curves.json", json.dumps(
        {"recipe": "overoptimise", "command": done.command, "minutes": done.minutes, **facts,
         "policies": curves}, indent=1))
    pushed = [{"policy": p["name"], "peak": p["turning"]["peak"], "at step": p["turning"]["step"],
               "at KL": p["turning"]["kl"], "end": p["turning"]["end"], "fall": p["turning"]["fall"],
               "proxy at peak": p["turning"]["proxy_at_peak"], "proxy at end": p["turning"]["proxy_at_end"],
               "minutes": p["minutes"]} for p in curves]
    best = [{"n": p["n"], "KL at most": p["kl"], "proxy": p["proxy"], "true": p["true"]} for p in of_n]
    return facts | {"policies": [{k: v for k, v in p.items() if k != "points"} for p in curves],
                    "tables": {"Pushed against a reward model": pushed, "Best of n": best}}
