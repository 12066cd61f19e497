"""The rows being written, side by side: a step gives each of them one more token.

On a GPU a step of all rows is one captured graph, and the host looks for finished rows now and then instead
of at every token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from postgrad.maths.noise import uniform
from postgrad.models.graph_capture import capturing
from postgrad.records import pad_rows
from postgrad.sampling.base import Sampling
from postgrad.sampling.choose import choose
from postgrad.sampling.look import Look
from postgrad.sampling.numbers import NOTHING, Numbers
from postgrad.sampling.waiting import LEAST, Kept, Queue, Row, Written, filled_up

LOOK = 4    # on a GPU, steps between two looks for finished rows
LAST = 16   # steps that are left to rows of which none has ended: they start together


class ActiveRows:
    """Rows being written, side by side.

    Column i of the state tensors is row i of the step; `slot` says where its cache is, and `shown` how many
    tokens stand in it before those that are written. kept: rows of the last call that may go on, by slot.
    """

    def __init__(self, model, chat, settings: Sampling, *, rows: int, read: int, prompts: int):
        self.chat, self.settings, self.rows = chat, settings, rows
        device = self.device = model.head.device
        size = self.size = max(rows, LEAST) if device.type == "cpu" else rows  # columns
        read, new = max(read, LEAST), settings.max_new_tokens + 1
        self.positions = model.config.max_position_embeddings
        self.engine = model.engine(rows=size, prompts=prompts, read=read, new=new,
                                   positions=self.together(read, new))
        self.kept: dict[int, Kept] = {}
        whole = dict(dtype=torch.int64, device=device)
        self.ends = torch.tensor(chat.stop, device=device)
        self.nobody = torch.tensor([[0], [0], [0], [size], [prompts], [1]], **whole)
        self.columns = self.nobody.repeat(1, size)
        self.at, self.count, self.shown, self.slot, self.prompt, self.prompt_length = self.columns
        self.done = torch.ones(size, dtype=torch.bool, device=device)
        self.hidden = torch.zeros(size, model.config.hidden_size, dtype=self.engine.dtype, device=device)
        self.u = torch.zeros(size + 1, settings.max_new_tokens + 1, dtype=torch.float64, device=device)
        self.out = torch.zeros(size + 1, settings.max_new_tokens + 1, **whole)
        self.logp = torch.zeros(size + 1, settings.max_new_tokens + 1, device=device)
        # the state after each prompt
        self.first = self.hidden.new_zeros(prompts + 1, model.config.hidden_size)
        self.chooser = self.engine.ops.fused_sampler(self)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by rows
        self.begun: dict[Row, tuple[int, bytes]] = {}  # of rows about to end: tokens that are spelled, bytes
        self.aside = torch.cuda.Stream() if device.type == "cuda" else None

    @property
    def pace(self) -> tuple[int, int]:
        """Steps between two looks for finished rows, and looks that further steps do not wait for."""
        return (LOOK, 1) if self.device.type == "cuda" else (1, 0)

    @property
    def least(self) -> int:
        """Rows that a step on a CPU is filled up to."""
        return LEAST if self.device.type == "cpu" and not self.engine.independent else 1

    def fits(self, settings: Sampling, *, rows: int, read: int, prompts: int) -> bool:
        """Whether as many rows and prompts, as long as these, have a place."""
        mine = self.engine
        return (settings == self.settings and rows <= self.rows and read <= mine.read
                and prompts <= mine.prompts)

    def together(self, read: int, new: int) -> int:
        """The most positions of a prompt and a row of these sizes."""
        return max(min(read + new - 1, self.positions), LEAST)

    def going_on(self, contexts: Sequence[list[int]], after: Sequence[Written | None]) -> dict[int, Kept]:
        """The contexts that go on from rows which are still in their slots, by number."""
        found = {}
        for i, (context, row) in enumerate(zip(contexts, after, strict=bool(after))):
            kept = row.kept if row else None
            if kept and self.kept.get(kept.slot) is kept and len(context) > (n := len(kept.tokens)):
                if context[:n] == kept.tokens:
                    found[i] = kept
        return found

    def grow(self, read: int, new: int) -> None:
        """Places and slots for longer prompts and rows; what is in them stays. The engine's weights have to
        be taken anew."""
        read, new = max(read, self.engine.read), max(new, self.engine.new)
        if (read, new) != (self.engine.read, self.engine.new):
            self.engine.grow(read=read, new=new, positions=self.together(read, new))

    @torch.no_grad()
    def write(self, prompts: list[list[int]], group_size: int, seeds: Sequence[int],
              going: Mapping[int, Kept] | None = None) -> Iterator[list[Written]]:
        """The rows of every prompt, those together that were seen to end together.

        going: the prompts, one for each row, that go on from rows in their slots; of them only what was added
        is computed. All rows are kept then; None: none is.

        On a CPU no row depends on how many stand beside it. Where the engine cannot say so of few rows, 16
        or more are filled up as they end (LEAST); a call of fewer is not, which would cost twice its time.

        On a GPU the next steps are under way while the host looks at what the last ones wrote,
        so it never waits for the host.
        """
        queue = Queue(self, prompts, group_size, seeds, going or {})
        self.kept, self.begun = queue.kept, {}
        here = queue.go_on()
        looks: deque[Look] = deque()
        steps, ahead = self.pace
        least = self.least if len(seeds) >= LEAST else 1
        now, quiet = 0, False  # steps so far; whether the last look saw no row end
        while here or queue.waiting:
            here += queue.admit(len(here), now)
            most = self.settings.max_new_tokens - (now - here[-1].since)  # the last is the youngest
            soon = quiet and 0 < most <= LAST and not queue.waiting
            times = most if soon else min(steps, most)
            self.step(max(len(here), least), times)
            now += max(times, steps)
            written = self.rows_of(self.slot[: len(here)]) if soon else ()
            looks.append(Look(here, self.done, self.count, written))
            if len(looks) <= ahead and most > steps:
                continue
            ended = self.ended(look := looks.popleft())
            quiet = ahead > 0 and not ended
            if soon and quiet:
                self.spell(look)
            if ended:
                if going is not None:
                    ended = {row: said._replace(kept=queue.stay(row, said.tokens))
                             for row, said in ended.items()}
                yield list(ended.values())
                if going is None:
                    queue.leave(ended)
                stay = [i for i, row in enumerate(here) if row not in ended]
                if stay:
                    self.keep(stay, len(here))
                here = [here[i] for i in stay]
                for look in looks:
                    look.rows = [None if row in ended else row for row in look.rows]

    def admit(self, rows: list[Row], at: int, seeds: Sequence[int], states: Tensor) -> None:  # [R, D]
        """New rows in the columns from `at`, where nobody stands behind them; states: from which the first
        token of each is chosen."""
        if not at:
            self.keep([], self.size)  # rows that have ended, and those of a call that was broken off
        columns = slice(at, at + len(rows))
        numbers = self.whole([(row.slot, row.place, row.read, row.shown) for row in rows]).T
        for i, column in enumerate((self.slot, self.prompt, self.prompt_length, self.shown)):
            column[columns] = numbers[i]
        self.at[columns], self.count[columns], self.done[columns] = 0, 0, False
        self.hidden[columns] = states
        seed = self.whole([seeds[row.request] for row in rows])
        number = torch.arange(self.u.shape[1], device=self.device)
        self.u[self.slot[columns]] = uniform(seed[:, None], number[None])
        self.engine.ops.nudge(self.hidden)  # the steps come next

    def read(self, prompts: list[list[int]], places: list[int]) -> None:
        read, into = filled_up(prompts, places, self.engine.prompts)
        lengths = torch.tensor([len(p) for p in read])
        self.engine.ops.nudge(self.hidden)
        states = self.engine.prefill(pad_rows(read), lengths, into)
        self.first[self.whole(places)] = states[: len(places)]

    def append(self, rows: list[Row], added: list[list[int]]) -> Tensor:  # [R, D]
        """What was added to each row, after what is in its slot; -> the state after the last of it.

        All of it are rows of a step, as many as a step has: each token sees those before it in its slot, as
        every layer takes the keys of all of them before any looks.
        """
        nobody = (0, 0, self.size, self.engine.prompts, 1)
        tokens = [(token, at, row.slot, row.place, row.read) for row, new in zip(rows, added, strict=True)
                  for at, token in enumerate(new, row.shown - len(new))]
        states = []
        for start in range(0, len(tokens), self.size):
            part = tokens[start: start + self.size]
            columns = self.whole([*part, *[nobody] * (self.least - len(part))]).T
            states.append(self.engine.step(*(column.contiguous() for column in columns))[: len(part)])
        last = torch.tensor([len(new) for new in added]).cumsum(0) - 1
        return torch.cat(states)[last]

    def whole(self, numbers: list) -> Tensor:
        """int64 on the device, without waiting for it."""
        made = torch.from_numpy(np.array(numbers, np.int64))
        return made.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else made

    def step(self, n: int, times: int = 1) -> None:
        """So many more tokens for the first n rows; on a GPU by the graph of a step of the next larger
        size."""
        size = min(self.rows, bucket(n))
        for _ in range(times):
            if self.device.type != "cuda" or not self.engine.graphs:
                self.advance(n)
            elif size in self.graphs:
                self.graphs[size].replay()
            else:
                self.advance(size)  # the first one as it is, so that all kernels are compiled and loaded
                self.capture(size)

    def capture(self, size: int) -> None:
        """The graph of a step of so many rows; where there can be none, the engine says so."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        pool = next((g.pool() for g in self.graphs.values()), None)
        try:
            with capturing(), torch.cuda.graph(graph, pool=pool):
                self.advance(size)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # that of a capture which failed is left current
            return self.engine.uncaptured(error)
        self.graphs[size] = graph

    def advance(self, n: int) -> None:
        slot = self.slot[:n]
        token, where = self.chooser(self, n) if self.chooser else self.choose(n)
        self.hidden[:n] = self.engine.step(token, where, slot, self.prompt[:n], self.prompt_length[:n])

    def choose(self, n: int) -> tuple[Tensor, Tensor]:
        """The next tokens of the first n rows, and where they stand in their slots."""
        at, slot, ops = self.at[:n], self.slot[:n], self.engine.ops
        token, logp = choose(self.engine.logits(self.hidden[:n]), self.u[slot, at], self.settings, ops)
        return token, ops.record_tokens(token, logp, at, slot, self.shown[:n], self.done[:n], self.count[:n],
                                        self.out, self.logp, self.ends, self.settings.max_new_tokens)

    def ended(self, look: Look) -> dict[Row, Written]:
        """Those that have ended: at a stop token, at the length, or where a stop string is complete."""
        done, count = look.seen()
        asked = [i for i, row in enumerate(look.rows)
                 if row is not None and (done[i] or self.settings.stop)]
        if not asked:
            return {}
        texts = self.taken(look, asked, max(count[i] for i in asked))
        last = texts[0][range(len(asked)), [count[i] - 1 for i in asked]]
        found = {}
        stops = np.isin(last, self.chat.stop).tolist()
        for i, tokens, logp, stopped in zip(asked, *texts, stops, strict=True):
            cut = self.stops_at(tokens[: count[i]].tolist()) if self.settings.stop else None
            if done[i] or cut is not None:
                length = count[i] if cut is None else cut
                begun = self.begun.pop(look.rows[i], NOTHING)
                said = Numbers(tokens[:length], begun if begun[0] <= length else NOTHING)
                found[look.rows[i]] = Written(look.rows[i].request, said, Numbers(logp[:length]),
                                              stopped or cut is not None)
        return found

    def spell(self, look: Look) -> None:
        """What rows have written that are all about to end, for their texts: the GPU writes on meanwhile."""
        here, (_, count) = [i for i, row in enumerate(look.rows) if row is not None], look.seen()
        tokens, _ = self.taken(look, here, max(count[i] for i in here))
        said = self.chat.spell([row[: count[i]] for i, row in zip(here, tokens, strict=True)])
        if said is not None:
            self.begun = {look.rows[i]: (count[i], text) for i, text in zip(here, said, strict=True)}

    def taken(self, look: Look, which: list[int], wide: int) -> list[np.ndarray]:
        """The first tokens of these rows of a look, and log-probs; steps under way are not waited for."""
        if look.written:
            return [x.numpy()[which, :wide] for x in look.written]
        with torch.cuda.stream(self.aside) if self.aside else nullcontext():
            slots = self.whole([look.rows[i].slot for i in which])
            return [x.cpu().numpy() for x in self.rows_of(slots, wide)]

    def rows_of(self, slots: Tensor, wide: int | None = None) -> list[Tensor]:
        return [x[slots, :wide] for x in (self.out, self.logp)]

    def stops_at(self, tokens: list[int]) -> int | None:
        """How many tokens it takes to complete a stop string."""
        if not any(stop in self.chat.decode(tokens) for stop in self.settings.stop):
            return None
        return next(n for n in range(1, len(tokens) + 1)
                    if any(s in self.chat.decode(tokens[:n]) for s in self.settings.stop))

    def keep(self, rows: list[int], before: int) -> None:
        """These rows move to the front; the columns behind them belong to no one."""
        self.engine.ops.compact_rows(self.columns, self.done, self.hidden, self.whole(rows), before,
                                     self.nobody)

    @torch.no_grad()
    def stream(self, prompt: list[int], seed: int) -> Iterator[int]:
        """The tokens of one row as they are chosen."""
        (row,) = Queue(self, [prompt], 1, [seed], {}).admit(0)
        tokens: list[int] = []
        while not bool(self.done[0]) and self.stops_at(tokens) is None:
            self.step(1)
            tokens.append(int(self.out[row.slot, len(tokens)]))
            yield tokens[-1]


def bucket(n: int) -> int:
    """The size of the graph that n rows run in: 8, 16, 32, 64, 128, then by 128s."""
    return max(8, 1 << (n - 1).bit_length()) if n <= 128 else -(-n // 128) * 128
