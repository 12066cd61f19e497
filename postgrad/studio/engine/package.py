"""Pyodide's distribution as scripts of a site: checked against the sums that are pinned here, compressed, in
text, for a page that was opened from a folder may not fetch.

It is no part of this package: whoever exports a site hands it in.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

from postgrad.studio.engine.bundle import bundle
from postgrad.studio.pages import STATIC

VERSION = "314.0.7"
INFO = {"abi_version": "2026_0", "arch": "wasm32", "platform": "emscripten_5_0_3", "python": "3.14.2"}
SUMS = {
    "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
    "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
    "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
    "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
}
FETCH = f"`npm pack pyodide@{VERSION}` writes the file that it takes"
NOTICE = f"""Pyodide {VERSION}, Mozilla Public License 2.0: https://github.com/pyodide/pyodide
It holds CPython, Python Software Foundation License: https://www.python.org
Packed as text; what makes its two scripts modules (`export`, `import.meta`) is taken out, nothing else.
"""


def read_engine(path: Path) -> dict[str, bytes]:
    """The files of a package or of its folder; ValueError for what is none, or another version."""
    try:
        if path.is_dir():
            folder = next((p for p in (path, path / "package") if (p / "pyodide.mjs").is_file()), path)
            found = {name: (folder / name).read_bytes() for name in SUMS}
        else:
            with tarfile.open(path) as archive:
                found = {name: member(archive, f"package/{name}") for name in SUMS}
    except (OSError, KeyError, tarfile.TarError) as fault:
        raise ValueError(f"{path} is not the package `pyodide`, or not whole ({type(fault).__name__}); "
                         f"{FETCH}.") from fault
    wrong = [name for name, text in found.items() if hashlib.sha256(text).hexdigest() != SUMS[name]]
    if wrong:
        raise ValueError(f"{path} is not Pyodide {VERSION}: {wrong[0]} has another sha256; {FETCH}.")
    return found


def member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


def worker_source(found: dict[str, bytes]) -> str:
    """The worker as one plain script: a page that was opened from a folder may start no other."""
    module = found["pyodide.asm.mjs"].decode().replace(
        "export default _createPyodideModule;", "return _createPyodideModule;").replace(
        "import.meta.url", "self.location.href")
    loader = re.sub(r"export\{(\w+) as loadPyodide[^}]*\};?", r"return \1;", found["pyodide.mjs"].decode())
    begin = (STATIC / "engine-worker.js").read_text(encoding="utf-8")
    # by importScripts Pyodide tells a plain worker, which it refuses, for it would load modules
    return ("self.importScripts = () => { throw new Error(); };\n"
            f"const createPyodideModule = (() => {{ {module}\n }})();\n"
            f"const loadPyodide = (() => {{ {loader}\n }})();\n{begin}")


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def engine_scripts(path: Path) -> dict[str, str]:
    """File below static/engine/ -> text."""
    found = read_engine(path)
    squeeze: Callable[[bytes], bytes] = lambda data: gzip.compress(data, 9, mtime=0)  # noqa: E731
    files = {"wasm": squeeze(found["pyodide.asm.wasm"]), "worker": squeeze(worker_source(found).encode()),
             "stdlib": found["python_stdlib.zip"]}
    python = {name: base64_text(data) for name, data in files.items()} | {"info": json.dumps(INFO)}
    return {"python.js": assign(python), "library.js": assign({"library": base64_text(bundle())}),
            "LICENSE.txt": NOTICE}


def assign(files: dict[str, str]) -> str:
    return f"Object.assign(engine.files, {json.dumps(files)});\n"
