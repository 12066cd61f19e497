"""What an export needs in place of a server: instruments and samples as scripts, made of the Python and the
templates that the server uses, so that both say the same."""

from __future__ import annotations

from postgrad.studio.instruments import INSTRUMENTS
from postgrad.studio.script.cells import cells_script, editor_script
from postgrad.studio.script.instruments import instrument_script
from postgrad.studio.script.samples import samples_script


def export_scripts(*, engine: bool = False) -> dict[str, str]:
    """File below static/alive/ -> script. engine: those of cells and exercises too, which need one."""
    runs = {"cells.js": cells_script(), "editor.js": editor_script()} if engine else {}
    return {f"{name}.js": instrument_script(one) for name, one in INSTRUMENTS.items()} | {
        "samples.js": samples_script()} | runs
