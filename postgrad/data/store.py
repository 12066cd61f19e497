"""The preference store: pairs of answers to judge, and each labeller's labels, in one SQLite file.

A label is on disk when `label` returns: write-ahead log, synchronous=FULL. FULL costs one fsync a label and
survives a power cut. Labels are only added; a labeller's choice on an item is their newest label that was not
undone. Several threads and processes may use one file. No torch, so that a page or a terminal opens at once.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from postgrad.maths.agreement import cohen_kappa

if TYPE_CHECKING:
    from postgrad.records import Message, Pair

CHOICES = ("a", "b", "tie", "skip")
OURS, VERSION = 0x706F7374, 3  # SQLite's application_id ("post") and user_version
PATIENCE = 30.0                # seconds to wait for another process
SCHEMA = (
    "CREATE TABLE items (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, messages TEXT NOT NULL, a TEXT "
    "NOT NULL, b TEXT NOT NULL, origin TEXT NOT NULL, created REAL NOT NULL, removed INTEGER NOT "
    "NULL DEFAULT 0, sum INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE labels (id INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES items, labeller TEXT NOT "
    f"NULL, choice TEXT NOT NULL CHECK (choice IN {CHOICES}), made REAL NOT NULL, undone INTEGER NOT "
    "NULL DEFAULT 0, sum INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX standing ON labels (item, labeller, id, choice) WHERE NOT undone",
    "CREATE TABLE sums (name TEXT PRIMARY KEY, rows INTEGER NOT NULL)",
    "INSERT INTO sums VALUES ('items', 0), ('labels', 0)",
    f"PRAGMA application_id = {OURS}",
    f"PRAGMA user_version = {VERSION}",
)
CHECKED = set[tuple[int, ...]]()  # files as this process has checked them
OBJECTS = {("table", "items"), ("table", "labels"), ("index", "standing"), ("table", "sums")}
COLUMNS = {"items": "id uid messages a b origin created removed sum",
           "labels": "id item labeller choice made undone sum", "sums": "name rows"}
# of each row, the sum of what it says: a bit of the file that changes by itself is noticed
SUMMED = {table: ", ".join(name for name in names.split() if name != "sum")
          for table, names in COLUMNS.items() if table != "sums"}
RESUM = {table: f"UPDATE {table} SET sum = row_sum({names})" for table, names in SUMMED.items()}
# upgrades, by version
SINCE = {1: ("ALTER TABLE items ADD COLUMN removed INTEGER NOT NULL DEFAULT 0",),
         2: (*(f"ALTER TABLE {table} ADD COLUMN sum INTEGER NOT NULL DEFAULT 0" for table in SUMMED),
             *RESUM.values(), SCHEMA[3],
             *(f"INSERT INTO sums SELECT '{table}', count(*) FROM {table}" for table in SUMMED))}


def row_sum(*values: object) -> int:
    return zlib.crc32(repr(values).encode("utf-8", "surrogatepass"))


def digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Item:
    """Two answers to one prompt. `Item.of` names them a and b by a hash.

    So the same two answers in either order have one uid, and a labeller who is always right does not always
    choose "a", which would make kappa meaningless.
    """

    uid: str
    messages: tuple[Message, ...]
    a: str
    b: str
    origin: str = ""

    @classmethod
    def of(cls, messages: Sequence[Message], answers: Collection[str], origin: str = "") -> Item:
        if len(set(answers)) != 2 or not all(text.strip() for text in answers):
            raise ValueError("an item is two different answers, neither empty; there are "
                             f"{[text[:40] for text in answers]}.")
        if not messages:
            raise ValueError("an item needs a prompt: give at least one message.")
        ask = json.dumps([[m["role"], m["content"]] for m in messages])
        a, b = sorted(answers, key=lambda text: digest(ask, text))
        plain = tuple({"role": m["role"], "content": m["content"]} for m in messages)
        return cls(uid=digest(ask, a, b)[:16], messages=plain, a=a, b=b, origin=origin)


def check_labeller(name: str, where: str = "") -> None:
    if not name or name != name.strip() or len(name) > 100 or not name.isprintable():
        raise ValueError(f"{where}{name[:40]!r} cannot name a labeller: 1 to 100 printable characters, no "
                         "space at the ends.")


@dataclass(frozen=True, kw_only=True)
class Label:
    """A labeller's choice on an item: "a", "b", "tie", or "skip" (not judged, not asked again)."""

    item: str
    labeller: str
    choice: str

    def __post_init__(self) -> None:
        check_labeller(self.labeller)
        if self.choice not in CHOICES:
            raise ValueError(f"there is no choice {self.choice!r}: it is one of {', '.join(CHOICES)}.")


