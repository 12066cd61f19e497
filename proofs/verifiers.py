"""What the verifiers of text hold against: fuzzed answers, false accepts among them,
gold against gold, near misses.

    python proofs/verifiers.py [--count 10000] [--seed 0] [--out FILE.json]
Prints the bars as JSON rows, and writes them to FILE. GSM8K is read from $POSTGRAD_DATA (by default
../shared/data beside the repository). Needs postgrad[math].
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from digits import agree

from postgrad.data.tasks import load_task
from postgrad.records import Prompt
from postgrad.rewards import maths
from postgrad.rewards.named import read_spec
from postgrad.rewards.number import parse_number

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from results import bar  # noqa: E402

DATA = Path(os.environ.get("POSTGRAD_DATA", ROOT.parent / "shared" / "data")) / "gsm8k"
GOLDS = ("72", r"\frac{3}{4}", r"2\sqrt{3}", r"[1,\infty)", r"\{1,2,5\}", "x^2-1", r"\pi", "50%", "x=3",
         "(1,2)")
ATOMS = ("0", "1", "2", "7", "12", "0.5", "x", "y", "n", r"\pi", r"\infty", "100")
TREES = (r"\frac{%s}{%s}", "%s+%s", "%s-%s", r"%s \cdot %s", "(%s)^{2}", r"\sqrt{%s}", r"\left(%s\right)",
         "%s^{%s}", r"\sin(%s)", r"\log_{2}(%s)", "|%s|", r"\{%s, %s\}", "[%s, %s)", "%s = %s", r"%s \le %s",
         "-%s", r"%s\%%", r"\binom{%s}{%s}", "%s!")


def formula(rng: random.Random, depth: int) -> str:
    """A formula of a small grammar of LaTeX."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(ATOMS)
    tree = rng.choice(TREES)
    return tree % tuple(formula(rng, depth - 1) for _ in range(tree.replace("%%", "").count("%s")))


def nested(rng: random.Random) -> str:
    begin, end = rng.choice([("(", ")"), ("{", "}"), (r"\sqrt{", "}"), (r"\frac{1}{", "}"), ("[", "]"),
                             (r"\left(", r"\right)")])
    deep = rng.choice([5, 9, 30, 200, 3000])
    return begin * deep + "1" + end * rng.choice([deep, deep - 1, 0])


def huge(rng: random.Random) -> str:
    nine = rng.choice(["9", "99", "10", "2"])
    return rng.choice([
        f"{nine}^{{{nine}^{{{nine}^{nine}}}}}", f"{nine}^{nine}^{nine}^{nine}", f"{nine}" * 2000,
        f"1e{nine * 3}", f"{nine}!!!!", f"({nine * 3}!)!", f"10^{{{nine * 4}}}",
        rf"\binom{{10^{{9}}}}{{{nine}00000}}", f"(((7^{{999}})^{{999}})^{{999}})^{{{nine}}}",
        f"{nine}^{{999*999*999}}", r"\sum_{i=1}^{10^9} i", rf"\int_0^{{{nine}}} x^x dx",
        f"0.{'3' * 30}{nine}", rf"\log_{{{nine}}}(10^{{999}})", rf"\sqrt[{nine * 3}]{{{nine * 12}}}"])


def codelike(rng: random.Random, canary: str) -> str:
    act = rng.choice([f"open('{canary}','w').write('x')", f"__import__('os').system('touch {canary}')",
                      f"__import__('pathlib').Path('{canary}').touch()", f"exec(\"open('{canary}','w')\")"])
    return rng.choice(["{}", "$(touch " + canary + ")", "`touch " + canary + "`", r"\text{{{}}}",
                       "lambda: {}", "[{} for x in (1,)]", "eval({})",
                       "x.__class__.__mro__[1].__subclasses__()", r"\write18{{touch " + canary + "}}",
                       r"\input{{|touch " + canary + "}}", "{{{{ {} }}}}", "1 if {} else 2", "sympify({})",
                       r"\frac{{1}}{{{}}}", "f'{{{}}}'", "os.system", "import os; {}"]).replace("{}", act)


def strange(rng: random.Random) -> str:
    odd = ["\x00", "\u202e", "\u200b", "\ufeff", "\ud800", "\u0663\u0664", "\uff17\uff12", "\u2212", "\u221e",
           "\u00bd", "\u03c0", "\U0001d7d5", "\u2044", "e\u0301", "\u0bf5", "\r\n", "\u2028", "72", "1/2",
           "\\",
           "{", "$", "%", "#", "&", "^", "_", "~", "'", '"']
    return "".join(rng.choices(odd, k=rng.choice([1, 2, 4, 12, 60])))


