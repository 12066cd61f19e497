"""Runs cells: one zygote process with torch imported, one forked and locked-up process per run.

Every wait has a deadline.

The code is the reader's own, as in a notebook: only accidents are kept in check (endless loops, floods of
text, all the memory). So cells run for people at this machine only:
a server that listens elsewhere refuses them.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from postgrad.studio.cells.catalogue import HOME, CodeCell
from postgrad.studio.exercises.base import AnswerVerdict, Exercise, with_full_stop
from postgrad.studio.json_types import JsonDict, JsonList
from postgrad.system.json_text import strict_json

# seconds for one run; for a zygote to import torch, on a machine that is busy training
WALL, START = 8.0, 60.0
OUTPUT = 64 << 10           # bytes that a cell may print
ANSWER = 8 << 20            # bytes of an instrument's numbers
SOURCE = 64 << 10           # bytes of a cell
CHARTS, POINTS, MOST_CHECKS = 4, 2000, 100  # of one run, of a line, of an answer


class CellsRefused(ValueError):
    """Cells cannot run here; the message says why and what to do."""


@dataclass(kw_only=True)
class CellResult:
    """What a run came to. checks: {name: (ok, message)} as far as it got; plots: lists of lines, x first;
    verdict: of an answer to an exercise; fault: why it ended early, or ""."""

    checks: dict[str, tuple[bool, str]] = field(default_factory=dict)
    numbers: JsonDict | None = None
    plots: list[list[list[float]]] = field(default_factory=list)
    verdict: AnswerVerdict | None = None
    output: str = ""
    fault: str = ""
    seconds: float = 0.0


class Runner:
    """`check` tests an edited cell, `drive` computes an instrument's numbers with it, `grade` judges an
    answer to an exercise.

    One run at a time.
    """

    def __init__(self, wall: float = WALL):
        self.wall, self._lock = wall, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.facts: JsonDict | None = None
        self._for_exercises = False
        self._checked = ("", "", "")  # the cell that was checked last, its source and its fault

    def warm(self, *, for_exercises: bool = False) -> None:
        """Starts the zygote in the background, so that the first run need not wait for torch."""
        threading.Thread(target=self._warm, args=(for_exercises,), daemon=True).start()

    def _warm(self, for_exercises: bool) -> None:
        with self._lock:
            self._ready(for_exercises)

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def check(self, cell: CodeCell, source: str) -> CellResult:
        result = self._run(cell_job(cell, source))
        self._checked = (cell.name, source, result.fault)
        return result

    def drive(self, cell: CodeCell, source: str, instrument: str, state: JsonDict) -> CellResult:
        """The numbers of the instrument in that module, at that state, by the edited functions.

        What did not come to its end when it was checked is not run once more.
        """
        name, checked, fault = self._checked
        if fault and (name, checked) == (cell.name, source):
            return CellResult(fault=fault)
        return self._run(cell_job(cell, source) | {"instrument": instrument, "state": state})

    def grade(self, exercise: Exercise, source: str) -> AnswerVerdict:
        """What is to be said of an answer; one that ended early is wrong, with that as the reason."""
        result = self._run({"exercise": exercise.name, "source": check_source_length(source)})
        early = with_full_stop(f"The answer did not come to its end: {result.fault}")
        found = result.verdict or AnswerVerdict(passed=False, says=early)
        return replace(found, output=result.output)

    def _ready(self, for_exercises: bool) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
        if for_exercises and not self._for_exercises:
            self._connection.sendall(b"W")
            self._hear(5)
            self._for_exercises = True

    @property
    def _connection(self) -> socket.socket:
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        self._hang_up()
        ours, theirs = socket.socketpair()
        folders = sorted({sysconfig.get_path(name) for name in ("purelib", "platlib")})
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", str(Path(__file__).parent / "child.py"), str(HOME), *folders],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, cwd="/",
                start_new_session=True)
        self._control = ours
        ours.settimeout(START)
        said = b""
        while not said.endswith(b"\n"):
            said += self._hear(1)
        self.facts = json.loads(said)

    def _hear(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            try:
                part = self._connection.recv(count - len(got))
            except OSError as fault:
                part, why = b"", f": {fault}"
            else:
                why = ""
            if not part:
                self._hang_up()
                raise CellsRefused(f"the process that runs cells ended{why}: run the cell again to start "
                                   "another.")
            got += part
        return got

    def _hang_up(self) -> None:
        """The zygote ends with its connection, and what it forked ends with it."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process = self._control = self.facts = None
        self._for_exercises = False

    def _run(self, job: JsonDict) -> CellResult:
        with self._lock:
            self._ready("exercise" in job)
            assert self.facts is not None
            if not self.facts["jailed"] and self.facts["root"]:
                raise CellsRefused("cells are refused: this server runs as root on a machine without a jail "
                                   f"({self.facts['tier']}). Start it as an ordinary user.")
            return self._follow(json.dumps(job).encode())

    def _follow(self, job: bytes) -> CellResult:
        """Forks, feeds the job, gathers output and answers until they end, the time is up,
        or there is too much of them."""
        began = time.monotonic()
        theirs_in, end_of_job = os.pipe()
        job_end: int | None = end_of_job
        output_end, theirs_out = os.pipe()
        answer_end, theirs_answers = os.pipe()
        heard, why = {output_end: bytearray(), answer_end: bytearray()}, ""
        try:
            try:
                socket.send_fds(self._connection, [b"F"], [theirs_in, theirs_out, theirs_answers])
            finally:
                for end in (theirs_in, theirs_out, theirs_answers):
                    os.close(end)
            self._hear(5)
            with open(end_of_job, "wb", closefd=False) as file:
                file.write(job)
            os.close(end_of_job)
            job_end = None
            why = read_until_end(heard, {output_end: OUTPUT, answer_end: ANSWER}, began + self.wall,
                                 self.wall)
            self._connection.sendall(b"K")
            (status,) = struct.unpack("<i", self._hear(5)[1:])
        except OSError as fault:
            self._hang_up()
            raise CellsRefused(f"the process that runs cells is gone ({fault}): run the cell again to "
                               "start another.") from fault
        finally:
            for end in (output_end, answer_end, *([job_end] if job_end is not None else [])):
                os.close(end)
        text = bytes(heard[output_end][:OUTPUT]).decode(errors="replace")
        return parse_result(bytes(heard[answer_end]), text, why, status, time.monotonic() - began)


