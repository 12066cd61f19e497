"""Verdicts of a batch: functions that wait at once, functions that compute one after another, in order."""

import asyncio
import signal
import threading
import time

import pytest

from postgrad.records import Prompt, Rollout, Verdict
from postgrad.resolve.rewards import RewardTerm, parse_reward
from postgrad.rewards import parallel
from postgrad.rewards.base import VerifierReward, WeightedReward, weighted
from postgrad.rewards.function import TRLReward, own_verifier
from postgrad.rewards.named import read_spec

PROMPT = Prompt.ask("?", "5", level=3)


def rollouts(count, step=1, prompt=PROMPT):
    return [Rollout(prompt=prompt, prompt_tokens=(), tokens=(n,), logp=(0.0,), text=str(n), finished=True,
                    seed=0, policy_step=step) for n in range(count)]


def reward_of(function, seconds=None):
    return VerifierReward(own_verifier(function, seconds=seconds))


def elsewhere(call):
    """What a call returns in another thread."""
    out = []
    thread = threading.Thread(target=lambda: out.append(call()))
    thread.start()
    thread.join()
    return out[0]


def waits(prompt, text):
    time.sleep(0.2)
    return float(text)


class Together:
    """Comes back when all 64 calls are there."""

    def __init__(self):
        self.barrier = threading.Barrier(64)

    def __call__(self, prompt, text):
        self.barrier.wait()
        return float(text)


class TogetherAsync:
    def __init__(self):
        self.count, self.all_there = 0, asyncio.Event()

    async def __call__(self, prompt, text):
        self.count += 1
        if self.count == 64:
            self.all_there.set()
        await self.all_there.wait()
        return float(text)


@pytest.mark.parametrize("kind", [Together, TogetherAsync], ids=["waits", "async"])
@pytest.mark.parametrize("where", [lambda call: call(), elsewhere], ids=["main thread", "another"])
def test_a_function_that_waits_is_called_for_all_at_once_and_the_order_stays(kind, where):
    said = where(lambda: reward_of(kind()).score(rollouts(64)))
    assert [v.score for v in said] == list(map(float, range(64)))


def test_one_that_computes_stays_in_the_main_thread_and_in_order():
    seen = []

    def computes(prompt, text):
        seen.append((text, threading.current_thread() is threading.main_thread()))
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return 0.5

    reward_of(computes).score(rollouts(40))
    assert seen == [(str(n), True) for n in range(40)]


def test_calls_that_compute_are_looked_at_ever_more_rarely():
    looks = [0.0]
    while looks[-1] < 60:
        looks.append(looks[-1] + parallel.pause(looks[-1]))
    assert looks[1:5] == pytest.approx([0.05, 0.1, 0.15, 0.2]) and len(looks) < 40
    assert all(late <= 1.25 * early + parallel.TICK for early, late in zip(looks, looks[1:], strict=False))


def test_a_function_that_is_not_to_be_called_twice_at_once():
    inside, most = [], []

    def alone(prompt, text):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return 1.0

    alone.concurrency = 1
    assert all(v.score for v in reward_of(alone).score(rollouts(10))) and set(most) == {1}


@pytest.mark.parametrize("swallows", [False, True])
def test_one_that_waits_and_uses_signal_is_called_in_the_main_thread(swallows):
    """Also one that would turn the error of another thread into a score of 0."""
    def alarms(prompt, text):
        time.sleep(0.005)
        try:
            before = signal.signal(signal.SIGALRM, lambda *_: None)
            signal.alarm(5)
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        except ValueError:
            if swallows:
                return 0.0
            raise
        return 1.0

    reward = reward_of(alarms)
    assert [v.score for v in reward.score(rollouts(70))] == [1.0] * 70 and reward.caller.main_only
    assert [v.score for v in reward.score(rollouts(3))] == [1.0] * 3
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@pytest.mark.parametrize(("kind", "where"), [
    ("waits", lambda call: call()), ("waits", elsewhere), ("async", lambda call: call()),
    ("async", elsewhere), ("computes", lambda call: call())],
    ids=["waits", "waits elsewhere", "async", "async elsewhere", "computes"])
