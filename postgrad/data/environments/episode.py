"""One game: a generator, the conversation it leads to, and its tokens (`rows`)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postgrad.data.environments.rows import (
    EpisodeRows,
    ReplyRequest,
    TokenRow,
    ToolSchema,
    escape_message,
    rollout_of,
)
from postgrad.maths.noise import seed_of
from postgrad.models.chat.tools import ModelReply, append_messages, read_reply, tool_schema
from postgrad.records import Message, Prompt, Rollout, Verdict
from postgrad.rewards.base import error_verdict
from postgrad.rewards.function import verdict_of
from postgrad.rewards.limit import SECONDS, TimeLimit, within_limit
from postgrad.system.user_code import error_location as place_of
from postgrad.system.user_code import function_name

if TYPE_CHECKING:
    from postgrad.models.chat import Chat

ROLES = ("system", "user", "tool")

Play = Callable[[Prompt, random.Random], Generator["Sequence[Message] | Asks", ModelReply, object]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Asks:
    """What is yielded by an environment that says what the model is asked: a whole conversation in place of
    what is added to one, with tools as JSON schemas. settings: changes of the sampling.

    answer(reply, context, step): the asker is told the reply to these tokens by the policy of this step; ->
    the message as it was told.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    answer: Callable[[ModelReply, list[int], int], Message]


