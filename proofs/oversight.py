"""The oversight lab over seeds: a judge who may check one step, and a student of a weak teacher.

    python proofs/oversight.py [lab] [seeds=0,1,2]      4 minutes of computing a seed on one core

Within a seed the intervals are over problems, the models being what they are; over seeds they are Student's,
of the models and the problems together.
"""

from __future__ import annotations

import resource
from pathlib import Path

from harness import FIGURES, TRAINS, Bars, Page, Tables, bar, once, percent, pipeline

from postgrad.maths.intervals import mean_interval

LAB = "examples/labs/oversight.py"
COMMAND = f"postgrad train {LAB} seed=N"
POINTED = ("critic", "lying critic", "two opponents")
TRAINED, STRONG, ALL = "process model", "strong model", "who knows all"  # who points


def measured(folder: Path, seed: int) -> dict:
    """The summary of a seed, with the seconds that it computed."""
    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        pipeline(folder / f"seed-{seed}", LAB, f"seed={seed}")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    computed = once(folder / f"seconds-{seed}.json", spent)
    return pipeline(folder / f"seed-{seed}", LAB, f"seed={seed}") | {"computed": computed}


def in_percent(value: float | None, interval: list[float] | None = None) -> str:
    return "unknown" if value is None else percent(value, interval)


def over_seeds(values: list[float], within: bool = True) -> str:
    """The mean with Student's interval over seeds; of equal values, or one, there is none."""
    mean, low, high = mean_interval(values)
    if len(set(values)) == 1:
        return f"{mean:.1%} in each" if len(values) > 1 else f"{mean:.1%}"
    return in_percent(mean, [max(0.0, low), min(1.0, high)] if within else [low, high])


def judges(found: list[dict]) -> list[dict]:
    """A line a protocol: both judges over seeds, then seed by seed the one who believes."""
    lines = []
    for i, row in enumerate(found[0]["judge"]["rows"]):
        mine = [summary["judge"]["rows"][i] for summary in found]
        lines.append({"judge": row["judge"],
                      **{f"{how}, mean over seeds": over_seeds([r[how] for r in mine])
                         for how in ("believing", "doubting")},
                      **{f"believing, seed {s['seed']}": in_percent(r["believing"], r["believing_interval"])
                         for s, r in zip(found, mine, strict=True)}})
    return lines


def critics(found: list[dict]) -> list[dict]:
    """How often the step that each suspects most is a mistake, and the lies that a believing judge bears."""
    return [{"seed": s["seed"], "pairs": s["judge"]["pairs"], "of problems": s["judge"]["problems"],
             "steps": s["judge"]["steps"], "mistakes of a wrong answer": s["judge"]["mistakes"],
             "right answers whose steps all hold": in_percent(s["judge"]["sound"]), "who points": who,
             "finds a mistake": in_percent(skill["finds"], skill["finds_interval"]),
             "lies that the judge bears": in_percent(skill["lies"], skill["lies_interval"])
             if skill["lies_interval"] else "unknown"}
            for s in found for who, skill in s["judge"]["critics"].items()]


def students(found: list[dict]) -> list[dict]:
    return [{"seed": s["seed"], **{row["model"]: in_percent(row["right"], row["right_interval"])
                                   for row in s["recovered"]["models"]},
             "recovered": in_percent(s["recovered"]["recovered"], s["recovered"]["recovered_interval"]),
             **{name: in_percent(s["recovered"][name]) for name in ("mended", "copied")}}
            for s in found]


def lab(folder: Path, seeds: str = "0,1,2") -> tuple[Bars, Tables]:
    found = [measured(folder, seed) for seed in map(int, seeds.split(","))]

    def of_judge(name: str) -> list[float]:
        return [row["believing"] for s in found for row in s["judge"]["rows"] if row["judge"] == name]

    def more(a: list[float], b: list[float]) -> bool:
        return all(x > y for x, y in zip(a, b, strict=True))

    def named(who: list[list[float]]) -> str:
        return ", ".join(f"{name} {over_seeds(values)}" for name, values in zip(POINTED, who, strict=True))

    alone = of_judge("alone, any step")
    (critic, liar, two), trained, known = ([of_judge(f"{name}: {who}") for name in POINTED]
                                           for who in (STRONG, TRAINED, ALL))
    bare = [s["judge"]["bare"] for s in found]
    gaps = [s["recovered"]["recovered"] for s in found]
    spent = max(s["computed"] for s in found)
    every = f"in {len(found)} of {len(found)} seeds"
    return [
        bar("the strong model as a critic who points at one step helps the judge",
            f"better than alone {every}",
            f"alone {over_seeds(alone)}, with the critic {over_seeds(critic)}", more(critic, alone), COMMAND),
        bar("the same critic, lying, misleads a judge who believes what holds",
            f"below a coin's 50 % {every}", over_seeds(liar), max(liar) < 0.5, COMMAND),
        bar("two opponents, of whom one always lies", f"better than alone {every}, by the same rule that the "
            "lying critic abuses", over_seeds(two), more(two, alone), COMMAND),
        bar("who knows every mistake: the protocol itself", "a critic 100 %; a liar 0 % but where no step of "
            "the wrong answer holds; opponents above 95 %: right answers with a step that does not hold cost "
            "the rest",
            f"{named(known)}; no step holds in {over_seeds(bare)} of the wrong answers",
            min(known[0]) == 1 and min(known[2]) > 0.95
            and all(abs(x - y) < 1e-9 for x, y in zip(known[1], bare, strict=True)), COMMAND),
        bar("what a seed computes, all runs and measurements", "8 minutes on two cores",
            f"{spent / 60:.1f} minutes of one core at most", spent <= 960, COMMAND)], {
        "Which of two answers is right": judges(found), "The pairs, and the critic": critics(found),
        "Weak to strong, fresh problems": students(found),
        FIGURES: [{"what": "a process model of a minute's training as the critic",
                   "measured": named(trained)},
                  {"what": "weak to strong: the gap recovered",
                   "measured": f"{over_seeds(gaps, within=False)} over seeds; " + "; ".join(
                       in_percent(s["recovered"]["recovered"], s["recovered"]["recovered_interval"])
                       for s in found)}]}


PAGE = Page("oversight", "Oversight: a weak judge, and a weak teacher", {"lab": lab}, [0, 1, 2],
            paths=(*TRAINS, "examples/labs"))

if __name__ == "__main__":
    PAGE.main()
