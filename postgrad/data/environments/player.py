"""Many games side by side: whichever wait for a reply are sampled together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from postgrad.data.environments.episode import Episode, Play
from postgrad.data.tasks.base import Task
from postgrad.maths.noise import seed_of
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Message, Prompt, Rollout, Sampling, Verdict

if TYPE_CHECKING:
    from postgrad.sampling.request_batch import FinishedSequence
    from postgrad.sampling.sampler import Sampler
    from postgrad.sampling.token_sampler import TokenSampler

SamplerT = TypeVar("SamplerT", bound="Sampler")
TURNS = 8  # replies of a game whose task says nothing of them


def sampler_for(task: Task, sampler: SamplerT, turns: int | None = None) -> SamplerT | Player:
    """What samples for a task: the sampler itself, or where the task plays, a Player on it."""
    return Player(task, cast("TokenSampler", sampler), turns=turns) if task.plays else sampler


def max_turns(task: Task, turns: int | None = None) -> int:
    """The most replies of a rollout: 1 where the task does not play."""
    if turns and turns > 1 and not task.plays:
        raise ValueError(f"turns is {turns}, and task {task.name} has one: leave turns out, or give the task "
                         "play or tools.")
    return (turns or task.turns or TURNS) if task.plays else 1


def play_with_tools(verify: Callable[[Prompt, str], Verdict] | None) -> Play:
    """The environment of a task that has tools and a verifier: calls are answered, and the first reply
    without one is judged."""
    def play(prompt: Prompt, rng: Random) -> Generator[Sequence[Message], ModelReply, Verdict]:
        reply = yield ()
        while reply.tool_calls or reply.malformed:
            reply = yield [*(call.message() for call in reply.tool_calls),
                           *({"role": "tool", "content": f"error: {said}"} for said in reply.malformed)]
        assert verify is not None, "a task with tools has play or a verifier"
        return verify(prompt, reply.text)
    return play


class Player:
    """A sampler whose rollouts are games, each with its environment's verdict.

    sampler: what writes one turn, `reply(contexts, seeds, settings)`. A game's tokens depend on the model,
    its prompt and the seed, not on its neighbours, and the same call gives the same bits; the environments
    of a group have one seed. Where `play` has `at_once`, no more games than that are under way together, and
    where it is a context manager, it is entered while they are.
    """

    def __init__(self, task: Task, sampler: TokenSampler, *, turns: int | None = None):
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
        for prompt in prompts:  # a prompt that is asked twice is played anew, not the same again
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
        return [episode.made for episode in episodes]

    def _side_by_side(self, episodes: Sequence[Episode], sampling: Sampling,
                      each: Callable[..., Iterable[None]]) -> None:
        """Turn by turn: all environments answer, in threads where they wait for others, then all games that
        are not over are sampled together. So who is sampled beside whom does not hang on anybody's clock."""
        going = list(episodes)
        last: dict[Episode, FinishedSequence] = {}  # what each game's model wrote last
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
        """Those that go on; of each other it is told that it ended."""
        for episode in episodes:
            if episode.verdict is not None:
                episode.made = episode.rollout()
                if self.ended:
                    self.ended(episode.made)
        return [episode for episode in episodes if episode.verdict is None]


def group_by_sampling(episodes: Sequence[Episode], sampling: Sampling) -> dict[Sampling, list[Episode]]:
    """The episodes by how their next reply is sampled; what is asked for can only be shorter."""
    found: dict[Sampling, list[Episode]] = {}
    for episode in episodes:
        asked = dict(episode.asks.settings) if episode.asks else {}
        most = min(asked.pop("max_new_tokens", sampling.max_new_tokens), sampling.max_new_tokens)
        found.setdefault(replace(sampling, max_new_tokens=most, **asked), []).append(episode)
    return found
