"""Small pipelines, watchers that cut them, and what must be equal when a cut one has gone on."""

import json

from postgrad.recipes.pipelines.stages import StageTrackers
from postgrad.runs.tracker import Tracker

CLOCKS = ("time/", "memory", "seconds", "minutes", "created", "updated")


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


def timeless(value, root):
    """Without clocks, and wherever the folder is."""
    if isinstance(value, dict):
        return {key: timeless(x, root) for key, x in value.items() if not key.startswith(CLOCKS)}
    if isinstance(value, list):
        return [timeless(x, root) for x in value]
    return value.replace(str(root), "FOLDER") if isinstance(value, str) else value


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