class Episode:
    """A game of one prompt. `step` goes on in the environment, up to where a reply is wanted or the verdict
    is given; `wrote` takes the reply.

    seed: of the policy's choices; env_seed: of the environment's, the same for a group. room: the most tokens
    of a row before a reply; turns: the most replies.
    """

    def __init__(self, prompt: Prompt, play: Play, tools: Sequence[Callable[..., object]], chat: Chat, *,
                 seed: int, env_seed: int, room: int, turns: int):
        self.prompt, self.tools, self.chat, self.seed = prompt, tools, chat, seed
        self.room, self.most_turns = room, turns
        self.schemas: list[ToolSchema] = [tool_schema(tool) for tool in tools]
        self.messages: list[Message] = list(prompt.messages)
        self.rows = EpisodeRows(chat, self._shown)
        self.request: ReplyRequest  # what the next reply follows
        self.asks: Asks | None = None
        self.asked: Counter[tuple[int, ...]] = Counter()
        self.replies: list[ModelReply] = []
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
            added = within_limit(self.limit, self._send)
        except StopIteration as end:
            self.finished, self.verdict = True, self._paid(verdict_of(end.value, function_name(self.play)))
        except TimeLimit:
            self.verdict = error_verdict(f"{function_name(self.play)} took over {self.limit:g} s for one "
                                         "turn; play.seconds = N allows more")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises
            self.verdict = error_verdict(place_of(Path(self._file()), error))
        else:
            self._show(added)

    def _send(self) -> Sequence[Message] | Asks:
        if self.game is None:
            self.game = self.play(self.prompt, random.Random(self.env_seed))
        if not hasattr(self.game, "send"):
            raise ValueError(f"{function_name(self.play)} is no generator: `reply = yield ()` waits for "
                             "a reply")
        added = self.game.send(self.replies[-1] if self.replies else None)
        if isinstance(added, Asks):
            return added
        added = [added] if isinstance(added, Mapping) else list(added or ())
        for message in added:
            if (not isinstance(message, Mapping) or message.get("role") not in ROLES
                    or not isinstance(message.get("content"), str)):
                raise ValueError(f"play yielded {message!r:.80}: a message is {{'role', 'content'}}, of the "
                                 f"roles {', '.join(ROLES)}")
        return [{**m, "content": self.chat.escaped(m["content"])} for m in added]

    def _file(self) -> str:
        if hasattr(self.play, "file"):
            return str(self.play.file)
        code = getattr(self.game, "gi_code", None) or getattr(self.play, "__code__", None)
        return str(getattr(code, "co_filename", function_name(self.play)))

    def _show(self, added: Sequence[Message] | Asks) -> None:
        """What the model is asked next becomes tokens; a game that is too long ends, unpaid."""
        if len(self.replies) >= self.most_turns:
            return self._cut(f"no verdict after {self.most_turns} replies")
        if isinstance(added, Asks):
            self.asks, self.messages, tools = added, list(added.messages), added.tools
        else:
            self.messages, tools = [*append_messages(self.messages, added)], self.schemas
        self.request = self.rows.ask(self.messages, tools)
        if len(self.context) > self.room:
            what = "conversation" if self.replies else "prompt"
            return self._cut(f"the {what} has {len(self.context)} tokens, of which {self.room} leave room to "
                             "reply")
        self.asked[tuple(self.context)] += 1

    def _shown(self, message: Message) -> Message:
        """A message as it is read anew: no control tokens in what was sampled, nor in what others ask."""
        return escape_message(self.chat, message) if self.asks or message["role"] == "assistant" else message

    def _cut(self, reason: str) -> None:
        """The game ends here, unpaid; where the model had no turn yet, that is not its fault."""
        self.close()
        self.verdict = Verdict(score=0.0, reason=reason) if self.replies else error_verdict(reason)

    def close(self) -> None:
        """The game is left where it is."""
        if hasattr(self.game, "close"):
            self.game.close()

    @property
    def context(self) -> list[int]:
        """The tokens that the next reply follows."""
        return self.request.context

    @property
    def turn_seed(self) -> int:
        """Of the next reply: that of the first is the episode's own. Where others ask, it is that of what is
        asked, whatever was asked before it."""
        if self.asks:
            return seed_of(self.seed, "asked", *self.context, self.asked[tuple(self.context)])
        return seed_of(self.seed, "turn", len(self.replies)) if self.replies else self.seed

    def wrote(self, tokens: list[int], logp: list[float], finished: bool, step: int) -> None:
        """The model's turn. One that was cut at its length is no turn, and the game ends there; where others
        ask, they are told."""
        reply = replace(read_reply(self.chat.decode(tokens), self.tools), tokens=tuple(tokens),
                        logp=tuple(logp))
        told = self.asks.answer(reply, self.context, step) if self.asks else None
        self.rows.wrote(self.request, tokens, logp, step, told)
        self.lengths.append(len(tokens))
        self.messages.append({"role": "assistant", "content": self.chat.spoken(tokens)})
        self.replies.append(reply)
        if not finished and not self.asks:
            self._cut(f"a reply was cut at {len(tokens)} tokens")

    def _paid(self, verdict: Verdict) -> Verdict:
        """A verdict's turn rewards on the last token of each reply, what is left of its score on the last."""
        if verdict.error is None and not self.replies:
            return error_verdict(f"{function_name(self.play)} ended before any reply")
        if verdict.per_turn is None or verdict.error:
            return verdict
        if len(verdict.per_turn) > len(self.lengths):
            return error_verdict(f"{function_name(self.play)} pays {len(verdict.per_turn)} turns of "
                                 f"{len(self.lengths)}")
        paid = [*verdict.per_turn, *[0.0] * (len(self.lengths) - len(verdict.per_turn))]
        paid[-1] += verdict.score - sum(paid)
        spread = tuple(x for reward, n in zip(paid, self.lengths, strict=True)
                       for x in (*[0.0] * (n - 1), reward))
        return replace(verdict, per_token=spread)

    def rollout(self) -> Rollout:
        """The game as it was played. What was shown after the last reply is no part of it."""
        rows = self.rows.rows or [TokenRow(self.chat.render(self.messages, self.schemas))]
        made = rollout_of(rows, self.prompt, text=self.replies[-1].text if self.replies else "",
                          finished=self.finished, seed=self.seed, episode=f"{self.prompt.id}#{self.seed}")
        return replace(made, verdict=self.verdict)
