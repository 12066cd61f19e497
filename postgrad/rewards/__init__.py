"""Verifiers: a family a file.

A verifier is total (bad model text scores low, with a reason); broken gold raises.

base        verdict arithmetic, and `check`: a verifier proves itself on gold before any training
format      <think>...</think><answer>...</answer>, \\boxed{...}, "#### 5": the answer in a reply
number      exact numbers
maths       formulas: cheap comparison (estimate: values; unequal: what cannot be equal), math-verify behind
            it in a jail
text        a pattern that is found, a length, a language         schema   JSON, with or without a schema
constraints rules on the form of a reply, in the manner of IFEval
named       verifiers by name, and weighted sums: "number+0.2*think"
function    a user's functions, TRL's kind too                    parallel a batch in threads, where it waits
grader      a chat model that is asked how good a reply is        model    reward models
remote_judge   the same behind an address; rubrics item by item, rankings
expression  + - * / ( ) over integers, parsed and evaluated here; nothing is ever handed to eval
code        programs that pass tests: MBPP, HumanEval, your own asserts
jailed      trusted functions on a model's text, in the sandbox
sandbox     the jail that code of others runs in, and the judge of two processes
constitution, judges   rules in words with checks as data; which of two replies keeps them better, and how to
                       repair one
"""

from postgrad.rewards.base import check_verifier, weighted
from postgrad.rewards.format import extract_answer, find_answer, think_answer
from postgrad.rewards.number import exact_number, last_number, parse_number

__all__ = ["check_verifier", "exact_number", "extract_answer", "find_answer", "last_number", "parse_number",
           "think_answer", "weighted"]
