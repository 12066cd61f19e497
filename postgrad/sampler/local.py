"""The sampler in this process, on the weights that train:
one prefill per prompt, rows at their own places, none waiting.

A prompt is read once and its cache shared by the group. A finished row leaves and a waiting one takes its
slot at once (continuous batching). Random numbers are a function of (row seed, token number) alone. active.py
has the steps, waiting.py the queue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from postgrad.maths.noise import seed_of
from postgrad.records import Prompt
from postgrad.sampler.active import ActiveRows, Written
from postgrad.sampler.base import Sampling
from postgrad.sampler.rows import RowSampler

LONGER = 64  # contexts that grow turn by turn are given places by so many


class LocalSampler(RowSampler):
    def __init__(self, model, chat, *, rows_at_once: int = 512):
        super().__init__(chat)
        self.model, self.rows_at_once = model, rows_at_once
        self._active: ActiveRows | None = None

    @property
    def positions(self) -> int:
        return self.model.config.max_position_embeddings

    def write(self, contexts: list[list[int]], group_size: int, seeds: list[int], settings: Sampling,
              growing: bool = False) -> Iterable[Written]:
        longest = -(-max(map(len, contexts)) // LONGER) * LONGER if growing else 0
        active = self._active_for(contexts, len(seeds), settings, min(self.positions, longest))
        return active.write(contexts, group_size, seeds)

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
