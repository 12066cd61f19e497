"""Learning from rollouts, against a verifier, a reward model, a function or a teacher: PPO, REINFORCE, RLOO,
GRPO and its family, online DPO, best-of-n, rejection sampling and distillation, one row of the table each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from postgrad import methods
from postgrad.data.environments import max_turns, sampler_for
from postgrad.data.rows import BadRows, read_conversations
from postgrad.data.tasks import Task, reflection
from postgrad.data.tasks.listed import task_notes
from postgrad.evaluation.evaluate import Figures
from postgrad.maths.ensemble import RULES
from postgrad.methods import Method, Policy
from postgrad.models import LanguageModel, Models
from postgrad.models.chat import Chat
from postgrad.recipes.base import (
    EVAL_TASK,
    METHOD,
    SAVE,
    STEPS,
    Evaluation,
    Probes,
    RunConfig,
    RunInputs,
    TrainingSetup,
    check_task,
    data_counts,
    policy_evaluator,
    prompts_that_fit,
)
from postgrad.recipes.difficulty import Difficulty
from postgrad.recipes.samplers import RemoteSettings, open_sampler
from postgrad.recipes.teachers import Again, ask_with_demonstration, open_teacher, prove_help
from postgrad.records import Prompt, Reward, Rollout
from postgrad.resolve.models import Model, ModelSource, open_policy, open_reference
from postgrad.resolve.rewards import parse_reward
from postgrad.resolve.tasks import open_task
from postgrad.rewards.base import score_groups
from postgrad.sampling import LocalSampler, Sampling, TokenSampler
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.agents import Agent, played_by
from postgrad.system.settings import NOT_NEGATIVE, POSITIVE, Range, Settings, setting
from postgrad.training import objectives
from postgrad.training.batches import PtxMix, RolloutBatches, Rollouts, SelectedPairs, SelectedTexts
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.episodes import join_episodes
from postgrad.training.batches.rollouts import Sample
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.distributed.sharding import unshard
from postgrad.training.distributed.virtual_ranks import current_virtual_ranks
from postgrad.training.optim import Optim, OptimSettings

BATCH_SOURCES: dict[str, Callable[..., RolloutBatches | SelectedPairs | SelectedTexts]] = {
    "rollouts": RolloutBatches, "rollouts to pairs": SelectedPairs,
    "rollouts to conversations": SelectedTexts}


@dataclass(frozen=True, kw_only=True)
class KL(Settings):
    """The KL penalty towards the reference model, the policy at its start."""

    coef: float | None = setting(None, "the KL coefficient; none: the method's own; 0: no reference model",
                                 "more where the true quality falls while the reward rises; 0 saves a model "
                                 "in memory, and is usual against a verifier that cannot be gamed",
                                 within=NOT_NEGATIVE)
    target: float | None = setting(None, "adaptive KL: nats per reply to which the coefficient is steered; "
                                   "none: a fixed coefficient", "where no fixed coefficient suits the whole "
                                   "run, 5 to 10 say; needs a method with a KL", within=POSITIVE)
    gain: float = setting(0.1, "gain of the adaptive controller: a collection changes the coefficient by a "
                          "fifth of this at most", "with target alone: more steers sooner and less steadily",
                          within=Range("above 0 and at most 1", lambda x: 0 < x <= 1))
    measure: bool = setting(False, "evaluations measure the KL to the reference even where its coefficient "
                            "is 0", "to plot quality against the KL; costs the memory of a reference model")

    prefix: ClassVar[str] = "kl."
    short: ClassVar[str] = "coef"


@dataclass(frozen=True, kw_only=True)
class Ptx(Settings):
    """The pretraining mix of PPO-ptx: a supervised loss beside the policy loss."""

    coef: float = setting(0.0, "coefficient of the loss on texts beside the rollouts (PPO-ptx)",
                          "where the model forgets what it could do before; policy methods alone",
                          within=NOT_NEGATIVE)
    texts: str | None = setting(None, "a JSONL file of conversations; none: the embedded pretraining text",
                                "with ptx.coef, for every model that is not embedded")

    prefix: ClassVar[str] = "ptx."
    short: ClassVar[str] = "coef"


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(RunConfig):
    """One run on samples of the policy itself."""

    recipe: ClassVar[str] = "rollouts"
    eval_task: Task | str | Sequence[object] | None = setting(None, *EVAL_TASK)
    method: Method = setting(methods.get_method("grpo"), *METHOD, resolve=methods.method_from_config)
    reward: object = setting(None, "who judges, in place of the task's verifier: a reward model's run "
                             "(several with commas), judge:MODEL[:RUBRIC.txt], "
                             "judge:http://HOST/v1?model=NAME, a verifier by name; in Python a function; "
                             "none: the task's verifier",
                             "where the task has no verifier, or to learn what people prefer")
    teacher: Model | str | None = setting(None, "the model that is distilled: a name, a folder, a run or "
                                          "RUN@STEP; in Python a Model", "with opd, which needs one: a model "
                                          "that is better at the task and has the same tokenizer")
    kl: KL = setting(group=KL)
    ptx: Ptx = setting(group=Ptx)
    reward_ensemble: str = setting("mean", "how the scores of several reward models or heads become one: "
                                   "mean, min, penalised", "min or penalised where the policy exploits one "
                                   "member", choices=tuple(RULES))
    steps: int | None = setting(None, f"{STEPS[0]}; none: the updates of rollouts.collections", *STEPS[1:])
    rollouts: Rollouts = setting(group=Rollouts)
    difficulty: Difficulty = setting(group=Difficulty)
    agent: Agent = setting(group=Agent)
    remote: RemoteSettings = setting(group=RemoteSettings)
    optim: OptimSettings = setting(group=lambda: OptimSettings(schedule="linear"))
    evaluation: Evaluation = setting(group=lambda: Evaluation(every=None))
    save_every: int | None = setting(None, f"{SAVE[0]}; none: the updates of ten collections", *SAVE[1:])

    on_look: str = setting("ask", "what follows from the look before the first step where it finds something "
                           "to repair: ask on the terminal (without one: fix if every group is flat, else "
                           "warn), warn, fix (take its offers), off (no look)",
                           "fix where nobody watches; off to save its seconds",
                           choices=("ask", "warn", "fix", "off"))

    reply_group: ClassVar[str] = "rollouts"

    @property
    def reply_limit(self) -> int | None:
        return self.rollouts.max_new_tokens

    @property
    def row(self) -> Method:
        """The method with the KL coefficient, and a correction where other weights, another engine or a
        part of the distribution sample."""
        method = self.method if self.kl.coef is None else with_kl(self.method, self.kl.coef)
        off_policy = self.rollouts.async_depth or self.remote.foreign or not self.rollouts.sampling.unfiltered
        if off_policy and isinstance(method, Policy) and method.correction is None:
            return methods.change(method, correction="tis")
        return method

    @property
    def skips_bad(self) -> bool:
        return self.rollouts.skip_bad

    @property
    def updates_per_collection(self) -> int:
        """Optimizer steps on one collection of rollouts."""
        return self.row.updates(self.rollouts.prompts_per_step)

    @property
    def inputs(self) -> RunInputs:
        return replace(super().inputs, eval_task=self.eval_task, reward=self.reward, teacher=self.teacher,
                       rates=self.difficulty.rates,
                       agent_files=tuple(word for word in self.agent.words if Path(word).is_file()))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is None:
            raise ValueError(f"{self.method.name} needs prompts: name a task with task=NAME or task=FILE.")
        if self.ptx.coef or self.kl.target:
            self.check_policy_settings()
        self.remote.check_device(self.device)
        if self.rollouts.async_depth:
            self.check_async()
        if self.rollouts.release and (self.rollouts.async_depth or self.remote.sampler):
            raise ValueError("rollouts.release is for a sampler that takes turns with training in this "
                             "process: leave it out with rollouts.async_depth or sampler=.")

    def check_policy_settings(self) -> None:
        if self.method.kind != "policy":
            raise ValueError("ptx.coef and kl.target are for policy methods such as ppo; "
                             f"{self.method.name} has neither.")
        if self.ptx.coef and self.rollouts.temperature != 1:
            raise ValueError("texts are imitated at temperature 1, and rollouts.temperature is "
                             f"{self.rollouts.temperature}: set it to 1 or ptx.coef to 0.")

    def check_async(self) -> None:
        if self.agent.command:
            raise ValueError("an agent plays by the weights of the moment: leave out "
                             "rollouts.async_depth or the agent.")
        if not self.remote.sampler and self.device != "cpu":
            raise ValueError("rollouts.async_depth on a GPU needs a sampler of its own: start `postgrad "
                             "serve` and name it with sampler=http://HOST:PORT.")

    def check_going_back(self) -> None:
        super().check_going_back()
        if self.rollouts.async_depth or self.remote.sampler or self.agent.command:
            raise ValueError("on_trouble=halve_rate goes back in this process, and a sampler elsewhere or an "
                             "agent goes on: leave it out with rollouts.async_depth, sampler= or an agent, "
                             "or set on_trouble=stop.")


def rollouts_on_words() -> RolloutConfig:
    """Word problems of two to four operations."""
    return RolloutConfig(task="words")


def rollouts_on_hard_words() -> RolloutConfig:
    """Word problems of four to six operations."""
    return RolloutConfig(task="words-hard")


def rollouts_on_arithmetic() -> RolloutConfig:
    return RolloutConfig(task="arithmetic")


def rollouts_on_countdown() -> RolloutConfig:
    return RolloutConfig(task="countdown")


def rollouts_on_game(task: str, collections: int) -> RolloutConfig:
    """A game of several turns, after `postgrad train sft:TASK`, which shows the form."""
    return RolloutConfig(task=task, model="tiny-tools", rollouts=Rollouts(collections=collections),
                         optim=OptimSettings(schedule="linear", warmup=5))


def rollouts_on_questions() -> RolloutConfig:
    """Questions, against their true quality, or with reward=RUN against a reward model."""
    return RolloutConfig(task="questions", evaluation=Evaluation(every=None, samples=8))


def rollouts_on_gsm8k() -> RolloutConfig:
    """GSM8K for a real model after SFT, on a GPU."""
    return RolloutConfig(task="gsm8k", model="models/smollm2",
                      rollouts=Rollouts(prompts=10_000, prompts_per_step=32, group_size=16, collections=150),
                      optim=OptimSettings(schedule="linear", warmup=5),
                      evaluation=Evaluation(every=None, problems=256))


SETTINGS = {"questions": rollouts_on_questions, "words": rollouts_on_words, "hard": rollouts_on_hard_words,
            "arithmetic": rollouts_on_arithmetic,
            "countdown": rollouts_on_countdown, "guess": partial(rollouts_on_game, "guess", 60),
            "animals": partial(rollouts_on_game, "animals", 80),
            "big-numbers": partial(rollouts_on_game, "big-numbers", 30), "gsm8k": rollouts_on_gsm8k}


def with_kl(method: Method, coef: float) -> Method:
    """The method with a KL coefficient, wherever the row puts it: DPO's is its beta."""
    if isinstance(method, Policy):
        return methods.change(method, **{"kl_in_reward" if method.kl_in_reward > 0 else "kl_in_loss": coef})
    if method.kind == "supervised":
        raise ValueError(f"{method.name} has no KL: leave kl.coef out.")
    if coef == 0:
        raise ValueError(f"{method.name} divides by its KL weight: kl.coef must be above 0.")
    return methods.change(method, beta=coef)


