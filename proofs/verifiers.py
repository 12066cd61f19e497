"""Fuzzed answers and near misses through the verifier `maths`, and the cost of the sandbox. Parts of
proofs/real_models.py, about two minutes each.

GSM8K is read from the folder $POSTGRAD_DATA. verifiers.toml has the pieces of fuzzed answers, and pairs of
formulas that are equal or nearly so.
"""

from __future__ import annotations

import os
import random
import resource
import runpy
import statistics
import time
import tomllib
from pathlib import Path

from harness import DATA, HOME, Bars, bar
from digits import agree

from postgrad.data.tasks import load_task
from postgrad.records import Prompt
from postgrad.rewards import maths
from postgrad.rewards.named import read_spec
from postgrad.rewards.number import parse_number
from postgrad.rewards.sandbox import CodeJob, CodeJudge, Jailed

GIVEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
GOLDS = GIVEN["golds"]


# text

def formula(rng: random.Random, depth: int) -> str:
    """A formula of a small grammar of LaTeX."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(GIVEN["atoms"])
    tree = rng.choice(GIVEN["trees"])
    return tree % tuple(formula(rng, depth - 1) for _ in range(tree.replace("%%", "").count("%s")))


def nested(rng: random.Random) -> str:
    begin, end = rng.choice(GIVEN["brackets"])
    deep = rng.choice([5, 9, 30, 200, 3000])
    return begin * deep + "1" + end * rng.choice([deep, deep - 1, 0])


def huge(rng: random.Random) -> str:
    nine = rng.choice(["9", "99", "10", "2"])
    sizes = {"N": nine, "NNN": nine * 3, "N4": nine * 4, "N12": nine * 12, "N2000": nine * 2000}
    text = rng.choice(GIVEN["huge"])
    for name in sorted(sizes, key=len, reverse=True):
        text = text.replace(f"<{name}>", sizes[name])
    return text


def codelike(rng: random.Random, canary: str) -> str:
    act = rng.choice(GIVEN["acts"]).replace("CANARY", canary)
    return rng.choice(GIVEN["code"]).replace("CANARY", canary).replace("{}", act)


def strange(rng: random.Random) -> str:
    odd = [*GIVEN["odd"][:4], "\ud800", *GIVEN["odd"][4:]]  # a file cannot hold half of a pair
    return "".join(rng.choices(odd, k=rng.choice([1, 2, 4, 12, 60])))


def long(rng: random.Random) -> str:
    piece = rng.choice(GIVEN["pieces"])
    return piece * (100_000 // len(piece))


def fuzz(count: int, seed: int, canary: str) -> list[tuple[str, str, str]]:
    """(kind, gold, reply): answers of six kinds in turn, most of them marked as the answer of a reply."""
    rng, replies = random.Random(f"verifiers/{seed}"), []
    kinds = {"formula": lambda: formula(rng, rng.choice([1, 2, 3, 4])), "nested": lambda: nested(rng),
             "huge": lambda: huge(rng), "code": lambda: codelike(rng, canary),
             "strange": lambda: strange(rng), "long": lambda: long(rng)}
    for i in range(count):
        kind = list(kinds)[i % len(kinds)]
        dress = rng.choice(["{}", r"\boxed{{}}", "<answer>{}</answer>", "so\n#### {}", "The answer is {}.",
                            "$${}$$"])
        replies.append((kind, rng.choice(GOLDS), dress.replace("{}", kinds[kind](), 1)))
    return replies


def misses(answer: str) -> set[str]:
    """Numbers that are nearly the answer: one off, the sign turned, two digits swapped, one missing or
    doubled."""
    digits = answer.replace(",", "")
    value = int(digits)
    near = {digits[:-1], digits + digits[-1], digits[:-2] + digits[:-3:-1], digits[1:], f"{digits}.01",
            f"{digits}%"}
    near |= {str(value + 1), str(value - 1), str(-value), f"{value}/2", f"{value * 10}"}
    return {miss for miss in near if parse_number(miss) not in (None, value) or miss.endswith("%") and value}


def text(folder: Path, count: str = "10000", seed: str = "0") -> Bars:
    """Every reply judged once, one after the other. A false accept: paid, but its value, computed elsewhere
    at 50 digits (tests/support/digits.py), is not the gold one's."""
    verify, canary = read_spec("maths"), folder / "canary"
    verify.check(GOLDS)
    maths.JAIL.each([("sound", ["x"])] * 2 * (os.cpu_count() or 1))  # the workers start
    seconds, jailed, unequal, errors, paid, executed = [], [], [], 0, 0, 0
    for _, gold, reply in fuzz(int(count), int(seed), str(canary)):
        calls, start = maths.JAIL.calls, time.perf_counter()
        verdict = verify(Prompt.ask("?", gold), reply)
        seconds.append(time.perf_counter() - start)
        jailed += seconds[-1:] * (maths.JAIL.calls > calls)
        paid, errors = paid + (verdict.score == 1), errors + (verdict.error is not None)
        executed += canary.exists()
        if verdict.score and not agree(gold, maths.read_strict(reply)):
            unequal.append(f"{maths.read_strict(reply)} for {gold}")
    seconds.sort()
    p99, pairs = seconds[int(0.99 * len(seconds))], GIVEN["pairs"]
    wrong = [f"{gold} / {answer}" for gold, answer, equal in pairs
             if maths.compare_answers(gold, answer).score != equal]
    rows = [bar(f"{int(count):,} fuzzed answers through maths: executed", "0", executed, not executed),
            bar("fuzzed answers: infrastructure errors", "0", errors, not errors),
            bar("fuzzed answers: accepted, but unequal at 50 digits", "0",
                f"{len(unequal)} of {paid} accepted{': ' * bool(unequal)}{'; '.join(unequal)}", not unequal),
            bar("fuzzed answers: p99 of a verdict", "<= 50 ms",
                f"{1e3 * p99:.1f} ms; {len(jailed)} needed the jail, with a median of "
                f"{1e3 * statistics.median(jailed or [0]):.0f} ms", p99 <= 0.05),
            bar("fuzzed answers: slowest verdict", "<= 2 s", f"{seconds[-1]:.2f} s", seconds[-1] <= 2),
            bar("equal and nearly equal formulas told apart", f"{len(pairs)} of {len(pairs)}",
                f"{len(pairs) - len(wrong)}{': ' + '; '.join(wrong) if wrong else ''}", not wrong)]
    if (DATA / "gsm8k").is_dir():
        task = load_task(f"gsm8k:{DATA / 'gsm8k'}")
        prompts = [p for split in ("train", "validation", "test") for p in task.prompts(split, 10_000, 0)]
        verify.check([prompt.answer for prompt in prompts])
        good = sum(verify(prompt, task.gold(prompt)).score == 1 for prompt in prompts)
        near = sum(verify(prompt, rf"\boxed{{{miss}}}").score > 0 for prompt in prompts
                   for miss in misses(prompt.answer))
        rows += [bar("GSM8K, gold against gold", "100 %", f"{good:,} of {len(prompts):,}",
                     good == len(prompts)),
                 bar("GSM8K, near misses accepted (off by one, sign, digits swapped, missing, doubled)", "0",
                     near, near == 0)]
    return rows


