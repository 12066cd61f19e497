"""A small run for trackers of other packages, and what each package's own reader says of it."""

import json
import math
import os
import re
from pathlib import Path

from postgrad.runs import Run
from postgrad.runs.backends import ROLLOUT, wandb_history
from postgrad.runs.follow import tracked_run
from postgrad.runs.frame import merge_steps

PACKAGES = {"trackio": "trackio", "wandb": "wandb", "tensorboard": "tensorboard", "mlflow": "mlflow"}


def make_run(folder, steps):
    run = Run.create(folder, recipe="rollouts", config={"optim": {"lr": 1e-3}, "steps": steps}, steps=steps,
                     method="grpo", model="tiny", seed=0)
    run.log_eval(0, {"pass@1": 0.125, "pass@1_interval": [0.0, 0.5], "answers": [{"gold": "4"}]})
    return run


def advance(run, upto):
    """Steps up to this one, with an evaluation every third and two samples a step."""
    for step in range(run.next_step, upto + 1):
        odd = {2: math.nan, 3: math.inf}.get(step, 0.5)
        run.log(step, {"loss": 1 / step, "reward": step / 7, "odd": odd, "time/step": 0.25 + step / 1000})
        if step % 3 == 0:
            run.log_eval(step, {"pass@1": step / 100, "pass@1_interval": [0.0, step / 50]})
        run.log_samples(step, [{"id": f"{step}/{i}", "prompt": "2 + 2?", "text": f"it is {i}", "score": i / 2,
                                "reason": "", "finished": True} for i in range(2)])
    return run


def environment_of(place):
    """The variables with which every tracker keeps to a folder."""
    return {"WANDB_MODE": "offline", "WANDB_DIR": str(place), "WANDB_SILENT": "true",
            "TRACKIO_DIR": str(place / "trackio"), "MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db",
            "MLFLOW_ARTIFACT_ROOT": str(place / "artifacts")}


def expected(run):
    """(the figures that every point of a curve should have, the samples of each step)"""
    counts = {}
    for row in run.rows("samples")[0]:
        counts[row["step"]] = counts.get(row["step"], 0) + 1
    points = [(step, name, value) for step, figures in
              merge_steps(run.rows("metrics")[0], run.rows("evals")[0]).items()
              for name, value in figures.items()]
    return points, counts


def in_trackio(run, place):
    from trackio.sqlite_storage import SQLiteStorage
    about = tracked_run(run)
    name = f"{about.name}-{about.id[:8]}"
    rows = SQLiteStorage.get_logs("postgrad", name)
    points = [(row["step"], key, value) for row in rows for key, value in row.items()
              if key not in ("step", "timestamp")]
    steps = SQLiteStorage.get_trace_steps("postgrad", name)["steps"]
    return points, {row["step"]: row["count"] for row in steps}


def in_wandb(run, place):
    files = sorted(Path(place).glob("wandb/offline-run-*/run-*.wandb"))
    rows = [row for file in files for row in wandb_history(file)]
    points = [(row["step"], key, value) for row in rows if "rollouts/step" not in row
              for key, value in row.items() if key != "step" and not key.startswith("_")]
    counts = [(row["rollouts/step"], row["rollouts.nrows"]) for row in rows if "rollouts/step" in row]
    assert len(dict(counts)) == len(counts), "a step's rollouts twice"
    return points, dict(counts)


def in_tensorboard(run, place):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    read = EventAccumulator(str(run.folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    points = [(event.step, tag, event.value) for tag in read.Tags()["scalars"] for event in read.Scalars(tag)]
    texts = read.Tensors("rollouts") if "rollouts" in read.Tags()["tensors"] else []
    assert all(set(json.loads(text)) == {*ROLLOUT} for event in texts
               for text in event.tensor_proto.string_val)
    return points, {event.step: len(event.tensor_proto.string_val) for event in texts}


def in_mlflow(run, place):
    import mlflow
    client = mlflow.MlflowClient()
    home = client.get_experiment_by_name("postgrad")
    (known,) = client.search_runs([home.experiment_id], f"tags.`postgrad.id` = '{tracked_run(run).id}'")
    points = [(point.step, re.sub("_at_", "@", key), point.value) for key in known.data.metrics
              for point in client.get_metric_history(known.info.run_id, key)]
    counts = {}
    for file in client.list_artifacts(known.info.run_id, "rollouts"):
        table = json.loads(Path(client.download_artifacts(known.info.run_id, file.path)).read_text())
        counts[int(Path(file.path).stem)] = len(table["data"])
    return points, counts


READERS = {"trackio": in_trackio, "wandb": in_wandb, "tensorboard": in_tensorboard, "mlflow": in_mlflow}


def same_point(name, wanted, read):
    """Whether a value is the logged one; TensorBoard has floats of 32 bits, MLflow the largest float for
    inf."""
    wanted, read = wanted, float(read)
    if math.isnan(wanted) or math.isnan(read):
        return math.isnan(wanted) and math.isnan(read)
    if name == "tensorboard":
        return math.isclose(wanted, read, rel_tol=2**-24, abs_tol=1e-45)
    if math.isinf(wanted) and name == "mlflow":
        return read > 1.7e308
    return wanted == read


def is_timed(figure):
    """Whether a figure is of the machine, and another when a step is done again."""
    return figure.startswith(("time/", "memory", "eval/seconds"))


def compare(name, run, place):
    """What a tracker has, against the run's logs. timed_again: times and memory of steps that were done
    twice, of which most trackers have the first time's."""
    os.environ.update(environment_of(Path(place)))
    points, counts = expected(run)
    read, traced = READERS[name](run, place)
    wanted = {(step, key): value for step, key, value in points}
    arrived = {(step, key) for step, key, _ in read}
    different = [(step, key) for step, key, value in read
                 if (step, key) in wanted and not same_point(name, wanted[step, key], value)]
    return {"points": len(wanted), "read": len(read), "missing": len(wanted.keys() - arrived),
            "twice": len(read) - len(arrived), "unknown": len(arrived - wanted.keys()),
            "different": sum(not is_timed(key) for _, key in different),
            "timed_again": sum(is_timed(key) for _, key in different),
            "rollouts": sum(counts.values()), "rollouts_equal": counts == traced}
