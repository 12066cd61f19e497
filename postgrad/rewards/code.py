"""Code that passes tests: suites from rows of MBPP and HumanEval, and the verifier that runs them.

MBPP: Austin et al. 2021, arXiv:2108.07732. HumanEval: Chen et al. 2021, arXiv:2107.03374.
Left out on purpose: tests that build objects of the candidate's own classes, hand it a type, or expect an
exception: objects, types and exceptions do not cross the pipe. Such a suite says so in `unsupported`, and its
verdicts are infrastructure, never a score of 0.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping

from postgrad.records import Verdict
from postgrad.rewards.sandbox.judge import CodeJob, CodeJudge, Suite
from postgrad.system.user_code import parse_source

FENCE, PYTHON = "```", ("", "python", "python3", "py")


def code_blocks(text: str) -> list[tuple[str, str]]:
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
    found = [code for word, code in code_blocks(text) if word.lower() in PYTHON]
    return found[-1] if found else text


def mbpp(row: Mapping[str, object]) -> Suite:
    """A row of mbpp.jsonl or of sanitized-mbpp.json -> its suite. Its names are those of the reference."""
    setup = "\n".join([*_lines(row.get("test_imports")), str(row.get("test_setup_code", ""))]).strip()
    tests = "\n".join([*_lines(row["test_list"]), *_lines(row.get("challenge_test_list"))])
    return suite_from_tests(tests, setup, reference=str(row["code"]) if row.get("code") else None)


def _lines(value: object) -> list[str]:
    return [*map(str, value)] if isinstance(value, list | tuple) else []


def humaneval(row: Mapping[str, str]) -> Suite:
    """A row of HumanEval.jsonl -> its suite. Its setup is the prompt, whose helpers the tests call."""
    entry = row["entry_point"]
    tests = f"{row['test']}\ncheck(candidate)"
    used, made = _names(parse_source(f"{row['prompt']}    pass\n{tests}"))
    strangers = sorted(used - made - set(dir(builtins)) - {"candidate", entry})
    cannot = f"they use {strangers[0]}, which nothing defines" if strangers else _unsupported(tests)
    names = {"candidate": entry, entry: entry}
    return Suite(tests=tests, names=names, setup=row["prompt"], unsupported=cannot)


def whole_program(row: Mapping[str, str], completion: str) -> str:
    """HumanEval's prompt and completion; a completion may also redefine the function, after the prompt's
    imports and helpers."""
    code = extract_code(completion)
    anew = re.search(rf"^def {re.escape(row['entry_point'])}\b", code, re.MULTILINE)
    return f"{row['prompt']}\n\n{code}" if anew else f"{row['prompt']}{code}"


def suite_from_tests(tests: str, setup: str = "", *, reference: str | None = None,
                     names: Collection[str] = ()) -> Suite:
    """Asserts -> a suite. The candidate's is the name that neither Python nor an import nor the tests define.

    suite_of("assert f(2) == 4").names -> {"f": "f"}; a builtin is the candidate's only where
    nothing else is called:
    suite_of("assert sum(10, 15) == 6").names -> {"sum": "sum"}. Modules of the standard library are imported
    by themselves. Where several are left, the candidate's are those given in names,
    or defined at the top of a reference
    solution, whose imports the tests may use. A name that is nobody's (isclose, not imported) is never left
    to the candidate: such tests judge nobody.
    """
    tree = parse_source(f"{setup}\n{tests}")
    used, made = _names(tree)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    modules = sorted((used - made - called) & sys.stdlib_module_names)
    unmade = used - made - set(modules) - set(dir(builtins)) or _outermost(tree)
    if not unmade:
        raise ValueError(f"the tests call nothing that a candidate could define: {tests[:80]!r}.")
    defined, imports = _defined(reference, unmade) if reference else (set(names), [])
    theirs = unmade & defined if defined or len(unmade) > 1 else unmade
    strangers = sorted(unmade - theirs - {alias for _, alias in imports})
    setup = "\n".join([*(f"import {name}" for name in modules), *(line for line, _ in imports), setup])
    built = sorted(name for name in unmade if name[0].isupper() and len(unmade) > 1)
    cannot = f"they build objects of the candidate's class {built[0]}, which do not cross" if built else None
    if strangers and not cannot:
        cannot = f"they use {' and '.join(strangers)}, and nothing says that the candidate is to define it"
    cannot = cannot or _unsupported(tests, theirs)
    tests, truths = _truths(tests, theirs)
    found = {name: name for name in sorted(theirs)} | truths
    return Suite(tests=tests, names=found, setup=setup, unsupported=cannot)


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The names that a source reads, and those that it makes: by assignment, import, definition, argument."""
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return used, made


def _defined(reference: str, wanted: set[str]) -> tuple[set[str], list[tuple[str, str]]]:
    """What a reference solution defines at its top, and its imports that are wanted, as (line, name)."""
    made, imports = set(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in a published solution
        body = parse_source(reference.replace("\r\n", "\n")).body
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                line = ast.unparse(type(node)(**{**vars(node), "names": [alias]}))
                imports += [(line, name)] if name in wanted else []
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        else:
            names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            made |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return made, imports


def _truths(tests: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """Where only the truth of an answer is asserted, only its truth crosses: a match object is True.

    "assert f(2)" -> "assert f_is_true(2)", {"f_is_true": "bool f"}
    """
    tree, truths = parse_source(tests), {}
    for node in tree.body:
        call = node.test if isinstance(node, ast.Assert) else None
        call = call.operand if isinstance(call, ast.UnaryOp) and isinstance(call.op, ast.Not) else call
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
            truths[f"{call.func.id}_is_true"] = f"bool {call.func.id}"
            call.func.id += "_is_true"
    return (ast.unparse(tree), truths) if truths else (tests, {})


def _outermost(tree: ast.Module) -> set[str]:
    """The functions that asserts compare: {"sum"} for assert sum(10, 15) == 6."""
    asserted = [node.test for node in tree.body if isinstance(node, ast.Assert)]
    lefts = [test.left if isinstance(test, ast.Compare) else test for test in asserted]
    return {left.func.id for left in lefts if isinstance(left, ast.Call) and isinstance(left.func, ast.Name)}


def _unsupported(tests: str, names: Collection[str] = ()) -> str | None:
    for node in ast.walk(parse_source(tests)):
        if isinstance(node, ast.Try | ast.With):
            return "they expect an exception, and exceptions do not cross"
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names:
            types = [arg.id for arg in node.args if isinstance(arg, ast.Name)
                     and isinstance(getattr(builtins, arg.id, None), type)]
            if types:
                return f"they hand over the type {types[0]}, and types do not cross"
    return None


def passes_tests(suite: Suite, judge: CodeJudge,
                 program: Callable[[str], str] = extract_code) -> Callable[[str], Verdict]:
    """A verifier of one task: 1 when the program in a reply passes every test, else 0 with the reason. For
    many replies, hand CodeJob(source=..., suite=...) rows to judge.verdicts: workers run in parallel."""
    def verify(text: str) -> Verdict:
        return judge.verdicts([CodeJob(source=program(text), suite=suite)])[0]

    return verify