def pretraining_mix(config: RolloutConfig, chat: Chat, max_tokens: int) -> PtxMix:
    """The texts of the supervised loss beside the rollouts."""
    if config.ptx.texts:
        rows = [(c.id, *chat.conversation(c.messages, tools=c.tools))
                for c in read_conversations(config.ptx.texts)]
    else:
        from postgrad.data.tasks.corpus import documents
        rows = [(str(i), *(chat.document(text) if isinstance(text, str) else chat.conversation(text)))
                for i, text in enumerate(documents(config.seed, 0, 2000))]
    for name, tokens, _ in rows:
        if len(tokens) > max_tokens:
            raise ValueError(f"text {name} has {len(tokens)} tokens, over the model's {max_tokens}: shorten "
                             "it or leave it out.")
    return PtxMix(rows, rows=2 * config.rollouts.prompts_per_step, weight=config.ptx.coef, seed=config.seed)


def reply_kl(reference: LanguageModel, config: RolloutConfig, rollouts: Sequence[Rollout]) -> list[float]:
    """log pi(reply) - log ref(reply) of each rollout, sampled from pi, both at temperature 1: its mean is the
    KL to the reference, in nats."""
    batch = rollout_batch(rollouts).to(config.device)
    ref_logp, _ = model_logp(reference, batch, config.optim.at_once)
    by_rollout = join_episodes(ref_logp, batch.episode).sum(1).tolist()
    return [sum(x for row in r.rows for x in row.logp) - ref
            for r, ref in zip(rollouts, by_rollout, strict=True)]


