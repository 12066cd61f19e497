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

import math
from dataclasses import replace
from functools import partial

from postgrad.data.tasks.base import Task, in_form, think
from postgrad.data.tasks.countdown import judge
from postgrad.data.tasks.gym_problems import Generator, find, harmless, plain, prompts
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import GARBAGE, fault, shorten
from postgrad.rewards.jailed import Jailed
from postgrad.rewards.number import parse_number

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
EXPRESSIONS = {"countdown": lambda facts: facts["target"], "puzzle24": lambda facts: 24}  # what is to be made


def paid(share: float, reason: str) -> Verdict:
    return Verdict(score=float(share >= 1.0), reason=reason, parts={"partial": share})


def score(of: Generator, entry: dict, answer: str) -> Verdict:
    """What the package's own scorer says of an answer, in the jail."""
    said = SCORER("score", of.name, of.settings, plain(entry), answer)
    if said.kind == "infrastructure":
        return replace(fault(said.reason), parts={"partial": 0.0})
    if said.kind != "pass" or not isinstance(said.value, float) or not math.isfinite(said.value):
        return paid(0.0, f"the scorer fails on {shorten(answer)!r} ({said.kind}: {said.reason})")
    return paid(min(max(said.value, 0.0), 1.0), f"the scorer pays {said.value:g} for {shorten(answer)!r}")


def expressed(of: Generator, facts: dict, answer: str) -> Verdict:
    """An expression that uses the numbers of a problem once each and makes its target, by our own reader."""
    said = judge(facts["numbers"], EXPRESSIONS[of.name](facts), answer, signs=True)
    foreign = set(answer) & set("+-*/") - set(of.settings.get("operators", "+-*/"))
    return paid(0.0, f"{shorten(answer)!r} uses {min(foreign)}") if foreign else paid(said.score, said.reason)


def judged(of: Generator, prompt: Prompt, answer: str) -> Verdict:
    """The cheap looks first: no answer, the gold itself, code,
    and a generator that knows no other right answer."""
    if of.name in EXPRESSIONS:
        return expressed(of, prompt.meta["entry"]["metadata"], answer)
    if not answer or len(answer) > LONGEST:
        return paid(0.0, f"an answer of more than {LONGEST} characters" if answer else "no answer")
    if answer == str(prompt.answer).strip():
        return paid(1.0, f"{shorten(answer)!r} is the answer")
    if not harmless(answer, of.evaluates):
        return paid(0.0, f"{shorten(answer)!r} is more than a {of.evaluates}")
    return (score(of, prompt.meta["entry"], answer) if of.own_scorer
            else paid(0.0, f"{shorten(answer)!r} is not the answer"))


def verify(prompt: Prompt, text: str, *, of: Generator) -> Verdict:
    """1 for an answer that the scorer pays in full, in the strict form;
    `lenient` reads the last <answer> anywhere."""
    return in_form(text, partial(judged, of, prompt))


def gold(prompt: Prompt) -> str:
    return think("", str(prompt.answer).strip())


def same(answer: str, gold: str) -> bool:
    """Whether a text is the gold answer in other words: but for case and spaces, or as a number."""
    texts, number = {"".join(text.split()).casefold() for text in (answer, gold)}, parse_number(answer)
    return len(texts) == 1 or number is not None and number == parse_number(gold)


def probes(of: Generator, gold: str, golds: list[str]) -> list[str]:
    """Texts that solve nothing: PROBES, other problems' gold answers, and the gold in the middle of them all.

    Left out: what is the gold answer in other words or begins with it, and what never reaches the scorer.
    """
    others = [text for text in dict.fromkeys(golds) if not text.startswith(gold)]
    hedge = ", ".join([*others, gold, *others]) if others else ""
    tried = (text for text in (*PROBES, *others, hedge) if not same(text, gold))
    return [text for text in tried if harmless(text, of.evaluates)]


def bribed(of: Generator, asked: list[Prompt]) -> tuple[str, str] | None:
    """A text that solves nothing, and the gold answer of a problem for which it is paid in full; or None."""
    golds = [str(prompt.answer).strip() for prompt in asked]
    tried = [probes(of, gold, golds) for gold in golds]
    calls = [(of.name, of.settings, plain(prompt.meta["entry"])) for prompt in asked]
    said = SCORER.each([("pays", *call, texts) for call, texts in zip(calls, tried, strict=True)])
    for call, texts, gold, outcome in zip(calls, tried, golds, said, strict=True):
        paid = outcome.value
        if outcome.kind != "pass":  # one of them hangs or ends the scorer: each alone
            alone = SCORER.each([("score", *call, text) for text in texts])
            paid = [one.kind == "pass" and one.value >= 1.0 for one in alone]
        if True in paid:
            return texts[paid.index(True)], gold
    return None


def prove(of: Generator) -> None:
    """Raises ValueError where a scorer does not pay its own gold, or pays for what solves nothing."""
    asked = prompts("train", PROVED, 0, of=of)
    for prompt in asked:
        if prompt.answer is None:
            raise ValueError(f"gym:{of.name} gives its problems no answer, so its verifier cannot be proved "
                             "on gold: choose another generator.")
        best = str(prompt.answer).strip()
        said = judged(of, prompt, best) if of.name in EXPRESSIONS else score(of, prompt.meta["entry"], best)
        if said.error:
            raise ValueError(f"the scorer of gym:{of.name} does not run in the sandbox ({said.error}): "
                             "choose another task.")
        if said.score < 1.0:
            raise ValueError(f"gym:{of.name} rejects its own gold ({said.reason}): choose another "
                             "generator or settings.")
    found = bribed(of, asked) if of.own_scorer and of.name not in EXPRESSIONS else None
    if found:
        raise ValueError(f"the scorer of gym:{of.name} pays in full for {shorten(found[0])!r} where the "
                         f"answer is {shorten(found[1])!r}: a model would learn that; choose another one.")


def load(name: str, source: str) -> Task:
    if not source:
        raise ValueError("gym needs the name of one of reasoning-gym's generators: write gym:NAME, such as "
                         "gym:chain_sum.")
    of = find(source)
    SCORER.require()
    prove(of)
    return Task(name=f"gym:{source}", about=f"problems of reasoning-gym's {of.name}",
                prompts=partial(prompts, of=of), verify=partial(verify, of=of), gold=gold,
                waits=of.own_scorer and of.name not in EXPRESSIONS,
                meta={"settings": of.settings, "evaluates": of.evaluates, "shared_splits": False})