def check_source_length(source: str) -> str:
    if len(source.encode()) > SOURCE:
        raise ValueError(f"the cell is {len(source.encode())} bytes long, of at most {SOURCE}: shorten it.")
    return source


def cell_job(cell: CodeCell, source: str) -> JsonDict:
    return {"cell": cell.name, "module": cell.module, "names": list(cell.names),
            "source": check_source_length(source)}


def read_until_end(heard: dict[int, bytearray], most: dict[int, int], deadline: float, wall: float) -> str:
    """Reads all ends to their end. Why it stopped before, or ""."""
    with selectors.DefaultSelector() as ready:
        for end in heard:
            ready.register(end, selectors.EVENT_READ)
        while ready.get_map():
            left = deadline - time.monotonic()
            events = ready.select(max(left, 0))
            if left <= 0 or not events:
                return f"stopped after {wall:g} seconds: an endless loop?"
            for key, _ in events:
                part = os.read(key.fd, 1 << 16)
                heard[key.fd] += part
                if not part:
                    ready.unregister(key.fd)
                elif len(heard[key.fd]) > most[key.fd]:
                    return f"stopped: it printed more than {most[key.fd] >> 10} kB"
    return ""


def parse_result(answers: bytes, output: str, why: str, status: int, seconds: float) -> CellResult:
    """The answers are only data: a cell that writes on their descriptor itself is told so."""
    result, done = CellResult(output=output, fault=why, seconds=seconds), False
    try:
        for line in answers.split(b"\n")[:-1]:
            row = strict_json(line)
            done = done or "done" in row or "fault" in row
            if "check" in row:
                result.checks[str(row["check"])] = bool(row["ok"]), str(row["message"])
            if "plot" in row and len(result.plots) < CHARTS:
                result.plots.append(parse_chart(row["plot"]))
            if "numbers" in row:
                from postgrad.rewards.sandbox import codec
                numbers = codec.decode(row["numbers"].encode())
                result.numbers = numbers if isinstance(numbers, dict) else None
            if "verdict" in row:
                result.verdict = parse_verdict(row["verdict"])
            result.fault = result.fault or str(row.get("fault", ""))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as fault:
        result.fault = f"the cell wrote among the answers of its own check ({type(fault).__name__})"
    if not done and not result.fault:
        result.fault = exit_text(status)
    return result


def parse_verdict(row: JsonDict) -> AnswerVerdict:
    """The verdict of an answer; raises where it is none."""
    checks = tuple((str(text), bool(holds)) for text, holds in row["checks"][:MOST_CHECKS])
    mistake = row["mistake"]
    if not (isinstance(row["passed"], bool) and (mistake is None or type(mistake) is int)):
        raise ValueError("no verdict")
    return AnswerVerdict(passed=row["passed"], says=str(row["says"]), example=str(row["example"]),
                         mistake=mistake, checks=checks, output=str(row["output"]))


def parse_chart(lines: JsonList) -> list[list[float]]:
    """The lines of a chart, x first; raises where they are none."""
    chart = [[float(value) for value in line] for line in lines]
    if len(chart) < 2 or not 0 < len(chart[0]) <= POINTS or any(len(line) != len(chart[0]) for line in chart):
        raise ValueError("no chart")
    return chart


def exit_text(status: int) -> str:
    """A process that ended without a word, in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
        return f"the process crashed ({name})"
    return f"the process ended by itself with status {os.WEXITSTATUS(status)} before the checks were done"