@dataclass(frozen=True, kw_only=True)
class AskedItem:
    """An item as one labeller sees it: sides[0] is the choice of the answer shown first."""

    item: Item
    sides: tuple[str, str]

    @property
    def answers(self) -> tuple[str, str]:
        return getattr(self.item, self.sides[0]), getattr(self.item, self.sides[1])


def shown_sides(uid: str, labeller: str) -> tuple[str, str]:
    """The order of the answers, random over items and labellers, so that a position bias averages out."""
    return ("a", "b") if int(digest(uid, labeller), 16) % 2 else ("b", "a")


def majority(choices: Collection[str]) -> str | None:
    """The choice of more than half of those who judged, else "tie"; None if all skipped."""
    judged = [choice for choice in choices if choice != "skip"]
    if not judged:
        return None
    choice, count = Counter(judged).most_common(1)[0]
    return choice if 2 * count > len(judged) else "tie"


def label_counts(items: Sequence[tuple[object, Mapping[str, str]]]) -> dict[str, Any]:
    """Counts of items (judged, contradicted) and of labels by choice and labeller."""
    labels = [(who, choice) for _, choices in items for who, choice in choices.items()]
    total, by = Counter(choice for _, choice in labels), Counter(labels)
    return {"items": len(items),
            "judged": sum(majority(choices.values()) is not None for _, choices in items),
            "contradicted": sum({"a", "b"} <= set(choices.values()) for _, choices in items),
            "labels": len(labels),
            "choices": {c: total[c] for c in CHOICES},
            "labellers": {who: {c: by[who, c] for c in CHOICES}
                          for who in sorted({who for who, _ in labels})}}


def labeller_agreement(items: Sequence[tuple[object, Mapping[str, str]]]) -> list[dict[str, Any]]:
    """Cohen's kappa of each two labellers on the items that both judged; "tie" is a third answer.

    kappa is None with fewer than two such items, or if chance explains everything.
    """
    judged = [{who: choice for who, choice in choices.items() if choice != "skip"} for _, choices in items]
    out = []
    for x, y in combinations(sorted({who for choices in judged for who in choices}), 2):
        both = [(choices[x], choices[y]) for choices in judged if x in choices and y in choices]
        out.append({"labellers": [x, y], "items": len(both), "agreed": sum(p == q for p, q in both),
                    "kappa": cohen_kappa(*zip(*both, strict=True)) if len(both) > 1 else None})
    return out


