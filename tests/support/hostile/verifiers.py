"""Every verifier of postgrad, by name, each with a prompt whose answer no attack writes by chance."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from postgrad.data.tasks import constraints, load_task
from postgrad.data.tasks.gsm8k import verify as verify_gsm8k
from postgrad.records import Prompt, Verdict
from postgrad.rewards.code import extract_code
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.constraints import KINDS, gold_for
from postgrad.rewards.grader import grading_question, read_score
from postgrad.rewards.named import read_spec

GOLD = "7919"
SPECS = ("number", "number(lenient)", "text", "text(lenient)", "think", "boxed", "json", "length(1,200)",
         "length(1,9000,characters)", "language(en)", "language(ja)", "0.7*number+0.2*think+0.1*language(es)")
TASKS = ("words", "words-es", "words-hard", "arithmetic", "countdown", "countdown-4", "questions",
         "constraints-hard")
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"pattern": "^(x+x+)+$"}}}
GYM = ("gym:countdown", "gym:puzzle24", "gym:n_queens", "gym:time_intervals", "gym:chain_sum",
       "gym:polynomial_multiplication")


@dataclass(frozen=True)
class Judge:
    """A verifier and a prompt. pays: any text may earn something; jailed: it asks the jail."""

    name: str
    prompt: Prompt
    verify: Callable[[Prompt, str], Verdict]
    gold: str
    best: float = 1.0
    pays: bool = False
    jailed: bool = False


def _of_task(name: str, **more) -> Judge:
    task = load_task(name)
    prompt = task.prompts("test" if name.startswith("humaneval") else "train", 1, 5)[0]
    return Judge(name.partition("/")[0], prompt, task.verify, task.gold(prompt), best=task.best, **more)


def _steps() -> Judge:
    """The labels of a reply's steps, as a verifier: a reply is right where every step is."""
    task = load_task("words")
    prompt = task.prompts("train", 1, 5)[0]

    def verify(asked: Prompt, text: str) -> Verdict:
        steps = task.steps(asked, text)
        return Verdict(score=float(all(step.right for step in steps)), reason=steps[-1].reason or "right")
    return Judge("steps of words", prompt, verify, task.gold(prompt))


def _grade(prompt: Prompt, text: str) -> Verdict:
    asked = grading_question(prompt, text, "Be kind.")[0]["content"]
    asked.encode()  # what goes to a tokenizer
    strict, lenient = read_score(text)
    return Verdict(score=strict or 0.0, reason=f"{lenient}")


def _constitution(prompt: Prompt, text: str) -> Verdict:
    broken = SHIPPED.broken(text)
    return Verdict(score=float(not broken), reason=" ".join(broken.values())[:200] or "kept")


def _code(prompt: Prompt, text: str) -> Verdict:
    return Verdict(score=float(extract_code(text) == GOLD), reason="the code of it")


SHIPPED = read_constitution()


def ours() -> list[Judge]:
    """Those that read in this process alone."""
    ask = Prompt.ask("?", GOLD)
    reply = f"<think>I say so</think><answer>{GOLD}</answer>"
    rows = [Judge(spec, ask, made, reply, pays=spec not in SPECS[:4], best=made.best)
            for spec, made in zip(SPECS, map(read_spec, SPECS), strict=True)]
    rows += [_of_task(name, pays=name.startswith(("questions", "constraints", "words-es"))) for name in TASKS]
    rows += [Judge(f"constraint {name}", Prompt.ask("?", rules=((name, kind.values[0]),)), constraints.verify,
                   gold_for(((name, kind.values[0]),)), pays=True) for name, kind in KINDS.items()]
    rows += [Judge("gsm8k", ask, verify_gsm8k, f"It is so.\n#### {GOLD}"), _steps(),
             Judge("grader", ask, _grade, "7", pays=True),
             Judge("constitution", ask, _constitution, "Hello! A dog eats meat.", pays=True),
             Judge("code of a reply", ask, _code, GOLD)]
    return rows


def jailed(folder: Path, gym: Sequence[str] = GYM) -> list[Judge]:
    """Those that ask the jail; the packages that are not here are left out."""
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    row = {"task_id": 601, "text": "Add 7919.", "code": "def add(x):\n    return x + 7919",
           "test_list": ["assert add(1) == 7920"]}
    (folder / "mbpp.jsonl").write_text(json.dumps(row) + "\n")
    human = {"task_id": "HumanEval/0", "entry_point": "add", "prompt": "def add(x):\n    '''Add 7919.'''\n",
             "canonical_solution": "    return x + 7919\n", "test": "def check(f): assert f(1) == 7920\n"}
    (folder / "human.jsonl").write_text(json.dumps(human) + "\n")
    ask = Prompt.ask("?", GOLD)
    found = [Judge("regex", ask, read_spec(r"regex(^(a+)+7919$)"), "aa7919", jailed=True),
             _of_task(f"mbpp:{folder / 'mbpp.jsonl'}", jailed=True),
             _of_task(f"humaneval:{folder / 'human.jsonl'}", jailed=True)]
    if find_spec("math_verify"):
        prompts = [Prompt.ask("?", gold) for gold in (GOLD, r"7919\sqrt{3}", "x<7919", r"\{7919,1\}")]
        found += [Judge(f"{spec} {p.answer}", p, read_spec(spec), rf"\boxed{{{p.answer}}}", jailed=True)
                  for p in prompts for spec in ("maths", "maths(lenient)")]
    if find_spec("jsonschema"):
        verify = read_spec(f"json({folder / 'schema.json'})")
        found.append(Judge("json(SCHEMA)", ask, verify, '{"a": "xxxx"}', jailed=True, pays=True))
    if find_spec("reasoning_gym"):
        found += [_of_task(name, jailed=True) for name in gym]
    return found


def fault_of(judge: Judge, kind: str, text: str) -> str:
    """What is wrong with how a verifier takes a reply; "" where nothing is: it scores, and says why."""
    try:
        said = judge.verify(judge.prompt, text)
    except Exception as error:  # noqa: BLE001 - what is looked for
        return f"raised {type(error).__name__}: {error}"[:200]
    if said.error is not None or not said.reason or len(said.reason) > 400:
        return f"error {said.error!r}, reason {said.reason[:80]!r}"
    if not math.isfinite(said.score) or said.score > judge.best + 1e-9:
        return f"score {said.score}"
    return f"paid {said.score}" if said.score > 0 and not judge.pays and kind != "spoilt" else ""
