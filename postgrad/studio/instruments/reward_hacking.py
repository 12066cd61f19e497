"""Instrument 5, reward hacking: the logged curves of the over-optimisation lab,
and best-of-n against the same reward model.

Nothing is simulated: the package holds the curves that examples/labs/overoptimise.py wrote for three seeds,
and a run folder of that lab can be shown in their place. Between two logged KL penalties the picture is
interpolated, and says so.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postgrad.studio.instruments.base import (
    PACKAGE,
    RUNS,
    ChoiceControl,
    Instrument,
    Remark,
    Slider,
    Toggle,
    first_true,
)
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import num

EMBEDDED = PACKAGE / "models" / "embedded" / "overoptimise" / "curves.json"
AXES = {"step": "step", "distance": "distance from the start"}
# the loss of this share of what was gained counts as turning over, as in the results of the recipe
WORTH_SAYING = 0.15
SIZES = tuple(2**i for i in range(7))  # best of 1, 2, ... 64; the lab drew 64 samples for each prompt


@dataclass(frozen=True)
class State:
    beta: float = 0.0
    ensemble: bool = False
    progress: int = 100
    best_of: int = 16
    axis: str = "step"
    source: str = "seed-26"


@cache
def read_curves(path: Path, changed: int) -> JsonDict:
    """A lab's curves. Of a file that was damaged, a lab without policies:
    it is listed, and says so when it is chosen."""
    try:
        found: JsonDict = json.loads(path.read_text("utf-8"))
    except ValueError:
        return {"recipe": "overoptimise", "policies": []}
    return found


def available_labs() -> dict[str, JsonDict]:
    """The labs that can be shown, by the name that the control gives them:
    the package's, then those of the runs folder."""
    found = {f"seed-{run['seed']}": run for run in read_curves(EMBEDDED, 0)["runs"]}
    root = RUNS.get()
    for path in sorted(root.glob("*/curves.json")) if root else ():
        lab = read_curves(path, path.stat().st_mtime_ns)
        if lab.get("recipe") == "overoptimise":
            found[f"run/{path.parent.name}"] = lab
    return found


def logged_penalties(policies: list[JsonDict], ensemble: bool) -> list[float]:
    """The KL penalties with which one reward model, or an ensemble, was trained against."""
    return sorted({p["kl_weight"] for p in policies if p["ensemble"] == ensemble})


def controls(state: State) -> Values:
    """The penalties go as far as any lab's; where one alone was logged there is nothing to slide."""
    here = available_labs()
    logged = logged_penalties(here[state.source]["policies"], state.ensemble) if state.source in here else ()
    most = max(p["kl_weight"] for lab in here.values() for p in lab["policies"])
    names = [(key, key.partition("/")[2] or key.replace("-", " ")) for key in here]
    return (
        *[Slider("beta", "KL penalty in training, β", 0, most, 0.01) for _ in logged[1:2]],
        Toggle("ensemble", "Judged by", ("the most sceptical of three", "one reward model")),
        Slider("progress", "Training done", 0, 100, 10, stops=tuple(f"{i} %" for i in range(0, 101, 10))),
        ChoiceControl("best_of", "Best of n", SIZES),
        ChoiceControl("axis", "Against", tuple(AXES.items())),
        ChoiceControl("source", "Logged run", tuple(names)),
    )


def interpolated_policy(low: JsonDict, high: JsonDict, beta: float) -> JsonDict:
    """A policy that was not trained: each point on the straight line between two that were, at the same step.
    Where the turn would be is read off as the recipe does."""
    from postgrad.runs.overoptimisation import turning_point

    share = (beta - low["kl_weight"]) / (high["kl_weight"] - low["kl_weight"])
    points = []
    for a, b in zip(low["points"], high["points"], strict=True):
        point = {name: a[name] + share * (b[name] - a[name]) for name in a}
        points.append(point | {"step": a["step"], "distance": math.sqrt(max(point["kl"], 0.0))})
    return low | {"kl_weight": beta, "points": points, "turning": turning_point(points), "minutes": 0.0}


def policy_at(policies: list[JsonDict], beta: float) -> tuple[JsonDict, tuple[float, ...]]:
    """The policy of that penalty, and the logged penalties that it was made of: one where it was logged or is
    the nearest that was, two where it lies between them."""
    ordered = sorted(policies, key=lambda p: p["kl_weight"])
    low = next((p for p in reversed(ordered) if p["kl_weight"] <= beta + 1e-9), ordered[0])
    high = next((p for p in ordered if p["kl_weight"] >= beta - 1e-9), ordered[-1])
    if low is high or [p["step"] for p in low["points"]] != [p["step"] for p in high["points"]]:
        nearest = min((low, high), key=lambda p: abs(p["kl_weight"] - beta))
        return nearest, (nearest["kl_weight"],)
    return interpolated_policy(low, high, beta), (low["kl_weight"], high["kl_weight"])


@cache
def rank_chances(n: int, samples: int = SIZES[-1]) -> list[float]:
    """The chance of each sample, the worst first, to be the one that best-of-n keeps."""
    from postgrad.maths.passk import best_of_n

    ranks = range(samples)
    return [best_of_n(ranks, [float(i == rank) for i in ranks], n) for rank in ranks]


def why_missing(state: State, lab: JsonDict) -> str:
    """Why there is nothing to show, or ""."""
    name = state.source.partition("/")[2]
    if not lab["policies"]:
        return (f"{name}/curves.json is damaged and cannot be read: train it again, or choose another run.")
    if not any(p["ensemble"] == state.ensemble for p in lab["policies"]):
        return f"{name} has no policy with {'three reward models' if state.ensemble else 'one reward model'}."
    return ""


