"""Whatever stands for a reward becomes a `Reward`, in two steps: `parse_reward` reads it without opening a
model, and `RewardSpec.open` makes the object that scores rollouts.

    None                        the task's own verifier
    "number+0.2*think"          verifiers by name; "correct+0.2*think" with the task's own reading of answers
    "runs/reward", "a,b,c"      a reward model, or several as an ensemble; a Run, or an opened ScalarModel,
                                likewise
    "judge:MODEL[:RUBRIC.txt]"  a chat model that grades
    "judge:http://HOST/v1?model=NAME&rubric=FILE"   a judge behind an address (rewards/remote_judge.py)
    "mine.py", "mine.py:NAME"   the function `reward` or NAME of a file
    my_function                 (prompt, text) -> float | bool | Verdict, or TRL's (prompts, completions,
                                **columns) -> list[float], known by its parameter `completions`; async or not
    my_object                   whatever has the two methods of `postgrad.records.Reward`
    [f, g], {f: 1.0, "think": 0.2}   the sum of several, each with its weight
    "questions=runs/reward;number+0.2*think"   of a mixture of tasks: prompts of `questions` by the reward
                                model, all others by what names no task, else by the task's own verifier
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import ClassVar

from postgrad.data.tasks import Task
from postgrad.models import Adapted, ScalarModel, load_scalar
from postgrad.models.chat import Chat
from postgrad.records import Reward, Rollout, Verdict
from postgrad.resolve.models import (
    EMBEDDED,
    ModelSettings,
    ModelSource,
    Trained,
    new_adapter,
    open_chat,
    open_folder,
    open_writer,
    run_named,
    shared_scalar,
)
from postgrad.rewards.base import RoutedReward, VerifierReward, Verify, WeightedReward
from postgrad.rewards.function import TRLReward, check_signature, is_batched, own_verifier
from postgrad.rewards.grader import RUBRIC, GraderReward
from postgrad.rewards.model import ModelReward, ProcessReward
from postgrad.rewards.named import NAMED, RewardFunction, VerifierSum, is_reward_name, read_spec
from postgrad.rewards.remote_judge import RemoteJudge, parse_judge
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import read_bytes, read_text
from postgrad.system.plugins import is_file_spec, load_from_file
from postgrad.system.user_code import function_name

BETWEEN = re.compile(r";(?![^()]*\))")  # a semicolon outside of brackets

TRL_NAMES = {"accuracy_reward": "maths", "think_format_reward": "think"}  # of trl.rewards
LoadScalar = Callable[[str], ScalarModel]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The arguments of `SpecTerm.open`. models: the term's opened reward models. steps: of the run."""

    task: Task
    chat: Chat
    device: str
    ensemble: str
    models: Sequence[ScalarModel] = ()
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class SpecTerm:
    """One term of a reward. task: the task whose prompts it scores; "": all without a term of their own."""

    learned: ClassVar[bool] = False  # a model scores, which a policy can exploit
    name: str
    weight: float = 1.0
    task: str = ""

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that it opens by name."""
        return ()

    @property
    def model_count(self) -> int:
        """How many reward models it needs."""
        return 0

    @property
    def best(self) -> float | None:
        """The best score of a reply, None where unbounded; 1 is assumed of a user's function."""
        return 1.0

    @property
    def verifier(self) -> Verify | None:
        """It as a function of (prompt, text); None where it scores rollouts."""
        return None

    def load_models(self, load: LoadScalar) -> list[ScalarModel]:
        """Its reward models. load: opens one by name."""
        return []

    def open(self, opening: Opening) -> Reward:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FunctionTerm(SpecTerm):
    function: RewardFunction

    @property
    def verifier(self) -> Verify:
        return own_verifier(self.function)

    def open(self, opening: Opening) -> Reward:
        return _proved(VerifierReward(self.verifier), self.name, opening.task)


