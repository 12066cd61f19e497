"""The two-process judge: the tests in one process, the candidate in the other, plain values between them.

The candidate's process holds its own source and the arguments of calls, never an expected value. The
tester's holds the tests and the plain values that the candidate answered. The judge relays bytes that it
never parses, keeps the time, and believes the tester alone. So whatever a candidate does to its own process
(builtins, exit codes, sentinels, the pipe, objects that lie about equality) is at most a wrong answer.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from postgrad.records import Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.sandbox.codec import LONGEST, NotPlain, decode, encode
from postgrad.rewards.sandbox.selftest import missing_sandbox, require
from postgrad.rewards.sandbox.worker import Broken, Channel, ChildGone, JailWorker


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests for a candidate: trusted source text that calls it by name and asserts.

    Suite(tests="assert f(2) == 4", names={"f": "f"})
    names: the tests' name of a function -> the candidate's; "bool f" asks for the truth of f's answer alone.
    setup is executed before the tests, in their process.
    unsupported: why these tests cannot run over a pipe of plain values; such a suite judges nobody.
    """

    tests: str
    names: Mapping[str, str]
    setup: str = ""
    unsupported: str | None = None


@dataclass(frozen=True, kw_only=True)
class CodeJob:
    """One candidate's source, and the tests that it is to pass."""

    source: str
    suite: Suite


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a trusted function on untrusted text.

    Call(source="def score(text, gold): return text == gold", name="score", args=("5", "5"))
    """

    source: str
    name: str
    args: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """kind: pass, fail, timeout, or infrastructure (a fault that is not the candidate's). seconds: wall time.

    value: a Call's plain value; it comes from the jail, and what runs there may have chosen it.
    """

    kind: str
    reason: str = ""
    value: object = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def verdict(self) -> Verdict:
        error = self.reason if self.kind == "infrastructure" else None
        return Verdict(score=float(self.kind == "pass"),
                       reason=f"{self.kind}: {self.reason}".removesuffix(": "), error=error)


def play_job(candidate: Channel, tester: Channel, job: CodeJob, seconds: float) -> Outcome:
    """Plays one job between two new children. The tests run up to their first call before the candidate is
    read, so earlier faults are theirs; the candidate's time runs from its source to the verdict."""
    suite, deadline = job.suite, time.monotonic() + seconds
    try:
        tester.send(b"S", encode([suite.setup, suite.tests, dict(suite.names)]), deadline)
        tag, body = tester.receive(deadline)
    except TimeoutError:
        slow = "the tests take longer than the limit before they call the candidate"
        return Outcome(kind="infrastructure", reason=slow)
    except (ChildGone, NotPlain) as fault:
        return Outcome(kind="infrastructure", reason=f"the tester: {fault}")
    if tag != b"C":
        return _result(tag, body, suite, 0)
    calls, deadline = 0, time.monotonic() + seconds
    try:
        failed = _answer(candidate, b"S", job.source.encode(errors="replace"), deadline)
        while not isinstance(failed, Outcome):
            calls += 1
            failed = _answer(candidate, tag, body, deadline)
            if not isinstance(failed, Outcome):
                tester.send(b"V", failed, deadline)
                tag, body = tester.receive(deadline)
                if tag != b"C":
                    return _result(tag, body, suite, calls)
        return failed
    except TimeoutError:
        return Outcome(kind="timeout", reason="over the time limit")
    except ChildGone as fault:
        return Outcome(kind="fail", reason=f"the tester: {fault}")


def play_call(candidate: Channel, call: Call, seconds: float) -> Outcome:
    """Loads the source, calls the function, and decodes its plain value."""
    deadline = time.monotonic() + seconds
    try:
        body = encode([call.name, list(call.args), {}])
        failed = _answer(candidate, b"S", call.source.encode(), deadline)
        if isinstance(failed, Outcome):
            return Outcome(kind="infrastructure", reason=f"the scorer does not load: {failed.reason}")
        said = _answer(candidate, b"C", body, deadline)
        return said if isinstance(said, Outcome) else Outcome(kind="pass", value=decode(said))
    except NotPlain as fault:
        return Outcome(kind="fail", reason=str(fault))


def _answer(candidate: Channel, tag: bytes, body: bytes, deadline: float) -> bytes | Outcome:
    """The bytes of the value that the candidate answers, or the outcome where it answers none."""
    try:
        candidate.send(tag, body, deadline)
        said, value = candidate.receive(deadline)
    except TimeoutError:
        return Outcome(kind="timeout", reason="over the time limit")
    except ChildGone as fault:
        return Outcome(kind="fail", reason=str(fault))
    if said == (b"L" if tag == b"S" else b"V"):
        return value
    about = {b"E": "raised", b"N": "answered"}.get(said, "sent no answer")
    return Outcome(kind="fail", reason=f"{about} {shorten(value[:300].decode(errors='replace'))}")


def _result(tag: bytes, body: bytes, suite: Suite, calls: int) -> Outcome:
    text = body.decode(errors="replace")
    if tag == b"P" and calls:
        return Outcome(kind="pass")
    if tag == b"P":
        return Outcome(kind="infrastructure", reason="the tests never call the candidate")
    if tag == b"F" and calls:
        line = suite.tests.splitlines()[int(text) - 1].strip() if text.isdigit() else text
        return Outcome(kind="fail", reason=shorten(line, 120))
    return Outcome(kind="infrastructure", reason=f"the tests are broken: {shorten(text, 120)}")


class CodeJudge:
    """A pool of workers, each with a zygote that is ready to fork. Close it, or use it in a with statement.

    with CodeJudge() as judge: judge.verdicts([CodeJob(source="def f(x): return 2*x",
        suite=suite_from_tests("assert f(2) == 4"))])
    Raises ValueError where the jail does not hold (selftest.py). workers: one per processor by default, each
    started on first use. seconds: wall time of a job, from its source to its verdict; the tests have as much
    before that. memory: bytes of a child's address space. packages: what scorers may import; none for models'
    code. warm: trusted source executed once, before any fork, outside the jail.
    """

    def __init__(self, *, workers: int | None = None, seconds: float = 5.0, memory: int = 512 << 20,
                 packages: Sequence[str] = (), warm: str = ""):
        require()
        workers = len(os.sched_getaffinity(0)) if workers is None else workers
        if workers < 1 or seconds <= 0 or memory < 64 << 20:
            raise ValueError(f"a judge needs workers >= 1, seconds > 0 and memory >= 64 MiB, "
                             f"not {workers}, {seconds} and {memory}.")
        self.seconds, self.memory, self.packages, self.warm = seconds, memory, tuple(packages), warm
        self._idle: queue.LifoQueue[JailWorker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)  # started when first used
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="judge")
        self._lock, self.retried = threading.Lock(), 0

    def __enter__(self) -> CodeJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown()
        for _ in range(self._workers):
            worker = self._idle.get()
            if worker is not None:
                worker.close()

    def verdicts(self, jobs: Sequence[CodeJob]) -> list[Verdict]:
        """One verdict per job, in order; an infrastructure fault sets `error`."""
        return [outcome.verdict for outcome in self.outcomes(jobs)]

    def outcomes(self, jobs: Sequence[CodeJob]) -> list[Outcome]:
        return list(self._threads.map(self._judge, jobs))

    def answers(self, calls: Sequence[Call]) -> list[Outcome]:
        """What trusted functions answer on untrusted text: `pass` and a value, or why not."""
        return list(self._threads.map(self._twice, calls))

    def _judge(self, job: CodeJob) -> Outcome:
        if job.suite.unsupported:
            return Outcome(kind="infrastructure", reason=f"unsupported tests: {job.suite.unsupported}")
        if len(job.source.encode(errors="replace")) > LONGEST:
            return Outcome(kind="fail", reason=f"a source of more than {LONGEST} bytes")
        return self._twice(job)

    def _twice(self, job: CodeJob | Call) -> Outcome:
        outcome = self._once(job)
        if outcome.kind == "infrastructure":
            with self._lock:
                self.retried += 1
            outcome = self._once(job)
        return outcome

    def _once(self, job: CodeJob | Call) -> Outcome:
        worker, start = self._idle.get(), time.monotonic()
        try:
            worker = worker or JailWorker(memory=self.memory, cpu=int(self.seconds) + 2,
                                          packages=self.packages, warm=self.warm)
            candidate, *tester = worker.fork(1 if isinstance(job, Call) else 2)
            start = time.monotonic()
            outcome = (play_call(candidate, job, self.seconds) if isinstance(job, Call)
                       else play_job(candidate, tester[0], job, self.seconds))
            worker.clear()
        except BaseException as fault:
            if worker is not None:  # in the middle of a job: its children and channels end with it
                worker.close()
            worker = None
            if not isinstance(fault, Broken | OSError):
                raise
            outcome = Outcome(kind="infrastructure", reason=str(fault))
        finally:
            self._idle.put(worker)
        return replace(outcome, seconds=time.monotonic() - start)


