"""Policy optimisation against a verifier, without a critic: REINFORCE, RLOO, GRPO and its family, one row of the table each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from postgrad import methods, objectives
from postgrad.batches import RolloutBatches, Rollouts
from postgrad.loop import Optim, OptimSettings
from postgrad.models import Models, load_model
from postgrad.recipes.base import Evaluation, Parts, examiner, open_folder, open_model, prove
from postgrad.sampler import LocalSampler, Sampling
from postgrad.tasks import load_task

FAMILY = ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "nano")


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    task: str
    model: str = "tiny-chat"
    method: str = "grpo"
    kl: float | None = None         # None: as the method's row has it; 0 needs no reference model
    steps: int = 40
    prompts: int = 2000             # training prompts drawn from the task
    rollouts: Rollouts = field(default_factory=Rollouts)
    optim: OptimSettings = field(default_factory=lambda: OptimSettings(lr=3e-4, schedule="linear"))
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(every=10))
    save_every: int = 10
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        if self.method not in FAMILY:
            methods.get(self.method)
            raise ValueError(f"method {self.method!r} is not trained by this recipe: it takes {', '.join(FAMILY)}.")
        if self.kl is not None and not self.kl >= 0:
            raise ValueError(f"kl is {self.kl}: it must be 0 or more, or none for the method's own.")
        if min(self.steps, self.prompts, self.save_every) < 1:
            raise ValueError(f"steps {self.steps}, prompts {self.prompts} and save_every {self.save_every} must be at least 1.")


def words() -> GRPOConfig:
    """Word problems of two to four operations."""
    return GRPOConfig(task="words")


def hard() -> GRPOConfig:
    """Word problems of four to six operations."""
    return GRPOConfig(task="words-hard", rollouts=Rollouts(max_new_tokens=96))


def arithmetic() -> GRPOConfig:
    return GRPOConfig(task="arithmetic")


def countdown() -> GRPOConfig:
    return GRPOConfig(task="countdown", rollouts=Rollouts(max_new_tokens=128))


SETTINGS = {"words": words, "hard": hard, "arithmetic": arithmetic, "countdown": countdown}


def row(config: GRPOConfig):
    """The method's row, with the KL coefficient that the config asks for, wherever the row puts its KL."""
    method = methods.get(config.method)
    if config.kl is None:
        return method
    return replace(method, kl_in_reward=config.kl) if method.kl_in_reward > 0 else replace(method, kl_in_loss=config.kl)


def build(config: GRPOConfig, begins_with: Path) -> Parts:
    method, task = row(config), load_task(config.task)
    prove(task)
    policy, chat = open_model(begins_with, config.device)
    leashed = method.kl_in_loss > 0 or method.kl_in_reward > 0
    reference = load_model(open_folder(config.model), device=config.device).requires_grad_(False) if leashed else None
    models, sampler = Models(policy=policy, reference=reference), LocalSampler(policy, chat)
    settings = Sampling(max_new_tokens=config.rollouts.max_new_tokens, temperature=config.rollouts.temperature)

    def sample(prompts, group_size, seed, step):
        sampler.policy_step = step
        return sampler.sample(prompts, group_size, settings, seed)

    prompts = task.prompts("train", config.prompts, config.seed)
    sampler.check(prompts, settings)
    batches = RolloutBatches(prompts, sample=sample, verify=task.verify, models=models, method=method,
                             settings=config.rollouts, steps=config.steps, seed=config.seed,
                             tokens_per_pass=config.optim.tokens_per_pass, device=config.device)
    examine = None
    if config.evaluation.every:
        examine = examiner(policy, chat, task, config.evaluation, config.seed, config.rollouts.max_new_tokens)
    return Parts(models=models, chat=chat, batches=batches,
                 objective=objectives.build(method, temperature=config.rollouts.temperature),
                 optim=Optim(models, config.optim, config.steps), examine=examine, every=config.evaluation.every)
