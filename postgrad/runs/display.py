"""The terminal: a run while it is trained, progress, tables.

On a terminal `rich` draws; it is imported only there. Into a file or a pipe goes plain text without control
characters, one line for each tenth of the way. Text from a model is shown with its control characters made
visible, so that it cannot steer the terminal.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, TextIO, TypeVar, cast

from postgrad.runs.tracker import Tracker
from postgrad.system.throughput import throughput_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.panel import Panel
    from rich.progress import Progress, TaskID

# text

BARS = "▁▂▃▄▅▆▇█"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Tabs become spaces, other control characters and direction marks the replacement character."""
    return CONTROLS.sub("\ufffd", str(text).replace("\r\n", "\n").replace("\t", "    "))


def figure(value: object) -> str:
    """A number in few characters: 0.8123 -> 0.812, 34.5 -> 34.5, 1234567 -> 1.23e+06; other values as str."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else clean(value).replace("\n", " ")
    if not math.isfinite(value) or isinstance(value, int):
        return str(value)
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e5):
        return f"{value:.2e}"
    return f"{value:.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """A curve in `width` characters, each the mean of its part: [0, 1, 2] -> ▁▄█"""
    values = [v for v in values if math.isfinite(v)]
    if len(values) > width:
        cuts = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    if not values:
        return ""
    low, spread = min(values), max(values) - min(values)
    return "".join(BARS[min(7, int(8 * (v - low) / spread))] if spread else BARS[0] for v in values)


def duration(seconds: float) -> str:
    """75 -> 1:15, 3700 -> 1:01:40"""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def time_ago(moment: float | None, now: float | None = None) -> str:
    """A timestamp for people: just now, 2 min ago, 14:03 (today), 3 Nov, 3 Nov 2024."""
    if moment is None:
        return ""
    now = time.time() if now is None else now
    if 0 <= now - moment < 3600:
        return f"{int(now - moment) // 60} min ago" if now - moment >= 60 else "just now"
    then, today = time.localtime(moment), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return f"{then.tm_mday} {time.strftime('%b', then)}" + (f" {then[0]}" if then[0] != today[0] else "")


def is_terminal(file: object) -> bool:
    """Whether a file is a terminal with cursor movement. FORCE_COLOR does not make a pipe one."""
    return (bool(getattr(file, "isatty", lambda: False)())
            and os.environ.get("TERM") not in ("dumb", "unknown"))


def print_plain(file: TextIO, text: str) -> None:
    """One cleaned line in the file's encoding. A closed pipe does not end the training."""
    coding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(clean(text).encode(coding, "replace").decode(coding) + "\n")
        file.flush()
    except BrokenPipeError:
        pass


# tables

NUMBER = re.compile(r"[-\u2212+]?[\d.,]+(e[-+]?\d+)?\s?%?|nan|-?inf|")


def print_rows(rows: Sequence[Mapping[str, object]],
               columns: Sequence[str | tuple[str, str]] | None = None, *, title: str = "",
               whole: Collection[str] = (), file: TextIO | None = None) -> None:
    """A table: columns are keys, or (key, heading); by default every key that occurs. Piped: aligned text.

    whole: columns that a narrow terminal does not cut.
    """
    file = file or sys.stdout
    columns = list(dict.fromkeys(key for row in rows for key in row)) if columns is None else columns
    keys = [(c, c) if isinstance(c, str) else c for c in columns]
    cells = [[figure(row.get(key)) for key, _ in keys] for row in rows]
    right = [bool(cells) and all(NUMBER.fullmatch(line[i]) for line in cells) for i in range(len(keys))]
    heads = [clean(head).replace("\n", " ") for _, head in keys]
    if is_terminal(file):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        grid = Table(title=Text(clean(title)) if title else None, title_justify="left", box=None,
                     padding=(0, 2, 0, 0))
        for i, ((key, _), head, side) in enumerate(zip(keys, heads, right, strict=True)):
            least = max((len(line[i]) for line in cells), default=0) if key in whole else None
            grid.add_column(Text(head), justify="right" if side else "left", min_width=least)
        for row in cells:
            grid.add_row(*map(Text, row))
        Console(file=file).print(grid)
        return
    if title:
        print_plain(file, title)
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(keys))]
    for line in [heads, *cells]:
        put = [text.rjust(w) if side else text.ljust(w)
               for text, w, side in zip(line, widths, right, strict=True)]
        print_plain(file, "  ".join(put).rstrip())


