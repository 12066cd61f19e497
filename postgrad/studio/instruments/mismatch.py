"""Instrument 15, sampler and trainer: log-probabilities of the same tokens by two engines, and how much a
token counts under each correction. The pairs are recorded; the weights are the library's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import num
from postgrad.studio.recordings import recording

if TYPE_CHECKING:
    from torch import Tensor

RULES = {"none": "none", "truncated": "truncated", "banded": "banded", "sequence": "whole reply"}
CLOSE = 0.005  # ratios within this of 1 would all be shown as 1.00
WIDEST, DRAWN = 6.0, 250  # ratios and tokens that are drawn
SAMPLERS = {"own": "own", "bfloat16": "bfloat16", "nf4": "4 bits", "late": "late",
            "start": "very late"}


@dataclass(frozen=True)
class State:
    sampler: str = "start"
    rule: str = "truncated"
    cap: float = 2.0


CONTROLS = (
    ChoiceControl("sampler", "Sampler", tuple(SAMPLERS.items())),
    ChoiceControl("rule", "Correction", tuple(RULES.items())),
    Slider("cap", "Limit C of a weight", 1.1, 5, 0.1),
)


@cache
def paired_logps(sampler: str) -> Values:
    """(the sampler's log-probabilities, the trainer's, mask), each [replies, tokens], in float64."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    data = recording("samplers")
    rows = next(s["replies"] for s in data["samplers"] if s["name"] == sampler)
    old, more, mask = (pad_sequence([torch.tensor(x, dtype=torch.float64) for x in part], batch_first=True)
                       for part in ([r["logp"] for r in rows], [r["more"] for r in rows],
                                    [[1] * len(r["logp"]) for r in rows]))
    old = old * data["unit"]
    return old + more * data["fine"], old, mask.bool()


