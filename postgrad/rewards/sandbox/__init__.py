"""Where code of others runs: a jail, a judge of two processes, and a pool of workers.

See each file's own words.

jail     Landlock, seccomp, no capabilities, rlimits        child   the zygote, the candidate and the tester
codec    plain values as bytes                              worker  a zygote and its channels, seen from our
                                                                    side
judge    Suite, Job, Call, Outcome, CodeJudge                   selftest  attacks at start-up, and the refusal
                                                                      where it fails
"""

from postgrad.rewards.sandbox.judge import Call, CodeJob, CodeJudge, Jailed, Outcome, Suite
from postgrad.rewards.sandbox.selftest import require, tier

__all__ = ["Call", "CodeJob", "CodeJudge", "Jailed", "Outcome", "Suite", "require", "tier"]
