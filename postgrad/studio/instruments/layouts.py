"""Instrument 18, layouts: how GPUs are divided between training and sampling, and what a step then costs, by
the arithmetic of `postgrad plan`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument
from postgrad.studio.json_types import JsonDict

PROMPTS, GROUP, PROMPT = 64, 8, 256  # of a step, and tokens of a prompt
LONGEST = 4  # times the mean length of a reply
GB = 1e9


@dataclass(frozen=True)
class State:
    model: str = "1B"
    gpus: int = 8
    reply: int = 1024
    lengths: str = "geometric"
    depth: int = 1


CONTROLS = (
    ChoiceControl("depth", "Collections ahead", (0, 1, 2, 4)),
    ChoiceControl("gpus", "H100", (8, 64)),
    ChoiceControl("model", "Model", ("1B", "7B")),
    ChoiceControl("reply", "Tokens of a reply", (256, 1024, 4096)),
    ChoiceControl("lengths", "Lengths of replies", (("equal", "equal"), ("geometric", "ragged"))),
)


@cache
def planned_options(model: str, gpus: int, reply: int, lengths: str) -> list[JsonDict]:
    """Every layout that fits, with each depth: seconds of a step and its parts, bytes of a GPU."""
    from postgrad.recipes.plan import ReplyLengths, Work, plan_training

    work = Work(prompts=PROMPTS, group=GROUP, prompt=PROMPT, reply=reply)
    drawn = ReplyLengths(mean=reply, longest=LONGEST * reply, kind=lengths)
    _, _, options = plan_training(model, "grpo", f"{gpus}xH100", work, drawn)
    return [{"words": option.layout.words, "together": option.layout.together, "ahead": option.ahead,
             "samplers": option.layout.samplers, "step": round(option.times.step, 3),
             "waiting": round(option.times.waiting, 3), "training": round(option.times.training, 3),
             "sampling": round(option.times.sampling, 3),
             "trainer": round(sum(option.training.values()) / GB, 2),
             "sampler": round(sum(option.sampling.values()) / GB, 2)} for option in options]


def compute(state: State) -> JsonDict:
    """The layouts at this depth, in turn first, then by the number that sample; the fastest of them."""
    options = planned_options(state.model, state.gpus, state.reply, state.lengths)
    shown = sorted((o for o in options if o["together"] or o["ahead"] == state.depth),
                   key=lambda o: (not o["together"], o["samplers"]))
    apart = [o for o in shown if not o["together"]]
    return {
        "model": state.model, "gpus": state.gpus, "reply": state.reply, "lengths": state.lengths,
        "depth": state.depth, "rows": shown, "best": min(shown, key=lambda o: o["step"]),
        "turn": next((o for o in shown if o["together"]), None),
        "apart": min(apart, key=lambda o: o["step"]) if apart else None,
        "highest": max(o["step"] for o in shown), "prompts": PROMPTS, "group": GROUP,
        "longest": LONGEST * state.reply,
    }


def insight(numbers: JsonDict) -> str:
    apart, turn = numbers["apart"], numbers["turn"]
    head = f"{numbers['model']} on {numbers['gpus']} H100"
    if turn is None:
        return f"{head}: in turn it does not fit. Divided, the fastest is {option_text(apart)}."
    if apart is None:
        return f"{head}: {option_text(turn)}. No division fits."
    gap = apart["step"] - turn["step"]
    than = "faster than" if gap < 0 else "slower than" if gap > 0 else "as fast as"
    return (f"{head}: divided, with {depth_text(numbers['depth'])}, the fastest is "
            f"{option_text(apart)}. That is {than} "
            f"all GPUs in turn, {turn['step']:.1f} s a step, of which the trainers wait "
            f"{turn['waiting']:.1f} s.")


def depth_text(depth: int) -> str:
    return "1 collection ahead" if depth == 1 else f"{depth or 'no'} collections ahead"


def option_text(option: JsonDict) -> str:
    return (f"“{option['words']}”, {option['step']:.1f} s a step, of which the trainers wait "
            f"{option['waiting']:.1f} s")


INSTRUMENT = Instrument(
    name="layouts", number=18, title="How to divide the GPUs depends on who waits for whom",
    functions=("postgrad.recipes.plan.plan_training", "postgrad.recipes.plan.simulate",
               "postgrad.recipes.plan.sampling_seconds"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Seconds of a step by the way GPUs are divided between training and sampling.",
)