def correction_weights(rule: str, cap: float, said: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """What each token counts: the library's correction, with C for its upper limit; of a band, 1/C below."""
    import torch

    from postgrad.maths import correction

    return {"none": lambda: torch.ones_like(old),
            "truncated": lambda: correction.truncated(said, old, mask, cap=cap),
            "banded": lambda: correction.banded(said, old, mask, least=1 / cap, most=cap),
            "sequence": lambda: correction.sequence_banded(said, old, mask, widest=cap)}[rule]()


def compute(state: State) -> JsonDict:
    from postgrad.maths.kl import k3

    data, (said, old, mask) = recording("samplers"), paired_logps(state.sampler)
    apart = old - said
    weight = correction_weights(state.rule, state.cap, said, old, mask)
    whole = (apart * mask).sum(1).exp()
    ratio, counts = apart[mask].exp(), weight[mask]
    chosen = ratio if state.rule != "sequence" else whole[:, None].expand_as(old)[mask]
    touched = (counts - chosen).abs() > 1e-9
    kind = next(s for s in data["samplers"] if s["name"] == state.sampler)
    return {
        "rule": state.rule, "cap": state.cap, "sampler": state.sampler, "is": kind["is"],
        "tokens": int(mask.sum()), "replies": len(old), "mean_apart": apart[mask].abs().mean().item(),
        "most": ratio.max().item(), "least": ratio.min().item(), "kl": k3(said, old)[mask].mean().item(),
        "above": int((ratio > state.cap).sum()), "below": int((ratio < 1 / state.cap).sum()),
        "whole_above": int((whole > state.cap).sum()), "whole": whole.tolist(),
        "touched": int(touched.sum()), "mean_weight": counts.mean().item(),
        "worth": (counts.sum() ** 2 / (counts.square().sum() * len(counts))).item() if counts.any() else 0.0,
        "points": furthest_tokens(said[mask], old[mask], touched),
        **rule_drawing(state, chosen, counts, touched),
        "bars": histogram(apart[mask].tolist()), "command": data["command"], "step": data["step"],
        "prompts": data["prompts"], "each": data["each"],
    }


def furthest_tokens(said: Tensor, old: Tensor, touched: Tensor) -> list[Values]:
    """The tokens on which the two are furthest apart: (sampler's probability, trainer's, whether a limit has
    changed what it counts)."""
    order = (old - said).abs().argsort(descending=True, stable=True)[:DRAWN]
    columns = (said.exp(), old.exp(), touched)
    return list(zip(*(column[order].tolist() for column in columns), strict=True))


def rule_drawing(state: State, ratio: Tensor, counts: Tensor, touched: Tensor) -> JsonDict:
    """The rule as a line over all ratios, and where these tokens are on it."""
    limit, edge = state.cap, 1 / state.cap
    shape = {"none": [(0, 1), (WIDEST, 1)], "truncated": [(0, 0), (limit, limit), (WIDEST, limit)],
             "banded": [(0, 0), (edge, 0), (edge, edge), (limit, limit), (limit, 0), (WIDEST, 0)],
             "sequence": [(0, 0), (limit, limit), (limit, 0), (WIDEST, 0)]}[state.rule]
    marks = {(round(x, 2), round(y, 2), t) for x, y, t in
             zip(ratio.tolist(), counts.tolist(), touched.tolist(), strict=True) if x <= WIDEST}
    return {"shape": shape, "marks": sorted(marks)}


def histogram(apart: list[float]) -> list[int]:
    """Tokens by how far the two are apart: below 1e-6 nats, then by powers of ten, to above 1."""
    bins = [0] * 8
    for x in apart:
        size = abs(x)
        bins[0 if size < 1e-6 else min(7, 7 + math.floor(math.log10(size)))] += 1
    return bins


def insight(numbers: JsonDict) -> str:
    cap = num(numbers["cap"], 1)
    farthest = max(numbers["most"] - 1, 1 - numbers["least"])
    spread = (f"no ratio is farther than {num(farthest)} from 1" if farthest < CLOSE else
              f"their ratios go from {num(numbers['least'], 2)} to {num(numbers['most'], 2)}")
    apart = (f"On {numbers['tokens']} tokens sampler and trainer are {num(numbers['mean_apart'])} nats apart "
             f"on average; {spread}.")
    worth = f"the weights’ mean is {num(numbers['mean_weight'])}"
    if numbers["rule"] == "none":
        return f"{apart} Uncorrected, every token counts 1, as if the policy itself had sampled it."
    if numbers["rule"] == "truncated":
        many = f"{numbers['above']} {'is' if numbers['above'] == 1 else 'are'} above {cap} and cut to it"
        return f"{apart} {many if numbers['above'] else f'None is above {cap}, so none is cut'}; {worth}."
    if numbers["rule"] == "banded":
        out = numbers["above"] + numbers["below"]
        band = f"outside {num(1 / numbers['cap'], 2)} to {num(numbers['cap'], 2)}"
        count = f"{out} {'is' if out == 1 else 'are'} {band} and {'counts' if out == 1 else 'count'} nothing"
        return f"{apart} {count if out else f'None is {band}, so none is dropped'}; {worth}."
    out = numbers["whole_above"]
    count = (f"{out} of {numbers['replies']} replies {'exceeds' if out == 1 else 'exceed'} {cap} and "
             f"{'counts' if out == 1 else 'count'} nothing")
    none = f"none of {numbers['replies']} replies exceeds {cap}"
    return f"{apart} Over whole replies the ratios are products: {count if out else none}; {worth}."


INSTRUMENT = Instrument(
    name="mismatch", number=15, title="The engine that samples is not quite the policy that learns",
    functions=("postgrad.maths.correction.truncated", "postgrad.maths.correction.banded",
               "postgrad.maths.correction.sequence_banded", "postgrad.maths.kl.k3"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Recorded log-probabilities of a sampler and the trainer, and what truncated importance sampling "
          "does to a token.",
)
