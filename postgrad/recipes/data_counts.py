"""What a run keeps of its data: repeats within them, and what stands on both sides of the evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postgrad.records import Message


def data_counts(learned: Iterable[Sequence[Message]],
                evaluated: Iterable[Sequence[Message]] = ()) -> dict[str, int]:
    """Prompts of training and of evaluations, counted by their text: those of training, how many of them
    repeat another, those that are evaluated, and how many of these are learned from too.

    {"prompts": 2000, "repeated": 0, "evaluated": 64, "leaked": 0}
    """
    texts, held = list(map(text_of, learned)), list(map(text_of, evaluated))
    known = set(texts)
    return {"prompts": len(texts), "repeated": len(texts) - len(known), "evaluated": len(held),
            "leaked": sum(text in known for text in held)}


def text_of(messages: Sequence[Message]) -> str:
    """A prompt as one text, whatever its spacing."""
    return " ".join(word for m in messages for word in f"{m['role']}: {m['content']}".split())
