"""JSONL files as people have them: what can be read is read, and what can't is named with its line."""

import json

import pytest

from postgrad.data.rows import BadRows, read_conversations, read_data_rows
from postgrad.records import Conversation

GOOD = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
LINE = json.dumps(GOOD).encode()


def file_of(tmp_path, content: bytes):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return path


def rows(tmp_path, content: bytes):
    return [(int(number), row) for number, _, row in read_data_rows(file_of(tmp_path, content))]


@pytest.mark.parametrize(("content", "wanted"), [
    (b'{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})]),
    (b'{"a": 1}\n{"a": 2}', [(1, {"a": 1}), (2, {"a": 2})]),
    (b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})]),
    (b'{"a": 1}\r\n{"a": 2}\r\n', [(1, {"a": 1}), (2, {"a": 2})]),
    (b'\n  \n{"a": 1}\n\t\r\n\n {"a": 2} \n\n', [(3, {"a": 1}), (6, {"a": 2})]),
    ('{"a": "数 🙂 é"}\n'.encode(), [(1, {"a": "数 🙂 é"})]),
    (b'{"a": "\\ud83d\\ude42 \\u00e9"}\n', [(1, {"a": "🙂 é"})]),
    ('{"a": "one\u2028line\u0085still"}\n'.encode(), [(1, {"a": "one\u2028line\u0085still"})]),
    (b"", []), (b"\n\n", []),
], ids=["plain", "no last newline", "BOM", "CRLF", "blank lines", "unicode", "escapes", "separators", "empty",
        "blank"])
def test_what_can_be_read(content, wanted, tmp_path):
    assert rows(tmp_path, content) == wanted


