"""What samplers share that write rows of tokens: prompts become tokens, rows become rollouts, and what does
not fit is refused. Each row has a seed of its own, whoever writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import groupby

from postgrad.maths.noise import seeds_of
from postgrad.records import Prompt, Rollout
from postgrad.sampling.base import Sampling
from postgrad.sampling.numbers import Numbers
from postgrad.sampling.waiting import Written

SHOWN = 20  # prompts that are named where many do not fit
KEPT = 2**22  # tokens of prompts that are kept, for when they come again


class Seeds(Sequence[int]):
    """The seeds of a call's rows, made when the first is asked for: a GPU reads the prompts meanwhile."""

    def __init__(self, seed: int, names: Sequence[str], group_size: int):
        self.seed, self.names, self.group_size = seed, names, group_size

    @cached_property
    def made(self) -> list[int]:
        asked: Counter[str] = Counter()
        made = []
        for name in self.names:  # a prompt that is asked twice gets further samples, not the same ones again
            made += seeds_of(self.seed, name, numbers=range(asked[name], asked[name] + self.group_size))
            asked[name] += self.group_size
        return made

    def __len__(self) -> int:
        return len(self.names) * self.group_size

    def __getitem__(self, at):
        return self.made[at]


class RowSampler:
    """Rollouts from rows: `write` is each sampler's own.

    positions: the most tokens of a prompt and its reply together. policy_step: what rollouts are marked with.
    ended: called with each rollout as it ends, while others are written on.
    """

    def __init__(self, chat):
        self.chat = chat
        self.policy_step = 0
        self.ended: Callable[[Rollout], None] | None = None
        self._rendered: dict[int, tuple[Prompt, list[int]]] = {}  # by the prompt's own id()
        self._held = 0

    @property
    def positions(self) -> int:
        raise NotImplementedError

    def write(self, contexts: list[list[int]], group_size: int, seeds: Sequence[int], settings: Sampling,
              after: Sequence[Written | None] | None = None) -> Iterable[list[Written]]:
        """`group_size` rows after each context, in the order in which they end, those together that were seen
        to end together; row i has seeds[i]. after: contexts come again, longer: of each, the row of the last
        call that it goes on from; () at first, None where they do not."""
        raise NotImplementedError

    def sample(self, prompts: Sequence[Prompt], group_size: int, settings: Sampling,
               seed: int) -> list[list[Rollout]]:
        if not prompts:
            return []
        rendered = [self._render(p, settings) for p in prompts]
        shown = [tuple(tokens) for tokens in rendered]
        seeds = Seeds(seed, [prompt.id for prompt in prompts], group_size)
        groups: list[dict[int, Rollout]] = [{} for _ in prompts]
        for rows in self.write(rendered, group_size, seeds, settings):
            texts = self.chat.decode_all([row.tokens for row in rows])
            for row, text in zip(rows, texts, strict=True):
                p, g = divmod(row.request, group_size)
                made = Rollout.made(prompt=prompts[p], prompt_tokens=shown[p], tokens=fixed(row.tokens),
                                    logp=fixed(row.logp), text=text, finished=row.finished,
                                    seed=seeds[row.request], policy_step=self.policy_step)
                groups[p][g] = made
                if self.ended:
                    self.ended(made)
        return [[group[g] for g in range(group_size)] for group in groups]

    def reply(self, contexts: Sequence[list[int]], seeds: Sequence[int], settings: Sampling,
              after: Sequence[Written | None] = ()) -> list[Written]:
        """What is written after each of these rows of tokens, in order. A context that the rows of a group
        share is read once. after: the reply of the last call that each context goes on from, where one does;
        what a sampler still has of it is not computed again."""
        runs = [(context, len(list(rows))) for context, rows in groupby(contexts)]
        begins = not any(after)
        group_size = runs[0][1] if begins and len({n for _, n in runs}) == 1 else 1
        read = [context for context, _ in runs] if group_size > 1 else list(contexts)
        rows = {row.request: row for together in self.write(read, group_size, list(seeds), settings,
                                                            () if begins else after) for row in together}
        return [rows[i] for i in range(len(contexts))]

    def check(self, prompts: Sequence[Prompt], settings: Sampling) -> None:
        """Every prompt fits the model with its reply: asked once, before a run that would meet it late."""
        if settings.max_new_tokens >= self.positions:
            raise ValueError(f"max_new_tokens {settings.max_new_tokens} with any prompt is over the model's "
                             f"{self.positions} positions: set fewer new tokens.")
        long = [prompt for prompt in prompts if not self.fits(prompt, settings)]
        if len(long) == 1:
            self._render(long[0], settings)  # says so
        if long:
            more = f", the first {SHOWN} of them" if len(long) > SHOWN else ""
            listed = [f"\n  {p.place} has {len(self.tokens_of(p))} tokens" for p in long[:SHOWN]]
            raise ValueError(f"with max_new_tokens {settings.max_new_tokens}, {len(long):,} of "
                             f"{len(prompts):,} prompts are over the model's {self.positions} positions"
                             f"{more}:{''.join(listed)}\nShorten them or set fewer new tokens.")

    def fits(self, prompt: Prompt, settings: Sampling) -> bool:
        """Whether a prompt fits the model with its reply."""
        return len(self.tokens_of(prompt)) + settings.max_new_tokens <= self.positions

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt, rendered once: `check` asks for them, and each round of the prompts."""
        if id(prompt) not in self._rendered:
            tokens = self.chat.render(prompt.messages)
            self._held += len(tokens)
            if self._held > KEPT:
                self._rendered, self._held = {}, len(tokens)
            self._rendered[id(prompt)] = prompt, tokens  # the prompt too: its id stays its own
        return self._rendered[id(prompt)][1]

    def _render(self, prompt: Prompt, settings: Sampling) -> list[int]:
        tokens = self.tokens_of(prompt)
        if len(tokens) + settings.max_new_tokens > self.positions:
            raise ValueError(f"{prompt.place} has {len(tokens)} tokens; with max_new_tokens "
                             f"{settings.max_new_tokens} that is over the model's {self.positions} "
                             "positions: shorten the prompt or set fewer new tokens.")
        return tokens


def fixed(numbers: Sequence) -> Sequence:
    """As they stand in a rollout, which nobody changes."""
    return numbers if isinstance(numbers, Numbers) else tuple(numbers)
