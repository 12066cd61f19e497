"""The SQLite file under the preference store: its tables, its versions,
its sessions of one thread at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from postgrad.data.items import CHOICES

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
        store = cls(path, connect(path))
        try:
            with store._session("BEGIN") as db:
                version = check(db, path)
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
            version = check(db, self.path)
            for line in ((*(line for v in range(version, VERSION) for line in SINCE[v]), SCHEMA[-1])
                         if version else SCHEMA):
                db.execute(line)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
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


def connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise ValueError(f"cannot open a store at {path} ({error}): name a file in a "
                         "folder that exists.") from error


def check(db: sqlite3.Connection, path: Path) -> int:
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
    return version


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
