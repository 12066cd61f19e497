"""A user's functions as rewards: `(prompt, text) -> float | bool | Verdict`, and TRL's signature; plain or
`async`.

Where a function raises, or returns no score, the rollout gets an error verdict, which is counted and masked
out of the loss; it is never a reward of 0.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import TypeGuard, cast

from postgrad.records import Prompt, Reward, Rollout, Verdict
from postgrad.rewards.base import Verify, error_verdict, explain_overdue, guarded
from postgrad.rewards.isolated import isolated_verifier, wants_jail
from postgrad.rewards.parallel import CONCURRENCY, SLOW, run_coroutine
from postgrad.system.limit import SECONDS, TimeLimit, within_limit
from postgrad.system.user_code import GIVEN, function_hash, function_name
from postgrad.system.user_code import error_location as place_of

SERVED = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")
TOGETHER = 10 * SECONDS  # the limit of a function that scores all replies in one call


def is_score(value: object) -> TypeGuard[float]:
    """A number, or a tensor or array of no dimensions."""
    return (isinstance(value, bool | int | float)
            or (hasattr(value, "__float__") and getattr(value, "shape", None) == ()))


def verdict_of(value: object, who: str) -> Verdict:
    """A function's return value as a Verdict; an error verdict where it is no score."""
    if is_score(value):
        value = Verdict(score=float(value))
    if not isinstance(value, Verdict):
        kind = "nothing (None)" if value is None else f"a {type(value).__name__}"
        return error_verdict(f"{who} returned {kind}: it has to return a float, a bool or a Verdict")
    if not (is_score(value.score) and math.isfinite(value.score)):
        return error_verdict(f"{who} returned the score {value.score!r:.40}")
    return value


def own_verifier(verify: Callable[[Prompt, str], object], path: Path | None = None,
                 seconds: float | None = None) -> Verify:
    """A user's function as a total verifier. path: its file, for the location of an error. seconds: as in
    `guarded`."""
    who = f"{path.name}: verify" if path else function_name(verify)
    if wants_jail(verify):
        jailed = isolated_verifier(verify, seconds, lambda value: verdict_of(value, who))
        return update_wrapper(guarded(jailed, seconds=math.inf), verify, updated=())
    place = path or Path(getattr(getattr(verify, "__code__", None), "co_filename", who))

    def call(prompt: Prompt, text: str) -> Verdict:
        return verdict_of(awaited(verify(prompt, text)), who)

    call.concurrency = getattr(verify, "concurrency", CONCURRENCY)  # type: ignore[attr-defined]
    judge = guarded(call, lambda error: place_of(place, error), seconds or getattr(verify, "seconds", None))
    return update_wrapper(judge, verify, updated=())


def awaited(value: object) -> object:
    """What a function returned; of an `async` one, the result of its coroutine."""
    return run_coroutine(value) if inspect.isawaitable(value) else value


def is_batched(function: Callable[..., object]) -> bool:
    """Whether a function takes all completions at once, as TRL's do."""
    signature = signature_of(function)
    return bool(signature and "completions" in signature.parameters)


def check_signature(function: Callable[..., object]) -> None:
    """Raises ValueError where a reward function cannot be called with a prompt and a text."""
    takes_two(function, f"reward {function_name(function).rpartition('.')[2]}")


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature of a function; None of a builtin that has none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def takes_two(function: Callable[..., object], name: str) -> None:
    """Raises ValueError where a function cannot be called with a prompt and a text. name: of the function."""
    if not callable(function):
        raise ValueError(f"{name} is {function!r:.80}: expected a function of (prompt, text); a verifier by "
                         "name is reward='number' of fit and evaluate.")
    if not (signature := signature_of(function)):
        return
    try:
        signature.bind(None, "")
    except TypeError:
        raise ValueError(f"{name}{signature} cannot be called with (prompt, text): give it these two "
                         "arguments, and the others a default.") from None


