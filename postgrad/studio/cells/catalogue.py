"""Which functions can be edited, their source as it stands in the file,
and the sentences of their invariants.

Read with `ast`, so that a page of cells needs no torch.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postgrad.system.user_code import parse_source

HOME = Path(__file__).parent.parent.parent.parent  # the folder that holds the package


@dataclass(frozen=True, kw_only=True)
class CodeCell:
    """names: the functions shown, of one module; the last one is what the invariants look at. demo: lines
    that are run after them: what they print, and what they `plot(x, y)`, stands beneath."""

    name: str
    title: str
    claim: str      # one sentence: what there is to discover by breaking it
    module: str
    names: tuple[str, ...]
    demo: str = ""

    @property
    def function(self) -> str:
        return f"{self.module}.{self.names[-1]}"

    @property
    def path(self) -> str:
        return f"{self.module.replace('.', '/')}.py"

    @property
    def line(self) -> int:
        return functions_of(self.path)[self.names[0]][1]

    @property
    def source(self) -> str:
        return "\n\n\n".join([*(functions_of(self.path)[name][0] for name in self.names),
                              *([self.demo] if self.demo else [])])

    @property
    def checks(self) -> tuple[tuple[str, str], ...]:
        """(name, sentence) of each invariant."""
        return check_sentences()[self.name]


RECOVER = """true = [2.0, 1.0, 0.0, -1.0]
counts = [20, 50, 100, 200, 400, 600]
found = [recovered_rewards(true, count) for count in counts]
for count, rewards in zip(counts, found):
    print(count, [round(r, 2) for r in rewards])
plot(counts, *zip(*found))"""
CLIPPED = """ratios = [i / 20 for i in range(2, 61)]
plot(ratios, *clipped_and_raw(ratios, 1.0, 0.2))"""
TOKENS = """logp, ref_logp = [-0.5, -1.0, -0.2, -0.4], [-0.9, -0.8, -0.2, -2.4]
paid = [rewards_per_token(logp, ref_logp, 1.0, beta) for beta in (0.0, 0.1, 0.5)]
for rewards in paid:
    print([round(r, 2) for r in rewards], "sum", round(sum(rewards), 2))
plot(range(1, 5), *paid)"""
WHOLE = """chances, old = [i / 50 for i in range(10, 50)], [0.5, 0.3, 0.2]
terms = [ppo_loss([p, 0.6 * (1 - p), 0.4 * (1 - p)], old, 1.0, value=0.7, old_value=0.6, returns=1.0,
                  entropy_weight=0.2) for p in chances]
for p, parts in list(zip(chances, terms))[5::10]:
    print(p, [round(x, 3) for x in parts], "sum", round(sum(parts), 3))
plot(chances, *zip(*terms), [sum(parts) for parts in terms])"""
SHARPENED = """start, rewards = [0.3, 0.2, 0.5], [1.0, 1.0, 0.0]
for beta in (0.0, 0.2):
    path = sharpened(start, rewards, beta, 1000)[::10]
    print(beta, [round(p, 3) for p in path[-1]])
    plot([10 * i for i in range(len(path))], *zip(*path))"""
SIMPLIFIED = """start, rewards = [0.3, 0.5, 0.2], [1.0, 0.0, 0.0]
for group in (2, 8, 32):
    path = simplified(start, rewards, group, 100, 0.5)
    print(group, [round(p, 2) for p in path[::20]])
    plot(range(len(path)), path)"""
COVERED = """chances, sizes = [0.05, 0.2, 0.9], [1, 2, 4, 8]
held = [[interval_coverage(chances, 40, n, by_problem) for n in sizes] for by_problem in (True, False)]
for by, row in zip(("by problem", "by sample"), held):
    print(by, row)
plot(sizes, *held)"""
PATHS = """paths = [on_path(0.02, recovers, 100) for recovers in (0.0, 0.1, 0.5)]
for path in paths:
    print([round(x, 2) for x in path[9::30]])
plot(range(1, 101), *paths)"""
STALLED = """bonuses = [i / 20 for i in range(13)]
solve, stall = zip(*(plan_returns(bonus, turns=4, finds=0.4) for bonus in bonuses))
for bonus, a, b in list(zip(bonuses, solve, stall))[::3]:
    print(bonus, "solve", round(a, 2), "stall", round(b, 2))
