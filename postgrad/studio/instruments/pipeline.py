"""1. The training pipeline: the package's own model as base, after SFT and after RL, on the same prompts.
Figures and answers were recorded by tools/recordings.py; means, intervals and pass@k are taken from the
counts by the functions of evaluate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Remark, Slider, as_percent, first_true
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.recordings import recording

STAGES = ("base", "sft", "rl")
TITLES = {"base": "Pretrained", "sft": "SFT", "rl": "RL"}
LEARNED = {"base": "learned to continue any text", "sft": "learned to imitate answers",
           "rl": "learned what earns reward"}
R1_STAGES = {"base": "Pretrained", "cold": "1 Cold start", "reasoning": "2 RL for reasoning",
             "sft": "3 SFT on kept replies", "last": "4 RL for everything"}
TASKS = {"words": "word problems", "questions": "questions"}
OBJECTIVES = {
    "base": r"\max_\pi \; \sum_t \log \pi(x_t \mid x_{<t}) \quad \text{over a whole corpus}",
    "sft": r"\max_\pi \; \sum_{t \,\in\, \text{answer}} \log \pi(y_t \mid x, y_{<t}) \quad \text{over 4\,000 "
           r"demonstrations}",
    "rl": r"\max_\pi \; \mathbb{E}_{y \sim \pi(\cdot \mid x)}\,[r(x, y)] \quad r = 1 \text{ if right and in "
          r"form, else } 0",
}


@dataclass(frozen=True)
class State:
    stage: str = "rl"
    prompt: int = 3
    sample: int = 0
    k: int = 1


def controls(state: State) -> Values:
    prompts = recording("pipeline")["prompts"]
    return (
        ChoiceControl("stage", "Stage", tuple(TITLES.items())),
        ChoiceControl("prompt", "Prompt", tuple((i + 1, p["question"]) for i, p in enumerate(prompts))),
        ChoiceControl("sample", "Answer: greedy, or a sample",
                      ((0, "greedy"), *range(1, len(prompts[0]["answers"]["base"])))),
        Slider("k", "Tries allowed on a word problem, k", 1, 8, 1),
    )


@cache
def stage_figures(name: str, k: int) -> list[JsonDict]:
    """The four figures of a stage, each with its interval over problems."""
    from postgrad.maths.intervals import mean_interval
    from postgrad.maths.passk import pass_at_k
    stage = next(s for s in recording("pipeline")["stages"] if s["name"] == name)
    words, questions = stage["measured"]["words"], stage["measured"]["questions"]

    def row(name: str, about: str, values: list[float]) -> JsonDict:
        mean, low, high = mean_interval(values, (0.0, 1.0))
        return {"name": name, "about": about, "mean": mean, "low": low, "high": high}

    def share(found: JsonDict, part: str) -> list[float]:
        return [count / found["samples"] for count in found[part]]

    solved = [pass_at_k(words["samples"], count, k) for count in words["right"]]
    return [
        row("Reasoning", f"pass@{k} on {words['problems']} word problems", solved),
        row("Format", "word problems answered in form", share(words, "formed")),
        row("Helpfulness", f"right answers to {questions['problems']} questions", share(questions, "right")),
        row("Manners", "answers to questions without an insult", share(questions, "kind")),
    ]


@cache
def stage_refusals() -> JsonDict:
    """Of each stage of a short R1, the mean over seeds of what it refuses, and the lowest and highest."""
    found = recording("safety")
    runs = found["runs"]

    def over_seeds(stage: str, kind: str) -> JsonDict:
        shares = [run["stages"][stage][kind]["refused"] for run in runs]
        return {"mean": sum(shares) / len(shares), "low": min(shares), "high": max(shares)}

    return {"seeds": len(runs), "problems": runs[0]["problems"], "samples": runs[0]["samples"],
            "command": found["command"],
            "stages": [{"name": name, "title": title, "harmful": over_seeds(name, "harmful-requests"),
                        "benign": over_seeds(name, "benign-requests")} for name, title in R1_STAGES.items()]}


def answer_verdict(said: JsonDict, gold: str) -> str:
    """right, wrong, or the right number in a form that the verifier does not pay."""
    numbers = re.findall(r"-?\d+", said["text"])
    if said["right"]:
        return "right"
    return "right number, wrong form" if numbers and numbers[-1] == gold else "wrong"


def changed_figures(rows: dict[str, list[JsonDict]]) -> list[list[JsonDict]]:
    """For each step between stages, the figures that changed by more than their intervals."""
    out = []
    for before, after in pairwise(STAGES):
        two = zip(rows[before], rows[after], strict=True)
        out.append([{"name": b["name"].lower(), "before": b["mean"], "after": a["mean"]} for b, a in two
                    if a["low"] > b["high"] or a["high"] < b["low"]])
    return out


def compute(state: State) -> JsonDict:
    from postgrad.maths.passk import pass_at_k
    data, at = recording("pipeline"), STAGES.index(state.stage)
    stages = {s["name"]: s for s in data["stages"]}
    prompt = data["prompts"][state.prompt - 1]
    earlier = STAGES[at - 1] if at else None
    # the prompts shown are the first
    place = [p["task"] for p in data["prompts"][: state.prompt - 1]].count(prompt["task"])
    measured = stages[state.stage]["measured"][prompt["task"]]
    right, tries = measured["right"][place], measured["samples"]
    rows = {name: stage_figures(name, state.k) for name in STAGES}
    said = {name: prompt["answers"][name][state.sample] for name in STAGES}
    return {
        "stage": state.stage, "stages": [(name, TITLES[name], LEARNED[name]) for name in STAGES],
        "earlier": earlier, "k": state.k, "question": prompt["question"], "gold": prompt["gold"],
        "task": TASKS[prompt["task"]],
        "answers": {name: said[name] | {"verdict": answer_verdict(said[name], prompt["gold"])}
                    for name in STAGES},
        "figures": rows, "changes": changed_figures(rows), "right": right, "tries": tries,
        "chance": pass_at_k(tries, right, state.k),
        "length": {name: stages[name]["measured"]["words"]["mean_length"] for name in STAGES},
        "made_by": stages[state.stage]["made_by"], "objective": OBJECTIVES[state.stage],
        "refusals": stage_refusals(),
    }


def went_to(n: JsonDict, row: int, digits: int = 0) -> str:
    """How a figure went from the stage before to this one."""
    return " to ".join(as_percent(n["figures"][stage][row]["mean"], digits)
                       for stage in (n["earlier"], n["stage"]))


def has_risen(n: JsonDict, row: int) -> bool:
    """Whether a figure rose by more than its intervals."""
    return bool(n["figures"][n["stage"]][row]["low"] > n["figures"][n["earlier"]][row]["high"])


def intervals_overlap(n: JsonDict, row: int) -> bool:
    """Whether the intervals of a figure, now and before, overlap."""
    now, then = n["figures"][n["stage"]][row], n["figures"][n["earlier"]][row]
    return bool(now["low"] <= then["high"] and then["low"] <= now["high"])


def tries_of(n: JsonDict) -> str:
    return "one try" if n["k"] == 1 else f"{n['k']} tries"


insight = first_true(
    Remark(lambda n: n["stage"] == "base" and n["figures"]["base"][0]["mean"] > 0,
           lambda n: f"The pretrained model solves {as_percent(n['figures']['base'][0]['mean'], 0)} of the "
                     f"word problems in {tries_of(n)}, but writes whatever might follow: "
                     f"{as_percent(n['figures']['base'][1]['mean'], 0)} of its replies are in form."),
    Remark(lambda n: (n["stage"] == "sft" and has_risen(n, 1)
                      and n["length"]["sft"] < n["length"]["base"]),
           lambda n: f"Imitation fixes the form, {went_to(n, 1)}; word problems solved in {tries_of(n)} go "
                     f"from {went_to(n, 0)}. Replies get shorter, {n['length']['base']:.0f} to "
                     f"{n['length']['sft']:.0f} tokens."),
    Remark(lambda n: (n["stage"] == "rl" and has_risen(n, 0) and n["length"]["rl"] > n["length"]["sft"]
                      and intervals_overlap(n, 2) and intervals_overlap(n, 3)),
           lambda n: f"Paid for right answers alone, pass@{n['k']} goes from {went_to(n, 0)} and replies "
                     f"from {n['length']['sft']:.0f} to {n['length']['rl']:.0f} tokens: it writes the steps. "
                     "Helpfulness and manners, which nobody paid for, stay where they were, within their "
                     "intervals."),
    Remark(lambda n: n["stage"] == "rl",
           lambda n: f"Paid for right answers alone, pass@{n['k']} goes from {went_to(n, 0)}."),
)


INSTRUMENT = Instrument(
    name="pipeline", number=1, title="Pretraining gives abilities, SFT a form, RL what the reward pays for",
    functions=("postgrad.maths.passk.pass_at_k", "postgrad.maths.intervals.mean_interval"),
    state=State, controls=controls, compute=compute, insight=insight,
    about="Three real checkpoints of the package’s own small model answer the same prompts.",
)
