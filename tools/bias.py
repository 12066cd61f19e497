"""The exact bias of every policy row on an enumerable language (tests/support/toy.py): measured once,
kept in docs/methods/bias.json, drawn as figures.

tests/training/oracle_test.py holds what is kept against what it measures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tests/support")]

from postgrad.studio.svg import Plot  # noqa: E402

KEPT = HERE / "docs" / "methods" / "bias.json"
GROUP = 3  # samples of a prompt
NONE = 1e-12  # a bias below this is rounding


class Objective(NamedTuple):
    """What a row climbs where it is not the mean reward: in words, the reward of each sequence, and the
    exact gradient."""

    words: str
    reward: Callable
    gradient: Callable


def passed(toy):
    return (toy.REWARD == 1).double()


OWN = {"maxrl": Objective("pass@1 + pass@2 / 2, for verdicts of 0 and 1", passed,
                          lambda toy: toy.pass_at_k_gradient(passed(toy), GROUP - 1))}


def climbs(row) -> str:
    """What the exact gradient is that of."""
    if "teacher_logp" in row.wanted:
        return "minus the KL to its teacher"
    return "the mean reward" + ", less its KL to the start" * row.needs_reference


# measuring

def measure(row) -> dict:
    """How far a row's mean gradient is from the exact one, component by component."""
    import torch
    import toy
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exact, on = toy.objective_gradient(row), toy.measure(row, GROUP)
        found = {"noise": rounded(on.noise / float(exact.norm() * scale_of(on.mean, exact))),
                 **beside(exact, on.mean)}
        if row.name in OWN:
            _, reward, gradient = OWN[row.name]
            with toy.paying(reward(toy)):
                own = toy.measure(row, GROUP).mean
            found["own"] = beside(gradient(toy), own)
    finally:
        torch.set_default_dtype(previous)
    return found


def beside(exact, mean) -> dict:
    """scale: the multiple of the exact gradient that the mean is nearest to; bias: what is left, over that
    multiple; exact, mean: their components where either is not 0."""
    scale = scale_of(mean, exact)
    bias = float((mean - scale * exact).norm() / (scale * exact).norm())
    here = (exact != 0) | (mean != 0)
    return {"scale": rounded(float(scale)), "bias": rounded(bias) if bias > NONE else 0.0,
            "exact": [rounded(x) for x in exact[here].tolist()],
            "mean": [rounded(x) for x in mean[here].tolist()]}


def scale_of(mean, exact):
    return (mean * exact).sum() / (exact**2).sum()


def rounded(x: float) -> float:
    return float(f"{x:.5g}")


def kept(rows: Mapping, anew: bool = False) -> dict[str, dict]:
    """What was measured of each policy row; rows of which nothing is kept are measured."""
    before = json.loads(KEPT.read_text()) if KEPT.is_file() and not anew else {}
    return {name: before.get(name) or measure(row) for name, row in rows.items() if row.kind == "policy"}


def as_json(found: Mapping[str, dict]) -> str:
    """A line a row."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    return f"{{\n{lines}\n}}\n"


# figures

STYLE = ("<style>text{font:11px sans-serif;fill:#333}.t{font-weight:bold}.a{stroke:#999}.d{stroke:#999;"
         "stroke-dasharray:4 3}.p{fill:#2a6fbb;fill-opacity:.75}.n{fill:#2a6fbb}</style>")


def drawing(width: int, height: int, title: str, inside: list[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}">',
        STYLE, f'<rect width="{width}" height="{height}" fill="#fff"/>', *inside, "</svg>\n"])


def scatter(name: str, found: Mapping) -> str:
    """Each component of the gradient: the exact one across, the row's mean over its scale upwards. On the
    diagonal there is no bias."""
    ups = [y / found["scale"] for y in found["mean"]]
    far = 1.1 * max(map(abs, [*found["exact"], *ups]))
    area = Plot((-far, far), (-far, far), 320, 300, 44, 14, 26, 40)
    (x0, y0), (x1, y1) = area.at(-far, -far), area.at(far, far)
    inside = [f'<text class="t" x="{x0:g}" y="17">{name}: relative bias {said(found["bias"])}</text>',
              line("a", *area.at(-far, 0), *area.at(far, 0)), line("a", *area.at(0, -far), *area.at(0, far)),
              line("d", x0, y0, x1, y1)]
    digits = area.digits(area.xticks(4))
    for at, value in area.xticks(4):
        inside.append(f'<text x="{at:g}" y="{y0 + 14:g}" text-anchor="middle">{value:.{digits}f}</text>')
    for at, value in area.yticks(4):
        inside.append(f'<text x="{x0 - 4:g}" y="{at + 4:g}" text-anchor="end">{value:.{digits}f}</text>')
    for x, y in zip(found["exact"], ups, strict=True):
        px, py = area.at(x, y)
        inside.append(f'<circle class="p" cx="{px:g}" cy="{py:g}" r="3"/>')
    inside.append(f'<text x="{(x0 + x1) / 2:g}" y="{y0 + 32:g}" text-anchor="middle">'
                  "component of the exact gradient</text>")
    middle = (y0 + y1) / 2
    inside.append(f'<text x="12" y="{middle:g}" text-anchor="middle" transform="rotate(-90 12 {middle:g})">'
                  "the row's mean, over its scale</text>")
    return drawing(320, 300, f"{name}: the mean of its gradient against the exact one", inside)


def bars(every: Mapping[str, Mapping]) -> str:
    """The relative bias of every row, side by side."""
    height, left, wide = 16, 96, 300
    most = max(found["bias"] for found in every.values())
    inside = ['<text class="t" x="8" y="16">relative bias of the mean gradient, exact</text>']
    for i, (name, found) in enumerate(every.items()):
        y = 26 + height * i
        length = round(wide * found["bias"] / most, 1)
        inside += [f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{name}</text>',
                   f'<rect class="n" x="{left}" y="{y + 2}" width="{max(length, 1):g}" height="10"/>',
                   f'<text x="{left + length + 5:g}" y="{y + 11}">{said(found["bias"])}</text>']
    return drawing(left + wide + 60, 34 + height * len(every), "relative bias of every policy row", inside)


def line(style: str, x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<line class="{style}" x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}"/>'


def said(bias: float) -> str:
    return f"{bias:.2g}" if bias else "0"


def figures(every: Mapping[str, dict]) -> dict[str, str]:
    """The drawings by file, within docs/methods."""
    own = {f"figures/{name}-own.svg": scatter(f"{name}, its own objective", found["own"])
           for name, found in every.items() if "own" in found}
    return {"figures/all.svg": bars(every), **own,
            **{f"figures/{name}.svg": scatter(name, found) for name, found in every.items()}}
