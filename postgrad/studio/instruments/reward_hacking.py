"""Instrument 5, reward hacking: the logged curves of the over-optimisation lab,
and best-of-n against the same reward model.

Nothing is simulated: the package holds the curves that `postgrad train overoptimise` wrote for three seeds,
and a run folder of that recipe can be shown in their place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postgrad.studio.instruments.base import PACKAGE, RUNS, Choice, Instrument, Slider
from postgrad.studio.pages import num

EMBEDDED = PACKAGE / "embedded" / "overoptimise" / "curves.json"
AXES = {"distance": "distance from the start", "step": "step"}
# a fall from the peak by this share of it counts as turning over, as in the results of the recipe
WORTH_SAYING = 0.15
SIZES = tuple(2**i for i in range(7))  # best of 1, 2, ... 64; the lab drew 64 samples for each prompt


@dataclass(frozen=True)
class State:
    leash: str = "0"
    progress: int = 100
    best_of: int = 16
    axis: str = "distance"
    source: str = "seed-0"


@cache
def read(path: Path, changed: int) -> dict:
    """A lab's curves. Of a file that was damaged, a lab without policies:
    it is listed, and says so when it is chosen."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        return {"recipe": "overoptimise", "policies": []}


def labs() -> dict[str, dict]:
    """The labs that can be shown, by the name that the control gives them:
    the package's, then those of the runs folder."""
    found = {f"seed-{run['seed']}": run for run in read(EMBEDDED, 0)["runs"]}
    for path in sorted(RUNS.get().glob("*/curves.json")) if RUNS.get() else ():
        lab = read(path, path.stat().st_mtime_ns)
        if lab.get("recipe") == "overoptimise":
            found[f"run/{path.parent.name}"] = lab
    return found


def leash_of(policy: dict) -> str:
    return "ensemble" if policy["ensemble"] else f"{policy['kl_weight']:g}"


def controls(state: State) -> tuple:
    """Leashes are those that any lab has; a lab that lacks one says so."""
    here = labs()
    weights = sorted({p["kl_weight"] for lab in here.values() for p in lab["policies"] if not p["ensemble"]})
    leashes = [(f"{w:g}", f"β = {w:g}" if w else "off") for w in weights] + [("ensemble", "off, ensemble")]
    names = [(key, key.partition("/")[2] or key.replace("-", " ")) for key in here]
    return (
        Choice("leash", "KL penalty in training", tuple(leashes)),
        Slider("progress", "Training done, %", 0, 100, 10),
        Choice("best_of", "Best of n", SIZES),
        Choice("axis", "Against", tuple(AXES.items())),
        Choice("source", "Logged run", tuple(names)),
    )


@cache
def chances(n: int, samples: int = SIZES[-1]) -> list[float]:
    """The chance of each sample, the worst first, to be the one that best-of-n keeps."""
    from postgrad.maths.passk import best_of_n

    ranks = range(samples)
    return [best_of_n(ranks, [float(i == rank) for i in ranks], n) for rank in ranks]


def compute(state: State) -> dict:
    """The policy of that leash, where its training stands, where it turned over, and best-of-n beside it."""
    from postgrad.maths.select import best_of_n_kl

    lab = labs()[state.source]
    policy = next((p for p in lab["policies"] if leash_of(p) == state.leash), None)
    if policy is None:
        name, kept = state.source.partition("/")[2], ", ".join(leash_of(p) for p in lab["policies"])
        return {"missing": f"{name} has no such policy: its KL penalties are {kept}. Choose one of these."
                           if kept else f"{name}/curves.json is damaged and cannot be read: train it again, "
                           "or choose another run."}
    points, x = policy["points"], state.axis
    last = points[-1]["step"]
    here = min(range(len(points)), key=lambda i: abs(points[i]["step"] - state.progress / 100 * last))
    peak = next(i for i, p in enumerate(points) if p["step"] == policy["turning"]["step"])
    best = [p for p in lab["best_of_n"] if p["n"] <= state.best_of][-1]
    return {
        "missing": "", "beta": policy["kl_weight"], "ensemble": policy["ensemble"], "axis": x, "steps": last,
        "proxy": {axis: [(p[axis], p["proxy"]) for p in points] for axis in AXES},
        "true": {axis: [(p[axis], p["true"]) for p in points] for axis in AXES},
        "here": points[here] | {"x": points[here][x], "index": here}, "start": points[0],
        "turn": policy["turning"]
                | {"x": points[peak][x], "index": peak, "turned": policy["turning"]["fall"] >= WORTH_SAYING},
        "span": last if x == "step"
                else max(6.2, *(p["distance"] for other in lab["policies"] for p in other["points"])),
        "best": best, "best_kl": best_of_n_kl(best["n"]), "chances": chances(best["n"]),
        "best_true": [(p["distance"], p["true"], p["n"]) for p in lab["best_of_n"]],
        "accuracy": lab["reward_accuracy"][0], "command": lab["command"], "minutes": policy["minutes"],
    }


def insight(numbers: dict) -> str:
    if numbers["missing"]:
        return numbers["missing"]
    here, turn, start = numbers["here"], numbers["turn"], numbers["start"]
    rise = f"true quality has gone from {num(start['true'], 2)} to {num(here['true'], 2)}"
    if here["index"] == 0:
        return (f"Before training: the reward model gives {num(here['proxy'], 2)}, and true quality is "
                f"{num(here['true'], 2)}.")
    if here["index"] <= turn["index"]:
        leash = "which the leash holds" if numbers["beta"] else "and nothing holds it back"
        return f"So far the proxy can be believed: {rise}, at a KL of {num(here['kl'], 1)}, {leash}."
    if not turn["turned"]:
        return (f"The policy stays at a KL of {num(here['kl'], 1)}: {rise}, near its peak of "
                f"{num(turn['peak'], 2)} at step {turn['step']}.")
    who = "even the most sceptical of three reward models" if numbers["ensemble"] else "the reward model"
    return (f"Past step {turn['step']} the policy pleases {who} by its mistakes: the proxy, "
            f"{num(here['proxy'], 2)}, has not noticed that true quality, {num(turn['peak'], 2)} at its "
            f"peak, is down to {num(here['true'], 2)}.")


INSTRUMENT = Instrument(
    name="reward-hacking", number=5, title="Push a reward model hard enough, and true quality turns over",
    functions=("postgrad.recipes.pipelines.overoptimise.turning", "postgrad.maths.passk.best_of_n",
               "postgrad.maths.select.best_of_n_kl"),
    state=State, controls=controls, compute=compute, insight=insight,
    about="Logged runs: what the reward model says, what the answers are worth, and the leash that keeps "
          "the two together.",
)
