"""Rows of a file, or rows as objects, as records. Errors name the row; none is dropped silently.

.jsonl and .jsonl.gz (an object a line), .json (a list of objects), .csv (a header line), .parquet (with
pyarrow: pip install 'postgrad[data]').
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from postgrad.records import Conversation, Message, without_training
from postgrad.system.disk_list import DiskList
from postgrad.system.files import error_text
from postgrad.system.hub import dataset_files, is_dataset
from postgrad.system.json_text import strict_json

DataRow = dict[str, Any]  # a JSON object
Source = str | Path | Iterable[object]  # a file, hub:OWNER/NAME, or rows: dicts, records, a `datasets` table
Rows = list[tuple[str, DataRow]]  # (where, row): ("train.jsonl, line 3", {...})
Unread = Iterator[tuple[str, str, Callable[[], DataRow]]]  # (number, where, parser) of each row
RecordT = TypeVar("RecordT")

ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
LONGEST_LINE = 2**24  # bytes
LONGEST_ROW = 1_000_000  # bytes of a line of a task's file
LONGEST_LIST = 256_000_000   # bytes of a .json file
SMALL, PACKED = 2**24, 50    # limit of an unpacked file: SMALL bytes + PACKED times its packed size
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv")
SHOWN = 20            # bad rows in a message
# what rows of a kind are for
USES = {"conversations": "sft", "pairs": "dpo, reward and their kin", "labelled": "kto",
        "prompts": "grpo, ppo and their kin"}


def parse_json_bytes(raw: bytes, *, first: bool = True) -> object:
    """Strict JSON in UTF-8: repeated keys, NaN, lone surrogates and great depth raise ValueError. first:
    allows a byte order mark."""
    return strict_json(raw.decode("utf-8-sig" if first else "utf-8"))


def json_lines(file: IO[bytes] | gzip.GzipFile, place: str,
               longest: int = LONGEST_LINE) -> Unread:
    """(number, where, parser) of each line that is not blank; where is place and number: "a.jsonl line 1"."""
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), start=1):
        where = f"{place} {number}"
        if len(line) > longest:
            raise ValueError(f"{where} is longer than {longest:,} bytes: is this a JSONL file, one object "
                             "a line?")
        if line.strip():
            yield str(number), where, partial(_parse_line, line, where, first=number == 1)


def _parse_line(line: bytes, where: str, *, first: bool) -> DataRow:
    try:
        row = parse_json_bytes(line, first=first)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON in UTF-8: {error_text(error)}.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}; each line must be an object in braces.")
    return row


def read_data_rows(source: Source) -> Iterator[tuple[str, str, DataRow]]:
    """(number, where, row) of each row; the first bad one raises."""
    for number, where, parse in unread_rows(source):
        yield number, where, parse()


def unread_rows(source: Source) -> Unread:
    """The rows of a file, of a data set on the hub (hub:OWNER/NAME) or of objects, one at a time."""
    if not isinstance(source, str | Path):
        for i, row in enumerate(source):
            yield str(i + 1), f"data[{i}]", partial(_as_dict, row, i)
        return
    paths = source_files(source)
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} is a folder: give the path of a file in it." if path.is_dir() else
                             f"there is no file {source}: {instead_of_file(str(source))}.")
        yield from _file_rows(path, str(path) if len(paths) == 1 else path.name)


def instead_of_file(name: str) -> str:
    """What to write for the name of a file that is not there."""
    if name.startswith(("http:", "https:")):
        return "an address is not read; download it, and give the path of the file"
    return f"give the path of a JSONL file{hub_hint(name)}"


def hub_hint(name: str) -> str:
    """"; a data set of the hub is named hub:OWNER/NAME", where a name is of that form."""
    owned = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not Path(name).suffix
    return f"; a data set of the hub is named hub:{name}" if owned else ""


def source_files(source: str | Path) -> list[Path]:
    """The files that a source names."""
    return dataset_files(str(source), SUFFIXES) if is_dataset(source) else [Path(source)]


def _file_rows(path: Path, place: str, longest: int = LONGEST_LINE) -> Unread:
    """place: how messages name the file before a line's number."""
    if path.name.endswith(".jsonl.gz"):
        yield from _gzip(path, place, longest)
    elif path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".csv":
        yield from _csv(path)
    elif path.suffix == ".json" and holds_list(path):
        yield from _list(path)
    else:
        refuse_other_format(path)
        with path.open("rb") as file:
            yield from json_lines(file, f"{place} line", longest)


