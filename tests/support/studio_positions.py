"""Positions of an instrument's controls, and the numbers of its sentences."""

import random
import re
from dataclasses import replace

from postgrad.studio.instruments.base import ChoiceControl, Slider

NUMBER = re.compile(r"[−+-]?\d+(?:\.\d+)?(?:e[−-]\d+)?")


def places(control) -> list:
    if isinstance(control, Slider):
        steps = round((control.high - control.low) / control.step)
        return [round(control.low + i * control.step, 10) for i in range(steps + 1)]
    return [value for value, _ in control.pairs()] if isinstance(control, ChoiceControl) else [True, False]


def positions(instrument, mixed: int = 40):
    """Every control over its whole range, the others as they begin; then so many mixed at random."""
    draw, start = random.Random(0), instrument.settle(instrument.state())
    for control in instrument.shown(start):
        for value in places(control):
            yield moved(instrument, start, control, value)
    for _ in range(mixed):
        state = start
        for control in instrument.shown(start):
            state = moved(instrument, state, control, draw.choice(places(control)))
        yield state


def moved(instrument, state, control, value):
    kind = type(getattr(state, control.name))
    return instrument.settle(replace(state, **{control.name: kind(value)}))


def numbers_in(text: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in NUMBER.findall(text)]


def after(text: str, words: str) -> float:
    """The number that follows some words."""
    return numbers_in(text.partition(words)[2])[0]
