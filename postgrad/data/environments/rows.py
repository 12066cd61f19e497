"""The tokens of conversations, row by row, as they were sampled and shown.

A request for a reply names a whole conversation. Where it goes on from a reply that was given before, its
tokens are those of that row, as they are, and those of what was said since (`chat.extend`). Where it does
not, or the template would write what came before otherwise, it begins a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from postgrad.records import Message, Prompt, Rollout, Turn

if TYPE_CHECKING:
    from postgrad.models.chat import Chat

ToolSchema = Mapping[str, Any]


@dataclass(eq=False)
class TokenRow:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenReply:
    """A reply that was given. messages: the conversation up to it, as whoever asked knows it; shown: the same
    as it stands in the row, which had `end` tokens after its beginning."""

    messages: list[Message]
    shown: list[Message]
    tools: list[ToolSchema]
    row: TokenRow
    end: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplyRequest:
    """A reply that is wanted after `context`. after: the reply that it goes on from; added: who wrote what
    was said since."""

    messages: list[Message]
    shown: list[Message]
    tools: list[ToolSchema]
    context: list[int]
    after: GivenReply | None
    added: str


class EpisodeRows:
    """The rows of one episode; the one that was written to last stands last.

    shown(message): a message as the model is shown it, where it is none of the replies given here.
    """

    def __init__(self, chat: Chat, shown: Callable[[Message], Message]):
        self.chat, self.shown = chat, shown
        self.rows: list[TokenRow] = []
        self.given: list[GivenReply] = []

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> ReplyRequest:
        """What a reply to this conversation follows. Nothing is kept before it is written."""
        messages, tools, before = list(messages), list(tools), self._before(messages, list(tools))
        if before:
            since = messages[len(before.messages):]
            shown = [*before.shown, *map(self.shown, since)]
            so_far = before.row.context[: len(before.row.prompt_tokens) + before.end]
            longer = self.chat.extend(so_far, shown, tools)
            if longer is not None:
                return ReplyRequest(messages=messages, shown=shown, tools=tools, context=longer, after=before,
                                    added=since[0]["role"] if since else "template")
        shown = [self.shown(message) for message in messages]
        return ReplyRequest(messages=messages, shown=shown, tools=tools,
                            context=self.chat.render(shown, tools),
                            after=None, added="")

    def _before(self, messages: list[Message], tools: list[ToolSchema]) -> GivenReply | None:
        """The latest of the replies that the most of this conversation goes on from."""
        fits = [g for g in self.given if g.tools == tools and len(g.messages) <= len(messages)
                and all(map(same_message, g.messages, messages))]
        return max(reversed(fits), key=lambda g: len(g.messages), default=None)

    def wrote(self, request: ReplyRequest, tokens: Sequence[int], logp: Sequence[float], step: int,
              told: Message | None = None) -> TokenRow:
        """The reply to a request. told: the message as whoever asked was given it; None: as it was sampled.
        A second reply to the same conversation is a row of its own."""
        after, spoken = request.after, {"role": "assistant", "content": self.chat.spoken(tokens)}
        if after and len(after.row.tokens) == after.end:
            row = after.row
            row.add(request.context[len(row.context):], None, request.added, None)
            self.rows.remove(row)
        else:
            row = TokenRow(request.context)
        self.rows.append(row)
        row.add(tokens, logp, "assistant", step)
        self.given.append(GivenReply(messages=[*request.messages, told or spoken], tools=request.tools,
                                     row=row,
                                     shown=[*request.shown, spoken], end=len(row.tokens)))
        return row


def same_message(a: Message, b: Message) -> bool:
    """Whether two messages say the same, blank space around a text and ids of calls aside."""
    return _said(a) == _said(b)


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return said | {"content": (message.get("content") or "").strip(), "tool_calls": calls}


def escape_message(chat: Chat, message: Message) -> Message:
    """A message in which no name of a control token ends or begins a turn."""
    def within(value: Any) -> Any:
        if isinstance(value, str):
            return chat.escaped(value)
        if isinstance(value, dict):
            return {within(key): within(inside) for key, inside in value.items()}
        return [within(inside) for inside in value] if isinstance(value, list) else value

    return {key: value if key == "role" else within(value) for key, value in message.items()}


def rollout_of(rows: Sequence[TokenRow], prompt: Prompt, *, text: str, finished: bool, seed: int,
               episode: str) -> Rollout:
    """The rows of an episode as a rollout."""
    made = [Rollout(prompt=prompt, prompt_tokens=tuple(row.prompt_tokens), tokens=tuple(row.tokens),
                    logp=tuple(row.logp), mask=None if all(row.mask) else tuple(row.mask), text=text,
                    finished=finished, seed=seed, turns=tuple(row.turns), episode=episode,
                    policy_step=row.turns[-1].policy_step or 0 if row.turns else 0) for row in rows]
    return replace(made[-1], earlier=tuple(made[:-1]))