def holds_list(path: Path) -> bool:
    """Whether a JSON file is one list, and not an object a line."""
    with path.open("rb") as file:
        return file.read(2**16).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


FORMATS = {b"PAR1": "a parquet file", b"PK": "a zip file or a spreadsheet", b"\xff\xfe": "text in UTF-16",
           b"\xfe\xff": "text in UTF-16"}  # by their first bytes


def refuse_other_format(path: Path) -> None:
    """Raises ValueError for a file that is no text in UTF-8, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(1024)
    first, _, rest = head.partition(b"\n")
    kind = next((what for mark, what in FORMATS.items() if head.startswith(mark)),
                "a binary file, with a NUL byte in line 1" if b"\0" in first else
                "a binary file" if b"\0" in rest and b"{" not in first else "")
    if kind:
        raise ValueError(f"{path} is {kind}: expected JSONL, a JSON object a line in UTF-8; save it so, or "
                         "read it with pandas or datasets and give the table as data= in Python.")


def _as_dict(row: object, i: int) -> DataRow:
    if not isinstance(row, Mapping):
        raise ValueError(f"data[{i}] is a {type(row).__name__}; each row must be a dict, e.g. "
                         "{'messages': [...]}.")
    return dict(row)


def read_prompt_rows(source: str | Path, bad: BadRows | None = None) -> Rows:
    """The rows of a file of prompts, or of a data set on the hub. bad: collects the bad rows."""
    return [row for path in source_files(source) for row in read_rows_file(path, bad)]


def read_rows_file(path: Path, bad: BadRows | None = None) -> Rows:
    """The rows of one file; the suffix is its format. bad: collects the bad rows."""
    path, rows = Path(path), Rows()
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    if not path.name.endswith(SUFFIXES):
        raise ValueError(f"{path.name} is no file of rows: expected {', '.join(SUFFIXES)}.")
    bad = bad or BadRows()
    for _, where, parse in _file_rows(path, f"{path.name},", LONGEST_ROW):
        with bad.row():
            rows.append((where, parse()))
    bad.settle(path.name, 'Expected one JSON object a line, like {"question": "What is 2+3?", "answer": '
               '"5"}.' if ".jsonl" in path.name else "")
    if not rows:
        raise ValueError(f"{path.name} holds no rows: write one JSON object a line, with a question and an "
                         "answer.")
    return rows


def _gzip(path: Path, place: str, longest: int) -> Unread:
    try:
        with gzip.open(path) as file:
            left = room_for(path)
            while block := file.read(2**20):  # measures the unpacked size first
                left -= len(block)
                if left < 0:
                    raise too_large(path.name, room_for(path))
            file.seek(0)
            yield from json_lines(file, f"{place} line", longest)
    except (OSError, EOFError, zlib.error) as fault:
        raise ValueError(f"{path.name} is not a sound gzip file ({fault}): fetch it again.") from None


def room_for(path: Path) -> int:
    """The most bytes that a packed file may unpack to; text packs a few times, a bomb a thousand times."""
    return SMALL + PACKED * path.stat().st_size


def too_large(name: str, room: int) -> ValueError:
    return ValueError(f"{name} unpacks to over {room:,} bytes, far more than text does: unpack it, and see "
                      "what is in it.")


def _list(path: Path) -> Unread:
    """The entries of a JSON list."""
    if path.stat().st_size > LONGEST_LIST:
        raise ValueError(f"{path.name} is over {LONGEST_LIST:,} bytes: write it as .jsonl, which is "
                         "read line by line.")
    try:
        rows = parse_json_bytes(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON in UTF-8: {error_text(error)}; expected a list of "
                         "objects.") from None
    assert isinstance(rows, list)
    for number, row in enumerate(rows, start=1):
        where = f"{path.name}, entry {number}"
        yield str(number), where, partial(_entry, row, where)


def _entry(row: object, where: str) -> DataRow:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}; each entry must be an object in braces.")
    return row


def _csv(path: Path) -> Unread:
    """Rows of texts; the first line names the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file, strict=True), start=1):
                where = f"{path.name}, row {number}"
                yield str(number), where, partial(_fields, row, where)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not CSV in UTF-8: {error_text(error)}.") from None


