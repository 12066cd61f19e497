"""GSM8K: grade-school word problems in people's words (Cobbe et al. 2021, arXiv:2110.14168, MIT).

gsm8k:FOLDER reads train.jsonl and test.jsonl. The test split is the published one; a tenth of the published training problems,
by a hash of the question, is the validation split. A reply is right, strictly, when it ends in "#### 72"; leniently, when 72 is
the last number in it. Only the strict form is paid.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from postgrad.records import Conversation, Prompt, Verdict
from postgrad.rewards.format import MARK
from postgrad.rewards.number import exact_number, last_number
from postgrad.tasks.base import SPLITS, Task, conversation
from postgrad.tasks.listed import sampled
from postgrad.tasks.rows import read

FORM = f"Reason step by step, then end with {MARK} and the answer as a number."


def prompt_of(row: dict, where: str) -> Prompt:
    """A published row: the worked solution is kept as it is, with its <<48/2=24>> notes."""
    question, solution = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(solution, str) or MARK not in solution:
        raise ValueError(f'{where}: expected {{"question": ..., "answer": "... {MARK} 72"}}, found {sorted(row)}.')
    worked, _, answer = solution.rpartition(MARK)
    prompt = Prompt.ask(f"{question.strip()}\n{FORM}", answer.strip(), solution=f"{worked.strip()}\n{MARK} {answer.strip()}")
    exact_number(prompt.answer)
    return prompt


def gold(prompt: Prompt) -> str:
    return prompt.meta["solution"]


def verify(prompt: Prompt, text: str) -> Verdict:
    """Both readings are kept as parts: a right answer out of form is seen, and not paid."""
    judge = exact_number(prompt.answer)
    before, marked, after = text.rpartition(MARK)
    formed = bool(marked and before.strip())
    strict = judge(after.strip().lstrip("$").rstrip(".")) if formed else Verdict(score=0.0, reason=f"no {MARK} after the steps")
    lenient = judge(last_number(text) or "")
    return Verdict(score=strict.score, reason=strict.reason,
                   parts={"correct": strict.score, "lenient": lenient.score, "format": float(formed)})


def load(name: str, source: str) -> Task:
    folder = Path(source).expanduser()
    missing = [file for file in ("train.jsonl", "test.jsonl") if not (folder / file).is_file()]
    if not source or missing:
        raise ValueError(f"gsm8k needs the folder with train.jsonl and test.jsonl, as gsm8k:FOLDER; "
                         f"{source or 'no folder'} {f'has no {missing[0]}' if source else 'was given'}.")
    rows = {file: [prompt_of(row, f"{file}, line {line}") for line, row in read(folder / file)]
            for file in ("train.jsonl", "test.jsonl")}
    held = {p.id for p in rows["train.jsonl"] if zlib.crc32(p.id.encode()) % 10 == 0}
    parts = {"train": [p for p in rows["train.jsonl"] if p.id not in held],
             "validation": [p for p in rows["train.jsonl"] if p.id in held], "test": rows["test.jsonl"]}
    draw = sampled(name, parts)

    def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
        return [conversation(prompt, gold(prompt), i) for i, prompt in enumerate(draw(split, count, seed))]

    return Task(name=name, about="grade-school word problems in people's words", prompts=draw, verify=verify, gold=gold,
                demonstrations=demonstrations, meta={"sizes": {split: len(parts[split]) for split in SPLITS}})
