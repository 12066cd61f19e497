"""The guard: names a run that runs away while it is trained, at that step, with the remedy.

A function of the rows that are logged, so that a resumed run is judged as an uninterrupted one:

    guard = Guard(kind="policy", metrics=run.rows("metrics")[0], evals=run.rows("evals")[0])
    guard.on_step(14, {"kl_k1": 0.9, ...}) -> Trouble(name="kl_k1", step=14, since=12, ...) or None
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from postgrad.runs.doctor import limits
from postgrad.runs.doctor.chart import Point, values
from postgrad.runs.folder import BEST, LOWER
from postgrad.runs.rows import JsonMapping, number

LOWER_RATE = "lower optim.lr, a third of it to begin with"
EVERY_STEP = ("loss", "grad_norm")
OF_SAMPLES = ("kl_k1", "length", "entropy", "reward", "reward_std")  # of steps with new samples, before they
#                                                                      are used: later the KL is of old ones


@dataclass(frozen=True)
class Trouble:
    """What runs away at a step. since: the first step of what shows it."""

    name: str
    step: int
    since: int
    text: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"step {self.step}: {self.text}: {self.remedy}"


class Series:
    """A curve's first points, which are its start, and its last ones."""

    def __init__(self) -> None:
        self.start: list[float] = []
        self.end: list[Point] = []

    def add(self, step: int, value: float) -> None:
        if len(self.start) < limits.GUARD_START:
            self.start.append(value)
        self.end = [*self.end[-limits.GUARD_WINDOW + 1:], (step, value)]


class Guard:
    """Reads the rows of a run, in order. kind: of the row of the table, policy, preference or supervised."""

    def __init__(self, kind: str, metrics: Iterable[JsonMapping] = (), evals: Iterable[JsonMapping] = ()):
        self.kind = kind
        self.series: dict[str, Series] = {}
        self.evaluations: list[JsonMapping] = []
        for row in metrics:
            self.on_step(int(row["step"]), row)
        for row in evals:
            self.on_eval(int(row["step"]), row)

    def on_step(self, step: int, metrics: Mapping[str, object]) -> Trouble | None:
        """The first of the metrics that runs away, at this step."""
        for name in (*EVERY_STEP, *(OF_SAMPLES if "sampled" in metrics else ())):
            if name in metrics and math.isfinite(value := number(metrics[name])):
                self.series.setdefault(name, Series()).add(step, value)
        for name, runs_away in CHECKS.items():
            mine = self.series.get(name)
            if mine and mine.end[-1][0] == step and len(mine.end) == limits.GUARD_WINDOW and (
                    found := runs_away(self)):
                text, remedy = found
                return Trouble(name, step, mine.end[0][0], text, remedy)
        return None

    def on_eval(self, step: int, figures: JsonMapping) -> Trouble | None:
        """Whether the held-out figure is below its start at two evaluations in a row, by more than chance."""
        self.evaluations = [*self.evaluations[:1], *self.evaluations[1:][-1:], {**figures, "step": step}]
        start, *late = self.evaluations
        name = next((name for name in BEST if name in start), None)
        if name is None or int(start["step"]) != 0 or len(late) < 2:
            return None
        began, ended = number(start[name]), [number(row.get(name)) for row in late]
        sign = -1 if name in LOWER else 1
        below = [sign * (began - value) > fall_by_chance(name, start, row)
                 for value, row in zip(ended, late, strict=True)]
        if not all(below):
            return None
        return Trouble(f"held-out {name}", step, int(late[0]["step"]),
                       f"held-out {name} is {ended[-1]:.3g}, and was {ended[0]:.3g} at step "
                       f"{late[0]['step']} and {began:.3g} before training",
                       f"take RUN@best, and {LOWER_RATE}")

    # figures of the checks

    def began(self, name: str) -> float:
        return fmean(self.series[name].start)

    def latest(self, name: str) -> float:
        return fmean(values(self.series[name].end))

    def paid(self) -> float:
        """The gain of the reward since the start, in the groups' spread there; 0 where none is logged. A KL
        that it pays for is no trouble."""
        if "reward" not in self.series or not self.series["reward"].end:
            return 0.0
        spread = self.began("reward_std") if "reward_std" in self.series else 0.0
        return (self.latest("reward") - self.began("reward")) / (spread or 1.0)


def fall_by_chance(name: str, *rows: JsonMapping) -> float:
    """How far two evaluations may be apart by chance: until their intervals do not overlap; of a figure
    without an interval, a twentieth of it."""
    ends = [row[f"{name}_interval"] for row in rows if row.get(f"{name}_interval")]
    return (sum((number(high) - number(low)) / 2 for low, high in ends) if ends
            else 0.05 * abs(number(rows[0][name])))


def loss_explodes(guard: Guard) -> tuple[str, str] | None:
    began, now = fmean(guard.series["loss"].start[:2]), guard.latest("loss")  # it may explode at once
    if guard.kind == "policy" or began <= 0 or now <= limits.GUARD_LOSS * began:
        return None
    return f"the loss is {now:.3g}, and was {began:.3g} at the start", LOWER_RATE


def kl_explodes(guard: Guard) -> tuple[str, str] | None:
    now = guard.latest("kl_k1")
    if now <= limits.KL or guard.paid() > limits.LEARNED and now <= limits.GUARD_KL:
        return None
    return (f"the KL to the start is {now:.3g} nats a token, over {limits.KL:g}",
            f"{LOWER_RATE}, or raise kl.coef")


def gradient_explodes(guard: Guard) -> tuple[str, str] | None:
    usual, now = median(guard.series["grad_norm"].start), guard.latest("grad_norm")
    if usual <= 0 or now <= limits.GUARD_GRADIENT * usual:
        return None
    return f"the gradient norm is {now:.3g}, and was {usual:.3g} at the start", LOWER_RATE


def length_explodes(guard: Guard) -> tuple[str, str] | None:
    began, now = guard.began("length"), guard.latest("length")
    if now <= limits.TWICE * began or guard.paid() > limits.STILL:
        return None
    return (f"replies have {now:.3g} tokens, {began:.3g} at the start, and the reward has not risen",
            f"{LOWER_RATE}; take length out of the reward")


def entropy_leaves(guard: Guard) -> tuple[str, str] | None:
    began, now = guard.began("entropy"), guard.latest("entropy")
    rises = now > limits.GUARD_ENTROPY * began + limits.GUARD_NATS
    falls = now < limits.COLLAPSED * began and now < limits.UNDECIDED
    enough = limits.STILL if rises else -limits.STILL  # a policy that is decided and right is well
    if guard.kind != "policy" or not (rises or falls) or guard.paid() > enough:
        return None
    return (f"the entropy is {now:.3g} nats a token, and was {began:.3g} at the start, while the reward has "
            "not risen", LOWER_RATE if rises else f"{LOWER_RATE}, or set method.entropy=0.001")


def reward_falls(guard: Guard) -> tuple[str, str] | None:
    began, now = guard.began("reward"), guard.latest("reward")
    gone = 0 <= now < limits.GUARD_LEFT * began and guard.paid() < -limits.GUARD_LOST
    if not gone and guard.paid() >= -limits.GUARD_SPREAD:
        return None
    return f"the reward is {now:.3g}, and was {began:.3g} at the start", LOWER_RATE


CHECKS: Mapping[str, Callable[[Guard], tuple[str, str] | None]] = {
    "loss": loss_explodes, "kl_k1": kl_explodes, "grad_norm": gradient_explodes, "reward": reward_falls,
    "length": length_explodes, "entropy": entropy_leaves}
