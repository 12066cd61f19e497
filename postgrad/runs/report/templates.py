"""A template filled in and written: the markup of every page of this package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from postgrad.system.files import write_text


def write_page(path: str | Path, template: str, **values: object) -> Path:
    """Writes the page at one stroke and returns its path. Values are untrusted text and stay text."""
    import jinja2  # here, so that reading a run's figures needs nothing beyond the standard library

    home = files("postgrad.runs.report")
    strict = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                undefined=jinja2.StrictUndefined,
                                loader=jinja2.FunctionLoader(lambda name: (home / name).read_text("utf-8")))
    html = strict.get_template(template).render(**values)
    write_text(Path(path), html.encode("utf-8", "replace").decode())
    return Path(path)
