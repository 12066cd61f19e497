"""The Task record, the splits and the verdicts that tasks share."""

from __future__ import annotations

import ast
import hashlib
import random
import tomllib
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from postgrad.data.rows import DataRow
from postgrad.records import Conversation, Pair, Prompt, Reward, Step, Verdict
from postgrad.rewards.base import EnvironmentReward, VerifierReward, guarded
from postgrad.rewards.format import find_answer, split_reply
from postgrad.rewards.number import exact_number
from postgrad.system.user_code import GIVEN, function_hash, rows_hash

SPLITS = ("train", "validation", "test")
HOLDOUT = 0.1  # share of a list of prompts that is held out where a run is evaluated
FIFTH = 0.2    # that of the package's own tasks
RecordT = TypeVar("RecordT")
Draw = Callable[[str, int, int], list[RecordT]]  # (split, count, seed)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Prompts, the verifier of replies to them, and gold replies.

    prompts(split, count, seed)         up to count distinct prompts, determined by the seed
    verify(prompt, completion_text)     total: any text gets a Verdict; None: the run names a reward
    gold(prompt)                        a completion that scores `best`; with `play`, gold(prompt, messages):
                                        the next reply of a perfect player
    demonstrations(split, count, seed)  for supervised fine-tuning
    preferences(split, count, seed)     pairs of replies, labelled by the task's annotators
    steps(prompt, completion_text)      total: the labelled steps of a reply, the answer last
    tokens                              max_new_tokens of a reply; None: depends on the model
    play(prompt, rng)                   the environment: a generator that yields messages to add, is sent each
                                        ModelReply and returns a Verdict; None: single-turn
    tools                               functions that the model may call; with a verifier and no `play`, the
                                        first reply without a call is judged
    turns                               the most replies of an episode; None: 8
    waits                               the verifier or `play` waits for other processes: many run in threads
    meta                                facts for a reader, e.g. {"shared_splits": True}
    holdout(task, share)                of `with_holdout`; None: its splits are its own
    """

    name: str
    about: str
    prompts: Draw[Prompt]
    verify: Callable[[Prompt, str], Verdict] | None
    gold: Callable[..., str] | None = None
    demonstrations: Draw[Conversation] | None = None
    preferences: Draw[Pair] | None = None
    steps: Callable[[Prompt, str], list[Step]] | None = None
    best: float = 1.0
    tokens: int | None = None
    waits: bool = False
    play: Callable[[Prompt, random.Random], Generator[Any, Any, Verdict]] | None = None
    tools: tuple[Callable[..., object], ...] = ()
    turns: int | None = None
    meta: Mapping[str, object] = field(default_factory=dict)
    holdout: Callable[[Task, float], Task] | None = None

    @property
    def plays(self) -> bool:
        """Whether a rollout is an episode."""
        return self.play is not None or bool(self.tools)

    @property
    def judged(self) -> bool:
        """Whether the task has a reward of its own."""
        return self.verify is not None or self.play is not None

    @property
    def guarded_verify(self) -> Callable[[Prompt, str], Verdict] | None:
        """The verifier with a time limit; exceptions become error verdicts."""
        return guarded(self.verify) if self.verify else None

    def of_one_reply(self, who: str) -> None:
        """Raises ValueError for a multi-turn task. who: the caller, for the message."""
        if self.plays:
            raise ValueError(f"task {self.name} plays over several turns, and {who} looks at single replies: "
                             "take a task with a verifier and no tools.")

    def reward(self) -> Reward:
        """The task's own reward."""
        if self.plays:
            return EnvironmentReward()
        assert self.verify is not None, "a task without a verifier is scored by a reward"
        return VerifierReward(self.verify, self.waits)

    def with_holdout(self, share: float) -> Task:
        """The same task with that share of its prompts held out, half as validation and half as test."""
        return self.holdout(self, share) if self.holdout else self

    def record(self) -> dict[str, str]:
        """What a run saves of a task object: its name, and a hash of its code and first rows."""
        whole = self.with_holdout(FIFTH)  # one hash, whatever is held out
        draws = (whole.prompts, whole.demonstrations, whole.preferences)
        rows = [rows_hash(draw("train", 64, 0)) for draw in draws if draw]
        judged = "".join(function_hash(part) for part in (self.verify, self.play, *self.tools) if part)
        return {GIVEN: "task", "name": self.name,
                "sha256": hashlib.sha256(f"{rows}{judged}".encode()).hexdigest()}


