"""Environments, which answer a policy over several turns, and the sampler that plays many episodes together.

An environment is a generator, `play(prompt, rng)`: it yields messages to add, is sent each ModelReply, and
returns a Verdict.

EpisodeRows   the tokens of an episode's conversations      Episode   one episode
Player        a sampler whose rollouts are episodes with their verdicts
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from postgrad.data.tasks.base import Task
from postgrad.maths.noise import seed_of
from postgrad.models.chat.inert import SpokenText
from postgrad.models.chat.tools import ModelReply, append_messages, read_reply, tool_schema
from postgrad.records import Message, Prompt, Rollout, Sampler, Sampling, Turn, Verdict
from postgrad.rewards.base import error_verdict
from postgrad.rewards.function import verdict_of
from postgrad.system.limit import SECONDS, TimeLimit, within_limit
from postgrad.system.user_code import error_location, function_name

if TYPE_CHECKING:
    from postgrad.models.chat import Chat
    from postgrad.sampling.sequences import FinishedSequence
    from postgrad.sampling.token_sampler import TokenSampler

ToolSchema = Mapping[str, Any]
SamplerT = TypeVar("SamplerT", bound=Sampler)
ROLES = ("system", "user", "tool")  # of messages that an environment adds
TURNS = 8                           # replies of an episode, unless the task has `turns`


@dataclass(eq=False)
class TokenRow:
    """A row that grows by turns after its prompt."""

    prompt_tokens: list[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def add(self, tokens: Sequence[int], logp: Sequence[float] | None, role: str, step: int | None) -> None:
        """Adds a turn. logp: None for tokens that were not sampled."""
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
    """A sampled reply. messages: the conversation up to it, as the caller has it. shown: the same as it is in
    the row, which had `end` tokens after its prompt."""

    messages: list[Message]
    shown: list[Message]
    tools: list[ToolSchema]
    row: TokenRow
    end: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplyRequest:
    """A reply to sample after `context` tokens. after: the reply that it continues. added: the role of the
    messages since."""

    messages: list[Message]
    shown: list[Message]
    tools: list[ToolSchema]
    context: list[int]
    after: GivenReply | None
    added: str


class EpisodeRows:
    """The rows of one episode, the most recent last.

    A request names a whole conversation. If it continues an earlier reply, it keeps the tokens of that row
    and adds those of the messages since (`chat.extend`). Otherwise, or if the template would render the past
    differently, it begins a new row. shown(message): a message as the model reads it, unless it is a reply
    of this episode.
    """

    def __init__(self, chat: Chat, shown: Callable[[Message], Message]):
        self.chat, self.shown = chat, shown
        self.rows: list[TokenRow] = []
        self.given: list[GivenReply] = []

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> ReplyRequest:
        """The request of a reply to this conversation. Nothing is stored before `wrote`."""
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
                            context=self.chat.render(shown, tools), after=None, added="")

    def _before(self, messages: list[Message], tools: list[ToolSchema]) -> GivenReply | None:
        """The latest reply that shares the longest prefix with this conversation."""
        fits = [g for g in self.given if g.tools == tools and len(g.messages) <= len(messages)
                and all(map(same_message, g.messages, messages))]
        return max(reversed(fits), key=lambda g: len(g.messages), default=None)

    def wrote(self, request: ReplyRequest, tokens: Sequence[int], logp: Sequence[float], step: int,
              message: Message | None = None) -> TokenRow:
        """Stores the reply to a request. message: the reply as the caller has it; None: as sampled. A second
        reply to the same conversation is a row of its own."""
        after, spoken = request.after, {"role": "assistant", "content": self.chat.spoken(tokens)}
        if after and len(after.row.tokens) == after.end:
            row = after.row
            row.add(request.context[len(row.context):], None, request.added, None)
            self.rows.remove(row)
        else:
            row = TokenRow(request.context)
        self.rows.append(row)
        row.add(tokens, logp, "assistant", step)
        own = {**spoken, "content": SpokenText(spoken["content"])}
        self.given.append(GivenReply(messages=[*request.messages, message or spoken], tools=request.tools,
                                     row=row, shown=[*request.shown, own], end=len(row.tokens)))
        return row


def same_message(a: Message, b: Message) -> bool:
    """Whether two messages are equal but for surrounding white space and ids of tool calls."""
    def normal(message: Mapping[str, Any]) -> dict[str, Any]:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return {**message, "content": (message.get("content") or "").strip(), "tool_calls": calls}

    return a == b or normal(a) == normal(b)


def rollout_of(rows: Sequence[TokenRow], prompt: Prompt, *, text: str, finished: bool, seed: int,
               episode: str) -> Rollout:
    """The rows of an episode as a rollout: the last row, with the others as `earlier`."""
    rollouts = [Rollout(prompt=prompt, prompt_tokens=tuple(row.prompt_tokens), tokens=tuple(row.tokens),
                        logp=tuple(row.logp), mask=None if all(row.mask) else tuple(row.mask), text=text,
                        finished=finished, seed=seed, turns=tuple(row.turns), episode=episode,
                        policy_step=row.turns[-1].policy_step or 0 if row.turns else 0) for row in rows]
    return replace(rollouts[-1], earlier=tuple(rollouts[:-1]))


Play = Callable[[Prompt, random.Random], Generator["Sequence[Message] | Asks", ModelReply, object]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Asks:
    """Yielded by an environment whose caller sends a whole conversation instead of messages to add, with
    tools as JSON schemas. settings: changes of the sampling.

    answer(reply, context, step) hands the caller the reply to these tokens by the policy of this step, and
    returns it as the caller's message.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    answer: Callable[[ModelReply, list[int], int], Message]