@pytest.mark.parametrize(("content", "words"), [
    (b'{"a": 1}\n{"a": "\xff\xfe"}\n', "line 2 is not JSON in UTF-8: 'utf-8' codec can't decode"),
    ('{"a": "é"}\n'.encode("latin-1"), "line 1 is not JSON in UTF-8"),
    ('{"a": 1}\n'.encode("utf-16"), "is text in UTF-16: expected JSONL"),
    (b'{"a": 1}\n\n{"a": 2', "line 3 is not JSON in UTF-8"),
    (b'{"a": 1}\nhello\n', "line 2 is not JSON in UTF-8"),
    (b"{'a': 1}\n", "line 1 is not JSON in UTF-8"),
    (b'{"a": 1} {"a": 2}\n', "line 1 is not JSON in UTF-8: Extra data"),
    (b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n', "line 2 is not JSON in UTF-8"),
    (b'{"a": "\\ud83d"}\n', "line 1 is not JSON in UTF-8"),
    (b'{"a": 1, "a": 2}\n', "line 1 is not JSON in UTF-8: the field 'a' stands twice"),
    (b'{"a": NaN}\n', "line 1 is not JSON in UTF-8: NaN is no JSON number"),
    (b'{"a": ' + b"9" * 5000 + b"}\n", "line 1 is not JSON in UTF-8"),
    (b'{"a": ' + b"[" * 200_000 + b"\n", "line 1 is not JSON in UTF-8"),
    (b"[1, 2]\n", r"line 1 is a list; each line must be an object in braces"),
    (b'"text"\n', "line 1 is a str;"), (b"null\n", "line 1 is a NoneType;"),
    (b"\x00\x01\x02\n", "is a binary file, with a NUL byte in line 1: expected JSONL"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", "is a binary file: expected JSONL"),
    (b'{"a": 1}\n\x00\x00\n', "line 2 is not JSON in UTF-8"),
], ids=["bad UTF-8", "latin-1", "UTF-16", "truncated", "no JSON", "quotes", "two objects", "BOM inside",
        "half a pair", "a field twice", "NaN", "long number", "deep", "list", "string", "null", "binary",
        "picture", "NUL"])
def test_what_cannot_be_read_is_named_with_its_line(content, words, tmp_path):
    with pytest.raises(ValueError, match=f"rows.jsonl {words}"):
        rows(tmp_path, content)


def test_a_fault_comes_after_the_good_rows(tmp_path):
    lines = read_data_rows(file_of(tmp_path, b'{"a": 1}\nbroken\n'))
    assert next(lines) == ("1", f"{tmp_path / 'rows.jsonl'} line 1", {"a": 1})
    with pytest.raises(ValueError, match="line 2"):
        next(lines)


def test_no_file(tmp_path):
    for path, words in ((tmp_path / "gone.jsonl", "there is no file .*: give the path of a JSONL file"),
                        (tmp_path, "is a folder: give the path of a file in it")):
        with pytest.raises(ValueError, match=words):
            list(read_data_rows(path))


def test_conversations_in_both_forms(tmp_path):
    system = {"role": "system", "content": "Be brief."}
    third = {"messages": [system, *GOOD["messages"]], "id": 17, "label": True, "source": "web"}
    lines = [json.dumps(x).encode()
             for x in (GOOD, {"prompt": "2+3?", "completion": "5", "label": False}, third)]
    found = read_conversations(file_of(tmp_path, b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines)))
    hello = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"})
    assert found == [
        Conversation(id="1", messages=hello),
        Conversation(id="3", messages=(user("2+3?"), {"role": "assistant", "content": "5"}), label=False),
        Conversation(id="17", messages=(system, *hello), label=True),
    ]


def user(content):
    return {"role": "user", "content": content}


@pytest.mark.parametrize(("row", "words"), [
    ({}, "expected 'messages', .* or 'text'; found nothing"),
    ({"texts": "x", "answer": 1}, "found answer, texts"),
    ({"prompt": "x"}, "found prompt"), ({"prompt": "x", "completion": 5}, "found completion, prompt"),
    ({"messages": []}, "must be a list"), ({"messages": "hi"}, "must be a list"),
    ({"messages": None}, "must be a list"),
    ({"messages": {"role": "user", "content": "x"}}, "messages must be a list"),
    ({"messages": ["hi"]}, '"hi" is not a message'),
    ({"messages": [user(None)]}, "is not a message: role must be one of system"),
    ({"messages": [user([{"type": "image"}])]}, "a message has a part of type 'image'"),
    ({"messages": [{"role": "robot", "content": "x"}]}, r'"robot".*is not a message'),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "is not a message"),
    ({"messages": [{"content": "x"}]}, "is not a message"),
    ({"messages": [{"role": "user"}]}, "is not a message"),
    ({"messages": [user("x")]}, "no assistant message with text, so there is nothing to imitate"),
    ({"messages": [user("x"), {"role": "assistant", "content": ""}]}, "no assistant message with text"),
    ({"prompt": "x", "completion": ""}, "no assistant message with text"),
    (GOOD | {"label": "yes"}, 'label is "yes"; it must be true, false or left out'),
])
def test_a_row_that_is_no_conversation(row, words, tmp_path):
    path = file_of(tmp_path, LINE + b"\n" + json.dumps(row).encode() + b"\n")
    with pytest.raises(ValueError, match=f"rows.jsonl line 2: .*{words}"):
        read_conversations(path)


def test_a_file_without_rows(tmp_path):
    for content in (b"", b"\n \r\n"):
        with pytest.raises(ValueError, match="rows.jsonl has no rows"):
            read_conversations(file_of(tmp_path, content))


def test_what_is_trained_otherwise_than_it_reads_is_said():
    turns = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},
             {"role": "assistant", "content": "c"}]
    call = {"function": {"name": "add", "arguments": "{\"a\": 1}"}}
    asked = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    bad = BadRows()
    read_conversations([{"prompt": "q", "completion": turns}, {"messages": asked},
                        {"prompt": "q", "completion": "a"}], bad)
    (line,) = bad.understood.note("data")
    assert line.endswith("; 1 rows: of a completion of several messages the assistant's are trained; 1 rows: "
                         "the arguments of tool calls are JSON texts, which the template gets as objects")
