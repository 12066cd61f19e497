"""The oversight lab over seeds: a judge who may check one step, and a student of a weak teacher.

python proofs/oversight.py FOLDER [SEED ...]     trains what is not in FOLDER yet, and writes
                                                 docs/results/oversight.json and .md; 4 minutes of computing a
                                                 seed on one core

Within a seed the intervals are over problems, the models being what they are; over seeds they are Student's,
of the models and the problems together.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import results  # noqa: E402

from postgrad import recipes  # noqa: E402
from postgrad.cli.settings import config_from_text
from postgrad.maths.intervals import mean_interval  # noqa: E402

SEEDS = (0, 1, 2)
COMMAND = "postgrad train oversight seed=N"
SINGLE_RANK = "alone, any step"
POINTED = ("critic", "lying critic", "two opponents")
TRAINED, STRONG, ALL = "process model", "strong model", "who knows all"  # who points


def measured(folder: Path, seed: int) -> dict:
    """The summary of a seed, trained unless it is there, with the seconds that it computed."""
    place = folder / f"seed-{seed}"
    if not (place / "summary.json").exists():
        began = time.process_time()
        recipe, config = config_from_text("oversight", [f"seed={seed}"])
        recipes.start(recipe, config, place, command=f"postgrad train oversight seed={seed}")
        (folder / f"seconds-{seed}.json").write_text(json.dumps(time.process_time() - began))
    spent = folder / f"seconds-{seed}.json"
    return json.loads((place / "summary.json").read_text()) | {
        "computed": json.loads(spent.read_text()) if spent.exists() else None}


def shown(value: float | None, interval: list[float] | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})" if interval else f"{value:.1%}"


def over_seeds(values: list[float], within: bool = True) -> str:
    """The mean with Student's interval over seeds; of equal values, or one, there is none."""
    mean, low, high = mean_interval(values)
    if len(set(values)) == 1:
        return f"{mean:.1%} in each" if len(values) > 1 else f"{mean:.1%}"
    return shown(mean, [max(0.0, low), min(1.0, high)] if within else [low, high])


def of_judge(found: list[dict], name: str, how: str = "believing") -> list[float]:
    return [row[how] for summary in found for row in summary["judge"]["rows"] if row["judge"] == name]


def judges(found: list[dict]) -> list[dict]:
    """A line a protocol: both judges over seeds, then seed by seed the one who believes."""
    lines = []
    for i, row in enumerate(found[0]["judge"]["rows"]):
        mine = [summary["judge"]["rows"][i] for summary in found]
        lines.append({"judge": row["judge"],
                      **{f"{how}, mean over seeds": over_seeds([r[how] for r in mine])
                         for how in ("believing", "doubting")},
                      **{f"believing, seed {s['seed']}": shown(r["believing"], r["believing_interval"])
                         for s, r in zip(found, mine, strict=True)}})
    return lines


def critics(found: list[dict]) -> list[dict]:
    """How often the step that each suspects most is a mistake, and the lies that a believing judge bears."""
    return [{"seed": s["seed"], "pairs": s["judge"]["pairs"], "of problems": s["judge"]["problems"],
             "steps": s["judge"]["steps"], "mistakes of a wrong answer": s["judge"]["mistakes"],
             "right answers whose steps all hold": shown(s["judge"]["sound"], None), "who points": who,
             "finds a mistake": shown(skill["finds"], skill["finds_interval"]),
             "lies that the judge bears": shown(skill["lies"], skill["lies_interval"])
             if skill["lies_interval"] else "unknown"}
            for s in found for who, skill in s["judge"]["critics"].items()]


def students(found: list[dict]) -> list[dict]:
    return [{"seed": s["seed"], **{row["model"]: shown(row["right"], row["right_interval"])
                                   for row in s["recovered"]["models"]},
             "recovered": shown(s["recovered"]["recovered"], s["recovered"]["recovered_interval"]),
             "mended": shown(s["recovered"]["mended"], None), "copied": shown(s["recovered"]["copied"], None)}
            for s in found]


def bars(found: list[dict]) -> list[dict]:
    alone = of_judge(found, SINGLE_RANK)
    critic, liar, two = (of_judge(found, f"{name}: {STRONG}") for name in POINTED)
    trained, known = ([of_judge(found, f"{name}: {who}") for name in POINTED] for who in (TRAINED, ALL))
    bare = [s["judge"]["bare"] for s in found]
    gaps = [s["recovered"]["recovered"] for s in found]
    spent = [s["computed"] for s in found if s["computed"]]
    every = f"in {len(found)} of {len(found)} seeds"

    def more(a: list[float], b: list[float]) -> bool:
        return all(x > y for x, y in zip(a, b, strict=True))

    return [
        results.bar("the strong model as a critic who points at one step helps the judge",
                    f"better than alone {every}",
                    f"alone {over_seeds(alone)}, with the critic {over_seeds(critic)}", more(critic, alone),
                    COMMAND),
        results.bar("the same critic, lying, misleads a judge who believes what holds",
                    f"below a coin's 50 % {every}", over_seeds(liar), max(liar) < 0.5, COMMAND),
        results.bar("two opponents, of whom one always lies", f"better than alone {every}, by the same rule "
                    "that the lying critic abuses", over_seeds(two), more(two, alone), COMMAND),
        results.bar("a process model of a minute's training as the critic", "reported",
                    ", ".join(f"{name} {over_seeds(values)}"
                              for name, values in zip(POINTED, trained, strict=True)), True, COMMAND),
        results.bar("who knows every mistake: the protocol itself", "a critic 100 %; a liar 0 % but where no "
                    "step of the wrong answer holds; opponents above 95 %: right answers with a step that "
                    "does not hold cost the rest",
                    ", ".join(f"{name} {over_seeds(values)}"
                              for name, values in zip(POINTED, known, strict=True))
                    + f"; no step holds in {over_seeds(bare)} of the wrong answers",
                    min(known[0]) == 1 and min(known[2]) > 0.95
                    and all(abs(x - y) < 1e-9 for x, y in zip(known[1], bare, strict=True)), COMMAND),
        results.bar("weak to strong: the gap recovered", "reported with intervals",
                    f"{over_seeds(gaps, within=False)} over seeds; " + "; ".join(
                        shown(s["recovered"]["recovered"], s["recovered"]["recovered_interval"])
                        for s in found), None not in gaps, COMMAND),
        results.bar("what a seed computes, all runs and measurements", "8 minutes on two cores",
                    f"{max(spent) / 60:.1f} minutes of one core at most" if spent else "not measured",
                    bool(spent) and max(spent) <= 960, COMMAND)]


def main(folder: str, *seeds: str) -> None:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found = [measured(place, seed) for seed in map(int, seeds or SEEDS)]
    page = results.write("oversight", "Oversight: a weak judge, and a weak teacher", bars(found),
                         seeds=[s["seed"] for s in found], tables={
        "Which of two answers is right": judges(found), "The pairs, and the critic": critics(found),
        "Weak to strong, fresh problems": students(found)})
    print(page.read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
