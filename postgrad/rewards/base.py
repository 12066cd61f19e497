"""Verdict arithmetic, and the proof that a verifier must give before any training starts."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from postgrad.records import Prompt, Rollout, Scored, Verdict
from postgrad.rewards.limit import SECONDS, TimeLimit, one_bell, within

GARBAGE = ("", " ", "?", "\x00\ufffd", "lorem ipsum dolor", "<think></think>", "<answer></answer>")


class Judge(Protocol):
    """Who scores rollouts: a verifier of texts, reward models, a chat model that grades.

    One verdict each, in order.
    """

    def __call__(self, rollouts: Sequence[Rollout]) -> Sequence[Verdict]: ...


def judge_all(judge: Judge, groups: Sequence[Sequence[Rollout]]) -> list[list[Scored]]:
    """Every rollout with its verdict. Where none of them could be judged there is nothing to go on with."""
    verdicts = list(judge([r for group in groups for r in group]))
    refuse_all_errors(verdicts)
    given = iter(verdicts)
    return [[Scored(rollout=r, verdict=next(given)) for r in group] for group in groups]


def refuse_all_errors(verdicts: Sequence[Verdict]) -> None:
    """A ValueError where every verdict is an error; it quotes the one that came most often."""
    errors = Counter(v.error for v in verdicts if v.error)
    if verdicts and errors.total() == len(verdicts):
        raise ValueError(f"none of {len(verdicts)} replies could be judged: {errors.most_common(1)[0][0]}. "
                         "Mend the verifier, or name another judge with reward=.")


def shorten(text: str, width: int = 60) -> str:
    """Model text as it may stand in a reason: one line, printable, at most `width` characters."""
    shown = ascii(text[: width + 1])[1:-1] if not text[: width + 1].isprintable() else text
    return shown if len(shown) <= width else shown[: width - 3] + "..."


def weighted(parts: Mapping[str, tuple[Verdict, float]]) -> Verdict:
    """The weighted sum of named verdicts, each kept as a part; those that have nothing to judge are left out.

    score = W * (sum of weight * score of the present) / (sum of weight of the present), W = all weights
    so with every part present it is the plain sum of weight * score, and the best is W whichever are present.
    weighted({"correct": (Verdict(score=1.0), 0.8), "language": (Verdict(score=0.5), 0.2)})
      -> Verdict(score=0.9, parts={"correct": 1.0, "language": 0.5})
    With the language absent it is Verdict(score=1.0, parts={"correct": 1.0}); with none, absent.
    One part with an error makes the whole an error: half a judgement is not a low judgement.
    With a single part of weight 1 it is that part.
    """
    if not parts:
        raise ValueError("weighted needs at least one part, e.g. {'correct': (verdict, 1.0)}; it "
                         "was given none.")
    present = {name: verdict for name, (verdict, _) in parts.items() if not verdict.absent}
    score = sum(parts[name][1] * verdict.score for name, verdict in present.items())
    if len(present) < len(parts) and present:
        score *= sum(weight for _, weight in parts.values()) / sum(parts[name][1] for name in present)
    reason = "; ".join(f"{name}: {verdict.reason}" for name, (verdict, _) in parts.items() if verdict.reason)
    errors = [f"{name}: {verdict.error}" for name, (verdict, _) in parts.items() if verdict.error]
    scores = {name: verdict.score for name, verdict in present.items()}
    error = "; ".join(errors) or None
    weights = {name: weight for name, (_, weight) in parts.items()}
    return Verdict(score=score, reason=reason, parts=scores, weights=weights, error=error, absent=not present)


def check(verify: Callable[[Prompt, str], Verdict], golds: Iterable[tuple[Prompt, str]], *,
          best: float = 1.0) -> int:
    """Prove a verifier on gold: every gold completion scores `best`, and every kind of garbage scores less.

    Returns how many prompts were checked; raises ValueError naming the prompt and what the verifier said.
    """
    checked, verify = 0, guarded(verify)
    for prompt, gold in golds:
        said = _judge(verify, prompt, gold)
        if said.error or not math.isclose(said.score, best, abs_tol=1e-6):
            raise ValueError(
                f"the verifier pays {said.score:g} instead of {best:g} for the gold completion of prompt "
                f"{prompt.id!r} ({shorten(gold)!r}): {said.error or said.reason or 'no reason given'}. Mend "
                "the gold answer or the verifier."
            )
        for text in GARBAGE:
            said = _judge(verify, prompt, text)
            if said.error:
                raise ValueError(f"the verifier fails on the garbage {shorten(text)!r} on prompt "
                                 f"{prompt.id!r}: {said.error.removeprefix('infrastructure: ')}. It must "
                                 "judge any text.")
            if not said.score < best:
                raise ValueError(
                    f"the verifier pays the full {said.score:g} for the garbage {shorten(text)!r} on prompt "
                    f"{prompt.id!r}: {said.reason or 'no reason given'}. A verifier that cannot tell gold "
                    "from garbage gives no signal."
                )
        checked += 1
    if not checked:
        raise ValueError("the verifier was checked on no gold completion: give at least one (prompt, "
                         "completion) pair.")
    return checked


def _judge(verify: Callable[[Prompt, str], Verdict], prompt: Prompt, text: str) -> Verdict:
    said = verify(prompt, text)
    if isinstance(said, Verdict):
        return said
    raise ValueError(f"the verifier answered {type(said).__name__} on prompt {prompt.id!r}: it must "
                     "return a Verdict.")


def fault(why: str) -> Verdict:
    """The verdict where something else than the reply failed: infrastructure, or a user's verifier."""
    return Verdict(score=0.0, error=f"infrastructure: {why}")


