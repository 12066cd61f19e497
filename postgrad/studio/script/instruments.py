"""An instrument as a script: static/alive/NAME.js of an export, which answers a moved control as the server
does.

Its sentences, controls and pictures are translated from Python and Jinja. Its numbers are a table where its
states are few, its own `compute` translated where that is plain Python, and else a formula of
static/formulas.js.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import asdict

from postgrad.studio.instruments import prediction
from postgrad.studio.instruments.base import Instrument
from postgrad.studio.script import given
from postgrad.studio.script.expressions import js_literal
from postgrad.studio.script.python import Function, Script, module_tree
from postgrad.studio.script.template import Templates

TRANSLATED = ("algorithms", "bandit", "preference-labeller", "reward-hacking")  # compute in plain Python


def numbers_script(instrument: Instrument, script: Script) -> str:
    """The numbers of a state, as a function in script."""
    module = sys.modules[instrument.compute.__module__]
    if instrument.name in TRANSLATED:
        return script.name(module, "compute")
    constants = given.formula_constants().get(instrument.name)
    if constants:
        return f"(state) => formulas[{js_literal(instrument.name)}](state, {js_literal(constants)})"
    found = given.state_table(instrument)
    pool = f"[{','.join(found['pool'])}]"
    return f"alive.table({js_literal(found['fields'])}, {pool}, {js_literal(found['rows'])})"


def measure_script(name: str, script: Script) -> str:
    """The number that a reader foretells, as its words and a function of the numbers; null where there is
    none."""
    table = next(n.value for n in module_tree(prediction).body if isinstance(n, ast.AnnAssign)
                 and isinstance(n.value, ast.Dict))
    assert isinstance(table, ast.Dict)
    found = [value for key, value in zip(table.keys, table.values, strict=True)
             if isinstance(key, ast.Constant) and key.value == name]
    return Function(script, prediction)(found[0]) if found else "null"


def instrument_script(instrument: Instrument) -> str:
    """The whole script of an instrument."""
    module = sys.modules[instrument.compute.__module__]
    script = Script(given.call_tables(instrument), given.script_twins())
    templates = Templates(script)
    figure = templates.use("instrument_figure.html",
                           {"exported": True, "yours": False, "instrument": instrument})
    named = "controls" if callable(instrument.controls) else "CONTROLS"
    controls = script.name(module, named) if instrument.controls else "[]"
    settle = script.name(module, "settle") if hasattr(module, "settle") else "(state) => state"
    parts = {"start": js_literal(asdict(instrument.settle(instrument.state()))),
             "fresh": js_literal(asdict(instrument.state())),
             "kinds": js_literal(given.field_kinds(instrument)),
             "settle": settle, "controls": controls if callable(instrument.controls) else f"() => {controls}",
             "numbers": numbers_script(instrument, script), "insight": script.name(module, "insight"),
             "measure": measure_script(instrument.name, script),
             "figure": figure, "macros": templates.use("controls.html"),
             "instrument": js_literal({"name": instrument.name})}
    head = (f"const head = formulas.head({js_literal(given.head_features())});\n" if "head." in script.text()
            else "")
    body = ",\n".join(f"{name}: {text}" for name, text in parts.items())
    return (f'"use strict";\n(() => {{\n{head}{script.text()}\n{templates.text()}\n'
            f"alive.instruments[{js_literal(instrument.name)}] = {{\n{body}\n}};\n}})();\n")

