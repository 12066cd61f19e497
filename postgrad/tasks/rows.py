"""Tasks from a .jsonl file: {"question" or "prompt" or "messages", "answer"} a line, and a verifier by name.

GSM8K's lines work as they are: of an answer "... #### 72" the number is what follows the mark, and the text before it is a
demonstration. Every fault is named with its line before any training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from postgrad.data.sets import read_file
from postgrad.records import Conversation, Prompt, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.format import find_answer
from postgrad.rewards.number import exact_number, last_number
from postgrad.tasks.base import SPLITS, Task, conversation, think
from postgrad.tasks.listed import prompts_of, sampled, split_list

MARK = "####"


def judge_number(prompt: Prompt, text: str) -> Verdict:
    """1 when the number in the last <answer>, or else the last number of the text, is the answer."""
    found = find_answer(text)
    return exact_number(prompt.answer)((last_number(text) or "") if found is None else found)


def judge_text(prompt: Prompt, text: str) -> Verdict:
    """1 when the text in the last <answer>, or else the whole text, is the answer; case and spacing do not count."""
    found = find_answer(text)
    said = " ".join((text if found is None else found).split())
    if not said:
        return Verdict(score=0.0, reason="no answer")
    right = said.casefold() == " ".join(str(prompt.answer).split()).casefold()
    return Verdict(score=float(right), reason=f"{shorten(said)!r} is {'' if right else 'not '}the answer")


VERIFIERS: dict[str, Callable[[Prompt, str], Verdict]] = {"number": judge_number, "text": judge_text}


def _worked(prompt: Prompt) -> tuple[Prompt, str]:
    """A prompt whose answer ends in "#### 72" with that number as the answer, and the worked text without <<...>> notes."""
    if not isinstance(prompt.answer, str) or MARK not in prompt.answer:
        return prompt, ""
    text, _, final = prompt.answer.rpartition(MARK)
    pieces = text.split("<<")
    plain = pieces[0] + "".join(piece.partition(">>")[2] if ">>" in piece else "<<" + piece for piece in pieces[1:])
    return replace(prompt, answer=final.strip()), plain.strip()


def _check_answer(answer: object, verifier: str, where: str) -> None:
    if answer is None or isinstance(answer, (list, dict, bool)) or not str(answer).strip():
        raise ValueError(f"{where}: the row needs an answer, as a text or a number; its answer is {answer!r:.40}.")
    if verifier == "number":
        try:
            exact_number(answer)
        except ValueError as fault:
            raise ValueError(f"{where}: {fault} For answers that are words, write text:FILE.jsonl.") from None


def load(path: Path, verifier: str) -> Task:
    if verifier not in VERIFIERS:
        close = get_close_matches(verifier, VERIFIERS, n=1)
        raise ValueError(f"there is no verifier {verifier!r}: {f'did you mean {close[0]!r}? ' if close else ''}"
                         f"They are {', '.join(VERIFIERS)}; any other belongs in a .py task file.")
    prompts, worked = [], {}
    rows = read_file(path)
    places = [where for where, _ in rows]
    for where, asked in zip(places, prompts_of([row for _, row in rows], places.__getitem__), strict=True):
        prompt, worked[asked.id] = _worked(asked) if verifier == "number" else (asked, "")
        _check_answer(prompt.answer, verifier, where)
        prompts.append(prompt)
    parts, meta = split_list(prompts)

    def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
        return [conversation(prompt, think(worked[prompt.id], prompt.answer), i)
                for i, prompt in enumerate(sampled(path.stem, parts)(split, count, seed))]

    return Task(
        name=path.stem,
        about=f"{len(prompts):,} prompts of {path.name}, judged by {verifier}",
        prompts=sampled(path.stem, parts),
        verify=VERIFIERS[verifier],
        gold=lambda prompt: think("", prompt.answer),
        demonstrations=demonstrations if all(worked.values()) else None,
        meta={"file": str(path), "verifier": verifier, "sizes": {split: len(parts[split]) for split in SPLITS}, **meta},
    )
