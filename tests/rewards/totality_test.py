"""Our own verifiers score every reply: none raises, none answers with an error, none is slow."""

import os
import time
from itertools import islice

import pytest
from hostile.arena import family
from hostile.replies import longest, replies
from hostile.verifiers import GOLD, fault_of, jailed, ours

from postgrad.records import Prompt, Rollout, Verdict
from postgrad.rewards.base import VerifierReward, error_verdict
from postgrad.rewards.code import code_blocks, extract_code
from postgrad.rewards.constraints import is_kept
from postgrad.rewards.named import read_spec
from postgrad.rewards.sandbox import Call, CodeJudge, judge, tier
from postgrad.rewards.text import REGEX
from postgrad.rewards.unequal import estimate_value
from postgrad.rewards.visible import normal

in_jail = pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")
OURS = ours()
DEEP = ("|" * 250 + "5", "-" * 290 + "5", "(" * 140 + "5" + ")" * 140, r"\sqrt{" * 49 + "5" + "}" * 49,
        "x^{" * 90 + "5" + "}" * 90)


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    return jailed(tmp_path_factory.mktemp("verifiers"), gym=("gym:countdown", "gym:n_queens"))


@in_jail
@pytest.mark.parametrize("text", DEEP, ids=lambda text: text[:5])
def test_depth_does_not_end_a_training(text):
    pytest.importorskip("math_verify")
    said = read_spec("maths")(Prompt.ask("?", GOLD), text)
    assert (said.score, said.error) == (0.0, None) and said.reason
    assert estimate_value(text) is None and estimate_value("(" * 12 + "5" + ")" * 12) == 5


def test_gold_is_paid_by_every_verifier_here():
    other = ("grader", "json", "boxed", "language(ja)", "constitution")  # a number does not please
    paid = {j.name: j.verify(j.prompt, j.gold).score for j in OURS if j.name not in other}
    assert len(paid) > 35 and all(score > 0 for score in paid.values()), paid


def test_every_reply_gets_a_score():
    """A slice of what `python proofs/mend.py replies` tries at length."""
    tried = list(islice(replies(1, tuple(judge.gold for judge in OURS)), 300))
    found = [(judge.name, kind, text[:60], why) for kind, text in tried for judge in OURS
             if (why := fault_of(judge, kind, text))]
    assert not found


@in_jail
def test_every_reply_gets_a_score_in_the_jail_too(inside):
    tried = list(islice(replies(2, tuple(judge.gold for judge in inside)), 240))
    found = [(judge.name, kind, text[:60], why) for at, (kind, text) in enumerate(tried)
             for judge in (inside[at % len(inside)],) if (why := fault_of(judge, kind, text))]
    assert not found


def seconds(judge, text):
    """Processor time of this process for one verdict."""
    start = time.process_time()
    judge.verify(judge.prompt, text)
    return time.process_time() - start


HARD = ("```", "``` ", "```python ", "```python\n", ".", "*", "1,", "the ", '\\"', "<<", "[x", "e\u0301",
        "9", "0", "$", "\n", "```*", "<answer>.", "The answer is **", r"\boxed{(", '{"a": "\\', "\U0001f600")
LONG = {length: dict(longest(length)) for length in (5_000, 20_000, 25_000, 100_000)}


@pytest.mark.parametrize("judge", OURS, ids=lambda judge: judge.name)
def test_four_times_the_length_takes_no_more_than_eight_times_as_long(judge):
    """100,000 characters against 25,000; constraints, which read 20,000, against 5,000."""
    long = 20_000 if judge.name.startswith("constraint") else 100_000
    for what in HARD:
        for _ in range(4):  # other processes may disturb a measurement
            took = seconds(judge, LONG[long][what])
            if took < 0.02 or took <= 8 * seconds(judge, LONG[long // 4][what]):
                break
        else:
            pytest.fail(f"{what!r}: {took} s for {long} characters, over 8 times what a quarter takes")


def test_the_two_that_were_quadratic():
    assert extract_code("```" + " " * 100_000) == "```" + " " * 100_000
    assert not is_kept("one two three four " + "." * 19_900 + "x", ("sentences", 2))


@pytest.mark.parametrize(("text", "found"), [
    ("```python\na\n```", [("python", "a\n")]), ("```\n```", [("", "")]), (" ```python\na\n ```", []),
    ("```\na\n```python\nb\n```", [("", "a\n"), ("python", "b\n")]), ("```python\nopen", []),
    ("```text\nx\n```\nso\n```py\r\nb\r\n```\r\n", [("text", "x\n"), ("py", "b\r\n")]),
    ("```python\na\u2028```b\n```", [("python", "a\u2028```b\n")])])
def test_blocks_by_hand(text, found):
    assert code_blocks(text) == found


def held():
    """How many processes descend from this one, and how many descriptors are open."""
    return len(family()), len(os.listdir("/proc/self/fd"))


@in_jail
def test_emoji_leave_nothing_behind(inside):
    emoji = "\U0001f600" * 95_000
    those = [j for j in OURS if j.name == "json"]
    for each in those + [j for j in inside if j.name in ("regex", "json(SCHEMA)", "mbpp:")]:
        for _ in os.sched_getaffinity(0):
            each.verify(each.prompt, '{"a": ""}')  # the workers start
        before = held()
        for text in (emoji, f'"{emoji}"', f'{{"a": "{emoji}"}}', "\ud800" * 100_000):
            assert not fault_of(each, "spoilt", text)
        assert held() == before
    assert read_spec(r"regex(\A\W+7919\Z)")(Prompt.ask("?"), emoji + GOLD).score == 1


@in_jail
def test_whatever_goes_wrong_the_worker_is_not_left_in_the_middle(monkeypatch):
    calls = [Call(source="def f(x): return x", name="f", args=(1,))]
    with CodeJudge(workers=1) as made:
        assert made.answers(calls)[0].value == 1
        before = held()
        with monkeypatch.context() as broken:
            broken.setattr(judge, "play_call", lambda *a: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                made.answers(calls)
        assert made.answers(calls)[0].value == 1 and held() == before
        big = made.answers([Call(source="def f(x): return x", name="f", args=("x" * (1 << 22),))])[0]
        assert big.kind == "fail" and "more than" in big.reason and held() == before
    assert REGEX("found", "a", "cab").value is True


def rollout(text):
    facts = {"prompt_tokens": (1,), "tokens": (2,), "logp": (0.0,), "finished": True, "seed": 0}
    return Rollout(prompt=Prompt.ask("?"), text=text, **facts)


@pytest.mark.parametrize("waits", [False, True])
def test_a_users_verifier_that_raises_is_an_error_and_the_others_are_judged(waits):
    def verify(prompt, text):
        return Verdict(score=1 / len(text), reason="short")
    said = VerifierReward(verify, waits).score([rollout(text) for text in ("ab", "", "abcd")])
    assert [(v.score, v.error is None) for v in said] == [(0.5, True), (0.0, False), (0.25, True)]
    assert said[1] == error_verdict("the verifier raised ZeroDivisionError: division by zero")


def test_a_character_does_not_become_a_page():
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assert max(len(normal(char)) for char in every) <= 6
