"""The sampler in this process, on the weights that train: one prefill per prompt, rows at their own places, none waiting.

A prompt is read once and its cache shared by the group. A finished row leaves and a waiting one takes its slot at once
(continuous batching). Random numbers are a function of (row seed, token number) alone. On a GPU a step of all rows is one
captured graph, and the host looks for finished rows now and then instead of at every token.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from postgrad.maths.noise import seed_of, uniform
from postgrad.records import Prompt, Rollout, pad_rows
from postgrad.sampler.base import Sampling

LOOK = 16  # on a GPU, steps between two looks for finished rows


class Written(NamedTuple):
    """One finished row: the number of its request, its tokens (the stop token included) with their log-probs, how it ended."""

    request: int
    tokens: list[int]
    logp: list[float]
    finished: bool


class LocalSampler:
    def __init__(self, model, chat, *, rows_at_once: int = 512):
        self.model, self.chat, self.rows_at_once = model, chat, rows_at_once
        self.policy_step = 0
        self._desk: Desk | None = None

    def sample(self, prompts: Sequence[Prompt], group_size: int, settings: Sampling, seed: int) -> list[list[Rollout]]:
        if not prompts:
            return []
        rendered = [self._render(p, settings) for p in prompts]
        asked: Counter[str] = Counter()
        seeds = []
        for prompt in prompts:  # a prompt that is asked twice gets further samples, not the same ones again
            seeds += [seed_of(seed, prompt.id, asked[prompt.id] + i) for i in range(group_size)]
            asked[prompt.id] += group_size
        groups: list[list[Rollout | None]] = [[None] * group_size for _ in prompts]
        for row in self._desk_for(rendered, len(seeds), settings).write(rendered, group_size, seeds):
            prompt, g = divmod(row.request, group_size)
            groups[prompt][g] = Rollout(prompt=prompts[prompt], prompt_tokens=tuple(rendered[prompt]), tokens=tuple(row.tokens),
                                        logp=tuple(row.logp), text=self.chat.decode(row.tokens), finished=row.finished,
                                        seed=seeds[row.request], policy_step=self.policy_step)
        return groups

    def check(self, prompts: Sequence[Prompt], settings: Sampling) -> None:
        """Every prompt fits the model with room for its reply: asked once, before a run that would meet it late."""
        for prompt in prompts:
            self._render(prompt, settings)

    def stream(self, prompt: Prompt, settings: Sampling, seed: int) -> Iterator[str]:
        """The reply to one prompt, piece by piece, as it is sampled."""
        tokens: list[int] = []
        shown = text = ""
        rendered = self._render(prompt, settings)
        for token in self._desk_for([rendered], 1, settings).stream(rendered, seed_of(seed, prompt.id, 0)):
            tokens.append(token)
            text = self.chat.decode(tokens)
            if not text.endswith("\ufffd"):  # a character cut between two tokens waits for the rest
                yield text[len(shown):]
                shown = text
        if text != shown:  # the reply ended inside a character
            yield text[len(shown):]

    def _render(self, prompt: Prompt, settings: Sampling) -> list[int]:
        tokens, room = self.chat.render(prompt.messages), self.model.config.max_position_embeddings
        if len(tokens) + settings.max_new_tokens > room:
            raise ValueError(f"prompt {prompt.id} has {len(tokens)} tokens; with max_new_tokens {settings.max_new_tokens} "
                             f"that is over the model's {room} positions: shorten the prompt or set fewer new tokens.")
        return tokens

    def _desk_for(self, rendered: list[list[int]], rows: int, settings: Sampling) -> Desk:
        """The desk of the last call if this one's rows fit on it, with the weights as they are now; else a new one."""
        need = {"rows": min(rows, self.rows_at_once), "read": max(map(len, rendered)), "prompts": min(len(rendered), self.rows_at_once)}
        if self._desk is None or not self._desk.fits(settings, **need):
            self._desk = None  # the old one's memory is free before the new one's is taken
            self._desk = Desk(self.model, self.chat, settings, **need)
        else:
            self._desk.engine.refresh()
        return self._desk


