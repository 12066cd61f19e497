"""Trackers of other packages, each an extra of its own that is imported when a run is sent to it.

    trackio      its local store ($TRACKIO_DIR); figures, rollouts as traces
    wandb        online or offline ($WANDB_MODE); figures, rollouts as tables
    tensorboard  event files in RUN/tensorboard; figures as 32-bit floats, rollouts as texts
    mlflow       $MLFLOW_TRACKING_URI; figures, rollouts as an artifact a step

Left out on purpose: what a run has logged (`follow`), alerts, system metrics, files of the run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from postgrad.runs.rows import JsonDict, json_value

PROJECT = "postgrad"  # where the tracker's own variable names no other
ROLLOUT = ("id", "prompt", "text", "score", "reason", "finished")  # what is sent of a sample


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is told of a run before its steps. config: by names such as optim.lr."""

    id: str
    name: str
    folder: Path
    config: dict[str, Any]


class Backend:
    """One run in a tracker. last_step, last_rollouts: up to where the tracker has the run; -1: nothing."""

    last_step = -1
    last_rollouts = -1

    def __init__(self, run: TrackedRun):
        raise NotImplementedError

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Sends the figures of a step; steps come in order."""
        raise NotImplementedError

    def log_rollouts(self, step: int, rows: Sequence[JsonDict]) -> None:
        """Sends the logged samples of a step."""
        raise NotImplementedError

    def rewind(self) -> None:
        """The run went back to a checkpoint. A tracker that cannot take rows back keeps those it has."""

    def end(self, state: str) -> None:
        """The run is done, stopped, failed or interrupted."""

    def close(self) -> None:
        """Everything sent has arrived when this returns."""


class TrackioBackend(Backend):
    def __init__(self, run: TrackedRun):
        import trackio
        from trackio.sqlite_storage import SQLiteStorage
        if remote := [name for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL") if os.environ.get(name)]:
            raise ValueError(f"{remote[0]} is set, and runs are sent to trackio's store on this machine "
                             "alone: unset it, and put the project online with `trackio sync`.")
        project, name = os.environ.get("TRACKIO_PROJECT", PROJECT), f"{run.name}-{run.id[:8]}"
        self.package = trackio
        self.run = trackio.init(project=project, name=name, config=run.config, resume="allow", embed=False,
                                auto_log_gpu=False, auto_log_cpu=False)
        last = SQLiteStorage.get_max_step_for_run(project, name)
        self.last_step = -1 if last is None else last
        traced = SQLiteStorage.get_trace_steps(project, name)["steps"]
        self.last_rollouts = max((row["step"] for row in traced), default=-1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self.run.log(dict(figures), step=step)

    def log_rollouts(self, step: int, rows: Sequence[JsonDict]) -> None:
        traces = [self.package.Trace([{"role": "user", "content": str(row.get("prompt"))},
                                      {"role": "assistant", "content": str(row.get("text"))}],
                                     metadata=rollout_cells(row)) for row in rows]
        self.run.log({"rollouts": traces}, step=step)

    def close(self) -> None:
        self.package.finish()


class WandbBackend(Backend):
    """Each step is a row of the history; the axis of every curve is `step`."""

    def __init__(self, run: TrackedRun):
        import wandb
        self.table = wandb.Table
        self.run = wandb.init(project=os.environ.get("WANDB_PROJECT", PROJECT), id=run.id, name=run.name,
                              resume="allow", config=run.config, settings=wandb.Settings(console="off"))
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")
        rows = ([row for file in sorted(Path(self.run.dir).parents[1].glob(f"*-{run.id}/run-{run.id}.wandb"))
                 for row in wandb_history(file)] if self.run.offline else [dict(self.run.summary)])
        self.last_step = max((int(row["step"]) for row in rows if "step" in row), default=-1)
        self.last_rollouts = max((int(row["rollouts/step"]) for row in rows if "rollouts/step" in row),
                                 default=-1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self.run.log({"step": step, **figures})

    def log_rollouts(self, step: int, rows: Sequence[JsonDict]) -> None:
        table = self.table(columns=[*ROLLOUT], data=[[*rollout_cells(row).values()] for row in rows])
        self.run.log({"rollouts": table, "rollouts/step": step})

    def end(self, state: str) -> None:
        self.run.summary["state"] = state

    def close(self) -> None:
        self.run.finish()


def wandb_history(file: Path) -> list[JsonDict]:
    """The rows of an offline run's history, as wandb's own reader prints them."""
    done = subprocess.run([sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"],
                          capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [record["history"]["item"] for record in records if record.get("type") == "history"]


class TensorBoardBackend(Backend):
    """Event files are derived from the run alone, so they are rewritten: when a run is opened again, and
    when it has gone back to a checkpoint."""

    def __init__(self, run: TrackedRun):
        self.folder, self.writer = run.folder / "tensorboard", None
        self.rewind()

    def rewind(self) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        if self.writer is not None:
            self.writer.close()
        for file in self.folder.glob("events.out.tfevents.*"):
            file.unlink()
        self.writer = EventFileWriter(str(self.folder))
        self.last_step = self.last_rollouts = -1

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        self._write(step, [Summary.Value(tag=tag, simple_value=x) for tag, x in figures.items()])

    def log_rollouts(self, step: int, rows: Sequence[JsonDict]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text import metadata
        from tensorboard.util import tensor_util
        texts = [json.dumps(rollout_cells(row), ensure_ascii=False) for row in rows]
        self._write(step, [Summary.Value(tag="rollouts", tensor=tensor_util.make_tensor_proto(texts),
                                         metadata=metadata.create_summary_metadata("rollouts", ""))])

    def _write(self, step: int, values: Sequence[Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        assert self.writer is not None
        self.writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))

    def close(self) -> None:
        assert self.writer is not None
        self.writer.close()


class MlflowBackend(Backend):
    """A step is one batch of metrics. Where a store had taken a part of one, the rest is sent."""

    def __init__(self, run: TrackedRun):
        import mlflow
        from mlflow.entities import Metric, Param
        self.metric, self.client = Metric, mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self.client.get_experiment_by_name(name)
        home = experiment.experiment_id if experiment else self.client.create_experiment(name)
        known = self.client.search_runs([home], f"tags.`postgrad.id` = '{run.id}'")
        if known:
            self.id = known[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            opened = self.client.create_run(home, tags={"postgrad.id": run.id}, run_name=run.name)
            self.id = opened.info.run_id
            params = [Param(key, str(value)[:500]) for key, value in run.config.items()]
            for start in range(0, len(params), 100):
                self.client.log_batch(self.id, params=params[start:start + 100])
        last = {key: max(point.step for point in self.client.get_metric_history(self.id, key))
                for key in self.client.get_run(self.id).data.metrics}
        newest = max(last.values(), default=-1)
        self.begun = {key for key, step in last.items() if step == newest}  # of the newest step
        self.last_step = newest - 1 if self.begun else -1
        files = self.client.list_artifacts(self.id, "rollouts")
        # the newest file is written again: it may be a part
        self.last_rollouts = max((int(Path(file.path).stem) - 1 for file in files), default=-1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        points = [self.metric(key, value, now, step) for key, value in
                  ((re.sub(r"[^\w\-./ ]", "_at_", name), value) for name, value in figures.items())
                  if key not in self.begun]
        self.begun = set()
        self.client.log_batch(self.id, metrics=points)

    def log_rollouts(self, step: int, rows: Sequence[JsonDict]) -> None:
        cells = [rollout_cells(row) for row in rows]
        self.client.log_dict(self.id, {"columns": [*ROLLOUT], "data": [[*row.values()] for row in cells]},
                             f"rollouts/{step:06d}.json")

    def end(self, state: str) -> None:
        self.client.set_terminated(self.id, {"done": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED"))


BACKENDS: dict[str, type[Backend]] = {"trackio": TrackioBackend, "wandb": WandbBackend,
                                      "tensorboard": TensorBoardBackend, "mlflow": MlflowBackend}


def check_installed(name: str) -> None:
    if find_spec(name) is None:
        raise ValueError(f"the tracker {name} needs the package {name}: pip install 'postgrad[{name}]'.")


@contextmanager
def open_backend(name: str, run: TrackedRun) -> Iterator[Backend]:
    """A run in a tracker, opened where the tracker's data ends."""
    backend = BACKENDS[name](run)
    try:
        yield backend
    finally:
        backend.close()


def rollout_cells(row: Mapping[str, object]) -> JsonDict:
    """The columns of a sample that trackers have, in the order of ROLLOUT."""
    return {name: json_value(row.get(name)) for name in ROLLOUT}