def long(rng: random.Random) -> str:
    piece = rng.choice(["7", "(", ")", "x+", r"\frac{1}{2}+", "\\", "$", "{", "answer is ", r"\boxed{",
                        "####", "<answer>", "\n", " ", "1,", "</answer>", "72 ", "^{2"])
    return piece * (100_000 // len(piece))


def fuzz(count: int, seed: int, canary: str) -> list[tuple[str, str, str]]:
    """(kind, gold, reply): answers of six kinds in turn, most of them marked as the answer of a reply."""
    rng, made = random.Random(f"verifiers/{seed}"), []
    kinds = {"formula": lambda: formula(rng, rng.choice([1, 2, 3, 4])), "nested": lambda: nested(rng),
             "huge": lambda: huge(rng), "code": lambda: codelike(rng, canary),
             "strange": lambda: strange(rng), "long": lambda: long(rng)}
    for i in range(count):
        kind = list(kinds)[i % len(kinds)]
        dress = rng.choice(["{}", r"\boxed{{}}", "<answer>{}</answer>", "so\n#### {}", "The answer is {}.",
                            "$${}$$"])
        made.append((kind, rng.choice(GOLDS), dress.replace("{}", kinds[kind](), 1)))
    return made


def fuzzed(count: int, seed: int) -> tuple[dict, list[dict]]:
    """Every reply judged once, one after the other; what was executed, paid, an error,
    and how long each took.

    unequal: the paid ones whose value, computed elsewhere at 50 digits, is not the gold one's.
    """
    verify = read_spec("maths")
    verify.check(GOLDS)
    maths.JAIL.each([("sound", ["x"])] * 2 * (os.cpu_count() or 1))  # the workers start
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        rows, seconds, jailed, unequal = fuzz(count, seed, str(canary)), [], [], []
        told, executed = Counter(), 0
        for kind, gold, reply in rows:
            calls, start = maths.JAIL.calls, time.perf_counter()
            said = verify(Prompt.ask("?", gold), reply)
            seconds.append(time.perf_counter() - start)
            told[kind, "jailed"] += maths.JAIL.calls - calls
            jailed += seconds[-1:] * (maths.JAIL.calls > calls)
            told[kind, "paid"] += said.score == 1
            told[kind, "error"] += said.error is not None
            executed += canary.exists()
            if said.score and not agree(gold, maths.read_strict(reply)):
                unequal.append(f"{maths.read_strict(reply)} for {gold}")
    table = [{"kind": kind, "answers": len(mine),
              **{what: told[kind, what] for what in ("jailed", "paid", "error")},
              "median_ms": 1e3 * statistics.median(mine), "slowest_ms": 1e3 * max(mine)}
             for kind in dict.fromkeys(k for k, _, _ in rows)
             if (mine := [s for s, (k, _, _) in zip(seconds, rows, strict=True) if k == kind])]
    seconds.sort()
    return {"executed": executed, "errors": sum(row["error"] for row in table),
            "p99": seconds[int(0.99 * len(seconds))], "worst": seconds[-1], "jailed": jailed,
            "unequal": unequal, "paid": sum(row["paid"] for row in table)}, table


def golds() -> tuple[int, int, int]:
    """GSM8K's answers: (how many, how many of them paid, near misses of them that were paid)."""
    task, verify = load_task(f"gsm8k:{DATA}"), read_spec("maths")
    prompts = [prompt for split in ("train", "validation", "test")
               for prompt in task.prompts(split, 10_000, 0)]
    verify.check([prompt.answer for prompt in prompts])
    paid = sum(verify(prompt, task.gold(prompt)).score == 1 for prompt in prompts)
    near = sum(verify(prompt, rf"\boxed{{{miss}}}").score > 0 for prompt in prompts
               for miss in misses(prompt.answer))
    return len(prompts), paid, near


def misses(answer: str) -> set[str]:
    """Numbers that are nearly the answer: one off, the sign turned, two digits swapped,
    one missing or doubled."""
    plain = answer.replace(",", "")
    value = int(plain)
    made = {plain[:-1], plain + plain[-1], plain[:-2] + plain[:-3:-1], plain[1:], f"{plain}.01", f"{plain}%"}
    made |= {str(value + 1), str(value - 1), str(-value), f"{value}/2", f"{value * 10}"}
    return {miss for miss in made if parse_number(miss) not in (None, value) or miss.endswith("%") and value}


PAIRS = [  # gold, answer, whether they are equal
    (r"\frac{1}{2}", "0.5", True), ("0.5", "1/2", True), ("50%", "0.5", True), ("50%", "50", True),
    (r"\sqrt{8}", r"2\sqrt{2}", True),
    (r"\{1,2\}", r"\{2,1\}", True), ("x=3", "3", True), ("x<3", r"(-\infty,3)", True),
    ("x^2+2x+1", "(x+1)^2", True), ("12", r"\sqrt{144}", True), (r"2\pi", r"\pi+\pi", True),
    (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2", True), (r"\frac{1}{3}", "0.333", False),
    ("1/3", "0.333333333333", False), (r"\sqrt{2}", "1.414214", False), (r"\pi", "3.14", False),
    (r"\pi", "3.14159265", False), (r"\pi", "22/7", False), ("[1,2)", "[1,2]", False),
    ("[1,2)", "(1,2)", False), ("(1,2)", "(2,1)", False),
    ("(1,2)", r"\{1,2\}", False), ("(1,2)", "1,2", False), (r"\{1,2\}", r"\{1,2,3\}", False),
    (r"\{1,2\}", r"\{1,3\}", False), ("x=3", "x=4", False), ("x=3", "y=3", False), ("x<3", r"x\le 3", False),
    ("x<3", "x>3", False), ("x^2-1", "(x-1)^2", False), (r"2\sqrt{3}", r"3\sqrt{2}", False),
    (r"2\sqrt{3}", r"-2\sqrt{3}", False), ("5", "5%", False), ("14", "1 4", False),
    ("1,234", "1, 234", False), ("3+2i", "3-2i", False), ("10", "10!", False),
    (r"\frac{2}{3}", r"\frac{3}{2}", False),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", False),
    (r"90^\circ", "91", False), (r"(-\infty,2)\cup(3,\infty)", r"(-\infty,2)\cup[3,\infty)", False),
    ("2^{10}", "2^{11}", False), ("a+b", "a-b", False),
]


def bars(count: int, seed: int) -> tuple[list[dict], list[dict]]:
    command = f"python proofs/verifiers.py --count {count} --seed {seed}"
    found, table = fuzzed(count, seed)
    wrong = [f"{gold} / {answer}" for gold, answer, equal in PAIRS
             if maths.compare(gold, answer).score != equal]
    rows = [
        bar(f"{count:,} fuzzed answers through maths: executed", "0", str(found["executed"]),
            found["executed"] == 0, command),
        bar("fuzzed answers: infrastructure errors", "0", str(found["errors"]), not found["errors"], command),
        bar("fuzzed answers: accepted, but unequal at 50 digits", "0",
            f"{len(found['unequal'])} of {found['paid']} "
            f"accepted{': ' * bool(found['unequal'])}{'; '.join(found['unequal'])}",
            not found["unequal"], command),
        bar("fuzzed answers: p99 of a verdict", "<= 50 ms",
            f"{1e3 * found['p99']:.1f} ms; {len(found['jailed'])} needed the jail, with a median of "
            f"{1e3 * statistics.median(found['jailed'] or [0]):.0f} ms",
            found["p99"] <= 0.05, command),
        bar("fuzzed answers: slowest verdict", "<= 2 s", f"{found['worst']:.2f} s", found["worst"] <= 2,
            command),
        bar("equal and nearly equal formulas told apart", f"{len(PAIRS)} of {len(PAIRS)}",
            f"{len(PAIRS) - len(wrong)}{': ' + '; '.join(wrong) if wrong else ''}", not wrong, command)]
    if DATA.is_dir():
        many, paid, near = golds()
        rows += [bar("GSM8K, gold against gold", "100 %", f"{paid:,} of {many:,}", paid == many, command),
                 bar("GSM8K, near misses accepted (off by one, sign, digits swapped, missing, doubled)", "0",
                     str(near), near == 0, command)]
    return rows, table


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    asked.add_argument("--count", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    rows, table = bars(args.count, args.seed)
    for row in [*table, *rows]:
        print(json.dumps(row))
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