@dataclass(frozen=True, kw_only=True)
class RewardTerm(SpecTerm):
    """An object that scores rollouts itself."""

    reward: Reward

    def open(self, opening: Opening) -> Reward:
        reward = self.reward
        if isinstance(reward, TRLReward):
            reward = TRLReward(reward.function, reward.conversational, opening.steps)
        return _proved(reward, self.name, opening.task)


@dataclass(frozen=True, kw_only=True)
class VerifierTerm(SpecTerm):
    """Verifiers by name, as a sum."""

    sum: VerifierSum

    @property
    def best(self) -> float:
        return self.sum.best

    @property
    def verifier(self) -> Verify:
        return self.sum

    def open(self, opening: Opening) -> Reward:
        waits = self.sum.waits or self.sum.has("correct") and opening.task.waits
        return VerifierReward(self.sum.for_task(opening.task.verify), waits)


@dataclass(frozen=True, kw_only=True)
class ModelTerm(SpecTerm):
    """Reward models, by name or one that is opened; several are an ensemble."""

    learned: ClassVar[bool] = True
    names: tuple[str, ...] = ()
    model: ScalarModel | None = None

    @property
    def model_names(self) -> tuple[str, ...]:
        return self.names

    @property
    def model_count(self) -> int:
        return len(self.names) or 1

    @property
    def best(self) -> None:
        return None

    def load_models(self, load: LoadScalar) -> list[ScalarModel]:
        return [self.model] if self.model is not None else [load(name) for name in self.names]

    def open(self, opening: Opening) -> Reward:
        models, task = opening.models, opening.task
        if all(model.head != "process" for model in models):
            return ModelReward(models, rule=opening.ensemble, device=opening.device)
        if len(models) > 1:
            raise ValueError("a process model pays token by token, so it makes no ensemble: name it "
                             "alone in reward.")
        if task.steps is None:
            raise ValueError(f"a process model scores the steps of a reply, and task {task.name} has none: "
                             "take a reward model, or the task's own verifier (reward=none).")
        steps = task.steps
        return ProcessReward(models[0], opening.chat,
                             lambda r: [step.end for step in steps(r.prompt, r.text)], device=opening.device)


@dataclass(frozen=True, kw_only=True)
class GraderTerm(SpecTerm):
    """A chat model that grades. rubric: a file that says what a good reply is; "": the rubric that ships."""

    learned: ClassVar[bool] = True
    model: str
    rubric: str

    @property
    def model_names(self) -> tuple[str, ...]:
        return (self.model,)

    def open(self, opening: Opening) -> Reward:
        if self.rubric and not Path(self.rubric).is_file():
            raise ValueError(f"reward=judge:{self.model}:{self.rubric}: there is no rubric {self.rubric!r}: "
                             "give a text that says what a good reply is.")
        model, chat = open_writer(self.model, opening.device)
        sampler = LocalSampler(model.requires_grad_(False), chat)
        settings = Sampling(max_new_tokens=16, temperature=0.0)
        rubric = read_text(self.rubric).strip() if self.rubric else RUBRIC
        return GraderReward(sampler, settings, rubric=rubric,
                            fits=lambda prompt: sampler.check([prompt], settings))


@dataclass(frozen=True, kw_only=True)
class RemoteJudgeTerm(SpecTerm):
    """A judge behind an address, as text (`parse_judge`)."""

    learned: ClassVar[bool] = True
    address: str

    def open(self, opening: Opening) -> Reward:
        return RemoteJudge(**parse_judge(self.address))


