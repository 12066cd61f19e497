"""1. The training pipeline: the package's own model as base, after SFT and after RL, on the same prompts.
Figures and answers were recorded by tools/recordings.py; means, intervals and pass@k are taken from the
counts by the functions of evaluate."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.studio.instruments.base import Choice, Instrument, Slider
from postgrad.studio.recordings import recorded

STAGES = ("base", "sft", "rl")
TITLES = {"base": "Pretrained", "sft": "SFT", "rl": "RL"}
LEARNED = {"base": "learned to continue any text", "sft": "learned to imitate answers",
           "rl": "learned what earns reward"}
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


def controls(state: State) -> tuple:
    prompts = recorded("pipeline")["prompts"]
    return (
        Choice("stage", "Stage", tuple(TITLES.items())),
        Choice("prompt", "Prompt", tuple((i + 1, p["question"]) for i, p in enumerate(prompts))),
        Choice("sample", "Answer: greedy, or a sample",
               ((0, "greedy"), *range(1, len(prompts[0]["answers"]["base"])))),
        Slider("k", "Tries allowed on a word problem, k", 1, 8, 1),
    )


def figures(stage: dict, k: int) -> list[dict]:
    """The four figures of a stage, each with its interval over problems."""
    from postgrad.maths.intervals import mean_interval
    from postgrad.maths.passk import pass_at_k
    words, questions = stage["measured"]["words"], stage["measured"]["questions"]

    def row(name: str, about: str, values: list[float]) -> dict:
        mean, low, high = mean_interval(values, (0.0, 1.0))
        return {"name": name, "about": about, "mean": mean, "low": low, "high": high}

    def share(found: dict, part: str) -> list[float]:
        return [count / found["samples"] for count in found[part]]

    solved = [pass_at_k(words["samples"], count, k) for count in words["right"]]
    return [
        row("Reasoning", f"pass@{k} on {words['problems']} word problems", solved),
        row("Format", "word problems answered in form", share(words, "formed")),
        row("Helpfulness", f"right answers to {questions['problems']} questions", share(questions, "right")),
        row("Manners", "answers to questions without an insult", share(questions, "kind")),
    ]


def compute(state: State) -> dict:
    from postgrad.maths.passk import pass_at_k
    data, at = recorded("pipeline"), STAGES.index(state.stage)
    stages = {s["name"]: s for s in data["stages"]}
    prompt = data["prompts"][state.prompt - 1]
    earlier = STAGES[at - 1] if at else None
    # the prompts shown are the first
    place = [p["task"] for p in data["prompts"][: state.prompt - 1]].count(prompt["task"])
    measured = stages[state.stage]["measured"][prompt["task"]]
    right, tries = measured["right"][place], measured["samples"]
    return {
        "stage": state.stage, "stages": [(name, TITLES[name], LEARNED[name]) for name in STAGES],
        "earlier": earlier, "k": state.k, "question": prompt["question"], "gold": prompt["gold"],
        "task": TASKS[prompt["task"]],
        "answers": {name: prompt["answers"][name][state.sample] for name in STAGES},
        "figures": {name: figures(stages[name], state.k) for name in STAGES}, "right": right, "tries": tries,
        "chance": pass_at_k(tries, right, state.k),
        "length": {name: stages[name]["measured"]["words"]["mean_length"] for name in STAGES},
        "made_by": stages[state.stage]["made_by"], "objective": OBJECTIVES[state.stage],
    }


def percent(x: float) -> str:
    """0.267 -> 27 %, 0.997 -> 99.7 %: never 100 % of what is not all."""
    return f"{100 * x:.{1 if 0.99 < x < 1 else 0}f} %"


def insight(numbers: dict) -> str:
    name, k, rows = numbers["stage"], numbers["k"], numbers["figures"]
    first, now = rows["base"], rows[name]
    if name == "base":
        return (f"The pretrained model can do it in some of its samples ({percent(now[0]['mean'])} of the "
                f"word problems in {k} {'try' if k == 1 else 'tries'}) but writes whatever might follow: "
                f"{percent(now[1]['mean'])} in form.")
    before = rows["base" if name == "sft" else "sft"]
    gained = f"{percent(before[0]['mean'])} to {percent(now[0]['mean'])}"
    if name == "sft":
        return (f"Imitation fixes the form, {percent(first[1]['mean'])} to {percent(now[1]['mean'])}; right "
                f"answers go as far as the average writer goes, {gained}: most skip the steps.")
    short, long = numbers["length"]["sft"], numbers["length"]["rl"]
    return (f"Paid for right answers alone, pass@{k} goes from {gained} and replies from {short:.0f} to "
            f"{long:.0f} tokens: it writes the steps. Helpfulness and manners, which nobody paid for, stay "
            "where they were, within their intervals.")


INSTRUMENT = Instrument(
    name="pipeline", number=1, title="Pretraining gives abilities, SFT a form, RL what the reward pays for",
    functions=("postgrad.maths.passk.pass_at_k", "postgrad.maths.intervals.mean_interval"),
    state=State, controls=controls, compute=compute, insight=insight,
    about="Three real checkpoints of the package’s own small model answer the same prompts.",
)
