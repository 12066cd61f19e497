"""The sampler in this process, on the weights that train:
one prefill per prompt, rows at their own places, none waiting.

A prompt is read once and its cache shared by the group. A finished row leaves and a waiting one takes its
slot at once (continuous batching). Over several turns it stays in its slot for as long as no other needs it,
and of the next turn only what was added is computed. Random numbers are a function of (row seed, token
number) alone. active.py has the steps, waiting.py the queue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from postgrad.maths.noise import seed_of
from postgrad.records import Prompt
from postgrad.sampling.active import ActiveRows
from postgrad.sampling.base import Sampling
from postgrad.sampling.rows import RowSampler
from postgrad.sampling.waiting import Kept, Written

LONGER = 64  # contexts and rows that grow turn by turn are given room by so many


class LocalSampler(RowSampler):
    """anew: rows that were to go on and were read anew as a whole, for want of a slot or because their
    beginning is another."""

    def __init__(self, model, chat, *, rows_at_once: int = 1024):
        super().__init__(chat)
        self.model, self.rows_at_once = model, rows_at_once
        self._active: ActiveRows | None = None
        self.anew = 0

    def release(self) -> None:
        """Cache, copy of the weights and captured graphs go; the next call makes them anew."""
        self._active = None

    @property
    def positions(self) -> int:
        return self.model.config.max_position_embeddings

    def write(self, contexts: list[list[int]], group_size: int, seeds: Sequence[int], settings: Sampling,
              after: Sequence[Written | None] | None = None) -> Iterable[list[Written]]:
        active, going = self._active, {}
        if after and active is not None and settings == active.settings:
            going = active.going_on(contexts, after)
        self.anew += sum(row is not None for row in after or ()) - len(going)
        if active is not None and going:
            self._grow(active, contexts, settings, going)
        else:
            longest = 0 if after is None else rounded(max(map(len, contexts)))
            active = self._active_for(contexts, len(seeds), settings, min(self.positions, longest))
        return active.write(contexts, group_size, seeds,
                            going if after is not None and active.engine.appends else None)

    def _grow(self, active: ActiveRows, contexts: list[list[int]], settings: Sampling,
              going: dict[int, Kept]) -> None:
        """Room for what comes in the rows of the last call, with the weights as they are now."""
        read = max((len(context) for i, context in enumerate(contexts) if i not in going), default=0)
        new = max(len(contexts[i]) - kept.read for i, kept in going.items()) + settings.max_new_tokens + 1
        active.grow(*(min(self.positions, rounded(n)) for n in (read, new)))
        active.engine.refresh()

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
            self._active.engine.refresh(often=True)
        return self._active


def rounded(tokens: int) -> int:
    return -(-tokens // LONGER) * LONGER
