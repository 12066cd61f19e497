"""Ctrl-C in real processes: acknowledged at once, without a traceback, and what was done is kept.

While it is imported, in a command and in a training the process is started afresh; the others are forked.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import forks
import pytest
from paths import ROOT

from postgrad.runs import Run
from postgrad.system.signals import stop_on_signal

HOME = ROOT
WAITS = "print('at work', flush=True); threading.Event().wait(60)"
TASK = f"""
import threading
prompts = [{{"question": f"Say {{letter}}."}} for letter in "abcd"]
def verify(prompt, completion):
    if completion:
        {WAITS}
    return 1.0
"""
SLOW = f"import threading\n{WAITS}\n"
TRAIN = ["train", "sft:words", "steps=100", "rows_per_step=2", "examples=50", "--run", "run"]
ROLLOUTS = ["train", "grpo", "--task", "task.py", "prompts_per_step=2", "group_size=2", "prompts=4",
            "rollouts.max_new_tokens=8", "evaluation.every=0", "--run", "run"]


def short_demo() -> int:
    """The command's demo, of few steps."""
    from dataclasses import replace

    from postgrad.__main__ import main
    from postgrad.recipes import rollouts, sft
    from postgrad.recipes.pipelines import demo
    from postgrad.training.batches import Rollouts
    texts, words = sft.sft_on_words(), rollouts.rollouts_on_words()
    small = Rollouts(prompts=4, prompts_per_step=2, group_size=2, max_new_tokens=12)
    sft.sft_on_words = lambda: replace(texts, rows_per_step=2)
    rollouts.rollouts_on_words = lambda: replace(words, rollouts=small)
    demo.quick_demo = lambda seed: demo.DemoConfig(seed=seed, sft_steps=60, sft_examples=50, rl_steps=1,
                                              problems=3, samples=2)
    return main()


def started(folder: Path, *words: str):
    """A fresh process, both streams as one."""
    env = os.environ | {"PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        # a shell that runs the tests in the background leaves its children deaf to Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def forked(folder: Path, *words: str, call: str = "postgrad.__main__:main"):
    return forks.Child(call, argv=["postgrad", *words], cwd=folder)


class Child:
    """A process whose lines are read as they come."""

    def __init__(self, process):
        self.process = process
        self.lines: list[str] = []

    def until(self, words: str) -> str:
        for line in self.process.stdout:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError(f"{words!r} was not said:\n{''.join(self.lines)}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Its code, and all it said."""
        self.lines += self.process.stdout.readlines()
        said = "".join(self.lines)
        assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
        return self.process.wait(), said


@pytest.fixture
def here(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


@pytest.mark.parametrize("at", ["argparse", "numpy", "torch.cuda"])
def test_while_it_is_being_imported(here, at):
    child = Child(started(here, "-X", "importtime", "-m", "postgrad", "eval", "tiny", "--task", "slow.py"))
    child.until(f" {at}\n")
    child.interrupt()
    code, said = child.end()
    assert code == 130 and said.endswith("postgrad: stopped by Ctrl-C.\n"), said[-2000:]


@pytest.mark.parametrize("words", [
    ["eval", "tiny-chat", "--task", "task.py"], ["eval", "tiny-chat", "--task", "slow.py"],
    ["pick", "tiny-chat", "--task", "task.py", "--out", "out.jsonl", "--prompts", "2"],
    ["rlaif", "tiny-chat", "--task", "slow.py", "--out", "out"],
    ["train", "grpo", "--task", "slow.py"],
], ids=lambda words: f"{words[0]}-{words[3]}")
def test_a_command_that_has_nothing_to_keep(here, words):
    before = sorted(here.iterdir())
    child = Child(started(here, "-m", "postgrad", *words) if words[0] == "pick" else forked(here, *words))
    child.until("at work")
    child.interrupt()
    assert child.end() == (130, "".join(child.lines[:-2]) + "\npostgrad: stopped by Ctrl-C.\n")
    assert sorted(here.iterdir()) == before


def test_a_training_says_what_will_happen_saves_and_says_how_to_go_on(here):
    child = Child(started(here, "-m", "postgrad", *TRAIN))
    child.until("step 10/100")
    child.interrupt()
    child.until("stopping after this step, with a checkpoint; Ctrl-C again stops at once, without one")
    code, said = child.end()
    assert code == 130 and "stopped by SIGINT; saved. Go on with: postgrad resume run" in said
    state = Run.open(here / "run").state()
    assert state["state"] == "stopped" and list(Run.open(here / "run").checkpoints())[-1] == state["step"]


def test_the_second_time_it_stops_at_once(here):
    child = Child(forked(here, *ROLLOUTS))
    child.until("at work")
    child.interrupt()
    child.until("stopping after this step")
    child.interrupt()
    code, said = child.end()
    assert code == 130
    assert "stopped at once. Go on from the last checkpoint with: postgrad resume run" in said
    run = Run.open(here / "run")
    assert (run.state()["state"], run.state()["step"], run.alive()) == ("stopped", 0, False)


def test_a_demo_that_was_stopped_goes_on(here):
    child = Child(forked(here, "demo", "--quick", call="tests.system.signals_test:short_demo"))
    child.until("step 6/60")
    child.interrupt()
    code, said = child.end()
    assert code == 130 and "stopping after this step" in said and "Go on with: postgrad demo --quick" in said
    stopped = Run.open(here / "runs/demo/sft")
    rows, steps = (stopped.folder / "metrics.jsonl").read_bytes(), stopped.state()["step"]
    assert 6 <= steps < 60 and stopped.state()["state"] == "stopped"
    child = Child(forked(here, "demo", "--quick", call="tests.system.signals_test:short_demo"))
    child.until("resuming the demo in runs/demo")
    code, said = child.end()
    assert code == 0 and "Next:" in said
    assert (stopped.folder / "metrics.jsonl").read_bytes().startswith(rows) and stopped.next_step == 61
    assert [p.name for p in (here / "runs").iterdir()] == ["demo"]
    summary = json.loads((here / "runs/demo/summary.json").read_text())
    assert [stage["name"] for stage in summary["stages"]] == ["base", "sft", "rl"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_recorded(number):
    outside = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
    try:
        with stop_on_signal() as stop:
            assert stop() is None
            signal.raise_signal(number)
            assert stop() == number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop() is None
    finally:
        signal.signal(signal.SIGHUP, before)
