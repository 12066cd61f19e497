"""Verifiers by name, and weighted sums: "maths", "number+0.2*think", "0.9*text+0.1*language(en)".

Each part of a sum is logged under its name; the best score is the sum of the weights. Absent parts are left
out (`weighted`). A verifier of answers gives two readings: `correct`, which is paid, and `lenient`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import NoReturn

from postgrad.records import Prompt, Verdict
from postgrad.rewards import maths, schema, text
from postgrad.rewards.base import JudgeText, Verify, shorten, weighted
from postgrad.rewards.format import boxed, think_answer, tidy
from postgrad.rewards.function import own_verifier
from postgrad.rewards.number import bare_number, exact_number, last_number
from postgrad.system.plugins import Registry
from postgrad.system.user_code import function_name

RewardFunction = Callable[[Prompt, str], object]  # a user's own: it returns a float, a bool or a Verdict


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """A row of the registry. make(argument) -> verify(prompt, completion); check(golds) raises on gold
    answers that it cannot use.

    kind: "answer" (needs a gold answer), "form" (of the answer) or "style" (of the whole reply).
    """

    pays: str
    make: Callable[[str], Verify]
    kind: str
    takes: str = ""
    check: Callable[[Sequence[object]], None] = lambda golds: None
    jailed: bool = False


def judge_number(prompt: Prompt, completion: str) -> Verdict:
    """1 when the marked answer, else the whole reply, is the gold number; leniently, its last number."""
    judge, answer = exact_number(prompt.answer), maths.read_strict(completion)
    strict = judge(bare_number(answer))
    lenient = strict.score or judge(last_number(answer) or "").score
    return replace(strict, parts={"correct": strict.score, "lenient": lenient})


def bare_text(text: str) -> str:
    r"""A text without its dress: "**Paris**." -> "Paris", r"\text{Paris}" -> "Paris", "(b)" -> "b"."""
    for pattern in (r"\$(.*)\$", r"\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}", r"\(?([a-z])\)"):
        text = tidy(text)
        match = re.fullmatch(pattern, text)
        text = match[1] if match else text
    return text


def judge_text(prompt: Prompt, completion: str) -> Verdict:
    """1 when the marked answer, else the whole reply, is the gold text, but for case and spacing; leniently,
    where it contains it."""
    answer, gold = (" ".join(x.split()).casefold()
                    for x in (maths.read_strict(completion), str(prompt.answer)))
    dressed = 0 < len(answer) < len(gold) + 60 and bare_text(answer) == bare_text(gold) != ""
    right = float(bool(answer) and (answer == gold or dressed))
    contained = re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", answer) is not None
    reason = f"{shorten(answer)!r} is {'' if right else 'not '}the answer" if answer else "no answer"
    return Verdict(score=right, reason=reason, parts={"correct": right, "lenient": float(contained)})


def _answers(judge: Verify) -> Callable[[str], Verify]:
    """A verifier of answers; with the argument `lenient` that reading is paid."""
    def make(argument: str) -> Verify:
        if argument not in ("", "lenient"):
            raise ValueError(f"the argument {argument!r:.40} is not known: it is (lenient), or none.")
        if not argument:
            return judge

        def verify(prompt: Prompt, completion: str) -> Verdict:
            strict = judge(prompt, completion)
            score = strict.parts["lenient"]
            reason = "the answer is there" if score > strict.score else strict.reason
            return replace(strict, score=score, reason=reason, parts={"correct": score, "lenient": score})
        return verify

    return make


def _of_text(judge: JudgeText) -> Verify:
    return lambda prompt, completion: judge(completion)


def _bare(verify: Verify) -> Callable[[str], Verify]:
    """A verifier that takes no argument."""
    def make(argument: str) -> Verify:
        if argument:
            raise ValueError("it takes no argument.")
        return verify
    return make


def judge_correct(prompt: Prompt, completion: str, *, verify: Verify) -> Verdict:
    """The `correct` part of the task's own verifier alone."""
    verdict = verify(prompt, completion)
    right = verdict.parts.get("correct", verdict.score)
    return replace(verdict, score=right, weights={},
                   parts={"lenient": right, **verdict.parts, "correct": right})


