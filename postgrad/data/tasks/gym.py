"""reasoning-gym's generators as tasks (Stojanovski et al. 2025, arXiv:2505.24760): gym:chain_sum,
gym:countdown(min_numbers=3).

The package's code is trusted, answers are not: some of its scorers evaluate them (0.1.25's countdown scorer
ran a shell command in an answer). So scorers run in the sandbox only. If one evaluates text, an answer that
could be more than a formula or a list is wrong unevaluated: code in the sandbox could choose its own score.
The gold, to the letter, is right. Scorers are not trusted either: one that gives full reward to a text that
solves nothing is refused. Answers of countdown and puzzle24 are parsed here, never by the package.

The split of a problem is a hash of its question: half train, a quarter validation, a quarter test; each split
has seeds of its own, so no question is in two splits. Left out: partial credit, which most scorers give for
anything; it is the part `partial`, not the score.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, cast

from postgrad.data.rows import DataRow
from postgrad.data.tasks.base import (
    Task,
    check_split,
    did_you_mean,
    generator,
    in_form,
    parse_keyword_call,
    think,
)
from postgrad.data.tasks.countdown import judge_expression
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import GARBAGE, error_verdict, shorten
from postgrad.rewards.number import parse_number
from postgrad.rewards.retraction import takes_back
from postgrad.rewards.sandbox import Jailed
from postgrad.rewards.visible import visible

NAMES = ("gym:GENERATOR",)

LONGEST = 20_000  # characters of an answer that is scored
PROVED = 4        # problems on which a scorer must accept the gold and no probe
SOURCE = """
from reasoning_gym import create_dataset

def score(name, settings, entry, answer):
    return float(create_dataset(name, seed=0, size=1, **settings).score_answer(answer, entry))

def pays(name, settings, entry, answers):
    made, paid = create_dataset(name, seed=0, size=1, **settings), []
    for answer in answers:
        try:
            paid.append(float(made.score_answer(answer, entry)) >= 1.0)
        except Exception:
            paid.append(False)
    return paid
"""
SCORER = Jailed("gym", SOURCE, package="reasoning_gym", extra="gym", instead="choose another task",
                seconds=5.0, memory=4 << 30)  # bytes of address space: numpy and sympy are inside
PROBES = (*GARBAGE, "nan", "inf", "-inf", "0", "1", "-1", "0.0", "1e999", "x", "A", "abc", "yes", "True",
          "None", "[]", "{}", "()", "[[]]", ",", ".", "-", "/", "0/1", "\n", "the answer", "1 2 3 4 5 6")
# the target of an answer that is an expression
EXPRESSIONS: dict[str, Callable[[DataRow], int]] = {"countdown": lambda facts: facts["target"],
                                                    "puzzle24": lambda facts: 24}


def entry_of(prompt: Prompt) -> DataRow:
    return cast(DataRow, prompt.meta["entry"])


def paid_verdict(share: float, reason: str) -> Verdict:
    return Verdict(score=float(share >= 1.0), reason=reason, parts={"partial": share})


def score_answer(of: GymGenerator, entry: DataRow, answer: str) -> Verdict:
    """The verdict of the package's scorer, in the sandbox."""
    outcome = SCORER("score", of.name, of.settings, as_plain_values(entry), answer)
    if outcome.kind == "infrastructure":
        return replace(error_verdict(outcome.reason), parts={"partial": 0.0})
    if outcome.kind != "pass" or not isinstance(outcome.value, float) or not math.isfinite(outcome.value):
        return paid_verdict(0.0, f"the scorer fails on {shorten(answer)!r} "
                                 f"({outcome.kind}: {outcome.reason})")
    return paid_verdict(min(max(outcome.value, 0.0), 1.0),
                        f"the scorer pays {outcome.value:g} for {shorten(answer)!r}")


