"""How the threads of OpenMP wait for one another; called before torch is imported, which reads it once.

By default a thread that has nothing to do spins. Where another process has the core of the thread that is
waited for, spinning takes the time that this one needs: a step of SFT on two cores beside two busy processes
took 5.4 s spinning and 0.8 s asleep, and 0.6 s either way on a machine with nothing else to do. The division
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