class Store:
    """with Store.open("preferences.db") as store: store.add(items); asked = store.next("ann");
    store.label(...)"""

    def __init__(self, path: Path, db: sqlite3.Connection):
        self.path, self._db, self._lock = path, db, threading.RLock()

    @classmethod
    def open(cls, path: Path | str, *, create: bool = True) -> Self:
        """Opens the store in this file. Without one, creates it, or with create=False raises ValueError."""
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
            found = path.stat()
            state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
            if state not in CHECKED:  # a page of the studio opens the store anew
                with store._session("BEGIN") as db:
                    check_sums(db, path)
                CHECKED.add(state)
            with store._session() as db:
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            store.close()
            raise
        return store

    def _create(self) -> None:
        """Creates the tables, or upgrades those of an older version."""
        with self._session("BEGIN EXCLUSIVE") as db:  # of two processes the second finds the tables
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
        """The connection, for one thread at a time; with `begin`, a transaction."""
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

    def add(self, items: Sequence[Item], labels: Sequence[Label] = ()) -> dict[str, int]:
        """Adds items that are new or were removed, all or nothing. A label that conflicts with an earlier one
        is counted, not written. -> counts of items {"added", "known"} and labels {"labels", "known_labels",
        "conflicting"}."""
        counts = Counter({"added": 0, "known": 0, "labels": 0, "known_labels": 0, "conflicting": 0})
        with self._session("BEGIN IMMEDIATE") as db:
            for item in items:
                row = (item.uid, json.dumps(item.messages, ensure_ascii=False), item.a, item.b, item.origin,
                       time.time())
                new = db.execute("INSERT INTO items (uid, messages, a, b, origin, created) VALUES (?, ?, ?, "
                                 "?, ?, ?) ON CONFLICT (uid) DO UPDATE SET removed = 0 WHERE removed",
                                 row).rowcount
                if new:
                    resum(db, "items", "uid = ?", item.uid)
                counts["added" if new else "known"] += 1
            for label in labels:
                standing = self._standing(db, label)
                if standing is None:
                    self._write(db, label)
                counts["labels" if standing is None else "known_labels" if standing == label.choice
                       else "conflicting"] += 1
        return dict(counts)

    def label(self, item: str, labeller: str, choice: str) -> None:
        """Writes a label; it supersedes the labeller's earlier one on the item."""
        label = Label(item=item, labeller=labeller, choice=choice)
        with self._session("BEGIN IMMEDIATE") as db:
            if self._standing(db, label) != choice:
                self._write(db, label)

    def revise(self, item: str, labeller: str, choice: str | None, was: str | None) -> str | None:
        """Compare-and-swap: writes a label, or withdraws it (None), if the present one is `was`. -> the label
        afterwards. So of two concurrent edits of one judgement the second changes nothing."""
        label = Label(item=item, labeller=labeller, choice="skip" if choice is None else choice)
        with self._session("BEGIN IMMEDIATE") as db:
            standing = self._standing(db, label)
            if standing != was or standing == choice:
                return standing
            if choice is None:
                mine = "labeller = ? AND item = (SELECT id FROM items WHERE uid = ?)"
                db.execute(f"UPDATE labels SET undone = 1 WHERE NOT undone AND {mine}", (labeller, item))
                resum(db, "labels", mine, labeller, item)
            else:
                self._write(db, label)
        return choice

    def remove(self, item: str, removed: bool = True) -> None:
        """Removes an item with its labels, or with removed=False restores both."""
        with self._session("BEGIN IMMEDIATE") as db:
            if not db.execute("UPDATE items SET removed = ? WHERE uid = ?", (removed, item)).rowcount:
                raise ValueError(f"the store {self.path} has no item {item!r}.")
            resum(db, "items", "uid = ?", item)

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
        resum(db, "labels", "id = ?", done.lastrowid)

    def next(self, labeller: str) -> AskedItem | None:
        """An item that this labeller has not seen: with the fewest judgements, then the oldest."""
        check_labeller(labeller)
        query = ("SELECT uid, messages, a, b, origin FROM items WHERE NOT removed AND NOT EXISTS (SELECT 1 "
                 "FROM labels WHERE item = items.id AND labeller = ? AND NOT undone) ORDER BY (SELECT "
                 "count(DISTINCT labeller) FROM labels WHERE item = items.id AND NOT undone AND choice != "
                 "'skip'), id LIMIT 1")
        return self._asked(query, (labeller,), labeller)

    def left(self, labeller: str) -> int:
        """The number of items that this labeller has not seen."""
        query = ("SELECT count(*) FROM items WHERE NOT removed AND NOT EXISTS (SELECT 1 FROM labels WHERE "
                 "item = items.id AND labeller = ? AND NOT undone)")
        with self._session() as db:
            return int(db.execute(query, (labeller,)).fetchone()[0])

    def undo(self, labeller: str) -> AskedItem | None:
        """Withdraws the labeller's newest label. -> its item, or None without a label."""
        with self._session("BEGIN IMMEDIATE") as db:
            row = db.execute("SELECT labels.id, item FROM labels JOIN items ON items.id = item WHERE "
                             "labeller = ? AND NOT undone AND NOT removed ORDER BY labels.id DESC LIMIT 1",
                             (labeller,)).fetchone()
            if row is None:
                return None
            db.execute("UPDATE labels SET undone = 1 WHERE id = ?", row[:1])
            resum(db, "labels", "id = ?", row[0])
            return self._asked("SELECT uid, messages, a, b, origin FROM items WHERE id = ?", row[1:],
                               labeller)

    def _asked(self, query: str, values: tuple[object, ...], labeller: str) -> AskedItem | None:
        with self._session() as db:
            row = db.execute(query, values).fetchone()
        return row and AskedItem(item=item_of(row), sides=shown_sides(row[0], labeller))

    def asked(self, item: str, labeller: str) -> tuple[AskedItem, str | None]:
        """One item as this labeller sees it, and their choice on it."""
        asked = self._asked("SELECT uid, messages, a, b, origin FROM items WHERE uid = ? AND NOT removed",
                            (item,), labeller)
        if asked is None:
            raise ValueError(f"the store {self.path} has no item {item!r}.")
        with self._session() as db:
            return asked, self._standing(db, Label(item=item, labeller=labeller, choice="skip"))

    def items(self, start: int = 0, count: int = -1,
              removed: bool = False) -> list[tuple[Item, dict[str, str]]]:
        """Items in order of arrival, each with {labeller: choice}; count -1: all."""
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
        with self._session() as db:
            return int(db.execute("SELECT count(*) FROM items WHERE NOT removed").fetchone()[0])

    def choices(self) -> list[dict[str, str]]:
        """{labeller: choice} of each labelled item, without the texts: ten times as fast as `items`."""
        out: dict[int, dict[str, str]] = {}
        with self._session() as db:
            rows = db.execute("SELECT item, labeller, choice FROM labels JOIN items ON items.id = item WHERE "
                              "NOT undone AND NOT removed ORDER BY labels.id").fetchall()
        for item, labeller, choice in rows:
            out.setdefault(item, {})[str(labeller)] = str(choice)
        return list(out.values())

    def judged(self, labeller: str | None = None,
               how: str = "majority") -> list[tuple[Item, str, str | None]]:
        """(item, "a", "b" or "tie", labeller): one labeller's judgements, all of them, or the majority's."""
        if how not in ("majority", "all"):
            raise ValueError(f"how is {how!r}: it is 'majority' (one judgement an item) or 'all' "
                             "(every labeller's).")
        items, out = self.items(), list[tuple[Item, str, str | None]]()
        known = sorted({name for _, choices in items for name in choices})
        if labeller is not None and labeller not in known:
            raise ValueError(f"{labeller!r} has labelled nothing in {self.path}; labellers: "
                             f"{', '.join(known) or 'none'}.")
        for item, choices in items:
            judgements: Sequence[tuple[str | None, str | None]] = (
                [(labeller, choices.get(labeller))] if labeller is not None
                else [(None, majority(choices.values()))] if how == "majority" else [*choices.items()])
            out += [(item, choice, who) for who, choice in judgements if choice in ("a", "b", "tie")]
        return out

    def pairs(self, labeller: str | None = None, how: str = "majority") -> list[Pair]:
        """The judgements as pairs for training; a tie is two half pairs."""
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