@dataclass(frozen=True)
class RewardSpec:
    """A parsed reward. No terms: the task's own verifier."""

    terms: tuple[SpecTerm, ...] = ()

    @property
    def model_names(self) -> list[str]:
        """The models that it opens by name, in order."""
        return [name for term in self.terms for name in term.model_names]

    @property
    def learned(self) -> bool:
        return any(term.learned for term in self.terms)

    @property
    def graders(self) -> list[GraderTerm]:
        return [term for term in self.terms if isinstance(term, GraderTerm)]

    @property
    def verifier(self) -> Verify | None:
        """It as one function of (prompt, text); None where it scores rollouts."""
        return self.terms[0].verifier if len(self.terms) == 1 else None

    @property
    def of_task(self) -> bool:
        """Whether the task's own verifier judges, or is a part."""
        return not self.terms or any(isinstance(term, VerifierTerm) and term.sum.has("correct")
                                     for term in self.terms)

    @property
    def by_answer(self) -> list[str]:
        """The verifiers by name that hold a reply against the prompt's answer."""
        return [name for term in self.terms if isinstance(term, VerifierTerm)
                for name, _, row, _ in term.sum.terms if row.kind == "answer" and name != "correct"]

    @property
    def checks(self) -> list[Callable[[Sequence[object]], None]]:
        """Of the verifiers by name: raises ValueError where they cannot judge by an answer."""
        return [term.sum.check for term in self.terms if isinstance(term, VerifierTerm)]

    def rubric_hash(self) -> str | None:
        """The hash of the rubric that a grading model is given; None where there is none."""
        remote = [str(parse_judge(term.address).get("rubric", "")) for term in self.terms
                  if isinstance(term, RemoteJudgeTerm)]
        for rubric in [*(term.rubric for term in self.graders), *remote]:
            if rubric and Path(rubric).is_file():
                return hashlib.sha256(read_bytes(rubric)).hexdigest()
        return None

    def best_score(self, task: Task) -> float | None:
        """The best score of a reply; None for a reward model, and where it differs from task to task."""
        if not self.terms:
            return task.best
        best = [(term.weight, term.best) for term in self.terms]
        if any(term.task for term in self.terms) or any(score is None for _, score in best):
            return None
        return sum(max(weight, 0.0) * score for weight, score in best if score is not None)

    def load_models(self, policy: Trained, chat: Chat, config: ModelSettings,
                    source: ModelSource) -> list[ScalarModel]:
        """The reward models of a run, on the policy's body where both are adapters on it."""
        def load(name: str) -> ScalarModel:
            shared = shared_scalar(name, policy.body, config, source) if isinstance(policy, Adapted) else None
            return _checked(name, shared or load_scalar(open_folder(name), device=config.device), chat)

        models = [model for term in self.terms for model in term.load_models(load)]
        return [model.to(config.device).requires_grad_(False) for model in models]

    def new_critic(self, policy: Trained, models: Sequence[ScalarModel], config: ModelSettings,
                   source: ModelSource) -> ScalarModel:
        """A critic initialised from the (first) reward model, else from the run's model with a zero head;
        with adapters, on the policy's body. A process model's scores are log-odds of its rewards, so no
        critic starts from one."""
        names = [name for term in self.terms if isinstance(term, ModelTerm) for name in term.names]
        names = [] if any(model.head == "process" for model in models) else names
        if not isinstance(policy, Adapted):
            return load_scalar(open_folder(names[0]) if names else source.origin, device=config.device,
                               divide=config.optim.dividing(config.device))
        shared = shared_scalar(names[0], policy.body, config, source) if names else None
        return shared or ScalarModel(new_adapter(policy.body, config, "critic"))

    def open(self, task: Task, chat: Chat, models: Sequence[ScalarModel], *, device: str,
             ensemble: str = "mean", taught: bool = False, steps: int | None = None) -> Reward:
        """The reward of a run. models: its opened reward models, in order. taught: a teacher's log-probs
        suffice, so without a verifier every score is 0. steps: of the run."""
        rest = iter(models)
        by_task: dict[str, dict[str, tuple[Reward, float]]] = {}
        for term in self.terms:
            rewards = by_task.setdefault(term.task, {})
            name = term.name if term.name not in rewards else f"{term.name} {len(rewards) + 1}"
            opening = Opening(task=task, chat=chat, device=device, ensemble=ensemble,
                              models=list(islice(rest, term.model_count)), steps=steps)
            rewards[name] = term.open(opening), term.weight
        otherwise: Reward
        if others := by_task.pop("", {}):
            otherwise = _sum(others)
        elif not task.judged and taught:
            otherwise = VerifierReward(lambda prompt, text: Verdict(score=0.0, reason="nobody judges"))
        elif not task.judged:
            raise ValueError(f"task {task.name} has no verifier: say who judges with reward=, a function of "
                             "(prompt, text), say.")
        else:
            otherwise = task.reward()
        own = {name: _sum(rewards) for name, rewards in by_task.items()}
        return RoutedReward(own, otherwise, task.name) if own else otherwise

    def open_alone(self, task: Task, chat: Chat, device: str) -> Reward:
        """The reward of an evaluation outside a run: reward models have a body of their own."""
        def load(name: str) -> ScalarModel:
            return _checked(name, load_scalar(open_folder(name), device=device), chat)

        models = [model for term in self.terms for model in term.load_models(load)]
        return self.open(task, chat, models, device=device)


