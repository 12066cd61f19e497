"""A training or a long measurement while it runs: a live panel on a terminal,
a few plain lines when piped."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from postgrad.runs.display.text import clean, duration, figure, is_terminal, plain, sparkline
from postgrad.system.throughput import throughput_words

SHOWN = {"reward": "reward", "pass@1": "pass@1", "accuracy": "accuracy",
         "held-out accuracy": "held-out accuracy", "length": "length", "kl": "KL", "entropy": "entropy",
         "loss": "loss", "held-out loss": "held-out loss"}
HELD_OUT = {"pass@1": "pass@1", "accuracy": "held-out accuracy", "loss": "held-out loss"}  # of an examination
STOPPING = "stopping after this step, with a checkpoint; Ctrl-C again stops at once, without one"


class Display:
    """The face of one stage of training.

    with Display(None, "grpo on words", steps=40) as display:
        display.update(3, {"reward": 0.41, "kl": 0.01}, sample={"prompt": "2+3?", "text": "5", "score": 1.0,
            "reason": "right"})
        display.eval({"step": 5, "pass@1": 0.52})
    console: a rich Console, a file, or None for standard output. steps 0: of unknown length.
        A resumed run simply updates from
    a later step: the time that is left is reckoned from the steps seen here.
    """

    def __init__(self, console=None, title: str = "", steps: int = 0, *, quiet: bool = False,
                 clock: Callable[[], float] = time.monotonic):
        self.file = getattr(console, "file", console) or sys.stdout
        self.console = console if hasattr(console, "print") else None
        self.title, self.steps, self.clock = clean(title).replace("\n", " "), steps, clock
        self.quiet = quiet or bool(getattr(console, "quiet", False))
        self.terminal = not self.quiet and is_terminal(self.file)
        self.series: dict[str, list[float]] = {}
        self.step, self.first, self.said, self.sample, self.live = 0, None, -1, None, None
        self.notice = ""
        self.news = False  # an examination that no line has told of
        self.began = self.last = clock()

    def __enter__(self) -> Display:
        self.began = self.last = self.clock()
        if self.terminal:
            from rich.console import Console
            from rich.live import Live

            self.console = self.console or Console(file=self.file)
            self.live = Live(get_renderable=self.panel, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, kind, *_) -> None:
        if self.live:
            self.live.stop()
        elif not self.quiet and (self.said != self.step or self.news) and (self.step or not kind):
            plain(self.file, self.line("stopped" if kind else "done"))
        if not self.quiet and not self.live and (speed := self.speed()):
            plain(self.file, f"{self.title}: " * bool(self.title) + speed)

    def update(self, step: int, metrics: Mapping[str, float], sample: Mapping | None = None) -> None:
        """A step has ended. sample: {"prompt", "text", "score", "reason"},
        the last one given stays on show."""
        if self.first is None:
            self.first = step - 1
        self.step, self.last, self.sample = step, self.clock(), sample or self.sample
        self._note({k: v for k, v in metrics.items() if k != "pass@1"})
        tenth = 10 * step // self.steps if self.steps else -1
        if not self.terminal and not self.quiet and tenth > 10 * (step - 1) // max(self.steps, 1):
            self.said, self.news = step, False
            plain(self.file, self.line())

    def stopping(self) -> None:
        """Somebody has pressed Ctrl-C: the panel says what will happen, or a line of its own does.

        Called in a signal handler, so the line goes past the buffers, which may be in use.
        """
        self.notice = STOPPING
        if not self.terminal and not self.quiet:
            try:
                os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())
            except (OSError, ValueError):  # a stream without a descriptor, as in a notebook
                plain(sys.stderr, STOPPING)

    def eval(self, row: Mapping) -> None:
        """An examination has ended: what it found on held-out problems, pairs or texts joins the panel."""
        found = {label: row[name] for name, label in HELD_OUT.items() if name in row}
        self._note(found)
        self.news = self.news or bool(found)

    def _note(self, values: Mapping) -> None:
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.series.setdefault(name, []).append(float(value))

    def left(self) -> float | None:
        """Seconds to go, from the mean of the steps seen here; None before the first."""
        if not self.steps or self.first is None or self.step <= self.first:
            return None
        return (self.last - self.began) / (self.step - self.first) * (self.steps - self.step)

    def shown(self) -> list[tuple[str, str, list[float]]]:
        """(name, label, series) of what is worth a line; the losses only where there is no reward."""
        found = [(n, label, self.series[n]) for n, label in SHOWN.items() if n in self.series]
        return [row for row in found if "reward" not in self.series or not row[0].endswith("loss")]

    def line(self, end: str = "") -> str:
        """The plain line: grpo on words: step 20/40 (50 %), 1:15, reward 0.812, KL 0.010"""
        where = f"step {self.step}/{self.steps} ({100 * self.step // self.steps} %)" if self.steps else ""
        parts = [end, where, duration(self.clock() - self.began)]
        parts += [f"{label} {figure(xs[-1])}" for _, label, xs in self.shown()]
        return f"{self.title}: " * bool(self.title) + ", ".join(part for part in parts if part)

    def speed(self) -> str:
        """Tokens a second, the parts of the time, the memory."""
        return throughput_words(lambda name: self.series.get(name, ()))

    def panel(self):
        """The live picture, drawn anew a few times a second."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        now, left = self.clock(), self.left()
        words = f"{self.step}/{self.steps} " if self.steps else ""
        ahead = ("" if left is None or self.step >= self.steps
                 else f", {duration(max(0.0, left - (now - self.last)))} left")
        head.add_row(ProgressBar(total=self.steps or None, completed=self.step, pulse=not self.steps),
                     Text(f"{words}{duration(now - self.began)}{ahead}"))
        numbers = Table.grid(padding=(0, 2))
        for _, label, xs in self.shown():
            numbers.add_row(Text(label, style="dim"), Text(figure(xs[-1])), Text(sparkline(xs), style="cyan"))
        rows = [head, *([Text(self.notice, style="yellow")] if self.notice else []),
                *([numbers] if self.series else []),
                *([Text(speed, style="dim")] if (speed := self.speed()) else []), *self._sample()]
        return Panel(Group(*rows), title=Text(self.title), title_align="left", border_style="dim",
                     padding=(0, 1))

    def _sample(self) -> list:
        from rich.text import Text

        if not self.sample:
            return []
        score, reason = self.sample.get("score"), clean(self.sample.get("reason") or "").replace("\n", " ")
        verdict = Text(f"{figure(score)}  {reason}".strip(), overflow="ellipsis", no_wrap=True,
                       style="green" if isinstance(score, int | float) and score > 0 else "red")
        ask, reply = (" ".join(clean(self.sample.get(k) or "").split()) for k in ("prompt", "text"))
        return [Text(""), Text(ask, style="dim", overflow="ellipsis", no_wrap=True), Text(_cut(reply, 400)),
                verdict]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class Watch:
    """A run's eyes: what the loop reports, on the display. with Watch("grpo", 40) as watch: ..."""

    def __init__(self, title: str, steps: int, console=None, intro: str = ""):
        self.display = Display(console, title=title, steps=steps)
        self.intro = intro

    def __enter__(self) -> Watch:
        self.display.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self.display.__exit__(*error)

    def stepped(self, step: int, row: Mapping, scored: Sequence) -> None:
        sample = None
        if scored:
            s = scored[len(scored) // 2]
            sample = {"prompt": s.rollout.prompt.question, "text": s.rollout.text, "score": s.verdict.score,
                      "reason": s.verdict.reason}
        self.display.update(step, row, sample)

    def examined(self, step: int, row: Mapping) -> None:
        self.display.eval(row)

    def begin(self) -> None:
        """Everything has been checked: what there is to say of the run is said."""
        if self.intro:
            print(self.intro, file=self.display.file)

    def stopping(self) -> None:
        self.display.stopping()


def progress(items: Iterable, label: str, total: int | None = None, *, file=None, after: float = 2.0,
             clock: Callable[[], float] = time.monotonic) -> Iterator:
    """The items, with a bar on a terminal (plain lines when piped) once they have taken `after`
    seconds; before, nothing."""
    file = file or sys.stderr
    total = total if total is not None else len(items) if hasattr(items, "__len__") else None
    began, bar, task, tenth = clock(), None, None, 0
    try:
        for done, item in enumerate(items):
            if clock() - began >= after and is_terminal(file):
                if bar is None:
                    bar, task = _bar(file, label, total)
                bar.update(task, completed=done)
            elif clock() - began >= after and total and 10 * done // total > tenth:
                tenth = 10 * done // total
                gone = clock() - began
                plain(file, f"{label}: {done}/{total} ({10 * tenth} %), {duration(gone)}, "
                            f"{duration(gone / done * (total - done))} left")
            yield item
        if bar:
            bar.update(task, completed=total)
    finally:
        if bar:
            bar.stop()


def _bar(file, label: str, total: int | None):
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                   console=Console(file=file), transient=True)
    bar.start()
    return bar, bar.add_task(escape(clean(label)), total=total)