def rollout_sampler(sampler: TokenSampler, config: RolloutConfig, task: Task, reward: Reward) -> Sample:
    """How the run samples: (prompts, group_size, seed, step) -> groups of rollouts."""
    player = sampler_for(task, sampler, config.rollouts.turns)
    settings = config.rollouts.sampling
    player.ended = reward.prefetch

    def sample(prompts: Sequence[Prompt], group_size: int, seed: int, step: int) -> list[list[Rollout]]:
        player.policy_step = step
        return player.sample(prompts, group_size, settings, seed)

    return sample


def rollout_evaluator(config: RolloutConfig, models: Models, chat: Chat, task: Task,
                      reward: Reward) -> Callable[[int], Figures] | None:
    """Evaluates held-out problems by the task's verifier, with the run's own reward beside it as `proxy`.
    None where nobody judges."""
    if not config.evaluation.every or (not task.judged and config.reward is None):
        return None
    measures = reflection.measures(task, chat.places)
    if config.reward is not None and task.judged:
        measures["proxy"] = lambda rollouts: [s.verdict.score for s in score_groups(reward, [rollouts])[0]
                                              if s.verdict.given]
    if models.reference:
        measures["kl_reply"] = partial(reply_kl, models.reference, config)
    how = config.rollouts
    return policy_evaluator(models.policy, chat, task, config, how.budget,
                            reward=None if task.judged else reward, truncate=how.truncate, turns=how.turns,
                            measures=measures)


