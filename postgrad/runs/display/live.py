"""A training or a long measurement while it runs: a live panel on a terminal,
a few plain lines when piped."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, TextIO, TypeVar, cast

from postgrad.runs.display.text import clean, duration, figure, is_terminal, print_plain, sparkline
from postgrad.runs.tracker import Tracker
from postgrad.system.throughput import throughput_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.panel import Panel
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

SHOWN = {"reward": "reward", "pass@1": "pass@1", "accuracy": "accuracy",
         "held-out accuracy": "held-out accuracy", "length": "length", "kl": "KL", "entropy": "entropy",
         "loss": "loss", "held-out loss": "held-out loss"}
PRINTED = ("data", "steps", "damaged", "worry")  # kinds of events that stand on a line of their own
HELD_OUT = {"pass@1": "pass@1", "accuracy": "held-out accuracy", "loss": "held-out loss"}  # of an evaluation
STOPPING = "stopping after this step, with a checkpoint; Ctrl-C again stops at once, without one"


class Display(Tracker):
    """The terminal's tracker: a live panel, or plain lines in a pipe.

    Display("grpo on words", steps=40): a rich Console, a file, or None for standard output as `console`;
    steps 0: of unknown length. intro: printed at the start. The time that is left is reckoned from the steps
    seen here, so that a resumed run begins at a later step.
    """

    def __init__(self, title: str = "", steps: int = 0, console: Console | TextIO | None = None, *,
                 intro: str = "", quiet: bool = False, clock: Callable[[], float] = time.monotonic):
        self.file: TextIO = getattr(console, "file", None) or cast("TextIO | None", console) or sys.stdout
        self.console: Console | None = cast("Console", console) if hasattr(console, "print") else None
        self.title, self.steps, self.clock = clean(title).replace("\n", " "), steps, clock
        self.intro = intro
        self.quiet = quiet or bool(getattr(console, "quiet", False))
        self.terminal = not self.quiet and is_terminal(self.file)
        self.series: dict[str, list[float]] = {}
        self.step, self.last_line = 0, -1
        self.first: int | None = None
        self.sample: Mapping[str, object] | None = None
        self.live: Live | None = None
        self.notice = ""
        self.unprinted_eval = False
        self.began = self.last = clock()

    def on_start(self, config: Mapping[str, object]) -> None:
        self.began = self.last = self.clock()
        if self.terminal:
            from rich.console import Console
            from rich.live import Live

            self.console = self.console or Console(file=self.file)
            self.live = Live(get_renderable=self.panel, console=self.console, refresh_per_second=4)
            self.live.start()
        if self.intro and not self.quiet:
            print(self.intro, file=self.file)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.first is None:
            self.first = step - 1
        self.step, self.last = step, self.clock()
        self._note({k: v for k, v in metrics.items() if k != "pass@1"})
        tenth = 10 * step // self.steps if self.steps else -1
        if not self.terminal and not self.quiet and tenth > 10 * (step - 1) // max(self.steps, 1):
            self.last_line, self.unprinted_eval = step, False
            print_plain(self.file, self.line())

    def on_samples(self, step: int, rows: Sequence[Mapping[str, object]]) -> None:
        """One of them is shown until the next step."""
        self.sample = rows[len(rows) // 2]

    def on_eval(self, step: int, figures: Mapping[str, object]) -> None:
        found = {label: figures[name] for name, label in HELD_OUT.items() if name in figures}
        self._note(found)
        self.unprinted_eval = self.unprinted_eval or bool(found)

    def on_event(self, kind: str, text: str, step: int | None, data: Mapping[str, object]) -> None:
        if kind in PRINTED and not self.quiet:
            print(text, file=sys.stderr)

    def on_end(self, state: str, error: str | None) -> None:
        if self.live:
            self.live.stop()
        elif not self.quiet and (self.last_line != self.step or self.unprinted_eval) and (
                self.step or state == "done"):
            print_plain(self.file, self.line("done" if state == "done" else "stopped"))
        if not self.quiet and not self.live and (speed := self.speed()):
            print_plain(self.file, f"{self.title}: " * bool(self.title) + speed)

    def stopping(self) -> None:
        """Somebody has pressed Ctrl-C: the panel says what will happen, or a line of its own does.

        Called in a signal handler, so the line goes past the buffers, which may be in use.
        """
        self.notice = STOPPING
        if not self.terminal and not self.quiet:
            try:
                os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())
            except (OSError, ValueError):  # a stream without a descriptor, as in a notebook
                print_plain(sys.stderr, STOPPING)

    def _note(self, values: Mapping[str, object]) -> None:
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

    def panel(self) -> Panel:
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

    def _sample(self) -> list[RenderableType]:
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


def progress(items: Iterable[Item], label: str, total: int | None = None, *, file: TextIO | None = None,
             after: float = 2.0, clock: Callable[[], float] = time.monotonic) -> Iterator[Item]:
    """The items, with a bar on a terminal (plain lines when piped) once they have taken `after`
    seconds; before, nothing."""
    file = file or sys.stderr
    total = total if total is not None else len(items) if isinstance(items, Sized) else None
    began, tenth = clock(), 0
    bar: tuple[Progress, TaskID] | None = None
    try:
        for done, item in enumerate(items):
            if clock() - began >= after and is_terminal(file):
                bar = bar or _bar(file, label, total)
                bar[0].update(bar[1], completed=done)
            elif clock() - began >= after and total and 10 * done // total > tenth:
                tenth = 10 * done // total
                gone = clock() - began
                print_plain(file, f"{label}: {done}/{total} ({10 * tenth} %), {duration(gone)}, "
                            f"{duration(gone / done * (total - done))} left")
            yield item
        if bar:
            bar[0].update(bar[1], completed=total)
    finally:
        if bar:
            bar[0].stop()


def _bar(file: TextIO, label: str, total: int | None) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                   console=Console(file=file), transient=True)
    bar.start()
    return bar, bar.add_task(escape(clean(label)), total=total)