def _fields(row: DataRow, where: str) -> DataRow:
    if None in row or None in row.values():
        raise ValueError(f"{where} has another number of fields than the first line has columns: quote texts "
                         "that hold commas or line breaks.")
    return row


def _parquet(path: Path) -> Unread:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ValueError(f"{path.name} is a parquet file, which needs pyarrow: pip install 'postgrad[data]', "
                         "or give the rows as .jsonl.") from None
    try:
        file, before, left = parquet.ParquetFile(path), 0, room_for(path)
        if file.metadata.num_rows > path.stat().st_size:
            raise ValueError(f"{path.name} has {file.metadata.num_rows:,} rows in {path.stat().st_size:,} "
                             "bytes, so they can only be one row again and again: see what is in it.")
        for batch in file.iter_batches(batch_size=1024):
            left -= batch.nbytes
            if left < 0:
                raise too_large(path.name, room_for(path))
            for number, row in enumerate(batch.to_pylist(), start=before + 1):
                yield str(number), f"{path.name}, row {number}", partial(dict, row)
            before += len(batch)
    except (ArrowException, OSError, MemoryError) as fault:
        text = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise ValueError(f"{path.name} is not a sound parquet file ({text:.120}): fetch it again.") from None


def source_name(source: Source) -> str:
    """A source in a message: its path, or "data"."""
    return str(source) if isinstance(source, str | Path) else "data"


def records_of_kind(source: Source, kind: type[RecordT]) -> Sequence[RecordT] | None:
    """The rows, if they are records of that kind already."""
    if isinstance(source, str | Path) or not isinstance(source, Sequence) or not (
            source and isinstance(source[0], kind)):
        return None
    records = [row for row in source if isinstance(row, kind)]
    return records if records and len(records) == len(source) else None


def read_messages(value: object, where: str) -> tuple[Message, ...]:
    """[{"role", "content", ...}, ...], checked; ShareGPT's {"from", "value"} too.

    Text parts of a content are joined, null fields dropped, tool-call arguments in JSON text parsed. All
    other fields are kept: tool_calls, reasoning_content, name, weight (OpenAI's; 0: the turn is not trained).
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"{where}: messages must be a list of {{role, content}}, not {value!r:.40}.")
    return tuple(_message(message, where) for message in value)


def _message(message: object, where: str) -> Message:
    fields = {str(k): v for k, v in message.items() if v is not None} if isinstance(message, Mapping) else {}
    if "from" in fields and "role" not in fields:
        fields["role"] = SHAREGPT_ROLES.get(fields["from"], fields["from"]) if isinstance(
            fields["from"], str) else None
        fields = {k: v for k, v in fields.items() if k != "from"}
    if "value" in fields and "content" not in fields:
        fields["content"] = fields.pop("value")
    if fields.get("tool_calls"):
        fields.setdefault("content", "")
        fields["tool_calls"] = _tool_calls(fields["tool_calls"], where)
    if isinstance(fields.get("content"), Sequence) and not isinstance(fields["content"], str):
        fields["content"] = _joined_parts(fields["content"], where)
    if fields.get("role") not in ROLES or not isinstance(fields.get("content"), str):
        raise ValueError(f"{where}: {json.dumps(message, default=str)[:80]} is not a message: "
                         f"role must be one of {', '.join(ROLES)} and content text.")
    if "function_call" in fields:
        raise ValueError(f"{where}: function_call is OpenAI's older form: write tool_calls.")
    if "weight" in fields and fields["weight"] not in (0, 1):
        raise ValueError(f"{where}: a message has the weight {fields['weight']!r:.40}; it must be 0 (not "
                         "trained) or 1.")
    if fields.get("weight") == 1 and fields["role"] != "assistant":
        raise ValueError(f"{where}: a message of the role {fields['role']} has weight 1, and only an "
                         "assistant's turns are trained: remove the weight.")
    return {"role": fields.pop("role"), "content": fields.pop("content"), **fields}


def _joined_parts(parts: Sequence[object], where: str) -> str:
    """The text of content parts [{"type": "text", "text": ...}]."""
    texts = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if not isinstance(part, Mapping) or kind != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f"{where}: a message has a part of type {kind!r:.40}, and only text is trained: "
                             "leave such rows out.")
        texts.append(part["text"])
    return "".join(texts)


def _tool_calls(calls: object, where: str) -> list[DataRow]:
    """OpenAI's tool calls, {"function": {"name", "arguments"}}; arguments in JSON text become an object."""
    def read(call: object) -> DataRow:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping) or not isinstance(
                function.get("name"), str):
            raise ValueError(f"{where}: {json.dumps(call, default=str)[:80]} is not a tool call: expected "
                             '{"type": "function", "function": {"name", "arguments"}}.')
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = parse_json_bytes(arguments.encode() or b"{}")
            except ValueError as error:
                raise ValueError(f"{where}: the arguments of the call of {function['name']} are not JSON: "
                                 f"{error_text(error)}.") from None
        return {**call, "function": {**function, "arguments": {} if arguments is None else arguments}}

    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ValueError(f"{where}: tool_calls must be a list, not {calls!r:.40}.")
    return [read(call) for call in calls]


