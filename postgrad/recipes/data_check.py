"""What is understood of a file of rows: its form, its columns, its bad and long rows, and what of some rows
is trained (`postgrad data check`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from postgrad.data.preferences import preference_report, read_pairs, read_singles
from postgrad.data.rows import USES, BadRows, read_conversations, read_prompt_rows, row_kind, unread_rows
from postgrad.data.tasks import is_task_name
from postgrad.data.tasks.listed import read_prompts
from postgrad.models.chat import Chat
from postgrad.records import Conversation, Pair, Prompt
from postgrad.resolve.models import open_chat, open_folder, read_config
from postgrad.resolve.tasks import open_task
from postgrad.training.batches.offline import (
    SIDES,
    TokenLimit,
    TokenRow,
    check_template,
    encode_conversation,
    encode_pair,
    encode_single,
)

KINDS = tuple(USES)
NAMED_ROWS = 20     # rows over the limit that are named
TASK_PROMPTS = 500  # of a task by name

Record = Conversation | Pair | Prompt
Spans = list[tuple[str, bool]]  # texts, and whether they are trained


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """A row as it is rendered. side: chosen or rejected, of a pair."""

    where: str
    side: str
    spans: Spans


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """kind: one of KINDS. faults: of the first bad rows. repeated: rows, judgements or prompts that stand
    before too. too_long: the places of the first rows over `limit` tokens, the model's. trained: tokens."""

    source: str
    kind: str
    model: str
    rows: int
    bad: int
    faults: Sequence[str]
    forms: Mapping[str, int]
    turns: int
    used: Mapping[str, int]
    unused: Mapping[str, int]
    remarks: Mapping[str, int]
    repeated: int
    contradicted: int
    limit: int
    over_limit: int
    too_long: Sequence[str]
    tokens: int
    trained: int
    longest: int
    shown: Sequence[ShownRow] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_data(source: str, *, model: str = "tiny-chat", template: str | None = None, kind: str | None = None,
               show: int = 3, max_tokens: int | None = None) -> DataReport:
    """Reads and encodes all rows of a file, of hub:OWNER/NAME or of a task. kind: one of KINDS; None: by the
    columns of the first row. show: rows to render, spread over the file."""
    chat = open_chat(open_folder(model), template)
    limit = min(max_tokens or 2**62, read_config(model).max_position_embeddings)
    bad = BadRows(skip=True)
    kind = kind or kind_of(source)
    records = read_records(source, kind, bad)
    places = {i * len(records) // max(1, min(show, len(records))) for i in range(min(show, len(records)))}
    tokens = trained = longest = 0
    too_long, shown = list[str](), list[ShownRow]()
    for i, record in enumerate(records):
        with bad.row(counted=True):
            sides = encode_record(record, kind, chat)
            length = max(len(row) for _, (row, _) in sides)
            too_long += [f"{record.place} ({length:,} tokens)"] if length > limit else []
            longest = max(longest, length)
            tokens += sum(len(row) for _, (row, _) in sides)
            trained += sum(sum(mask) for _, (_, mask) in sides)
            if i in places:
                shown += [ShownRow(where=record.place, side=side, spans=trained_spans(*row, chat))
                          for side, row in sides]
    repeated, contradicted = count_repeated(records)
    seen = bad.understood
    return DataReport(
        source=source, kind=kind, model=model, rows=bad.rows, bad=bad.count, faults=bad.first,
        forms=dict(seen.forms), turns=seen.turns, used=dict(seen.used), unused=dict(seen.ignored),
        remarks=dict(seen.remarks),
        repeated=repeated, contradicted=contradicted, limit=limit, over_limit=len(too_long),
        too_long=too_long[:NAMED_ROWS], tokens=tokens, trained=trained, longest=longest, shown=shown)


def kind_of(source: str) -> str:
    """What the rows of a source are for, by the columns of the first that can be read."""
    if is_task_name(source):
        return "prompts"
    return row_kind(next(_readable(source), {})) or "conversations"


def _readable(source: str) -> Iterator[Mapping[str, Any]]:
    for _, _, parse in unread_rows(source):
        with suppress(ValueError):  # it is reported where all rows are read
            yield parse()


def read_records(source: str, kind: str, bad: BadRows) -> Sequence[Record]:
    if is_task_name(source):
        task = open_task(source)
        draws: Mapping[str, Callable[..., Sequence[Record]] | None] = {
            "prompts": task.prompts, "conversations": task.demonstrations, "pairs": task.preferences}
        draw = draws.get(kind)
        if draw is None:
            raise ValueError(f"the task {source} has no {kind}: it has "
                             f"{', '.join(name for name, has in draws.items() if has)}.")
        records = draw("train", TASK_PROMPTS, 0)
        bad.rows += len(records)
        return records
    if kind == "prompts":
        rows = read_prompt_rows(Path(source) if Path(source).is_file() else source, bad)
        return read_prompts([row for _, row in rows], [where for where, _ in rows].__getitem__, bad=bad,
                            counted=True)
    readers: Mapping[str, Callable[..., Sequence[Record]]] = {
        "conversations": read_conversations, "pairs": read_pairs, "labelled": read_singles}
    return readers[kind](source, bad)


def encode_record(record: Record, kind: str, chat: Chat) -> list[tuple[str, TokenRow]]:
    """The rows of a record by side: one, or the chosen and the rejected one of a pair."""
    if isinstance(record, Prompt):
        tokens = chat.render(record.messages)
        return [("", (tokens, [False] * len(tokens)))]
    if isinstance(record, Pair):
        rows = encode_pair(record, chat, TokenLimit(2**62))
        return [(side, (row.tokens, row.mask)) for side, row in zip(SIDES, rows, strict=True)]
    if kind == "labelled":
        check_template(record, chat)
        return [("wanted" if record.label else "unwanted", encode_single(record, chat))]
    return [("", encode_conversation(record, chat))]


def trained_spans(tokens: Sequence[int], mask: Sequence[bool], chat: Chat) -> Spans:
    """The text of a row, in turns of what is not trained and what is."""
    groups = groupby(zip(tokens, mask, strict=True), key=lambda pair: pair[1])
    return [(chat.tokenizer.decode([token for token, _ in group], skip_special_tokens=False), bool(trained))
            for trained, group in groups]


def count_repeated(records: Sequence[Record]) -> tuple[int, int]:
    """Rows that repeat another, and of preferences those that contradict another."""
    if records and (isinstance(records[0], Pair) or getattr(records[0], "label", None) is not None):
        judged: Iterable[Any] = records
        report = preference_report(judged)
        return report["repeated"], report["contradicted"]
    texts = [hash((repr(record.messages), getattr(record, "text", ""))) for record in records]
    return len(texts) - len(set(texts)), 0
