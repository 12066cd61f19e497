"""Built-in tools for a task's `tools`.

    from postgrad.data.tasks.toolbox import calc, python
    tools = [calc, python]
"""

from __future__ import annotations

from postgrad.data.tasks.big_numbers import calc
from postgrad.rewards.sandbox import Jailed
from postgrad.rewards.sandbox.selftest import missing_sandbox

__all__ = ["calc", "python"]

SECONDS, MEMORY, SHOWN = 2.0, 256 << 20, 2000  # of a call; SHOWN: characters of its output
RUN = f"""
import ast, contextlib, io

def run(code):
    tree, out = ast.parse(code), io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    space = {{"__name__": "__main__"}}
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(tree, "<code>", "exec"), space)
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space) if last else None
            if value is not None:
                print(repr(value))
        except BaseException as error:
            print(f"{{type(error).__name__}}: {{error}}")
    return out.getvalue()[:{SHOWN + 1}]
"""
_jailed = Jailed("python", RUN, instead="leave the tool out", seconds=SECONDS, memory=MEMORY)


def python(code: str) -> str:
    """Runs a short Python program and gives what it prints, and the value of its last line.

    Args:
        code: the program; the standard library is there, files and the network are not
    """
    outcome = _jailed("run", code)
    if outcome.kind == "infrastructure":
        raise RuntimeError(outcome.reason)
    if outcome.kind == "timeout":
        return f"error: over the time limit of {SECONDS:g} s"
    if outcome.kind == "fail":
        return f"error: {outcome.reason.removeprefix('raised ')}"
    text = str(outcome.value)
    return f"{text[:SHOWN]} (cut)" if len(text) > SHOWN else text or "(nothing was printed)"


def _require() -> None:
    """Called before a task with this tool is used."""
    if why := missing_sandbox():
        raise ValueError(f"the tool python runs programs in a sandbox, and this machine has none that holds "
                         f"({why}): use Linux 5.13 or newer with Landlock and seccomp on, or leave the tool "
                         "out.")


python.require = _require  # type: ignore[attr-defined]
