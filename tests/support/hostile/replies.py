"""Replies that no reader expects, by a seed: runs, nests, soups of marks, spoilt golds, odd characters."""

from __future__ import annotations

import random
from collections.abc import Iterator

PIECES = (
    "|", "(", ")", "[", "]", "{", "}", r"\frac{", r"\sqrt{", r"\left(", r"\{", "-", "+", "^", "^{", "_",
    "!", "*", "/", "$", "$$", "%", ",", ".", "?", ":", ";", "=", "<", ">", "<<", ">>", "&", "#", "####",
    "~", "`", "```", "```python\n", "```\n", "\\", "\\\\", '"', '\\"', "'", "[x", "[x]", "9", "0", "1,",
    "1/", "1.", "2e", "x", "a ", "A. ", "the ", "der ", "is it? ", "\n", "\r\n", "\n\n", "\n \n", " ", "\t",
    "\x00", "\x1f", "\x85", "\u2028", "\u202e", "\u200b", "\ufeff", "\ud800", "\udfff", "\u0661", "\uff17",
    "\xb2", "\u2212", "\u221e", "\xbd", "\u4f60", "e\u0301", "\U0001f600", "\U0001d7d5", r"\boxed{",
    r"\boxed", "answer is ", "Answer: ", "the answer is **", "**", "__", "<answer>", "</answer>", "<think>",
    "</think>", "* x\n", "- ", "# ", "[1,", '{"a":', "null", "true ", r"\text{", r"\begin{pmatrix}",
    r"\cup", r"\infty", r"\in", "x=", "1=", r"\le", " or ", " and ", "cm ", "a.m. ", "base 3", "_{3}",
    "def f(x):\n", "import os\n", "    return x\n", "assert ", "lambda: ", "9**9", "__import__('os')",
    r"\1", "(?:",
)
LENGTHS = (1, 1, 1, 2, 2, 3, 5, 8, 20, 60, 250, 300, 1000, 2000)
ATOMS = ("0", "1", "2", "7", "12", "0.5", "x", "y", r"\pi", r"\infty", "100", "x^2", "-3", "1/3",
         r"\text{ cm}")
TREES = (r"\frac{%s}{%s}", "%s+%s", "%s-%s", r"%s \cdot %s", "(%s)^{2}", r"\sqrt{%s}", r"\left(%s\right)",
         "%s^{%s}", r"\sin(%s)", r"\log_{2}(%s)", "|%s|", r"\{%s, %s\}", "[%s, %s)", "%s = %s", r"%s \le %s",
         "-%s", r"\binom{%s}{%s}", "%s!", "%s,%s")
DRESSES = ("{}", "{}", r"\boxed{{}}", "<answer>{}</answer>", "<think>a</think><answer>{}</answer>",
           "so\n#### {}", "$${}$$", "The answer is {}.", "Answer: **{}**", "```python\n{}\n```", '{"a":"{}"}',
           "so <answer>{}</answer>, I think")


BRACKETS = (("(", ")"), ("{", "}"), ("[", "]"), ("|", "|"), (r"\sqrt{", "}"), (r"\frac{1}{", "}"),
            ("-(", ")"), ('{"a":', "}"), ("<think>", "</think>"), (r"\text{", "}"), (r"\boxed{", "}"),
            ("x^{", "}"))
MARKS = ("```", "```python", r"\boxed{", "<answer>", "<think>", "#### ", "The answer is ", "$", '"',
         '{"a": "', "<<", "[")


def run(rng: random.Random) -> str:
    """One piece over and over, and an end that may be a number."""
    piece = rng.choice(PIECES)
    many = min(rng.choice(LENGTHS), 1 + 20_000 // len(piece))
    return piece * many + rng.choice(("", "5", "}", ")", "x", " ", "72"))


def soup(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.choice(LENGTHS[:11])))


def nest(rng: random.Random) -> str:
    begin, end = rng.choice(BRACKETS)
    deep = rng.choice(LENGTHS)
    return begin * deep + rng.choice(("1", "", "x")) + end * rng.choice((deep, deep - 1, 0, deep + 1))


def formula(rng: random.Random, depth: int | None = None) -> str:
    depth = rng.choice((1, 2, 3, 4)) if depth is None else depth
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(ATOMS)
    tree = rng.choice(TREES)
    return tree % tuple(formula(rng, depth - 1) for _ in range(tree.count("%s")))


def signs(rng: random.Random) -> str:
    """Any characters that there are, half a surrogate pair among them."""
    most = rng.choice((128, 0x3000, 0x110000))
    return "".join(chr(rng.randrange(most)) for _ in range(rng.choice(LENGTHS[:11])))


def spoilt(rng: random.Random, gold: str) -> str:
    """A gold reply with a few places changed, cut out or doubled. It may still be right."""
    for _ in range(rng.choice((1, 2, 4))):
        at, to = sorted((rng.randrange(len(gold) + 1), rng.randrange(len(gold) + 1)))
        gold = rng.choice((gold[:at] + gold[to:], gold[:to] + gold[at:], gold[at:] + gold[:at],
                           gold[:at] + rng.choice(PIECES) + gold[at:]))
    return gold[:20_000]


KINDS = {"run": run, "soup": soup, "nest": nest, "formula": formula, "signs": signs}


def replies(seed: int, golds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(kind, reply) without end. Only those of the kind "spoilt" may hold what is asked for."""
    rng, kinds = random.Random(f"replies/{seed}"), list(KINDS)
    while True:
        for kind in kinds:
            yield kind, rng.choice(DRESSES).replace("{}", KINDS[kind](rng), 1)
        yield "spoilt", spoilt(rng, rng.choice(golds))


def longest(length: int) -> Iterator[tuple[str, str]]:
    """(what, reply) of a length: every piece over and over, behind every mark that a reader looks for."""
    for piece in PIECES:
        yield piece, (piece * (length // len(piece) + 1))[:length]
    for mark in MARKS:
        for piece in (" ", ".", "x", "*", "9", "\\", "(", "\U0001f600", "a b. ", ", ", "**"):
            yield mark + piece, (mark + piece * (length // len(piece) + 1))[:length]