def training_prompts(config: RolloutConfig, policy: DecodableModel, teacher: DecodableModel | None,
                     chat: Chat, task: Task, again: Again | None) -> tuple[list[Prompt], tuple[str, ...]]:
    """The prompts of the run, by their difficulty, that fit its models with a reply; and notes on the others.
    again: how the teacher is asked them, where it is shown a demonstration."""
    drawn, how, notes = task.prompts("train", config.rollouts.prompts, config.seed), config.rollouts, [
        *task_notes(task)]
    if config.difficulty.rates is not None:
        drawn, note = config.difficulty.select(drawn)
        notes.append(note)
    settings = Sampling(max_new_tokens=how.budget)
    prompts = prompts_that_fit(LocalSampler(policy, chat), drawn, settings, how.truncate)
    if teacher:
        shown = [again(p) for p in prompts] if again else prompts
        fitting = {p.id for p in prompts_that_fit(LocalSampler(teacher, chat), shown, settings, how.truncate)}
        prompts = [p for p in prompts if p.id in fitting]
    if long := len(drawn) - len(prompts):
        notes.append(f"{long:,} of {len(drawn):,} prompts do not fit the model with their reply, and are "
                     "left out")
    return prompts, tuple(notes)


def filter_note(config: RolloutConfig) -> str:
    """What is trained where rollouts are sampled from a part of the distribution."""
    how, method = config.rollouts, config.row
    filters = ", ".join(f"{name}={value:g}" for name, value, off in (
        ("top_k", how.top_k, 0), ("top_p", how.top_p, 1), ("min_p", how.min_p, 0)) if value != off)
    counts = ("; method.correction weighs each token by its probability there over that in the samples"
              if isinstance(method, Policy) else ", on the samples as they are")
    unchecked = ", and a remote sampler's log-probs are not checked" if config.remote.sampler else ""
    return f"rollouts are sampled with {filters}; trained is the full distribution{counts}{unchecked}"


def help_note(config: RolloutConfig, models: Models, chat: Chat, task: Task, reward: Reward,
              again: Again) -> str:
    """Whether the demonstrations help the policy, measured before the first step."""
    look = config.evaluation
    alone = Sampling(max_new_tokens=look.max_new_tokens or config.rollouts.budget)
    with unshard(models):
        return prove_help(config.row, task, LocalSampler(models.policy, chat), again,
                          look.asked(task, config.seed), None if config.reward is None else reward,
                          samples=look.samples, settings=alone, seed=config.seed)


