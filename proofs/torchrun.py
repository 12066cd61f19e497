"""torchrun for the proofs: ranks on this machine, with one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "tests/support")]

from ranks_launch import free_port  # noqa: E402

ENV = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}


def torchrun(*args: str, world: int = 2, env: dict | None = None, **how) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port",
               str(free_port()), *args]
    return subprocess.Popen(command, env=env or ENV, text=True, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, **how)
