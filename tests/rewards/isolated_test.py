"""A verifier in the jail: what it does to its process ends with its verdict, which is an error that is
counted."""

import pytest

from postgrad.data.tasks import user
from postgrad.records import Prompt
from postgrad.resolve.rewards import parse_reward
from postgrad.resolve.tasks import make_task
from postgrad.rewards.sandbox import tier
from postgrad.system.user_code import load_file

pytestmark = pytest.mark.skipif(tier() is None, reason="this machine has no sandbox that holds")
ASK = Prompt.ask("What is 2+3?", "5", id="a", level=3)
FILE = '''"""Sums."""
import os
import socket
import subprocess
from types import SimpleNamespace

isolate, seconds = True, 1.0
prompts = [{"question": "What is 2+3?", "answer": "5"}]
HELD = []


def verify(prompt, text):
    does = {
        "exits": lambda: os._exit(0), "quits": lambda: exit(0), "forks": lambda: os.fork() >= 0,
        "starts": lambda: subprocess.call(["true"]) == 0, "writes": lambda: open("OWNED", "w"),
        "looks": lambda: os.environ["HOME"] != "", "signals": lambda: os.kill(os.getppid(), 9),
        "connects": lambda: socket.create_connection(("127.0.0.1", 9)), "raises": lambda: {}["not there"],
        "nonsense": lambda: "five", "nothing": lambda: None, "nan": lambda: float("nan"),
        "odd": lambda: SimpleNamespace(score="all"),
        "leaks": lambda: [HELD.append(bytearray(1 << 26)) for _ in range(99)] and 1,
        "prints": lambda: print("x" * 10**6) or 0.5,
        "reasons": lambda: SimpleNamespace(score=0.25, reason="close"),
        "asks": lambda: prompt.meta["level"] == 3 and prompt.messages[-1]["content"] == prompt.question}
    while text == "hangs":
        pass
    HELD.append(text)
    return does[text]() if text in does else len(HELD) == 1 and prompt.answer == text
'''
FAULTS = {"hangs": "over 1 s", "exits": "ended", "quits": "", "forks": "", "starts": "", "leaks": "",
          "writes": "OWNED", "looks": "HOME", "signals": "", "connects": "",
          "raises": "KeyError: 'not there'",
          "nonsense": "returned a dict", "nothing": "returned nothing", "nan": "the score nan",
          "odd": "the score 'all'"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("isolated") / "sums.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def verify(path):
    return user.load(path).verify


@pytest.mark.parametrize("does", FAULTS)
def test_what_it_does_is_an_error_with_a_reason_and_the_next_is_judged(
        verify, does, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    said = verify(ASK, does)
    assert said.score == 0 and said.error.startswith("infrastructure: ") and FAULTS[does] in said.error
    assert verify(ASK, "5").score == 1 and verify(ASK, "6").score == 0
    assert not any(tmp_path.iterdir()) and "".join(capfd.readouterr()) == ""


def test_what_it_is_given_and_what_it_may_return(verify, capfd):
    assert verify(ASK, "asks").score == 1 and verify(ASK, "prints").score == 0.5
    assert (verify(ASK, "reasons").score, verify(ASK, "reasons").reason) == (0.25, "close")
    assert "".join(capfd.readouterr()) == ""


def test_a_reward_and_a_task_of_ones_own_are_isolated_too(path):
    function = load_file(path, "reward").verify
    assert "in the jail" in parse_reward(f"{path}:verify").verifier(ASK, "exits").error
    task = make_task([{"question": "What is 2+3?", "answer": "5"}], function, seconds=2.0)
    assert "in the jail" in task.verify(ASK, "exits").error


def test_what_cannot_run_in_the_jail_is_refused_before_anything_is_trained(tmp_path):
    def inside(prompt, text):
        return 1.0

    inside.isolate = True
    with pytest.raises(ValueError, match="only a function at the top level of a file"):
        make_task([{"question": "?", "answer": "5"}], inside)
    (path := tmp_path / "odd.py").write_text(FILE.replace("seconds = True", "seconds = 'yes'"))
    with pytest.raises(ValueError, match="`isolate` must be True or False"):
        user.load(path)