def connect_store(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        db.create_function("row_sum", -1, row_sum, deterministic=True)
        return db
    except sqlite3.Error as error:
        raise ValueError(f"cannot open a store at {path} ({error}): name a file in a "
                         "folder that exists.") from error


def check_store(db: sqlite3.Connection, path: Path) -> int:
    """The version of the store in the file, 0 if it is empty; other files raise."""
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


def resum(db: sqlite3.Connection, table: str, where: str, *values: object) -> None:
    """The sums of rows that were written, and how many rows there are."""
    db.execute(f"{RESUM[table]} WHERE {where}", values)
    db.execute("UPDATE sums SET rows = (SELECT max(id) FROM items) WHERE name = 'items'" if table == "items"
               else "UPDATE sums SET rows = (SELECT max(id) FROM labels) WHERE name = 'labels'")


def check_sums(db: sqlite3.Connection, path: Path) -> None:
    """Raises where the file has changed since its last write: a page, an index, a row or how many rows."""
    (sound,), *_ = db.execute("PRAGMA integrity_check(1)").fetchall()
    rows = dict(db.execute("SELECT name, rows FROM sums"))
    if sound == "ok":  # rows are never deleted, so the newest id is their number
        for table, names in SUMMED.items():
            counted = f"SELECT count(*), total(sum = row_sum({names})) FROM {table}"
            count, good = db.execute(counted).fetchone()
            if count != good or rows.get(table) != count:
                sound = f"{count - int(good)} of {count} {table} have changed, {rows.get(table)} were written"
                break
    if sound != "ok":
        raise ValueError(f"the store {path} is damaged ({sound:.200}): restore it from a copy.")


def check_tables(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Raises unless the file has exactly the store's tables and index: a view or a trigger could run code
    that never ends."""
    objects = {(kind, name) for kind, name, text in db.execute("SELECT type, name, sql FROM sqlite_master")
               if text is not None}  # SQLite's own indices have no text
    columns = {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in COLUMNS}
    wanted = {table: set(names.split()) for table, names in COLUMNS.items()}
    if version == 1:
        wanted["items"] -= {"removed"}
    if version < 3:
        wanted = {table: names - {"sum"} for table, names in wanted.items() if table != "sums"}
        columns.pop("sums", None)
    if odd := sorted(objects ^ (OBJECTS if version > 2 else OBJECTS - {("table", "sums")})):
        kind, name = odd[0]
        raise ValueError(f"{path} {'has' if odd[0] in objects else 'lacks'} the {kind} {name!r:.60}, and is "
                         "no preference store as postgrad makes it: name another file.")
    if columns != wanted:
        raise ValueError(f"{path} has tables of other columns than a preference store: name another file.")


def item_of(row: Sequence[Any]) -> Item:
    """An item from its row; raises if the row is malformed."""
    uid, messages, a, b, origin = row
    try:
        parsed = json.loads(messages)
        sound = (bool(parsed) and all(isinstance(x, str) for x in (uid, a, b, origin))
                 and all(m.keys() == {"role", "content"} and {*map(type, m.values())} == {str}
                         for m in parsed))
    except (ValueError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(f"the item {uid!r:.40} of the store is no prompt with two answers: something else "
                         "has changed the file, restore it from a copy.")
    return Item(uid=uid, messages=tuple(parsed), a=a, b=b, origin=origin)
