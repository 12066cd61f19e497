"""What an export needs in place of a server: instruments and samples as scripts, made of the Python and the
templates that the server uses, so that both say the same."""

from __future__ import annotations

from pathlib import Path

from postgrad.studio.script import instruments


def scripts(runs: Path) -> dict[str, str]:
    """File below static/alive/ -> script."""
    return {f"{name}.js": text for name, text in instruments.scripts().items()}
