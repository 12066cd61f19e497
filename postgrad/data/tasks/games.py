"""Tasks that play over several turns: a player of texts in place of a model, for demonstrations and proofs.

`player(prompt, messages)` gives the next reply. A task's gold is one that is paid in full.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

from postgrad.data.tasks.base import Task
from postgrad.models.chat.tools import ModelReply, append_messages, read_reply
from postgrad.records import Conversation, Message, Prompt, Verdict

Tool = Callable[..., object]
Game = Generator[Sequence[Message], ModelReply, Verdict]
GamePlay = Callable[[Prompt, random.Random], Generator[Any, Any, object]]
TalkingPlayer = Callable[[Prompt, Sequence[Message]], str]
LONGEST = 64  # replies that any game is given
HEED = 0.1    # for a guess that heeds what was told: a game full of them is worth far less than a right one


def play_game(prompt: Prompt, play: GamePlay, player: TalkingPlayer, rng: random.Random,
              tools: Sequence[Tool] = (), turns: int = LONGEST) -> tuple[list[Message], object]:
    """The conversation of a game with this player, and what the environment returned; a Verdict of 0 where it
    was not over in time."""
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


def play_demonstrations(prompts: Sequence[Prompt], play: GamePlay, player: TalkingPlayer, rng: random.Random,
                        tools: Sequence[Tool] = ()) -> list[Conversation]:
    """A game of each prompt as a conversation to imitate."""
    made = []
    for i, prompt in enumerate(prompts):
        messages, _ = play_game(prompt, play, player, random.Random(rng.random()), tools)
        made.append(Conversation(id=f"{prompt.id}#{i}", messages=tuple(messages)))
    return made


def game_verdict(won: bool, fits: Sequence[bool], reason: str, *, formed: bool = True) -> Verdict:
    """What a guessing game pays: 1 for the right guess, else HEED for each later guess that fits what was
    told before it, where it was made. fits: of every guess but a right one."""
    paid = tuple(HEED * (i > 0 and fit) for i, fit in enumerate(fits))
    return Verdict(score=1.0 if won else sum(paid), per_turn=paid, reason=reason,
                   parts={"correct": float(won), "format": float(formed)})


def returned_score(said: object) -> float:
    """What an environment returned, as a number; NaN where it is none."""
    if isinstance(said, Verdict):
        return math.nan if said.error else said.score
    return float(said) if isinstance(said, bool | int | float) else math.nan


def prove_play(task: Task, prompts: Sequence[Prompt]) -> None:
    """Before any training: a game ends in a score, its gold is paid in full, and a silent player is not."""
    assert task.play is not None
    players = {"silent": lambda prompt, messages: ""} | ({"gold": task.gold} if task.gold else {})
    for prompt in prompts:
        for name, player in players.items():
            try:
                _, said = play_game(prompt, task.play, player, random.Random(0), task.tools,
                                    task.turns or LONGEST)
            except Exception as error:  # noqa: BLE001 - whatever an environment raises
                raise ValueError(f"play failed with the {name} player on prompt {prompt.id!r} "
                                 f"({type(error).__name__}: {error}): mend it.") from error
            score = returned_score(said)
            if math.isnan(score) or name == "gold" and not math.isclose(score, task.best, abs_tol=1e-6):
                wanted = f"the best, {task.best:g}" if name == "gold" else "a score"
                raise ValueError(f"play pays {said!r:.80} to the {name} player on prompt {prompt.id!r}: "
                                 f"expected {wanted}.")
            if name == "silent" and not score < task.best:
                raise ValueError(f"play pays the full {score:g} to a player who says nothing, on prompt "
                                 f"{prompt.id!r}: it gives no signal.")
