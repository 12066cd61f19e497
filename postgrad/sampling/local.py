"""The sampler in this process, on the weights in training: continuous batching with one prefill per prompt,
shared by its group.

Over several turns a sequence keeps its slot while no other needs it, and the next turn computes only added
tokens: in the same slot, or on a GPU as a prompt that begins with what is cached. Random numbers are a
function of (row seed, token number). request_batch.py has the steps, scheduler.py the slots.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from postgrad.maths.noise import seed_of
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Sampling
from postgrad.sampling.request_batch import RequestBatch
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.sequences import FinishedSequence, RequestSequence
from postgrad.sampling.token_sampler import TokenSampler

TURNS = 2    # contexts' tokens that a new batch has room for, times those of the first ones
GROWTH = 64  # tokens by which room for contexts and replies grows, turn by turn


class LocalSampler(TokenSampler):
    """max_concurrent: sequences that are decoded at once. cache_misses: contexts that should continue a
    sequence and were prefilled in full, since its slot was taken or its prefix differs."""

    def __init__(self, model: DecodableModel, chat: Chat, *, max_concurrent: int = 1024):
        super().__init__(chat)
        self.model, self.max_concurrent = model, max_concurrent
        self._batch: RequestBatch | None = None
        self._sampling: Sampling | None = None  # of its collections
        self.cache_misses = self._computed = 0

    def release(self) -> None:
        """Frees the KV cache, the copy of the weights and the captured graphs until the next call."""
        self._computed, self._batch = self.computed_tokens, None

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the layers, prompts included."""
        return self._computed + (self._batch.computed_tokens if self._batch else 0)

    @property
    def positions(self) -> int:
        return int(self.model.config.max_position_embeddings)

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        batch = before = self._batch
        hits = dict[int, RequestSequence]()
        if after and batch is not None and sampling == self._sampling:
            hits = batch.cache_hits(contexts, after)
        if batch is not None and hits and batch.engine.appends:
            self._grow(batch, contexts, sampling, hits)
        else:
            batch = self._batch_for(contexts, len(seeds), sampling, 
                                    episodes=after is not None and self.turns_in_places)
            hits = hits if batch is before else {}
        self.cache_misses += sum(row is not None for row in after or ()) - len(hits)
        return batch.decode(contexts, n, seeds, sampling,
                            hits if after is not None and batch.engine.extends else None)

    @property
    def turns_in_places(self) -> bool:
        """Whether each turn is a prompt of its own, prefilled after what is cached of it: on a GPU, by the
        engine of a decoder."""
        return self.model.head.device.type == "cuda" and hasattr(self.model, "merged")

    def _grow(self, batch: RequestBatch, contexts: list[list[int]], sampling: Sampling,
              hits: dict[int, RequestSequence]) -> None:
        """Room for the next turn in the slots of the last call, with the current weights."""
        read = max((len(context) for i, context in enumerate(contexts) if i not in hits), default=0)
        new = max(len(contexts[i]) - len(last.prompt.tokens) for i, last in hits.items())
        new += sampling.max_new_tokens + 1
        batch.grow(*(min(self.positions, round_up(tokens)) for tokens in (read, new)))
        batch.engine.refresh()

    def stream(self, prompt: Prompt, sampling: Sampling, seed: int) -> Generator[str, None, bool]:
        """The reply to one prompt, in pieces, as it is sampled; returns whether a stop ended it."""
        tokens: list[int] = []
        shown = text = ""
        rendered = self._render(prompt, sampling)
        batch = self._batch_for([rendered], 1, sampling)
        for token in batch.stream(rendered, seed_of(seed, prompt.id, 0), sampling):
            tokens.append(token)
            text = self.chat.decode(tokens)
            if not text.endswith("\ufffd"):  # a character cut between two tokens waits for the rest
                yield text[len(shown):]
                shown = text
        if text != shown:  # the reply ended inside a character
            yield text[len(shown):]
        return tokens[-1] in self.chat.stop or any(stop in text for stop in sampling.stop)

    def _batch_for(self, rendered: list[list[int]], rows: int, sampling: Sampling,
                   episodes: bool = False) -> RequestBatch:
        """The last call's batch with the current weights where this call's rows fit; else a new one.
        episodes: contexts come again, longer, one for each row: a new one has room for some turns."""
        rows = min(rows, self.max_concurrent)
        need = {"rows": rows, "prompts": rows if episodes else min(len(rendered), self.max_concurrent),
                "max_prompt_tokens": max(map(len, rendered))}
        before, self._sampling = self._sampling, sampling
        if (self._batch is None or before is None or sampling.max_new_tokens != before.max_new_tokens
                or not self._batch.fits(**need)):
            self.release()  # the old one's memory is free before the new one's is taken
            new = sampling.max_new_tokens + 1  # one where ended rows wait
            if episodes:
                need["max_prompt_tokens"] = min(self.positions, round_up(TURNS * need["max_prompt_tokens"]))
            self._batch = RequestBatch(self.model, self.chat, max_new_tokens=new, **need)
        else:
            self._batch.engine.refresh(often=True)
        return self._batch


def round_up(tokens: int) -> int:
    return -(-tokens // GROWTH) * GROWTH