# our comparison against math-verify alone

ALONE = """
from math_verify import parse, verify

def read(text):
    return parse(f"${text}$", parsing_timeout=None)

def same(gold, answer):
    return verify(read(gold), read(answer), timeout_seconds=None)
"""


def corpora() -> dict[str, list]:
    """(gold, answer, equal) by where they are from."""
    tests = runpy.run_path(str(HOME / "tests" / "rewards" / "maths_test.py"))
    by_hand = tests["test_cheap_comparison_by_hand"].pytestmark[0].args[1]
    return {"60 pairs by published conventions": GIVEN["conventions"],
            "pairs of this proof and of the tests": [
                *GIVEN["pairs"], *by_hand, *((*pair, True) for pair in tests["EQUAL"]),
                *((*pair, False) for pair in tests["OTHER"])]}


def compared(folder: Path, count: str = "240", seed: str = "0") -> tuple[Bars, dict]:
    """What `maths` pays (cheap comparison, then math-verify) against math-verify by itself with its own
    defaults; both read replies in the jail within the same second."""
    alone = Jailed("math-verify", ALONE, package="math_verify", instead="", warm=maths.WARM)

    def ours(gold: str, answer: str) -> tuple[bool, str]:
        try:
            verdict = maths.compare_answers(gold, maths.cut_answer(answer))
        except ValueError:  # a gold answer that it refuses, before any training
            return False, ""
        return verdict.score == 1, "timeout" if "time limit" in verdict.reason else verdict.error or ""

    def theirs(gold: str, answer: str) -> tuple[bool, str]:
        outcome = alone("same", gold, answer)
        return outcome.value is True, "" if outcome.kind == "pass" else outcome.kind

    def measured(compare, pairs: list) -> dict:
        compare("x", "2x-x")  # the workers start
        start = time.perf_counter()
        answers = [compare(gold, answer)[0] for gold, answer, _ in pairs]
        each = 1e3 * (time.perf_counter() - start) / len(pairs)
        wrong = [(gold, answer, paid) for (gold, answer, equal), paid in zip(pairs, answers, strict=True)
                 if paid != bool(equal)]
        return {"right": f"{len(pairs) - len(wrong)} of {len(pairs)}",
                "equal, not paid": "; ".join(f"{a} for {gold}" for gold, a, paid in wrong if not paid),
                "unequal, paid": "; ".join(f"{a} for {gold}" for gold, a, paid in wrong if paid),
                "ms a pair": f"{each:.1f}"}

    def attacked(compare) -> dict:
        hung = failed = 0
        accepted, slowest = [], 0.0
        for _, gold, reply in fuzz(int(count), int(seed), str(folder / "canary")):
            answer, start = maths.read_strict(reply), time.perf_counter()
            paid, fault = compare(gold, answer)
            slowest = max(slowest, time.perf_counter() - start)
            hung, failed = hung + (fault == "timeout"), failed + (fault not in ("", "timeout"))
            accepted += [f"{answer[:40]} for {gold}"] * (paid and not agree(gold, answer))
        return {"hung": hung, "raised": failed, "unequal, paid": len(accepted),
                "such as": "; ".join(accepted[:3]), "slowest s": f"{slowest:.2f}"}

    both = {"ours": ours, "math-verify alone": theirs}
    rows = [{"pairs": name, "by": who} | measured(compare, pairs)
            for name, pairs in corpora().items() for who, compare in both.items()]
    hostile = [{"by": who} | attacked(compare) for who, compare in both.items()]
    right = [int(row["right"].split()[0]) for row in rows]
    return [bar("maths against math-verify alone: 60 pairs by published conventions", "as many right or more",
                f"{rows[0]['right']} against {rows[1]['right']}", right[0] >= right[1]),
            bar(f"maths against math-verify alone: {count} fuzzed answers", "of ours none hangs or raises, "
                "and none unequal at 50 digits is paid", "; ".join(
                    f"{row['by']} {row['hung']} hung, {row['raised']} raised, {row['unequal, paid']} paid"
                    for row in hostile), not any(hostile[0][k] for k in ("hung", "raised", "unequal, paid"))),
            ], {"comparison of formulas": rows, "fuzzed answers": hostile}


# programs

def cost(count: int = 500) -> float:
    """Processor milliseconds of one verdict, all processes together: unlike wall time, not a matter of who
    else is at work."""
    from hostile.arena import CHEAT_SUITE, HONEST

    def spent(jobs: int) -> float:
        used = lambda: sum(sum(resource.getrusage(who)[:2])  # noqa: E731
                           for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        start = used()
        with CodeJudge(workers=1) as judge:
            judge.verdicts([CodeJob(source=HONEST, suite=CHEAT_SUITE)] * jobs)
        return used() - start

    return 1e3 * (spent(count + 1) - spent(1)) / count


def programs(folder: Path) -> Bars:
    """What a verdict of the sandbox costs; the tests hold what it pays and refuses."""
    each = cost()
    return [bar("sandbox: cost of an honest verdict", ">= 25 verdicts/s per core",
                f"{each:.1f} ms of processor time, {1e3 / each:.0f} verdicts/s per core", 1e3 / each >= 25)]