class Desk:
    """Rows being written, side by side. Column i of the state tensors is row i of the step; `slot` says where its cache is."""

    def __init__(self, model, chat, settings: Sampling, *, rows: int, read: int, prompts: int):
        self.chat, self.settings, self.rows = chat, settings, rows
        self.engine = model.engine(rows=rows, prompts=prompts, read=read, new=settings.max_new_tokens + 1)
        device = self.device = self.engine.device
        whole = dict(dtype=torch.int64, device=device)
        self.ends = torch.tensor(chat.stop, device=device)
        self.at, self.count = torch.zeros(rows, **whole), torch.zeros(rows, **whole)
        self.slot, self.prompt = torch.full((rows,), rows, **whole), torch.full((rows,), prompts, **whole)
        self.prompt_length, self.done = torch.ones(rows, **whole), torch.ones(rows, dtype=torch.bool, device=device)
        self.hidden = torch.zeros(rows, model.config.hidden_size, dtype=self.engine.dtype, device=device)
        self.u = torch.zeros(rows + 1, settings.max_new_tokens + 1, dtype=torch.float64, device=device)
        self.out = torch.zeros(rows + 1, settings.max_new_tokens + 1, **whole)
        self.logp = torch.zeros(rows + 1, settings.max_new_tokens + 1, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def fits(self, settings: Sampling, *, rows: int, read: int, prompts: int) -> bool:
        """Whether as many rows and prompts, as long as these, have a place; more places than twice the need are a waste."""
        mine = self.engine
        return settings == self.settings and rows <= self.rows <= 2 * rows and read <= mine.read and prompts <= mine.prompts

    @torch.no_grad()
    def write(self, prompts: list[list[int]], group_size: int, seeds: list[int]) -> Iterator[Written]:
        """Every row of every prompt, in the order in which they end."""
        waiting, free = deque(range(len(seeds))), deque(range(self.rows))
        places, left = deque(range(self.engine.prompts)), {}  # free places for prompts; place and unfinished rows of the others
        here: list[tuple[int, int]] = []  # (request, slot) of the rows being written
        while waiting or here:
            fresh = self.admit(waiting, free, places, left, prompts, group_size, seeds)
            here += fresh
            for _ in range(LOOK if self.device.type == "cuda" else 1):
                self.step(len(here))
            done, count = self.done[: len(here)].tolist(), self.count[: len(here)].tolist()
            ended = self.ended(here, done, count)
            if not ended:
                continue
            yield from ended.values()
            for i in ended:
                request, slot = here[i]
                free.append(slot)
                place, rest = left[request // group_size]
                left[request // group_size] = place, rest - 1
                if rest == 1:
                    places.append(place)
            self.keep([i for i in range(len(here)) if i not in ended], len(here))
            here = [row for i, row in enumerate(here) if i not in ended]

    def admit(self, waiting: deque, free: deque, places: deque, left: dict, prompts: list, group_size: int,
              seeds: list[int]) -> list[tuple[int, int]]:
        """Waiting rows take the free slots; prompts that are new are read."""
        taken, new, at = [], [], self.rows - len(free)
        while waiting and free:
            prompt = waiting[0] // group_size
            if prompt not in left:
                if not places:
                    break
                left[prompt] = places.popleft(), group_size
                new.append(prompt)
            taken.append((waiting.popleft(), free.popleft()))
        if not taken:
            return taken
        if new:
            self.first = self.read([prompts[p] for p in new], [left[p][0] for p in new])
        rows = slice(at, at + len(taken))
        request, slot = (torch.tensor(x) for x in zip(*taken, strict=True))
        owner = torch.tensor([left[r // group_size][0] for r, _ in taken])
        length = torch.tensor([len(prompts[r // group_size]) for r, _ in taken])
        for column, value in ((self.slot, slot), (self.prompt, owner), (self.prompt_length, length)):
            column[rows] = value.to(self.device)
        self.at[rows], self.count[rows], self.done[rows] = 0, 0, False
        self.hidden[rows] = self.first[owner.to(self.device)]
        seed = torch.tensor([seeds[r] for r in request.tolist()])[:, None]
        self.u[slot.to(self.device)] = uniform(seed, torch.arange(self.u.shape[1])[None]).to(self.device)
        return taken

    def read(self, prompts: list[list[int]], places: list[int]) -> Tensor:  # [prompts + 1, D]
        """The state after each prompt, by its place."""
        if not hasattr(self, "first"):
            self.first = self.hidden.new_zeros(self.engine.prompts + 1, self.hidden.shape[1])
        lengths = torch.tensor([len(p) for p in prompts])
        self.first[torch.tensor(places, device=self.device)] = self.engine.prefill(pad_rows(prompts), lengths, places)
        return self.first

    def step(self, n: int) -> None:
        """One more token for the first n rows. On a GPU as a graph, for the next larger size that has one."""
        if self.device.type != "cuda":
            return self.advance(n)
        size = min(self.rows, bucket(n))
        if size in self.graphs:
            return self.graphs[size].replay()
        self.advance(size)  # the first one as it is, so that all kernels are compiled and loaded
        self.graphs[size] = torch.cuda.CUDAGraph()
        pool = next((g.pool() for s, g in self.graphs.items() if s != size), None)
        with torch.cuda.graph(self.graphs[size], pool=pool):
            self.advance(size)

    def advance(self, n: int) -> None:
        at, slot, done = self.at[:n], self.slot[:n], self.done[:n]
        token, logp = choose(self.engine.logits(self.hidden[:n]), self.u[slot, at], self.settings, self.engine.ops)
        self.out[slot, at], self.logp[slot, at] = token, logp
        self.count[:n] += ~done
        done |= (token[:, None] == self.ends).any(1) | (at + 1 >= self.settings.max_new_tokens)
        self.hidden[:n] = self.engine.step(token, at, slot, self.prompt[:n], self.prompt_length[:n])
        at += (at < self.settings.max_new_tokens).to(at.dtype)  # a row that ended waits in the spare column until it is seen

    def ended(self, here: list[tuple[int, int]], done: list[bool], count: list[int]) -> dict[int, Written]:
        """The rows that have ended, by column: at a stop token, at the length, or where a stop string is complete."""
        look = [i for i in range(len(here)) if done[i] or self.settings.stop]
        if not look:
            return {}
        slots = torch.tensor([here[i][1] for i in look], device=self.device)
        rows = zip(look, self.out[slots].tolist(), self.logp[slots].tolist(), strict=True)
        found = {}
        for i, tokens, logp in rows:
            tokens = tokens[: count[i]]
            cut = self.stops_at(tokens)
            if done[i] or cut is not None:
                tokens = tokens[:cut]
                stopped = cut is not None or tokens[-1] in self.chat.stop
                found[i] = Written(here[i][0], tokens, logp[: len(tokens)], stopped)
        return found

    def stops_at(self, tokens: list[int]) -> int | None:
        """How many tokens it takes to complete a stop string."""
        if not any(stop in self.chat.decode(tokens) for stop in self.settings.stop):
            return None
        return next(n for n in range(1, len(tokens) + 1) if any(s in self.chat.decode(tokens[:n]) for s in self.settings.stop))

    def keep(self, rows: list[int], before: int) -> None:
        """These rows move to the front; the columns behind them belong to no one."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.device)
        for column in (self.at, self.count, self.slot, self.prompt, self.prompt_length, self.done, self.hidden):
            column[: len(rows)] = column[index]
        rest = slice(len(rows), before)
        self.at[rest], self.slot[rest], self.prompt[rest], self.prompt_length[rest], self.done[rest] = 0, self.rows, self.engine.prompts, 1, True

    def stream(self, prompt: list[int], seed: int) -> Iterator[int]:
        """The tokens of one row as they are chosen."""
        ((_, slot),) = self.admit(deque([0]), deque(range(self.rows)), deque(range(self.engine.prompts)), {}, [prompt], 1, [seed])
        tokens: list[int] = []
        while not bool(self.done[0]) and self.stops_at(tokens) is None:
            self.step(1)
            tokens.append(int(self.out[slot, len(tokens)]))
            yield tokens[-1]
        self.keep([], 1)


def bucket(n: int) -> int:
    """The size of the graph that n rows run in: 8, 16, 32, 64, 128, then by 128s."""
    return max(8, 1 << (n - 1).bit_length()) if n <= 128 else -(-n // 128) * 128


def choose(logits: Tensor, u: Tensor, settings: Sampling, ops) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """A token by the inverse of the cumulative distribution at u, and its log-prob under that same distribution."""
    if settings.temperature == 0:
        return logits.argmax(-1), torch.zeros_like(u, dtype=torch.float32)
    if settings.whole:
        return ops.pick(logits, u, settings.temperature)
    return ops.pick(keep_likely(logits / settings.temperature, settings), u, 1.0)


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
