"""The pages of docs/ that are made from the code:
docs/methods.md from the table, docs/architecture.md from the layers.

    python tools/make_docs.py            writes them anew
    python tools/make_docs.py --check    says which are not up to date, and ends with 1 if one is not
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
DOCS = HERE / "docs"
PACKAGE = HERE / "postgrad"

FAMILIES = {  # kind of a row -> heading, and what its functions are for
    "supervised": ("Imitate", "`-log pi` of the tokens that are trained. `weigh` says how much each token "
                   "counts; `select`, which samples are imitated where the model writes its own."),
    "preference": ("Prefer", "`score` makes a number of each row (no score: a scalar head does), `loss` "
                   "makes a loss of the numbers of a pair, of a labelled answer or of a labelled step."),
    "policy": ("Reinforce", "`credit` makes advantages of rewards, `surrogate` a loss of advantages, `weigh` "
               "says how much each token counts in the step."),
}
METHODS_HEAD = """\
# Methods

Made from the table (`postgrad/methods/`) by `python tools/make_docs.py`; `postgrad methods` prints it too.

An algorithm is a pair: where its batches come from, and its objective. There is one training loop, and a
variant is a row of functions and constants, never a flag. Any constant can be set by its name:
`postgrad train dapo:words method.high=0.3`, or `postgrad.method("dapo", high=0.3)` in Python
([python.md](python.md#rows)). A row of your own is trained like ours: [a new row](../CONTRIBUTING.md#a-row).
The formulas with their worked numbers: [equations.md](equations.md).

What is common to all rows and to no paper: a normaliser runs over the whole step (papers write it per
prompt), and no row has a learning rate.
"""
ARCHITECTURE_HEAD = """\
# Architecture

Made by `python tools/make_docs.py` from the table of layers in
[`tests/layers_test.py`](../tests/layers_test.py), which a test holds against every import, and from the
docstrings of the modules. The ideas stand in the tool itself.

## Seven ideas

1. **An algorithm is a pair**: where its batches come from, and what its objective is. So there is one
   training loop for SFT, reward models, DPO, PPO and GRPO, and no trainer class.
2. **Normalisation is data.** Every batch carries weights that are fixed once for the whole optimizer step;
   the loss is always `(loss * weight).sum()`, so gradient accumulation is exact for every algorithm.
3. **One row per algorithm.** Two algorithms are compared by reading two rows ([methods.md](methods.md)).
4. **Everything about token t sits in column t.** The next-token shift lives in one function of
   `maths/logprob.py`.
5. **The run folder is the only door between training and the studio.** It holds config, the resolved row,
   metrics, samples with per-token numbers, and checkpoints that are also model folders.
6. **Objects are the currency; names are a parser on top.** The command line, the studio's form and
   `postgrad.fit` go through the same few functions ([python.md](python.md)).
7. **Maths is pure**: tensors and floats in, tensors out. What needs a whole step is computed once in the
   assembly line.

```text
Prompt -sampler-> Rollout -judge-> Scored -credit-> adv [B, T] -+
Conversation ------------- chat template -----------------------+-> Batch -objective-> loss [B, T]
Pair --------------------- chat template -----------------------+   (loss * weight).sum() -> update
```

To read the project, open these in order: [`records.py`](../postgrad/records.py),
[`methods/`](../postgrad/methods), [`maths/surrogate.py`](../postgrad/maths/surrogate.py),
[`batches/columns.py`](../postgrad/batches/columns.py), [`objectives.py`](../postgrad/objectives.py),
[`loop.py`](../postgrad/loop.py).
"""
NOUNS = {"Prompt": "records", "Rollout": "records", "Scored": "records", "Batch": "records",
         "Row": "methods.row", "Objective": "objectives", "Models": "models", "Run": "run", "Task": "tasks"}
VERBS = {"sample": "sampler.base", "score": "rewards.base", "credit": "maths.credit",
         "weigh": "maths.weights", "train": "loop", "evaluate": "evaluation"}


def words(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line, as Markdown that stands for itself."""
    from postgrad.methods.compare import first_paragraph
    return plain(first_paragraph(doc))


def plain(text: str) -> str:
    """Text in which no sign means anything to Markdown, with the papers of arXiv as links."""
    text = re.sub(r"([*<|])", r"\\\1", text)
    return re.sub(r"(?:arXiv:)?\b(\d{4}\.\d{5})\b", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def formulas(doc: str | None) -> str:
    """The lines of a docstring that are set apart, as code."""
    from postgrad.methods.compare import set_apart
    return "".join(f" `{line}`" for line in set_apart(doc))


def pages() -> dict[str, str]:
    return {"methods.md": methods_page(), "architecture.md": architecture_page()}


# methods.md

def methods_page() -> str:
    from postgrad.methods import METHODS
    comments = {row: text for path in sorted((PACKAGE / "methods").glob("*.py"))
                for row, text in remarks(path).items()}
    parts = [METHODS_HEAD]
    for kind, (title, about) in FAMILIES.items():
        rows = [row for row in METHODS.values() if row.kind == kind]
        parts.append(
            f"## {title}\n\n{about}\n\n| row | learns from | what is particular |\n|---|---|---|\n" + "".join(
                f"| [`{row.name}`](#{row.name}) | {row.source} | {words(row.about)} |\n" for row in rows))
    parts.append("## The rows, one by one\n")
    parts += [row_section(row, comments.get(row.name, "")) for row in METHODS.values()]
    return "\n".join(parts)


def row_section(row, remark: str) -> str:
    from postgrad.methods import constants
    numbers = {name: value for name, value in constants(row).items() if value and not isinstance(value, str)}
    lines = [f"### {row.name}\n\n{words(row.about)[:1].upper()}{words(row.about)[1:]}.\n\n"
             f"Paper: {words(row.paper)}\n"]
    lines += [part(row, name) for name in ("score", "loss", "credit", "surrogate", "choose", "mark",
                                           "correction", "weigh", "select")
              if callable(getattr(row, name, None))]
    if getattr(row, "kl_in_loss", 0) > 0:
        lines.append(part(row, "kl"))
    if row.reference:
        lines.append("- reference: yes, the model that the run starts from")
    if getattr(row, "teacher", False):
        lines.append("- teacher: the model that the run starts from, shown a demonstration" if row.shown else
                     "- teacher: the model that `teacher=` names")
    if numbers:
        lines.append("- constants: " + ", ".join(f"`{name}={value:g}`" if not isinstance(value, bool)
                                                 else f"`{name}`" for name, value in numbers.items()))
    if remark:
        lines.append(f"- what differs: {remark}")
    return "\n".join(lines) + "\n"


def part(row, name: str) -> str:
    given: Callable = getattr(row, name)
    function = given.func if isinstance(given, partial) else given
    file = Path(inspect.getsourcefile(function)).relative_to(HERE).as_posix()
    return (f"- {name}: [`{function.__name__}`](../{file}). "
            f"{words(function.__doc__)}{formulas(function.__doc__)}")


def remarks(path: Path) -> dict[str, str]:
    """The comment that stands above each row of a file: where the row departs from its paper, and why."""
    text = path.read_text()
    lines, found = text.splitlines(), {}
    for node in ast.walk(ast.parse(text)):
        named = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
        if not isinstance(named.get("name"), ast.Constant):
            continue
        above, at = [], node.lineno - 2
        while at >= 0 and lines[at].strip().startswith("#"):
            above.insert(0, lines[at].strip().lstrip("# "))
            at -= 1
        if above:
            found[named["name"].value] = plain(" ".join(above))
    return found


# architecture.md

def layers() -> list[list[str]]:
    """The table of tests/layers_test.py, lowest layer first, read without running it."""
    tree = ast.parse((HERE / "tests" / "layers_test.py").read_text())
    value = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "LAYERS")
    return [sorted(names) for names in ast.literal_eval(value)]


def file_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def docstring(module: str) -> str:
    return ast.get_docstring(ast.parse(file_of(module).read_text())) or ""


def architecture_page() -> str:
    parts = [ARCHITECTURE_HEAD,
             "## Layers\n\nImports go down only; peers on a layer never import each other: they meet one "
             "layer up, or are handed in as arguments.\n\n| layer | part | what it holds |\n|---|---|---|"]
    found = layers()
    for number, names in reversed(list(enumerate(found))):
        for name in names:
            place = f"{name}.py" if (PACKAGE / f"{name}.py").is_file() else name
            shown = name if place.endswith(".py") else f"{name}/"
            parts.append(f"| {number} | [`{shown}`](../postgrad/{place}) | {words(docstring(name))} |")
    parts.append("\n## Nouns\n\n| noun | where | what it is |\n|---|---|---|")
    parts += [f"| {noun} | [`{module}`](../{file_of(module).relative_to(HERE)}) | "
              f"{words(described(noun, module))} |"
              for noun, module in NOUNS.items()]
    parts.append("\nA row of the table is a `Row`: `Supervised`, `Preference` or `Policy`; `Method` "
                 "is any of them.")
    parts.append("\n## Verbs\n\n| verb | where | what it does |\n|---|---|---|")
    parts += [f"| {verb} | [`{module}`](../{file_of(module).relative_to(HERE)}) | "
              f"{words(docstring(module))} |"
              for verb, module in VERBS.items()]
    return "\n".join(parts) + "\n"


def described(noun: str, module: str) -> str:
    """The docstring of a class; of a type that is an alias, that of its module."""
    from postgrad.studio.reference import definition
    home, node = definition(f"postgrad.{module}", noun)
    own = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else ""
    return own or docstring(home.removeprefix("postgrad."))


def main() -> int:
    stale = [name for name, text in pages().items()
             if not (DOCS / name).is_file() or (DOCS / name).read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(f"docs/{name} is not up to date: python tools/make_docs.py" for name in stale)
              or "up to date")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(pages()[name])
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
