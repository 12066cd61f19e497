"""What the studio is made of: versions, licences, what is served from where."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad import __version__
from postgrad.studio.pages import STATIC, page

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "starlette", "uvicorn", "jinja2", "markdown-it-py")


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def about(request: Request) -> Response:
    vendored = json.loads((STATIC / "vendor" / "VENDOR.json").read_text())
    size = sum(p.stat().st_size for p in STATIC.rglob("*") if p.is_file())
    versions = [("postgrad", __version__), ("Python", platform.python_version()),
                *((name, found) for name in PACKAGES if (found := installed(name)))]
    return page(request, "about.html", versions=versions, vendored=vendored, size=size,
                state=request.app.state)


routes = [Route("/about", about, name="about")]