def _no_task(*_: object) -> NoReturn:
    raise ValueError("`correct` is what a task's own verifier says, and here there is none: name what judges "
                     "the answers, such as number or text.")


def _language(argument: str) -> Verify:
    """By one language, or without an argument by the `language` of each prompt's row."""
    if argument:
        return _of_text(text.language_verifier(argument))
    judges = {name: text.language_verifier(name) for name in text.LANGUAGES}

    def verify(prompt: Prompt, completion: str) -> Verdict:
        judge = judges.get(str(prompt.meta.get("language")))
        return judge(completion) if judge else Verdict(score=0.0, reason="no language is asked for",
                                                       absent=True)
    return verify


def _length(argument: str) -> Verify:
    bounds = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*(?:,\s*(\w+)\s*)?", argument)
    if not bounds:
        raise ValueError("expected two bounds, and words or characters, e.g. length(1,200) or "
                         "length(1,800,characters).")
    return _of_text(text.length_verifier(int(bounds[1]), int(bounds[2]), bounds[3] or "words"))


def _numbers(golds: Sequence[object]) -> None:
    for gold in golds:
        exact_number(gold)


NAMED = {
    "number": Verifier(pays="the gold number, exactly: 20 = 20.0 = 40/2", make=_answers(judge_number),
                       kind="answer", takes="[(lenient)]", check=_numbers),
    "text": Verifier(pays="the gold text, but for case and spacing", make=_answers(judge_text), kind="answer",
                     takes="[(lenient)]"),
    "maths": Verifier(pays="what equals the gold formula: fractions, roots, sets, intervals, equations "
                      "(needs postgrad[math])",
                      make=_answers(maths.judge_maths), kind="answer", takes="[(lenient)]",
                      check=maths.check_golds, jailed=True),
    "correct": Verifier(pays="what the task's own verifier finds right, and nothing else that it pays for",
                        make=_bare(_no_task), kind="answer", check=_no_task),
    "think": Verifier(pays="exactly <think>...</think><answer>...</answer>", kind="form",
                      make=_bare(_of_text(think_answer))),
    "boxed": Verifier(pays="exactly one \\boxed{...}", make=_bare(_of_text(boxed)), kind="form"),
    "json": Verifier(pays="a reply that is JSON, and obeys a schema (which needs postgrad[json])",
                     kind="style",
                     make=lambda argument: _of_text(schema.json_reply(argument.strip())),
                     takes="[(SCHEMA.json)]", jailed=True),
    "regex": Verifier(pays="a reply in which the pattern is found",
                      make=lambda argument: _of_text(text.regex_verifier(argument)), kind="style",
                      takes="(PATTERN)",
                      jailed=True),
    "length": Verifier(pays="a reply within two bounds, in words or characters", make=_length, kind="style",
                       takes="(LOW,HIGH[,characters])"),
    "language": Verifier(pays="the share of a reply that is in a language, or without one in its prompt's "
                         f"own: {' '.join(text.LANGUAGES)}",
                         kind="style", make=lambda argument: _language(argument.strip()),
                         takes="[(LANGUAGE)]"),
}
_REGISTERED: Registry[Verifier] = Registry("reward", frozenset(NAMED))


def register_reward(name: str, function: RewardFunction) -> RewardFunction:
    """Adds a reward by name to this process: reward="polite", "number+0.2*polite"."""
    pays = " ".join((function.__doc__ or f"what {function_name(function)} returns").split("\n\n")[0].split())
    _REGISTERED.register(name, Verifier(pays=pays, make=_bare(own_verifier(function)), kind="style"))
    return function


def is_reward_name(name: str, nearly: bool = False) -> bool:
    """Whether a text names a built-in or registered verifier; nearly: or is close to such a name."""
    return (name in NAMED or name in _REGISTERED
            or nearly and bool(get_close_matches(name, [*NAMED, *_REGISTERED], n=1, cutoff=0.7)))


_TERM = re.compile(r"\s*(?:(-?[0-9.]+)\s*\*\s*)?([a-zA-Z_]\w*)\s*")