def read_tools(value: object, where: str) -> tuple[DataRow, ...]:
    """The column "tools": a list of JSON schemas, or that list as JSON text."""
    if isinstance(value, str):
        try:
            value = parse_json_bytes(value.encode() or b"[]")
        except ValueError as error:
            raise ValueError(f"{where}: tools are not JSON: {error_text(error)}.") from None
    if value is None:
        return ()
    if not isinstance(value, Sequence) or not all(isinstance(tool, Mapping) for tool in value):
        raise ValueError(f"{where}: tools must be a list of JSON schemas, not {value!r:.40}.")
    return tuple(dict(tool) for tool in value)


def refuse_columns(row: DataRow, where: str) -> None:
    """Raises for columns that would change what is trained, and are not supported."""
    for name in ("images", "image", "audio", "audios", "videos", "video"):
        if row.get(name):
            raise ValueError(f"{where}: the column {name!r} is not empty, and only text is trained: leave "
                             "such rows out.")
    for name in ("chat_template_kwargs", "history"):
        if row.get(name):
            raise ValueError(f"{where}: the column {name!r} is not supported: write what it says into the "
                             "messages, or leave it out.")


def gather_rows(source: Source, read: Callable[[str, str, DataRow], list[RecordT]],
                bad: BadRows | None = None) -> Sequence[RecordT]:
    """The records of read(number, where, row) of each row, at least one; many of them are on disk. bad:
    collects the bad rows."""
    bad, records = bad or BadRows(), DiskList[RecordT]()
    for number, where, parse in unread_rows(source):
        with bad.row():
            for record in read(number, where, parse()):
                records.append(record)
    bad.settle(source_name(source))
    if not records:
        raise ValueError(f"{source_name(source)} has no rows: give at least one.")
    return records.as_list()


def read_conversations(source: Source, bad: BadRows | None = None) -> Sequence[Conversation]:
    """Rows of one of these forms:

    {"messages": [...]} or ShareGPT's {"conversations": [{"from", "value"}, ...]}
    {"prompt", "completion"}: texts or lists of messages; the completion alone is trained
    Alpaca's {"instruction", "input"?, "output"}
    {"text"}: trained whole, its control tokens trusted
    Optional: "tools" (with messages), "system", "label", "id".
    """
    bad = bad or BadRows()
    return records_of_kind(source, Conversation) or gather_rows(
        source, partial(_conversation, form=bad.understood), bad)


def _conversation(number: str, where: str, row: DataRow, *, form: Understood) -> list[Conversation]:
    refuse_columns(row, where)
    name, columns, messages = conversation_form(row, where)
    text = row["text"] if name == "text" else ""
    if row.get("system") is not None and name != "text":
        columns += ("system",)
        if not isinstance(row["system"], str):
            raise ValueError(f"{where}: system must be a text, this is {type(row['system']).__name__}.")
        if messages[0]["role"] != "system" and row["system"]:
            messages = ({"role": "system", "content": row["system"]}, *messages)
    if not text and not any(is_trained(m) for m in messages):
        raise ValueError(f"{where}: no assistant message with text, so there is nothing to imitate.")
    if row.get("label") not in (None, True, False):
        raise ValueError(f"{where}: label is {json.dumps(row['label'])[:40]}; it must be true, "
                         "false or left out.")
    tools = read_tools(row.get("tools"), where)
    form.add(name, row, (*columns, "id", "label", "tools"), len(messages), *remarks_on(row, columns))
    return [Conversation(id=str(row.get("id", number)), messages=messages, label=row.get("label"),
                         tools=tools, text=text, where=where)]


