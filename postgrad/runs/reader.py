"""What a run folder says to whoever looks: rows, curves, checkpoints and how the run is.

Nothing here writes or locks.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from postgrad.runs import disk
from postgrad.runs.rows import LOGS, JsonDict, number, read_json, read_log, read_step
from postgrad.system.renamed import translate_config, translate_info


class Reader:
    """A run as it lies in its folder. `Run` is one that can also be written.

    Reader("runs/first").curve("loss") -> ([1, 2], [0.7, 0.6])
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(os.path.abspath(folder))
        self.info: JsonDict = translate_info(read_json(self.folder / "run.json"))
        self.config: JsonDict = translate_config(read_json(self.folder / "config.json"))

    def started(self) -> tuple[str, int]:
        """The recipe and the number of steps that the run was started with; what is neither raises."""
        recipe, steps = self.info.get("recipe"), self.info.get("steps")
        if isinstance(recipe, str) and isinstance(steps, int):
            return recipe, steps
        key, value = ("steps", steps) if isinstance(recipe, str) else ("recipe", recipe)
        raise ValueError(f"{self.folder / 'run.json'}: {key} is {value!r:.60}: the run is broken; restore "
                         "the file from a copy")

    def rows(self, name: str, after: int = 0, most: int = -1) -> tuple[list[JsonDict], int]:
        """The whole rows behind byte `after`, and the cursor for the next call.

        most: bytes to read at most (-1: all).

        A cursor from before a rewind that no longer stands on a line's start begins again at 0:
        replace rows by their step.
        """
        assert name in LOGS, name
        rows, cursor = read_log(self.folder / f"{name}.jsonl", after, most)
        return [row for row in rows if row["step"] is not None or name == "events"], cursor

    def at(self, name: str, step: int) -> tuple[list[JsonDict], int | None, int | None]:
        """The rows of the newest logged step up to `step`, and the logged steps before and after it;
        a long log is not read."""
        assert name in LOGS, name
        return read_step(self.folder / f"{name}.jsonl", step)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a metric, from the metrics or else the evaluations;
        not-finite values as floats."""
        for log in ("metrics", "evals"):
            points = [(row["step"], number(row[name])) for row in self.rows(log)[0] if name in row]
            if points:
                return [s for s, _ in points], [v for _, v in points]
        return [], []

    def checkpoints(self) -> dict[int, Path]:
        """step -> folder, oldest first, verified or not."""
        return disk.checkpoint_folders(self.folder / "checkpoints")

    def verify(self, step: int) -> Path:
        """The checkpoint's folder, after every file was found, measured and hashed; else
        DamagedCheckpoint."""
        found = self.checkpoints()
        if step not in found:
            raise ValueError(f"{self.folder} has no checkpoint of step {step}; it has "
                             f"{list(found) or 'none'}")
        disk.check_checkpoint(found[step], step)
        return found[step]

    def alive(self) -> bool:
        """Is a process training here now? Asked of the lock, so a reused process id can't deceive."""
        return disk.is_held(self.folder / "lock")

    def _status(self) -> JsonDict:
        try:
            return read_json(self.folder / "status.json")
        except ValueError:
            return {"state": "unknown", "pid": None, "step": 0, "steps": self.info.get("steps"),
                    "updated": None, "error": None}

    def state(self) -> JsonDict:
        """status.json as it is true now: "running" with nobody behind it reads "interrupted"."""
        status = self._status()
        return ({**status, "state": "interrupted"} if status.get("state") == "running" and not self.alive()
                else status)

    def summary(self, points: int = 32) -> JsonDict:
        """One row of the list of runs; `series` is the reward (or accuracy,
        or loss) at up to `points` steps."""
        status, (rows, _), (evals, _) = self.state(), self.rows("metrics"), self.rows("evals")
        shown = next((n for n in ("reward", "accuracy", "loss") if any(n in row for row in rows)), None)
        series = [number(row[shown]) for row in rows if shown in row] if shown else []
        every = max(1, math.ceil(len(series) / points))
        passed = [row["pass@1"] for row in evals if "pass@1" in row]
        return {
            "name": self.folder.name,
            **{k: text(self.info.get(k)) for k in ("recipe", "method", "model", "task")},
            "created": created if math.isfinite(created := number(self.info.get("created"))) else None,
            "state": text(status.get("state")),
            "error": text(status.get("error")), "updated": status.get("updated"),
            "step": rows[-1]["step"] if rows else 0, "steps": self.info.get("steps"),
            "seconds": sum(x for row in rows if math.isfinite(x := number(row.get("time/step")))),
            "reward": next((number(row["reward"]) for row in reversed(rows) if "reward" in row), None),
            "pass@1": number(passed[-1]) if passed else None,
            "series_name": shown, "series": [x for x in series[::-1][::every][::-1] if math.isfinite(x)],
        }


def text(value: object) -> str | None:
    """A text of a file that somebody else may have written."""
    return None if value is None else str(value)
