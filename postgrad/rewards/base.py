"""Verdict arithmetic, the check of a verifier on gold, and rewards composed of verifiers and rewards."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

from postgrad.records import Prompt, Reward, Rollout, Scored, Verdict, require_verdicts
from postgrad.rewards.parallel import CONCURRENCY, BatchCaller
from postgrad.system.limit import SECONDS, TimeLimit, shared_timer, within_limit

T = TypeVar("T")
Verify = Callable[[Prompt, str], Verdict]
JudgeText = Callable[[str], Verdict]  # of a reply alone
TASK = "task"  # where the prompt of a mixture names its task
GARBAGE = ("", " ", "?", "\x00\ufffd", "lorem ipsum dolor", "<think></think>", "<answer></answer>")


def score_groups(reward: Reward, groups: Sequence[Sequence[Rollout]]) -> list[list[Scored]]:
    """Every rollout with its verdict; raises ValueError where every verdict is an error."""
    verdicts = reward.score([r for group in groups for r in group])
    require_verdicts(verdicts)
    rest = iter(verdicts)
    return [[Scored(rollout=r, verdict=next(rest)) for r in group] for group in groups]


def shorten(text: str, width: int = 60) -> str:
    """Model text for a reason: one line, printable, at most `width` characters."""
    line = text if text[: width + 1].isprintable() else ascii(text[: width + 1])[1:-1]
    return line if len(line) <= width else line[: width - 3] + "..."


def weighted(parts: Mapping[str, tuple[Verdict, float]]) -> Verdict:
    """The weighted sum of named verdicts, absent ones left out.

    score = W * (sum of weight * score of the present) / (sum of weight of the present), W = all weights
    A weight may be negative, and counts by its size in W and below the line.
    With every part present it is the sum of weight * score; the best is W whichever are present.
    weighted({"correct": (Verdict(score=1.0), 0.8), "language": (Verdict(score=0.5), 0.2)})
      -> Verdict(score=0.9, parts={"correct": 1.0, "language": 0.5})
    With the language absent: Verdict(score=1.0, parts={"correct": 1.0}); with all absent: absent. An error in
    one part is an error of the sum. A single part of weight 1 is that part.
    """
    if not parts:
        raise ValueError("weighted needs at least one part, e.g. {'correct': (verdict, 1.0)}; it has none.")
    present = {name: verdict for name, (verdict, _) in parts.items() if not verdict.absent}
    score = sum(parts[name][1] * verdict.score for name, verdict in present.items())
    if len(present) < len(parts) and present:
        score *= sum(abs(weight) for _, weight in parts.values()) / sum(abs(parts[n][1]) for n in present)
    reason = "; ".join(f"{name}: {verdict.reason}" for name, (verdict, _) in parts.items() if verdict.reason)
    errors = [f"{name}: {verdict.error}" for name, (verdict, _) in parts.items() if verdict.error]
    scores = {name: verdict.score for name, verdict in present.items()}
    error = "; ".join(errors) or None
    weights = {name: weight for name, (_, weight) in parts.items()}
    return Verdict(score=score, reason=reason, parts=scores, weights=weights, error=error, absent=not present,
                   metrics=merged(v.metrics for v, _ in parts.values()),
                   extra=merged(v.extra for v, _ in parts.values()))


def merged(mappings: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {name: value for mapping in mappings for name, value in mapping.items()}


def check_verifier(verify: Verify, golds: Iterable[tuple[Prompt, str]], *, best: float = 1.0) -> int:
    """Proves a verifier on (prompt, gold completion) pairs: gold scores `best`, every kind of garbage less.

    Returns the number of prompts; raises ValueError with the prompt and the verdict.
    """
    checked, verify = 0, guarded(verify)
    for prompt, gold in golds:
        verdict = _judge(verify, prompt, gold)
        if verdict.error or not math.isclose(verdict.score, best, abs_tol=1e-6):
            raise ValueError(
                f"the verifier pays {verdict.score:g} instead of {best:g} for the gold completion of prompt "
                f"{prompt.id!r} ({shorten(gold)!r}): {verdict.error or verdict.reason or 'no reason given'}. "
                "Mend the gold answer or the verifier.")
        for text in GARBAGE:
            verdict = _judge(verify, prompt, text)
            if verdict.error:
                raise ValueError(f"the verifier fails on the garbage {shorten(text)!r} on prompt "
                                 f"{prompt.id!r}: {verdict.error.removeprefix('infrastructure: ')}. It must "
                                 "judge any text.")
            if not verdict.score < best:
                raise ValueError(f"the verifier pays the full {verdict.score:g} for the garbage "
                                 f"{shorten(text)!r} on prompt {prompt.id!r}: "
                                 f"{verdict.reason or 'no reason given'}. A verifier that cannot tell gold "
                                 "from garbage gives no signal.")
        checked += 1
    if not checked:
        raise ValueError("the verifier was checked on no gold completion: give at least one (prompt, "
                         "completion) pair.")
    return checked


def _judge(verify: Verify, prompt: Prompt, text: str) -> Verdict:
    verdict = verify(prompt, text)
    if isinstance(verdict, Verdict):
        return verdict
    raise ValueError(f"the verifier answered {type(verdict).__name__} on prompt {prompt.id!r}: it must "
                     "return a Verdict.")


error_verdict = Verdict.failed  # where something else than the reply failed


def describe_raised(error: BaseException) -> str:
    message = shorten(" ".join(str(error).split()), 200)
    return f"the verifier raised {type(error).__name__}{f': {message}' if message else ''}"


def guarded(verify: Verify, describe: Callable[[BaseException], str] = describe_raised,
            seconds: float | None = None) -> Verify:
    """A verifier whose exceptions and timeouts are error verdicts, which are counted and not trained on.

    Our own verifiers never raise (tests/rewards/totality_test.py); a user's function may.
    describe: the text of an exception, with the line of the user's file, say. seconds: the limit of a
    verdict; default: the function's attribute `seconds`, else SECONDS. A guarded verifier is returned as is.
    """
    if getattr(verify, "is_guarded", False):
        return verify
    limit = seconds if seconds else float(getattr(verify, "seconds", SECONDS))

    def attempt(prompt: Prompt, text: str, allowed: float) -> Verdict:
        try:
            return within_limit(allowed, lambda: verify(prompt, text))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's verifier raises
            return error_verdict(describe(error))

    def overdue(error: TimeLimit, allowed: float) -> Verdict:
        return error_verdict(describe(explain_overdue(error, limit, allowed)))

    def judge(prompt: Prompt, text: str) -> Verdict:
        try:
            return attempt(prompt, text, limit)
        except TimeLimit as error:
            return overdue(error, limit)

    judge.is_guarded = True  # type: ignore[attr-defined]
    judge.attempt, judge.overdue, judge.limit = attempt, overdue, limit  # type: ignore[attr-defined]
    judge.concurrency = int(getattr(verify, "concurrency", CONCURRENCY))  # type: ignore[attr-defined]
    return judge


def explain_overdue(error: TimeLimit, limit: float, allowed: float | None = None) -> TimeLimit:
    """The exception with a message: the limit, and where it is set. allowed: less, after another call of the
    batch was overdue."""
    short = f" (over {allowed:.2g} s, after another of the batch)" if allowed and allowed < limit else ""
    return TimeLimit(f"verify took over {limit:g} s{short}; `seconds = N` in the task's file, or "
                     "verify.seconds = N, allows more").with_traceback(error.__traceback__)


class EnvironmentReward(Reward):
    """The verdict that an episode's environment gave it."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        assert all(r.verdict for r in rollouts), "an episode has its verdict"
        return [r.verdict for r in rollouts if r.verdict]


