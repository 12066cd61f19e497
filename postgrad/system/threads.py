"""How the threads of OpenMP wait for one another; called before torch is imported, which reads it once.

By default a thread that has nothing to do spins. Where another process has the core of the thread that is
waited for, spinning takes the time that this one needs, and a step takes several times as long. The division
of the work, and so every bit of the result, is the same.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

CHOSEN_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def sleep_when_waiting(environment: MutableMapping[str, str] = os.environ) -> None:
    """OMP_WAIT_POLICY=PASSIVE, unless the user has chosen how threads wait."""
    if not any(name in environment for name in CHOSEN_BY_USER):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