class Episode:
    """An episode of one prompt. `step` runs the environment up to the next request or the verdict; `wrote`
    takes the reply.

    seed: of the policy's samples. env_seed: of the environment, the same for a group. room: the most tokens
    of a row before a reply. turns: the most replies.
    """

    def __init__(self, prompt: Prompt, play: Play, tools: Sequence[Callable[..., object]], chat: Chat, *,
                 seed: int, env_seed: int, room: int, turns: int):
        self.prompt, self.tools, self.chat, self.seed = prompt, tools, chat, seed
        self.room, self.most_turns = room, turns
        self.schemas: list[ToolSchema] = [tool_schema(tool) for tool in tools]
        self.messages: list[Message] = list(prompt.messages)
        self.rows = EpisodeRows(chat, self._shown)
        self.request: ReplyRequest
        self.asks: Asks | None = None
        self.asked: Counter[tuple[int, ...]] = Counter()
        self.replies: list[ModelReply] = []
        self.lengths: list[int] = []  # tokens of each reply
        self.verdict: Verdict | None = None
        self.finished = False
        self.play, self.limit = play, getattr(play, "seconds", SECONDS)
        self.env_seed = env_seed
        self.game: Any = None
        self.result: Rollout

    def step(self) -> None:
        """The environment's turn. An exception gives an error verdict, not a score of 0."""
        try:
            added = within_limit(self.limit, self._send)
        except StopIteration as end:
            self.finished, self.verdict = True, self._paid(verdict_of(end.value, function_name(self.play)))
        except TimeLimit:
            self.verdict = error_verdict(f"{function_name(self.play)} took over {self.limit:g} s for one "
                                         "turn; play.seconds = N allows more")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises
            self.verdict = error_verdict(error_location(Path(self._file()), error))
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
        """Renders the next request; an episode that is too long is truncated."""
        if len(self.replies) >= self.most_turns:
            return self._cut(f"no verdict after {self.most_turns} replies")
        if isinstance(added, Asks):
            self.asks, self.messages, tools = added, list(added.messages), added.tools
        else:
            self.messages, tools = [*append_messages(self.messages, added)], self.schemas
        try:
            self.request = self.rows.ask(self.messages, tools)
        except ValueError as error:
            return self._cut(f"the conversation can't be shown to the model: {error}",
                             paid=self._is_own(tools))
        if len(self.context) > self.room:
            what = "conversation" if self.replies else "prompt"
            return self._cut(f"the {what} has {len(self.context)} tokens, of which {self.room} leave room to "
                             "reply")
        self.asked[tuple(self.context)] += 1

    def _is_own(self, tools: Sequence[ToolSchema]) -> bool:
        """Whether the replies are why a conversation cannot be rendered: with others in their place it is."""
        plain = [{"role": m["role"], "content": "."} if m["role"] == "assistant" else m
                 for m in self.messages]
        try:
            self.chat.render(plain, tools)
        except ValueError:
            return False
        return True

    def _shown(self, message: Message) -> Message:
        """Escapes control tokens in replies, and in everything that a caller sends."""
        return self.chat.inert(message) if self.asks or message["role"] == "assistant" else message

    def _cut(self, reason: str, paid: bool = True) -> None:
        """Truncates the episode with a score of 0; with an error verdict before the first reply, and where
        it is not the replies' doing (not `paid`)."""
        self.close()
        self.verdict = (Verdict(score=0.0, reason=reason) if self.replies and paid else error_verdict(reason))

    def close(self) -> None:
        if hasattr(self.game, "close"):
            self.game.close()

    @property
    def context(self) -> list[int]:
        """The tokens before the next reply."""
        return self.request.context

    @property
    def turn_seed(self) -> int:
        """The seed of the next reply; of the first, the episode's own. With a caller it depends on the
        request alone, not on those before it."""
        if self.asks:
            return seed_of(self.seed, "asked", *self.context, self.asked[tuple(self.context)])
        return seed_of(self.seed, "turn", len(self.replies)) if self.replies else self.seed

    def wrote(self, tokens: list[int], logp: list[float], finished: bool, step: int) -> None:
        """The model's turn. Without a caller, a reply that is truncated at its length ends the episode."""
        reply = replace(read_reply(self.chat.decode(tokens), self.tools), tokens=tuple(tokens),
                        logp=tuple(logp))
        message, fault = None, ""
        try:
            message = self.asks.answer(reply, self.context, step) if self.asks else None
        except Exception as error:  # noqa: BLE001 - a reply that can't be handed on is its own fault
            fault = f"a reply can't be handed on: {type(error).__name__}: {str(error)[:200]}"
        self.rows.wrote(self.request, tokens, logp, step, message)
        self.lengths.append(len(tokens))
        self.messages.append({"role": "assistant", "content": self.chat.spoken(tokens)})
        self.replies.append(reply)
        if fault:
            self._cut(fault)
        elif not finished and not self.asks:
            self._cut(f"a reply was cut at {len(tokens)} tokens")

    def _paid(self, verdict: Verdict) -> Verdict:
        """Puts turn rewards on the last token of each reply, the rest of the score on the last one."""
        if verdict.error is None and not self.replies:
            return error_verdict(f"{function_name(self.play)} ended before any reply")
        if verdict.per_turn is None or verdict.error:
            return verdict
        if len(verdict.per_turn) > len(self.lengths):
            return error_verdict(f"{function_name(self.play)} pays {len(verdict.per_turn)} turns of "
                                 f"{len(self.lengths)}")
        rewards = [*verdict.per_turn, *[0.0] * (len(self.lengths) - len(verdict.per_turn))]
        rewards[-1] += verdict.score - sum(rewards)
        per_token = tuple(x for reward, n in zip(rewards, self.lengths, strict=True)
                          for x in (*[0.0] * (n - 1), reward))
        return replace(verdict, per_token=per_token)

    def rollout(self) -> Rollout:
        """The episode up to its last reply."""
        rows = self.rows.rows or [TokenRow(self.chat.render(self.messages, self.schemas))]
        rollout = rollout_of(rows, self.prompt, text=self.replies[-1].text if self.replies else "",
                             finished=self.finished, seed=self.seed, episode=f"{self.prompt.id}#{self.seed}")
        return replace(rollout, verdict=self.verdict)


