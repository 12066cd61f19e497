"""One game: a generator, the conversation it leads to, and the tokens of that, row by row.

A row grows by the ids that were sampled and the ids of what was added (`chat.extend`). Where the template
would write what came before otherwise, the row is closed and the conversation so far begins a new one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from postgrad.maths.noise import seed_of
from postgrad.records import Message, Prompt, Rollout, Turn, Verdict
from postgrad.rewards.base import fault
from postgrad.rewards.function import verdict_of
from postgrad.rewards.limit import SECONDS, TimeLimit, within
from postgrad.tools import Reply, added_to, read_reply, schema
from postgrad.user_code import called
from postgrad.user_code import fault as place_of

ROLES = ("system", "user", "tool")

Play = Callable[[Prompt, random.Random], Generator[Sequence[Message], Reply, object]]


@dataclass
class Row:
    """A row that grows: its beginning, and what came after with who wrote it."""

    prompt_tokens: list[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def add(self, tokens: Sequence[int], logp: Sequence[float] | None, role: str, step: int | None) -> None:
        """A turn; logp None: it was shown, not sampled."""
        start = len(self.tokens)
        self.tokens += tokens
        self.mask += [logp is not None] * len(tokens)
        self.logp += [0.0] * len(tokens) if logp is None else logp
        self.turns.append(Turn(start=start, end=len(self.tokens), role=role, policy_step=step))

    @property
    def context(self) -> list[int]:
        return [*self.prompt_tokens, *self.tokens]


class Episode:
    """A game of one prompt. `step` goes on in the environment, up to where a reply is wanted or the verdict
    is given; `wrote` takes the reply.

    seed: of the policy's choices; env_seed: of the environment's, the same for a group. room: the most tokens
    of a row before a reply; turns: the most replies.
    """

    def __init__(self, prompt: Prompt, play: Play, tools: Sequence[Callable], chat, *, seed: int,
                 env_seed: int, room: int, turns: int):
        self.prompt, self.tools, self.chat, self.seed = prompt, tools, chat, seed
        self.room, self.most_turns = room, turns
        self.schemas = [schema(tool) for tool in tools]
        self.messages: list[Message] = list(prompt.messages)
        self.rows: list[Row] = []
        self.replies: list[Reply] = []
        self.lengths: list[int] = []  # sampled tokens of each reply
        self.verdict: Verdict | None = None
        self.finished = False
        self.play, self.limit = play, getattr(play, "seconds", SECONDS)
        self.env_seed = env_seed
        self.game: Any = None
        self.made: Rollout

    def step(self) -> None:
        """The environment's turn. An exception in it is its own fault, not the model's."""
        try:
            added = within(self.limit, self._send)
        except StopIteration as end:
            self.finished, self.verdict = True, self._paid(verdict_of(end.value, called(self.play)))
        except TimeLimit:
            self.verdict = fault(f"{called(self.play)} took over {self.limit:g} s for one turn; "
                                 "play.seconds = N allows more")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises
            self.verdict = fault(place_of(Path(self._file()), error))
        else:
            self._show(added)

    def _send(self) -> Sequence[Message]:
        if self.game is None:
            self.game = self.play(self.prompt, random.Random(self.env_seed))
        if not hasattr(self.game, "send"):
            raise ValueError(f"{called(self.play)} is no generator: `reply = yield ()` waits for a reply")
        added = self.game.send(self.replies[-1] if self.replies else None)
        added = [added] if isinstance(added, Mapping) else list(added or ())
        for message in added:
            if (not isinstance(message, Mapping) or message.get("role") not in ROLES
                    or not isinstance(message.get("content"), str)):
                raise ValueError(f"play yielded {message!r:.80}: a message is {{'role', 'content'}}, of the "
                                 f"roles {', '.join(ROLES)}")
        return [{**m, "content": self.chat.escaped(m["content"])} for m in added]

    def _file(self) -> str:
        if hasattr(self.play, "file"):
            return self.play.file
        code = getattr(self.game, "gi_code", None) or getattr(self.play, "__code__", None)
        return getattr(code, "co_filename", called(self.play))

    def _show(self, added: Sequence[Message]) -> None:
        """What the environment added becomes tokens; a game that is too long ends, unpaid."""
        if len(self.replies) >= self.most_turns:
            return self._cut(f"no verdict after {self.most_turns} replies")
        self.messages = added_to(self.messages, added)
        if not self.rows:
            tokens = self.chat.render(self.messages, self.schemas)
            if len(tokens) > self.room:
                return self._cut(f"the prompt has {len(tokens)} tokens, of which {self.room} leave room to "
                                 "reply")
            self.rows.append(Row(tokens))
            return
        row = self.rows[-1]
        longer = self.chat.extend(row.context, self.messages, self.schemas)
        tokens = longer if longer is not None else self.chat.render(self._retold(), self.schemas)
        if len(tokens) > self.room:
            return self._cut(f"the conversation has {len(tokens)} tokens, of which {self.room} leave room to "
                             "reply")
        if longer is None:
            self.rows.append(Row(tokens))
        else:
            row.add(tokens[len(row.context):], None, added[0]["role"] if added else "template", None)

    def _retold(self) -> list[Message]:
        """The conversation as a text that is read anew: no control tokens in what was sampled."""
        return [{**m, "content": self.chat.escaped(m["content"])} if m["role"] == "assistant" else m
                for m in self.messages]

    def _cut(self, reason: str) -> None:
        """The game ends here, unpaid; where the model had no turn yet, that is not its fault."""
        self.game.close()
        self.verdict = Verdict(score=0.0, reason=reason) if self.replies else fault(reason)

    @property
    def context(self) -> list[int]:
        """The tokens that the next reply follows."""
        return self.rows[-1].context

    @property
    def turn_seed(self) -> int:
        """Of the next reply: that of the first is the episode's own."""
        return seed_of(self.seed, "turn", len(self.replies)) if self.replies else self.seed

    def wrote(self, tokens: list[int], logp: list[float], finished: bool, step: int) -> None:
        """The model's turn. One that was cut at its length is no turn: the game ends there."""
        self.rows[-1].add(tokens, logp, "assistant", step)
        self.lengths.append(len(tokens))
        self.messages.append({"role": "assistant", "content": self.chat.spoken(tokens)})
        self.replies.append(read_reply(self.chat.decode(tokens), self.tools))
        if not finished:
            self._cut(f"a reply was cut at {len(tokens)} tokens")

    def _paid(self, verdict: Verdict) -> Verdict:
        """A verdict's turn rewards on the last token of each reply, what is left of its score on the last."""
        if verdict.error is None and not self.replies:
            return fault(f"{called(self.play)} ended before any reply")
        if verdict.per_turn is None or verdict.error:
            return verdict
        if len(verdict.per_turn) > len(self.lengths):
            return fault(f"{called(self.play)} pays {len(verdict.per_turn)} turns of {len(self.lengths)}")
        paid = [*verdict.per_turn, *[0.0] * (len(self.lengths) - len(verdict.per_turn))]
        paid[-1] += verdict.score - sum(paid)
        spread = tuple(x for reward, n in zip(paid, self.lengths, strict=True)
                       for x in (*[0.0] * (n - 1), reward))
        return replace(verdict, per_token=spread)

    def rollout(self) -> Rollout:
        """The game as it was played. What was shown after the last reply is no part of it."""
        name = f"{self.prompt.id}#{self.seed}"
        text = self.replies[-1].text if self.replies else ""
        rows = self.rows or [Row(self.chat.render(self.messages, self.schemas))]
        made = [Rollout(prompt=self.prompt, prompt_tokens=tuple(row.prompt_tokens), tokens=tuple(row.tokens),
                        logp=tuple(row.logp), mask=None if all(row.mask) else tuple(row.mask), text=text,
                        finished=self.finished, seed=self.seed, turns=tuple(row.turns), episode=name,
                        policy_step=row.turns[-1].policy_step or 0 if row.turns else 0)
                for row in map(written, rows)]
        return replace(made[-1], earlier=tuple(made[:-1]), verdict=self.verdict)


def written(row: Row) -> Row:
    """A row up to its last reply."""
    turns = list(row.turns)
    while turns and turns[-1].policy_step is None:
        turns.pop()
    end = turns[-1].end if turns else 0
    return Row(row.prompt_tokens, row.tokens[:end], row.mask[:end], row.logp[:end], turns)
