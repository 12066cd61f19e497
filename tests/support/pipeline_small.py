"""Small pipelines, watchers that cut them, and what must be equal when a cut one has gone on."""

import json
from contextlib import contextmanager

import pytest
from kills import timeless
from rlhf_small import SMALL as FEW
from settings_text import override

from postgrad.cli.settings import config_from_text
from postgrad.recipes.launch import start_pipeline
from postgrad.recipes.pipelines.stages import Stage, StageTrackers
from postgrad.runs import Run
from postgrad.runs.tracker import Tracker
from postgrad.system.settings import flat_settings


class Cut(Exception):
    pass


class Cutting(StageTrackers, Tracker):
    """Raises at the nth thing it is told (a stage that begins, a step, a measurement), or at the first that
    is not among those it knows."""

    def __init__(self, at=None, known=None):
        super().__init__()
        self.at, self.known, self.seen = at, known, []

    def look(self, what):
        self.seen.append(what)
        if len(self.seen) == self.at or self.known is not None and what not in self.known:
            raise Cut(what)

    def of_stage(self, title, steps):
        self.look(f"{title} begins")
        self.name = title
        return [self]

    def on_step(self, step, metrics):
        self.look(f"{self.name} {step}")

    def progress(self, label):
        self.look(label)
        return iter


def cut_everywhere(go):
    """Carries out a pipeline that is cut once at each thing it does; -> the cuts in order."""
    cuts = []
    while True:
        try:
            go(Cutting(known=cuts))
            return cuts
        except Cut as cut:
            cuts.append(str(cut))


@contextmanager
def small_stages():
    """Small collections, short replies, a checkpoint at every step: what pipelines leave to the recipes."""
    few = {k: v for k, v in FEW.items() if k not in ("steps", "seed", "head.heads")}
    few |= {"rows_per_step": 4, "examples": 16, "method.epochs": 1, "method.minibatches": 2}
    start = Stage.run_step

    def small(self, *args):
        known = flat_settings(self.config)
        words = [f"{k}={v}" for k, v in few.items() if k in known]
        object.__setattr__(self, "config", override(self.config, words))
        return start(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "run_step", small)
        yield


def run_small(spec, words, folder, stages=None):
    recipe, config = config_from_text(spec, words)
    return start_pipeline(recipe, config, folder, stages=stages, command=f"postgrad train {spec}")


def check_cuts(folder, cut, go):
    """A pipeline that is cut at its start and at every step ends as the one in the folder."""
    cuts = cut_everywhere(lambda stages: go(cut, stages))
    steps = json.loads((cut / "pipeline.json").read_text())["steps"]
    trained = [Run.open(cut / step["name"]).info["steps"] for step in steps if step["kind"] == "run"]
    assert min(trained) > 1 and len(cuts) == len(steps) + sum(trained)
    assert left_in(cut) == left_in(folder)


def left_in(folder):
    """Whatever a pipeline left that has to be the same: metrics, evaluations, samples, weights, figures."""
    out = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in ("status.json",
                                                                                      "events.jsonl")):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            out[name] = timeless(json.loads(path.read_text()), folder)
        elif path.suffix == ".jsonl":
            out[name] = [timeless(json.loads(line), folder) for line in path.read_text().splitlines()]
        elif path.suffix in (".safetensors", ".tensors"):
            out[name] = path.read_bytes()
    return {name: value for name, value in out.items() if "/checkpoints/" not in name or name.endswith(
        ("model.safetensors", "state.tensors"))}