def length_sentence(config: RolloutConfig, name: str, prompts: int) -> str:
    """What is to come: prompts, steps, replies and passes over the prompts."""
    how, updates = config.rollouts, config.updates_per_collection
    collections = -(-config.last_step // max(1, updates))
    steps = "1 step" if config.last_step == 1 else f"{config.last_step:,} steps"
    several = f"{updates} on each collection, which is" if updates > 1 else "each of"
    return (f"{name}: {prompts:,} prompts; {steps}, {several} {how.prompts_per_step} prompts with "
            f"{how.group_size} replies of at most {how.budget:,} tokens; "
            f"{collections * how.prompts_per_step / prompts:.3g} passes over the prompts")


def build(config: RolloutConfig, source: ModelSource) -> TrainingSetup:
    assert config.task is not None
    method, spec = config.row, parse_reward(config.reward)
    row = method if isinstance(method, Policy) else None
    taught, shown, critic = (row.teacher, row.shown, row.critic) if row else (False, False, False)
    judged = not (taught or config.agent.command)
    task = open_task(config.task, config.reward, judged=judged, bad=BadRows.of_run(config.skips_bad))
    task = config.evaluation.held_out(task, config.eval_task is not None)
    check_task(task)
    policy, chat = open_policy(config, source)
    task = examined = played_by(config.agent, task, chat, policy)
    if config.eval_task is not None:
        other = open_task(config.eval_task, config.reward, judged=judged).with_holdout(0.0)
        examined = played_by(config.agent, other, chat, policy)
    rewards = spec.load_models(policy, chat, config, source)
    compared = method.needs_reference or config.kl.measure
    teacher = open_teacher(method, config.teacher, config, source, policy, chat)
    models = Models(policy=policy, reference=open_reference(config, source, policy) if compared else None,
                    critic=spec.new_critic(policy, rewards, config, source) if critic else None,
                    reward=rewards[0] if rewards else None, teacher=teacher)
    again = ask_with_demonstration(task, config.seed) if shown else None
    prompts, notes = training_prompts(config, policy, teacher, chat, task, again)
    reward = spec.open(task, chat, rewards, device=config.device, ensemble=config.reward_ensemble,
                       taught=taught, steps=config.last_step)
    settings = replace(config.rollouts, turns=max_turns(task, config.rollouts.turns))
    sampler, weights = open_sampler(config, policy, chat)
    own: dict[str, object] = {}
    if row:
        positions = policy.config.max_position_embeddings
        own = {"target": config.kl.target, "gain": config.kl.gain,
               "mix": pretraining_mix(config, chat, positions) if config.ptx.coef else None,
               "show": (lambda prompt: chat.render(again(prompt).messages)) if again else None}
    elif method.kind == "supervised":
        own = {"best": spec.best_score(task)}
    batches = BATCH_SOURCES[method.source](
        prompts, sample=rollout_sampler(sampler, config, task, reward), source=weights, reward=reward,
        models=models, method=method, settings=settings, steps=config.last_step, seed=config.seed,
        tokens_per_pass=config.optim.at_once, device=config.device,
        virtual_ranks=current_virtual_ranks(config.optim.virtual_ranks, config.optim.divides), **own)
    if not settings.sampling.unfiltered:
        notes = (*notes, filter_note(config))
    tokens = settings.max_collection_tokens // (row.minibatches if row else 1)
    optim = Optim(models, config.optim, config.last_step, tokens)
    if again and not source.checkpoint:
        notes = (*notes, help_note(config, models, chat, task, reward, again))
    evaluated = config.evaluation.asked(examined, config.seed) if config.evaluation.every else []
    asked = sampler_for(task, LocalSampler(policy, chat), config.rollouts.turns)
    return TrainingSetup(
        models=models, chat=chat, batches=batches, optim=optim, notes=notes,
        length=length_sentence(config, task.name, len(prompts)),
        data=data_counts((p.messages for p in prompts), (p.messages for p in evaluated)),
        objective=objectives.build_objective(method, temperature=config.rollouts.temperature),
        evaluate=rollout_evaluator(config, models, chat, examined, reward),
        evaluate_every=config.evaluation.every or 0,
        probes=None if config.agent.command else Probes(prompts, asked, reward, task,
                                                        policy.config.max_position_embeddings),
        hooks=(lambda step: batches.after(step.row),) if isinstance(batches, RolloutBatches) else ())
