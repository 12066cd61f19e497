"""What a task is, and the split that every task shares."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from postgrad.records import Conversation, Pair, Prompt, Reward, Step, Verdict
from postgrad.rewards.base import EnvironmentReward, VerifierReward, guarded
from postgrad.rewards.format import find_answer, split_reply
from postgrad.rewards.number import exact_number
from postgrad.system.user_code import GIVEN, function_hash, rows_hash

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Prompts, the verifier that judges replies to them, and examples that it pays in full.

    prompts(split, count, seed)         up to count distinct prompts (a finite task gives what it has),
                                        fixed by the seed
    verify(prompt, completion_text)     total: any text gets a Verdict; None where the run has to say who
                                        judges
    gold(prompt)                        a completion that scores `best`; None where the task has no gold; with
                                        `play`, gold(prompt, messages): the next reply of a player who gets it
    demonstrations(split, count, seed)  what supervised fine-tuning imitates; None where the task has none
    preferences(split, count, seed)     pairs of replies as its annotators labelled them; None where the task
                                        has none
    steps(prompt, completion_text)      total: the steps of a reply, each labelled,
                                        the answer last; None where it has no steps
    tokens                              the most tokens of a reply; None where it depends on who writes
    play(prompt, rng)                   the environment: a generator that yields messages to add, is sent each
                                        Reply and returns a Verdict; None where one reply is all
    tools                               functions that the model may call; with a verifier and no `play` their
                                        calls are answered until a reply has none, which is judged
    turns                               the most replies of an episode; None: 8
    waits                               the verifier or `play` waits for others (code in the sandbox, a
                                        server): many run side by side
    meta                                what a reader should know, e.g. {"shared_splits": True}
    """

    name: str
    about: str
    prompts: Callable[[str, int, int], list[Prompt]]
    verify: Callable[[Prompt, str], Verdict] | None
    gold: Callable[..., str] | None = None
    demonstrations: Callable[[str, int, int], list[Conversation]] | None = None
    preferences: Callable[[str, int, int], list[Pair]] | None = None
    steps: Callable[[Prompt, str], list[Step]] | None = None
    best: float = 1.0
    tokens: int | None = None
    waits: bool = False
    play: Callable[[Prompt, random.Random], Generator[Any, Any, Verdict]] | None = None
    tools: tuple[Callable[..., object], ...] = ()
    turns: int | None = None
    meta: Mapping[str, object] = field(default_factory=dict)

    @property
    def plays(self) -> bool:
        """Whether a rollout is an episode, which its environment judges."""
        return self.play is not None or bool(self.tools)

    @property
    def judged(self) -> bool:
        """Whether the task itself says how good a rollout is."""
        return self.verify is not None or self.play is not None

    @property
    def guarded_verify(self) -> Callable[[Prompt, str], Verdict] | None:
        """The verifier, with a time limit; whatever it raises becomes an error verdict."""
        return guarded(self.verify) if self.verify else None

    def of_one_reply(self, who: str) -> None:
        """Refused where a rollout is an episode. who: what looks at single replies."""
        if self.plays:
            raise ValueError(f"task {self.name} plays over several turns, and {who} looks at single replies: "
                             "take a task with a verifier and no tools.")

    def reward(self) -> Reward:
        """The task's own verdicts, where no other reward is named."""
        if self.plays:
            return EnvironmentReward()
        assert self.verify is not None, "a task without a verifier is scored by a reward"
        return VerifierReward(self.verify, self.waits)

    def record(self) -> dict[str, str]:
        """What a run keeps of a task that was handed in: its verifier's text, and what its first rows say."""
        draws = (self.prompts, self.demonstrations, self.preferences)
        rows = [rows_hash(draw("train", 64, 0)) for draw in draws if draw]
        judged = "".join(function_hash(part) for part in (self.verify, self.play, *self.tools) if part)
        return {GIVEN: "task", "name": self.name,
                "sha256": hashlib.sha256(f"{rows}{judged}".encode()).hexdigest()}


def split_of(key: str) -> str:
    """The split that a problem belongs to, by a hash of what makes it that problem: 10 % test, 10 %
    validation, 80 % train."""
    bucket = zlib.crc32(key.encode()) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}: choose one of {', '.join(SPLITS)}.")


def generator(name: str, split: str, seed: int) -> random.Random:
    """The randomness of one task, split and seed."""
    check_split(split)
    return random.Random(f"{name}/{split}/{seed}")


def distinct_prompts(make: Callable[[], Prompt], count: int) -> list[Prompt]:
    """Up to count prompts with different ids from a maker; gives up after 1,000 known ones in a row."""
    found: dict[str, Prompt] = {}
    vain = 0
    while len(found) < count and vain < 1000:
        prompt = make()
        if prompt.id in found:
            vain += 1
        else:
            found[prompt.id], vain = prompt, 0
    return list(found.values())


def conversation(prompt: Prompt, reply: str, number: int) -> Conversation:
    """A prompt with a reply to imitate."""
    return Conversation(id=f"{prompt.id}#{number}",
                        messages=(*prompt.messages, {"role": "assistant", "content": reply}))


def think(steps: str, answer: object) -> str:
    """A reply in the form the verifiers ask for: think("2+3=5", 5) ->
    "<think>2+3=5</think><answer>5</answer>"."""
    return f"<think>{steps}</think><answer>{answer}</answer>"


def if_formed(said: Verdict, fault: str) -> Verdict:
    """A verdict on an answer, paid where the reply is in form.

    fault: what is wrong with the form; "" where nothing is.

    Its parts are those of every task: `correct`, the strict reading, which is paid;
    `lenient`, whatever the form; `format`.
    """
    formed = float(not fault)
    return replace(said, score=said.score * formed, reason=fault or said.reason,
                   parts={**said.parts, "correct": said.score * formed, "lenient": said.score,
                          "format": formed})


def in_form(text: str, judge: Callable[[str], Verdict]) -> Verdict:
    """A reply as `think` writes it, its answer judged; leniently, what stands in its last
    <answer>...</answer>."""
    reply = split_reply(text)
    if isinstance(reply, str):
        return if_formed(judge(find_answer(text) or ""), reply)
    return if_formed(judge(reply[1]), "")


def number_in_form(prompt: Prompt, text: str) -> Verdict:
    """1 for the right number in the strict form."""
    return in_form(text, exact_number(prompt.answer))
