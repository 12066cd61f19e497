"""The problems of reasoning-gym's generators: found by name, made by seeds,
each question in one split alone."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from difflib import get_close_matches

from postgrad.data.tasks.base import check_split, generator
from postgrad.records import Prompt
from postgrad.rewards.base import shorten

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
class Generator:
    """One generator with its settings.

    evaluates: "" where its scorer reads answers as text, else what it makes of them.

    Generator(name="countdown", settings={"min_numbers": 3}, make=create_dataset, evaluates="formula")
    own_scorer: whether it has a scorer of its own; the package's common one pays the gold in
    full and nothing else.
    """

    name: str
    settings: dict
    make: Callable
    evaluates: str = ""
    own_scorer: bool = True


def parse(source: str) -> tuple[str, dict]:
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


def find(source: str) -> Generator:
    """The generator of a source text, with its settings tried."""
    name, settings = parse(source)
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
    return Generator(name=name, settings=settings, make=gym.create_dataset,
                     evaluates=_evaluates(kind.score_answer), own_scorer=kind.score_answer is not base)


def _evaluates(scorer: Callable) -> str:
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


def split_of(question: str) -> str:
    return ("train", "train", "validation", "test")[
        zlib.crc32(" ".join(question.split()).encode(errors="replace")) % 4]


def stream(of: Generator, begin: int) -> Iterator[dict]:
    """Problems without end, or nearly: number i of a data set is made from its seed + i."""
    for seed in range(begin, begin + SIZE, CHUNK):
        made = of.make(of.name, seed=seed, size=CHUNK, **of.settings)
        for number in range(CHUNK):
            # some print dots while they think, and our standard output is for results
            with redirect_stdout(io.StringIO()):
                entry = made[number]
            yield entry


def prompts(split: str, count: int, seed: int, *, of: Generator) -> list[Prompt]:
    check_split(split)
    begin = SEEDS[split] + generator(f"gym/{of.name}", split, seed).randrange((1 << 29) - SIZE - CHUNK)
    found, vain = {}, 0
    for entry in stream(of, begin):
        if len(found) == count or vain == VAIN:
            break
        prompt, vain = prompt_of(of, entry), vain + 1
        if split_of(prompt.meta["entry"]["question"]) == split and prompt.id not in found:
            found[prompt.id], vain = prompt, 0
    if count and not found:
        raise ValueError(f"gym:{of.name} has no problem for the split {split} among {VAIN}: take settings "
                         "that give more.")
    return list(found.values())


def prompt_of(of: Generator, entry: dict) -> Prompt:
    question = str(entry["question"]).strip()
    name = hashlib.sha256(" ".join(question.split()).encode(errors="replace")).hexdigest()[:12]
    return Prompt.ask(f"{question}\n{FORM}", entry["answer"], id=f"gym/{of.name}/{name}", entry=entry)


def plain(value: object) -> object:
    """A problem as it can be handed to the jail: what is no plain value (a Fraction among a problem's
    facts) becomes text."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(plain, value))
    return (value if value is None or isinstance(value, (bool, int, float, complex, str, bytes))
            else str(value))
