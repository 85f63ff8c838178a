"""Results in one SQLite file, of any number of model versions, safe for any number of processes; as stores for the
sake of speed they may fail, but nothing fails with them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import TypeVar

from phaze.digest import keyed_mark
from phaze.explore.request.search_resources import Store

SCHEMA = 1
BUSY_S = 5.0  # how long to wait for another process that writes; each writes for milliseconds
MARK = 8  # bytes that tell a damaged entry
CHUNK = 500  # keys asked for at once
_TABLES = (
    "CREATE TABLE IF NOT EXISTS versions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, "
    "value BLOB NOT NULL, mark BLOB NOT NULL, UNIQUE (version, key))",
    "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT NOT NULL)",
)


@dataclass
class Database:
    """A `Store` of one model version in a file, which is made when it is first written to.

    `limit_bytes`: size of the content above which the oldest quarter of it goes. Raises sqlite3.Error and OSError
    where the file cannot be used. Picklable.
    """

    path: Path
    version: str
    limit_bytes: int | None = None
    _open: dict[int, tuple[sqlite3.Connection, int]] = field(default_factory=dict, repr=False)
    _lock: RLock = field(default_factory=RLock, repr=False)

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Known values of some keys; damaged entries are not known, and forgotten."""
        found: dict[str, bytes] = {}
        damaged: list[bytes] = []
        wanted = [bytes.fromhex(key) for key in keys]
        with self._lock:
            connection, version = self._connection()
            for start in range(0, len(wanted), CHUNK):
                some = wanted[start : start + CHUNK]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, value, mark FROM entries WHERE version = ? AND key IN ({marks})"
                for key, value, mark in connection.execute(query, (version, *some)):
                    if _sound(key, value, mark):
                        found[key.hex()] = value
                    else:
                        damaged.append(key)
            if damaged:
                with self._transaction() as writing:
                    writing.executemany(
                        "DELETE FROM entries WHERE version = ? AND key = ?",
                        [(version, key) for key in damaged],
                    )
        return found

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember; a value that is there already stays."""
        rows = [(bytes.fromhex(key), value) for key, value in items.items()]
        with self._lock, self._transaction() as writing:
            version = self._connection()[1]
            writing.executemany(
                "INSERT OR IGNORE INTO entries (version, key, value, mark) VALUES (?, ?, ?, ?)",
                [(version, key, value, keyed_mark(key, value, MARK)) for key, value in rows],
            )
            if self.limit_bytes is not None and _used_bytes(writing) > self.limit_bytes:
                _drop_oldest_quarter(writing)

    def entries(self) -> int:
        """How many there are, of all versions."""
        with self._lock:
            return int(self._connection()[0].execute("SELECT count(*) FROM entries").fetchone()[0])

    # -- notes ------------------------------------------------------------------------------------------------

    def note(self, name: str) -> str | None:
        """A text that was kept beside the entries."""
        with self._lock:
            rows = self._connection()[0].execute("SELECT text FROM notes WHERE name = ?", (name,)).fetchall()
        return str(rows[0][0]) if rows else None

    def write_note(self, name: str, text: str) -> None:
        """Keep a text beside the entries."""
        with self._lock, self._transaction() as writing:
            writing.execute("INSERT OR REPLACE INTO notes (name, text) VALUES (?, ?)", (name, text))

    # -- the file ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; it opens again when it is needed."""
        with self._lock:
            connection = self._open.pop(os.getpid(), None)
            if connection is not None:
                connection[0].close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection, _ = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _connection(self) -> tuple[sqlite3.Connection, int]:
        """This process's connection and the number of the version; those of a parent stay open, but unused."""
        process = os.getpid()
        if process not in self._open:
            self._open[process] = self._opened()
        return self._open[process]

    def _opened(self) -> tuple[sqlite3.Connection, int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            return connection, _prepared(connection, self.version)
        except BaseException:
            connection.close()
            raise

    def __getstate__(self) -> dict[str, object]:
        """State with which another process opens the file by itself."""
        return {"path": self.path, "version": self.version, "limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Open nothing yet."""
        self.__dict__.update(state, _open={}, _lock=RLock())


def _prepared(connection: sqlite3.Connection, version: str) -> int:
    """The number of a version in a file that has the tables of this schema. Raises DatabaseError for another one."""
    number = connection.execute("PRAGMA user_version").fetchone()[0]
    if number not in (0, SCHEMA):
        raise sqlite3.DatabaseError(f"its schema is {number}, not {SCHEMA}")
    if number == 0:
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            connection.execute(table)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.commit()
    query = "SELECT id FROM versions WHERE name = ?"
    if (row := connection.execute(query, (version,)).fetchone()) is None:
        connection.execute("INSERT OR IGNORE INTO versions (name) VALUES (?)", (version,))
        row = connection.execute(query, (version,)).fetchone()
    return int(row[0])


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _drop_oldest_quarter(connection: sqlite3.Connection) -> None:
    """Entries are numbered as they come; the room of those that go is used again."""
    first, last = connection.execute("SELECT min(id), max(id) FROM entries").fetchone()
    connection.execute("DELETE FROM entries WHERE id <= ?", (first + (last - first) // 4,))


def _sound(key: object, value: object, mark: object) -> bool:
    """Whether an entry is what was written."""
    return isinstance(key, bytes) and isinstance(value, bytes) and mark == keyed_mark(key, value, MARK)


T = TypeVar("T")
Tell = Callable[[str], None]


@dataclass
class GuardedStore:
    """A database that is left out from its first failure on, with a sentence to `tell`; `name` says what it is."""

    database: Database
    name: str
    tell: Tell | None = None
    failed: bool = False
    process: int = field(default_factory=os.getpid)

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Known values of some keys, as far as the database can be read."""
        return self._tried(lambda: self.database.get(keys), {})

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember, if that is possible."""
        self._tried(lambda: self.database.put(items), None)

    def _tried(self, work: Callable[[], T], otherwise: T) -> T:
        if self.failed:
            return otherwise
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            self.fail(error)
            return otherwise

    def fail(self, error: Exception) -> None:
        """Leave the database out from now on; a copy of the process says nothing."""
        self.failed = True
        if self.tell is not None and os.getpid() == self.process:
            self.tell(f"{self.name} {self.database.path} cannot be used ({error}); going on without it")

    def __getstate__(self) -> dict[str, object]:
        """State for another process, which keeps its remarks to itself."""
        return {"database": self.database, "name": self.name, "failed": self.failed, "process": self.process}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Quietly."""
        self.__dict__.update(state, tell=None)


@dataclass(frozen=True)
class LayeredStores:
    """Two stores: the near one learns what the far one knows, and both what is new."""

    near: Store
    far: Store

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Values of some keys that either store knows."""
        found = self.near.get(keys)
        if not (left := [key for key in keys if key not in found]):
            return found
        if known := self.far.get(left):
            self.near.put(known)
        return {**found, **known}

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember in both."""
        self.near.put(items)
        self.far.put(items)