def judge_made_expression(of: GymGenerator, facts: DataRow, answer: str) -> Verdict:
    """1 for an expression that uses each number once and makes the target."""
    verdict = judge_expression(facts["numbers"], EXPRESSIONS[of.name](facts), answer, signs=True)
    foreign = set(answer) & set("+-*/") - set(of.settings.get("operators", "+-*/"))
    if foreign:
        return paid_verdict(0.0, f"{shorten(answer)!r} uses {min(foreign)}")
    return paid_verdict(verdict.score, verdict.reason)


def judge_answer(of: GymGenerator, prompt: Prompt, answer: str) -> Verdict:
    """Cheap checks first: no answer, the gold itself, code, a generator with one right answer."""
    if of.name in EXPRESSIONS:
        return judge_made_expression(of, entry_of(prompt)["metadata"], answer)
    if not answer or len(answer) > LONGEST:
        return paid_verdict(0.0, f"an answer of more than {LONGEST} characters" if answer else "no answer")
    if answer == str(prompt.answer).strip():
        return paid_verdict(1.0, f"{shorten(answer)!r} is the answer")
    if of.own_scorer and not of.evaluates and (why := names_another_number(answer, str(prompt.answer))):
        return paid_verdict(0.0, f"{shorten(answer)!r} {why}")
    if not harmless(answer, of.evaluates):
        return paid_verdict(0.0, f"{shorten(answer)!r} is more than a {of.evaluates}")
    return (score_answer(of, entry_of(prompt), answer) if of.own_scorer
            else paid_verdict(0.0, f"{shorten(answer)!r} is not the answer"))


def names_another_number(answer: str, gold: str) -> str:
    """Why an answer in words is not the gold number, whatever the scorer reads in it; "" where it may be.

    Several numbers are no answer, and -37 or not 37 is not 37: scorers that search a number in an answer take
    the first one, without its sign.
    """
    wanted, bare = parse_number(gold.strip()), visible(answer)
    first = _NUMBERS.search(bare)
    if wanted is None or not first:
        return ""
    if takes_back(bare[:first.start()], first[0], bare[first.end():]):
        return "takes itself back"
    numbers = {parse_number(_SIGN.sub("-", number)) for number in _NUMBERS.findall(bare)}
    if len(numbers) > 1:
        return "names several numbers"
    value = next(iter(numbers), None)
    return "has the other sign" if value is not None and wanted and value == -wanted else (
        "denies it" if _DENIES.search(bare) else "")


def verify(prompt: Prompt, text: str, *, of: GymGenerator) -> Verdict:
    return in_form(text, partial(judge_answer, of, prompt))


def gold(prompt: Prompt) -> str:
    return think("", str(prompt.answer).strip())


def same_answer(answer: str, gold: str) -> bool:
    """Whether a text is the gold but for case and spaces, or the same number."""
    texts, number = {"".join(text.split()).casefold() for text in (answer, gold)}, parse_number(answer)
    return len(texts) == 1 or number is not None and number == parse_number(gold)


def probe_texts(of: GymGenerator, gold: str, golds: list[str]) -> list[str]:
    """Texts that solve nothing: PROBES, other problems' golds, and the gold amid all of them. Without texts
    equal to the gold or beginning with it, and those that never reach the scorer."""
    others = [text for text in dict.fromkeys(golds) if not text.startswith(gold)]
    hedge = ", ".join([*others, gold, *others]) if others else ""
    tried = (text for text in (*PROBES, *others, hedge) if not same_answer(text, gold))
    return [text for text in tried if harmless(text, of.evaluates)]


def find_paid_probe(of: GymGenerator, asked: list[Prompt]) -> tuple[str, str] | None:
    """(probe, gold) of a problem where a probe gets the full reward; or None."""
    golds = [str(prompt.answer).strip() for prompt in asked]
    tried = [probe_texts(of, gold, golds) for gold in golds]
    calls = [(of.name, of.settings, as_plain_values(entry_of(prompt))) for prompt in asked]
    said = SCORER.each([("pays", *call, texts) for call, texts in zip(calls, tried, strict=True)])
    for call, texts, gold, outcome in zip(calls, tried, golds, said, strict=True):
        paid = cast(list[bool], outcome.value)
        if outcome.kind != "pass":  # one of them hangs or ends the scorer: each alone
            alone = SCORER.each([("score", *call, text) for text in texts])
            paid = [one.kind == "pass" and cast(float, one.value) >= 1.0 for one in alone]
        if True in paid:
            return texts[paid.index(True)], gold
    return None