# a run and other long work

Item = TypeVar("Item")

SHOWN = {"reward": "reward", "pass@1": "pass@1", "accuracy": "accuracy",
         "held-out accuracy": "held-out accuracy", "length": "length", "kl": "KL", "entropy": "entropy",
         "loss": "loss", "held-out loss": "held-out loss"}
# kinds of events that are printed
PRINTED = ("data", "length", "look", "steps", "damaged", "worry", "halved", "ended")
HELD_OUT = {"pass@1": "pass@1", "accuracy": "held-out accuracy", "loss": "held-out loss"}  # of evaluations
FORECAST_AFTER, LONG = 3, 90.0  # steps, and seconds left, of the line on the time to come
STOPPING = "stopping after this step, with a checkpoint; Ctrl-C again stops at once, without one"


class Display(Tracker):
    """The terminal's tracker: a live panel, or plain lines in a pipe.

    Display("grpo on words", steps=40). console: a rich Console or a file, by default standard output;
    steps 0: unknown length. intro: printed at the start.
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
        if not self.steps and isinstance(steps := config.get("steps"), int):
            self.steps = steps
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
        left = self.left() if step == self.first + FORECAST_AFTER else None
        if not self.terminal and not self.quiet and left is not None and left >= LONG:
            print_plain(self.file, f"{self.title}: " * bool(self.title) + f"about {round(left / 60)} minutes "
                        f"to come, by the first {FORECAST_AFTER} steps")

    def on_samples(self, step: int, rows: Sequence[Mapping[str, object]]) -> None:
        """Shows one of them until the next step."""
        self.sample = rows[len(rows) // 2]

    def on_eval(self, step: int, figures: Mapping[str, object]) -> None:
        held_out = {label: figures[name] for name, label in HELD_OUT.items() if name in figures}
        self._note(held_out)
        self.unprinted_eval = self.unprinted_eval or bool(held_out)

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
        """After Ctrl-C: says what happens next. Runs in a signal handler, so it writes unbuffered."""
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
        """Seconds to go, by the mean time of the steps since the start or resume; None before the first."""
        if not self.steps or self.first is None or self.step <= self.first:
            return None
        return (self.last - self.began) / (self.step - self.first) * (self.steps - self.step)

    def shown(self) -> list[tuple[str, str, list[float]]]:
        """(name, label, series) of the metrics in the panel; losses only where there is no reward."""
        return [(name, label, self.series[name]) for name, label in SHOWN.items() if name in self.series
                and not ("reward" in self.series and name.endswith("loss"))]

    def line(self, end: str = "") -> str:
        """The plain line: grpo on words: step 20/40 (50 %), 1:15, reward 0.812, KL 0.010"""
        where = f"step {self.step}/{self.steps} ({100 * self.step // self.steps} %)" if self.steps else ""
        parts = [end, where, duration(self.clock() - self.began)]
        parts += [f"{label} {figure(xs[-1])}" for _, label, xs in self.shown()]
        return f"{self.title}: " * bool(self.title) + ", ".join(part for part in parts if part)

    def speed(self) -> str:
        """Throughput, shares of the time, memory."""
        return throughput_words(lambda name: self.series.get(name, ()))

    def panel(self) -> Panel:
        """The live panel, drawn several times a second."""
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
        reply = reply if len(reply) <= 400 else reply[:399] + "…"
        return [Text(""), Text(ask, style="dim", overflow="ellipsis", no_wrap=True), Text(reply), verdict]


def progress(items: Iterable[Item], label: str, total: int | None = None, *, file: TextIO | None = None,
             after: float = 2.0, clock: Callable[[], float] = time.monotonic) -> Iterator[Item]:
    """Yields the items; after `after` seconds with a bar on a terminal, or plain lines in a pipe."""
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
