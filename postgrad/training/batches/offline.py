"""Batch sources from data: conversations, pairs, labelled singles and labelled steps."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from postgrad.maths.noise import poisson, seed_of, uniform
from postgrad.maths.preference import kto_baseline
from postgrad.maths.weights import token_mean
from postgrad.methods import Preference, Supervised
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.models.protocols import LanguageModel
from postgrad.records import (
    Batch,
    Completion,
    Conversation,
    Message,
    Pair,
    Rollout,
    Step,
    completion_messages,
    pad_rows,
    without_training,
)
from postgrad.system.disk_list import DiskList
from postgrad.training.batches.shuffled import (
    Shuffled,
    ShuffledBatches,
    StreamMixture,
    model_logp,
    padded_columns,
)
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks

LISTED_ROWS = 20  # rows over the limit that an error lists
SIDES = ("chosen", "rejected")

TokenRow = tuple[list[int], list[bool]]  # tokens and mask


class EncodedRow(NamedTuple):
    """A row of a batch before padding. label: of a labelled single."""

    id: str
    tokens: list[int]
    mask: list[bool]
    label: bool = False


class TokenLimit:
    """Truncates units (a row, or the two rows of a pair) that are longer than the limit, or counts
    them for one error. truncate: refuse; left: cut from the start, both rows of a pair alike; right: from the
    end. `settle` raises where units were refused or truncation leaves nothing to train on.
    """

    def __init__(self, most: int, truncate: str = "refuse"):
        self.most, self.truncate = most, truncate
        self.units = self.cut = self.refused = 0
        self.first: list[str] = []

    def fit(self, where: str, rows: Sequence[TokenRow]) -> Sequence[TokenRow]:
        self.units += 1
        longest = max(len(tokens) for tokens, _ in rows)
        if longest <= self.most:
            return rows
        keep = {"left": slice(longest - self.most, None), "right": slice(self.most)}.get(self.truncate)
        cut = [(tokens[keep], mask[keep]) for tokens, mask in rows] if keep else []
        if not cut or not all(any(mask) for _, mask in cut):
            self.refused += 1
            self.first += [f"{where} has {longest:,} tokens"][: LISTED_ROWS - len(self.first)]
            return rows
        self.cut += 1
        return cut

    def settle(self) -> None:
        other = {"refuse": "leave out or cut such rows with truncate=drop, left or right.",
                 "left": "leave it out with truncate=drop: without its start nothing is left to learn.",
                 "right": "leave it out with truncate=drop: without its end nothing is left to learn."}
        remedy = other[self.truncate]
        if self.refused == 1:
            raise ValueError(f"{self.first[0]}, over the limit of {self.most:,}: shorten it, or {remedy}")
        if self.refused:
            more = ", ..." if self.refused > LISTED_ROWS else ""
            raise ValueError(f"{self.refused:,} of {self.units:,} rows are over the limit of {self.most:,} "
                             f"tokens: {', '.join(self.first)}{more}. Shorten them, or {remedy}")

    def note(self, name: str) -> tuple[str, ...]:
        """A note on truncated units; empty where none was cut."""
        where = "start" if self.truncate == "left" else "end"
        return (f"{name}: {self.cut:,} of {self.units:,} rows are cut at the {where}, for they are over the "
                f"limit of {self.most:,} tokens",) if self.cut else ()


class ConversationBatches(ShuffledBatches[EncodedRow]):
    """Conversations -> Batch: trains the assistant's tokens, of all turns or of the last, or with turns
    "prompts" every token. shares: `conversations` holds several sources, mixed in these shares."""

    def __init__(self, conversations: Sequence[Any], chat: Chat, method: Supervised, *, per_step: int,
                 steps: int, seed: int, max_tokens: int, truncate: str = "refuse", device: str = "cpu",
                 turns: str = "all", shares: Sequence[float] = ()):
        self.limit = TokenLimit(max_tokens, truncate)
        self.rows = self.row_tokens = self.trained_tokens = 0
        sources = [DiskList(self.encode(rows, chat, turns)).as_list()
                   for rows in (conversations if shares else [conversations])]
        self.limit.settle()
        super().__init__(StreamMixture(sources, shares, seed) if shares else Shuffled(sources[0], seed),
                         per_step=per_step, steps=steps, device=device)
        self.method, self.stop = method, torch.tensor(chat.stop)
        self.tokens = per_step * self.row_tokens // self.rows  # of a step, about

    def encode(self, rows: Sequence[Conversation], chat: Chat, turns: str) -> Iterator[EncodedRow]:
        for c in rows:
            tokens, mask = self.limit.fit(c.place, [encode_conversation(c, chat, turns)])[0]
            self.rows, self.row_tokens = self.rows + 1, self.row_tokens + len(tokens)
            self.trained_tokens += sum(mask)
            yield EncodedRow(c.id, tokens, mask)

    def batch(self, rows: Sequence[EncodedRow]) -> Batch:
        ids, tokens, masks, _ = zip(*sorted(rows, key=lambda row: len(row.tokens)), strict=True)
        columns = padded_columns(ids, tokens, masks)
        weight = self.method.weigh(columns["mask"], columns["mask"].shape[1])
        ends = (columns["mask"] & torch.isin(columns["tokens"], self.stop)).any(1)
        facts = {"tokens": float(columns["lengths"].sum()), "stop_trained": float(ends.float().mean())}
        return Batch(**columns, weight=weight, facts=facts).to(self.device)


def encode_conversation(conversation: Conversation, chat: Chat, turns: str = "all") -> TokenRow:
    """The mask is True on the assistant's turns; of a text, and with turns "prompts", on all tokens but the
    first."""
    if conversation.text:
        return encode_text(conversation.text, chat)
    check_template(conversation, chat)
    tokens, mask = chat.conversation(conversation.messages, last=turns == "last", tools=conversation.tools)
    if turns == "prompts":
        if any(m.get("weight") == 0 for m in conversation.messages):
            raise ValueError(f"{conversation.place} has a turn of weight 0, and turns=prompts trains every "
                             "token: leave the weights out, or turns=prompts.")
        mask = [i > 0 for i in range(len(tokens))]
    if not any(mask):
        raise ValueError(f"{conversation.place}: the template gives the assistant's turn no tokens, so "
                         "nothing would be learned.")
    return tokens, mask


def encode_text(text: str, chat: Chat) -> TokenRow:
    """A rendered text, as the tokenizer encodes it, with eos."""
    tokens = chat.tokenizer.encode(text if text.endswith(chat.eos) else text + chat.eos).ids
    return tokens, [i > 0 for i in range(len(tokens))]


def check_template(row: Conversation | Pair, chat: Chat) -> None:
    """Raises where a row has tools, tool calls or reasoning that the chat template would leave out."""
    sides = ((),) if isinstance(row, Conversation) else map(completion_messages, (row.chosen, row.rejected))
    for side in sides:
        if name := chat.left_out((*row.messages, *side), row.tools):
            raise ValueError(f"{row.place} has {name}, and the model's chat template has no place for them: "
                             "take a model or a template that has one, or leave such rows out "
                             "(skip_bad=true).")


class PairBatches(ShuffledBatches[tuple[Pair, list[EncodedRow]]]):
    """Pairs -> Batch: chosen and rejected in alternate rows, one weight per pair."""

    def __init__(self, pairs: Sequence[Pair], chat: Chat, method: Preference, models: Models, *,
                 per_step: int, steps: int, seed: int, max_tokens: int, tokens_per_pass: int,
                 truncate: str = "refuse", device: str = "cpu", virtual_ranks: VirtualRanks = SINGLE_RANK):
        self.limit = TokenLimit(max_tokens, truncate)
        self.trained_tokens = 0
        encoded = DiskList((pair, self.counted(encode_pair(
            pair, chat, self.limit, scored=method.score is None))) for pair in pairs)
        self.limit.settle()
        super().__init__(Shuffled(encoded.as_list(), seed), per_step=per_step, steps=steps, device=device)
        self.method = method
        self.models = models
        self.tokens_per_pass, self.virtual_ranks = tokens_per_pass, virtual_ranks
        self.seed = seed
        self.heads = models.policy.heads if method.score is None else 1
        if method.needs_reference and models.reference is None:
            raise ValueError(f"{method.name} compares with a reference model, and there is none: give "
                             "models.reference.")

    def counted(self, rows: list[EncodedRow]) -> list[EncodedRow]:
        self.trained_tokens += sum(sum(row.mask) for row in rows)
        return rows

    def batch(self, pairs: Sequence[tuple[Pair, list[EncodedRow]]]) -> Batch:
        """Rows shortest first; the reference's log-probs where the method has a reference."""
        pairs = sorted(pairs, key=lambda pair: max(len(row.tokens) for row in pair[1]))
        ids, tokens, masks, _ = zip(*(row for _, rows in pairs for row in rows), strict=True)
        weight = torch.tensor([pair.weight for pair, _ in pairs])
        batch = Batch(**padded_columns(ids, tokens, masks), rows_per_unit=2, weight=weight / weight.sum(),
                      margin=torch.tensor([pair.margin for pair, _ in pairs]),
                      votes=self.votes([pair.id for pair, _ in pairs])).to(self.device)
        facts = {"tokens": float(batch.lengths.sum())}
        if not self.method.needs_reference:
            return replace(batch, facts=facts)
        assert self.models.reference is not None
        ref, _ = model_logp(self.models.reference, batch, self.tokens_per_pass,
                            virtual_ranks=self.virtual_ranks)
        return replace(batch, ref_logp=ref, facts=facts)

    def votes(self, ids: Sequence[str]) -> Tensor | None:  # [U, K]
        """Poisson bootstrap weights of each ensemble head, so that the heads differ where data is thin."""
        if self.heads == 1:
            return None
        names = torch.tensor([seed_of(name) for name in ids])[:, None].expand(-1, self.heads)
        return poisson(uniform(names, torch.tensor([seed_of(self.seed, "head", k)
                                                    for k in range(self.heads)]))).float()


