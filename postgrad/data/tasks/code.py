"""Programs that pass tests: MBPP (Austin et al. 2021, arXiv:2108.07732) and HumanEval (Chen et al.
2021, arXiv:2107.03374).

mbpp[:FILE], mbpp-sanitized[:FILE], humaneval[:FILE]; without a file, the hub's. MBPP uses its paper's prompt
with all of `test_list`; `challenge_test_list` is tested too and never shown. Its splits are the published
ones, by task_id: 601-974 train, 511-600 validation, 11-510 test; 1-10, the paper's few-shot examples, are
left out. HumanEval is a test set only.

A reply is right, strictly, if its last ```python block passes every test in the sandbox; leniently, also if
the code is in another block or in none. Only the strict form is rewarded. A table of answers passes the tests
that are shown.
"""

from __future__ import annotations

from functools import cache, partial
from typing import cast

from postgrad.data.rows import BadRows, DataRow
from postgrad.data.sets import dataset_rows
from postgrad.data.tasks.base import SPLITS, Task, gold_demonstrations, if_formed
from postgrad.data.tasks.listed import Parts, disjoint_splits, read_each, read_prompts, sample_lists
from postgrad.records import Prompt, Verdict
from postgrad.rewards.code import code_blocks, extract_code, humaneval, mbpp, whole_program
from postgrad.rewards.sandbox import CodeJob, CodeJudge, Suite

NAMES = ("mbpp:FILE", "mbpp-sanitized:FILE", "humaneval:FILE")

IDS = {"train": range(601, 975), "validation": range(511, 601), "test": range(11, 511)}
FORM = "Answer with the code in one ```python block."
MBPP = ("You are an expert Python programmer, and here is your task: {text} Your code should pass these "
        "tests:\n\n{tests}\n\n")
HUMANEVAL = "Complete this Python function.\n\n```python\n{prompt}```\n\n"
_FIELDS: dict[str, dict[str, type]] = {
    "mbpp": {"task_id": int, "code": str, "test_list": list},
    "humaneval": {"task_id": str, "prompt": str, "canonical_solution": str, "test": str, "entry_point": str},
}


@cache
def code_sandbox() -> CodeJudge:
    """The sandbox of all code tasks; its workers end with this process."""
    return CodeJudge()


def row_of(prompt: Prompt) -> DataRow:
    return cast(DataRow, prompt.meta["row"])


def suite_of(prompt: Prompt) -> Suite:
    return cast(Suite, prompt.meta["suite"])


def fenced(code: str) -> str:
    return "```python\n" + code.replace("\r\n", "\n").strip("\n") + "\n```"


def verify(prompt: Prompt, text: str) -> Verdict:
    """Runs the code once: the strict score is the lenient one if the reply is in form."""
    row, code = row_of(prompt), extract_code(text)
    formed = [code for word, code in code_blocks(text) if word == "python"][-1:] == [code]
    source = whole_program(row, text) if "entry_point" in row else code
    verdict = code_sandbox().verdicts([CodeJob(source=source, suite=suite_of(prompt))])[0]
    return if_formed(verdict, "" if formed else f"not in a ```python block; {verdict.reason}")


def gold(prompt: Prompt) -> str:
    row = row_of(prompt)
    return fenced(row["prompt"] + row["canonical_solution"] if "entry_point" in row else row["code"])


def code_prompt(name: str, row: DataRow, where: str) -> Prompt:
    """A published row; meta["suite"] holds its tests."""
    kind = "humaneval" if name == "humaneval" else "mbpp"
    text = row.get("prompt") if "text" not in row else row["text"]
    wrong = [field for field, wanted in _FIELDS[kind].items() if not isinstance(row.get(field), wanted)]
    if wrong or not isinstance(text, str):
        raise ValueError(f"{where}: expected a row of {name} with {', '.join(_FIELDS[kind])}; "
                         f"{wrong[0] if wrong else 'text'} is missing or of another type, among "
                         f"{', '.join(sorted(row))}.")
    try:
        suite = humaneval(row) if kind == "humaneval" else mbpp(row)
    except (ValueError, SyntaxError, TypeError) as fault:
        raise ValueError(f"{where}: its tests cannot be used: {fault}.") from None
    tests = "\n".join(row.get("test_list", ()))
    asked = (HUMANEVAL.format(prompt=text) if kind == "humaneval"
             else MBPP.format(text=text.strip(), tests=tests))
    number = str(row["task_id"]).removeprefix("HumanEval/")
    return Prompt.ask(asked + FORM, id=f"{name}/{number}", suite=suite, row=row, task=text)


def published_splits(name: str, prompts: list[Prompt]) -> Parts[Prompt]:
    if name == "humaneval":
        return {"train": [], "validation": [], "test": prompts}
    stray = [p.id for p in prompts if not 1 <= row_of(p)["task_id"] <= 974]
    if stray:
        raise ValueError(f"{stray[0]} is none of MBPP's tasks 1 to 974: questions of your own belong in a "
                         ".py or .jsonl file.")
    return {split: [p for p in prompts if row_of(p)["task_id"] in IDS[split]] for split in SPLITS}


def load(name: str, source: str, bad: BadRows | None = None) -> Task:
    bad = bad or BadRows()
    rows = [row for split in dataset_rows(name, source, bad).values() for row in split]
    code_sandbox()
    read = read_each(rows, partial(code_prompt, name), bad)
    prompts = read_prompts(read, lambda i: read[i].place, bad=bad, counted=True)
    judged = [p for p in prompts if not suite_of(p).unsupported]
    parts, meta = disjoint_splits(published_splits(name, judged),
                                  key=lambda p: " ".join(str(p.meta["task"]).split()).casefold())
    draw = sample_lists(name, parts,
                        instead="it is published as a test set, so train on another task, such as mbpp")
    return Task(name=name, about="programs that pass tests, in the sandbox", prompts=draw, verify=verify,
                gold=gold, waits=True,
                demonstrations=None if name == "humaneval" else gold_demonstrations(draw, gold),
                tokens=512 if name == "humaneval" else 256,
                meta={**meta, "notes": bad.note(name), "unsupported": len(prompts) - len(judged)})
