"""Learning from rollouts, against a verifier or a reward model: PPO, REINFORCE, RLOO, GRPO and its family, online DPO,
best-of-n and rejection sampling, one row of the table each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from postgrad import methods, objectives
from postgrad.batches import ChosenPairs, ChosenTexts, Mix, RolloutBatches, Rollouts
from postgrad.batches.collect import as_batch
from postgrad.batches.deck import seen
from postgrad.chat import Chat
from postgrad.data.rows import read_conversations
from postgrad.loop import Optim, OptimSettings
from postgrad.maths.ensemble import RULES
from postgrad.models import Models, ScalarModel, is_adapted, load_scalar
from postgrad.recipes.base import Evaluation, Parts, check_run, examiner, grader_of, judges_of, prove
from postgrad.recipes.opening import (
    new_adapter,
    open_chat,
    open_folder,
    open_policy,
    open_reference,
    open_writer,
    shared_scalar,
)
from postgrad.records import Rollout
from postgrad.rewards.base import Verifying
from postgrad.rewards.grader import RUBRIC, Grader
from postgrad.rewards.model import ModelJudge
from postgrad.rewards.process import ProcessJudge
from postgrad.sampler import LocalSampler, Sampling
from postgrad.tasks import load_task

LINES = {"rollouts": RolloutBatches, "rollouts to pairs": ChosenPairs, "rollouts to conversations": ChosenTexts}
FAMILY = tuple(name for name, row in methods.METHODS.items() if row.source in LINES)


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """What keeps the policy near where it began, and honest towards its reward."""

    kl: float | None = None         # the weight of the KL to the start; None: as the method's row has it; 0: no reference
    target: float | None = None     # a KL per reply, in nats, to which the weight is steered; None: the weight stands
    horizon: int = 10_000           # about how many rollouts the steering takes
    ptx: float = 0.0                # the weight of imitating texts beside the rollouts (PPO-ptx)
    texts: str | None = None        # a JSONL file of conversations for that; None: the embedded model's pretraining text
    measure: bool = False           # the KL to the start is examined even where it has no weight
    ensemble: str = "mean"          # how the scores of several reward models or heads become one: mean, min or penalised

    def __post_init__(self):
        if self.kl is not None and not 0 <= self.kl < float("inf"):
            raise ValueError(f"anchor.kl is {self.kl}: it must be 0 or more, or none for the method's own.")
        if self.target is not None and not 0 < self.target < float("inf") or self.horizon < 1:
            raise ValueError(f"anchor.target {self.target} and anchor.horizon {self.horizon}: the target must be above 0 (or "
                             "none), the horizon at least 1.")
        if not 0 <= self.ptx < float("inf"):
            raise ValueError(f"anchor.ptx is {self.ptx}: it must be 0 or more.")
        if self.ensemble not in RULES:
            raise ValueError(f"anchor.ensemble is {self.ensemble!r}: expected one of {', '.join(RULES)}.")


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    task: str
    model: str = "tiny-chat"
    reward: str | None = None       # reward models with commas between, or judge:MODEL[:RUBRIC.txt]; None: the task's verifier
    method: str = "grpo"
    anchor: Anchor = field(default_factory=Anchor)
    steps: int = 40
    rollouts: Rollouts = field(default_factory=Rollouts)
    optim: OptimSettings = field(default_factory=lambda: OptimSettings(lr=3e-4, schedule="linear"))
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(every=10))
    save_every: int = 10
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        check_run(self, FAMILY)
        if (self.anchor.ptx or self.anchor.target) and methods.get(self.method).kind != "policy":
            raise ValueError(f"anchor.ptx and anchor.target are for policy methods such as ppo; {self.method} has neither.")
        if self.anchor.ptx and self.rollouts.temperature != 1:
            raise ValueError("texts are imitated at temperature 1, and rollouts.temperature is "
                             f"{self.rollouts.temperature}: set it to 1 or anchor.ptx to 0.")


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
    return GRPOConfig(task="questions", evaluation=Evaluation(every=10, samples=8),
                      optim=OptimSettings(lr=1e-4, schedule="linear"))


def gsm8k() -> GRPOConfig:
    """GSM8K for a real model after SFT, on a GPU."""
    return GRPOConfig(task="gsm8k", model="models/smollm2", steps=150, save_every=150,
                      rollouts=Rollouts(prompts=10_000, prompts_per_step=32, group_size=16, max_new_tokens=256),
                      optim=OptimSettings(lr=1.5e-5, warmup=5), evaluation=Evaluation(every=25, problems=256))


SETTINGS = {"questions": questions, "words": words, "hard": hard, "arithmetic": arithmetic, "countdown": countdown,
            "gsm8k": gsm8k}


def row(config: GRPOConfig):
    """The method's row, with the KL coefficient that the config asks for, wherever the row puts its KL: DPO's is its beta."""
    method, weight = methods.get(config.method), config.anchor.kl
    if weight is None:
        return method
    if method.kind == "supervised":
        raise ValueError(f"{method.name} has no KL: leave anchor.kl out.")
    if method.kind == "preference":
        if weight == 0:
            raise ValueError(f"{method.name} divides by its KL weight: anchor.kl must be above 0.")
        return replace(method, loss=partial(method.loss.func, **method.loss.keywords | {"beta": weight}))
    return replace(method, kl_in_reward=weight) if method.kl_in_reward > 0 else replace(method, kl_in_loss=weight)


def scalar(config: GRPOConfig, name: str, policy) -> ScalarModel:
    """A reward model: on the policy's body where both are adapters on it, else with a body of its own."""
    shared = shared_scalar(name, policy.body, config) if is_adapted(policy) else None
    return shared or load_scalar(open_folder(name), device=config.device)


def rewards(config: GRPOConfig, policy, chat: Chat) -> list[ScalarModel]:
    """The reward models, each checked: a head that says something, and the policy's own tokens."""
    models = []
    for name in [] if grader_of(config) else judges_of(config):
        model, theirs = scalar(config, name, policy).requires_grad_(False), open_chat(open_folder(name))
        if not model.score_head.weight.any():
            raise ValueError(f"{name} is no reward model: it scores all 0; train one with `postgrad train reward:...`")
        if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or theirs.template != chat.template:
            raise ValueError(f"the reward model {name} has another tokenizer or chat template than the policy, so it would "
                             "misread its tokens: train it from the same model.")
        models.append(model)
    return models


def new_critic(config: GRPOConfig, policy, judges: list[ScalarModel]) -> ScalarModel:
    """From the (first) reward model, or from the policy's start with a head at zero; with adapters, on the policy's body.

    A process model's numbers are log-odds, and what it pays are chances: no critic starts from it.
    """
    names = [] if grader_of(config) or any(model.head == "process" for model in judges) else judges_of(config)
    if not is_adapted(policy):
        return load_scalar(open_folder((names or [config.model])[0]), device=config.device)
    shared = shared_scalar(names[0], policy.body, config) if names else None
    return shared or ScalarModel(new_adapter(policy.body, config, "critic"))


def mixed_in(config: GRPOConfig, chat: Chat, room: int) -> Mix | None:
    """The texts that are imitated beside the rollouts."""
    if not config.anchor.ptx:
        return None
    if config.anchor.texts:
        rows = [(c.id, *chat.conversation(c.messages)) for c in read_conversations(Path(config.anchor.texts))]
    else:
        from postgrad.tasks.corpus import documents
        made = enumerate(documents(config.seed, 0, 2000))
        rows = [(str(i), *(chat.document(d) if isinstance(d, str) else chat.conversation(d))) for i, d in made]
    for name, tokens, _ in rows:
        if len(tokens) > room:
            raise ValueError(f"text {name} has {len(tokens)} tokens, over the model's {room}: shorten it or leave it out.")
    return Mix(rows, rows=2 * config.rollouts.prompts_per_step, weight=config.anchor.ptx, seed=config.seed)


