"""The preference store: pairs of answers to be judged, and what each labeller said of them,
in one SQLite file.

A label is on the disk when `label` returns: write-ahead log, synchronous=FULL. Without FULL a killed server
would lose nothing either, but a power cut could take the last labels; a label is a person's work, comes every
few seconds and costs one fsync. Labels are only ever added. What a labeller says of an item is their newest
label that was not undone; so `undo` brings back what stood before. Several threads and several processes may
use one file. No torch here: a page or a terminal opens at once.
Left out on purpose: files (`exchange`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from postgrad.data.items import (
    CHOICES,
    AskedItem,
    Item,
    Label,
    check_labeller,
    label_counts,
    labeller_agreement,
    majority,
    shown_sides,
)

if TYPE_CHECKING:
    from postgrad.records import Pair

OURS, VERSION = 0x706F7374, 2  # SQLite's application_id ("post") and user_version
PATIENCE = 30.0                # seconds to wait while another process writes
SCHEMA = (
    "CREATE TABLE items (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, messages TEXT NOT NULL, a TEXT "
    "NOT NULL, b TEXT NOT NULL, origin TEXT NOT NULL, created REAL NOT NULL, removed INTEGER NOT "
    "NULL DEFAULT 0)",
    "CREATE TABLE labels (id INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES items, labeller TEXT NOT "
    f"NULL, choice TEXT NOT NULL CHECK (choice IN {CHOICES}), made REAL NOT NULL, undone INTEGER NOT "
    "NULL DEFAULT 0)",
    "CREATE INDEX standing ON labels (item, labeller, id, choice) WHERE NOT undone",
    f"PRAGMA application_id = {OURS}",
    f"PRAGMA user_version = {VERSION}",
)
OBJECTS = {("table", "items"), ("table", "labels"), ("index", "standing")}
COLUMNS = {"items": "id uid messages a b origin created removed",
           "labels": "id item labeller choice made undone"}
# what a store of an older version lacks
SINCE = {1: ("ALTER TABLE items ADD COLUMN removed INTEGER NOT NULL DEFAULT 0",)}


class Database:
    """with Store.open("preferences.db") as store: ...; `Store` says what is asked and written."""

    def __init__(self, path: Path, db: sqlite3.Connection):
        self.path, self._db, self._lock = path, db, threading.RLock()

    @classmethod
    def open(cls, path: Path | str, *, create: bool = True) -> Self:
        """The store in this file. Where there is none, a new one, or with create=False a sentence."""
        path = Path(path)
        nothing = (f"there is no store at {path}: make one with `postgrad label import` or "
                   "`postgrad label make`.")
        if not create and not path.is_file():
            raise ValueError(nothing)
        if path.exists() and not path.is_file():
            raise ValueError(f"cannot open a store at {path} (it is no plain file): name a file in a "
                             "folder that exists.")
        store = cls(path, connect_store(path))
        try:
            with store._session("BEGIN") as db:
                version = check_store(db, path)
            if not version and not create:
                raise ValueError(nothing)
            if version != VERSION:
                store._create()
            with store._session() as db:
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            store.close()
            raise
        return store

    def _create(self) -> None:
        """A new file gets the tables, an older version's what it lacks."""
        with self._session("BEGIN EXCLUSIVE") as db:  # of two who come at once the second finds it made
            version = check_store(db, self.path)
            for line in ((*(line for v in range(version, VERSION) for line in SINCE[v]), SCHEMA[-1])
                         if version else SCHEMA):
                db.execute(line)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _session(self, begin: str = "") -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; with `begin`, all that is done goes in as
        one or not at all."""
        with self._lock:
            try:
                if begin:
                    self._db.execute(begin)
                yield self._db
                if begin:
                    self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise ValueError(f"the store {self.path} cannot be used: {error}. May you write there, is "
                                 "the disk full, is another process busy with it?") from error
            finally:
                if begin and self._db.in_transaction:
                    self._db.execute("ROLLBACK")


def connect_store(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise ValueError(f"cannot open a store at {path} ({error}): name a file in a "
                         "folder that exists.") from error


def check_store(db: sqlite3.Connection, path: Path) -> int:
    """The version of the store in the file, 0 where it is new;
    a sentence where it is somebody else's or a newer one's."""
    try:
        owner, version, tables = (db.execute(query).fetchone()[0] for query in
                                  ("PRAGMA application_id", "PRAGMA user_version",
                                   "SELECT count(*) FROM sqlite_master"))
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, unreadable: not the file's contents
            raise
        raise ValueError(f"{path} is no preference store ({error}): name another file.") from error
    if owner == 0 and tables == 0:
        return 0
    if owner != OURS:
        raise ValueError(f"{path} is a database, but no preference store: name another file.")
    if not 1 <= version <= VERSION:
        raise ValueError(f"{path} is a preference store of version {version}; this postgrad reads version "
                         f"{VERSION}: use the postgrad that made it, or export there and import here.")
    check_tables(db, path, version)
    return int(version)


def check_tables(db: sqlite3.Connection, path: Path, version: int) -> None:
    """The tables and the index are those that a store is made with, and there is nothing else: a view or a
    trigger would be somebody else's program, which may never end."""
    there = {(kind, name) for kind, name, text in db.execute("SELECT type, name, sql FROM sqlite_master")
             if text is not None}  # SQLite's own indices have no text
    columns = {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in COLUMNS}
    wanted = {table: set(names.split()) for table, names in COLUMNS.items()}
    if version == 1:
        wanted["items"] -= {"removed"}
    if odd := sorted(there ^ OBJECTS):
        kind, name = odd[0]
        raise ValueError(f"{path} {'has' if odd[0] in there else 'lacks'} the {kind} {name!r:.60}, and is no "
                         "preference store as postgrad makes it: name another file.")
    if columns != wanted:
        raise ValueError(f"{path} has tables of other columns than a preference store: name another file.")