def test_one_that_hangs_costs_its_limit_once(kind, where):
    called = []

    def hangs(prompt, text):
        called.append(time.monotonic())
        while kind == "computes":
            pass
        threading.Event().wait()

    async def hangs_async(prompt, text):
        called.append(time.monotonic())
        await asyncio.Event().wait()

    reward = reward_of(hangs_async if kind == "async" else hangs, seconds=0.4)
    said = where(lambda: reward.score(rollouts(16)))
    assert all("verify took over 0.4 s" in v.error for v in said)
    if kind == "computes":  # the others have a sixth of it each, or less
        assert [("after another of the batch" in v.error) for v in said] == [False] + 15 * [True]
    else:
        assert len(called) == 16 and not any("(over" in v.error for v in said)


def test_replies_beside_one_that_hangs_are_judged():
    def some(prompt, text):
        if text == "3":
            threading.Event().wait()
        return float(text)

    said = reward_of(some, seconds=0.3).score(rollouts(8))
    assert [n for n, v in enumerate(said) if v.error] == [3]
    assert [v.score for v in said if not v.error] == [0, 1, 2, 4, 5, 6, 7]


def test_a_slow_call_for_all_replies_is_reported_once(monkeypatch, capsys):
    monkeypatch.setattr("postgrad.rewards.function.SLOW", 0.05)

    def slow(completions):
        time.sleep(0.2)
        return [1.0] * len(completions)

    reward = TRLReward(slow)
    assert [v.score for _ in range(2) for v in reward.score(rollouts(2))] == [1.0] * 4
    assert capsys.readouterr().err == ("postgrad: the reward slow is slow: 2 replies not judged in 0.05 s "
                                       "(limit of the call: 600 s)\n")


def test_a_slow_batch_is_reported_once(monkeypatch, capsys):
    monkeypatch.setattr(parallel, "SLOW", 0.1)
    reward = reward_of(waits)
    for _ in range(2):
        reward.score(rollouts(4))
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    (line,) = printed.splitlines()
    assert line.startswith("postgrad: the reward waits is slow: ") and "limit of a verdict: 60 s" in line


# functions written for TRL

def test_a_batched_function_is_known_by_its_parameters():
    def batched(prompts, completions, answer):
        return [float(c) + float(a) for c, a in zip(completions, answer, strict=True)]

    async def batched_async(completions, **columns):
        await asyncio.sleep(0.01)
        return [2.0 * float(c) for c in completions]

    texts = [Prompt(id="1", messages=PROMPT.messages, answer="5", conversational=False)]
    for function, want in ((batched, [5.0, 6.0]), (batched_async, [0.0, 2.0])):
        (term,) = parse_reward(function).terms
        assert isinstance(term, RewardTerm) and isinstance(term.reward, TRLReward)
        assert [v.score for v in term.reward.score(rollouts(2, prompt=texts[0]))] == want


def test_the_keywords_of_trl():
    """trainer_state, log_metric (a mean of its values) and log_extra."""
    seen = []

    def reward(completions, trainer_state, log_metric, log_extra, **columns):
        seen.append((trainer_state.global_step, trainer_state.max_steps))
        log_metric("accuracy", 0.25)
        log_metric("accuracy", 0.75)
        log_extra("shout", [c[0]["content"] + "!" for c in completions])
        return [1.0] * len(completions)

    said = TRLReward(reward, max_steps=9).score(rollouts(2, step=5))
    assert seen == [(4, 9)]
    assert [dict(v.metrics) for v in said] == [{"reward/accuracy": 0.5}] * 2
    assert [v.extra for v in said] == [{"shout": "0!"}, {"shout": "1!"}]
    (summed, _) = WeightedReward({"a": (TRLReward(reward), 2.0)}).score(rollouts(2))
    assert summed.metrics == {"reward/accuracy": 0.5} and summed.extra == {"shout": "0!"}

    def odd(completions, trainer_state, **columns):
        return [trainer_state.epoch] * len(completions)

    assert "trainer_state has global_step and max_steps here" in TRLReward(odd).score(rollouts(1))[0].error


# negative weights

def test_negative_weights():
    one, half, absent = Verdict(score=1.0), Verdict(score=0.5), Verdict(score=0.0, absent=True)
    assert weighted({"a": (one, 1.0), "b": (half, -0.4)}).score == pytest.approx(0.8)
    assert weighted({"a": (absent, 1.0), "b": (half, -1.0)}).score == pytest.approx(-1.0)
    minus = read_spec("length(1,3)-0.5*json")
    assert [weight for _, weight, _, _ in minus.terms] == [1.0, -0.5] and minus.best == 1.0
    (term,) = parse_reward({waits: -2.0}).terms
    assert term.weight == -2.0