def remarks_on(row: DataRow, columns: Sequence[str]) -> Iterator[str]:
    """What is trained otherwise than a reader of the row may think."""
    completion = row["completion"] if "completion" in columns else None
    if isinstance(completion, list) and len(completion) > 1:
        yield "of a completion of several messages the assistant's are trained"
    messages = [m for name in columns if isinstance(row.get(name), list) for m in row[name]]
    calls = [call.get("function", call) for m in messages for call in m.get("tool_calls") or ()]
    if any(isinstance(call.get("arguments"), str) for call in calls):
        yield "the arguments of tool calls are JSON texts, which the template gets as objects"


def is_trained(message: Message) -> bool:
    """Whether an assistant's message has tokens to train."""
    return message["role"] == "assistant" and message.get("weight") != 0 and bool(
        message["content"] or message.get("tool_calls") or message.get("reasoning_content"))


def conversation_form(row: DataRow, where: str) -> tuple[str, tuple[str, ...], tuple[Message, ...]]:
    """The form of a row, its columns, and its messages."""
    def has(*names: str) -> bool:
        return all(row.get(name) is not None for name in names)

    if has("messages") or ("messages" in row and "prompt" not in row):
        return "messages", ("messages",), read_messages(row["messages"], where)
    if has("conversations"):
        return "conversations", ("conversations",), read_messages(row["conversations"], where)
    if all(isinstance(row.get(name), str | list) for name in ("prompt", "completion")):
        prompt, completion = (_turns(row[name], role, where)
                              for name, role in (("prompt", "user"), ("completion", "assistant")))
        texts = isinstance(row["prompt"], str) and isinstance(row["completion"], str)
        return ("prompt and completion" + (" as texts (a user's and an assistant's turn)" if texts else ""),
                ("prompt", "completion"), (*without_training(prompt), *completion))
    if all(isinstance(row.get(name), str) for name in ("instruction", "output")):
        asked = "\n".join(text for text in (row["instruction"], row.get("input")) if text)
        return ("Alpaca (instruction and input, a line each, are the user's turn)",
                ("instruction", "input", "output"),
                (*_turns(asked, "user", where), *_turns(row["output"], "assistant", where)))
    if isinstance(row.get("text"), str) and row["text"]:
        return "text", ("text",), ()
    raise ValueError(f"{where}: expected 'messages', 'conversations', 'prompt' and 'completion', "
                     f"'instruction' and 'output', or 'text'; found {found_columns(row)}"
                     f"{meant_for(row, 'conversations')}.")


def found_columns(row: Mapping[str, object]) -> str:
    """The columns of a row, for messages: "completion; null: prompt"."""
    filled, null = (sorted(name for name, value in row.items() if (value is None) is empty)
                    for empty in (False, True))
    return (", ".join(filled) or "nothing") + (f"; null: {', '.join(null)}" if null else "")


def row_kind(row: Mapping[str, object]) -> str:
    """What a row is for, by its columns: one of USES; "" where they do not tell."""
    if row.keys() & {"chosen", "rejected", "answers"}:
        return "pairs"
    if "label" in row and row.keys() & {"completion", "messages"}:
        return "labelled"
    messages = row.get("messages") or row.get("conversations")
    if row.keys() & {"completion", "output", "text"} or isinstance(messages, list) and messages and (
            isinstance(messages[-1], Mapping)
            and messages[-1].get("role", messages[-1].get("from")) in ("assistant", "gpt", "chatgpt")):
        return "conversations"
    return "prompts" if any(row.get(name) is not None for name in ("prompt", "messages", "question")) else ""


def meant_for(row: Mapping[str, object], kind: str) -> str:
    """": it is one of pairs, for dpo, reward and their kin", where a row is not for `kind`."""
    if row.keys() & {"input_ids", "prompt_ids", "chosen_ids"}:
        return ": these are tokens, and rows are tokenized here, so give their texts"
    other = row_kind(row)
    return f": it is one of {other}, for {USES[other]}" if other not in ("", kind) else ""


def _turns(value: str | list[object], role: str, where: str) -> tuple[Message, ...]:
    return ({"role": role, "content": value},) if isinstance(value, str) else read_messages(value, where)