def sampler_for(task: Task, sampler: SamplerT, turns: int | None = None) -> SamplerT | Player:
    """The sampler of a task: for a multi-turn one, a Player on it."""
    return Player(task, cast("TokenSampler", sampler), turns=turns) if task.plays else sampler


def check_tools(task: Task, chat: Chat) -> None:
    """Raises where the chat template would not show the model a task's tools."""
    schemas = [tool_schema(tool) for tool in task.tools]
    if chat.left_out([{"role": "user", "content": "?"}], schemas):
        names = ", ".join(tool.__name__ for tool in task.tools)
        raise ValueError(f"task {task.name} has tools ({names}), and the model's chat template has no place "
                         "for them: take a model or a template that has one.")


def max_turns(task: Task, turns: int | None = None) -> int:
    """The most replies of a rollout: 1 for a single-turn task."""
    if turns and turns > 1 and not task.plays:
        raise ValueError(f"turns is {turns}, and task {task.name} has one: leave turns out, or give the task "
                         "play or tools.")
    return (turns or task.turns or TURNS) if task.plays else 1


def play_with_tools(verify: Callable[[Prompt, str], Verdict] | None) -> Play:
    """The environment of a task with tools and a verifier: tool calls are answered, the first reply without
    one is judged."""
    def play(prompt: Prompt, rng: random.Random) -> Generator[Sequence[Message], ModelReply, Verdict]:
        reply = yield ()
        while reply.tool_calls or reply.malformed:
            reply = yield [*(call.message() for call in reply.tool_calls),
                           *({"role": "tool", "content": f"error: {fault}"} for fault in reply.malformed)]
        assert verify is not None, "a task with tools has play or a verifier"
        return verify(prompt, reply.text)
    return play