class VerifierReward(Reward):
    """A verifier of (prompt, text), guarded; one that is found to wait is called in threads (parallel.py).

    waits: the verifier waits for other processes (code in the sandbox), so verdicts are computed in threads,
    those of prefetched rollouts while others are still sampled.
    """

    def __init__(self, verify: Verify, waits: bool = False):
        # a verifier that waits limits the time of its processes itself
        self.verify = guarded(verify, seconds=math.inf if waits else None)
        judge: Any = self.verify
        self.caller = BatchCaller[Verdict](getattr(judge, "__name__", "verify"), judge.limit, judge.overdue,
                                           concurrency=judge.concurrency,
                                           waits=inspect.iscoroutinefunction(inspect.unwrap(judge)))
        # by id(rollout); the rollout is held so that its id stays its own
        self.started: dict[int, tuple[Rollout, Future[Verdict]]] = {}
        self.pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1), "verify") if waits else None

    def prefetch(self, rollout: Rollout) -> None:
        if self.pool:
            self.started[id(rollout)] = rollout, self.pool.submit(self.verify, rollout.prompt, rollout.text)

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        if not self.pool:
            attempt = cast(Any, self.verify).attempt
            return self.caller.run(lambda i, seconds: attempt(rollouts[i].prompt, rollouts[i].text, seconds),
                                   len(rollouts))
        for rollout in rollouts:
            if id(rollout) not in self.started:
                self.prefetch(rollout)
        with shared_timer():
            return [self.started.pop(id(rollout))[1].result() for rollout in rollouts]


class WeightedReward(Reward):
    """The weighted sum of several rewards, by name (`weighted`)."""

    def __init__(self, parts: Mapping[str, tuple[Reward, float]]):
        self.parts = parts

    def prefetch(self, rollout: Rollout) -> None:
        for reward, _ in self.parts.values():
            reward.prefetch(rollout)

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        verdicts = {name: reward.score(rollouts) for name, (reward, _) in self.parts.items()}
        out = []
        for i in range(len(rollouts)):
            row = {name: (verdicts[name][i], weight) for name, (_, weight) in self.parts.items()}
            if any(verdict.per_token is not None for verdict, _ in row.values()):
                raise ValueError("a process model pays token by token, so it is no part of a sum: "
                                 "name it alone.")
            out.append(weighted(row))
        return out


class RoutedReward(Reward):
    """A reward per task of a mixture: RoutedReward({"questions": model}, otherwise=verifier, task="words").

    rewards: by task name. otherwise: for all other prompts. task: of prompts that name none.
    """

    def __init__(self, rewards: Mapping[str, Reward], otherwise: Reward, task: str):
        self.rewards, self.otherwise, self.task = rewards, otherwise, task

    def for_prompt(self, prompt: Prompt) -> Reward:
        return self.rewards.get(str(prompt.meta.get(TASK, self.task)), self.otherwise)

    def prefetch(self, rollout: Rollout) -> None:
        self.for_prompt(rollout.prompt).prefetch(rollout)

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """Each reward is called once, with all its rollouts; verdicts come in the order of the rollouts."""
        verdicts: dict[int, Verdict] = {}
        for reward in (*self.rewards.values(), self.otherwise):
            mine = [i for i, rollout in enumerate(rollouts) if self.for_prompt(rollout.prompt) is reward]
            scored = reward.score([rollouts[i] for i in mine]) if mine else ()
            verdicts |= dict(zip(mine, scored, strict=True))
        return [verdicts[i] for i in range(len(rollouts))]
