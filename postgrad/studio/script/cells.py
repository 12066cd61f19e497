"""Cells and exercises as scripts: static/alive/cells.js of an export that has an engine gives their answers
with the server's templates; editor.js is the editor as a plain script, for pages that are opened from a
folder have no modules."""

from __future__ import annotations

import re

from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.exercises import EXERCISES
from postgrad.studio.pages import STATIC
from postgrad.studio.script.expressions import js_literal
from postgrad.studio.script.python import Script
from postgrad.studio.script.template import Templates


def cells_script() -> str:
    script = Script()
    templates = Templates(script)
    result = templates.use("lab/result.html", {"exported": True})
    verdict = templates.use("exercises/verdict.html", {"exported": True})
    cells = {name: {"name": name, "title": c.title, "module": c.module, "names": c.names, "source": c.source,
                    "checks": c.checks} for name, c in CELLS.items()}
    exercises = {name: {"name": name, "solution": e.solution} for name, e in EXERCISES.items()}
    return (f'"use strict";\n(() => {{\n{script.text()}\n{templates.text()}\n'
            f"Object.assign(engine.pages, {{ cells: {js_literal(cells)}, exercises: {js_literal(exercises)}, "
            f"result: {result}, verdict: {verdict} }});\n}})();\n")


def editor_script() -> str:
    library = (STATIC / "vendor" / "codemirror" / "codemirror.js").read_text(encoding="utf-8")
    body, _, names = library.rpartition("export{")
    given = re.sub(r"([\w$]+) as (\w+)", r"\2:\1", names.partition("}")[0])
    own = (STATIC / "cells.js").read_text(encoding="utf-8")
    wanted = re.search(r"^import (\{.*?\}) from \S+;$", own, re.M | re.S)
    assert wanted
    return (f"(() => {{\nconst {wanted[1]} = (() => {{\n{body}\nreturn {{{given}}};\n}})();\n"
            f"{own.replace(wanted[0], '')}\n}})();\n")