plot(bonuses, solve, stall)"""

CELLS = {cell.name: cell for cell in (
    CodeCell(name="bradley-terry", title="Bradley–Terry", module="postgrad.maths.preference",
             names=("bradley_terry",), claim="Drop the minus sign, or the margin, and see which "
                                             "promises go with it."),
    CodeCell(name="dpo", title="DPO", module="postgrad.maths.preference", names=("dpo",),
             claim="One line: Bradley–Terry on log-ratios. Swap the two and watch the gradients turn round."),
    CodeCell(name="ipo", title="IPO", module="postgrad.maths.preference", names=("ipo",),
             claim="A target for the gap. Take the square away and there is no longer a place to stop."),
    CodeCell(name="group-zscore", title="Group z-score", module="postgrad.maths.credit",
             names=("group_zscore",),
             claim="Leave out the clamp and a group of equals divides by zero; leave out the division and "
                   "it is Dr. GRPO."),
    CodeCell(name="leave-one-out", title="Leave one out", module="postgrad.maths.credit",
             names=("leave_one_out",), claim="Without G/(G−1) each answer stands in its own baseline."),
    CodeCell(name="gae", title="Generalised advantage estimation", module="postgrad.maths.credit",
             names=("gae",),
             claim="One backward walk over the tokens. Forget the mask and a tool’s reply is praised."),
    CodeCell(name="clip", title="PPO’s clip", module="postgrad.maths.surrogate",
             names=("_clip", "clipped_ratio"),
             claim="Replace the minimum by the clipped term alone: the way back closes."),
    CodeCell(name="k3", title="The k3 estimator", module="postgrad.maths.kl", names=("k3",),
             claim="Turn the sign of d round and the mean is no longer the KL."),
    CodeCell(name="logp", title="Log-probability of tokens", module="postgrad.maths.logprob",
             names=("align", "logp_of_logits"),
             claim="The one next-token shift of the project. Take it out and "
                                                  "every token predicts itself."),
    CodeCell(name="sequence-mean", title="Mean of sequence means", module="postgrad.maths.weights",
             names=("sequence_mean",),
             claim="Normalisation as data: make every token count the same, and the "
                                         "long row wins."),
    CodeCell(name="pass-at-k", title="pass@k", module="postgrad.maths.passk", names=("pass_at_k",),
             claim="Try 1 − (1 − c/n)^k, as many do: it is biased."),
    CodeCell(name="recover", title="Rewards from comparisons", module="postgrad.studio.book.worked",
             names=("comparisons", "recovered_rewards"),
             claim="Nothing but who beat whom goes in. Change the number of "
                                                   "comparisons, or the noise.",
             demo=RECOVER),
    CodeCell(name="clip-plot", title="Clipped against raw", module="postgrad.studio.book.worked",
             names=("clipped_and_raw",), claim="Change the advantage’s sign, or the clip, and look at where "
                                               "it is flat.", demo=CLIPPED),
    CodeCell(name="token-reward", title="The reward of a token", module="postgrad.studio.book.worked",
             names=("rewards_per_token",),
             claim="Raise beta, or make the last token rarer in the reference: the "
                                             "score stays on the last token, the price is paid on each.",
             demo=TOKENS),
    CodeCell(name="ppo-loss", title="PPO’s whole loss", module="postgrad.studio.book.worked",
             names=("ppo_loss",),
             claim="Three terms and their sum, as the sampled token becomes likelier. Take "
                                    "the entropy’s weight away, or move the value past its clip.",
             demo=WHOLE),
    CodeCell(name="sharpen", title="The rich get richer", module="postgrad.studio.book.worked",
             names=("sharpened",),
             claim="Two answers are equally right, and one of them takes over. Raise beta, "
                                     "and both stay.", demo=SHARPENED),
    CodeCell(name="simplified", title="GRPO with nearly all taken away", module="postgrad.studio.book.worked",
             names=("simplified",), claim="Sample, reward, centre, one step. Take the centring out, or try a "
                                          "rate of 50.", demo=SIMPLIFIED),
    CodeCell(name="coverage", title="An interval that keeps its word", module="postgrad.studio.book.worked",
             names=("interval_coverage",),
             claim="A 95 % interval should hold the truth in 95 of 100 evaluations. Count each sample as a "
                   "problem of its own, and it does not.", demo=COVERED),
    CodeCell(name="on-path", title="Off the teacher’s path", module="postgrad.studio.book.worked",
             names=("on_path",), claim="Small slips add up unless the student has learned to find back. "
                                       "Change the slip, and the chance to recover.", demo=PATHS),
    CodeCell(name="truncated", title="Truncated importance weights", module="postgrad.maths.correction",
             names=("truncated",), claim="One ratio, cut at a limit. Leave the limit out, or turn the ratio "
                                         "round."),
    CodeCell(name="turn-bonus", title="A bonus for every turn", module="postgrad.studio.book.worked",
             names=("plan_returns",), claim="Pay a little for each good turn, and at some size of the bonus "
                                            "it pays not to finish. Take it back at the end.", demo=STALLED),
)}


@cache
def functions_of(path: str) -> dict[str, tuple[str, int]]:
    """The source and first line of each function of a file, as they stand there."""
    text = (HOME / path).read_text(encoding="utf-8")
    lines = text.split("\n")
    return {node.name: ("\n".join(lines[node.lineno - 1: node.end_lineno]), node.lineno)
            for node in parse_source(text).body if isinstance(node, ast.FunctionDef)}


@cache
def check_sentences() -> dict[str, tuple[tuple[str, str], ...]]:
    """{cell: ((check, sentence), ...)} from the decorators and docstrings of the files in checks/."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for path in sorted((Path(__file__).parent / "checks").glob("*.py")):
        for node in parse_source(path.read_text(encoding="utf-8")).body:
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                assert isinstance(mark, ast.Call) and isinstance(node, ast.FunctionDef)
                cell = ast.literal_eval(mark.args[0])
                found[cell] = (*found.get(cell, ()), (node.name, typeset(ast.get_docstring(node) or "")))
    return found


def typeset(text: str) -> str:
    """Typed signs as printed ones, on one line: a true minus, a curved apostrophe."""
    return re.sub(r"(?<=[ (=])-(?=[\dP(]| )", "−", " ".join(text.split())).replace("'", "’")