class Store(Database):
    """with Store.open("preferences.db") as store: store.add(items);
    asked = store.next("ann"); store.label(...)"""

    def add(self, items: Sequence[Item], labels: Sequence[Label] = ()) -> dict[str, int]:
        """Adds what is new or was removed, all or nothing.

        A label given otherwise before is not overwritten, but counted.

        {"added", "known"} count items, {"labels", "known_labels", "conflicting"} labels.
        """
        found = Counter({"added": 0, "known": 0, "labels": 0, "known_labels": 0, "conflicting": 0})
        with self._session("BEGIN IMMEDIATE") as db:
            for item in items:
                row = (item.uid, json.dumps(item.messages, ensure_ascii=False), item.a, item.b, item.origin,
                       time.time())
                new = db.execute("INSERT INTO items (uid, messages, a, b, origin, created) VALUES (?, ?, ?, "
                                 "?, ?, ?) ON CONFLICT (uid) DO UPDATE SET removed = 0 WHERE removed",
                                 row).rowcount
                found["added" if new else "known"] += 1
            for label in labels:
                standing = self._standing(db, label)
                if standing is None:
                    self._write(db, label)
                found["labels" if standing is None else "known_labels" if standing == label.choice
                      else "conflicting"] += 1
        return dict(found)

    def label(self, item: str, labeller: str, choice: str) -> None:
        """Writes a label through.

        The labeller's earlier one on the item gives way; the same one again changes nothing.
        """
        label = Label(item=item, labeller=labeller, choice=choice)
        with self._session("BEGIN IMMEDIATE") as db:
            if self._standing(db, label) != choice:
                self._write(db, label)

    def revise(self, item: str, labeller: str, choice: str | None, was: str | None) -> str | None:
        """Writes a label, or takes it back (None), if what stands is still what its author saw (`was`);
        gives what stands then.

        So of two clicks, two tabs or two people on one labeller's judgement the second changes nothing.
        """
        label = Label(item=item, labeller=labeller, choice="skip" if choice is None else choice)
        with self._session("BEGIN IMMEDIATE") as db:
            standing = self._standing(db, label)
            if standing != was or standing == choice:
                return standing
            if choice is None:
                db.execute("UPDATE labels SET undone = 1 WHERE labeller = ? AND NOT undone AND item = "
                           "(SELECT id FROM items WHERE uid = ?)",
                           (labeller, item))
            else:
                self._write(db, label)
        return choice

    def remove(self, item: str, removed: bool = True) -> None:
        """Takes an item out, with all that was said of it, or (removed=False) brings both back."""
        with self._session("BEGIN IMMEDIATE") as db:
            if not db.execute("UPDATE items SET removed = ? WHERE uid = ?", (removed, item)).rowcount:
                raise ValueError(f"the store {self.path} has no item {item!r}.")

    def _standing(self, db: sqlite3.Connection, label: Label) -> str | None:
        row = db.execute("SELECT choice FROM labels JOIN items ON items.id = labels.item WHERE uid = ? AND "
                         "labeller = ? AND NOT undone ORDER BY labels.id DESC LIMIT 1",
                         (label.item, label.labeller)).fetchone()
        return None if row is None else str(row[0])

    def _write(self, db: sqlite3.Connection, label: Label) -> None:
        done = db.execute("INSERT INTO labels (item, labeller, choice, made) SELECT id, ?, ?, ? FROM items "
                          "WHERE uid = ? AND NOT removed",
                          (label.labeller, label.choice, time.time(), label.item))
        if not done.rowcount:
            raise ValueError(f"the store {self.path} has no item {label.item!r}.")

    def next(self, labeller: str) -> AskedItem | None:
        """The next item that this labeller has not seen: those with the fewest judgements first,
        then the oldest."""
        check_labeller(labeller)
        query = ("SELECT uid, messages, a, b, origin FROM items WHERE NOT removed AND NOT EXISTS (SELECT 1 "
                 "FROM labels WHERE item = items.id AND labeller = ? AND NOT undone) ORDER BY (SELECT "
                 "count(DISTINCT labeller) FROM labels WHERE item = items.id AND NOT undone AND choice != "
                 "'skip'), id LIMIT 1")
        return self._asked(query, (labeller,), labeller)

    def left(self, labeller: str) -> int:
        """How many items this labeller has not seen."""
        query = ("SELECT count(*) FROM items WHERE NOT removed AND NOT EXISTS (SELECT 1 FROM labels WHERE "
                 "item = items.id AND labeller = ? AND NOT undone)")
        with self._session() as db:
            return int(db.execute(query, (labeller,)).fetchone()[0])

    def undo(self, labeller: str) -> AskedItem | None:
        """Takes the labeller's newest label back and gives its item, to be asked again;
        None where there is no label."""
        with self._session("BEGIN IMMEDIATE") as db:
            row = db.execute("SELECT labels.id, item FROM labels JOIN items ON items.id = item WHERE "
                             "labeller = ? AND NOT undone AND NOT removed ORDER BY labels.id DESC LIMIT 1",
                             (labeller,)).fetchone()
            if row is None:
                return None
            db.execute("UPDATE labels SET undone = 1 WHERE id = ?", row[:1])
            return self._asked("SELECT uid, messages, a, b, origin FROM items WHERE id = ?", row[1:],
                               labeller)

    def _asked(self, query: str, values: tuple[object, ...], labeller: str) -> AskedItem | None:
        with self._session() as db:
            row = db.execute(query, values).fetchone()
        return row and AskedItem(item=item_of(row), sides=shown_sides(row[0], labeller))

    def asked(self, item: str, labeller: str) -> tuple[AskedItem, str | None]:
        """One item as this labeller sees it, and what they have said of it."""
        found = self._asked("SELECT uid, messages, a, b, origin FROM items WHERE uid = ? AND NOT removed",
                            (item,), labeller)
        if found is None:
            raise ValueError(f"the store {self.path} has no item {item!r}.")
        with self._session() as db:
            return found, self._standing(db, Label(item=item, labeller=labeller, choice="skip"))

    def items(self, start: int = 0, count: int = -1,
              removed: bool = False) -> list[tuple[Item, dict[str, str]]]:
        """Items in the order they came, each with {labeller: choice} as it stands now; -1: all of them."""
        query = ("SELECT uid, messages, a, b, origin, labeller, choice FROM (SELECT * FROM items WHERE "
                 "removed = ? ORDER BY id LIMIT ? OFFSET ?) AS some LEFT JOIN labels ON item = some.id "
                 "AND NOT undone "
                 "ORDER BY some.id, labeller, labels.id")
        out: dict[str, tuple[Item, dict[str, str]]] = {}
        with self._session() as db:
            rows = db.execute(query, (removed, count, start)).fetchall()
        for *row, labeller, choice in rows:
            if row[0] not in out:
                out[row[0]] = item_of(row), {}
            if labeller is not None:
                out[row[0]][1][str(labeller)] = str(choice)  # the newest of a labeller's comes last
        return list(out.values())

    def size(self) -> int:
        """How many items there are."""
        with self._session() as db:
            return int(db.execute("SELECT count(*) FROM items WHERE NOT removed").fetchone()[0])

    def choices(self) -> list[dict[str, str]]:
        """{labeller: choice} of each item that has a label, without the texts:
        what a count needs, in a tenth of the time."""
        out: dict[int, dict[str, str]] = {}
        with self._session() as db:
            rows = db.execute("SELECT item, labeller, choice FROM labels JOIN items ON items.id = item WHERE "
                              "NOT undone AND NOT removed ORDER BY labels.id").fetchall()
        for item, labeller, choice in rows:
            out.setdefault(item, {})[str(labeller)] = str(choice)
        return list(out.values())

    def judged(self, labeller: str | None = None,
               how: str = "majority") -> list[tuple[Item, str, str | None]]:
        """(item, "a", "b" or "tie", whose): one labeller's judgements, everybody's ("all"),
        or one an item ("majority")."""
        if how not in ("majority", "all"):
            raise ValueError(f"how is {how!r}: it is 'majority' (one judgement an item) or 'all' "
                             "(every labeller's).")
        items, out = self.items(), list[tuple[Item, str, str | None]]()
        known = sorted({name for _, said in items for name in said})
        if labeller is not None and labeller not in known:
            raise ValueError(f"{labeller!r} has labelled nothing in {self.path}; labellers: "
                             f"{', '.join(known) or 'none'}.")
        for item, said in items:
            judgements: Sequence[tuple[str | None, str | None]] = (
                [(labeller, said.get(labeller))] if labeller is not None
                else [(None, majority(said.values()))] if how == "majority" else [*said.items()])
            out += [(item, choice, who) for who, choice in judgements if choice in ("a", "b", "tie")]
        return out

    def pairs(self, labeller: str | None = None, how: str = "majority") -> list[Pair]:
        """The judgements as pairs to train on; a tie is half a win each way."""
        from postgrad.data.preferences import split_tie
        from postgrad.records import Pair
        out: list[Pair] = []
        for item, choice, who in self.judged(labeller, how):
            won, lost = (item.b, item.a) if choice == "b" else (item.a, item.b)
            pair = Pair(id=item.uid if who is None else f"{item.uid}/{who}", messages=item.messages,
                        chosen=won, rejected=lost)
            out += split_tie(pair) if choice == "tie" else [pair]
        return out

    def stats(self) -> dict[str, Any]:
        return label_counts(self.items())

    def agreement(self) -> list[dict[str, Any]]:
        return labeller_agreement(self.items())


def item_of(row: Sequence[Any]) -> Item:
    """An item as it lies in the store; one that postgrad did not write raises."""
    uid, messages, a, b, origin = row
    try:
        told = json.loads(messages)
        sound = (bool(told) and all(isinstance(x, str) for x in (uid, a, b, origin))
                 and all(m.keys() == {"role", "content"} and {*map(type, m.values())} == {str} for m in told))
    except (ValueError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(f"the item {uid!r:.40} of the store is no prompt with two answers: something else "
                         "has changed the file, restore it from a copy.")
    return Item(uid=uid, messages=tuple(told), a=a, b=b, origin=origin)
