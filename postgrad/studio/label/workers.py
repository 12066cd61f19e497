"""The side processes of labelling, as the server sees them:
the trainer trains the live reward model, the maker makes pairs.

Both are processes of their own, niced; threads wait for them, and nobody else does. No torch here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from postgrad.studio.json_types import JsonDict

HOME = Path(__file__).parents[3]  # the folder that holds the package
# judgements before the first training; changes before the next, at least
FIRST, STEP = 10, 5


def python_process(*words: str, **more: Any) -> subprocess.Popen[str]:
    """A process of this very package, whatever folder the server was started in."""
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen([sys.executable, "-m", *words], env=os.environ | {"PYTHONPATH": path}, text=True,
                            **more)


class RewardTrainer:
    """Trains again whenever enough has been said since the last time.

    `result` is the newest, `history` (judged, result)s.
    """

    def __init__(self, store: Path):
        self.store, self.error = store, ""
        self.result: JsonDict | None = None
        self.history: list[tuple[int, JsonDict]] = []
        self.busy, self.closed = False, False
        self._changes, self._judged = 0, 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.thread: threading.Thread | None = None

    @property
    def step(self) -> int:
        """How many changes make a new training: a tenth of what there is, or the fewest that can matter."""
        return max(STEP, self._judged // 10)

    def due(self) -> bool:
        if self._judged < FIRST or self.error:
            return False
        if self.result is None:
            return True
        return max(self._changes, abs(self._judged - int(self.result["judged"]))) >= self.step

    def changed(self, count: int = 1) -> None:
        """So many judgements were given, changed or taken back."""
        with self._lock:
            self._changes, self.error = self._changes + count, ""

    def notice(self, judged: int) -> None:
        """So many items are judged now: starts a training where one is due. Returns at once."""
        with self._lock:
            self._judged = judged
            if self.busy or self.closed or not self.due():
                return
            self.busy = True
            self.thread = threading.Thread(target=self._train, daemon=True)
            self.thread.start()

    def _train(self) -> None:
        while True:
            with self._lock:
                self._changes = 0
            said = self._ask()
            with self._lock:
                if "error" in said:
                    self.error = said["error"]
                else:
                    self.result = said
                    self.history = ([(n, old) for n, old in self.history if n != said["judged"]]
                                    + [(said["judged"], said)])
                self.busy = not self.closed and self.due()
                if not self.busy:
                    return

    def _ask(self) -> JsonDict:
        """One training, in the process that has the model in memory; a process that has died is replaced."""
        if self._process is None or self._process.poll() is not None:
            self._process = python_process("postgrad.studio.label.reward_process", str(self.store),
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL, start_new_session=True)
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write("train\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError):  # its pipe is closed
            line = ""
        return json.loads(line) if line else {"error": "the process that trains the reward model ended."}

    def close(self) -> None:
        """The process ends with its input."""
        self.closed = True
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


class PairMaker:
    """Runs `postgrad label make` once at a time; `message` is how the last one ended."""

    def __init__(self, store: Path):
        self.store, self.busy, self.message, self.failed = store, "", "", False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.thread: threading.Thread | None = None

    def start(self, words: Sequence[str], about: str) -> None:
        with self._lock:
            if self.busy:
                raise ValueError(f"{self.busy}: wait until it is done.")
            self.busy, self.message, self.failed = about, "", False
        command = ("postgrad", "label", "make", "--store", str(self.store), "--json", *words)
        self._process = python_process(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       stdin=subprocess.DEVNULL, start_new_session=True,
                                       preexec_fn=lambda: os.nice(10))
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        process = self._process
        assert process is not None
        out, wrong = process.communicate()
        with self._lock:
            self.failed = process.returncode != 0
            self.message = (wrong.strip().removeprefix("postgrad: ")[-400:] if self.failed
                            else pairs_made_text(json.loads(out)))
            self.busy = ""

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def pairs_made_text(found: JsonDict) -> str:
    known = f", {found['known']} were known" if found["known"] else ""
    skipped = f", {found['skipped']} prompts skipped, for the answers were equal" if found["skipped"] else ""
    return f"{found['added']} new pairs{known}{skipped}."
