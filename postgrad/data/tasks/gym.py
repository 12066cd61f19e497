"""reasoning-gym's generators as tasks (Stojanovski et al. 2025, arXiv:2505.24760): gym:chain_sum,
gym:countdown(min_numbers=3).

Problems are generated in this process; that code is as trusted as any package. Answers are not: some of the
package's scorers evaluate them as code (0.1.25's countdown scorer ran a shell command that stood in an
answer). So scorers run in the jail alone, and where one evaluates text, an answer that could be more than a
formula or a list is wrong without being evaluated: the jail guards the machine, but code inside it could
still choose its own score. An answer that is the gold to the letter is right.
Nor are scorers: each is tried with texts that solve nothing before its generator is used, and refused where
it pays one in full. Answers of countdown and puzzle24 are read as expressions here, and never by the package.

Which split a problem is in is decided by a hash of its question: half train, a quarter validation, a quarter
test; and each split draws from seeds of its own. So no question stands in two splits,
however few a generator has.
Left out on purpose: partial credit. Most scorers pay a little for anything;
it is kept as the part `partial`, and not paid.
"""

from __future__ import annotations

import ast
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
from difflib import get_close_matches
from functools import partial
from typing import Any, cast

from postgrad.data.rows import DataRow
from postgrad.data.tasks.base import Task, check_split, generator, in_form, think
from postgrad.data.tasks.countdown import judge_expression
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import GARBAGE, error_verdict, shorten
from postgrad.rewards.number import parse_number
from postgrad.rewards.sandbox import Jailed

NAMES = ("gym:GENERATOR",)

LONGEST = 20_000  # characters of an answer that is scored
PROVED = 4        # problems whose gold a scorer must pay in full, and no probe, before a generator is used
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
    """What the package's own scorer says of an answer, in the jail."""
    said = SCORER("score", of.name, of.settings, as_plain_values(entry), answer)
    if said.kind == "infrastructure":
        return replace(error_verdict(said.reason), parts={"partial": 0.0})
    if said.kind != "pass" or not isinstance(said.value, float) or not math.isfinite(said.value):
        return paid_verdict(0.0, f"the scorer fails on {shorten(answer)!r} ({said.kind}: {said.reason})")
    return paid_verdict(min(max(said.value, 0.0), 1.0),
                        f"the scorer pays {said.value:g} for {shorten(answer)!r}")


def judge_made_expression(of: GymGenerator, facts: DataRow, answer: str) -> Verdict:
    """An expression that uses the numbers of a problem once each and makes its target, by our own reader."""
    said = judge_expression(facts["numbers"], EXPRESSIONS[of.name](facts), answer, signs=True)
    foreign = set(answer) & set("+-*/") - set(of.settings.get("operators", "+-*/"))
    if foreign:
        return paid_verdict(0.0, f"{shorten(answer)!r} uses {min(foreign)}")
    return paid_verdict(said.score, said.reason)


def judge_answer(of: GymGenerator, prompt: Prompt, answer: str) -> Verdict:
    """The cheap looks first: no answer, the gold itself, code,
    and a generator that knows no other right answer."""
    if of.name in EXPRESSIONS:
        return judge_made_expression(of, entry_of(prompt)["metadata"], answer)
    if not answer or len(answer) > LONGEST:
        return paid_verdict(0.0, f"an answer of more than {LONGEST} characters" if answer else "no answer")
    if answer == str(prompt.answer).strip():
        return paid_verdict(1.0, f"{shorten(answer)!r} is the answer")
    if not harmless(answer, of.evaluates):
        return paid_verdict(0.0, f"{shorten(answer)!r} is more than a {of.evaluates}")
    return (score_answer(of, entry_of(prompt), answer) if of.own_scorer
            else paid_verdict(0.0, f"{shorten(answer)!r} is not the answer"))


