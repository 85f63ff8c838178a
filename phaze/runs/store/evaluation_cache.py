"""The cache: one file in the user's cache folder, which all runs share."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from phaze.errors import InputError
from phaze.runs.store.evaluation_database import Database, GuardedStore, Tell
from phaze.runs.store.model_version import model_version

FOLDER = "DSE_CACHE"
"""Environment variable that names the folder of the cache."""
LIMIT_BYTES = 1 << 30
_FILE = "evaluations.sqlite"


@dataclass(frozen=True, slots=True)
class VersionEntries:
    """Entries of one model version; `bytes` are those of their values."""

    version: str
    current: bool
    entries: int
    bytes: int


def cache_file() -> Path:
    """Where the cache is: below $DSE_CACHE, else $XDG_CACHE_HOME/phaze, else ~/.cache/phaze."""
    if named := os.environ.get(FOLDER):
        return Path(named) / _FILE
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "phaze" / _FILE


def open_cache(tell: Tell | None = None) -> GuardedStore:
    """The cache for this version of the model; `tell` hears the one sentence of a cache that cannot be used."""
    return GuardedStore(Database(cache_file(), model_version(), LIMIT_BYTES), "the cache", tell)


def kept_entries() -> tuple[VersionEntries, ...]:
    """Entries of the cache by version, this one first. Raises InputError where it cannot be read."""
    if not (path := cache_file()).exists():
        return ()
    query = (
        "SELECT name, count(entries.id), coalesce(sum(length(value)), 0) FROM versions "
        "LEFT JOIN entries ON entries.version = versions.id GROUP BY versions.id ORDER BY versions.id DESC"
    )
    now = model_version()
    rows = [VersionEntries(name, name == now, count, size) for name, count, size in _asked(path, query)]
    return tuple(sorted((row for row in rows if row.entries), key=lambda row: not row.current))


def clear_cache(*, stale: bool = False) -> None:
    """Remove the cache, or only what other versions of the model left. Raises InputError where that fails."""
    if not (path := cache_file()).exists():
        return
    if not stale:
        for file in (path, path.with_name(f"{path.name}-journal")):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"cannot remove {file}: {error.strerror}") from error
        return
    others = "(SELECT id FROM versions WHERE name != ?)"
    _asked(path, f"DELETE FROM entries WHERE version IN {others}", model_version())
    _asked(path, "DELETE FROM versions WHERE name != ?", model_version())
    _asked(path, "VACUUM")


def _asked(path: Path, query: str, *values: str) -> list[tuple[str, int, int]]:
    """The rows of one statement. Raises InputError where the file is no cache."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(f"the cache {path} cannot be used ({error}); dse cache clear removes it") from error
