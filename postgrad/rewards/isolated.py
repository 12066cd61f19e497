"""A user's verifier in the jail: `isolate = True` in its file, or as an attribute of the function.

Its file is executed there again for each verdict, with the standard library alone and no network, files,
processes or secrets; whatever it does (hangs, exits, forks, leaks, prints) ends with the verdict. The prompt
has id, question, answer, messages and meta; it returns a number, or an object with score and reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import Verify, error_verdict
from postgrad.rewards.sandbox import Jailed
from postgrad.system.files import read_text
from postgrad.system.limit import SECONDS

GLUE = """

def _postgrad_verdict(prompt, text):
    from types import SimpleNamespace
    value = {name}(SimpleNamespace(**prompt), text)
    if hasattr(value, "score"):
        return dict(score=value.score, reason=str(getattr(value, "reason", "")))
    plain = value is None or isinstance(value, (bool, int, float))
    return value if plain else dict(kind=type(value).__name__)
"""


def wants_jail(verify: Callable[..., object]) -> bool:
    """Whether a function, or the file that it is in, says isolate = True."""
    inside = getattr(verify, "__globals__", {})
    return getattr(verify, "isolate", inside.get("isolate")) is True


def isolated_verifier(verify: Callable[..., object], seconds: float | None,
                      verdict_of: Callable[[object], Verdict]) -> Verify:
    """verify in the jail. verdict_of: its value as a verdict."""
    name = getattr(verify, "__qualname__", "")
    path = Path(getattr(getattr(verify, "__code__", None), "co_filename", ""))
    if not name.isidentifier() or name == "<lambda>" or not path.is_file():
        raise ValueError(f"{name or verify!r} says isolate = True, and only a function at the top level of a "
                         "file can run in the jail: move it to a file of its own.")
    limit = seconds or float(getattr(verify, "seconds", SECONDS))
    jail = Jailed(path.name, read_text(path) + GLUE.replace("{name}", name), seconds=limit,
                  instead="leave isolate out")
    jail.require()

    def judge(prompt: Prompt, text: str) -> Verdict:
        given = {"id": prompt.id, "question": prompt.question, "answer": prompt.answer,
                 "messages": [dict(message) for message in prompt.messages], "meta": dict(prompt.meta)}
        outcome = jail("_postgrad_verdict", given, text)
        if outcome.kind != "pass":
            why = f"over {limit:g} s" if outcome.kind == "timeout" else outcome.reason
            return error_verdict(f"{path.name}: {name} in the jail: {why}")
        value = outcome.value
        if isinstance(value, dict) and "score" in value:
            value = Verdict(score=value["score"], reason=str(value["reason"]))
        return verdict_of(value)

    return judge