def verify(prompt: Prompt, text: str, *, of: GymGenerator) -> Verdict:
    """1 for an answer that the scorer pays in full, in the strict form;
    `lenient` reads the last <answer> anywhere."""
    return in_form(text, partial(judge_answer, of, prompt))


def gold(prompt: Prompt) -> str:
    return think("", str(prompt.answer).strip())


def same_answer(answer: str, gold: str) -> bool:
    """Whether a text is the gold answer in other words: but for case and spaces, or as a number."""
    texts, number = {"".join(text.split()).casefold() for text in (answer, gold)}, parse_number(answer)
    return len(texts) == 1 or number is not None and number == parse_number(gold)


def probe_texts(of: GymGenerator, gold: str, golds: list[str]) -> list[str]:
    """Texts that solve nothing: PROBES, other problems' gold answers, and the gold in the middle of them all.

    Left out: what is the gold answer in other words or begins with it, and what never reaches the scorer.
    """
    others = [text for text in dict.fromkeys(golds) if not text.startswith(gold)]
    hedge = ", ".join([*others, gold, *others]) if others else ""
    tried = (text for text in (*PROBES, *others, hedge) if not same_answer(text, gold))
    return [text for text in tried if harmless(text, of.evaluates)]


def find_paid_probe(of: GymGenerator, asked: list[Prompt]) -> tuple[str, str] | None:
    """A text that solves nothing, and the gold answer of a problem for which it is paid in full; or None."""
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
    """Raises ValueError where a scorer does not pay its own gold, or pays for what solves nothing."""
    asked = prompts("train", PROVED, 0, of=of)
    for prompt in asked:
        if prompt.answer is None:
            raise ValueError(f"gym:{of.name} gives its problems no answer, so its verifier cannot be proved "
                             "on gold: choose another generator.")
        best = str(prompt.answer).strip()
        said = judge_answer(of, prompt,
                            best) if of.name in EXPRESSIONS else score_answer(of, entry_of(prompt), best)
        if said.error:
            raise ValueError(f"the scorer of gym:{of.name} does not run in the sandbox ({said.error}): "
                             "choose another task.")
        if said.score < 1.0:
            raise ValueError(f"gym:{of.name} rejects its own gold ({said.reason}): choose another "
                             "generator or settings.")
    found = find_paid_probe(of, asked) if of.own_scorer and of.name not in EXPRESSIONS else None
    if found:
        raise ValueError(f"the scorer of gym:{of.name} pays in full for {shorten(found[0])!r} where the "
                         f"answer is {shorten(found[1])!r}: a model would learn that; choose another one.")


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


# problems in a row without a new one for the split: then a generator is taken to have no more
VAIN = 1000
# where the seeds of each split begin; none is over 2**31
SEEDS = {"train": 0, "validation": 2 << 29, "test": 3 << 29}
# problems that a split can draw from, and how many are prepared at once: some generators make all
SIZE, CHUNK = 1 << 20, 500
FORM = "Think between <think> and </think>, then give the answer alone between <answer> and </answer>."
_WORD = re.compile(r"[^\W\d]\w+")
_FUNCTIONS = frozenset("sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp "
                       "log ln sqrt pi".split())


@dataclass(frozen=True, kw_only=True)
class GymGenerator:
    """One generator with its settings.

    evaluates: "" where its scorer reads answers as text, else what it makes of them.

    Generator(name="countdown", settings={"min_numbers": 3}, make=create_dataset, evaluates="formula")
    own_scorer: whether it has a scorer of its own; the package's common one pays the gold in
    full and nothing else.
    """

    name: str
    settings: DataRow
    make: Callable[..., Any]
    evaluates: str = ""
    own_scorer: bool = True


