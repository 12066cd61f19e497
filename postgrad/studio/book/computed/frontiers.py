"""The numbers of chapter 6: proxies under pressure, checkers with holes. What training narrows and costs is
in narrowed.py, who can watch over it in oversight.py. Runs are as docs/results has them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import NormalDist, fmean

from postgrad.studio.book.computed import narrowed, oversight
from postgrad.studio.book.computed.why import PRODUCT
from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

LOOSE, LEASH = 0.05, 0.3
LEASHES = {"ppo-kl-0": "none", f"ppo-kl-{LOOSE}": f"β = {LOOSE}", f"ppo-kl-{LEASH}": f"β = {LEASH}",
           "ppo-ensemble": "none, ensemble"}
SOLVED, HOLE = 0.5, 0.01  # a policy that solves half, and finds a trick in one sample of a hundred
BETA, SHORT = 0.1, 1.0  # two leashes
MANY = 16


def values(repository: Path) -> JsonDict:
    def results(name: str) -> JsonDict:
        found: JsonDict = json.loads((repository / "docs" / "results" / f"{name}.json").read_text())
        return found

    rlhf, real = results("rlhf"), results("real-models")
    return {
        **overoptimisation_values(rlhf["tables"]), **search_values(rlhf["tables"]),
        **noisy_judge_values(rlhf["tables"]), **peak_values(),
        **hole_values(results("mend"), real), **checker_values(),
        **narrowed.values(rlhf["tables"], real["tables"]),
        **oversight.values(results("oversight")["tables"]),
    }


def bar_text(found: JsonDict, name: str) -> str:
    """What was measured under a name that begins so."""
    return str(next(row["measured"] for row in found["bars"] if row["name"].startswith(name)))


# proxies under pressure

def overoptimisation_values(tables: JsonDict) -> JsonDict:
    """How much of what had been gained the true quality lost, seed by seed."""
    runs = tables["Over-optimisation: turning points"]
    seeds = sorted({run["seed"] for run in runs})
    by = {name: [run for run in runs if run["policy"] == name] for name in LEASHES}
    free, loose, held = (by[f"ppo-kl-{weight}"] for weight in (0, LOOSE, LEASH))
    rows = [[words,
             *(f"{format_value(run['peak'], '2')} → {format_value(run['end'], '2')}" for run in by[name]),
             format_value(fmean(run["kl"] for run in by[name]), "1")] for name, words in LEASHES.items()]
    return {
        "lab_seeds": len(seeds), "leash": LEASH, "loose": LOOSE,
        "free_low": min(run["fall"] for run in free), "free_high": max(run["fall"] for run in free),
        "held_high": max(run["fall"] for run in held),
        "held_peak": fmean(run["peak"] for run in held), "loose_peak": fmean(run["peak"] for run in loose),
        "lab_rising": sum(run["proxy_at_end"] > run["proxy_at_peak"] for run in free),
        "free_kl": fmean(run["kl"] for run in free),
        "turned": {
            "caption": "True quality at its peak and at the end, by seed",
            "columns": ["KL penalty", *(f"seed {seed}" for seed in seeds), "KL at the peak"], "rows": rows,
        },
    }


def search_values(tables: JsonDict) -> JsonDict:
    """Best-of-n against the same reward models."""
    runs = tables["Best of n against the same proxy"]

    def mean(n: int, what: str) -> float:
        return fmean(run[what] for run in runs if run["n"] == n)

    sizes = sorted({run["n"] for run in runs})
    rows = [[str(n), *(format_value(mean(n, what), "2") for what in ("kl", "proxy", "true"))] for n in sizes]
    return {
        "most": sizes[-1], "most_kl": mean(sizes[-1], "kl"), "most_true": mean(sizes[-1], "true"),
        "less": sizes[-2], "less_true": mean(sizes[-2], "true"),
        "best_table": {
            "caption": "The best of n by the reward model, mean over seeds",
            "columns": ["n", "KL at most", "reward model says", "true quality"], "rows": rows,
        },
    }


def mean_of_highest(n: int) -> float:
    """The mean of the highest of n standard normal numbers."""
    normal, step = NormalDist(), 0.001
    grid = (step * i for i in range(-8000, 8001))
    return math.fsum(x * n * normal.cdf(x) ** (n - 1) * normal.pdf(x) for x in grid) * step


def noisy_judge_values(tables: JsonDict) -> JsonDict:
    """A judge of our reward models' accuracy, if all that is wrong with it were Gaussian noise."""
    accuracy = fmean(model["accuracy"] for model in tables["Its reward models"])
    agrees = math.sin(math.pi * (accuracy - 0.5))
    return {
        "accuracy": accuracy, "agrees": agrees, "noisy_n": MANY, "noisy_proxy": mean_of_highest(MANY),
        "noisy_true": agrees * mean_of_highest(MANY), "noisy_more": 4 * MANY,
        "noisy_more_true": agrees * mean_of_highest(4 * MANY),
    }


