"""A user's functions as rewards: `(prompt, text) -> float | bool | Verdict`, and TRL's signature.

Where a function raises, or returns no score, the rollout gets an error verdict, which is counted and masked
out of the loss; it is never a reward of 0.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import update_wrapper
from pathlib import Path
from typing import TypeGuard

from postgrad.records import Prompt, Reward, Rollout, Verdict
from postgrad.rewards.base import Verify, error_verdict, explain_overdue, guarded
from postgrad.rewards.limit import SECONDS, TimeLimit, within_limit
from postgrad.system.user_code import GIVEN, function_hash, function_name
from postgrad.system.user_code import error_location as place_of

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
    place = path or Path(getattr(getattr(verify, "__code__", None), "co_filename", who))
    judge = guarded(lambda prompt, text: verdict_of(verify(prompt, text), who),
                    lambda error: place_of(place, error), seconds or getattr(verify, "seconds", None))
    return update_wrapper(judge, verify, updated=())


def check_signature(function: Callable[..., object]) -> None:
    """Raises ValueError where a reward function cannot be called with a prompt and a text."""
    name, signature = function_name(function).rpartition(".")[2], signature_of(function)
    if signature and "completions" in signature.parameters:
        raise ValueError(f"reward {name} takes completions, as functions written for TRL do: hand it in as "
                         f"from_trl({name}).")
    takes_two(function, f"reward {name}")


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature of a function; None of a builtin that has none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def takes_two(function: Callable[..., object], name: str) -> None:
    """Raises ValueError where a function cannot be called with a prompt and a text. name: of the function."""
    if not (signature := signature_of(function)):
        return
    try:
        signature.bind(None, "")
    except TypeError:
        raise ValueError(f"{name}{signature} cannot be called with (prompt, text): give it these two "
                         "arguments, and the others a default.") from None


class TRLReward(Reward):
    """A reward function written for TRL: completions and columns in, a list of scores out.

    fit("tiny-chat", "grpo", task=rows, reward=from_trl(my_function)). It is called as TRL calls it: `prompts`
    and `completions` as lists of messages where conversational is true (else as texts), `completion_ids`, and
    the other fields of the rows as lists by name (`answer` among them). A score of None is an absent verdict.
    """

    def __init__(self, function: Callable[..., Sequence[object]], conversational: bool = True):
        self.function = function
        self.conversational = conversational
        self.__name__ = getattr(function, "__name__", "reward")

    def record(self) -> dict[str, object]:
        return {GIVEN: "TRL reward function", "name": function_name(self.function),
                "sha256": function_hash(self.function), "conversational": self.conversational}

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        prompts = [list(r.prompt.messages) if self.conversational else r.prompt.question for r in rollouts]
        texts = [[{"role": "assistant", "content": r.text}] if self.conversational else r.text
                 for r in rollouts]
        names = sorted({name for r in rollouts for name in r.prompt.meta})
        columns = {name: [r.prompt.meta.get(name) for r in rollouts] for name in names}
        columns["answer"] = [r.prompt.answer for r in rollouts]
        ids = [list(r.tokens) for r in rollouts]
        limit = getattr(self.function, "seconds", TOGETHER)
        try:
            scores = within_limit(limit, lambda: list(self.function(prompts=prompts, completions=texts,
                                                                    completion_ids=ids, **columns)))
            if len(scores) != len(rollouts):
                raise ValueError(f"{len(scores)} scores for {len(rollouts)} completions")
        except (Exception, SystemExit, TimeLimit) as error:  # noqa: BLE001 - whatever a user's function raises
            error = explain_overdue(error, limit) if isinstance(error, TimeLimit) else error
            place = Path(getattr(getattr(self.function, "__code__", None), "co_filename", self.__name__))
            return [error_verdict(place_of(place, error))] * len(rollouts)
        absent = Verdict(score=0.0, reason="nothing to judge", absent=True)
        return [absent if x is None else verdict_of(x, self.__name__) for x in scores]
