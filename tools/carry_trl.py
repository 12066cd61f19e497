"""Makes scratch_trl/: TRL and what it imports beyond torch, transformers and accelerate, for a machine where
nothing can be installed (Python 3.12, x86-64 Linux).

    python tools/carry_trl.py [FOLDER]      downloads about 70 MB, leaves FOLDER and FOLDER.tar.xz
    PYTHONPATH=FOLDER/site-packages python bench/h200.py ...

The packages are the real ones (`datasets` and pyarrow too), cut down to what the trainers import: no tests,
headers, sources, Flight or S3, and without debugging symbols. The folder inside is called site-packages
because dill, which `datasets` hashes functions with, takes only what lies in such a folder for a library.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("trl==1.16.0", "datasets==5.2.0", "pyarrow", "pandas", "dill", "multiprocess", "xxhash",
            "python-dateutil", "six")
UNUSED = ("**/tests", "pyarrow/include", "pyarrow/includes", "pyarrow/src", "pyarrow/**/*.pyx",
          "pyarrow/**/*.pxd", "pyarrow/**/*.pxi", "pyarrow/**/*.h", "pyarrow/libarrow_flight*",
          "pyarrow/libarrow_python_flight*", "pyarrow/_flight*", "pyarrow/_substrait*",
          "pyarrow/libarrow_s3*", "pyarrow/_s3fs*", "pyarrow/_parquet_encryption*",
          "pyarrow/libarrow_python_parquet*", "pyarrow/_orc*")


def unpack(inside: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.12",
                        "--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", "--no-deps", "-d",
                        wheels, *PACKAGES], check=True)
        for wheel in sorted(Path(wheels).glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(inside)


def cut(inside: Path) -> None:
    for pattern in UNUSED:
        for path in inside.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for library in inside.glob("**/*.so*"):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)


def pack(folder: Path) -> None:
    packed = folder.with_name(folder.name + ".tar.xz")
    with tarfile.open(packed, "w:xz", preset=4) as file:
        file.add(folder, arcname=folder.name,
                 filter=lambda entry: None if "__pycache__" in entry.name else entry)
    size = sum(p.stat().st_size for p in folder.glob("**/*") if p.is_file())
    print(f"{folder}: {size / 2**20:.0f} MiB; {packed}: {packed.stat().st_size / 2**20:.1f} MiB")


def main(folder: Path) -> None:
    if folder.exists():
        raise SystemExit(f"{folder} is there already: move it away first.")
    unpack(folder / "site-packages")
    cut(folder / "site-packages")
    pack(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "scratch_trl"))
