"""Verdict arithmetic, the check of a verifier on gold, and rewards made of verifiers and of other rewards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from postgrad.records import Prompt, Reward, Rollout, Scored, Verdict, require_verdicts
from postgrad.rewards.limit import SECONDS, TimeLimit, shared_timer, within_limit

Verify = Callable[[Prompt, str], Verdict]
JudgeText = Callable[[str], Verdict]  # of a reply alone
TASK = "task"  # where the prompt of a mixture names its task
GARBAGE = ("", " ", "?", "\x00\ufffd", "lorem ipsum dolor", "<think></think>", "<answer></answer>")


def score_groups(reward: Reward, groups: Sequence[Sequence[Rollout]]) -> list[list[Scored]]:
    """Every rollout with its verdict. Refused where every verdict is an error."""
    verdicts = reward.score([r for group in groups for r in group])
    require_verdicts(verdicts)
    rest = iter(verdicts)
    return [[Scored(rollout=r, verdict=next(rest)) for r in group] for group in groups]


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


def check_verifier(verify: Verify, golds: Iterable[tuple[Prompt, str]], *,
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


def _judge(verify: Verify, prompt: Prompt, text: str) -> Verdict:
    said = verify(prompt, text)
    if isinstance(said, Verdict):
        return said
    raise ValueError(f"the verifier answered {type(said).__name__} on prompt {prompt.id!r}: it must "
                     "return a Verdict.")


def error_verdict(why: str) -> Verdict:
    """The verdict where something else than the reply failed: infrastructure, or a user's verifier."""
    return Verdict.failed(why)


def describe_raised(error: BaseException) -> str:
    said = shorten(" ".join(str(error).split()), 200)
    return f"the verifier raised {type(error).__name__}{f': {said}' if said else ''}"


def guarded(verify: Verify, describe: Callable[[BaseException], str] = describe_raised,
            seconds: float | None = None) -> Verify:
    """The one place where a verifier that raises, or does not come back, becomes a verdict: an error, counted
    and not trained on.

    Our own verifiers never raise (tests/rewards/totality_test.py); a user's function may.
    describe: what is said of the exception, the line of the user's file, say. seconds: the most that a
    verdict may take; without it as the function's attribute `seconds` says, else SECONDS. A verifier that is
    guarded is given back as it is.
    """
    if getattr(verify, "is_guarded", False):
        return verify
    limit = seconds if seconds else float(getattr(verify, "seconds", SECONDS))

    def judge(prompt: Prompt, text: str) -> Verdict:
        try:
            return within_limit(limit, lambda: verify(prompt, text))
        except TimeLimit as error:
            return error_verdict(describe(explain_overdue(error, limit)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's verifier raises
            return error_verdict(describe(error))

    judge.is_guarded = True  # type: ignore[attr-defined]
    return judge


def explain_overdue(error: TimeLimit, limit: float) -> TimeLimit:
    """The same with its sentence: how long it took, and where the limit is set."""
    return TimeLimit(f"verify took over {limit:g} s; `seconds = N` in the task's file, or verify.seconds = "
                     "N, allows more").with_traceback(error.__traceback__)


class EnvironmentReward(Reward):
    """The verdicts that their environments gave episodes."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        assert all(r.verdict for r in rollouts), "an episode has its verdict"
        return [r.verdict for r in rollouts if r.verdict]


class VerifierReward(Reward):
    """A verifier of (prompt, text); one that raises gives an error for that rollout (`guarded`).

    waits: the verifier waits for other processes (code in the sandbox). Then verdicts are computed in
    threads, those of prefetched rollouts while others are still sampled.
    """

    def __init__(self, verify: Verify, waits: bool = False):
        # what waits for other processes limits their time itself
        self.verify = guarded(verify, seconds=math.inf if waits else None)
        # by id(rollout); the rollout is held so that its id stays its own
        self.started: dict[int, tuple[Rollout, Future[Verdict]]] = {}
        self.pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1), "verify") if waits else None

    def prefetch(self, rollout: Rollout) -> None:
        if self.pool:
            self.started[id(rollout)] = rollout, self.pool.submit(self.verify, rollout.prompt, rollout.text)

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        for rollout in rollouts:
            if id(rollout) not in self.started:
                self.prefetch(rollout)
        with shared_timer():
            return [self._verdict(rollout) for rollout in rollouts]

    def _verdict(self, rollout: Rollout) -> Verdict:
        started = self.started.pop(id(rollout), None)
        return started[1].result() if started else self.verify(rollout.prompt, rollout.text)


class WeightedReward(Reward):
    """The weighted sum of several rewards, each kept as a part of the verdict under its own name. One that is
    absent for a rollout is left out of that rollout's sum (`weighted`)."""

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
    """Prompts of some tasks by rewards of their own, all others by one.

    rewards: by the name of the task. otherwise: for all other prompts. task: of prompts that name none.

    RoutedReward({"questions": reward_model}, otherwise=verifier, task="words")
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
