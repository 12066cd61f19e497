"""Mathematical answers: fractions, percents, roots, sets, intervals, equations, matrices.

Cheap comparison first: equal text, exact numbers, values that differ. The rest, if short and flat enough to
be a formula, goes to math-verify in the jail. A gold answer that it cannot parse raises before any training.

Stricter than math-verify on purpose: decimals are exact (0.333 is not 1/3, however long), "5%" is not 5 where
the gold answer has no percent sign, (1, 2) is not {1, 2}, x^2=x^2 says nothing. A degree sign is a unit,
which may stand in one alone. Gold answers in words are compared as text. Left out on
purpose: sums, products, integrals, limits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import error_verdict, shorten
from postgrad.rewards.format import find_marked, tidy
from postgrad.rewards.number import last_number, parse_number
from postgrad.rewards.sandbox import Jailed
from postgrad.rewards.unequal import CLOSE, OPEN, differ, is_interval, solutions
from postgrad.rewards.visible import outside_thoughts, raised_powers, visible
from postgrad.rewards.wording import split_wording, words_agree

LONGEST, DEPTH, DIGITS = 300, 4, 40  # characters, brackets in brackets, digits in a row
EXPONENT = 10_000  # of all exponents above 20 in a formula, multiplied
AT_ONCE = 16  # gold answers that are read in one call

SOURCE = r'''
from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig
from sympy import Expr, S

ENDLESS = S.ComplexInfinity, S.NaN, S.Infinity, S.NegativeInfinity
KIND = [LatexExtractionConfig()]


def read(text):
    return parse(f"${text}$", KIND, fallback_mode="no_fallback", parsing_timeout=None)


def equal(gold, answer):
    return verify(gold, answer, float_rounding=12, timeout_seconds=None)


def endless(value):
    return isinstance(value, Expr) and (value.has(*ENDLESS) or value.doit().has(*ENDLESS))


def same(gold, answer):
    wanted, got = read(gold), read(answer)
    if not wanted or any(map(endless, got)) and not any(map(endless, wanted)):
        return False if wanted else None  # a logarithm of 2/0 would equal any number
    return equal(wanted, got)


def sound(golds):
    return [bool(gold) and equal(gold, gold) for gold in map(read, golds)]
'''
WARM = r'''
for gold, answer in ((r"\frac{1}{2}", "x"), (r"\sqrt{8}", r"2\sqrt{2}"), ("[1,2)", r"(-\infty,3]\cup\{4\}"),
                     ("x=3", "3 < y"), (r"50\%", r"0.5\pi"), ("x^2+2x+1", "(x-1)^{2}"),
                     (r"\sin^2 x+\cos^2 x", "1"), ("x<3", r"(-\infty,3)"),
                     (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\text{ab}"), ("(1,2)", "3+2i"),
                     (r"\frac{a}{b}-\sqrt[3]{c}", "|x|"), (r"\log_2 8", r"\log_{2}(x)"),
                     (r"[1,\infty)", r"\{1,2,3\}"),
                     ("2x+y=1", "y=1-2x"), (r"x\le 2", "1,2,3"), (r"\{1,2\}", r"\{2,3\}")):
    same(gold, answer)
for text in (r"\cos(30^\circ)", r"60^\circ", r"\frac{5}{9}\text{ m}", r"(-\infty,0]\cup(1,\infty)",
             r"\frac{x+2}{x^2-4}", r"2+5\sqrt{7}", "y+3x=2", r"3\pi r^2",
             r"\begin{pmatrix}a&b\\c&d\end{pmatrix}", r"\frac{\ln 3}{\ln 7}", r"\log_3 7", "e^{-x}", "5-2i",
             r"(2,\frac{\pi}{3})", r"x\in(0,3]", r"0<x\le 5", r"\frac{2a^2b}{3}", r"b_n=3^{n}+1",
             r"\pm\sqrt{3}", r"\cot^2 y-1", "7!", r"\sin(x)+\tan(2x)", "|x-2|", r"(-1,-\frac{3}{2})",
             r"\{0,\frac{1}{2},x\}", r"2^{x}\cdot 3"):
    # the parser keeps what it has learnt of the grammar, which is most of the time of a first reading
    read(text)
'''
JAIL = Jailed("maths", SOURCE, package="math_verify", extra="math", warm=WARM,
              instead="use the verifier number, which compares numbers without it")

_COMMANDS = frozenset("""
frac sqrt pi infty cup cap in notin le leq ge geq ne neq lt gt times cdot div pm mp sin cos tan cot sec csc
arcsin arccos arctan sinh cosh tanh log ln exp alpha beta gamma delta epsilon theta lambda mu phi varphi
omega sigma rho tau circ text mathrm mathbf textbf mbox mathbb begin end lfloor rfloor lceil rceil lvert
rvert vert mid binom emptyset varnothing setminus overline degree
""".split())
_WORDS = frozenset("sqrt sinh cosh tanh arcsin arccos arctan".split())
_CHARACTERS = re.compile(r"[0-9A-Za-z+\-*/=<>()\[\]{}|.,:;!%^_&\\ ]*")
_NAMED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathbb|mbox|begin|end)\s?\{[^{}]*\}")
_DRESS = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])(?![a-zA-Z])|\s+")
_FRACTION = re.compile(r"([+-]?)\\frac(?:\{([+-]?[0-9.,]+)\}\{([+-]?[0-9.,]+)\}| ?([0-9]) ?([0-9]))")
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}")
_IN_WORDS = re.compile(r"[A-Za-z][A-Za-z -]{3,60}")
_LONG_DECIMAL = re.compile(r"\.[0-9]{7}")
_FACTORIALS = re.compile(r"(?<![0-9.}])(?:[0-9]{1,2}|[a-z])!(?!!)")
_BINOMIALS = re.compile(r"\\binom\{[0-9]{1,2}\}\{[0-9]{1,2}\}")


def cut_answer(text: str) -> str:
    """A text cut to LONGEST characters, the last of a cut one a sign that no formula has."""
    text = text.strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"


@functools.lru_cache(1 << 12)
def plain_formula(text: str) -> str:
    """A formula without $ and spacing, in one notation of fractions, percents and minus."""
    text = tidy(raised_powers(visible(cut_answer(text))))
    for begin, end in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("$", ""), (r"\$", "")):
        if len(text) >= len(begin + end) and text.startswith(begin) and text.endswith(end):
            text = text[len(begin): len(text) - len(end)]
    text = _DRESS.sub(" ", text).replace("\u2212", "-").replace("\u03c0", r"\pi ").replace("{,}", ",")
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text).replace(r"\%", "%")
    text = re.sub(r"(?<=[0-9]) ?(?:percent|\\text\{ ?percent\})", "%", text)
    text = re.sub(r" (?![a-zA-Z0-9])|(?<![a-zA-Z0-9,]) |(?<=,) (?![0-9]{3}(?![0-9]))", "", text).strip()
    match = _TEXT.fullmatch(text)
    return match[1].strip() if match and not re.fullmatch(r"\s*[a-zA-Z]{2,3}\s*", match[1]) else text


def exact(text: str) -> tuple[Fraction, bool] | None:
    r"""A number and whether it is a percent, "\frac{1}{2}" -> (1/2, False); None of any other plain text."""
    percent = text.endswith("%")
    text = text.removesuffix("%").removesuffix("\\")
    if match := _FRACTION.fullmatch(text):
        above, below = parse_number(match[2] or match[4]), parse_number(match[3] or match[5])
        value = above / below if above is not None and below else None
        value = -value if value is not None and match[1] == "-" else value
    else:
        value = parse_number(text if not re.match(r"[+-]?\.[0-9]", text) else text.replace(".", "0.", 1))
    return None if value is None else (value, percent)


def unfit(text: str) -> str | None:
    """Why a plain text is not handed to math-verify; None where it is."""
    if not text or len(text) > LONGEST or text.endswith("\u2026"):
        return f"more than {LONGEST} characters" if text else "nothing"
    if not _CHARACTERS.fullmatch(text) or "__" in text or "**" in text:
        return "characters that no formula has"
    bare = _NAMED.sub(" ", text)
    unknown = [name for name in re.findall(r"\\([a-zA-Z]+)", text) if name not in _COMMANDS]
    words = [word for word in re.findall(r"(?<![a-zA-Z\\])[a-zA-Z]{4,}", bare) if word not in _WORDS]
    if unknown or words:
        return f"\\{unknown[0]}" if unknown else f"the word {shorten(words[0])!r}"
    depth = deepest = 0
    for char in text:
        depth += (char in OPEN) - (char in CLOSE)
        deepest = max(deepest, depth)
    if depth or not re.search("[0-9A-Za-z]", text) or text[-1] in "^_+-*/=<>&\\":
        return "brackets that do not close" if depth else "no whole formula"
    if deepest > DEPTH or re.search(f"[0-9]{{{DIGITS + 1}}}", text):
        return f"brackets {deepest} deep" if deepest > DEPTH else "a number with too many digits"
    if re.search(r"[0-9][eE ][0-9]", text):
        return "numbers like 2e9 or 1 4"
    if (text.count("!") > len(_FACTORIALS.findall(text))
            or text.count(r"\binom") > len(_BINOMIALS.findall(text))):
        return "a factorial or a binomial of more than a small number"
    return "an exponent too large" if _steep(text) else None


def _steep(text: str) -> bool:
    """Whether a power stands on a power, or exponents multiply to over EXPONENT: (7^{999})^{999}."""
    product, exponents = 1, []
    for match in re.finditer(r"\^", text):
        rest, depth, at = text[match.end():], 0, 0
        while at < len(rest) and (depth or rest[at] not in "+-*/=<>,)}]" or at == 0):
            depth += (rest[at] in OPEN) - (rest[at] in CLOSE)
            at += 1
            if depth == 0 and rest[at - 1] in CLOSE:
                break
        exponents.append(rest[:at + (rest[at:at + 1] == "^")])  # x^{2}^{3} means nothing
    for run in re.findall("[0-9]+", " ".join(exponents)):
        product *= int(run) if int(run) > 20 else 1
    return product > EXPONENT or any("^" in exponent or "!" in exponent for exponent in exponents)


_SOUND: set[str] = set()  # gold answers that have been parsed


def check_golds(golds: Sequence[object]) -> None:
    """Raises ValueError on the first gold answer that cannot be compared."""
    JAIL.require()
    new = [gold for gold in dict.fromkeys(map(str, golds)) if gold not in _SOUND]
    hard = []
    for gold in new:
        whole = plain_formula(gold)
        text, words = split_wording(whole)
        if exact(text) is None and not _IN_WORDS.fullmatch(whole) and (text or not words):
            if why := unfit(text):
                raise _broken(gold, why)
            hard.append(gold)
    blocks = [hard[i: i + AT_ONCE] for i in range(0, len(hard), AT_ONCE)]
    calls = [("sound", [split_wording(plain_formula(gold))[0] for gold in block]) for block in blocks]
    for block, outcome in zip(blocks, JAIL.each(calls), strict=True):
        if outcome.value != [True] * len(block):
            if len(block) == 1:
                raise _broken(block[0],
                              "math-verify cannot read it" if outcome.kind == "pass" else outcome.reason)
            for gold in block:
                check_golds([gold])
        _SOUND.update(block)
    _SOUND.update(new)


def _broken(gold: str, why: str) -> ValueError:
    return ValueError(f"the gold answer {shorten(gold)!r} is no mathematical answer that can be compared "
                      f"({why}): mend it, or use the verifier text.")


@functools.lru_cache(1 << 14)
def compare_answers(gold: str, answer: str) -> Verdict:
    """1 where an answer equals a gold answer, else 0 with the reason; raises on a broken gold answer."""
    if gold not in _SOUND:
        check_golds([gold])
    wanted, got = plain_formula(gold), plain_formula(answer)
    shown = shorten(answer.strip())
    if not got:
        return Verdict(score=0.0, reason="no answer")
    if None in (exact(wanted), exact(got)) and not _IN_WORDS.fullmatch(wanted):
        (wanted, words), (got, others) = split_wording(wanted), split_wording(got)
        if not (wanted and got):
            alone = not (wanted and words or got and others)
            texts = [text or " ".join(some) for text, some in ((wanted, words), (got.strip("()"), others))]
            return _verdict(alone and texts[0].casefold() == texts[1].casefold(), shown)
        if not words_agree(words, others):
            has, asked = (" ".join(some) or "nothing" for some in (others, words))
            return Verdict(score=0.0, reason=f"{shown!r} says {has} beside the formula, not {asked}")
    return _compare_formulas(wanted, got, shown)


def _verdict(right: bool, shown: str) -> Verdict:
    return Verdict(score=float(right), reason=f"{shown} is {'' if right else 'not '}the answer")


def _compare_formulas(wanted: str, got: str, shown: str) -> Verdict:
    """Compares plain formulas without words as numbers, as text, by value, by math-verify."""
    if (gold := exact(wanted)) and (answer := exact(got)):
        (gold_number, gold_percent), (number, percent) = gold, answer
        same = gold_number * 100**percent == number * 100**gold_percent
        return _verdict(same or gold_percent and number == gold_number, shown)
    if _IN_WORDS.fullmatch(wanted):
        return _verdict(wanted.casefold() == got.casefold(), shown)
    if _LONG_DECIMAL.search(got) and not _LONG_DECIMAL.search(wanted):
        return Verdict(score=0.0, reason=f"{shown!r} is a rounded number")
    if "=" in got and "=" not in wanted and len(set(got.split("="))) == 1:
        return Verdict(score=0.0, reason=f"{shown!r} says nothing")
    if why := unfit(got):
        return Verdict(score=0.0, reason=f"{shown!r} is no formula: {why}")
    if (listed := solutions(got)) != got and ("=" not in wanted or solutions(wanted) != wanted):
        return _compare_formulas(solutions(wanted), listed, shown)
    if wanted == got or differ(wanted, got):
        return _verdict(wanted == got, shown)
    swapped = is_interval(wanted) and not is_interval(got)  # x<3: math-verify wants the interval second
    outcome = JAIL("same", got, wanted) if swapped else JAIL("same", wanted, got)
    if outcome.kind == "infrastructure" or (outcome.kind == "pass" and outcome.value is None and not swapped):
        return error_verdict(outcome.reason or "math-verify lost the gold answer")
    if outcome.kind != "pass":
        return Verdict(score=0.0, reason=f"{shown!r}: {outcome.reason}")
    return _verdict(outcome.value is True, shown)


def read_loosely(text: str, gold: str) -> str | None:
    """The last $...$ of a text, else, where the gold answer is a number, its last number; else None."""
    pieces = text[-2000:].split("$")
    if len(pieces) >= 3 and pieces[-2].strip():
        return pieces[-2]
    return last_number(text) if exact(plain_formula(gold)) else None


def read_strict(text: str) -> str:
    """The answer that a reply marks, or else all that it says outside thoughts and comments."""
    marked = find_marked(text)
    return outside_thoughts(visible(text)).strip() if marked is None else marked


def judge_maths(prompt: Prompt, text: str) -> Verdict:
    """1 when the marked answer (`find_marked`) equals the gold answer; leniently, the last formula."""
    gold, answer = str(prompt.answer), read_strict(text)
    strict = compare_answers(gold, cut_answer(answer))
    loose = None if strict.score or strict.error else read_loosely(answer, gold)
    lenient = strict.score if loose is None else compare_answers(gold, cut_answer(loose)).score
    return replace(strict, parts={"correct": strict.score, "lenient": lenient})