def keep_changes(task: Task, made: Task, other: Task) -> Task:
    """`other` with what was replaced in the task since it was `made`; with other prompts, the task itself."""
    changed = {name: value for name, value in vars(task).items()
               if name != "holdout" and value is not getattr(made, name)}
    return task if "prompts" in changed else replace(other, **changed)


def split_of(key: str, share: float = FIFTH) -> str:
    """The split of a problem, by a hash of its key: 80 % train, 10 % validation, 10 % test; with another
    share, half of it validation, half test. What a share holds out, a larger one holds out too."""
    digits = f"{zlib.crc32(key.encode()) % 10_000:04}"
    bucket = int(digits[::-1]) / 10_000
    return "test" if bucket < share / 2 else "validation" if bucket < share else "train"


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}: choose one of {', '.join(SPLITS)}.")


def generator(name: str, split: str, seed: int) -> random.Random:
    """The random generator of a task, split and seed."""
    check_split(split)
    return random.Random(f"{name}/{split}/{seed}")


def draw_prompts(split: str, count: int, seed: int, *, name: str,
                 make: Callable[[random.Random, str], Prompt]) -> list[Prompt]:
    """Up to count prompts with distinct ids from make(rng, split); ends after 1,000 repeats in a row."""
    rng, vain = generator(name, split, seed), 0
    prompts: dict[str, Prompt] = {}
    while len(prompts) < count and vain < 1000:
        prompt = make(rng, split)
        vain = vain + 1 if prompt.id in prompts else 0
        prompts.setdefault(prompt.id, prompt)
    return list(prompts.values())


def conversation(prompt: Prompt, reply: str, number: int) -> Conversation:
    """A prompt with a reply to imitate."""
    return Conversation(id=f"{prompt.id}#{number}",
                        messages=(*prompt.messages, {"role": "assistant", "content": reply}))


def gold_demonstrations(draw: Draw[Prompt], gold: Callable[[Prompt], str]) -> Draw[Conversation]:
    """The gold reply to each prompt."""
    def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
        return [conversation(prompt, gold(prompt), i) for i, prompt in enumerate(draw(split, count, seed))]

    return demonstrations


def styled_demonstrations(name: str, shares: Mapping[str, float], draw: Draw[Prompt],
                          reply: Callable[[Prompt, str, random.Random], str]) -> Draw[Conversation]:
    """Replies in styles drawn by their shares. Prompts repeat where there are fewer than count."""
    def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
        rng = generator(f"{name}/writer", split, seed)
        styles = rng.choices(list(shares), list(shares.values()), k=count)
        asked = draw(split, count, seed)
        return [conversation(asked[i % len(asked)], reply(asked[i % len(asked)], style, rng), i)
                for i, style in enumerate(styles)]

    return demonstrations


@cache
def task_texts(table: str) -> DataRow:
    """A table of texts.toml."""
    texts: DataRow = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))[table]
    return texts


def parse_keyword_call(text: str) -> tuple[str, DataRow] | None:
    """"chain_sum(min_terms=2)" -> ("chain_sum", {"min_terms": 2}); values are literals."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        called = tree.func if isinstance(tree, ast.Call) and not tree.args else tree
        settings = {word.arg: ast.literal_eval(word.value) for word in getattr(tree, "keywords", ())}
    except (SyntaxError, ValueError, RecursionError):
        return None
    return (called.id, settings) if isinstance(called, ast.Name) and None not in settings else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """"did you mean 'words'? ", or "" without a near match."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def think(steps: str, answer: object) -> str:
    """think("2+3=5", 5) -> "<think>2+3=5</think><answer>5</answer>", the form that verifiers require."""
    return f"<think>{steps}</think><answer>{answer}</answer>"


def if_formed(verdict: Verdict, fault: str) -> Verdict:
    """The verdict on an answer, 0 if the form of the reply has a fault ("": none).

    Parts, as of every task: `correct` (the strict reading, which is the score), `lenient` (whatever the
    form), `format`.
    """
    formed = float(not fault)
    return replace(verdict, score=verdict.score * formed, reason=fault or verdict.reason,
                   parts={**verdict.parts, "correct": verdict.score * formed, "lenient": verdict.score,
                          "format": formed})


def in_form(text: str, judge: Callable[[str], Verdict]) -> Verdict:
    """Judges the answer of a reply in the form of `think`; leniently, its last <answer>...</answer>."""
    reply = split_reply(text)
    if isinstance(reply, str):
        return if_formed(judge(find_answer(text) or ""), reply)
    return if_formed(judge(reply[1]), "")


def number_in_form(prompt: Prompt, text: str) -> Verdict:
    """1 for the right number in the strict form."""
    return in_form(text, exact_number(prompt.answer))