class Player:
    """A sampler whose rollouts are episodes, each with its environment's verdict.

    sampler: samples one turn by `reply(contexts, seeds, settings)`. An episode depends on the model, its
    prompt and the seed, not on its neighbours; the environments of a group share a seed. `play.at_once` is
    the limit of concurrent episodes; a `play` that is a context manager is entered meanwhile.
    """

    def __init__(self, task: Task, sampler: TokenSampler, *, turns: int | None = None):
        check_tools(task, sampler.chat)
        self.task, self.sampler, self.turns = task, sampler, max_turns(task, turns)
        self.play = task.play or play_with_tools(task.verify)
        self.ended: Callable[[Rollout], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)  # chat, model, positions, fits, check

    @property
    def policy_step(self) -> int:
        return self.sampler.policy_step

    @policy_step.setter
    def policy_step(self, step: int) -> None:
        self.sampler.policy_step = step

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        asked: Counter[str] = Counter()
        episodes = []
        for prompt in prompts:  # a repeated prompt gets new seeds
            first = asked[prompt.id]
            env_seed = seed_of(seed, "environment", prompt.id, first)
            episodes += [Episode(prompt, self.play, self.task.tools, self.sampler.chat, env_seed=env_seed,
                                 seed=seed_of(seed, prompt.id, first + i), turns=self.turns,
                                 room=self.sampler.positions - sampling.max_new_tokens)
                         for i in range(n)]
            asked[prompt.id] += n
        played = self._played(episodes, sampling)
        return [[played[p * n + i] for i in range(n)] for p in range(len(prompts))]

    def _played(self, episodes: Sequence[Episode], sampling: Sampling) -> list[Rollout]:
        at_once = getattr(self.play, "at_once", None)
        entered = self.play if isinstance(self.play, AbstractContextManager) else nullcontext()
        with entered:
            try:
                with ThreadPoolExecutor(at_once or 2 * (os.cpu_count() or 1), "play") as threads:
                    for start in range(0, len(episodes), at_once or len(episodes)):
                        wave = episodes[start: start + at_once] if at_once else episodes
                        self._side_by_side(wave, sampling, threads.map if self.task.waits else map)
            finally:
                for episode in episodes:
                    episode.close()
        return [episode.result for episode in episodes]

    def _side_by_side(self, episodes: Sequence[Episode], sampling: Sampling,
                      each: Callable[..., Iterable[None]]) -> None:
        """Turn by turn: all environments step, in threads if they wait for other processes, then all
        unfinished episodes are sampled in one batch. So the batches do not depend on timing."""
        going = list(episodes)
        last: dict[Episode, FinishedSequence] = {}  # the last reply of each episode
        while going:
            list(each(Episode.step, going))
            going = self._over(going)
            for changed, mine in group_by_sampling(going, sampling).items():
                contexts, seeds = [e.context for e in mine], [e.turn_seed for e in mine]
                rows = self.sampler.reply(contexts, seeds, changed, [last.get(e) for e in mine])
                last.update(zip(mine, rows, strict=True))
                for episode, row in zip(mine, rows, strict=True):
                    episode.wrote(list(row.tokens), list(row.logp), row.finished, self.policy_step)
            going = self._over(going)

    def _over(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The unfinished episodes; the others get their rollouts."""
        for episode in episodes:
            if episode.verdict is not None:
                episode.result = episode.rollout()
                if self.ended:
                    self.ended(episode.result)
        return [episode for episode in episodes if episode.verdict is None]


def group_by_sampling(episodes: Sequence[Episode], sampling: Sampling) -> dict[Sampling, list[Episode]]:
    """The episodes by the sampling of their next reply; a caller may only shorten it."""
    groups: dict[Sampling, list[Episode]] = {}
    for episode in episodes:
        asked = dict(episode.asks.settings) if episode.asks else {}
        most = min(asked.pop("max_new_tokens", sampling.max_new_tokens), sampling.max_new_tokens)
        groups.setdefault(replace(sampling, max_new_tokens=most, **asked), []).append(episode)
    return groups