def describe_verifiers() -> list[dict[str, str]]:
    """A row for every verifier that goes by a name: what it judges, and what it pays for."""
    judges = {"answer": "the answer, by the row's gold", "form": "the form", "style": "the whole reply"}
    return [{"verifier": name + row.takes, "judges": judges[row.kind], "pays for": row.pays,
             "sandbox": "yes" if row.jailed else ""} for name, row in NAMED.items()]


def parse_reward(reward: object) -> RewardSpec:
    """Parses whatever stands for a reward; nothing below asks which kind it is."""
    return RewardSpec(() if reward is None else parse_terms(reward))


def parse_terms(reward: object) -> tuple[SpecTerm, ...]:
    if isinstance(reward, str):
        pieces = [reward] if Path(reward).exists() else BETWEEN.split(reward)
        return tuple(_task_term(text) for text in pieces if text.strip())
    if isinstance(reward, Mapping):
        terms = tuple(_weighted_term(key, weight) for key, weight in reward.items())
    else:
        terms = tuple(map(_term, reward)) if isinstance(reward, Sequence) else (_term(reward),)
    if not terms:
        raise ValueError(f"reward is {reward!r}: expected at least one reward, or none at all for the task's "
                         "own verifier.")
    return terms


def _task_term(text: str) -> SpecTerm:
    """"questions=runs/reward" -> the reward model, for prompts of the task questions."""
    named = re.fullmatch(r"\s*([\w.-]+)=(.*)", text, re.DOTALL)
    if named and not Path(text).exists():
        return replace(_named_term(named[2]), task=named[1])
    return _named_term(text)


def _weighted_term(key: object, weight: object) -> SpecTerm:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < abs(weight) < float("inf"):
        raise ValueError(f"reward gives {key!r:.60} the weight {weight!r}: it must be a number other than 0.")
    return replace(_term(key), weight=float(weight))


def _term(reward: object) -> SpecTerm:
    if isinstance(reward, Run | Path):
        folder = reward.folder if isinstance(reward, Run) else reward
        return ModelTerm(name=folder.name, names=(str(folder),))
    if isinstance(reward, ScalarModel):
        return ModelTerm(name="reward model", model=reward)
    if isinstance(reward, Reward):
        return RewardTerm(name=getattr(reward, "__name__", type(reward).__name__), reward=reward)
    if isinstance(reward, str):
        return _task_term(reward)
    if callable(reward):
        if is_batched(reward):
            return RewardTerm(name=function_name(reward).rpartition(".")[2],
                              reward=TRLReward(reward, conversational=None))
        check_signature(reward)
        return FunctionTerm(name=function_name(reward).rpartition(".")[2], function=reward)
    raise ValueError(f"reward is {reward!r:.80}: expected a function of (prompt, text), a list or weighted "
                     "dict of them, a reward model, a run, or a name.")


