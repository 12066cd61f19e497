"""The sampler in this process, on the weights that train:
one prefill per prompt, rows at their own places, none waiting.

A prompt is read once and its cache shared by the group. A finished row leaves and a waiting one takes its
slot at once (continuous batching). Random numbers are a function of (row seed, token number) alone. active.py
has the steps, waiting.py the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from itertools import groupby

from postgrad.maths.noise import seed_of
from postgrad.records import Prompt, Rollout
from postgrad.sampler.active import ActiveRows, Written
from postgrad.sampler.base import Sampling

LONGER = 64  # contexts that grow turn by turn are given places by so many
SHOWN = 20  # prompts that are named where many do not fit


class LocalSampler:
    def __init__(self, model, chat, *, rows_at_once: int = 512):
        self.model, self.chat, self.rows_at_once = model, chat, rows_at_once
        self.policy_step = 0
        # called with each rollout as it ends, while others are written on
        self.ended: Callable[[Rollout], None] | None = None
        self._active: ActiveRows | None = None

    def sample(self, prompts: Sequence[Prompt], group_size: int, settings: Sampling,
               seed: int) -> list[list[Rollout]]:
        if not prompts:
            return []
        rendered = [self._render(p, settings) for p in prompts]
        asked: Counter[str] = Counter()
        seeds = []
        for prompt in prompts:  # a prompt that is asked twice gets further samples, not the same ones again
            seeds += [seed_of(seed, prompt.id, asked[prompt.id] + i) for i in range(group_size)]
            asked[prompt.id] += group_size
        groups: list[dict[int, Rollout]] = [{} for _ in prompts]
        for row in self._active_for(rendered, len(seeds), settings).write(rendered, group_size, seeds):
            p, g = divmod(row.request, group_size)
            made = Rollout(prompt=prompts[p], prompt_tokens=tuple(rendered[p]), tokens=tuple(row.tokens),
                           logp=tuple(row.logp), text=self.chat.decode(row.tokens), finished=row.finished,
                           seed=seeds[row.request], policy_step=self.policy_step)
            groups[p][g] = made
            if self.ended:
                self.ended(made)
        return [[group[g] for g in range(group_size)] for group in groups]

    def reply(self, contexts: Sequence[list[int]], seeds: Sequence[int], settings: Sampling) -> list[Written]:
        """What is written after each of these rows of tokens, in order. A context that the rows of a group
        share is read once."""
        runs = [(context, len(list(rows))) for context, rows in groupby(contexts)]
        group_size = runs[0][1] if len({n for _, n in runs}) == 1 else 1
        read = [context for context, _ in runs] if group_size > 1 else list(contexts)
        longest = min(self.positions, -(-max(map(len, read)) // LONGER) * LONGER)
        active = self._active_for(read, len(contexts), settings, longest)
        rows = {row.request: row for row in active.write(read, group_size, list(seeds))}
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
            listed = [f"\n  {p.place} has {len(self.chat.render(p.messages))} tokens" for p in long[:SHOWN]]
            raise ValueError(f"with max_new_tokens {settings.max_new_tokens}, {len(long):,} of "
                             f"{len(prompts):,} prompts are over the model's {self.positions} positions"
                             f"{more}:{''.join(listed)}\nShorten them or set fewer new tokens.")

    @property
    def positions(self) -> int:
        return self.model.config.max_position_embeddings

    def fits(self, prompt: Prompt, settings: Sampling) -> bool:
        """Whether a prompt fits the model with its reply."""
        return len(self.chat.render(prompt.messages)) + settings.max_new_tokens <= self.positions

    def stream(self, prompt: Prompt, settings: Sampling, seed: int) -> Generator[str, None, bool]:
        """The reply to one prompt, piece by piece, as it is sampled;
        returns whether it ended by itself, not at the length."""
        tokens: list[int] = []
        shown = text = ""
        rendered = self._render(prompt, settings)
        for token in self._active_for([rendered], 1, settings).stream(rendered, seed_of(seed, prompt.id, 0)):
            tokens.append(token)
            text = self.chat.decode(tokens)
            if not text.endswith("\ufffd"):  # a character cut between two tokens waits for the rest
                yield text[len(shown):]
                shown = text
        if text != shown:  # the reply ended inside a character
            yield text[len(shown):]
        return tokens[-1] in self.chat.stop or any(stop in text for stop in settings.stop)

    def _render(self, prompt: Prompt, settings: Sampling) -> list[int]:
        tokens = self.chat.render(prompt.messages)
        if len(tokens) + settings.max_new_tokens > self.positions:
            raise ValueError(f"{prompt.place} has {len(tokens)} tokens; with max_new_tokens "
                             f"{settings.max_new_tokens} that is over the model's {self.positions} "
                             "positions: shorten the prompt or set fewer new tokens.")
        return tokens

    def _active_for(self, rendered: list[list[int]], rows: int, settings: Sampling,
                    read: int = 0) -> ActiveRows:
        """Those of the last call if this one's rows fit, with the weights as they are now; else new ones.
        read: places for the tokens of a prompt, where that is more than these need."""
        need = {"rows": min(rows, self.rows_at_once), "read": max(read, *map(len, rendered)),
                "prompts": min(len(rendered), self.rows_at_once)}
        if self._active is None or not self._active.fits(settings, **need):
            self._active = None  # the old one's memory is free before the new one's is taken
            self._active = ActiveRows(self.model, self.chat, settings, **need)
        else:
            self._active.engine.refresh()
        return self._active