@dataclass
class Understood:
    """What was understood of the rows: forms, turns, columns used and ignored, remarks; each with a count.
    unused: what becomes of the other columns."""

    forms: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    unused: str = "ignored"

    def add(self, form: str, row: Mapping[str, object], columns: Sequence[str], turns: int,
            *remarks: str) -> None:
        self.forms[form] += 1
        self.turns += turns
        filled = [name for name, value in row.items() if value is not None]
        self.used.update(name for name in filled if name in columns)
        self.ignored.update(name for name in filled if name not in columns)
        self.remarks.update(remarks)

    def note(self, name: str) -> tuple[str, ...]:
        """One line: "chats.jsonl: 3 rows of messages (7 turns); columns used: messages; ignored: source"."""
        if not self.forms:
            return ()
        forms = ", ".join(f"{count:,} rows of {form}" for form, count in self.forms.items())
        turns = f" ({self.turns:,} turns)" if self.turns else ""
        trusted = ("; texts are trained whole, and control tokens in them are trusted",
                   ) if "text" in self.forms else ()
        ignored = f"; {self.unused}: {', '.join(self.ignored)}" if self.ignored else ""
        remarks = (f"; {count:,} rows: {remark}" for remark, count in self.remarks.items())
        return (f"{name}: {forms}{turns}; columns used: {', '.join(self.used)}{ignored}"
                + "".join((*trusted, *remarks)),)


@dataclass
class BadRows:
    """Collects the errors of bad rows, and raises them together.

    bad = BadRows()
    for row in rows:
        with bad.row():
            records.append(read(row))       # a ValueError marks this row as bad
    bad.settle("chats.jsonl")               # raises for all of them
    skip: bad rows are left out instead, and `note` counts them. hint: the remedy, of a run with skip_bad.
    understood: what the good rows are.
    """

    skip: bool = False
    hint: str = ""
    rows: int = 0
    count: int = 0
    first: list[str] = field(default_factory=list)
    understood: Understood = field(default_factory=Understood)

    @classmethod
    def of_run(cls, skip: bool, what: str = "what is bad") -> BadRows:
        """Of a run with the setting skip_bad."""
        return cls(skip=skip, hint=f"Mend {what}")

    @contextmanager
    def row(self, counted: bool = False) -> Iterator[None]:
        """counted: this row was read before, and is checked further."""
        self.rows += not counted
        try:
            yield
        except ValueError as fault:
            self.count += 1
            if len(self.first) < SHOWN:
                self.first.append(str(fault))

    def settle(self, name: str, hint: str = "") -> None:
        """Raises ValueError with the first errors, unless bad rows are skipped. hint: a further remedy."""
        if not self.count or (self.skip and self.count < self.rows):
            return
        spared = ", or leave it out with skip_bad=true" if self.count < self.rows else ""
        advice = " ".join(filter(None, (hint, self.hint and f"{self.hint}{spared}.")))
        hint = f" {advice}" if advice and not self.skip else ""
        if self.count == 1:
            raise ValueError(self.first[0] + hint)
        more = f", the first {SHOWN} of them" if self.count > SHOWN else ""
        listed = "".join(f"\n  {fault}" for fault in alike_once(self.first))
        raise ValueError(f"{name}: {self.count:,} of {self.rows:,} rows are bad{more}:{listed}"
                         + (f"\n{advice}" if hint else ""))

    def note(self, name: str) -> tuple[str, ...]:
        """The message about skipped rows, if any."""
        if not self.count:
            return ()
        return (f"{name}: {self.count:,} of {self.rows:,} rows are bad and left out, the first: "
                f"{self.first[0]}",)

    def notes(self, name: str) -> tuple[str, ...]:
        """What was understood, and what was skipped."""
        return (*self.understood.note(name), *self.note(name))


HAS_PLACE = re.compile(r"[^:]*?\b(?:line|row) \d+(?= has )")


def alike_once(faults: Sequence[str]) -> list[str]:
    """The errors of rows, "PLACE: REASON" or "PLACE has THIS"; of those with one reason the first, and how
    many more."""
    alike: dict[str, list[str]] = {}
    for fault in faults:
        place = HAS_PLACE.match(fault)
        reason = fault[place.end():] if place else fault.partition(": ")[2] or fault
        alike.setdefault(reason, []).append(fault)
    return [same[0] if len(same) == 1 else f"{same[0].rstrip('.')} (and {len(same) - 1} more like it)."
            for same in alike.values()]