def peak_values() -> JsonDict:
    """Where d (a - b d) and d (a - b log d) turn, on a grid."""
    a, b = 1.0, 0.25
    grid = [0.001 * i for i in range(1, 60_000)]
    return {
        "form_a": a, "form_b": b, "search_peak": max(grid, key=lambda d: d * (a - b * d)),
        "train_peak": max(grid, key=lambda d: d * (a - b * math.log(d))),
    }


# checkers with holes

def hole_values(mended: JsonDict, real: JsonDict) -> JsonDict:
    """Scorers that pay for nothing, and what was thrown at the sandbox."""
    said = bar_text(mended, "reasoning-gym")
    paying = re.search(r"(\d+) of them as they pay for what solves nothing: (.+)$", said)
    assert paying is not None
    programs, cheats = map(int, re.findall(r"\d+", bar_text(real, "sandbox: hostile programs"))[:2])
    scorers = int(said.partition(" ")[0])
    return {"scorers": scorers, "paying": int(paying[1]), "paying_names": paying[2].replace("_", " "),
            "hostile": programs, "cheats": cheats}


def checker_values() -> JsonDict:
    """Replies to one product under a check that looks for the number anywhere, and under the library's."""
    from postgrad.data.tasks import load_task
    from postgrad.records import Prompt

    (a, b), task = PRODUCT, load_task("arithmetic")
    gold, near = str(a * b), a * b - 10
    prompt = Prompt.ask(f"What is {a}*{b}?", gold, expression=f"{a}*{b}")
    replies = (
        f"<think>{a}*{b}={gold}</think><answer>{gold}</answer>",
        f"<think></think><answer>{near}</answer>",
        f"It is one of {', '.join(str(near + 10 * i) for i in range(-1, 4))}.",
        f"<think></think><answer>{near} or {gold}</answer>",
    )
    verify = task.verify
    assert verify is not None
    rows = [[reply, "1" if gold in reply else "0", f"{verify(prompt, reply).score:g}"]
            for reply in replies]
    return {
        "left": a, "right": b, **trick_values(),
        "hole_table": {
            "caption": f"Two checkers on replies to {a} × {b}",
            "columns": ["reply", "“the number is in it”", "the library's checker"], "rows": rows,
        },
    }


def trick_values() -> JsonDict:
    """The share of a trick that always pays, at the optimum: where honest work cannot improve, and where it
    can."""
    def after(factor: float) -> float:
        odds = HOLE / (1 - HOLE) * factor
        return odds / (1 + odds)

    blind, tight = math.exp((1 - SOLVED) / BETA), math.exp((1 - SOLVED) / SHORT)
    learned = math.exp(1 / BETA) / (SOLVED * math.exp(1 / BETA) + 1 - SOLVED)
    return {
        "solved": SOLVED, "hole": HOLE, "hole_beta": BETA, "hole_tight_beta": SHORT, "hole_factor": blind,
        "learned_factor": learned, "hole_after": after(blind), "hole_learned": after(learned),
        "hole_tight": after(tight), "hole_start": HOLE / (1 - HOLE), "hole_odds": HOLE / (1 - HOLE) * blind,
    }
