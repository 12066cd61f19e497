"""Tasks from a file of rows {"question" or "prompt" or "messages", "answer"}, and verifiers by name
(rewards/named.py).

GSM8K's lines work unchanged: of "... #### 72" the number is the answer and the text before it a
demonstration. A line may have a "reply", a demonstration that must get the full score. Errors name the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from postgrad.data.rows import BadRows, Rows, meant_for, read_prompt_rows
from postgrad.data.tasks.base import Draw, Task, gold_demonstrations, think
from postgrad.data.tasks.listed import (
    Parts,
    check_answers,
    no_prompts,
    read_prompts,
    sample_lists,
    split_task,
)
from postgrad.records import Conversation, Prompt
from postgrad.rewards.format import MARK
from postgrad.rewards.named import VerifierSum, read_spec


def _worked(prompt: Prompt) -> tuple[Prompt, str]:
    """Splits an answer that ends in "#### 72" into that number and the worked text without <<...>>."""
    if not isinstance(prompt.answer, str) or MARK not in prompt.answer:
        return prompt, ""
    text, _, final = prompt.answer.rpartition(MARK)
    pieces = text.split("<<")
    plain = pieces[0] + "".join(piece.partition(">>")[2] if ">>" in piece else "<<" + piece
                                for piece in pieces[1:])
    return replace(prompt, answer=final.strip()), plain.strip()


def _check_row(prompt: Prompt, verify: VerifierSum) -> None:
    where, answer, reply = prompt.place, prompt.answer, prompt.meta.get("reply", "")
    given = answer is not None or "answer" in verify.kinds
    if given and (answer is None or isinstance(answer, (list, dict, bool)) or not str(answer).strip()):
        raise ValueError(f"{where}: the row needs an answer, as a text or a number; its answer is "
                         f"{answer!r:.40}{meant_for({'prompt': '', **prompt.meta}, 'prompts')}. Give it one, "
                         "or say who judges with reward=.")
    if not isinstance(reply, str):
        raise ValueError(f"{where}: the reply must be a text, this is {type(reply).__name__}.")


def _gold(prompt: Prompt, verify: VerifierSum, worked: str = "") -> str:
    """The row's own reply, or its answer in the form that the verifiers require."""
    answer = f"\\boxed{{{prompt.answer}}}" if verify.has("boxed") else prompt.answer
    return str(prompt.meta.get("reply") or think(worked, answer))


def load(source: str | Path, spec: str, bad: BadRows | None = None) -> Task:
    path, bad = Path(source), bad or BadRows()
    return task_of(read_prompt_rows(source, bad), spec, bad, name=path.stem, source=f" of {path.name}",
                   meta={"file": str(source)})


def task_of(rows: Rows, spec: str, bad: BadRows, *, name: str, source: str = "",
            meta: Mapping[str, object] | None = None) -> Task:
    """bad: has counted the rows, and collects the bad ones."""
    verify = read_spec(spec)
    worked, places = {}, [where for where, _ in rows]

    def read(asked: Prompt) -> Prompt:
        prompt, worked[asked.id] = (_worked(asked) if verify.has("number") or verify.has("maths")
                                    else (asked, ""))
        _check_row(prompt, verify)
        return prompt

    prompts = read_prompts([row for _, row in rows], places.__getitem__, read, bad, counted=True)
    prompts = check_answers(prompts, verify.check, bad, "For answers that are no numbers, write "
                            "text:FILE.jsonl or maths:FILE.jsonl." if verify.has("number") else "")
    replies = all(prompt.meta.get("reply") for prompt in prompts)
    proves = replies or ("style" not in verify.kinds and all(prompt.answer is not None for prompt in prompts))

    def demonstrations(parts: Parts[Prompt]) -> Draw[Conversation]:
        return gold_demonstrations(sample_lists(name, parts),
                                   lambda prompt: _gold(prompt, verify, worked[prompt.id]))

    task = Task(
        name=name,
        about=f"{len(prompts):,} prompts{source}, judged by {spec}",
        prompts=no_prompts,
        verify=verify,
        gold=(lambda prompt: _gold(prompt, verify)) if proves else None,
        best=verify.best,
        waits=verify.waits,
        meta={"verifier": spec, "notes": bad.notes(name), **(meta or {})},
    )
    proved = replies or all(worked.values())
    return split_task(task, prompts, demonstrations=demonstrations if proved else None)