def encode_pair(pair: Pair, chat: Chat, limit: TokenLimit, *, scored: bool = False) -> list[EncodedRow]:
    """The chosen and the rejected row. scored: by a scalar head, which reads a row at its stop token, as it
    does a sample."""
    check_template(pair, chat)
    rows = [encode_completion(pair.messages, answer, chat, pair.tools)
            for answer in (pair.chosen, pair.rejected)]
    if scored:
        rows = [chat.until_stop(*row) for row in rows]
    for side, (_, mask) in zip(SIDES, rows, strict=True):
        if not any(mask):
            raise ValueError(f"{pair.place}: its {side} answer is empty.")
    return [EncodedRow(f"{pair.id}/{side}", *row)
            for side, row in zip(SIDES, limit.fit(pair.place, rows), strict=True)]


def encode_completion(messages: Sequence[Message], completion: Completion, chat: Chat,
                      tools: Sequence[dict[str, Any]] = ()) -> TokenRow:
    """A prompt with a completion; the mask is True on the assistant's turns of the completion."""
    talk = (*without_training(messages), *completion_messages(completion))
    return chat.conversation(talk, tools=tools)


class SingleBatches(ShuffledBatches[EncodedRow]):
    """Labelled conversations -> Batch (KTO). The last message is the answer, the rest is the prompt."""

    def __init__(self, singles: Sequence[Conversation], chat: Chat, method: Preference, models: Models, *,
                 per_step: int, steps: int, seed: int, max_tokens: int, tokens_per_pass: int,
                 truncate: str = "refuse", device: str = "cpu", virtual_ranks: VirtualRanks = SINGLE_RANK):
        if per_step < 2:
            raise ValueError(f"{method.name} compares with answers to other prompts: pairs.per_step is "
                             f"{per_step}, set it to 2 or more.")
        assert method.score is not None and models.reference is not None
        self.limit = TokenLimit(max_tokens, truncate)
        rows = DiskList(EncodedRow(single.id, *self.limit.fit(single.place, [encode_single(single, chat)])[0],
                                   label=bool(single.label)) for single in singles).as_list()
        self.limit.settle()
        super().__init__(Shuffled(rows, seed), per_step=per_step, steps=steps, device=device)
        self.trained_tokens = sum(sum(row.mask) for row in rows)
        self.max_tokens = max_tokens
        self.score, self.score_columns = method.score, method.columns_of("score")
        self.policy, self.reference = models.policy, models.reference
        self.tokens_per_pass, self.virtual_ranks = tokens_per_pass, virtual_ranks

    def batch(self, rows: Sequence[EncodedRow]) -> Batch:
        """Rows shortest first, with the reference's log-probs and the step's baseline."""
        ids, tokens, masks, labels = zip(*sorted(rows, key=lambda row: len(row.tokens)), strict=True)
        batch = Batch(**padded_columns(ids, tokens, masks), weight=torch.full((len(ids),), 1 / len(ids)),
                      label=torch.tensor([1.0 if label else -1.0 for label in labels])).to(self.device)
        return replace(batch, ref_logp=self.logp(self.reference, batch),
                       baseline=self.baseline(tokens, masks).expand(len(ids)),
                       facts={"tokens": float(batch.lengths.sum())})

    def baseline(self, tokens: Sequence[list[int]], masks: Sequence[list[bool]]) -> Tensor:  # []
        """KTO's KL baseline: the mean log-ratio of each prompt with the NEXT row's answer."""
        mixed, sampled = [], []
        for i, row in enumerate(tokens):
            after = (i + 1) % len(tokens)
            at, start = masks[i].index(True), masks[after].index(True)
            mixed.append((row[:at] + tokens[after][start:])[: self.max_tokens])
            sampled.append(([False] * at + masks[after][start:])[: self.max_tokens])
        batch = Batch(**padded_columns([str(i) for i in range(len(mixed))], mixed, sampled),
                      weight=torch.ones(len(mixed))).to(self.device)
        logp, ref_logp = (self.logp(model, batch) for model in (self.policy, self.reference))
        known = {"lengths": batch.mask.sum(1), "ref_logp": ref_logp}
        columns = {name: known[name] for name in self.score_columns}
        return kto_baseline(self.score(logp, batch.mask, **columns)
                            - self.score(ref_logp, batch.mask, **columns))

    def logp(self, model: LanguageModel, batch: Batch) -> Tensor:  # [B, T]
        return model_logp(model, batch, self.tokens_per_pass, virtual_ranks=self.virtual_ranks)[0]


