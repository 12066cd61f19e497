"""What a second look found, and what holds now: each fault's tests, and the corpora that were grown by its
class; about an hour on two cores.

    python proofs/mend.py [PART ...]

    tests       the tests that failed before and pass now, mistakes at the command line and hostile
                files (each in a child with 2 seconds of processor time and 3 GiB) among them
    coverage    how often 95 % intervals hold the truth (tests/support/coverage_cells.py), beside Student's:
                a wide grid, then what is asked of `eval` and `compare`; [times=2000] [seed=0]
    replies     [count=50000] hostile replies through every verifier, then 232 replies of 100,000 characters
    gym         every generator of reasoning-gym as a task: it loads, splits are disjoint, its gold is paid
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from harness import Bars, Page, bar, grid, tests
from coverage_cells import AMONG, ASKED, KINDS, LEAST, PROBLEMS, SAMPLES, SHARES, SPREADS, Cell, covered

from postgrad.data.tasks import SPLITS, load_task
from postgrad.data.tasks.gym import find_generator, score_answer

# intervals

def coverage(folder: Path, times: str = "2000", seed: str = "0") -> Bars:
    def table(cells: Sequence[Cell], count: int) -> list[dict]:
        rows = []
        for cell in cells:
            held, student, width = covered(cell, count, int(seed))
            rows.append({"of": cell.kind, "problems": cell.n, "samples": cell.k, "p": cell.p,
                         "alike": cell.alike, "covers": held, "Student": student, "width": width})
        print("\n".join(grid(rows)), "\n")
        return rows

    rows = table([Cell(kind, n, k, p) for kind in KINDS[:4] for n in PROBLEMS for k in SAMPLES
                  for p in SHARES], int(times))
    asked = table([Cell(kind, n, 8, p, alike) for kind in ("mean", "solved", "pass@k", "gain", "same")
                   for n in (200, 30) for alike in SPREADS for p in ASKED], 2 * int(times))
    sure = [row for row in rows if row["p"] in (0.0, 1.0)]
    usual = [row for row in rows if row["p"] not in (0.0, 1.0)]
    least, mean = min(row["covers"] for row in usual), sum(row["covers"] for row in usual) / len(usual)
    return [bar(f"coverage of the 95 % intervals, least of {len(usual)} cells", f">= {LEAST}",
                f"{least:.3f}; mean {mean:.3f}; Student's least {min(row['Student'] for row in usual):.3f}",
                least >= LEAST),
            bar(f"all right or all wrong, {len(sure)} cells: the truth is held, and the width above 0",
                f"all {len(sure)}", f"{min(row['covers'] for row in sure):.3f}; narrowest "
                f"{min(row['width'] for row in sure):.4f}",
                all(row["covers"] == 1 and row["width"] > 0 for row in sure)),
            *demanded(asked)]


def demanded(rows: Sequence[dict]) -> Iterator[dict]:
    """The bars of `eval` and `compare`.

    Where almost nothing differs an interval can only be too wide, and is asked for the lower bound alone:
    pass@8 where pass@1 is 80 %, of which one problem in 70 or fewer is missed; and two models that are
    equally good on each problem, where 2 % is solved or problems are solved always or never (alike 0.5).
    """
    low, high = AMONG
    names = {"mean": "pass@1", "solved": "pass@8", "gain": "paired difference", "same": "no difference"}
    for kind, name in names.items():
        every = [row for row in rows if row["of"] == kind and row["problems"] == 200]
        found = [row["covers"] for row in every
                 if kind != "same" or row["p"] > 0.02 and row["alike"] > SPREADS[0]]
        wide = max(row["covers"] for row in every)
        shares = "20 and 80 %" if kind == "same" else "2, 20 and 80 %"
        yield bar(f"coverage of {name} at {shares}, 200 problems x 8, {len(found)} cells",
                  f"{low:.0%} to {high:.0%}", f"{min(found):.3f} to {max(found):.3f}"
                  + (f"; where almost nothing differs up to {wide:.3f}" if kind == "same" else ""),
                  low <= min(found) and max(found) <= high)
    few, many = ([row["covers"] for row in rows if row["problems"] == n] for n in (30, 200))
    yield bar(f"the same with 30 problems x 8, pass@8 by its own share and by pass@1's, {len(few)} cells",
              f">= {low:.0%}", f"least {min(few):.3f}; of the 200 x 8 {min(many):.3f}",
              min(few + many) >= low)


# verifiers

LENGTH, BUDGET = 100_000, 0.25  # characters, seconds of processor time


def fuzz(here: list, inside: list, count: int, seed: int) -> tuple[Counter, list[str]]:
    """Verdicts by verifier, and the faults of any."""
    from hostile.replies import replies
    from hostile.verifiers import fault_of
    given, found = Counter(), []
    golds = tuple(judge.gold for judge in here + inside)
    for at, (kind, text) in enumerate(islice(replies(seed, golds), count)):
        for judge in [*here, *inside[at % len(inside): at % len(inside) + 1]]:
            given[judge.name] += 1
            if why := fault_of(judge, kind, text):
                found.append(f"{judge.name}: {kind} {ascii(text[:60])}: {why}")
    return given, found


def replies(folder: Path, count: str = "50000", seed: str = "0") -> Bars:
    """Every reply goes to each verifier that runs in this process, and to one of the jailed ones in turn."""
    from hostile.arena import family
    from hostile.replies import longest
    from hostile.verifiers import jailed, ours
    here, inside, worst = ours(), jailed(folder), (0.0, "")
    held = lambda: (len(family()), len(os.listdir("/proc/self/fd")))  # noqa: E731
    fuzz(here, inside, 40 * len(inside), int(seed) + 1)  # the workers start
    before = held()
    given, found = fuzz(here, inside, int(count), int(seed))
    for _, text in longest(LENGTH):
        for judge in here + inside:
            start = time.process_time()
            judge.verify(judge.prompt, text)
            worst = max(worst, (time.process_time() - start, judge.name))
    after = held()
    print("\n".join(found[:50]))
    return [bar(f"{int(count):,} hostile replies, {len(here + inside)} verifiers: raised, errors, paid", "0",
                f"{len(found)} of {given.total():,} verdicts", not found),
            bar(f"processor time of a verdict on {LENGTH:,} characters", f"<= {BUDGET} s",
                f"{worst[0]:.3f} s ({worst[1]})", worst[0] <= BUDGET),
            bar("children and descriptors left behind", "0",
                f"{after[0] - before[0]} and {after[1] - before[1]}", after <= before)]


def generator(name: str) -> dict:
    """One generator of reasoning-gym as a task; `refused`: the error if it is not loaded."""
    try:
        task, of = load_task(f"gym:{name}"), find_generator(name)
        prompts = [prompt for split in SPLITS for prompt in task.prompts(split, 8, 0)]
    except ValueError as fault:
        return {"name": name, "refused": str(fault)}
    paid = sum(score_answer(of, p.meta["entry"], str(p.answer).strip()).score >= 1.0 for p in prompts)
    right = sum(task.verify(p, task.gold(p)).score >= 1.0 for p in prompts)
    return {"name": name, "refused": "", "apart": len({p.question for p in prompts}) == len(prompts),
            "paid": paid == right == len(prompts)}


def gym(folder: Path, names: str = "") -> Bars:
    from reasoning_gym.factory import DATASETS
    reports = []
    for name in names.split(",") if names else sorted(DATASETS):
        reports.append(generator(name))
        print(reports[-1], flush=True)
    loaded = [r for r in reports if not r["refused"]]
    bribed = [r["name"] for r in reports if "pays in full for" in r["refused"]]
    apart, paid = (sum(r[key] for r in loaded) for key in ("apart", "paid"))
    return [bar("reasoning-gym, every generator as a task, scored in the jail",
                "all disjoint and their gold paid, or refused",
                f"{len(reports)} generators: {len(loaded)} load, {apart} have disjoint splits, {paid} pay "
                f"all their gold; {len(reports) - len(loaded)} are refused in a sentence, {len(bribed)} of "
                f"them as they pay for what solves nothing: {', '.join(bribed)}",
                apart == paid == len(loaded))]


PARTS: dict[str, Callable] = {"tests": tests("mend"),
                              "coverage": coverage, "replies": replies, "gym": gym}
PAGE = Page("mend", "A second look: what was wrong, and what holds now", PARTS, [0])

if __name__ == "__main__":
    PAGE.main()
