"""What a person sees: quiet and plain in a pipe, escaped on a terminal, silent when asked to be."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys

import pytest

from postgrad.cli.output import print_json
from postgrad.runs.display import Display, clean, duration, figure, print_rows, progress, sparkline

EVIL = "[bold red]x[/] \x1b[2J\x1b]0;owned\x07 \r\u202eabc [link=http://x]y[/link] [/nothing]"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Clock:
    """Time that moves only when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def terminal_settings(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def visible(text):
    """What is left on the screen: without the escapes that rich itself writes (colour, cursor)."""
    return re.sub(r"\x1b\[\??[\d;]*[A-Za-z]", "", text)


def trained(file, steps=40, **options):
    clock = Clock()
    display = Display("grpo on words", steps, file, clock=clock, **options)
    display.on_start({})
    for step in range(1, steps + 1):
        clock.now += 2.0
        sample = {"prompt": f"question {step}?", "text": EVIL, "score": step % 2, "reason": "right"}
        display.on_step(step, {"reward": step / 100, "kl": 0.01, "loss": 0.3, "lr": 1e-4})
        display.on_samples(step, [sample])
        if step % 10 == 0:
            display.on_eval(step, {"pass@1": step / 50})
    display.on_end("done", None)
    return display


def test_piped_it_is_one_plain_line_for_each_tenth(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    trained(file)
    lines = file.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[4] == "grpo on words: step 20/40 (50 %), 0:40, reward 0.200, pass@1 0.200, KL 0.010"
    assert lines[-2] == "grpo on words: step 40/40 (100 %), 1:20, reward 0.400, pass@1 0.600, KL 0.010"
    assert lines[-1] == "grpo on words: done, step 40/40 (100 %), 1:20, reward 0.400, pass@1 0.800, KL 0.010"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", file.getvalue()), "no control characters"


@pytest.mark.parametrize(("steps", "first", "lines"), [(3, 1, 3), (1000, 1, 10), (40, 35, 2), (7, 1, 7)])
def test_piped_lines_for_short_long_and_resumed_runs(steps, first, lines):
    file = io.StringIO()
    display = Display("t", steps, file)
    display.on_start({})
    for step in range(first, steps + 1):
        display.on_step(step, {"loss": 1.0})
    display.on_end("done", None)
    assert len(file.getvalue().splitlines()) == lines
    assert file.getvalue().splitlines()[-1].startswith(f"t: step {steps}/{steps} (100 %)")


def test_a_stop_in_the_middle_is_told():
    file = io.StringIO()
    display = Display("t", 100, file)
    display.on_start({})
    display.on_step(5, {"loss": 1.0})
    display.on_end("stopped", "by SIGINT")
    assert file.getvalue().startswith("t: stopped, step 5/100 (5 %)")


def test_what_ctrl_c_will_do_stands_in_the_panel_or_on_a_line(capfd):
    from rich.console import Console

    display, file = trained(Terminal()), Terminal()
    display.stopping()
    Console(file=file, width=110).print(display.panel())
    words = "stopping after this step, with a checkpoint; Ctrl-C again stops at once"
    assert words in visible(file.getvalue())
    assert capfd.readouterr().err == "", "the panel alone: a line would tear it"
    Display("t", 100, io.StringIO()).stopping()
    assert capfd.readouterr().err.startswith("stopping after this step")


def test_quiet_prints_nothing_at_all():
    for file in (io.StringIO(), Terminal()):
        trained(file, quiet=True)
        assert file.getvalue() == ""


def test_on_a_terminal_the_panel_shows_the_numbers_and_the_sample_as_text():
    from rich.console import Console

    display = trained(Terminal())
    clock = display.clock
    display.steps, clock.now = 80, clock.now + 10
    file = Terminal()
    Console(file=file, width=100).print(display.panel())
    seen = visible(file.getvalue())
    assert ("grpo on words" in seen and "40/80" in seen
            and "1:30, 1:10 left" in seen), "2 s a step, 10 s into this one"
    for label, value in (("reward", "0.400"), ("pass@1", "0.800"), ("KL", "0.010")):
        assert re.search(rf"{label}\s+{value}\s+[▁▂▃▄▅▆▇█]+", seen)
    assert "loss" not in seen and "question 40?" in seen
    assert "[bold red]x[/]" in seen and "[/nothing]" in seen, "markup is text"
    assert "owned" in seen
    assert not re.search(r"\x1b\]|\x07|\x1b\[2J|\u202e",
                         file.getvalue()), "the sample can't steer the terminal"


def test_a_live_panel_starts_ends_and_gives_the_cursor_back():
    file = Terminal()
    trained(file)
    text = file.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert "40/40" in visible(text) and not re.search(r"\x1b\]0|\x07|\x1b\[2J", text)
    file = Terminal()
    display = Display("t", 3, file)
    display.on_start({})
    display.on_end("failed", "ValueError: oh")
    assert file.getvalue().endswith("\x1b[?25h"), "also when training fails"


def test_time_left_is_reckoned_from_the_steps_seen_here():
    clock = Clock()
    display = Display("t", 100, io.StringIO(), clock=clock)
    assert display.left() is None
    clock.now = 30.0  # resumed after step 90: three steps in 30 seconds
    display.first, display.step, display.last = 90, 93, 30.0
    assert display.left() == pytest.approx(70.0)


def test_a_dumb_terminal_is_treated_as_a_pipe(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    trained(file)
    assert len(file.getvalue().splitlines()) == 11 and "\x1b" not in file.getvalue()


def test_progress_is_silent_when_short_and_told_when_long():
    clock, file = Clock(), io.StringIO()

    def slow(n, each):
        for i in range(n):
            clock.now += each
            yield i

    assert (list(progress(slow(100, 0.01), "quick", 100, file=file, clock=clock)) == list(range(100))
            and file.getvalue() == "")
    assert list(progress(slow(100, 1.0), "slow\x1b[2J", 100, file=file, clock=clock)) == list(range(100))
    lines = file.getvalue().splitlines()
    assert (len(lines) == 9 and lines[0] == "slow\ufffd[2J: 10/100 (10 %), 0:11, 1:39 left"
            and "\x1b" not in file.getvalue())
    screen = Terminal()
    assert list(progress([1, 2, 3], "[red]now", file=screen, after=0.0)) == [1, 2, 3]
    assert "[red]now" in visible(screen.getvalue()) and screen.getvalue().count("\x1b[?25h") == 1
    screen = Terminal()
    for _ in progress(range(9), "left early", file=screen, after=0.0):
        break
    assert "\x1b[?25l" not in screen.getvalue() or "\x1b[?25h" in screen.getvalue()


ROWS = [{"stage": "base", "pass@1": 0.2412, "share": "9.1%", "n": 3},
        {"stage": "[red]rl\x1b[2J", "pass@1": math.nan, "share": "81.0%"}]


def test_a_piped_table_is_aligned_text():
    file = io.StringIO()
    print_rows(ROWS, ["stage", ("pass@1", "first try"), "share", "n"], title="Stages", file=file)
    assert file.getvalue().splitlines() == [
        "Stages",
        "stage        first try  share  n",
        "base             0.241   9.1%  3",
        "[red]rl\ufffd[2J        nan  81.0%",
    ]
    file = io.StringIO()
    print_rows([{"a": 1}, {"b": "x\ny"}], file=file)
    assert file.getvalue() == "a  b\n1\n   x y\n"
    print_rows([], file=io.StringIO())


def test_a_table_on_a_terminal_holds_the_same_cells_as_text():
    file = Terminal()
    print_rows(ROWS, title="Stages", file=file)
    seen = visible(file.getvalue())
    for part in ("Stages", "[red]rl\ufffd[2J", "0.241", "81.0%", "nan"):
        assert part in seen
    assert "\x1b[2J" not in file.getvalue()


def test_text_that_the_encoding_lacks_is_replaced_not_fatal():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_rows([{"name": "é\ud800"}], file=file)
    assert raw.getvalue() == b"name\n??\n"


def test_json_is_strict_and_alone(capsys):
    print_json({"a": math.nan, "b": [1.5, math.inf], "c": "é\x1b"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and out.isascii() and "\x1b" not in out
    assert json.loads(out, parse_constant=lambda name: 1 / 0) == {"a": "nan", "b": [1.5, "inf"], "c": "é\x1b"}


@pytest.mark.parametrize(("values", "want"), [
    ([], ""), ([3.0], "▁"), ([1, 1, 1], "▁▁▁"), ([0, 1], "▁█"), ([0, 0.5, 1], "▁▅█"),
    ([0, math.nan, 1, math.inf], "▁█"), (list(range(8)), "▁▂▃▄▅▆▇█"),
    ([0] * 12 + [1] * 12 + [0] * 12 + [1] * 12, "▁" * 6 + "█" * 6 + "▁" * 6 + "█" * 6)])
def test_sparklines(values, want):
    assert sparkline(values, 24) == want


def test_small_words():
    assert [figure(x)
            for x in (0.81234, 34.56, 1234.5, 1234567.0, 3, 1e-5, 0.0, None, True, "a\nb", math.inf)] == [
                "0.812", "34.6", "1234", "1.23e+06", "3", "1.00e-05", "0.000", "", "True", "a b", "inf"]
    assert [duration(x) for x in (0, 75.9, 3700)] == ["0:00", "1:15", "1:01:40"]
    assert clean("a\tb\r\nc\rd\x9b") == "a    b\nc\ufffdd\ufffd"


def test_importing_the_display_loads_neither_rich_nor_torch():
    code = ("import sys, postgrad.runs.display as d; d.print_rows([{'a': 1}]); "
            "print({'rich', 'torch'} & {*sys.modules})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a\n1\nset()\n"


def test_minutes_to_come_are_printed_after_the_first_steps():
    clock, file = Clock(), io.StringIO()
    display = Display("sft", 0, file, clock=clock)
    display.on_start({"steps": 1000})  # where the size of the data decides the length
    for step in range(1, 5):
        clock.now += 2.0
        display.on_step(step, {"loss": 1.0})
    assert file.getvalue() == "sft: about 33 minutes to come, by the first 3 steps\n"  # 997 steps of 2 s
