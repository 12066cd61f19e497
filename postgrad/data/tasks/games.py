"""Environments played by a scripted player instead of a model, for demonstrations and checks.

player(prompt, messages) returns the next reply. A task's gold is a player who scores `best`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

from postgrad.data.tasks.base import Task
from postgrad.models.chat.tools import append_messages, read_reply
from postgrad.records import Message, Prompt, Verdict

Tool = Callable[..., object]
GamePlay = Callable[[Prompt, random.Random], Generator[Any, Any, object]]
TalkingPlayer = Callable[[Prompt, Sequence[Message]], str]
LONGEST = 64  # replies of a game


def play_game(prompt: Prompt, play: GamePlay, player: TalkingPlayer, rng: random.Random,
              tools: Sequence[Tool] = (), turns: int = LONGEST) -> tuple[list[Message], object]:
    """The conversation, and what the environment returned: a Verdict of 0 if it did not end in time."""
    game, reply = play(prompt, rng), None
    messages: list[Message] = [*prompt.messages]
    try:
        for _ in range(turns):
            added = game.send(reply)
            messages = [*append_messages(messages, [added] if isinstance(added, dict) else added or ())]
            text = player(prompt, messages)
            messages.append({"role": "assistant", "content": text})
            reply = read_reply(text, tools)
        game.send(reply)
    except StopIteration as end:
        return messages, end.value
    return messages, Verdict(score=0.0, reason=f"no verdict after {turns} replies")


def returned_score(value: object) -> float:
    """The score that an environment returned; NaN if it is no number."""
    if isinstance(value, Verdict):
        return math.nan if value.error else value.score
    return float(value) if isinstance(value, bool | int | float) else math.nan


def prove_play(task: Task, prompts: Sequence[Prompt]) -> None:
    """Raises ValueError unless each game ends in a score, gold scores `best` and a silent player less."""
    assert task.play is not None
    players = {"silent": lambda prompt, messages: ""} | ({"gold": task.gold} if task.gold else {})
    for prompt in prompts:
        for name, player in players.items():
            try:
                _, value = play_game(prompt, task.play, player, random.Random(0), task.tools,
                                     task.turns or LONGEST)
            except Exception as error:  # noqa: BLE001 - whatever an environment raises
                raise ValueError(f"play failed with the {name} player on prompt {prompt.id!r} "
                                 f"({type(error).__name__}: {error}): mend it.") from error
            score = returned_score(value)
            if math.isnan(score) or name == "gold" and not math.isclose(score, task.best, abs_tol=1e-6):
                wanted = f"the best, {task.best:g}" if name == "gold" else "a score"
                raise ValueError(f"play pays {value!r:.80} to the {name} player on prompt {prompt.id!r}: "
                                 f"expected {wanted}.")
            if name == "silent" and not score < task.best:
                raise ValueError(f"play pays the full {score:g} to a player who says nothing, on prompt "
                                 f"{prompt.id!r}: it gives no signal.")