def kl_of(reference, config: GRPOConfig, rollouts: Sequence[Rollout]) -> list[float]:
    """log pi(reply) - log ref(reply) of each rollout, sampled from pi: its mean is the KL to the start, in nats per reply."""
    settings = config.rollouts
    batch = as_batch(rollouts).to(config.device)
    look = lambda b: reference.logp(b.tokens, b.mask, settings.temperature, packed=b.packed)[0]  # noqa: E731
    ref = seen(look, batch, config.optim.at_once)
    return [sum(r.logp) - said for r, said in zip(rollouts, ref.sum(1).tolist(), strict=True)]


def open_grader(config: GRPOConfig) -> Grader:
    """The chat model that grades the rollouts, by the rubric of a file or the one it has."""
    name, rubric = grader_of(config)
    if rubric and not Path(rubric).is_file():
        raise ValueError(f"reward={config.reward}: there is no rubric {rubric!r}: give a text that says what a good reply is.")
    model, chat = open_writer(name, config.device)
    sampler, settings = LocalSampler(model.requires_grad_(False), chat), Sampling(max_new_tokens=16, temperature=0.0)
    return Grader(sampler, settings, rubric=Path(rubric).read_text("utf-8").strip() if rubric else RUBRIC,
                  fits=lambda prompt: sampler.check([prompt], settings))


def judged_by(judges: list[ScalarModel], task, chat: Chat, config: GRPOConfig):
    """The judge of a run's rollouts: the task's verifier, or the models that stand in for it."""
    if grader_of(config):
        return open_grader(config)
    if not judges:
        return Verifying(task.verify, task.waits)
    if all(model.head != "process" for model in judges):
        return ModelJudge(judges, rule=config.anchor.ensemble, device=config.device)
    if len(judges) > 1:
        raise ValueError("a process model pays token by token, so it makes no ensemble: name it alone in reward.")
    if task.steps is None:
        raise ValueError(f"a process model scores the steps of a reply, and task {task.name} has none: take a reward model, or "
                         "the task's own verifier (reward=none).")
    return ProcessJudge(judges[0], chat, lambda r: [step.end for step in task.steps(r.prompt, r.text)], device=config.device)


def build(config: GRPOConfig, begins_with: Path) -> Parts:
    method, task = row(config), load_task(config.task)
    prove(task)
    policy, chat = open_policy(config, begins_with)
    judges = rewards(config, policy, chat)
    compared = method.reference or config.anchor.measure
    models = Models(policy=policy, reference=open_reference(config, policy) if compared else None,
                    critic=new_critic(config, policy, judges) if getattr(method, "critic", False) else None,
                    reward=judges[0] if judges else None)
    sampler = LocalSampler(policy, chat)
    settings = Sampling(max_new_tokens=config.rollouts.max_new_tokens, temperature=config.rollouts.temperature)

    def sample(prompts, group_size, seed, step):
        sampler.policy_step = step
        return sampler.sample(prompts, group_size, settings, seed)

    prompts = task.prompts("train", config.rollouts.prompts, config.seed)
    sampler.check(prompts, settings)
    judge = judged_by(judges, task, chat, config)
    sampler.ended = getattr(judge, "ahead", None)
    line = LINES[method.source]
    steered = {} if line is not RolloutBatches else {
        "target": config.anchor.target, "horizon": config.anchor.horizon,
        "mix": mixed_in(config, chat, policy.config.max_position_embeddings)}
    batches = line(prompts, sample=sample, judge=judge, models=models, method=method, settings=config.rollouts,
                   steps=config.steps, seed=config.seed, tokens_per_pass=config.optim.at_once, device=config.device,
                   **steered)
    examine = None
    if config.evaluation.every:
        measures = {"proxy": lambda rollouts: [v.score for v in judge(rollouts)]} if config.reward else {}
        if models.reference:
            measures["kl_reply"] = partial(kl_of, models.reference, config)
        examine = examiner(policy, chat, task, config.evaluation, config.seed, config.rollouts.max_new_tokens, **measures)
    return Parts(models=models, chat=chat, batches=batches,
                 objective=objectives.build(method, temperature=config.rollouts.temperature),
                 optim=Optim(models, config.optim, config.steps), examine=examine, every=config.evaluation.every)
