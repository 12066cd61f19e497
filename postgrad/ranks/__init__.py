"""The processes of a run that torchrun starts side by side (ranks), what each of them does, and what they
tell one another.

Work is dealt to lanes, and lanes to ranks: item i belongs to lane i mod L, lane k to rank k mod world. What
is added up is added within a lane in order, then lane after lane, so the bits of a result depend on L and not
on the number of ranks. L is saved with the run. One process alone goes through all lanes by itself, and with
one lane does what it would do without any.

Every wait of one rank for the others is named, has a limit (POSTGRAD_TIMEOUT, in seconds), and ends with a
sentence that says who is gone or late. Ranks trust one another: they exchange Python objects.
"""

from postgrad.ranks.group import (
    agreed,
    check_others,
    gather,
    join,
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
from postgrad.ranks.lanes import ALONE, Lanes, lanes
from postgrad.ranks.missing import Lost

__all__ = ["ALONE", "Lanes", "Lost", "agreed", "check_others", "gather", "join", "lanes", "leads", "leave",
           "rank", "says_first", "started", "tell_end", "tell_left", "too_few_gpus", "world"]