def prove_scorer(of: GymGenerator) -> None:
    """Raises ValueError if a scorer rejects a gold, or gives full reward to a probe."""
    asked = prompts("train", PROVED, 0, of=of)
    for prompt in asked:
        if prompt.answer is None:
            raise ValueError(f"gym:{of.name} gives its problems no answer, so its verifier cannot be proved "
                             "on gold: choose another generator.")
        best = str(prompt.answer).strip()
        verdict = (judge_answer(of, prompt, best) if of.name in EXPRESSIONS
                   else score_answer(of, entry_of(prompt), best))
        if verdict.error:
            raise ValueError(f"the scorer of gym:{of.name} does not run in the sandbox ({verdict.error}): "
                             "choose another task.")
        if verdict.score < 1.0:
            raise ValueError(f"gym:{of.name} rejects its own gold ({verdict.reason}): choose another "
                             "generator or settings.")
    paid = find_paid_probe(of, asked) if of.own_scorer and of.name not in EXPRESSIONS else None
    if paid:
        raise ValueError(f"the scorer of gym:{of.name} pays in full for {shorten(paid[0])!r} where the "
                         f"answer is {shorten(paid[1])!r}: a model would learn that; choose another one.")


def load(name: str, source: str) -> Task:
    if not source:
        raise ValueError("gym needs the name of one of reasoning-gym's generators: write gym:NAME, such as "
                         "gym:chain_sum.")
    of = find_generator(source)
    SCORER.require()
    prove_scorer(of)
    return Task(name=f"gym:{source}", about=f"problems of reasoning-gym's {of.name}",
                prompts=partial(prompts, of=of), verify=partial(verify, of=of), gold=gold,
                waits=of.own_scorer and of.name not in EXPRESSIONS,
                meta={"settings": of.settings, "evaluates": of.evaluates, "shared_splits": False})


VAIN = 1000  # problems in a row without a new one for the split, before a generator counts as exhausted
SEEDS = {"train": 0, "validation": 2 << 29, "test": 3 << 29}  # the first of each split; all are below 2**31
SIZE, CHUNK = 1 << 20, 500  # problems of a split, and of a data set: some generators prepare all
FORM = "Think between <think> and </think>, then give the answer alone between <answer> and </answer>."
_WORD = re.compile(r"[^\W\d]\w+")
_NUMBERS = re.compile(r"(?:[-\u2212\u2012\u2013]\s?)?[0-9][0-9,]*(?:[./][0-9]+)?")
_SIGN = re.compile(r"\A[-\u2212\u2012\u2013]\s?")
_DENIES = re.compile(r"\b(?:not|never|no|isn['’]t|wrong|minus|negative)\b", re.IGNORECASE)
_FUNCTIONS = frozenset("sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp "
                       "log ln sqrt pi".split())


@dataclass(frozen=True, kw_only=True)
class GymGenerator:
    """A generator with its settings. evaluates: "formula" or "list", if its scorer evaluates answers so.
    own_scorer: False with the package's common scorer, which accepts the gold alone."""

    name: str
    settings: DataRow
    make: Callable[..., Any]
    evaluates: str = ""
    own_scorer: bool = True


