"""Every generator of reasoning-gym as a task: does it load, are its splits disjoint, is its own gold paid.

    python proofs/generators.py [NAME ...] [--out FILE.json]     needs postgrad[gym]; some minutes on one core
                                                                 for all
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]

from results import bar  # noqa: E402

from postgrad.data.tasks import SPLITS, load_task  # noqa: E402
from postgrad.data.tasks.gym import find, score  # noqa: E402
from postgrad.rewards.sandbox import tier  # noqa: E402

PROMPTS = 8  # of each split


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was seen of one generator. refused: the sentence where it was not loaded."""

    name: str
    refused: str = ""
    evaluates: str = ""
    jailed: bool = False
    prompts: int = 0
    shared: int = 0     # questions in more than one split
    paid: int = 0       # gold answers that the generator's own scorer pays in full, in the jail
    right: int = 0      # gold replies that the task pays
    seconds: float = 0.0


def names() -> list[str]:
    from reasoning_gym.factory import DATASETS
    return sorted(DATASETS)


def look(name: str) -> Report:
    began = time.perf_counter()
    try:
        task = load_task(f"gym:{name}")
        of = find(name)
        parts = {split: task.prompts(split, PROMPTS, 0) for split in SPLITS}
    except ValueError as fault:
        return Report(name=name, refused=str(fault), seconds=time.perf_counter() - began)
    prompts = [prompt for split in SPLITS for prompt in parts[split]]
    return Report(
        name=name, evaluates=of.evaluates, jailed=of.own_scorer, prompts=len(prompts),
        shared=len(prompts) - len({prompt.question for prompt in prompts}),
        paid=sum(score(of, p.meta["entry"], str(p.answer).strip()).score >= 1.0 for p in prompts),
        right=sum(task.verify(p, task.gold(p)).score >= 1.0 for p in prompts),
        seconds=time.perf_counter() - began)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    asked.add_argument("names", nargs="*", metavar="NAME")
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    print(f"sandbox: {tier()}")
    reports = []
    for name in args.names or names():
        said = look(name)
        reports.append(said)
        seen = (f"{said.prompts} prompts, {said.shared} shared, golds paid: {said.paid} in the jail, "
                f"{said.right} by the task")
        print(f"{name:28} {said.refused or seen} {said.evaluates} {said.seconds:.1f} s", flush=True)
    loaded = [r for r in reports if not r.refused]
    bribed = [r.name for r in reports if "pays in full for" in r.refused]
    evaluating = [r.name for r in loaded if r.evaluates]
    apart, paid = sum(not r.shared for r in loaded), sum(r.paid == r.prompts == r.right for r in loaded)
    said = (f"{len(reports)} generators: {len(loaded)} load, {apart} have disjoint splits, {paid} pay all "
            f"their gold; {len(reports) - len(loaded)} are refused in a sentence, {len(bribed)} of "
            "them as they pay "
            f"for what solves nothing: {', '.join(bribed)}")
    print(f"{said}; {sum(r.jailed for r in loaded)} have a scorer of their own, {len(evaluating)} of them "
          f"evaluate answers: {', '.join(evaluating)}")
    if args.out:
        row = bar("reasoning-gym, every generator as a task, scored in the jail",
                  "disjoint, gold paid, or refused", said, apart == paid == len(loaded),
                  "python proofs/generators.py")
        args.out.write_text(json.dumps([row], indent=1) + "\n")


if __name__ == "__main__":
    main()
