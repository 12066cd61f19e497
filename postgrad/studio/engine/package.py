"""Pyodide's distribution as scripts of a site: checked against the sums that are pinned here, compressed, in
text, for a page that was opened from a folder may not fetch.

Starting Python and compiling what it imports take a page seconds. So both happen once, here, in Node: a page
is given the memory of a Python that waits (Pyodide's snapshot), and the files of what it has not imported.

It is no part of this package: the exporter of a site hands it in.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np

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


def waiting_memory(found: dict[str, bytes], library: bytes) -> bytes:
    """The memory of a Python that has imported the library and waits for a job."""
    node = shutil.which("node")
    if node is None:
        raise ValueError("there is no `node`, in which the engine's Python is started once: install Node.js, "
                         "which npm comes with.")
    with tempfile.TemporaryDirectory() as place:
        for name, data in (found | {"library.zip": library}).items():
            (Path(place) / name).write_bytes(data)
        done = subprocess.run([node, Path(__file__).with_name("memory.mjs"), place, json.dumps(INFO)],
                              capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"the engine's Python did not start in {node} (Node.js 20 or later runs it): "
                             f"{done.stderr[-500:].strip()}")
        return (Path(place) / "memory").read_bytes()


def without_compression(archive: bytes) -> bytes:
    """The same zip, whose files compress better as one."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as given, zipfile.ZipFile(out, "w") as made:
        for info in given.infolist():
            made.writestr(zipfile.ZipInfo(info.filename), given.read(info))
    return out.getvalue()


# characters that a string of a script cannot hold or that take more bytes there, and what stands for them
ESCAPED = {ord(char): 0x80 + i for i, char in enumerate('\0\n\r"\\')}


def packed_text(data: bytes) -> str:
    """The bytes, compressed, as a string of a script: seven bits a character, a sixth less than base64."""
    bits = np.unpackbits(np.frombuffer(gzip.compress(data, 9, mtime=0), np.uint8))
    sevens = np.packbits(np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7), axis=1) >> 1
    return f'"{sevens.tobytes().decode("ascii").translate(ESCAPED)}"'


def engine_scripts(path: Path) -> dict[str, str]:
    """File below static/engine/ -> text."""
    found, library = read_engine(path), bundle()
    # the memory has read where the files of this zip begin: a page is given the same one
    found["python_stdlib.zip"] = without_compression(found["python_stdlib.zip"])
    files = {"wasm": found["pyodide.asm.wasm"], "worker": worker_source(found).encode(),
             "stdlib": found["python_stdlib.zip"]}
    ours = {"memory": waiting_memory(found, library), "library": library}
    return {"python.js": assign(files, {"info": INFO}), "library.js": assign(ours), "LICENSE.txt": NOTICE}


def assign(files: dict[str, bytes], more: dict[str, object] | None = None) -> str:
    packed = [*(f"{name}: {packed_text(data)}" for name, data in files.items()),
              *(f"{name}: {json.dumps(value)}" for name, value in (more or {}).items())]
    return f"Object.assign(engine.files, {{{', '.join(packed)}}});\n"