def find_generator(source: str) -> GymGenerator:
    """The generator of "chain_sum(min_terms=2,max_terms=4)"; its settings are tried."""
    parsed = parse_keyword_call(source)
    if parsed is None:
        raise ValueError(f"gym:{shorten(source)} is no generator: write gym:NAME or gym:NAME(setting=value), "
                         "such as gym:chain_sum(min_terms=2,max_terms=4).")
    name, settings = parsed
    try:
        gym = importlib.import_module("reasoning_gym")
        registry = importlib.import_module("reasoning_gym.factory").DATASETS
    except ImportError:
        raise ValueError("gym tasks need the package reasoning-gym: pip install 'postgrad[gym]'.") from None
    if name not in registry:
        raise ValueError(f"reasoning-gym has no generator {name!r}: {did_you_mean(name, registry)}"
                         f"It has {len(registry)}, such as {', '.join(sorted(registry)[:6])}.")
    kind, config = registry[name]
    known = [field.name for field in fields(config) if field.name not in ("seed", "size")]
    for wrong in settings.keys() - set(known):
        raise ValueError(f"gym:{name} has no setting {wrong!r}: {did_you_mean(wrong, known)}"
                         f"It has {', '.join(known) or 'none'}.")
    try:
        gym.create_dataset(name, seed=0, size=1, **settings)
    except (AssertionError, ValueError, TypeError, KeyError) as wrong:
        reason = shorten(str(wrong), 200) or type(wrong).__name__
        raise ValueError(f"gym:{source} cannot be made: {reason}; its settings are "
                         f"{', '.join(known)}.") from None
    base = importlib.import_module("reasoning_gym.dataset").ProceduralDataset.score_answer
    return GymGenerator(name=name, settings=settings, make=gym.create_dataset,
                        evaluates=_evaluates(kind.score_answer), own_scorer=kind.score_answer is not base)


def _evaluates(scorer: Callable[..., object]) -> str:
    text = inspect.getsource(scorer)
    return ("formula" if re.search(r"parse_expr|sympify", text)
            else "list" if re.search(r"\b(eval|exec)\(", text) else "")


def harmless(answer: str, evaluates: str) -> bool:
    """Whether evaluating a text can only compute: its names are single letters and functions of maths. A list
    calls nothing; a formula has no strings, which could become names (S('e' + 'x' + 'e' + 'c'))."""
    if evaluates == "list":
        return "(" not in answer and not _WORD.search(answer)
    named = set(_WORD.findall(answer)) <= _FUNCTIONS
    return not evaluates or (named and answer.isascii() and not re.search(r"[^\w\s.,+\-*/^()=]", answer))


def question_split(question: str) -> str:
    return ("train", "train", "validation", "test")[
        zlib.crc32(" ".join(question.split()).encode(errors="replace")) % 4]


def problem_stream(of: GymGenerator, begin: int) -> Iterator[DataRow]:
    """Up to SIZE problems: number i of a data set has its seed + i."""
    for seed in range(begin, begin + SIZE, CHUNK):
        made = of.make(of.name, seed=seed, size=CHUNK, **of.settings)
        for number in range(CHUNK):
            with redirect_stdout(io.StringIO()):  # some generators print progress
                entry = made[number]
            yield entry


def prompts(split: str, count: int, seed: int, *, of: GymGenerator) -> list[Prompt]:
    check_split(split)
    begin = SEEDS[split] + generator(f"gym/{of.name}", split, seed).randrange((1 << 29) - SIZE - CHUNK)
    found: dict[str, Prompt] = {}
    vain = 0
    for entry in problem_stream(of, begin):
        if len(found) == count or vain == VAIN:
            break
        prompt, vain = gym_prompt(of, entry), vain + 1
        if question_split(entry_of(prompt)["question"]) == split and prompt.id not in found:
            found[prompt.id], vain = prompt, 0
    if count and not found:
        raise ValueError(f"gym:{of.name} has no problem for the split {split} among {VAIN}: take settings "
                         "that give more.")
    return list(found.values())


def gym_prompt(of: GymGenerator, entry: DataRow) -> Prompt:
    question = str(entry["question"]).strip()
    name = hashlib.sha256(" ".join(question.split()).encode(errors="replace")).hexdigest()[:12]
    return Prompt.ask(f"{question}\n{FORM}", entry["answer"], id=f"gym/{of.name}/{name}", entry=entry)


def as_plain_values(value: object) -> object:
    """A problem for the sandbox: values of other types (a Fraction) become text."""
    if isinstance(value, dict):
        return {as_plain_values(key): as_plain_values(item) for key, item in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(as_plain_values, value))
    return (value if value is None or isinstance(value, (bool, int, float, complex, str, bytes))
            else str(value))
