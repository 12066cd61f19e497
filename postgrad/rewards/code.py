"""Code that passes tests: how the rows of MBPP and HumanEval become suites, and the verifier that runs them in the sandbox.

MBPP: Austin et al. 2021, arXiv:2108.07732. HumanEval: Chen et al. 2021, arXiv:2107.03374.
Left out on purpose: tests that build objects of the candidate's own classes, hand it a type, or expect an exception: objects,
types and exceptions do not cross the pipe. Such a suite says so in `unsupported`, and its verdicts are infrastructure, never a
score of 0.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import sys
from collections.abc import Callable, Collection, Mapping

from postgrad.records import Verdict
from postgrad.rewards.sandbox.judge import Job, Judge, Suite

FENCE, PYTHON = "```", ("", "python", "python3", "py")


def blocks(text: str) -> list[tuple[str, str]]:
    """The closed ``` blocks of a text, as (the word after the first fence, what stands between the fences).

    "```python\\na = 1\\n```" -> [("python", "a = 1\\n")]. A fence with a word ends what is open, and opens.
    """
    found, word, body = [], None, []
    for line in io.StringIO(text):  # which parts at \n alone
        if not line.startswith(FENCE):
            body.append(line)
            continue
        told = line[len(FENCE):].strip()
        if word is not None:
            found.append((word, "".join(body)))
        word, body = told if word is None or told else None, []
    return found


def extract_code(text: str) -> str:
    """The code of a reply: what is in its last closed ``` block of Python; without one, the whole text."""
    found = [code for word, code in blocks(text) if word.lower() in PYTHON]
    return found[-1] if found else text


def mbpp(row: Mapping[str, object]) -> Suite:
    """A row of mbpp.jsonl or of sanitized-mbpp.json -> its suite. The names that the tests call are found in the tests."""
    setup = "\n".join([*row.get("test_imports", ()), str(row.get("test_setup_code", ""))]).strip()
    tests = "\n".join([*row["test_list"], *row.get("challenge_test_list", ())])
    return suite_of(tests, setup)


def humaneval(row: Mapping[str, object]) -> Suite:
    """A row of HumanEval.jsonl -> its suite. The prompt is executed on the tests' side too: it holds helpers that they call."""
    entry = row["entry_point"]
    tests = f"{row['test']}\ncheck(candidate)"
    return Suite(tests=tests, names={"candidate": entry, entry: entry}, setup=row["prompt"], unsupported=_unsupported(tests))


def whole_program(row: Mapping[str, object], completion: str) -> str:
    """HumanEval asks for the rest of a function: the prompt and the completion, or a completion that defines it anew.

    In the second case the prompt still stands before it, for its imports and helpers.
    """
    code = extract_code(completion)
    anew = re.search(rf"^def {re.escape(row['entry_point'])}\b", code, re.MULTILINE)
    return f"{row['prompt']}\n\n{code}" if anew else f"{row['prompt']}{code}"


def suite_of(tests: str, setup: str = "") -> Suite:
    """Asserts -> a suite whose names are those that neither Python, nor an import, nor the tests themselves define.

    suite_of("assert f(2) == 4").names -> {"f": "f"}; a builtin is the candidate's only where nothing else is called:
    suite_of("assert sum(10, 15) == 6").names -> {"sum": "sum"}. Modules of the standard library are imported by themselves.
    """
    tree = ast.parse(f"{setup}\n{tests}")
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    modules = sorted((used - made - called) & sys.stdlib_module_names)
    names = used - made - set(modules) - set(dir(builtins)) or _outermost(tree)
    if not names:
        raise ValueError(f"the tests call nothing that a candidate could define: {tests[:80]!r}.")
    setup = "\n".join([*(f"import {name}" for name in modules), setup])
    built = sorted(name for name in names if name[0].isupper() and len(names) > 1)
    cannot = f"they build objects of the candidate's class {built[0]}, which do not cross" if built else None
    cannot = cannot or _unsupported(tests, names)
    tests, truths = _truths(tests, names)
    return Suite(tests=tests, names={name: name for name in sorted(names)} | truths, setup=setup, unsupported=cannot)


def _truths(tests: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """Where only the truth of an answer is asserted, only its truth needs to cross: a match object is as good as True.

    "assert f(2)" -> "assert f_is_true(2)", {"f_is_true": "bool f"}
    """
    tree, truths = ast.parse(tests), {}
    for node in tree.body:
        call = getattr(node, "test", None)
        call = call.operand if isinstance(call, ast.UnaryOp) and isinstance(call.op, ast.Not) else call
        if isinstance(node, ast.Assert) and isinstance(call, ast.Call) and getattr(call.func, "id", None) in names:
            truths[f"{call.func.id}_is_true"] = f"bool {call.func.id}"
            call.func.id += "_is_true"
    return (ast.unparse(tree), truths) if truths else (tests, {})


def _outermost(tree: ast.Module) -> set[str]:
    """The functions that asserts compare: {"sum"} for assert sum(10, 15) == 6."""
    asserted = [node.test for node in tree.body if isinstance(node, ast.Assert)]
    lefts = [test.left if isinstance(test, ast.Compare) else test for test in asserted]
    return {left.func.id for left in lefts if isinstance(left, ast.Call) and isinstance(left.func, ast.Name)}


def _unsupported(tests: str, names: Collection[str] = ()) -> str | None:
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Try | ast.With):
            return "they expect an exception, and exceptions do not cross"
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names:
            types = [arg.id for arg in node.args if isinstance(getattr(builtins, getattr(arg, "id", ""), None), type)]
            if types:
                return f"they hand over the type {types[0]}, and types do not cross"
    return None


def passes_tests(suite: Suite, judge: Judge, program: Callable[[str], str] = extract_code) -> Callable[[str], Verdict]:
    """A verifier of one task: 1 when the program in a reply passes every test, else 0 with the reason.

    For many replies at once, hand Job(source=..., suite=...) rows to judge.verdicts: the workers then run side by side.
    """
    def verify(text: str) -> Verdict:
        return judge.verdicts([Job(source=program(text), suite=suite)])[0]

    return verify
