"""The sampler in this process, on the weights that are trained: continuous batching with one prefill per
prompt, shared by its group.

Over several turns a sequence stays in its slot for as long as no other needs it, and of the next turn only
what was added is computed. Random numbers are a function of (row seed, token number) alone. batch_decoder.py
has the steps, scheduler.py the slots.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from postgrad.maths.noise import seed_of
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Sampling
from postgrad.sampling.batch_decoder import BatchDecoder, BatchSequence, FinishedSequence
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.token_sampler import TokenSampler

GROWTH = 64  # tokens by which room for contexts and replies grows, turn by turn


class LocalSampler(TokenSampler):
    """max_concurrent: sequences that are decoded at once. cache_misses: contexts that were to continue a
    sequence and were prefilled from their beginning, for want of a slot or because their beginning is
    another."""

    def __init__(self, model: DecodableModel, chat: Chat, *, max_concurrent: int = 1024):
        super().__init__(chat)
        self.model, self.max_concurrent = model, max_concurrent
        self._decoder: BatchDecoder | None = None
        self.cache_misses = 0

    def release(self) -> None:
        """Frees the KV cache, the copy of the weights and the captured graphs; the next call makes them
        again."""
        self._decoder = None

    @property
    def positions(self) -> int:
        return int(self.model.config.max_position_embeddings)

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        decoder, hits = self._decoder, dict[int, BatchSequence]()
        if after and decoder is not None and sampling == decoder.settings:
            hits = decoder.cache_hits(contexts, after)
        self.cache_misses += sum(row is not None for row in after or ()) - len(hits)
        if decoder is not None and hits:
            self._grow(decoder, contexts, sampling, hits)
        else:
            longest = 0 if after is None else round_up(max(map(len, contexts)))
            decoder = self._decoder_for(contexts, len(seeds), sampling, min(self.positions, longest))
        return decoder.decode(contexts, n, seeds,
                              hits if after is not None and decoder.engine.appends else None)

    def _grow(self, decoder: BatchDecoder, contexts: list[list[int]], sampling: Sampling,
              hits: dict[int, BatchSequence]) -> None:
        """Room for what comes in the slots of the last call, with the weights as they are now."""
        read = max((len(context) for i, context in enumerate(contexts) if i not in hits), default=0)
        new = max(len(contexts[i]) - len(last.prompt.tokens) for i, last in hits.items())
        new += sampling.max_new_tokens + 1
        decoder.grow(*(min(self.positions, round_up(tokens)) for tokens in (read, new)))
        decoder.engine.refresh()

    def stream(self, prompt: Prompt, sampling: Sampling, seed: int) -> Generator[str, None, bool]:
        """The reply to one prompt, piece by piece, as it is sampled; returns whether it ended by a stop, not
        at the length."""
        tokens: list[int] = []
        shown = text = ""
        rendered = self._render(prompt, sampling)
        for token in self._decoder_for([rendered], 1, sampling).stream(rendered, seed_of(seed, prompt.id, 0)):
            tokens.append(token)
            text = self.chat.decode(tokens)
            if not text.endswith("\ufffd"):  # a character cut between two tokens waits for the rest
                yield text[len(shown):]
                shown = text
        if text != shown:  # the reply ended inside a character
            yield text[len(shown):]
        return tokens[-1] in self.chat.stop or any(stop in text for stop in sampling.stop)

    def _decoder_for(self, rendered: list[list[int]], rows: int, sampling: Sampling,
                     read: int = 0) -> BatchDecoder:
        """That of the last call if this one's rows fit, with the weights as they are now; else a new one.
        read: room for the tokens of a prompt, where that is more than these need."""
        need = {"rows": min(rows, self.max_concurrent), "read": max(read, *map(len, rendered)),
                "prompts": min(len(rendered), self.max_concurrent)}
        if self._decoder is None or not self._decoder.fits(sampling, **need):
            self._decoder = None  # the old one's memory is free before the new one's is taken
            self._decoder = BatchDecoder(self.model, self.chat, sampling, **need)
        else:
            self._decoder.engine.refresh(often=True)
        return self._decoder


def round_up(tokens: int) -> int:
    return -(-tokens // GROWTH) * GROWTH
