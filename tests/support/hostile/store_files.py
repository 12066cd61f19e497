"""Preference stores that postgrad did not make so: triggers, views without an end, rows of other kinds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.drive import Case, Place
from hostile.run_files import DEEP, endless, foldered, piped, sparse, written

from postgrad.data.store import SCHEMA

STATS, TAKE = (
    ("label", "stats", "--store", "bad.db"),
    ("label", "export", "--store", "bad.db", "--out", "x.jsonl"),
)


def store(lines: tuple[str, ...], inside: Path, _, schema: tuple[str, ...] = SCHEMA) -> None:
    with sqlite3.connect(inside / "bad.db", isolation_level=None) as db:
        for line in (*schema, *lines):
            db.execute(line)
    db.close()


OWN = SCHEMA[-2:]
ITEM = "INSERT INTO items (uid, messages, a, b, origin, created) VALUES ({}, {}, 'x', 'y', '', 0)"
GOOD = ITEM.format("'u'", '\'[{"role": "user", "content": "q"}]\'')
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
VIEW = (
    f"CREATE VIEW items AS {ENDLESS} x AS id, 'u' AS uid, '[]' AS messages, 'a' AS a, 'b' AS b, "
    "'' AS origin, "
    "0.0 AS created, 0 AS removed FROM n"
)
LABELS = (
    f"CREATE VIEW labels AS {ENDLESS} x AS id, 1 AS item, 'ann' AS labeller, 'a' AS choice, 0.0 AS made, "
    "0 AS undone FROM n"
)


def stores() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    trigger = "CREATE TRIGGER t AFTER INSERT ON {} BEGIN {}; END"
    more = {
        "a trigger that deletes": (trigger.format("items", "DELETE FROM labels"),),
        "a trigger without an end": (
            trigger.format(
                "items", f"INSERT INTO labels (item, labeller, choice, made) {ENDLESS} 1, 'a', 'a', x FROM n"
            ),
        ),
        "a trigger on labels": (trigger.format("labels", "UPDATE items SET removed = 1"),),
        "one more table": ("CREATE TABLE other (x)",),
        "one more view": (f"CREATE VIEW v AS {ENDLESS} x FROM n",),
        "an index on a function": ("CREATE INDEX odd ON items (abs(length(a)))",),
        "messages that are no JSON": (ITEM.format("'u'", "'x'"),),
        "messages of brackets": (ITEM.format("'u'", f"'{DEEP}'"),),
        "messages of numbers": (ITEM.format("'u'", "'[1, 2]'"),),
        "messages of bytes": (ITEM.format("'u'", "x'ff00'"),),
        "messages of an object": (ITEM.format("'u'", "'{}'"),),
        "messages of other roles": (ITEM.format("'u'", '\'[{"role": 1, "content": []}]\''),),
        "a name of bytes": (ITEM.format("x'ff'", "'[]'"),),
        "a labeller of bytes": (
            GOOD,
            "INSERT INTO labels (item, labeller, choice, made) VALUES (1, x'ff', 'a', 0), (1, 'ann', 'a', 0)",
        ),
        "an unknown choice": (
            GOOD,
            "PRAGMA ignore_check_constraints = 1",
            "INSERT INTO labels (item, labeller, choice, made) VALUES (1, 'ann', 'zzz', 0)",
        ),
        "a text that is no text": (ITEM.format("'u'", "CAST(x'fffe' AS TEXT)"),),
        "another owner": ("PRAGMA application_id = 5",),
        "a version of 2^31": ("PRAGMA user_version = 2147483647",),
        "version 0": ("PRAGMA user_version = 0",),
        "a negative version": ("PRAGMA user_version = -1",),
        "version 1 with all columns": ("PRAGMA user_version = 1",),
    }
    for at, (what, lines) in enumerate(more.items()):
        for words in (
            STATS,
            TAKE,
            ("label", "import", "good.jsonl", "--store", "bad.db", "--labeller", "bo"),
            ("label", "ask", "--store", "bad.db", "--labeller", "ann"),
        )[at % 2 :: 2]:
            yield f"a store with {what}", partial(with_rows, lines), words
    for what, schema in {
        "items without an end": (VIEW, SCHEMA[1], *OWN),
        "labels without an end": (SCHEMA[0], LABELS, *OWN),
        "no tables": OWN,
        "tables of other columns": ("CREATE TABLE items (x)", "CREATE TABLE labels (y)", *OWN),
        "a virtual table": ("CREATE VIRTUAL TABLE items USING fts5(uid, messages)", *OWN),
    }.items():
        for words in (STATS, TAKE):
            yield f"a store of {what}", partial(with_rows, (), schema=schema), words
    for what, data in {
        "text": b"x" * 5000,
        "a header": b"SQLite format 3\0",
        "a header and zeros": b"SQLite format 3\0" + b"\0" * 8000,
    }.items():
        yield f"a store of {what}", partial(written, "bad.db", data), STATS
    yield "a store with a torn page", torn, TAKE
    for kind, change in (
        ("endless", endless),
        ("a pipe", piped),
        ("a terabyte", sparse),
        ("a folder", foldered),
    ):
        yield f"a store that is {kind}", partial(change, "bad.db"), STATS


def with_rows(lines: tuple[str, ...], inside: Path, at: Place, schema: tuple[str, ...] = SCHEMA) -> None:
    store(lines, inside, at, schema)
    (inside / "good.jsonl").write_text('{"prompt": "q", "chosen": "a", "rejected": "b"}\n')


def torn(inside: Path, at: Place) -> None:
    store((GOOD,), inside, at)
    data = bytearray((inside / "bad.db").read_bytes())
    data[4096:4296] = b"\xff" * 200
    (inside / "bad.db").write_bytes(data)


def cases() -> Iterator[Case]:
    for what, change, words in stores():
        yield Case(
            f"store: {what} ({' '.join(words[:2])})", lambda at, change=change: change(at.inside, at), words
        )
