"""Makes `tiny-zero`, the base of R1-Zero, and its control, side by side on one GPU in about five minutes.

    python tools/make_zero.py train OUT     train both from nothing: OUT/zero and OUT/control, each a model
                                            (float32) with its log
    python tools/make_zero.py pack OUT      write models/embedded/tiny-zero from OUT/zero: bfloat16 weights,
                                            and origin.json

The control reads the same text without chains that look back. It is not shipped:
`python proofs/reasoning.py rates models=OUT/zero,OUT/control` measures both.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from make_tiny import made, write

from postgrad.models.load import EMBEDDED
from postgrad.recipes import pretrain

SETTINGS = {"zero": pretrain.zero, "control": pretrain.control}


def train(out: Path, device: str = "cuda") -> None:
    """Both at once, each in a process of its own."""
    out.mkdir(parents=True, exist_ok=True)
    both = []
    for name in SETTINGS:
        with (out / f"{name}.log").open("w") as log:
            both.append(subprocess.Popen([sys.executable, __file__, name, str(out), device], stdout=log,
                                         stderr=subprocess.STDOUT))
    failed = [name for name, process in zip(SETTINGS, both, strict=True) if process.wait()]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see {', '.join(str(out / f'{name}.log') for name in failed)}")


def one(name: str, out: Path, device: str) -> None:
    made(replace(SETTINGS[name](), device=device, workers=8), out / name, out.parent / f"{name}-run",
         "python tools/make_zero.py train OUT")


def pack(out: Path) -> None:
    write(out / "zero", out / "zero", EMBEDDED["tiny"].parent / "tiny-zero",
          "python tools/make_zero.py train OUT, then pack OUT", "one NVIDIA H200")


if __name__ == "__main__":
    command, out, *rest = sys.argv[1:]
    if command in SETTINGS:
        one(command, Path(out), *rest)
    else:
        {"train": train, "pack": pack}[command](Path(out), *rest)