def encode_single(single: Conversation, chat: Chat) -> TokenRow:
    if single.messages[-1]["role"] != "assistant" or single.label is None:
        raise ValueError(f"{single.place}: expected an assistant's message at the end and a label, "
                         "true or false.")
    check_template(single, chat)
    marked = any("weight" in m for m in single.messages)  # else the last turn alone is the answer
    tokens, mask = chat.conversation(single.messages, last=not marked, tools=single.tools)
    if not any(mask):
        raise ValueError(f"{single.place}: the answer is empty.")
    return tokens, mask


@dataclass(frozen=True, kw_only=True)
class LabelledReply:
    """A reply with labels on some of its tokens: (column, right), counted from the first prompt token.

    LabelledReply(id="words/5+8", tokens=(1, 5, 7, 2), marks=((2, True), (3, False)))
    """

    id: str
    tokens: tuple[int, ...]
    marks: tuple[tuple[int, bool], ...]


def label_reply(rollout: Rollout, steps: Sequence[Step], chat: Chat) -> LabelledReply:
    """A reply with each step's label on the step's last token; of two steps that end in one token, the later
    label."""
    at = len(rollout.prompt_tokens) + rollout.reply.start
    places = chat.places(rollout.tokens[rollout.reply], [step.end for step in steps])
    marks = {at + place: step.right for place, step in zip(places, steps, strict=True)}
    return LabelledReply(id=rollout.prompt.id, tokens=(*rollout.prompt_tokens, *rollout.tokens),
                         marks=tuple(marks.items()))


