"""A run's samples as a script: static/alive/samples.js of an export, which answers the scrubber and the
choice of a group, of a sample and of a colour as the server does. The rows of every step are in the
run's page."""

from __future__ import annotations

from postgrad.runs import number
from postgrad.studio.runs import samples
from postgrad.studio.script.expressions import js_literal
from postgrad.studio.script.python import Script
from postgrad.studio.script.template import Templates


def samples_script() -> str:
    # the texts were cleaned when the page was made
    script = Script(twins={samples.safe_text: "py.str", number: "py.number"})
    templates = Templates(script)
    panel, figure = script.name(samples, "step_panel"), templates.use("runs/samples.html", {"exported": True})
    return (f'"use strict";\n(() => {{\n{script.text()}\n{templates.text()}\n'
            f"alive.samples({panel}, {figure}, {js_literal(list(samples.COLOURS))});\n}})();\n")