def _named_term(text: str) -> SpecTerm:
    kind, _, rest = text.strip().partition(":")
    if is_file_spec(text.strip()):
        return _term(load_from_file(text.strip(), "reward"))
    if kind == "judge" and rest.startswith(("http://", "https://")):
        if "model" not in parse_judge(rest):
            raise ValueError(f"reward={text}: name the model behind the address: judge:http://HOST/v1?"
                             "model=NAME.")
        return RemoteJudgeTerm(name="judge", address=rest)
    if kind in ("http", "https"):
        raise ValueError(f"reward={text}: a judge behind an address is judge:http://HOST/v1?model=NAME.")
    if kind == "judge":
        if "?" in rest:
            raise ValueError(f"reward={text}: options are for a judge behind an address, judge:http://HOST/v1?"
                             "model=NAME; `postgrad serve MODEL` gives a model one.")
        model, _, rubric = rest.partition(":")
        if not model:
            raise ValueError(f"reward={text}: name the chat model that grades, e.g. "
                             "reward=judge:models/judge.")
        return GraderTerm(name="grade", model=model, rubric=rubric)
    first = re.match(r"\s*(?:-?[0-9.]+\s*\*\s*)?([a-zA-Z_]\w*)", text)
    if first and not Path(text).exists() and is_reward_name(
            first[1], nearly=text not in EMBEDDED and text[first.end():].lstrip()[:1] in ("", "+", "(")):
        return VerifierTerm(name=text, sum=read_spec(text))
    if re.fullmatch(r"\s*[a-zA-Z_]\w*\s*", text) and not (
            text in EMBEDDED or Path(text).exists() or run_named(text)):
        theirs = f" (TRL's {text} is {TRL_NAMES[text]} here)" if text in TRL_NAMES else ""
        raise ValueError(f"no model at {text}, and no verifier is called so{theirs}: `postgrad verifiers` "
                         "lists them; FILE.py:NAME is a function of yours, and a reward model is a run or a "
                         "folder.")
    names = split_model_names(text)
    return ModelTerm(name=Path(names[0]).name, names=names)


def split_model_names(text: str) -> tuple[str, ...]:
    """"a, b" -> ("a", "b"). A folder that exists is one name, commas and all."""
    whole = text.strip()
    if Path(re.sub(r"@\d+$", "", whole)).exists():
        return (whole,)
    names = tuple(name.strip() for name in whole.split(",") if name.strip())
    for left, right in pairwise(whole.split(",")):
        folder = f"{left},{re.split('[/@]', right)[0]}".strip()
        if Path(folder).exists():
            raise ValueError(f"reward={text}: {folder} has a comma in its name, and a comma stands between "
                             "several reward models: rename it, or name it alone.")
    return names


def _checked(name: str, model: ScalarModel, chat: Chat) -> ScalarModel:
    """Checks that a reward model's head is trained, and that it has the policy's tokenizer and template."""
    theirs = open_chat(open_folder(name))
    if not model.score_head.weight.any():
        raise ValueError(f"{name} is no reward model: it scores all 0; train one with `postgrad "
                         "train reward:...`")
    if theirs.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or theirs.template != chat.template:
        raise ValueError(f"the reward model {name} has another tokenizer or chat template than the "
                         "policy, so it would misread its tokens: train it from the same model.")
    return model.requires_grad_(False)


def _sum(rewards: Mapping[str, tuple[Reward, float]]) -> Reward:
    """One reward of weight 1 as it is; others as their weighted sum."""
    (first, weight), *more = rewards.values()
    return first if weight == 1 and not more else WeightedReward(rewards)


def _proved(reward: Reward, name: str, task: Task) -> Reward:
    """Checks that a user's reward finds its columns, and can score an empty reply."""
    (prompt,) = task.prompts("train", 1, 0)
    empty = Rollout(prompt=prompt, prompt_tokens=(), tokens=(), logp=(), text="", finished=True, seed=0)
    if isinstance(reward, TRLReward):
        reward.asked_for(reward.arguments([empty]))
    (verdict,) = reward.score([empty])
    if verdict.error:
        error = verdict.error.removeprefix("infrastructure: ")
        says_itself = any(words in error for words in (" returned ", " gave ", "TimeLimit:"))
        remedy = ("" if says_itself else
                  ": a prompt's answer is prompt.answer, and its other columns are prompt.meta['NAME']"
                  if "'Prompt' object" in error else ": it must judge any text, an empty one too")
        raise ValueError(f"reward {name} fails on an empty reply ({error}){remedy}.")
    return reward
