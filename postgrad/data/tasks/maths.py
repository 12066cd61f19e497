r"""Competition mathematics (MATH: Hendrycks et al. 2021, arXiv:2103.03874):
math:FILE, math:FOLDER, or math from the hub.

A row is {"problem", "solution", "answer"?, "level"?, "subject"?}. The gold is `answer`, or the last \boxed{}
of the solution. One file is split by a hash of the problems; a folder has train and test, and a tenth of
train becomes validation. The hub's test split is MATH-500 (Lightman et al. 2023, arXiv:2305.20050).
"""

from __future__ import annotations

from postgrad.data.rows import BadRows, DataRow
from postgrad.data.sets import dataset_rows
from postgrad.data.tasks.base import Task, gold_demonstrations
from postgrad.data.tasks.listed import (
    check_answers,
    disjoint_splits,
    hold_out,
    read_each,
    sample_lists,
    split_list,
)
from postgrad.records import Prompt
from postgrad.rewards.format import find_boxed
from postgrad.rewards.maths import check_golds, judge_maths

NAMES = ("math:FILE",)

BARE = "\\boxed "
FORM = r"Reason step by step, and put the final answer within \boxed{}."


def boxed_answer(solution: str) -> str | None:
    r"""The last \boxed{} of a published solution, or a last "\boxed 5$", as in some of MATH."""
    answer = find_boxed(solution)
    if answer is None and BARE in solution:
        answer = solution.rpartition(BARE)[2].partition("$")[0].strip()
    return answer


def maths_prompt(row: DataRow, where: str) -> Prompt:
    problem, solution = row.get("problem"), row.get("solution") or ""
    if not isinstance(problem, str) or not problem.strip() or not isinstance(solution, str):
        raise ValueError(f'{where}: expected {{"problem": ..., "solution": ...}} as texts, found '
                         f'{", ".join(sorted(row))}.')
    answer = row.get("answer", boxed_answer(solution))
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(rf"{where}: the problem has no answer: neither a text `answer` nor a \boxed{{...}} "
                         rf"in its solution.")
    facts = {name: row[name] for name in ("level", "subject", "type") if name in row}
    return Prompt.ask(f"{problem.strip()}\n{FORM}", answer.strip(), solution=solution.strip(), **facts)


def gold(prompt: Prompt) -> str:
    """The published solution if it ends in the answer, else the answer alone."""
    solution = str(prompt.meta["solution"])
    return solution if find_boxed(solution) == prompt.answer else rf"\boxed{{{prompt.answer}}}"


def load(name: str, source: str, bad: BadRows | None = None) -> Task:
    bad = bad or BadRows()
    prompts = {split: check_answers(read_each(rows, maths_prompt, bad), check_golds, bad)
               for split, rows in dataset_rows(name, source, bad).items()}
    parts, meta = split_list(prompts[""]) if "" in prompts else disjoint_splits(hold_out(prompts))
    meta = {**meta, "notes": bad.note(name)}
    draw = sample_lists(name, parts)
    worked = all(prompt.meta["solution"] for prompt in parts["train"])
    return Task(name=name, about="competition mathematics, judged by the value of the answer", prompts=draw,
                verify=judge_maths, gold=gold, tokens=512, waits=True, meta=meta,
                demonstrations=gold_demonstrations(draw, gold) if worked else None)
