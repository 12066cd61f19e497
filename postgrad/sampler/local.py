"""The sampler in this process, on the decoder that trains: one prefill per prompt, rows at their own positions.

A prompt is read once and its cache shared by the group. Rows of different length stand in one batch, each writing at its own
slot. A finished row leaves the batch. Random numbers are a function of (row seed, token number) alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from postgrad.maths.noise import seed_of, uniform
from postgrad.records import Prompt, Rollout, pad_rows
from postgrad.sampler.base import Sampling

LEAVE = 0.75  # finished rows leave the batch when no more than this share of it is still being written


class LocalSampler:
    def __init__(self, model, chat, *, rows_at_once: int = 512):
        self.model, self.chat, self.rows_at_once = model, chat, rows_at_once
        self.policy_step = 0

    def sample(self, prompts: Sequence[Prompt], group_size: int, settings: Sampling, seed: int) -> list[list[Rollout]]:
        rendered = [self._render(p, settings) for p in prompts]
        asked: Counter[str] = Counter()
        seeds = []
        for prompt in prompts:  # a prompt that is asked twice gets further samples, not the same ones again
            seeds.append([seed_of(seed, prompt.id, asked[prompt.id] + i) for i in range(group_size)])
            asked[prompt.id] += group_size
        per_pass = max(1, self.rows_at_once // group_size)
        groups: list[list[Rollout]] = []
        for at in range(0, len(prompts), per_pass):
            block = slice(at, at + per_pass)
            groups += self._block(prompts[block], rendered[block], seeds[block], settings)
        return groups

    def check(self, prompts: Sequence[Prompt], settings: Sampling) -> None:
        """Every prompt fits the model with room for its reply: asked once, before a run that would meet it late."""
        for prompt in prompts:
            self._render(prompt, settings)

    def _render(self, prompt: Prompt, settings: Sampling) -> list[int]:
        tokens, room = self.chat.render(prompt.messages), self.model.config.max_position_embeddings
        if len(tokens) + settings.max_new_tokens > room:
            raise ValueError(f"prompt {prompt.id} has {len(tokens)} tokens; with max_new_tokens {settings.max_new_tokens} "
                             f"that is over the model's {room} positions: shorten the prompt or set fewer new tokens.")
        return tokens

    def _block(self, prompts, rendered, seeds, settings) -> list[list[Rollout]]:
        G = len(seeds[0])
        rows = generate(self.model, rendered, [s for group in seeds for s in group], G, self.chat.stop, settings)
        groups = []
        for i, prompt in enumerate(prompts):
            group = []
            for g in range(G):
                tokens, logp = rows[i * G + g]
                finished = tokens[-1] in self.chat.stop
                group.append(Rollout(prompt=prompt, prompt_tokens=tuple(rendered[i]), tokens=tuple(tokens), logp=tuple(logp),
                                     text=self.chat.decode(tokens), finished=finished, seed=seeds[i][g],
                                     policy_step=self.policy_step))
            groups.append(group)
        return groups

    def stream(self, prompt: Prompt, settings: Sampling, seed: int) -> Iterator[str]:
        """The reply to one prompt, piece by piece, as it is sampled."""
        tokens: list[int] = []
        shown = text = ""
        rendered = [self._render(prompt, settings)]
        for chosen, _, _ in steps(self.model, rendered, [seed_of(seed, prompt.id, 0)], 1, self.chat.stop, settings):
            tokens.append(int(chosen[0]))
            text = self.chat.decode(tokens)
            if not text.endswith("\ufffd"):  # a character cut between two tokens waits for the rest
                yield text[len(shown):]
                shown = text
        if text != shown:  # the reply ended inside a character
            yield text[len(shown):]


def generate(model, prompts: list[list[int]], seeds: list[int], group_size: int, stop,
             settings) -> list[tuple[list[int], list[float]]]:
    """Tokens and log-probs of every row, the stop token included."""
    out: list[tuple[list[int], list[float]]] = [([], []) for _ in seeds]
    for chosen, logp, rows in steps(model, prompts, seeds, group_size, stop, settings):
        for row, token, value in zip(rows.tolist(), chosen.tolist(), logp.tolist(), strict=True):
            out[row][0].append(token)
            out[row][1].append(value)
    return out


@torch.no_grad()
def steps(model, prompts, seeds, group_size, stop, settings: Sampling) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """One decoding step at a time: the tokens chosen, their log-probs and their row numbers, for rows still being written."""
    device = model.head.device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    tokens = pad_rows(prompts).to(device)
    longest = tokens.shape[1]
    cache = model.new_cache(len(prompts), longest)
    hidden = model.hidden(tokens, cache=cache)[torch.arange(len(prompts), device=device), lengths - 1]
    shared = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    cache = cache.rows(shared).widen(longest + settings.max_new_tokens)
    hidden, position, seed = hidden[shared], lengths[shared], torch.tensor(seeds, device=device)
    row, live = torch.arange(len(seeds), device=device), torch.ones_like(shared, dtype=torch.bool)
    ends = torch.tensor(stop, device=device)
    for t in range(settings.max_new_tokens):
        chosen, logp = choose(hidden @ model.head.T, uniform(seed, torch.full_like(seed, t)), settings)
        yield chosen[live], logp[live], row[live]
        live = live & ~torch.isin(chosen, ends)
        going = int(live.sum())
        if going == 0 or t + 1 == settings.max_new_tokens:
            return
        if going <= LEAVE * len(live):  # moving the cache costs about a step, so rows leave in bunches
            cache, chosen, position = cache.rows(live), chosen[live], position[live]
            seed, row, live = seed[live], row[live], live[live]
        hidden = model.hidden(chosen[:, None], positions=position[:, None], cache=cache, span=longest + t + 1)[:, 0]
        position = position + 1


def choose(logits: Tensor, u: Tensor, settings: Sampling) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """A token by the inverse of the cumulative distribution at u, and its log-prob under that same distribution."""
    logits = logits.float()
    if settings.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros_like(u, dtype=torch.float32)
    logp = keep_likely(logits / settings.temperature, settings).log_softmax(-1)
    cdf = logp.double().exp().cumsum(-1)
    token = torch.searchsorted(cdf, (u.double() * cdf[:, -1])[:, None], right=True).squeeze(1).clamp_max(logits.shape[1] - 1)
    return token, logp.gather(1, token[:, None]).squeeze(1)


def keep_likely(logits: Tensor, settings: Sampling) -> Tensor:  # [R, V] -> [R, V]
    """top-k, then top-p, then min-p; what they drop gets probability zero."""
    if settings.top_k and settings.top_k < logits.shape[1]:
        edge = logits.topk(settings.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < edge, -torch.inf)
    if settings.top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        drop = p.cumsum(-1) - p >= settings.top_p  # the first token past the edge stays
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), -torch.inf)
    if settings.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < settings.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits
