"""The pages of docs/ that are made from the code: docs/methods.md and docs/methods/ from the table,
docs/architecture.md from the layers.

    python tools/make_docs.py            writes them anew; the bias of a row that is new is measured
    python tools/make_docs.py --measure  measures that of all rows: where the maths of a row has changed
    python tools/make_docs.py --check    says which are not up to date, and ends with 1 if one is not
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
DOCS = HERE / "docs"
PACKAGE = HERE / "postgrad"

import bias  # noqa: E402
import method_pages  # noqa: E402

ARCHITECTURE_HEAD = """\
# Architecture

Made by `python tools/make_docs.py` from the table of layers in
[`tests/whole/layers_test.py`](../tests/whole/layers_test.py), which a test holds against every import,
and from the docstrings of the modules. The ideas stand in the tool itself.

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
7. **A rollout is segments**: tokens that the policy sampled and tokens that it was shown, with a mask. One
   question and one answer is the case of one segment ([environments.md](environments.md)).

```text
Prompt -sampler-> Rollout -judge-> Scored -credit-> adv [B, T] -+
Conversation ------------- chat template -----------------------+-> Batch -objective-> loss [B, T]
Pair --------------------- chat template -----------------------+   (loss * weight).sum() -> update
```

To read the project, open these in order: [`records.py`](../postgrad/records.py),
[`methods/`](../postgrad/methods), [`maths/surrogate.py`](../postgrad/maths/surrogate.py),
[`batches/columns.py`](../postgrad/training/batches/columns.py),
[`objectives.py`](../postgrad/training/objectives.py),
[`loop.py`](../postgrad/training/loop.py).
"""
NOUNS = {"Prompt": "records", "Rollout": "records", "Scored": "records", "Batch": "records",
         "Method": "methods.row", "Objective": "training.objectives", "Models": "models", "Run": "runs",
         "Task": "data.tasks"}
VERBS = {"sample": "sampling.base", "score": "rewards.base", "credit": "maths.credit",
         "weigh": "maths.weights", "train": "training.loop", "evaluate": "evaluation"}


def words(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line, as Markdown that stands for itself."""
    from postgrad.methods.pages import first_paragraph
    return method_pages.plain(first_paragraph(doc))


def pages() -> dict[str, str]:
    return {**method_pages.pages(), "architecture.md": architecture_page()}


# architecture.md

def layers() -> list[list[str]]:
    """The table of tests/whole/layers_test.py, lowest layer first, read without running it."""
    tree = ast.parse((HERE / "tests" / "whole" / "layers_test.py").read_text())
    value = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "ROOMS")
    return [[name] for name in ast.literal_eval(value)]


def file_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def docstring(module: str) -> str:
    return ast.get_docstring(ast.parse(file_of(module).read_text())) or ""


def architecture_page() -> str:
    parts = [ARCHITECTURE_HEAD,
             "## Rooms\n\nImports go down only: a room imports from rooms below it in "
             "this table.\n\n| level | room | what it holds |\n|---|---|---|"]
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
    from postgrad.studio.reference import find_definition
    home, node = find_definition(f"postgrad.{module}", noun)
    own = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else ""
    return own or docstring(home.removeprefix("postgrad."))


def stale(made: Mapping[str, str]) -> list[str]:
    """The files of docs/ that are not as they are made now, those of rows that are gone included."""
    here = {path.relative_to(DOCS).as_posix() for path in (DOCS / "methods").rglob("*") if path.is_file()}
    changed = [name for name, text in made.items()
               if not (DOCS / name).is_file() or (DOCS / name).read_text() != text]
    return changed + sorted(here - made.keys())


def main() -> int:
    made = pages()
    if "--check" in sys.argv:
        print("\n".join(f"docs/{name} is not up to date: python tools/make_docs.py" for name in stale(made))
              or "up to date")
        return 1 if stale(made) else 0
    for name in stale(made):
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in made:
            path.write_text(made[name])
        else:
            path.unlink()
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    if "--measure" in sys.argv:
        bias.KEPT.unlink(missing_ok=True)
    sys.exit(main())
