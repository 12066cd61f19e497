"""GSM8K: grade-school word problems in people's words (Cobbe et al. 2021, arXiv:2110.14168, MIT).

gsm8k:FOLDER reads train.jsonl and test.jsonl; gsm8k alone reads the hub. A tenth of the published training
problems, by a hash of the question, is the validation split. A reply is right, strictly, if the line of its
last "####" is "#### 72"; leniently, if 72 is its last number. Only the strict form is rewarded.
example_model_solutions.jsonl in the folder (four models' answers to test problems) gives preference pairs of
a right and a wrong answer, split by a hash of the problem.
"""

from __future__ import annotations

from pathlib import Path

from postgrad.data.rows import BadRows, DataRow, read_rows_file
from postgrad.data.sets import dataset_rows
from postgrad.data.tasks.base import SPLITS, Task, gold_demonstrations, split_of
from postgrad.data.tasks.listed import disjoint_splits, hold_out, read_each, sample_lists
from postgrad.records import Pair, Prompt, Verdict
from postgrad.rewards.format import MARK
from postgrad.rewards.number import bare_number, exact_number, last_number
from postgrad.rewards.retraction import takes_back
from postgrad.rewards.visible import outside_thoughts, visible

NAMES = ("gsm8k:FOLDER",)

FORM = f"Reason step by step, then end with {MARK} and the answer as a number."


def gsm8k_prompt(row: DataRow, where: str) -> Prompt:
    """meta["solution"] is the published one, with its <<48/2=24>> annotations."""
    question, solution = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(solution, str) or MARK not in solution:
        raise ValueError(f'{where}: expected {{"question": ..., "answer": "... {MARK} 72"}}, found '
                         f'{sorted(row)}.')
    worked, _, answer = solution.rpartition(MARK)
    prompt = Prompt.ask(f"{question.strip()}\n{FORM}", answer.strip(),
                        solution=f"{worked.strip()}\n{MARK} {answer.strip()}")
    exact_number(prompt.answer)
    return prompt


def gold(prompt: Prompt) -> str:
    return str(prompt.meta["solution"])


def verify(prompt: Prompt, text: str) -> Verdict:
    judge, text = exact_number(prompt.answer), outside_thoughts(visible(text))
    before, marked, after = text.rstrip().removesuffix(MARK).rpartition(MARK)
    formed = bool(marked and before.strip())
    line, _, rest = after.strip().partition("\n")
    line = "" if takes_back(before, line, f"\n{rest}") else bare_number(line)
    strict = judge(line) if formed else Verdict(score=0.0, reason=f"no {MARK} after the steps")
    lenient = judge(last_number(text) or "")
    return Verdict(score=strict.score, reason=strict.reason,
                   parts={"correct": strict.score, "lenient": lenient.score, "format": float(formed)})


def solution_pairs(path: Path) -> list[Pair]:
    """Every right answer with every wrong one to the same problem, in the form that the verifier requires."""
    pairs = []
    for where, row in read_rows_file(path):
        answers = [answer for name, answer in row.items() if name not in ("question", "ground_truth")]
        try:
            texts = {right: [MARK.join(one["solution"].rsplit("A:", 1)) for one in answers
                             if one["is_correct"] is right] for right in (True, False)}
            asked = Prompt.ask(f"{row['question'].strip()}\n{FORM}")
        except (KeyError, TypeError, AttributeError) as fault:
            raise ValueError(f'{where}: expected a question and answers like '
                             f'{{"is_correct": true, "solution": "... A: 18"}} ({fault!r}).') from None
        pairs += [Pair(id=f"{asked.id}/{i}-{j}", messages=asked.messages, chosen=right, rejected=wrong)
                  for i, right in enumerate(texts[True]) for j, wrong in enumerate(texts[False])]
    return pairs


def load(name: str, source: str, bad: BadRows | None = None) -> Task:
    bad = bad or BadRows()
    rows = dataset_rows(name, source, bad)
    if "" in rows:
        raise ValueError(f"{source} is one file: write gsm8k:FOLDER, with train.jsonl and test.jsonl in it.")
    parts, meta = disjoint_splits(hold_out({split: read_each(rows[split], gsm8k_prompt, bad)
                                            for split in rows}))
    draw = sample_lists(name, parts)
    solved = Path(source).expanduser() / "example_model_solutions.jsonl"
    pairs = solution_pairs(solved) if source and solved.is_file() else []
    meta = {**meta, "notes": bad.note(name)}
    judged = {split: [pair for pair in pairs if split_of(pair.id.partition("/")[0]) == split]
              for split in SPLITS}
    return Task(name=name, about="grade-school word problems in people's words", prompts=draw, verify=verify,
                gold=gold, demonstrations=gold_demonstrations(draw, gold),
                preferences=sample_lists(f"{name}/pairs", judged) if pairs else None, tokens=256, meta=meta)
