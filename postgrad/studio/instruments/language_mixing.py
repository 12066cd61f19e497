"""Instrument 13, language mixing: the evaluations of an R1-Zero, from the package or of a run of one's own.

Nobody pays for a language there. In a second recording the
rules pay for the language of the problem too; a third has R1's cold start before it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postgrad.studio.instruments.base import RUNS, ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.recordings import recording

LANGUAGES = {"words": "English", "words-es": "Spanish"}  # the parts of the task that are asked in words
RECORDED = {  # the package's, with their titles and notes
    "zero": ("R1-Zero", "the RL stage of R1-Zero with fewer collections and more evaluations"),
    "paid": ("language paid for", "the same, with a fifth of an answer's pay for the problem's language"),
    "r1": ("R1, stage 2", "the second stage, after a cold start on chains in the language of the problem"),
}
MEASURES = ("worded", "wrong_language", "mixed_languages", "turn_back")


@dataclass(frozen=True)
class State:
    part: str = "words-es"
    progress: int = 100
    source: str = "zero"


@cache
def read_evaluations(path: Path, changed: int) -> list[JsonDict]:
    """The evaluations of a run that was asked in two languages; of any other, none."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except ValueError:
        return []
    whole = [row for row in rows if isinstance(row, dict)
             and all(f"{part}/worded" in row for part in LANGUAGES)]
    return whole if len(whole) > 1 else []


def language_runs() -> dict[str, JsonDict]:
    """The package's recordings, then the runs that were evaluated in both languages: stages too."""
    found = {run["name"]: run for run in recording("languages")["runs"]}
    root = RUNS.get()
    if root is None:
        return found
    for path in sorted([*root.glob("*/evals.jsonl"), *root.glob("*/rl/evals.jsonl")]):
        if rows := read_evaluations(path, path.stat().st_mtime_ns):
            name = path.parent.relative_to(root).as_posix()
            found[f"run/{name}"] = {"name": name, "command": "", "reward": "", "evaluations": rows}
    return found


def controls(state: State) -> Values:
    names = [(key, RECORDED[key][0] if key in RECORDED else key.removeprefix("run/"))
             for key in language_runs()]
    return (
        ChoiceControl("part", "Problems asked in", tuple(LANGUAGES.items())),
        Slider("progress", "Training done, %", 0, 100, 10),
        *[ChoiceControl("source", "Run", tuple(names)) for _ in names[1:2]],
    )


def settle(state: State) -> State:
    if state.source not in language_runs():
        raise ValueError(f"source is one of {', '.join(language_runs())}, not {state.source[:40]!r}.")
    return state


def language_shares(row: JsonDict, part: str) -> dict[str, float]:
    """What the replies to one part do, as the evaluation has it; of languages, among those with words."""
    return {name: row[f"{part}/{name}"] for name in MEASURES if f"{part}/{name}" in row}


def compute(state: State) -> JsonDict:
    run = language_runs()[state.source]
    rows = run["evaluations"]
    at = min(range(len(rows)), key=lambda i: abs(rows[i]["step"] - state.progress / 100 * rows[-1]["step"]))
    found = [language_shares(row, state.part) for row in rows]
    here = rows[at]
    return {
        "language": LANGUAGES[state.part], "index": at, "here": found[at], "start": found[0],
        "lines": {name: [(row["step"], share[name]) for row, share in zip(rows, found, strict=True)
                         if name in share] for name in MEASURES},
        "step": here["step"], "steps": rows[-1]["step"], "right": here["pass@1"],
        "passes": [(row["step"], row["pass@1"]) for row in rows],
        "bounds": [(row["step"], *row["pass@1_interval"]) for row in rows if row["pass@1_interval"]],
        "command": run["command"], "reward": run["reward"], "about": RECORDED.get(state.source, ("", ""))[1],
        "problems": here["problems"],
        "samples": here["samples"], "evaluations": len(rows),
    }


def insight(numbers: JsonDict) -> str:
    here, start = numbers["here"], numbers["start"]
    when = f"After {numbers['step']} steps" if numbers["index"] else "Before training"
    was = f" (before, {whole_percent(start['worded'])})" if numbers["index"] else ""
    of = (f", {whole_percent(here['wrong_language'])} of these mostly in another language and "
          f"{whole_percent(here['mixed_languages'])} in two" if "wrong_language" in here else "")
    asked = f"the replies to {numbers['language']} problems"
    return (f"{when} {whole_percent(here['worded'])} of {asked} think in words{was}{of}; "
            f"{whole_percent(numbers['right'])} of all samples are right.")


def whole_percent(share: float) -> str:
    """Never 100 % of what is not all, nor 0 % of what is not nothing."""
    return f"{100 * share:.{1 if 0.99 < share < 1 or 0 < share < 0.01 else 0}f} %"


INSTRUMENT = Instrument(
    name="language-mixing", number=13, title="Which language does a model think in, if none is paid for?",
    functions=("postgrad.data.tasks.reflection.mixed_languages",
               "postgrad.data.tasks.reflection.wrong_language", "postgrad.data.tasks.reflection.worded",
               "postgrad.recipes.pipelines.r1_zero.reasoning"),
    state=State, controls=controls, compute=compute, insight=insight, settle=settle,
    about="A short R1-Zero of our own: how many replies think in words, and in which language.",
)