def raised(error: BaseException) -> str:
    said = shorten(" ".join(str(error).split()), 200)
    return f"the verifier raised {type(error).__name__}{f': {said}' if said else ''}"


def guarded(verify: Callable[[Prompt, str], Verdict], describe: Callable[[BaseException], str] = raised,
            seconds: float | None = None) -> Callable[[Prompt, str], Verdict]:
    """The one place where a verifier that raises, or does not come back, becomes a verdict: an error, counted
    and not trained on.

    Our own verifiers never raise (tests/rewards/totality_test.py); a user's function may.
    describe: what is said of the exception, the line of the user's file, say. seconds: the most that a
    verdict may take; without it as the function's attribute `seconds` says, else SECONDS. A verifier that is
    guarded is given back as it is.
    """
    if getattr(verify, "is_guarded", False):
        return verify
    limit = seconds or getattr(verify, "seconds", SECONDS)

    def judge(prompt: Prompt, text: str) -> Verdict:
        try:
            return within(limit, lambda: verify(prompt, text))
        except TimeLimit as error:
            return fault(describe(overdue(error, limit)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's verifier raises
            return fault(describe(error))

    judge.is_guarded = True  # type: ignore[attr-defined]
    return judge


def overdue(error: TimeLimit, limit: float) -> TimeLimit:
    """The same with its sentence: how long it took, and where the limit is set."""
    return TimeLimit(f"verify took over {limit:g} s; `seconds = N` in the task's file, or verify.seconds = "
                     "N, allows more").with_traceback(error.__traceback__)


def by_environment(rollouts: Sequence[Rollout]) -> list[Verdict]:
    """The judge of episodes: what their environments said."""
    assert all(r.verdict for r in rollouts), "an episode has its verdict"
    return [r.verdict for r in rollouts if r.verdict]


def judge_of(task) -> Judge:
    """Who judges a task's rollouts, where nobody else is named."""
    return by_environment if task.plays else Verifying(task.verify, task.waits)


class Verifying:
    """A verifier as the judge of rollouts; one that raises gives an error for that rollout (`guarded`).

    Where it waits for other processes (code in the sandbox), verdicts are given side by side, and for
    rollouts that it is told of `ahead`, while others are still being sampled.
    Otherwise each is given when it is asked for.
    """

    def __init__(self, verify: Callable[[Prompt, str], Verdict], waits: bool = False):
        # what waits for other processes limits their time itself
        self.verify, self.begun = guarded(verify, seconds=math.inf if waits else None), {}
        self.pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1), "verify") if waits else None

    def ahead(self, rollout: Rollout) -> None:
        if self.pool:
            self.begun[id(rollout)] = rollout, self.pool.submit(self.verify, rollout.prompt, rollout.text)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        for rollout in rollouts:
            if id(rollout) not in self.begun:
                self.ahead(rollout)
        with one_bell():
            return [self._verdict(rollout) for rollout in rollouts]

    def _verdict(self, rollout: Rollout) -> Verdict:
        begun: tuple[Rollout, Future] | None = self.begun.pop(id(rollout), None)
        return begun[1].result() if begun else self.verify(rollout.prompt, rollout.text)