def compute(state: State) -> JsonDict:
    """The policy of that penalty, where its training stands, its highest point, and best-of-n beside it."""
    from postgrad.maths.select import best_of_n_kl

    lab = available_labs()[state.source]
    if why := why_missing(state, lab):
        return {"missing": why}
    policy, logged = policy_at([p for p in lab["policies"] if p["ensemble"] == state.ensemble], state.beta)
    points, x = policy["points"], state.axis
    last = points[-1]["step"]
    here = min(range(len(points)), key=lambda i: abs(points[i]["step"] - state.progress / 100 * last))
    top = max(range(len(points)), key=lambda i: points[i]["true"])
    best = [p for p in lab["best_of_n"] if p["n"] <= state.best_of][-1]
    return {
        "missing": "", "beta": policy["kl_weight"], "asked": state.beta, "logged": logged,
        "ensemble": policy["ensemble"], "axis": x, "steps": last,
        "proxy": {axis: [(p[axis], p["proxy"]) for p in points] for axis in AXES},
        "true": {axis: [(p[axis], p["true"]) for p in points] for axis in AXES},
        "here": points[here] | {"x": points[here][x], "index": here}, "start": points[0],
        "peak": points[top] | {"x": points[top][x], "index": top},
        "turn": policy["turning"] | {"turned": policy["turning"]["fall"] >= WORTH_SAYING},
        "span": last if x == "step"
                else max(6.2, *(p["distance"] for other in lab["policies"] for p in other["points"])),
        "best": best, "best_kl": best_of_n_kl(best["n"]), "chances": rank_chances(best["n"]),
        "best_true": [(p["distance"], p["true"], p["n"]) for p in lab["best_of_n"]],
        "accuracy": lab["reward_accuracy"][0], "command": lab["command"], "minutes": policy["minutes"],
    }


def source_note(n: JsonDict) -> str:
    """Which runs the numbers are of, where that is not plain from the control."""
    if len(n["logged"]) == 2:
        low, high = n["logged"]
        return f"Interpolated between the logged β of {low:g} and {high:g}: "
    if abs(n["logged"][0] - n["asked"]) > 1e-9:
        return f"Logged at β = {n['logged'][0]:g}, the nearest there is: "
    return ""


def sourced(n: JsonDict, words: str) -> str:
    begin = source_note(n)
    return begin + (words[0].lower() + words[1:] if begin else words)


def since_peak(n: JsonDict) -> str:
    """What has happened since the highest point of the true quality."""
    top, here = n["peak"], n["here"]
    who = "the most sceptical of three reward models" if n["ensemble"] else "the reward model"
    said = (f"Since step {top['step']} true quality has gone from {num(top['true'], 2)}, its highest, to "
            f"{num(here['true'], 2)}, while the proxy went from {num(top['proxy'], 2)} to "
            f"{num(here['proxy'], 2)}")
    pleased = here["proxy"] > top["proxy"]
    return f"{said}: the policy pleases {who} by its mistakes." if pleased else f"{said}."


def gone_up(n: JsonDict) -> str:
    start, here = n["start"], n["here"]
    return (f"So far both are above where they began: the proxy from {num(start['proxy'], 2)} to "
            f"{num(here['proxy'], 2)}, true quality from {num(start['true'], 2)} to {num(here['true'], 2)}, "
            f"at a KL of {num(here['kl'], 1)}.")


insight = first_true(
    Remark(lambda n: bool(n["missing"]), lambda n: n["missing"]),
    Remark(lambda n: n["here"]["index"] == 0,
           lambda n: sourced(n, f"Before training the reward model gives {num(n['here']['proxy'], 2)}, and "
                                f"true quality is {num(n['here']['true'], 2)}.")),
    Remark(lambda n: (n["here"]["index"] <= n["peak"]["index"] and n["here"]["true"] > n["start"]["true"]
                      and n["here"]["proxy"] > n["start"]["proxy"]),
           lambda n: sourced(n, gone_up(n))),
    Remark(lambda n: n["here"]["true"] < n["peak"]["true"] and n["turn"]["turned"],
           lambda n: sourced(n, since_peak(n))),
    Remark(lambda n: n["here"]["true"] < n["peak"]["true"] and not n["turn"]["turned"],
           lambda n: sourced(n, f"True quality is {num(n['here']['true'], 2)}, below its highest of "
                                f"{num(n['peak']['true'], 2)} at step {n['peak']['step']}; but on average "
                                f"over neighbouring evaluations {100 * n['turn']['fall']:.1f} % of what "
                                f"was gained are lost by the end, less than the {100 * WORTH_SAYING:.0f} % "
                                "that count as turning over.")),
    Remark(lambda n: True,
           lambda n: sourced(n, f"At step {n['here']['step']} the proxy is {num(n['here']['proxy'], 2)} and "
                                f"true quality {num(n['here']['true'], 2)}.")),
)


INSTRUMENT = Instrument(
    name="reward-hacking", number=5, title="Push a reward model hard enough, and true quality turns over",
    functions=("postgrad.runs.overoptimisation.turning_point", "postgrad.maths.passk.best_of_n",
               "postgrad.maths.select.best_of_n_kl"),
    state=State, controls=controls, compute=compute, insight=insight,
    about="Logged runs: what the reward model says, what the answers are worth, and the leash that keeps "
          "the two together.",
)
