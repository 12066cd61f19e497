"""Rows that come and go: requests are added at any time, each row with settings of its own.

    slots = Slots(model, chat, rows=8, read=512, new=256)
    row, = slots.add(chat.render(messages), [Request(seed=3, ends=chat.stop)])
    while slots.busy:
        for row, chosen in slots.step():
            print(chosen.token, row.end)

A row takes a free slot as soon as there is one and leaves it when it ends or is dropped; one that is to be
kept stays in it, and what it is shown next is added to what it has, whose keys and values are not computed
again. What a row writes depends on the model, its prompt and its seed, not on its neighbours. Rows that are
all chosen for alike are written together (together.py). Left out on purpose: threads (all calls come from
one).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from postgrad.maths.noise import uniform
from postgrad.maths.packing import pack, to_device
from postgrad.records import pad_rows
from postgrad.sampling.base import Sampling
from postgrad.sampling.choose import choose, keep_likely
from postgrad.sampling.request import Chosen, Place, Request, Row
from postgrad.sampling.text import Text
from postgrad.sampling.together import Together
from postgrad.sampling.waiting import LEAST, READ, filled_up

AHEAD = 16    # prompts that are read before a slot is free for them: few large readings take less time
SCORED = 512  # tokens whose logits stand in memory at once


class Slots:
    """`rows` slots of `new` tokens each, with a prompt of up to `read` tokens before each.

    positions: the most of both together, where that is less; the model's own are never passed.
    """

    def __init__(self, model, chat, *, rows: int, read: int, new: int, positions: int | None = None):
        self.model, self.chat, self.rows, self.version = model, chat, rows, 0
        self.positions = min(positions or read + new, model.config.max_position_embeddings)
        self.read, self.new, self.size = read, new, max(rows, LEAST)
        self.prompts = rows + min(rows, AHEAD)
        self.engine = model.engine(rows=self.size, prompts=self.prompts, read=max(read, LEAST), new=new,
                                   positions=max(self.positions, LEAST))
        size, self.device = self.size, self.engine.device
        self.hidden = torch.zeros(size + 1, model.config.hidden_size, dtype=self.engine.dtype,
                                  device=self.device)
        self.together = Together(self.engine, self.hidden, size, self.prompts)
        self.free, self.spare = deque(range(rows)), deque(range(self.prompts))
        self.waiting: deque[Row] = deque()
        self.active: list[Row] = []  # another list whenever they are other rows
        self.computed = 0  # tokens that went through the layers, prompts included

    @property
    def busy(self) -> bool:
        return bool(self.active or self.waiting)

    def check(self, prompt: int, new: int) -> None:
        """A prompt of so many tokens with so many new ones has a place."""
        if not 0 < prompt <= self.read:
            raise ValueError(f"the prompt has {prompt} tokens, and 1 to {self.read} have a place.")
        if new > self.new or prompt + new > self.positions:
            raise ValueError(f"{new} tokens after a prompt of {prompt} are asked for, and "
                             f"{min(self.new, self.positions - prompt)} have a place.")

    def add(self, prompt: Sequence[int], requests: Sequence[Request]) -> list[Row]:
        """Rows that wait for a slot each; their prompt is read once."""
        for request in requests:
            self.check(len(prompt), request.settings.max_new_tokens)
        place = Place(list(prompt), len(requests))
        rows = [Row(request, place, text=self.text_of(request)) for request in requests]
        self.waiting += rows
        return rows

    def text_of(self, request: Request) -> Text | None:
        wanted = request.pieces or request.settings.stop
        return Text(self.chat.decode, request.settings.stop) if wanted else None

    def extend(self, row: Row, tokens: Iterable[int], request: Request | None = None) -> None:
        """A kept row is shown further tokens and goes on; with new settings where some are given."""
        assert row.end and row.slot is not None, "a row that has ended and was kept"
        tokens, request = list(tokens), request or row.request
        self.check(len(row.place.tokens), len(row.tokens) + len(tokens) + request.settings.max_new_tokens)
        row.request, row.end, row.turn = request, None, len(row.sampled)
        row.given, row.text = deque(tokens), self.text_of(request)
        self.active = [*self.active, row]

    def drop(self, row: Row) -> None:
        """A row is no longer wanted: it leaves the queue or its slot."""
        row.end = row.end or "dropped"
        if row in self.waiting:
            self.waiting.remove(row)
            self.leave(row)
        elif row.slot is not None:
            self.active = [other for other in self.active if other is not row]
            self.leave(row)

    def leave(self, row: Row) -> None:
        if row.slot is not None:
            self.free.append(row.slot)
            row.slot = None
        row.place.users -= 1
        if not row.place.users:
            self.forget(row.place)

    def forget(self, place: Place) -> None:
        """What was read of a prompt is no longer needed."""
        if place.number is not None:
            self.spare.append(place.number)
        place.number = place.state = None

    def refresh(self, version: int) -> None:
        """The weights as they are now: the rows under way go on with them, on what they have."""
        begun = {row.place for row in self.active}
        for row in self.waiting:
            if row.place not in begun:
                self.forget(row.place)
        self.engine.refresh()
        self.version = version

    @torch.no_grad()
    def step(self) -> list[tuple[Row, Chosen]]:
        """One more token for every row; -> those that were chosen, not those that were given."""
        self.admit()
        rows = self.active
        said = self.alike() if rows and self.together.takes(rows) else self.each()
        ended = [row for row in rows if row.end]
        if ended:
            self.active = [row for row in rows if row.end is None]
        for row in ended:
            if not row.request.keep:
                self.leave(row)
        return said

    def alike(self) -> list[tuple[Row, Chosen]]:
        """A step of rows that are all chosen for in the same way."""
        rows, version = self.active, self.version
        tokens, logps = self.together.step()
        said = [(row, row.take(Chosen(token, logp), version))
                for row, token, logp in zip(rows, tokens, logps, strict=True)]
        self.computed += len(rows) - sum(1 for row in rows if row.end and not row.request.keep)
        return said

    def each(self) -> list[tuple[Row, Chosen]]:
        """A step of rows each of which has its own settings, or is shown tokens that were given."""
        asked = [row for row in self.active if not row.given]
        said = [(row, row.take(chosen, self.version))
                for row, chosen in zip(asked, self.choose(asked), strict=True)]
        for row in self.active:
            if row.given:
                row.tokens.append(row.given.popleft())
        self.together.rows = ()
        self.advance([row for row in self.active if row.end is None or row.request.keep])
        return said

    def admit(self) -> None:
        """Waiting rows take the free slots."""
        taken: list[Row] = []
        while self.waiting and self.free:
            row = self.waiting.popleft()
            row.slot = self.free.popleft()
            if row.place.state is None:
                self.prefill(self.places_from(row.place))
            taken.append(row)
        if taken:
            slots = self.whole([row.slot for row in taken])
            self.engine.seat(slots, self.whole([row.place.number for row in taken]))
            self.hidden[slots] = torch.stack([row.first for row in taken])
            self.active = [*self.active, *taken]

    def places_from(self, first: Place) -> list[Place]:
        """This prompt and those that wait behind it, as many as there are places for and a pass holds."""
        found, tokens = {first: None}, len(first.tokens)
        for row in self.waiting:
            if len(found) == len(self.spare) or tokens >= READ:
                break
            if row.place.state is None and row.place not in found:
                found[row.place] = None
                tokens += len(row.place.tokens)
        return list(found)

    def prefill(self, places: list[Place]) -> None:
        taken = [self.spare.popleft() for _ in places]
        for place, number in zip(places, taken, strict=True):
            place.number = number
        prompts, numbers = filled_up([place.tokens for place in places], taken, self.prompts)
        states = self.engine.prefill(pad_rows(prompts), torch.tensor([len(p) for p in prompts]), numbers)
        for place, state in zip(places, states, strict=False):
            place.state = state
        self.computed += sum(len(place.tokens) for place in places)

    def choose(self, rows: list[Row]) -> list[Chosen]:
        """The next token of each row, by its own settings."""
        if not rows:
            return []
        slots = self.whole(self.filled([row.slot for row in rows], self.size))
        logits = self.engine.logits(self.hidden[slots])
        seeds, numbers = zip(*((row.request.seed, len(row.tokens)) for row in rows), strict=True)
        u = uniform(self.whole(seeds), self.whole(numbers))
        token = torch.empty(len(rows), dtype=torch.int64, device=self.device)
        logp = torch.empty(len(rows), device=self.device)
        for settings, mine in alike(rows).items():
            index = self.whole(mine) if len(mine) < len(rows) else slice(len(rows))
            token[index], logp[index] = choose(logits[index], u[index], settings, self.engine.ops)
        return [told(row.request, logits[i], t, p) if row.request.own or row.request.top else Chosen(t, p)
                for i, (row, t, p) in enumerate(zip(rows, token.tolist(), logp.tolist(), strict=True))]

    def advance(self, rows: list[Row]) -> None:
        """The last token of each row through all layers, to the state from which its next one is chosen."""
        if not rows:
            return
        places = [(row.tokens[-1], len(row.tokens) - 1, row.slot, row.place.number, len(row.place.tokens))
                  for row in rows]
        columns = self.whole(self.filled(places, (0, 0, self.size, self.prompts, 1))).T
        hidden = self.engine.step(*(column.contiguous() for column in columns),
                                  longest=max(at + read + 1 for _, at, _, _, read in places))
        self.hidden[columns[2]] = hidden
        self.computed += len(rows)

    @torch.no_grad()
    def score(self, tokens: Sequence[int], top: int = 0) -> list[Chosen]:
        """The model's own log-prob of each of these tokens but the first, given those before it."""
        self.check(len(tokens), 0)
        row = torch.tensor([[*tokens, *[0] * (LEAST - len(tokens))]])
        packed = pack(torch.tensor([row.shape[1]]), row).to(self.device)
        states, request = self.model.states(to_device(row, self.device), packed), Request(own=True, top=top)
        scored: list[Chosen] = []
        for start in range(0, len(tokens) - 1, SCORED):
            logits = self.engine.logits(states[start: start + SCORED])
            scored += [told(request, x, token, 0.0)
                       for x, token in zip(logits, tokens[start + 1:], strict=False)]
        self.computed += len(tokens)
        return scored

    def filled(self, rows: list, nobody: object) -> list:
        return rows if self.engine.independent else rows + [nobody] * (LEAST - len(rows))

    def whole(self, numbers: Sequence) -> Tensor:
        return to_device(torch.tensor(numbers, dtype=torch.int64), self.device)


def alike(rows: list[Row]) -> dict[Sampling, list[int]]:
    """The rows by how their tokens are chosen."""
    found: dict[Sampling, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.request.how, []).append(i)
    return found


def told(request: Request, logits: Tensor, token: int, logp: float) -> Chosen:  # [V]
    """What is told of a choice where the model's own log-prob is wanted, or those of other tokens: logp is
    that of the distribution that was sampled from."""
    settings = request.settings
    if not request.own and settings.temperature == 0:
        return Chosen(token, logp, ((token, logp),))
    if not request.own:
        logits = keep_likely(logits[None] / settings.temperature, settings)[0]
    all_logp = logits.log_softmax(-1)
    best = all_logp.topk(min(request.top, len(all_logp))) if request.top else None
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else ()
    return Chosen(token, float(all_logp[token]) if request.own else logp, top)