class Jailed:
    """Trusted functions, as source, that read a model's text in the jail within a wall limit: a grammar, a
    regular expression or a schema can hang on it, or be made to run it.

    Jailed("regex", source, instead="text")("found", "a+", "caab") -> an Outcome with the function's value
    package, extra: an installed package that the source imports, and the extra of postgrad that brings it.
    instead: the alternative, at the end of the sentence that refuses. warm, seconds, memory: see CodeJudge.
    """

    def __init__(self, name: str, source: str, *, instead: str, package: str | None = None, extra: str = "",
                 warm: str = "", seconds: float = 1.0, memory: int = 512 << 20):
        self.name, self.source, self.warm = name, source, f"{source}\n{warm}"
        self.instead, self.package, self.extra, self.calls = instead, package, extra, 0
        self.seconds, self.memory, self._lock = seconds, memory, threading.Lock()
        self._judge: CodeJudge | None = None

    def require(self) -> None:
        """Raises ValueError, in one sentence, where the verifier cannot be used."""
        if self.package and importlib.util.find_spec(self.package) is None:
            raise ValueError(f"the verifier {self.name} needs the package {self.package}: "
                             f"pip install 'postgrad[{self.extra}]', or {self.instead}.")
        if why := missing_sandbox():
            raise ValueError(f"the verifier {self.name} reads replies in a sandbox, and this machine has "
                             f"none that holds ({why}): use Linux 5.13 or newer with Landlock and seccomp "
                             f"on, or {self.instead}.")

    @property
    def judge(self) -> CodeJudge:
        """One for all tasks and threads, started on first use; its workers end with this process."""
        with self._lock:
            if self._judge is None:
                self.require()
                self._judge = CodeJudge(packages=(self.package,) if self.package else (), warm=self.warm,
                                        seconds=self.seconds, memory=self.memory)
            return self._judge

    def __call__(self, function: str, *args: object) -> Outcome:
        return self.each([(function, *args)])[0]

    def each(self, calls: Sequence[tuple[str, *tuple[object, ...]]]) -> list[Outcome]:
        """Many calls in parallel, each a function's name and its arguments."""
        if not calls:
            return []
        self.calls += len(calls)
        return self.judge.answers([Call(source=self.source, name=name, args=tuple(args))
                                   for name, *args in calls])
