"""The sandbox for untrusted code: a jail, a judge of two processes, a pool of workers.

jail     Landlock, seccomp, no capabilities, rlimits    child     the zygote, the candidate and the tester
codec    plain values as bytes                          worker    the parent's side of a zygote
judge    Suite, CodeJob, Call, Outcome, CodeJudge       selftest  attacks at start-up; refuses where one works
"""

from postgrad.rewards.sandbox.judge import Call, CodeJob, CodeJudge, Jailed, Outcome, Suite
from postgrad.rewards.sandbox.selftest import require, tier

__all__ = ["Call", "CodeJob", "CodeJudge", "Jailed", "Outcome", "Suite", "require", "tier"]