def plain_value(value: object) -> object:
    """A value for a JSON row: numbers and texts as they are, tensors of one number as one, others as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return float(value) if is_score(value) else str(value)


class TrainerState:
    """What a function written for TRL may ask of `trainer_state`: global_step and max_steps."""

    def __init__(self, global_step: int, max_steps: int | None):
        self.global_step, self.max_steps = global_step, max_steps

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"trainer_state has global_step and max_steps here, and no {name}")


class WrongScores(ValueError):
    """What a function for all completions returned is no list of scores."""


def score_list(value: object, who: str) -> list[object]:
    if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
        kind = "nothing (None)" if value is None else f"a {type(value).__name__}"
        raise WrongScores(f"{who} returned {kind}: it has to return a list, a score for each completion")
    return list(cast("Iterable[object]", value))


class TRLReward(Reward):
    """A reward function written for TRL: completions and columns in, a list of scores out; `async` or not.

    fit("tiny-chat", "grpo", task=rows, reward=my_function); from_trl(my_function) says `conversational`. It
    is called as TRL calls it: `prompts` and `completions` as lists of messages where conversational is true
    (else as texts; None: as the rows have their prompts), `completion_ids`, and the other fields of the rows
    as lists by name (`answer` among them). A score of None is an absent verdict. `trainer_state` has the step
    (TrainerState); log_metric(name, value) goes to the run's metrics as reward/NAME, log_extra(name, values)
    to the samples' rows. A function without **kwargs is handed the arguments that it names.
    """

    def __init__(self, function: Callable[..., object], conversational: bool | None = True,
                 max_steps: int | None = None):
        if not callable(function):
            raise ValueError(f"from_trl was given {function!r:.80}: expected a function of (completions, "
                             "**columns) that returns a list of scores; several are a list of these, "
                             "reward=[from_trl(f), from_trl(g)].")
        self.function = function
        self.conversational = conversational
        self.max_steps = max_steps
        self.reported = False
        self.__name__ = getattr(function, "__name__", "reward")

    def record(self) -> dict[str, object]:
        return {GIVEN: "TRL reward function", "name": function_name(self.function),
                "sha256": function_hash(self.function), "conversational": self.conversational}

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        metrics: dict[str, list[float]] = {}
        extra: dict[str, list[object]] = {}
        given = self.arguments(rollouts) | {
            "trainer_state": TrainerState(max(0, max((r.policy_step for r in rollouts), default=1) - 1),
                                          self.max_steps),
            "log_metric": lambda name, value: metrics.setdefault(f"reward/{name}", []).append(float(value)),
            "log_extra": lambda name, values: extra.update({name: list(map(plain_value, values))})}
        limit = getattr(self.function, "seconds", TOGETHER)
        watch = threading.Timer(SLOW, self.report, (len(rollouts), limit))
        watch.daemon = True
        watch.start()
        try:
            given = self.asked_for(given)
            scores = within_limit(limit, lambda: score_list(awaited(self.function(**given)), self.__name__))
            for name, values in {"": scores, **extra}.items():
                if len(values) != len(rollouts):
                    what = f"values of log_extra {name!r}" if name else "scores"
                    raise WrongScores(f"{self.__name__} gave {len(values)} {what} for {len(rollouts)} "
                                      "completions: it has to give one for each")
        except WrongScores as error:
            return [error_verdict(str(error))] * len(rollouts)
        except (Exception, SystemExit, TimeLimit) as error:  # noqa: BLE001 - whatever a user's function raises
            error = explain_overdue(error, limit) if isinstance(error, TimeLimit) else error
            place = Path(getattr(getattr(self.function, "__code__", None), "co_filename", self.__name__))
            hint = ("; completions are lists of messages here: reply[0]['content']"
                    if self.conversational and "'list' object" in str(error) else "")
            return [error_verdict(place_of(place, error) + hint)] * len(rollouts)
        finally:
            watch.cancel()
        absent = Verdict(score=0.0, reason="nothing to judge", absent=True)
        verdicts = [absent if x is None else verdict_of(x, self.__name__) for x in scores]
        if not metrics and not extra:
            return verdicts
        means = {name: sum(values) / len(values) for name, values in metrics.items()}
        return [replace(verdict, metrics=means, extra={name: values[i] for name, values in extra.items()})
                for i, verdict in enumerate(verdicts)]

    def report(self, count: int, limit: float) -> None:
        """One line about a slow call, once."""
        if not self.reported:
            self.reported = True
            print(f"postgrad: the reward {self.__name__} is slow: {count} replies not judged in {SLOW:g} s "
                  f"(limit of the call: {limit:g} s)", file=sys.stderr)

    def arguments(self, rollouts: Sequence[Rollout]) -> dict[str, object]:
        texts = [not (r.prompt.conversational if self.conversational is None else self.conversational)
                 for r in rollouts]
        names = sorted({name for r in rollouts for name in r.prompt.meta})
        columns = {name: [r.prompt.meta.get(name) for r in rollouts] for name in names}
        return {**columns, "answer": [r.prompt.answer for r in rollouts],
                "prompts": [r.prompt.question if plain else list(r.prompt.messages)
                            for r, plain in zip(rollouts, texts, strict=True)],
                "completions": [r.text if plain else [{"role": "assistant", "content": r.text}]
                                for r, plain in zip(rollouts, texts, strict=True)],
                "completion_ids": [list(r.tokens) for r in rollouts]}

    def asked_for(self, given: dict[str, object]) -> dict[str, object]:
        """The arguments that the function names, all of them where it takes **kwargs."""
        if not (signature := signature_of(self.function)):
            return given
        kinds = signature.parameters.values()
        missing = [p.name for p in kinds if p.name not in (*given, *SERVED) and p.default is p.empty
                   and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        if missing:
            columns = [name for name in given if name not in SERVED]
            raise ValueError(f"{self.__name__} asks for the column {missing[0]!r}, and the rows have "
                             f"{', '.join(columns)}: add it to the rows, or give the argument a default.")
        if any(p.kind == p.VAR_KEYWORD for p in kinds):
            return given
        return {name: value for name, value in given.items() if name in signature.parameters}
