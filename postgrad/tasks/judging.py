"""The judges that tasks share: one per process for each set of packages, however many tasks and threads ask for it."""

from __future__ import annotations

import atexit
import threading

from postgrad.rewards.sandbox import Judge

_LOCK, _STARTED = threading.Lock(), {}


def shared_judge(*packages: str, memory: int = 512 << 20) -> Judge:
    """The judge whose code may import these packages: started when first asked for, closed when the process ends."""
    with _LOCK:
        if packages not in _STARTED:
            _STARTED[packages] = Judge(memory=memory, packages=packages)
            atexit.register(_STARTED[packages].close)
        return _STARTED[packages]
