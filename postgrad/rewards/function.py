"""Functions of the user's own as verifiers and judges: `(prompt, text) -> float | bool | Verdict`,
and TRL's kind.

A function that raises, or says something that is no score, is a fault of the function and not of the model:
such a rollout gets an error verdict, which is counted and kept out of the loss. It is never a reward of 0.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import update_wrapper
from pathlib import Path

from postgrad.records import Prompt, Reward, Rollout, Verdict
from postgrad.rewards.base import Verify, error_verdict, explain_overdue, guarded
from postgrad.rewards.limit import SECONDS, TimeLimit, within_limit
from postgrad.system.user_code import GIVEN, function_hash, function_name
from postgrad.system.user_code import error_location as place_of

TOGETHER = 10 * SECONDS  # the most that a function may take which judges all replies at once


def is_score(said: object) -> bool:
    return (isinstance(said, bool | int | float)
            or (hasattr(said, "__float__") and getattr(said, "shape", None) == ()))


def verdict_of(said: object, who: str) -> Verdict:
    """What a function said, as a Verdict; an error verdict where it is no score."""
    if not isinstance(said, Verdict):
        if not is_score(said):
            what = "nothing (None)" if said is None else f"a {type(said).__name__}"
            return error_verdict(f"{who} returned {what}: it has to return a float, a bool or a Verdict")
        said = Verdict(score=float(said))  # type: ignore[arg-type]
    if not (is_score(said.score) and math.isfinite(said.score)):
        return error_verdict(f"{who} returned the score {said.score!r:.40}")
    return said


def own_verifier(verify: Callable[[Prompt, str], object], path: Path | None = None,
                 seconds: float | None = None) -> Verify:
    """A user's function as a verifier, total. path: the file it is in, for the place of an error.
    seconds: the most that a verdict may take, as in `guarded`."""
    who = f"{path.name}: verify" if path else function_name(verify)
    place = path or Path(getattr(getattr(verify, "__code__", None), "co_filename", who))
    judge = guarded(lambda prompt, text: verdict_of(verify(prompt, text), who),
                    lambda error: place_of(place, error), seconds or getattr(verify, "seconds", None))
    return update_wrapper(judge, verify, updated=())


def check_signature(function: Callable[..., object]) -> None:
    """Of a reward function, before any training: it can be called with a prompt and a text."""
    name, signature = function_name(function).rpartition(".")[2], signature_of(function)
    if signature and "completions" in signature.parameters:
        raise ValueError(f"reward {name} takes completions, as functions written for TRL do: hand it in as "
                         f"from_trl({name}).")
    takes_two(function, f"reward {name}")


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """None of something built in, which does not say what it takes."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def takes_two(function: Callable[..., object], name: str) -> None:
    """Whether it can be called with a prompt and a text. name: what it is called in the sentence."""
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
    each further field of the prompts' rows as a list: the answer under `answer`, the rest by its own name. A
    None in its place says that the function has nothing to judge there:
    other parts of a sum then count for the whole.
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
            said = within_limit(limit, lambda: list(self.function(prompts=prompts, completions=texts,
                                                                  completion_ids=ids, **columns)))
            if len(said) != len(rollouts):
                raise ValueError(f"{len(said)} scores for {len(rollouts)} completions")
        except (Exception, SystemExit, TimeLimit) as error:  # noqa: BLE001 - whatever a user's function raises
            error = explain_overdue(error, limit) if isinstance(error, TimeLimit) else error
            place = Path(getattr(getattr(self.function, "__code__", None), "co_filename", self.__name__))
            return [error_verdict(place_of(place, error))] * len(rollouts)
        absent = Verdict(score=0.0, reason="nothing to judge", absent=True)
        return [absent if x is None else verdict_of(x, self.__name__) for x in said]
