"""The sandbox for verifiers of text: trusted functions on a model's text,
and what to say where there is no sandbox.

A library that reads a model's text (a grammar, a regular expression, a schema) can hang on it or be made to
run it. So it runs in the jail, within a wall limit, and never in our own process.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence

from postgrad.rewards.sandbox import Call, CodeJudge, Outcome
from postgrad.rewards.sandbox.selftest import missing_sandbox

SECONDS = 1.0  # wall time of one verdict, unless told


class Jailed:
    """Trusted functions, given as source, that are called on text of models.

    Jailed("regex", source, instead="text")("found", "a+", "caab") -> an Outcome whose value the function
        answered
    package, extra: an installed package that the source imports, and the extra of postgrad that brings it.
    instead: what the user may do without it; the end of the sentence that refuses.
        warm, seconds, memory: see CodeJudge.
    """

    def __init__(self, name: str, source: str, *, instead: str, package: str | None = None, extra: str = "",
                 warm: str = "", **limits: float):
        self.name, self.source, self.warm = name, source, f"{source}\n{warm}"
        self.instead, self.package, self.extra, self.calls = instead, package, extra, 0
        self.limits, self._lock, self._judge = {"seconds": SECONDS, **limits}, threading.Lock(), None

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
        """One for all tasks and threads, started when first used; its workers end with this process."""
        with self._lock:
            if self._judge is None:
                self.require()
                self._judge = CodeJudge(packages=(self.package,) if self.package else (), warm=self.warm,
                                    **self.limits)
            return self._judge

    def __call__(self, function: str, *args: object) -> Outcome:
        return self.each([(function, *args)])[0]

    def each(self, calls: Sequence[tuple]) -> list[Outcome]:
        """Many calls, side by side: each is the name of a function and its arguments."""
        if not calls:
            return []
        self.calls += len(calls)
        return self.judge.answers([Call(source=self.source, name=name, args=args) for name, *args in calls])
