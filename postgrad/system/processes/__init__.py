"""The ranks that torchrun starts, and the collectives between them.

Every collective is named and has a timeout (POSTGRAD_TIMEOUT, in seconds). On a timeout the error names the
ranks that are dead or late. Ranks trust one another: they exchange Python objects.
"""

from postgrad.system.processes.group import (
    agreed,
    check_others,
    gather,
    join_ranks,
    leads,
    leave,
    rank,
    says_first,
    started,
    tell_end,
    tell_left,
    too_few_gpus,
    world,
)
from postgrad.system.processes.missing import Lost

__all__ = ["Lost", "agreed", "check_others", "gather", "join_ranks", "leads", "leave", "rank", "says_first",
           "started", "tell_end", "tell_left", "too_few_gpus", "world"]