@dataclass(frozen=True, kw_only=True)
class VerifierSum:
    """A parsed spec: its terms as (name as written, weight, row of the registry, verify)."""

    spec: str
    terms: tuple[tuple[str, float, Verifier, Verify], ...]

    @property
    def best(self) -> float:
        return sum(weight for _, weight, _, _ in self.terms if weight > 0)

    @property
    def waits(self) -> bool:
        return any(row.jailed for _, _, row, _ in self.terms)

    @property
    def kinds(self) -> set[str]:
        return {row.kind for _, _, row, _ in self.terms}

    def has(self, name: str) -> bool:
        return any(row is NAMED[name] for _, _, row, _ in self.terms)

    def for_task(self, verify: Verify | None) -> VerifierSum:
        """With the task's verifier as `correct`."""
        own = _no_task if verify is None else partial(judge_correct, verify=verify)
        return replace(self, terms=tuple((name, weight, row, own if row is NAMED["correct"] else judge)
                                         for name, weight, row, judge in self.terms))

    def check(self, golds: Sequence[object]) -> None:
        """Raises ValueError where a gold answer is none that the verifiers can judge by."""
        for _, _, row, _ in self.terms:
            row.check(golds)

    def __call__(self, prompt: Prompt, completion: str) -> Verdict:
        verdicts = {name: (verify(prompt, completion), weight) for name, weight, _, verify in self.terms}
        if len(verdicts) == 1 and self.best == 1:
            return next(iter(verdicts.values()))[0]
        total = weighted(verdicts)
        readings = next((verdict.parts for verdict, _ in verdicts.values() if "correct" in verdict.parts), {})
        return replace(total, parts={**total.parts, **readings})


def read_spec(spec: str) -> VerifierSum:
    """Parses a weighted sum of named verifiers, "number+0.2*think"; raises ValueError on a mistake."""
    terms, at = [], 0
    while True:
        term = _TERM.match(spec, at)
        if not term:
            raise ValueError(f"the verifier {spec!r} cannot be read at {spec[at:]!r}: expected names with "
                             "weights, like number+0.2*think or 0.9*maths+0.1*length(1,200).")
        argument, at = _argument(spec, term.end())
        terms.append(_term(spec, term, argument))
        if at == len(spec):
            break
        if spec[at] not in "+-":
            raise ValueError(f"the verifier {spec!r} cannot be read at {spec[at:]!r}: put + "
                             "between verifiers.")
        at += spec[at] == "+"  # a minus belongs to the weight
    names = [name for name, *_ in terms]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the verifier {spec!r} names {twice} twice: give it one weight.")
    return VerifierSum(spec=spec, terms=tuple(terms))


def _argument(spec: str, at: int) -> tuple[str | None, int]:
    """The text in brackets from here, and where it ends. A bracket after a backslash does not count."""
    if not spec.startswith("(", at):
        return None, at
    depth, start = 0, at + 1
    while at < len(spec):
        depth += {"(": 1, ")": -1}.get(spec[at], 0)
        if depth == 0:
            end = at + 1
            return spec[start:at], end + len(spec[end:]) - len(spec[end:].lstrip())
        at += 2 if spec[at] == "\\" else 1
    raise ValueError(f"the verifier {spec!r} has a bracket that does not close.")


def _term(spec: str, term: re.Match[str], argument: str | None) -> tuple[str, float, Verifier, Verify]:
    weight, name = term.groups()
    row = NAMED.get(name) or _REGISTERED.find(name)
    if row is None:
        known = [*NAMED, *_REGISTERED]
        close = get_close_matches(name, known, n=1)
        raise ValueError(f"there is no verifier {name!r}: {f'did you mean {close[0]!r}? ' if close else ''}"
                         f"They are {', '.join(known)} (`postgrad verifiers` says what each pays); any other "
                         "belongs in a .py task file.")
    try:
        value = float(weight or 1)
    except ValueError:
        value = math.nan
    if not 0 < abs(value) < math.inf:
        raise ValueError(f"the verifier {spec!r} gives {name} the weight {weight}: it must be a "
                         "number other than 0.")
    if row.takes.startswith("(") and not argument:
        raise ValueError(f"the verifier {name} needs an argument: write {name}{row.takes}.")
    try:
        verify = row.make(argument or "")
    except ValueError as fault:
        raise ValueError(f"the verifier {name}: {fault}" if name not in str(fault) else str(fault)) from None
    return name + (f"({argument})" if argument else ""), value, row, verify