def parse_generator(source: str) -> tuple[str, DataRow]:
    """"chain_sum(min_terms=2,max_terms=4)" -> ("chain_sum", {"min_terms": 2, "max_terms": 4});
    values are literals."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        called = tree.func if isinstance(tree, ast.Call) and not tree.args else tree
        settings = {word.arg: ast.literal_eval(word.value) for word in getattr(tree, "keywords", ())}
    except (SyntaxError, ValueError, RecursionError):
        called, settings = None, {}
    if not isinstance(called, ast.Name) or None in settings:
        raise ValueError(f"gym:{shorten(source)} is no generator: write gym:NAME or gym:NAME(setting=value), "
                         "such as gym:chain_sum(min_terms=2,max_terms=4).")
    return called.id, settings


def find_generator(source: str) -> GymGenerator:
    """The generator of a source text, with its settings tried."""
    name, settings = parse_generator(source)
    try:
        gym = importlib.import_module("reasoning_gym")
        registry = importlib.import_module("reasoning_gym.factory").DATASETS
    except ImportError:
        raise ValueError("gym tasks need the package reasoning-gym: pip install 'postgrad[gym]'.") from None
    if name not in registry:
        close = get_close_matches(name, registry, n=1)
        raise ValueError(f"reasoning-gym has no generator {name!r}: "
                         f"{f'did you mean {close[0]!r}? ' if close else ''}"
                         f"It has {len(registry)}, such as {', '.join(sorted(registry)[:6])}.")
    kind, config = registry[name]
    known = [field.name for field in fields(config) if field.name not in ("seed", "size")]
    for wrong in settings.keys() - set(known):
        close = get_close_matches(wrong, known, n=1)
        raise ValueError(f"gym:{name} has no setting {wrong!r}: "
                         f"{f'did you mean {close[0]!r}? ' if close else ''}"
                         f"It has {', '.join(known) or 'none'}.")
    try:
        gym.create_dataset(name, seed=0, size=1, **settings)
    except (AssertionError, ValueError, TypeError, KeyError) as wrong:
        said = shorten(str(wrong), 200) or type(wrong).__name__
        raise ValueError(f"gym:{source} cannot be made: {said}; its settings are "
                         f"{', '.join(known)}.") from None
    base = importlib.import_module("reasoning_gym.dataset").ProceduralDataset.score_answer
    return GymGenerator(name=name, settings=settings, make=gym.create_dataset,
                        evaluates=_evaluates(kind.score_answer), own_scorer=kind.score_answer is not base)


def _evaluates(scorer: Callable[..., object]) -> str:
    text = inspect.getsource(scorer)
    return ("formula" if re.search(r"parse_expr|sympify", text)
            else "list" if re.search(r"\b(eval|exec)\(", text) else "")


def harmless(answer: str, evaluates: str) -> bool:
    """Whether evaluating a text can do no more than compute:
    no name is in it but single letters and functions of maths.

    A list calls nothing. A formula may call, so it has no strings that could become names
    (S('e' + 'x' + 'e' + 'c')).
    """
    if evaluates == "list":
        return "(" not in answer and not _WORD.search(answer)
    named = set(_WORD.findall(answer)) <= _FUNCTIONS
    return not evaluates or (named and answer.isascii() and not re.search(r"[^\w\s.,+\-*/^()=]", answer))


def question_split(question: str) -> str:
    return ("train", "train", "validation", "test")[
        zlib.crc32(" ".join(question.split()).encode(errors="replace")) % 4]


def problem_stream(of: GymGenerator, begin: int) -> Iterator[DataRow]:
    """Problems without end, or nearly: number i of a data set is made from its seed + i."""
    for seed in range(begin, begin + SIZE, CHUNK):
        made = of.make(of.name, seed=seed, size=CHUNK, **of.settings)
        for number in range(CHUNK):
            # some print dots while they think, and our standard output is for results
            with redirect_stdout(io.StringIO()):
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
    """A problem as it can be handed to the jail: what is no plain value (a Fraction among a
    problem's facts) becomes text."""
    if isinstance(value, dict):
        return {as_plain_values(key): as_plain_values(item) for key, item in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(as_plain_values, value))
    return (value if value is None or isinstance(value, (bool, int, float, complex, str, bytes))
            else str(value))
