"""Samplers of token rows: prompts are rendered and checked, rows become rollouts. Each row has its own seed,
whichever engine generates it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import groupby
from typing import overload

from postgrad.maths.noise import seeds_of
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout, Sampling
from postgrad.sampling.sequences import ArrayTuple, FinishedSequence

NAMED_PROMPTS = 20     # prompts that are named where many do not fit
RENDERED_TOKENS = 2**22  # tokens of rendered prompts that are kept for when they come again


class RowSeeds(Sequence[int]):
    """The seeds of a call's rows, computed at first use: a GPU prefills the prompts meanwhile."""

    def __init__(self, seed: int, names: Sequence[str], n: int):
        self.seed, self.names, self.n = seed, names, n

    @cached_property
    def seeds(self) -> list[int]:
        asked: Counter[str] = Counter()
        seeds: list[int] = []
        for name in self.names:  # a repeated prompt gets further samples, not the same ones
            seeds += seeds_of(self.seed, name, numbers=range(asked[name], asked[name] + self.n))
            asked[name] += self.n
        return seeds

    def __len__(self) -> int:
        return len(self.names) * self.n

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> list[int]: ...

    def __getitem__(self, at: int | slice) -> int | list[int]:
        return self.seeds[at]


class TokenSampler:
    """Rollouts from rows of tokens; `generate` is each sampler's own.

    positions: the most tokens of a prompt and its reply together. policy_step: what rollouts are marked with.
    ended: called with each rollout as it ends, while others are generated.
    """

    def __init__(self, chat: Chat):
        self.chat = chat
        self.policy_step = 0
        self.ended: Callable[[Rollout], None] | None = None
        self._rendered: dict[int, tuple[Prompt, list[int]]] = {}  # by the prompt's own id()
        self._rendered_tokens = 0

    @property
    def positions(self) -> int:
        raise NotImplementedError

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        """n rows after each context, in lists, as they end; row i has seeds[i]. after: over several turns,
        the row of the last call that each context continues, or None; () in the first turn."""
        raise NotImplementedError

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        if not prompts:
            return []
        rendered = [self._render(p, sampling) for p in prompts]
        prompt_tokens = [tuple(tokens) for tokens in rendered]
        seeds = RowSeeds(seed, [prompt.id for prompt in prompts], n)
        groups: list[dict[int, Rollout]] = [{} for _ in prompts]
        for rows in self.generate(rendered, n, seeds, sampling):
            texts = self.chat.decode_all([row.tokens for row in rows])
            for row, text in zip(rows, texts, strict=True):
                p, g = divmod(row.number, n)
                rollout = Rollout.made(prompt=prompts[p], prompt_tokens=prompt_tokens[p],
                                       tokens=as_tuple(row.tokens), logp=as_tuple(row.logp), text=text,
                                       finished=row.finished, seed=seeds[row.number],
                                       policy_step=self.policy_step, routes=row.routes)
                groups[p][g] = rollout
                if self.ended:
                    self.ended(rollout)
        return [[group[g] for g in range(n)] for group in groups]

    def reply(self, contexts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling,
              after: Sequence[FinishedSequence | None] = ()) -> list[FinishedSequence]:
        """The reply to each context, in order; a context that neighbours share is prefilled once. after: the
        reply of the last call that each context continues; its KV cache is reused where it still exists."""
        runs = [(context, len(list(rows))) for context, rows in groupby(contexts)]
        begins = not any(after)
        n = runs[0][1] if begins and len({count for _, count in runs}) == 1 else 1
        read = [context for context, _ in runs] if n > 1 else list(contexts)
        rows = {row.number: row for ended in self.generate(read, n, list(seeds), sampling,
                                                           () if begins else after) for row in ended}
        return [rows[i] for i in range(len(contexts))]

    def check(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        """Refuses prompts that do not fit the model with their reply."""
        if sampling.max_new_tokens >= self.positions:
            raise ValueError(f"max_new_tokens {sampling.max_new_tokens} with any prompt is over the model's "
                             f"{self.positions} positions: set fewer new tokens.")
        long = [prompt for prompt in prompts if not self.fits(prompt, sampling)]
        if len(long) == 1:
            self._render(long[0], sampling)  # raises
        if long:
            more = ", ..." if len(long) > NAMED_PROMPTS else ""
            listed = [f"{p.place} has {len(self.tokens_of(p))} tokens" for p in long[:NAMED_PROMPTS]]
            raise ValueError(f"with max_new_tokens {sampling.max_new_tokens}, {len(long):,} of "
                             f"{len(prompts):,} prompts are over the model's {self.positions} positions: "
                             f"{', '.join(listed)}{more}. Shorten them or set fewer new tokens.")

    def fits(self, prompt: Prompt, sampling: Sampling) -> bool:
        """Whether prompt and reply fit the model; a prompt that clearly fits is not rendered for it."""
        room = self.positions - sampling.max_new_tokens
        return self.chat.most_tokens(prompt.messages) <= room or len(self.tokens_of(prompt)) <= room

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt, cached."""
        if id(prompt) not in self._rendered:
            tokens = self.chat.render(prompt.messages)
            self._rendered_tokens += len(tokens)
            if self._rendered_tokens > RENDERED_TOKENS:
                self._rendered, self._rendered_tokens = {}, len(tokens)
            self._rendered[id(prompt)] = prompt, tokens  # the prompt too: its id stays its own
        return self._rendered[id(prompt)][1]

    def _render(self, prompt: Prompt, sampling: Sampling) -> list[int]:
        tokens = self.tokens_of(prompt)
        if len(tokens) + sampling.max_new_tokens > self.positions:
            raise ValueError(f"{prompt.place} has {len(tokens)} tokens; with max_new_tokens "
                             f"{sampling.max_new_tokens} that is over the model's {self.positions} "
                             "positions: shorten the prompt or set fewer new tokens.")
        return tokens


def as_tuple(numbers: Sequence[float]) -> Sequence[float]:
    """Numbers as a rollout holds them, immutable."""
    return numbers if isinstance(numbers, ArrayTuple) else tuple(numbers)
