"""Policy optimisation against a verifier or a reward model: PPO, REINFORCE, RLOO, GRPO and its family, one row each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from postgrad import methods, objectives
from postgrad.batches import RolloutBatches, Rollouts
from postgrad.chat import Chat
from postgrad.loop import Optim, OptimSettings
from postgrad.models import Models, load_model, load_scalar
from postgrad.recipes.base import Evaluation, Parts, examiner, open_folder, open_model, prove
from postgrad.rewards.model import ModelJudge
from postgrad.rewards.process import ProcessJudge
from postgrad.sampler import LocalSampler, Sampling
from postgrad.tasks import load_task

FAMILY = ("ppo", "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "nano")


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    task: str
    model: str = "tiny-chat"
    reward: str | None = None       # a reward model to train against; None: the task's own verifier
    method: str = "grpo"
    kl: float | None = None         # None: as the method's row has it; 0 needs no reference model
    steps: int = 40
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
        if min(self.steps, self.save_every) < 1:
            raise ValueError(f"steps {self.steps} and save_every {self.save_every} must be at least 1.")


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


def questions() -> GRPOConfig:
    """Questions, against their true quality, or with reward=RUN against a reward model."""
    return GRPOConfig(task="questions", evaluation=Evaluation(every=10, samples=8))


SETTINGS = {"questions": questions, "words": words, "hard": hard, "arithmetic": arithmetic, "countdown": countdown}


def row(config: GRPOConfig):
    """The method's row, with the KL coefficient that the config asks for, wherever the row puts its KL."""
    method = methods.get(config.method)
    if config.kl is None:
        return method
    return replace(method, kl_in_reward=config.kl) if method.kl_in_reward > 0 else replace(method, kl_in_loss=config.kl)


def beside(config: GRPOConfig, method, policy) -> Models:
    """The policy and what stands beside it: a reference, a critic (from the reward model if there is one), a reward model."""
    origin = open_folder(config.model)
    reference = load_model(origin, device=config.device).requires_grad_(False) if method.reference else None
    scored = open_folder(config.reward) if config.reward else None
    reward = load_scalar(scored, device=config.device).requires_grad_(False) if scored else None
    alike = scored and reward.head != "process"  # a process model's numbers are log-odds, and what it pays are chances
    critic = load_scalar(scored if alike else origin, device=config.device) if method.critic else None
    if reward and not reward.score_head.weight.any():
        raise ValueError(f"{config.reward} is no reward model: it scores all 0; train one with `postgrad train reward:...`")
    return Models(policy=policy, reference=reference, critic=critic, reward=reward)


def same_tokens(config: GRPOConfig, chat: Chat) -> None:
    """A reward model reads the policy's tokens, so its tokenizer must be the policy's."""
    theirs = Chat.load(open_folder(config.reward))
    if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or theirs.template != chat.template:
        raise ValueError(f"the reward model {config.reward} has another tokenizer or chat template than the policy, so it "
                         "would misread its tokens: train it from the same model.")


def judged_by(reward, task, chat: Chat, device: str):
    """The judge of a run's rollouts: the task's verifier, or the model that stands in for it."""
    if reward is None:
        return lambda rollouts: [task.verify(r.prompt, r.text) for r in rollouts]
    if reward.head != "process":
        return ModelJudge(reward, device=device)
    if task.steps is None:
        raise ValueError(f"a process model scores the steps of a reply, and task {task.name} has none: take a reward model, or "
                         "the task's own verifier (reward=none).")
    return ProcessJudge(reward, chat, lambda r: [step.end for step in task.steps(r.prompt, r.text)], device=device)


def build(config: GRPOConfig, begins_with: Path) -> Parts:
    method, task = row(config), load_task(config.task)
    prove(task)
    policy, chat = open_model(begins_with, config.device)
    if config.reward:
        same_tokens(config, chat)
    models, sampler = beside(config, method, policy), LocalSampler(policy, chat)
    settings = Sampling(max_new_tokens=config.rollouts.max_new_tokens, temperature=config.rollouts.temperature)

    def sample(prompts, group_size, seed, step):
        sampler.policy_step = step
        return sampler.sample(prompts, group_size, settings, seed)

    prompts = task.prompts("train", config.rollouts.prompts, config.seed)
    sampler.check(prompts, settings)
    judge = judged_by(models.reward, task, chat, config.device)
    batches = RolloutBatches(prompts, sample=sample, judge=judge, models=models, method=method, settings=config.rollouts,
                             steps=config.steps, seed=config.seed, tokens_per_pass=config.optim.tokens_per_pass,
                             device=config.device)
    examine = None
    if config.evaluation.every:
        examine = examiner(policy, chat, task, config.evaluation, config.seed, config.rollouts.max_new_tokens)
    return Parts(models=models, chat=chat, batches=batches,
                 objective=objectives.build(method, temperature=config.rollouts.temperature),
                 optim=Optim(models, config.optim, config.steps), examine=examine, every=config.evaluation.every)
