"""The pages of docs/ about the rows of the table, as Markdown: docs/methods.md, the table itself, and
docs/methods/NAME.md, a page a row.

What is said of a row is data first: postgrad/methods/pages.py (functions, constants, departures, neighbours),
tools/bias.py (the exact bias), tests/support/against.py (what tests hold of TRL and verl).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tests/support")]

import bias  # noqa: E402
from against import Held, found  # noqa: E402

from postgrad.methods.row import format_call  # noqa: E402

FAMILIES = {  # kind of a row -> heading, and what its functions are for
    "supervised": ("Imitate", "`-log pi` of the tokens that are trained. `weigh` says how much each token "
                   "counts; `select`, which samples are imitated where the model writes its own."),
    "preference": ("Prefer", "`score` makes a number of each row (no score: a scalar head does), `loss` "
                   "makes a loss of the numbers of a pair, of a labelled answer or of a labelled step."),
    "policy": ("Reinforce", "`credit` makes advantages of rewards, `surrogate` a loss of advantages, `weigh` "
               "says how much each token counts in the step."),
}
HEAD = """\
# Methods

Made from the table (`postgrad/methods/`) by `python tools/make_docs.py`; `postgrad methods` prints it too.

An algorithm is a pair: where its batches come from, and its objective. There is one training loop, and a
variant is a row of functions and constants, never a flag. Any constant can be set by its name:
`postgrad train dapo:words method.high=0.3`, or `postgrad.method("dapo", high=0.3)` in Python
([python.md](python.md#rows)). A row of your own is trained like ours: [your-own-row.md](your-own-row.md).
The formulas with their worked numbers: [equations.md](equations.md).

Each row has a page: formulas with the functions that compute them, constants, departures from the paper, its
schedule of updates, its exact bias, the rows next to it, and where TRL and verl differ.

Which one? All policy rows on one task, with equal samples and each at its best rate, are in one table:
[results/rows.md](results/rows.md). Most of them end within each other's intervals there, so begin with `grpo`
or `dapo`, and change the row for a reason that its page names.

What is common to all rows and to no paper: a normaliser runs over the whole step (papers write it per
prompt), and no row has a learning rate.
"""
BIAS = """\
## How biased they are

On a language of 15 sequences the mean gradient of every row is computed, not sampled, and compared with the
exact gradient of what the row climbs: the mean reward, less a KL where it has one. 0 is the exact direction.
A constant factor is no bias: a learning rate absorbs it.

![the relative bias of every policy row](methods/figures/all.svg)
"""
# headings, where not the field's name
FUNCTIONS = {"kl_bound": "bound of the KL", "kl_estimator": "KL in the loss"}


def plain(text: str) -> str:
    """Text in which no sign means anything to Markdown but for `code`, with the papers of arXiv as links."""
    words = [part if i % 2 else re.sub(r"([*<|\[])", r"\\\1", part) for i, part in enumerate(text.split("`"))]
    return re.sub(r"(?:arXiv:)?\b(\d{4}\.\d{5})\b", r"[arXiv:\1](https://arxiv.org/abs/\1)", "`".join(words))


def sentence(text: str) -> str:
    """Text as a sentence: a capital first, a stop last."""
    return plain(f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}")


def grid(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *rows))


@cache
def pages() -> Mapping[str, str]:
    """The Markdown and the figures, by file within docs/."""
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    measured = bias.kept(METHODS)
    held = found()
    made = {"methods.md": table(METHODS), "methods/bias.json": bias.as_json(measured)}
    made |= {f"methods/{file}": text for file, text in bias.figures(measured).items()}
    return made | {f"methods/{name}.md": row_page(row, method_page(row, METHODS), measured.get(name),
                                                  [h for h in held if h.row == name])
                   for name, row in METHODS.items()}


def table(rows: Mapping) -> str:
    parts = [HEAD]
    for kind, (title, about) in FAMILIES.items():
        mine = [[f"[`{row.name}`](methods/{row.name}.md)", row.source, plain(row.about)]
                for row in rows.values() if row.kind == kind]
        parts.append(f"## {title}\n\n{about}\n\n"
                     f"{grid(['row', 'learns from', 'what is particular'], mine)}\n")
    return "\n".join([*parts, BIAS])


def row_page(row, page, measured: Mapping | None, held: list[Held]) -> str:
    sections = {
        "Formulas": formulas(page), "Constants": constants(page),
        "Departures from the paper": plain(page.departures or "None that is known."),
        "Updates": updates(page), "Bias": how_biased(row, page, measured),
        "The rows next to it": neighbours(page), "TRL and verl": libraries(held),
    }
    made = "Made by `python tools/make_docs.py`; all rows: [methods.md](../methods.md)."
    head = (f"# {page.name}\n\n{made}\n\n{sentence(page.about)} Learns from: {page.source}."
            f"{' A reference stands beside it: the model that the run starts from.' * page.reference}"
            f"{f' Its teacher: {page.teacher}.' * bool(page.teacher)}\n\n"
            f"Paper: {plain(page.paper)}\n")
    return "\n".join([head, *(f"## {title}\n\n{text.rstrip()}\n"
                              for title, text in sections.items() if text)])


def formulas(page) -> str:
    """Each function of the row: its name with the line where it stands, and its docstring; then the columns
    that they want."""
    out = []
    for part in page.parts:
        out.append(f"### {FUNCTIONS.get(part.field, part.field)}\n\n"
                   f"[`{format_call(part.function, part.constants)}`](../../{part.file}#L{part.line}) in "
                   f"`{part.file}:{part.line}`\n")
        out += [f"```text\n{piece.text}\n```\n" if piece.kind == "formula" else f"{plain(piece.text)}\n"
                for piece in part.pieces]
    if page.wants:
        columns = "; ".join(f"`{name}`, {plain(about)}" for name, about in page.wants.items())
        out.append(f"Further columns that they are handed: {columns}.\n")
    return "\n".join(out).replace("\n```\n\n```text\n", "\n")  # formulas one after the other stand together


def constants(page) -> str:
    rows = [[f"`{c.name}`", f"`{shown(c.value)}`", c.within, plain(c.about), plain(c.when)]
            for c in page.constants if c.on]
    off = ", ".join(f"`{c.name}`" for c in page.constants if not c.on)
    made = grid(["constant", "value", "may be", "what it is", "when to change it"], rows) if rows else ""
    more = f"Off, and set by the same names: {off}." if off else ""
    return "\n\n".join(filter(None, [made, more]))


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) \
        else "none" if value is None or value == [] else ", ".join(map(str, value)) \
        if isinstance(value, list) else str(value)


def updates(page) -> str:
    if page.kind != "policy":
        return "One update of each batch."
    passes = f"{page.epochs} passes" if page.epochs > 1 else "One pass"
    shares = f"{page.minibatches} minibatches" if page.minibatches > 1 else "one minibatch"
    count = (f"{passes} over each collection of rollouts, {shares} a pass: "
             f"{page.updates} update{'s' * (page.updates > 1)} of a collection.")
    if not page.ratio:
        return f"{count} It has no ratio to the policy that sampled, so that a second update is refused."
    return f"{count} Tokens are weighed by the ratio to the policy that sampled" + (
        ", which is 1 here: the clip is idle unless epochs or minibatches are raised."
        if page.updates == 1 else ".")


def how_biased(row, page, measured: Mapping | None) -> str:
    if not measured:
        return ""
    told = ("The mean of its gradient is the exact one, but for that factor."
            if not measured["bias"] else
            f"What is left is {bias.said(measured['bias'])} of its length, in another direction.")
    out = [f"On the language of 15 sequences, with {bias.GROUP} samples of a prompt, on policy, its mean "
           f"gradient is {measured['scale']:.3g} times the exact gradient of {bias.climbs(row)}. "
           f"{told} The noise of one group is {measured['noise']:.2g} times the gradient. "
           "(`tests/training/oracle_test.py` measures it.) Each point is a component of the gradient; on the "
           "dashed line there is no bias.",
           f"![the mean gradient of {page.name} against the exact one](figures/{page.name}.svg)"]
    if own := measured.get("own"):
        name = f"{page.name}-own"
        out += [f"For the objective that it states, {bias.OWN[page.name].words}, the relative bias is "
                f"{bias.said(own['bias'])}:",
                f"![the mean gradient of {page.name} against that of its own objective](figures/{name}.svg)"]
    return "\n\n".join(out)


def neighbours(page) -> str:
    out = []
    for other in page.neighbours:
        rows = [[d.part, brief(d.first), brief(d.second)] for d in other.differences]
        out.append(f"[`{other.name}`]({other.name}.md), {len(rows)} "
                   f"difference{'s' * (len(rows) != 1)}:\n\n{grid(['', page.name, other.name], rows)}\n")
    return "\n".join([*out, f"All of it, with the formulas: `postgrad diff {page.name} "
                      f"{page.neighbours[0].name}`." if page.neighbours else ""])


def brief(value: object) -> str:
    """A part of a row in a cell: a function by its name and constants."""
    if isinstance(value, dict):
        return f"`{format_call(value['function'], value['constants'])}`"
    return plain({True: "yes", False: "no"}.get(value, shown(value)) if isinstance(value, bool)
                 else shown(value))


def libraries(held: list[Held]) -> str:
    return "\n".join(f"- {h.library}: {plain(h.words)} ([`{h.test}`](../../{h.file}#L{h.line}))."
                     for h in held)