class StepBatches(ShuffledBatches[LabelledReply]):
    """Labelled replies -> Batch: trains the labelled tokens, each with the same weight in its step."""

    def __init__(self, rows: Sequence[LabelledReply], *, per_step: int, steps: int, seed: int,
                 max_tokens: int, device: str = "cpu"):
        super().__init__(Shuffled(rows, seed), per_step=per_step, steps=steps, device=device)
        for row in rows:
            if len(row.tokens) > max_tokens:
                raise ValueError(f"reply {row.id} has {len(row.tokens)} tokens with its prompt, over the "
                                 f"model's {max_tokens}: shorten it or leave it out.")
            if not row.marks:
                raise ValueError(f"reply {row.id} has no labelled step, so nothing would be learned from "
                                 "it: leave it out.")
        self.sum = zlib.crc32(repr([(row.tokens, row.marks) for row in rows]).encode())

    def batch(self, rows: Sequence[LabelledReply]) -> Batch:
        """Rows shortest first; label is +1 or -1 on the labelled tokens, 0 elsewhere."""
        rows = sorted(rows, key=lambda row: len(row.tokens))
        marks = [dict(row.marks) for row in rows]
        columns = [range(len(row.tokens)) for row in rows]
        masks = [[c in marked for c in places] for marked, places in zip(marks, columns, strict=True)]
        labels = [[{None: 0.0, True: 1.0, False: -1.0}[marked.get(c)] for c in places]
                  for marked, places in zip(marks, columns, strict=True)]
        base = padded_columns([row.id for row in rows], [list(row.tokens) for row in rows], masks)
        label = pad_rows(labels, fill=0.0, dtype=torch.float32)
        facts = {"tokens": float(base["lengths"].sum()),
                 "right_steps": float((label > 0).sum() / base["mask"].sum())}
        return Batch(**base, weight=token_mean(base["mask"], base["mask"].shape[1]), label=label,
                     facts=facts).to(self.device)

    def state(self) -> dict[str, Any]:
        return super().state() | {"sum": self.sum}

    def restore(self, state: dict[str, Any]) -> None:
        if state["sum"] != self.sum:
            raise ValueError("the labelled replies are not those that this run began with, so it cannot go "
                             "on to the same result: put the old generator back, or start a new run.")
        super().restore(state)
